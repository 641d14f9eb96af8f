"""Scales chosen from float weights, at load: float32 -> w8g32 or w4g32a.

w4g32a searches per group. Plain min/max spends a step on outliers; here the range is also tried
narrower and wider, the integers are rounded, scale and minimum are refitted to them by least
squares and rounded to float16, and the candidate with the smallest squared error is kept. Plain
min/max is one of the candidates, so the result is never worse.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from intattention._core import GROUP
from intattention.checkpoint import FloatFormat, LogicalTensor
from intattention.dtypes import F16, F32, U8

F16_MAX = 65504.0
CHUNK_ELEMENTS = 1 << 18  # temporaries of a chunk stay in the cache, and memory stays bounded
LEVELS = 15
# Steps that the range min..max is divided into. Fewer than 15: the range is covered with room to
# spare; more: the ends are clipped.
TRIED_STEPS = (15.0, 13.9, 14.3, 14.7, 15.4, 15.9, 16.5, 17.3)


def quantize(rows: U8, to_float: Callable[[U8], F32], format: FloatFormat) -> LogicalTensor:
    """Raw rows ``[out, bytes]`` -> quantised matrix; ``to_float`` turns some rows into float32.

    Chunks of rows run on a thread per CPU. ValueError if a weight is NaN or Inf, or too large for
    a float16 scale.
    """
    one_chunk = quantize_w8g32 if format == "w8g32" else quantize_w4g32a
    step = max(1, CHUNK_ELEMENTS // max(1, rows.shape[1] // 2))
    starts = range(0, rows.shape[0], step)
    with ThreadPoolExecutor(os.cpu_count()) as executor:
        parts = list(executor.map(lambda i: one_chunk(to_float(rows[i : i + step])), starts))
    minimums = [part.min for part in parts if part.min is not None]
    return LogicalTensor(
        format,
        np.concatenate([part.q for part in parts]),
        np.concatenate([part.scale for part in parts]),
        np.concatenate(minimums) if minimums else None,
    )


def quantize_w8g32(w: F32) -> LogicalTensor:
    """float32 ``[out, in]`` -> w8g32: scale = absmax / 127 per group, rounded to float16."""
    groups = _groups(w)
    absmax = np.abs(groups).max(axis=2)
    _check_range(absmax, F16_MAX * 127)
    scale = (absmax / 127).astype(np.float16)
    with np.errstate(divide="ignore"):
        inverse = np.where(scale > 0, 1 / scale.astype(np.float32), 0)
    q = np.clip(np.rint(groups * inverse[:, :, None]), -127, 127).astype(np.int8)
    return LogicalTensor("w8g32", q.reshape(w.shape), scale)


def quantize_w4g32a(w: F32) -> LogicalTensor:
    """float32 ``[out, in]`` -> w4g32a with the searched scales and minimums."""
    groups = _groups(w)
    low, high = groups.min(axis=2), groups.max(axis=2)
    _check_range(np.maximum(-low, high), F16_MAX)
    best_q, best_scale, best_min, best_error = _fit(groups, low, high, LEVELS, refit=False)
    for steps in TRIED_STEPS:
        q, scale, minimum, error = _fit(groups, low, high, steps, refit=True)
        better = error < best_error
        best_q[better] = q[better]
        best_scale[better] = scale[better]
        best_min[better] = minimum[better]
        best_error[better] = error[better]
    packed = best_q[:, :, : GROUP // 2] | best_q[:, :, GROUP // 2 :] << 4
    return LogicalTensor("w4g32a", packed, best_scale, best_min)


def _groups(w: F32) -> F32:
    return w.reshape(w.shape[0], -1, GROUP)


def _check_range(absmax: F32, limit: float) -> None:
    if not np.isfinite(absmax).all():
        raise ValueError("a weight is NaN or Inf")
    if absmax.max(initial=0) > limit:
        raise ValueError(f"a weight of {absmax.max()} is too large, the limit is {limit}")


def _fit(groups: F32, low: F32, high: F32, steps: float, refit: bool) -> tuple[U8, F16, F16, F32]:
    """Integers, scale, minimum and squared error if min..max is divided into ``steps`` steps.

    ``refit``: scale and minimum are then the least-squares fit to the integers.
    """
    middle, span = (low + high) / 2, high - low
    step = span / np.float32(steps)
    start = middle - step * np.float32(LEVELS / 2)
    q = _round(groups, step, start)
    if refit:
        step, start = _least_squares(groups, q, step, start)
    scale, minimum = _to_f16(step), _to_f16(start)
    q = _round(groups, scale.astype(np.float32), minimum.astype(np.float32))
    error = groups - q * scale.astype(np.float32)[:, :, None]
    error -= minimum.astype(np.float32)[:, :, None]
    return q.astype(np.uint8), scale, minimum, np.einsum("rgi,rgi->rg", error, error)


def _round(groups: F32, step: F32, start: F32) -> F32:
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.where(step > 0, 1 / step, 0)
    inverse[~np.isfinite(inverse)] = 0
    q = (groups - start[:, :, None]) * inverse[:, :, None]
    np.rint(q, out=q)
    return np.clip(q, 0, LEVELS, out=q)


def _least_squares(groups: F32, q: F32, step: F32, start: F32) -> tuple[F32, F32]:
    """The step and start that minimise the sum of (w - step*q - start)^2, where defined."""
    n = np.float32(GROUP)
    sum_q, sum_w = q.sum(axis=2), groups.sum(axis=2)
    sum_qq = np.einsum("rgi,rgi->rg", q, q)
    sum_qw = np.einsum("rgi,rgi->rg", q, groups)
    determinant = n * sum_qq - sum_q * sum_q
    usable = determinant > 0
    safe = np.where(usable, determinant, 1)
    fitted = (n * sum_qw - sum_q * sum_w) / safe
    usable &= fitted > 0
    new_step = np.where(usable, fitted, step)
    return new_step, np.where(usable, (sum_w - new_step * sum_q) / n, start)


def _to_f16(values: F32) -> F16:
    return np.clip(values, -F16_MAX, F16_MAX).astype(np.float16)
