"""This runtime's decoder with everything but attention in float32, and an attention of choice."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from intattention import _core
from intattention._core import DecoderConfig, PackedWeights, ThreadPool
from intattention.attention import attention
from intattention.dtypes import F32, S32
from intattention.eval.perplexity import CHUNK
from intattention.models.model import Parts
from intattention.models.weights import LayerWeights

Attention = Callable[..., F32]
ATTENTIONS: dict[str, Attention] = {
    "index": partial(attention, softmax="index"),
    "paper": partial(attention, softmax="paper"),
    "paper-floor": partial(attention, softmax="paper", rounding="floor"),
    "quant_only": partial(attention, softmax="quant_only"),
    "fp32": partial(attention, softmax="fp32"),
    "fp16": partial(attention, softmax="fp16"),
}
"""What each name computes; see ``intattention.attention``."""


class FloatDecoder:
    """The weights as the runtime packed them, multiplied in float32; a ``Predictor``.

    The steps are those of the core's decoder: what differs from it is the rounding of activations
    to int8 in the linears, and, with another ``softmax`` than "index", attention. A window is one
    call of attention, so the scales per tensor of "paper" and "quant_only" are those of a window.
    One layer's weights are float32 at a time.
    """

    def __init__(
        self, config: DecoderConfig, parts: Parts, softmax: str, pool: ThreadPool | None = None
    ) -> None:
        """ValueError: ``softmax`` is not one of ``ATTENTIONS``."""
        if softmax not in ATTENTIONS:
            known = ", ".join(map(repr, ATTENTIONS))
            raise ValueError(f"softmax is {softmax!r}, accepted: {known}")
        self._config = config
        self._parts = parts
        self._attention = partial(ATTENTIONS[softmax], causal=True, pool=pool)

    def logits(self, ids: S32) -> Iterator[F32]:
        """See ``Predictor``. ContextOverflowError: more tokens than the model's context."""
        c, parts = self._config, self._parts
        if len(ids) > c.max_position_embeddings:
            raise _core.ContextOverflowError(
                f"{len(ids)} tokens, the model's context is {c.max_position_embeddings}"
            )
        cos, sin = _angles(c, len(ids))
        x = parts.embed_tokens.dequantize_rows(np.ascontiguousarray(ids, np.int32))
        for layer in parts.layers:
            h = _core.rmsnorm_f32(x, layer.input_layernorm, c.rms_norm_eps)
            x += _linear(self._attend(layer, h, cos, sin), [layer.o_proj], layer.o_bias)
            h = _core.rmsnorm_f32(x, layer.post_attention_layernorm, c.rms_norm_eps)
            gate_up = _linear(h, layer.gate_up_proj, layer.gate_up_bias)
            gate, up = (np.ascontiguousarray(part) for part in np.split(gate_up, 2, axis=1))
            x += _linear(_core.swiglu_f32(gate, up), [layer.down_proj], layer.down_bias)
        x = _core.rmsnorm_f32(x, parts.norm, c.rms_norm_eps)
        head = _dequantized(parts.lm_head or parts.embed_tokens)
        for start in range(0, len(ids), CHUNK):
            yield x[start : start + CHUNK] @ head.T

    def _attend(self, layer: LayerWeights, h: F32, cos: F32, sin: F32) -> F32:
        """[T, hidden] after the norm -> [T, heads * head_dim]."""
        c = self._config
        q_size, kv_size = (n * c.head_dim for n in (c.num_attention_heads, c.num_key_value_heads))
        qkv = _linear(h, layer.qkv_proj, layer.qkv_bias)
        q, k, v = (
            x.reshape(len(h), -1, c.head_dim)
            for x in np.split(qkv, [q_size, q_size + kv_size], axis=1)
        )
        q, k = self._normed(q, layer.q_norm), self._normed(k, layer.k_norm)
        if layer.qk_scale is not None:
            scale = layer.qk_scale.reshape(-1, c.head_dim)
            q = q * np.repeat(scale, c.num_attention_heads // c.num_key_value_heads, axis=0)
            k = k / scale
        q, k = _rotated(q, cos, sin), _rotated(k, cos, sin)
        if layer.k_center is not None:
            k = k - layer.k_center.reshape(-1, c.head_dim)
        q, k, v = (x.transpose(1, 0, 2) for x in (q, k, v))
        return self._attention(q, k, v, window=layer.sliding_window).transpose(1, 0, 2).reshape(
            len(h), q_size
        )  # fmt: skip

    def _normed(self, x: F32, weight: F32 | None) -> F32:
        """RMSNorm of every head, x [T, heads, head_dim]."""
        if weight is None:
            return x
        rows = np.ascontiguousarray(x.reshape(-1, len(weight)))
        return _core.rmsnorm_f32(rows, weight, self._config.rms_norm_eps).reshape(x.shape)


def _linear(x: F32, parts: Sequence[PackedWeights], bias: F32 | None) -> F32:
    """[T, in] -> [T, sum of out]."""
    y = np.concatenate([x @ _dequantized(part).T for part in parts], axis=1)
    return y if bias is None else y + bias


def _dequantized(weights: PackedWeights) -> F32:
    return weights.dequantize_rows(np.arange(weights.shape[0], dtype=np.int32))


def _angles(config: DecoderConfig, count: int) -> tuple[F32, F32]:
    """cos and sin [count, 1, rotary_dim / 2], in double and rounded once."""
    angle = np.arange(count)[:, None, None] * config.rope_inverse_frequency
    cos, sin = (f(angle) * config.rope_attention_factor for f in (np.cos, np.sin))
    return cos.astype(np.float32), sin.astype(np.float32)


def _rotated(x: F32, cos: F32, sin: F32) -> F32:
    """x [T, heads, head_dim]; pairs are i and i + rotary_dim / 2."""
    half = cos.shape[2]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=2)
