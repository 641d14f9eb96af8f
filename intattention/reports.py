"""What ``intattention info`` says, as (name, value) lines."""

from collections import Counter
from collections.abc import Iterator
from math import prod
from pathlib import Path

from intattention import machine, models
from intattention.checkpoint import Checkpoint
from intattention.context import cache_bytes
from intattention.errors import IntAttentionError
from intattention.iatt_file import IattFile
from intattention.model_file import open_model_file
from intattention.tokenizer import TextTokenizer

Line = tuple[str, str]


def model_report(path: Path, verify: bool = False) -> Iterator[Line]:
    """What a file holds and whether it can run; reads the header, not the weights.

    ``verify`` reads them too and compares their checksums. ModelFileError if the header, or with
    ``verify`` a tensor, is damaged.
    """
    checkpoint = open_model_file(path)
    tensors = checkpoint.tensors.values()
    types = Counter(tensor.type for tensor in tensors)
    yield "file", f"{path}, {machine.format_bytes(_size(path))}, {checkpoint.format}"
    for key in ("name", "license"):
        if f"general.{key}" in checkpoint.metadata:
            yield key, str(checkpoint.metadata[f"general.{key}"])
    yield "parameters", f"{sum(prod(tensor.shape) for tensor in tensors) / 1e6:.1f} million"
    yield "tensors", ", ".join(f"{count} {name}" for name, count in types.most_common())
    if verify:
        yield "checksums", _verified(checkpoint)
    try:
        yield from _model_details(checkpoint)
    except IntAttentionError as error:
        yield "supported", f"no: {error}"


def _size(path: Path) -> int:
    files = path.glob("*.safetensors") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def _verified(checkpoint: Checkpoint) -> str:
    if not isinstance(checkpoint, IattFile):
        return "none in this format"
    checkpoint.verify()
    return "all good"


def _model_details(checkpoint: Checkpoint) -> Iterator[Line]:
    model = models.find(checkpoint)
    yield "architecture", model.family
    yield "layers", f"{model.num_hidden_layers} of width {model.hidden_size}"
    yield (
        "heads",
        f"{model.num_attention_heads} query, {model.num_key_value_heads} kv, "
        f"dimension {model.head_dim}",
    )
    full = machine.format_bytes(cache_bytes(model, model.context))
    more = f", up to {model.max_context} on request" if model.max_context > model.context else ""
    yield "context", f"{model.context} tokens, {full} of cache if full{more}"
    tokenizer = TextTokenizer(checkpoint)
    ends = [tokenizer.decode([i], skip_special=False) for i in sorted(tokenizer.end_ids)]
    yield "vocabulary", f"{tokenizer.vocab_size} tokens, ends a turn: {' '.join(ends) or 'none'}"
    yield "chat template", "yes" if tokenizer.chat_template else "no"
    yield "supported", "yes"
