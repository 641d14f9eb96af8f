"""Writes a tiny random llama model as GGUF: a real tokenizer and layout in 90 kilobytes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
from gguf.constants import GGMLQuantizationType as Type
from numpy.typing import NDArray

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ t", "h e", "i n", "Ġt he", "a n", "Ġ a", "e r", "o n", "r e", "Ã ©", "Ġ Ġ"]
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
VOCAB, CONTEXT = 300, 128


@dataclass(frozen=True)
class TinyModel:
    """What to write. ``types``: tensor name ending -> type, the rest is ``type``.

    ``metadata`` replaces keys, None removes them; ``tensors`` replaces float32 tensors; ``raw``
    gives tensors as blocks of a type, uint8 [rows, bytes].
    """

    type: Type = Type.Q4_1
    types: Mapping[str, Type] = field(default_factory=dict)
    layers: int = 2
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    inner: int = 96
    tied: bool = False
    seed: int = 1
    metadata: Mapping[str, object] = field(default_factory=dict)
    tensors: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    raw: Mapping[str, tuple[Type, NDArray[np.uint8]]] = field(default_factory=dict)
    architecture: str = "llama"


def byte_alphabet() -> list[str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]


def vocabulary() -> tuple[list[str], list[int]]:
    """300 tokens and their types (3 control, 1 normal, 5 unused)."""
    words = [*byte_alphabet(), *(merge.replace(" ", "") for merge in MERGES)]
    unused = [f"[unused{i}]" for i in range(VOCAB - len(CONTROL) - len(words))]
    tokens = [*CONTROL, *words, *unused]
    return tokens, [3] * len(CONTROL) + [1] * len(words) + [5] * len(unused)


def float_tensors(model: TinyModel) -> dict[str, NDArray[np.float32]]:
    """All tensors as float32, q and k in GGUF's row order."""
    random = np.random.default_rng(model.seed)
    q, kv = model.heads * model.head_dim, model.kv_heads * model.head_dim

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        return (random.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)

    def norm() -> NDArray[np.float32]:
        return (1 + 0.1 * random.standard_normal(model.hidden)).astype(np.float32)

    tensors = {"token_embd.weight": matrix(VOCAB, model.hidden), "output_norm.weight": norm()}
    if not model.tied:
        tensors["output.weight"] = matrix(VOCAB, model.hidden)
    for i in range(model.layers):
        tensors |= {
            f"blk.{i}.attn_norm.weight": norm(),
            f"blk.{i}.attn_q.weight": matrix(q, model.hidden),
            f"blk.{i}.attn_k.weight": matrix(kv, model.hidden),
            f"blk.{i}.attn_v.weight": matrix(kv, model.hidden),
            f"blk.{i}.attn_output.weight": matrix(model.hidden, q),
            f"blk.{i}.ffn_norm.weight": norm(),
            f"blk.{i}.ffn_gate.weight": matrix(model.inner, model.hidden),
            f"blk.{i}.ffn_up.weight": matrix(model.inner, model.hidden),
            f"blk.{i}.ffn_down.weight": matrix(model.hidden, model.inner),
        }
    return {**tensors, **model.tensors}


def metadata(model: TinyModel) -> dict[str, object]:
    tokens, types = vocabulary()
    values: dict[str, object] = {
        "llama.block_count": model.layers,
        "llama.context_length": CONTEXT,
        "llama.embedding_length": model.hidden,
        "llama.feed_forward_length": model.inner,
        "llama.attention.head_count": model.heads,
        "llama.attention.head_count_kv": model.kv_heads,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": model.head_dim,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }
    prefix = model.architecture + "."
    values = {key.replace("llama.", prefix): value for key, value in values.items()}
    values |= model.metadata
    return {key: value for key, value in values.items() if value is not None}


def write(path: Path, model: TinyModel | None = None) -> Path:
    """Writes the model and returns its path."""
    model = model or TinyModel()
    writer = gguf.GGUFWriter(path, model.architecture)
    for key, value in metadata(model).items():
        _add(writer, key, value)
    for name, tensor in float_tensors(model).items():
        type_ = tensor_type(model, name, tensor)
        if name in model.raw:
            type_, blocks = model.raw[name]
        else:
            blocks = gguf.quants.quantize(tensor, type_)
        writer.add_tensor(name, blocks, raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensor_type(model: TinyModel, name: str, tensor: NDArray[np.float32]) -> Type:
    for ending, type_ in model.types.items():
        if name.endswith(ending):
            return type_
    if tensor.ndim == 1:
        return Type.F32
    return Type.Q8_0 if name in ("token_embd.weight", "output.weight") else model.type


def _add(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        assert isinstance(value, list)
        writer.add_array(key, value)
