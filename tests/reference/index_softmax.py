"""The 16-bit index softmax of one key block (docs/numerics.md section 3)."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

f32 = np.float32
CLIP_NATS = 6.6
COUNTS = 1024
NO_MAX = -(1 << 30)
TINY_SCALE = f32(1e-30)  # a block whose largest scale is below counts as zeros
LUT = np.array([round(255 * math.exp(-CLIP_NATS * i / 31)) for i in range(31)] + [0], np.uint8)


class SoftmaxBlock(NamedTuple):
    probs: NDArray[np.uint8]
    max: NDArray[np.int32]
    sum: NDArray[np.uint32]


def narrow_bits(q8: NDArray[np.int8]) -> NDArray[np.int64]:
    """n of the rounding narrow of each row [..., d]: smallest with 127 * |q8|_1 <= 32767 * 2^n."""
    largest = 127 * np.abs(q8.astype(np.int64)).sum(axis=-1)
    return (largest[..., None] > 32767 << np.arange(32)).sum(axis=-1)


def mulhrs(x: NDArray, y: NDArray) -> NDArray[np.int64]:
    return (np.asarray(x, np.int64) * np.asarray(y, np.int64) + (1 << 14)) >> 15


def sat16(x: NDArray) -> NDArray:
    return np.clip(x, -32768, 32767)


def key_ratio(scale: NDArray[f32], largest: NDArray[f32]) -> NDArray[np.int16]:
    """Q15 ratio of each key's scale to the largest; 0 where that is tiny."""
    return _ratio(scale, largest, 32767).astype(np.int16)


def value_ratio(scale: NDArray[f32], largest: NDArray[f32]) -> NDArray[np.uint16]:
    return _ratio(scale, largest, 256).astype(np.uint16)


def _ratio(scale: NDArray[f32], largest: NDArray[f32], one: int) -> NDArray[f32]:
    zero = largest < TINY_SCALE
    safe = np.where(zero, f32(1), largest)
    return np.where(zero, f32(0), np.rint(scale * (f32(one) / safe)))


def row_factor(
    s_q: NDArray[f32], s_k: NDArray[f32], scale: float, narrow: NDArray
) -> tuple[NDArray[f32], NDArray[np.int16], NDArray[np.int32]]:
    """Counts per unit of u: F itself, its Q15 mantissa f and its shift e."""
    counts = (
        np.exp2(np.asarray(narrow, np.float64)) * (COUNTS / CLIP_NATS) * (32768 / 32767)
    ).astype(f32)
    factor = ((np.asarray(s_q, f32) * np.asarray(s_k, f32)) * f32(scale)) * counts
    shift = np.clip(np.where(factor < 1, 0, np.frexp(factor)[1]), 0, 15).astype(np.int32)
    mantissa = np.rint(np.ldexp(factor, -shift) * f32(32768))
    return factor, np.minimum(mantissa, 32767).astype(np.int16), shift


def counts(
    logits: NDArray[np.int32], ratio: NDArray, narrow: NDArray, factor: NDArray, lshift: NDArray
) -> NDArray[np.int64]:
    """t [m, n]; factor and lshift [m]; narrow [m] or one for all."""
    n = np.broadcast_to(np.asarray(narrow, np.int64), len(logits))[:, None]
    b = sat16((logits.astype(np.int64) + ((1 << n) >> 1)) >> n)
    u = mulhrs(b, ratio)
    shifted = sat16(u << np.asarray(lshift, np.int64)[:, None])
    return mulhrs(shifted, np.asarray(factor)[:, None])


def index_softmax(
    logits: NDArray[np.int32],
    key_ratio: NDArray[np.int16],
    value_ratio: NDArray[np.uint16],
    begin: NDArray[np.int32],
    end: NDArray[np.int32],
    narrow: NDArray,
    factor: NDArray[np.int16],
    lshift: NDArray[np.int32],
    running_max: NDArray[np.int32],
) -> SoftmaxBlock:
    """The kernel's contract. The ratios are [n], or [m, n] if they differ from row to row."""
    t = counts(logits, key_ratio, narrow, factor, lshift)
    j = np.arange(logits.shape[1])
    visible = (j >= np.asarray(begin)[:, None]) & (j < np.asarray(end)[:, None])
    block_max = np.where(visible, t, NO_MAX).max(axis=1, initial=NO_MAX)
    new_max = np.maximum(running_max, block_max)
    delta = np.clip(new_max[:, None] - t, 0, COUNTS)  # < 0 only for masked keys
    e = np.where(visible, LUT[(delta * 31 + 512) >> 10], 0).astype(np.int64)
    probs = (e * np.asarray(value_ratio, np.int64) + 128) >> 8
    return SoftmaxBlock(
        probs.astype(np.uint8), new_max.astype(np.int32), e.sum(axis=1).astype(np.uint32)
    )
