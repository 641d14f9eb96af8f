"""What ``intattention info`` and ``intattention doctor`` say, as (name, value) lines."""

import os
import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path

import intattention
from intattention import _core, machine, models
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


def machine_report(threads: int, cpus: list[int] | None) -> Iterator[Line]:
    """Versions, kernels and why, cores, pinning, governor, memory."""
    yield "intattention", f"{intattention.__version__}, Python {platform.python_version()}"
    yield "system", f"{platform.system()} {platform.release()} on {platform.machine()}"
    yield "processor", machine.cpu_model()
    yield from _kernel_lines(os.environ)
    yield from _core_lines(threads, cpus)
    memory = machine.memory_bytes()
    if memory is not None:
        total, available = map(machine.format_bytes, memory)
        yield "memory", f"{available} available of {total}"


def _kernel_lines(environment: Mapping[str, str]) -> Iterator[Line]:
    built, runnable, active = _core.built_isas(), _core.available_isas(), _core.active_isa()
    yield "CPU features", " ".join(_core.cpu_features()) or "none that a kernel uses"
    yield "tables built", ", ".join(built)
    missing = [name for name in built if name not in runnable]
    note = f" (this CPU cannot run {', '.join(missing)})" if missing else ""
    yield "tables runnable", ", ".join(runnable) + note
    if active == runnable[0]:
        why = "the best that this CPU can run"
    elif environment.get("INTATTENTION_ISA") == active:
        why = "forced by INTATTENTION_ISA"
    else:
        why = "forced by --isa or use_isa()"
    yield "table active", f"{active}: {why}"
    for op, kernel in _core.kernel_names().items():
        yield f"  {op}", kernel


def _core_lines(threads: int, cpus: list[int] | None) -> Iterator[Line]:
    allowed = machine.allowed_cpus()
    yield "CPUs", f"{len(allowed)} usable: {machine.format_cpus(allowed)}"
    for speed, members in machine.clusters(allowed).items():
        yield "  cluster", f"{machine.format_cpus(members)}: {speed}"
    fastest = _core.performance_cpus()
    yield "performance CPUs", machine.format_cpus(fastest) or "unknown"
    pool = _core.ThreadPool(threads, cpus)
    pinning = f"pinned to {machine.format_cpus(pool.cpus)}" if pool.cpus else "not pinned"
    yield "threads", f"{pool.threads}, {pinning}"
    governors = machine.governors(allowed)
    yield (
        "governor",
        "; ".join(f"{name} on {machine.format_cpus(on)}" for name, on in governors.items())
        or "not visible",
    )
