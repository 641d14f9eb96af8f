"""The 16-bit index softmax of one key block (docs/numerics.md sections 3 and 4)."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

f32 = np.float32
CLIP_NATS = 6.6
COUNTS = 1024
NO_MAX = -(1 << 30)
NATS_PER_COUNT = f32(CLIP_NATS / COUNTS)
DROP = 2048  # counts below the running maximum at which a block no longer matters
TINY_SCALE = f32(1e-30)  # a block whose largest key scale is below counts as zeros
SMALLEST_VALUE_SCALE = 1e-25  # smaller ones count as this
CONTRAST = 430  # counts (a factor of 16) that log scales of V may lie below the largest
LUT = np.array(
    [max(1, round(255 * math.exp(-CLIP_NATS * i / 63))) for i in range(63)] + [0], np.uint8
)
SUM_WEIGHT = np.array(
    [round(32767 * math.exp(-CLIP_NATS * i / COUNTS)) for i in range(CONTRAST + 1)], np.uint16
)


class SoftmaxBlock(NamedTuple):
    probs: NDArray[np.uint8]
    max: NDArray[np.int32]
    sum: NDArray[np.uint32]


class ValueFold(NamedTuple):
    """Of keys 0 .. end-1 of a block; [rows, n] and [rows], end differing from row to row."""

    log_scale: NDArray[np.int64]
    sum_weight: NDArray[np.uint16]
    smallest: NDArray[np.int64]


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
    zero = largest < TINY_SCALE
    safe = np.where(zero, f32(1), largest)
    return np.where(zero, f32(0), np.rint(scale * (f32(32767) / safe))).astype(np.int16)


def log_scale(scale: NDArray[f32]) -> NDArray[np.int64]:
    """ln of the scales of V in counts."""
    floored = np.maximum(np.asarray(scale, np.float64), SMALLEST_VALUE_SCALE)
    return np.rint(np.log(floored) * (COUNTS / CLIP_NATS)).astype(np.int64)


def value_fold(log_scales: NDArray, end: NDArray) -> ValueFold:
    """log_scales [n] of a block's keys; end [rows], at least 1."""
    prefix = np.asarray(end) - 1
    lowest = np.maximum.accumulate(log_scales)[prefix] - CONTRAST
    smallest = np.maximum(np.minimum.accumulate(log_scales)[prefix], lowest)
    bounded = np.maximum(log_scales, lowest[:, None])
    # keys past `end` are masked; they may lie below the smallest or far above it
    above = np.clip(bounded - smallest[:, None], 0, CONTRAST)
    return ValueFold(bounded, SUM_WEIGHT[above], smallest)


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
    log_scale: NDArray,
    sum_weight: NDArray[np.uint16],
    begin: NDArray[np.int32],
    end: NDArray[np.int32],
    narrow: NDArray,
    factor: NDArray[np.int16],
    lshift: NDArray[np.int32],
    running_max: NDArray[np.int32],
) -> SoftmaxBlock:
    """The kernel's contract. Arguments per key are [n], or [m, n] if they differ by row."""
    t = counts(logits, key_ratio, narrow, factor, lshift)
    y = sat16(t + np.asarray(log_scale, np.int64))
    j = np.arange(logits.shape[1])
    visible = (j >= np.asarray(begin)[:, None]) & (j < np.asarray(end)[:, None])
    largest = np.where(visible, y, NO_MAX).max(axis=1, initial=NO_MAX)
    kept = visible & (largest + DROP >= running_max)[:, None]
    delta = np.clip(largest[:, None] - y, 0, COUNTS)  # < 0 only for masked keys
    probs = np.where(kept, LUT[(delta * 63 + 512) >> 10], 0).astype(np.int64)
    total = (probs * np.asarray(sum_weight, np.int64)).sum(axis=1)
    return SoftmaxBlock(probs.astype(np.uint8), largest.astype(np.int32), total.astype(np.uint32))
