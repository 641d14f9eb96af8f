"""softmax="paper": IndexSoftmax attention as published (docs/numerics.md section 7)."""

import math

import numpy as np
from numpy.typing import NDArray

from reference.attention import visible_range

f32 = np.float32
MAX_CLIP = 2**31 - 1
LUT = np.array([round(255 * math.exp(-6.6 * i / 31)) for i in range(31)] + [0], np.uint8)


def quantize_tensor(x: NDArray[f32]) -> tuple[NDArray[np.int8], f32]:
    """One scale for the whole array."""
    scale = np.abs(x).max() / f32(127)
    if scale == 0:
        return np.zeros(x.shape, np.int8), scale
    return np.clip(np.rint(x / scale), -127, 127).astype(np.int8), scale


def clip_int(s_q: f32, s_k: f32, scale: float, rounding: str) -> int:
    with np.errstate(divide="ignore", over="ignore"):
        c = f32(6.6) / f32(s_q) / f32(s_k) / f32(scale)
    if not c < MAX_CLIP:
        return MAX_CLIP
    return max(1, int(np.trunc(c) if rounding == "floor" else np.rint(c)))


def softmax_rows(
    logits: NDArray, visible: NDArray, c_int: int, rounding: str
) -> tuple[NDArray, NDArray]:
    """logits [..., n] -> (P, row sum of E)."""
    a = logits.astype(np.int64)
    largest = np.where(visible, a, np.iinfo(np.int64).min).max(axis=-1, keepdims=True)
    delta = np.where(visible, np.minimum(largest - a, c_int), c_int)
    half = c_int if rounding == "nearest" else 0
    index = (62 * delta + half) // (2 * c_int)
    e = np.where(visible, LUT.astype(np.int64)[index], 0)
    total = e.sum(axis=-1, keepdims=True)
    quotient, rest = np.divmod(255 * e, np.maximum(total, 1))
    up = (2 * rest > total) | ((2 * rest == total) & (quotient % 2 == 1) & (total > 0))
    return (quotient + up).astype(np.uint8), total[..., 0]


def attention_int8(
    q8: NDArray[np.int8],
    k8: NDArray[np.int8],
    v8: NDArray[np.int8],
    scales: tuple[f32, f32, f32],
    causal: bool,
    scale: float | None = None,
    window: int = 0,
    prefix: int = 0,
    rounding: str = "nearest",
) -> tuple[NDArray[f32], NDArray[np.uint8]]:
    """q8 [n_heads, q_len, d], k8, v8 [n_kv_heads, kv_len, d] -> (out, P)."""
    scale = 1 / math.sqrt(q8.shape[-1]) if scale is None else scale
    group = len(q8) // len(k8)
    k, v = (np.repeat(x.astype(np.int64), group, axis=0) for x in (k8, v8))
    begin, end = visible_range(q8.shape[1], k.shape[1], causal, window, prefix)
    j = np.arange(k.shape[1])
    visible = (j >= begin[:, None]) & (j < end[:, None])
    logits = q8.astype(np.int64) @ k.transpose(0, 2, 1)
    c_int = clip_int(scales[0], scales[1], scale, rounding)
    probs, _ = softmax_rows(logits, visible, c_int, rounding)
    out = (probs.astype(np.int64) @ v).astype(f32) * f32(scales[2]) / f32(255)
    return out, probs


def attention(
    q: NDArray[f32],
    k: NDArray[f32],
    v: NDArray[f32],
    causal: bool,
    scale: float | None = None,
    window: int = 0,
    prefix: int = 0,
    rounding: str = "nearest",
) -> NDArray[f32]:
    (q8, s_q), (k8, s_k), (v8, s_v) = map(quantize_tensor, (q, k, v))
    return attention_int8(q8, k8, v8, (s_q, s_k, s_v), causal, scale, window, prefix, rounding)[0]
