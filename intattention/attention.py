"""Attention on float arrays: the integer definition and its rivals."""

import math
from typing import Literal, get_args

import numpy as np

from intattention import _core
from intattention._core import ThreadPool
from intattention.dtypes import F32

Softmax = Literal["index", "paper", "quant_only", "fp32", "fp16"]
SOFTMAXES: tuple[Softmax, ...] = get_args(Softmax)


def attention(
    q: F32,
    k: F32,
    v: F32,
    causal: bool = False,
    scale: float | None = None,
    softmax: Softmax = "index",
    window: int = 0,
    pool: ThreadPool | None = None,
    prefix: int = 0,
    rounding: Literal["nearest", "floor"] = "nearest",
) -> F32:
    """Scaled dot-product attention.

    q: float32 ``[n_heads, q_len, d]``; k, v: float32 ``[n_kv_heads, kv_len, d]``, where n_heads is
    a multiple of n_kv_heads (grouped-query attention) and d of 16. Returns float32
    ``[n_heads, q_len, d]``. Strided arrays are copied; other dtypes are refused, not cast.

    causal: query i sits at position kv_len - q_len + i and sees the keys up to there. window: with
    causal, it sees at most its last ``window`` keys (0: all). prefix: with causal, every query also
    sees the keys below ``prefix`` (prefix LM). scale: 1/sqrt(d) by default.
    pool: the threads to use; by default one per performance core, shared.

    softmax (docs/numerics.md):

    - "index": the runtime's integer attention, sections 2 to 5.
    - "paper": IntAttention as published (arXiv 2511.21513), section 7; ``rounding`` "nearest" is
      the paper's text, "floor" its Python. Loses accuracy as the context grows.
    - "quant_only": INT8 QK and PV around a float softmax, section 8.
    - "fp32", "fp16": float attention, section 9.

    ValueError: shapes that do not fit, a dtype other than float32, NaN or Inf, values out of range.
    RuntimeError: "fp16" where the active ISA has no float16. NumericError: float overflow.
    """
    if softmax not in SOFTMAXES:
        raise ValueError(f"softmax is {softmax!r}, accepted: {', '.join(map(repr, SOFTMAXES))}")
    q, k, v = _checked("q", q), _checked("k", k), _checked("v", v)
    for name, count in (("window", window), ("prefix", prefix)):
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 0:
            raise ValueError(f"{name} is {count!r}, expected an integer >= 0")
    if scale is None:
        scale = 1 / math.sqrt(q.shape[2]) if q.shape[2] else 1.0
    causal, scale, window, prefix = bool(causal), float(scale), int(window), int(prefix)
    if softmax == "paper":
        return _core.attention_paper(q, k, v, causal, scale, window, prefix, rounding, pool)
    if softmax == "quant_only":
        return _core.attention_quant_only(q, k, v, causal, scale, window, prefix, pool)
    if softmax == "index":
        return _core.attention(q, k, v, causal, scale, window, pool, prefix)
    return _core.attention_float(q, k, v, causal, scale, window, prefix, softmax, pool)


def _checked(name: str, array: F32) -> F32:
    if not isinstance(array, np.ndarray) or array.dtype != np.float32:
        kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise ValueError(f"{name} is {kind}, expected a float32 array")
    if array.ndim != 3:
        raise ValueError(f"{name} has the shape {array.shape}, expected [heads, length, d]")
    return np.ascontiguousarray(array)
