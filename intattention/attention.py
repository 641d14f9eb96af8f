"""Integer attention on float arrays: quantise, INT8 QK, index softmax, INT8 PV."""

import math

import numpy as np

from intattention import _core
from intattention._core import ThreadPool
from intattention.dtypes import F32

SOFTMAXES = ("index",)


def attention(
    q: F32,
    k: F32,
    v: F32,
    causal: bool = False,
    scale: float | None = None,
    softmax: str = "index",
    window: int = 0,
    pool: ThreadPool | None = None,
    prefix: int = 0,
) -> F32:
    """Scaled dot-product attention in integers; see docs/numerics.md, sections 1 to 5.

    q: float32 ``[n_heads, q_len, d]``; k, v: float32 ``[n_kv_heads, kv_len, d]``, where n_heads is
    a multiple of n_kv_heads (grouped-query attention) and d of 16. Returns float32
    ``[n_heads, q_len, d]``. Strided arrays are copied; other dtypes are refused, not cast.

    causal: query i sits at position kv_len - q_len + i and sees the keys up to there. window: with
    causal, it sees at most its last ``window`` keys (0: all). prefix: with causal, every query also
    sees the keys below ``prefix`` (prefix LM). scale: 1/sqrt(d) by default.
    softmax: only "index". pool: the threads to use; by default one per performance core, shared.

    ValueError: shapes that do not fit, a dtype other than float32, NaN or Inf, values out of range.
    """
    if softmax not in SOFTMAXES:
        raise ValueError(f"softmax is {softmax!r}, accepted: {', '.join(map(repr, SOFTMAXES))}")
    q, k, v = _checked("q", q), _checked("k", k), _checked("v", v)
    for name, count in (("window", window), ("prefix", prefix)):
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 0:
            raise ValueError(f"{name} is {count!r}, expected an integer >= 0")
    if scale is None:
        scale = 1 / math.sqrt(q.shape[2]) if q.shape[2] else 1.0
    return _core.attention(q, k, v, bool(causal), float(scale), int(window), pool, int(prefix))


def _checked(name: str, array: F32) -> F32:
    if not isinstance(array, np.ndarray) or array.dtype != np.float32:
        kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise ValueError(f"{name} is {kind}, expected a float32 array")
    if array.ndim != 3:
        raise ValueError(f"{name} has the shape {array.shape}, expected [heads, length, d]")
    return np.ascontiguousarray(array)
