"""Real q, k, v of SmolLM2 and a bias of k as large as Qwen2.5-7B's largest: the whole attention.

RoPE is linear, so the rotated bias is added to the captured k. q is made smaller in the bias's
pairs, as it is in a model that works: turning the bias over the context moves logits by a few nats.
"""

import functools

import numpy as np
import pytest
import smollm2_core
from numpy.typing import NDArray
from reference.attention import float_attention
from smollm2_core import HEAD_DIM, HEADS, KV_HEADS

import intattention
from intattention._core import Decoder
from intattention.models.qk_balance import QK, balance
from intattention.quantize import quantize_w8g32

NORM = 900
PAIRS = {"slow": [31, 30, 28, 24], "mixed": [31, 24, 16, 8], "middle": [15, 16], "fast": [2, 5]}
HALF, GROUP = HEAD_DIM // 2, HEADS // KV_HEADS
FREQUENCIES = 1e5 ** (-np.arange(HALF) / HALF)
TOKENS, QUERIES, CONTEXT, BIAS_NATS = 1024, 128, 8192, 3.0
MAX_ERROR = 0.02  # relative L1 of the attention output; 0.018 without any bias
PLAIN_ERROR = 0.10  # what it is more than without the remedy


@functools.cache
def model() -> Decoder:
    return smollm2_core.build(threads=2)


@functools.cache
def captured(layer: int) -> tuple[NDArray, NDArray, NDArray]:
    """q [9, TOKENS, 64], k and v [3, TOKENS, 64] of WikiText-2 test, after RoPE."""
    ids = smollm2_core.golden()["wikitext_ids"].astype(np.int32)[:TOKENS]
    decoder = model()
    return decoder.capture_qkv(ids, decoder.new_cache(TOKENS), layer)


def draw_bias(pairs: list[int]) -> NDArray[np.float64]:
    """[kv_heads, HALF] complex: first plus i times second half of each head's bias."""
    random = np.random.RandomState(0)
    bias = np.zeros((KV_HEADS, HALF), complex)
    angle = random.uniform(0, 2 * np.pi, (KV_HEADS, len(pairs)))
    bias[:, pairs] = random.uniform(0.5, 1.5, (KV_HEADS, len(pairs))) * np.exp(1j * angle)
    return bias * NORM / np.linalg.norm(bias, axis=1, keepdims=True)


def halves(pairs: NDArray) -> NDArray:
    """Complex pairs as channels: the real parts, then the imaginary."""
    return np.concatenate([pairs.real, pairs.imag], axis=-1)


def pair_factor(q: NDArray, bias: NDArray) -> NDArray[np.float64]:
    """[heads, 64] by which q is made smaller."""
    size = np.sqrt((q[..., :HALF] ** 2 + q[..., HALF:] ** 2).mean(axis=1, dtype=np.float64))
    most = size.reshape(KV_HEADS, GROUP, HALF).max(axis=1)
    turn = np.abs(bias) * np.minimum(2, FREQUENCIES * CONTEXT) * most
    factor = np.minimum(1, BIAS_NATS * np.sqrt(HEAD_DIM) / np.maximum(turn, 1e-9))
    return np.repeat(np.concatenate([factor, factor], axis=1), GROUP, axis=0)


@pytest.mark.parametrize("layer", [12, 18])  # the two whose attention loses most to int8
@pytest.mark.parametrize("where", PAIRS)
def test_bias_of_norm_900(layer: int, where: str) -> None:
    q, k, v = captured(layer)
    bias = draw_bias(PAIRS[where])
    factor = pair_factor(q, bias)
    q = q[:, -QUERIES:] * factor[:, None]
    turns = np.exp(1j * FREQUENCIES * np.arange(TOKENS)[:, None])
    k = k + halves(bias[:, None] * turns)

    q_rows, k_rows, input_norm = smollm2_core.qk_weights(layer)
    qkv_bias = np.zeros((HEADS + 2 * KV_HEADS) * HEAD_DIM, np.float32)
    qkv_bias[q_rows.shape[0] : q_rows.shape[0] + k_rows.shape[0]] = halves(bias).ravel()
    q_proj = quantize_w8g32((q_rows * factor.reshape(-1, 1)).astype(np.float32)).pack()
    qk = QK(q_proj, quantize_w8g32(k_rows).pack(), input_norm, qkv_bias)
    found = balance(qk, HEAD_DIM, FREQUENCIES, 1.0, CONTEXT)
    assert found.scale is not None
    assert found.center is not None
    scale, center = (x.reshape(KV_HEADS, 1, HEAD_DIM) for x in (found.scale, found.center))

    exact = float_attention(q, k, v)

    def error(q: NDArray, k: NDArray) -> float:
        q, k = q.astype(np.float32), k.astype(np.float32)
        difference = intattention.attention(q, k, v, causal=True) - exact
        return float(np.abs(difference).sum() / np.abs(exact).sum())

    assert error(q, k) > PLAIN_ERROR
    assert error(q * np.repeat(scale, GROUP, axis=0), k / scale - center) <= MAX_ERROR
