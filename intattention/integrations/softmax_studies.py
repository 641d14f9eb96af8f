"""Float attention with another's softmax in it, for accuracy studies: NumPy, not made to be fast.

All take q float32 ``[n_heads, q_len, d]`` and k, v float32 ``[n_kv_heads, kv_len, d]`` and the
masks of ``intattention.attention``, and return float32 ``[n_heads, q_len, d]``.
"""

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np

from intattention.dtypes import F32

TILE_ROWS = 128
CLIP_NATS = 6.6
STEPS = 31
LUT = np.rint(255 * np.exp(-CLIP_NATS * np.arange(STEPS + 1) / STEPS)).astype(np.float32)
EXAQ_CLIP = {2: (1.66, 1.85), 3: (1.75, 2.06)}
"""bits -> (a, b) of the clip -(a * sigma + b); from the authors' code, named below."""


def index_softmax_only(
    q: F32, k: F32, v: F32, *, causal: bool, scale: float, window: int = 0
) -> F32:
    """The published IndexSoftmax (b = 5, c = 6.6, rounded to nearest) on float logits.

    arXiv 2511.21513: idx = round(31 * min(max - x, c) / c), E = LUT[idx], P = round(255 E / sum)
    in u8, P / 255 times the float v.
    """
    out = np.empty_like(q)
    for rows, x in _logits(q, k, causal, scale, window):
        e = LUT[np.floor(np.minimum(-x, CLIP_NATS) * (STEPS / CLIP_NATS) + 0.5).astype(np.intp)]
        e[np.isneginf(x)] = 0
        p = np.rint(255 * e / e.sum(axis=-1, keepdims=True))
        out[:, rows] = p @ _repeat(v, q) / np.float32(255)
    return out


def exaq(
    q: F32, k: F32, v: F32, *, causal: bool, scale: float, window: int = 0, bits: Literal[2, 3]
) -> F32:
    """EXAQ (arXiv 2410.03185): logits in 2^bits levels between an analytic clip and 0.

    sigma is the sample standard deviation of all visible logits of the call, less their row's
    maximum; levels reach to the clip or the smallest logit, whichever is nearer to 0. As in
    github.com/Anonymous1252022/EXAQ with CLIP_TYPE.GAUSS, without its calibration (a mean of the
    clips of 25 calls) and without its table of numerically found clips.
    """
    lowest = _exaq_lowest(q, k, causal, scale, window, bits)
    out = np.empty_like(q)
    for rows, x in _logits(q, k, causal, scale, window):
        levels = x
        if lowest < 0:
            step = -lowest / (2**bits - 1)
            levels = (np.rint((np.maximum(x, lowest) - lowest) / step) * step + lowest).astype(
                np.float32
            )
        e = np.where(np.isneginf(x), 0, np.exp(levels)).astype(np.float32)
        out[:, rows] = e @ _repeat(v, q) / e.sum(axis=-1, keepdims=True)
    return out


def _exaq_lowest(q: F32, k: F32, causal: bool, scale: float, window: int, bits: int) -> float:
    count, total, squares, smallest = 0, 0.0, 0.0, 0.0
    for _, x in _logits(q, k, causal, scale, window):
        seen = x[~np.isneginf(x)].astype(np.float64)
        count += seen.size
        total += seen.sum()
        squares += (seen**2).sum()
        smallest = min(smallest, seen.min())
    variance = (squares - total**2 / count) / (count - 1) if count > 1 else 0.0
    a, b = EXAQ_CLIP[bits]
    return max(float(smallest), -(a * math.sqrt(max(variance, 0.0)) + b))


def _logits(q: F32, k: F32, causal: bool, scale: float, window: int) -> Iterator[tuple[slice, F32]]:
    """Rows, and their logits less the row's maximum ``[n_heads, rows, kv_len]``; -inf if masked."""
    q_len, kv_len = q.shape[1], k.shape[1]
    keys = np.arange(kv_len)
    key_columns = _repeat(k, q).transpose(0, 2, 1)
    for start in range(0, q_len, TILE_ROWS):
        rows = slice(start, min(start + TILE_ROWS, q_len))
        x = (q[:, rows] @ key_columns) * np.float32(scale)
        if not np.isfinite(x).all():
            raise ValueError("q and k have products that are NaN or Inf")
        if causal:
            last = np.arange(kv_len - q_len + start, kv_len - q_len + rows.stop)[:, None]
            hidden = keys > last
            if window:
                hidden |= keys <= last - window
            x[:, hidden] = -np.inf
        yield rows, x - x.max(axis=-1, keepdims=True)


def _repeat(x: F32, q: F32) -> F32:
    """One key or value head per query head."""
    return np.repeat(x, len(q) // len(x), axis=0)
