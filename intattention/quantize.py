"""Scales chosen from float weights, at load: float32 -> w8g32, w4g32 or w4g32a.

The search per group is the core's (src_core/quantize_weights.h). docs/quantizer.md holds what it
gains, and what each matrix of a model loses at 4 bit.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from intattention import _core
from intattention.checkpoint import FloatFormat, LogicalTensor, WeightFormat
from intattention.dtypes import F32, U8

CHUNK_ELEMENTS = 1 << 18  # temporaries of a chunk stay in the cache, and memory stays bounded


def quantize(
    rows: U8,
    to_float: Callable[[U8], F32],
    format: FloatFormat,
    importance: F32 | None = None,
) -> LogicalTensor:
    """Raw rows ``[out, bytes]`` -> quantised matrix; ``to_float`` turns some rows into float32.

    importance: float32 ``[in]``, what the squared error of each column counts (the mean square of
    the activations there); 1 if not given. Chunks of rows run on a thread per CPU. ValueError if a
    weight is NaN or Inf, or too large for a float16 scale.
    """
    step = max(1, CHUNK_ELEMENTS // max(1, rows.shape[1] // 2))

    def one_chunk(start: int) -> LogicalTensor:
        return quantize_float(to_float(rows[start : start + step]), format, importance)

    with ThreadPoolExecutor(os.cpu_count()) as executor:
        parts = list(executor.map(one_chunk, range(0, rows.shape[0], step)))
    minimums = [part.min for part in parts if part.min is not None]
    return LogicalTensor(
        format,
        np.concatenate([part.q for part in parts]),
        np.concatenate([part.scale for part in parts]),
        np.concatenate(minimums) if minimums else None,
    )


def quantize_float(w: F32, format: WeightFormat, importance: F32 | None = None) -> LogicalTensor:
    """float32 ``[out, in]`` -> quantised matrix, on this thread."""
    w = np.ascontiguousarray(w, np.float32)
    return LogicalTensor(format, *_core.quantize_weights(w, format, importance))


def quantize_w8g32(w: F32) -> LogicalTensor:
    """float32 ``[out, in]`` -> w8g32: scale = absmax / 127 per group, rounded to float16."""
    return quantize_float(w, "w8g32")


def quantize_w4g32a(w: F32) -> LogicalTensor:
    """float32 ``[out, in]`` -> w4g32a with the searched scales and minimums."""
    return quantize_float(w, "w4g32a")
