"""softmax="quant_only": INT8 QK and PV around a float32 softmax (docs/numerics.md section 8)."""

import math

import numpy as np
from numpy.typing import NDArray

from reference.attention import KEY_BLOCK, KEY_RANGE, visible_range
from reference.float_kernels import exp_f32
from reference.index_softmax import NO_MAX
from reference.paper import quantize_tensor

f32 = np.float32


def softmax_block(
    logits: NDArray, begin: NDArray, end: NDArray, factor: f32, running_max: NDArray
) -> tuple[NDArray[np.int8], NDArray[np.int32], NDArray[np.int32]]:
    """logits [m, n] -> (P, new maximum, sum of P)."""
    a = logits.astype(np.int64)
    j = np.arange(a.shape[1])
    visible = (j >= np.asarray(begin)[:, None]) & (j < np.asarray(end)[:, None])
    largest = np.maximum(running_max, np.where(visible, a, NO_MAX).max(axis=1, initial=NO_MAX))
    delta = np.where(visible, a - largest[:, None], 0).astype(f32)
    with np.errstate(over="ignore"):
        p = np.rint(exp_f32(delta * f32(factor)) * f32(127))
    probs = np.where(visible, p, 0).astype(np.int8)
    return probs, largest.astype(np.int32), probs.sum(axis=1, dtype=np.int32)


def attention(
    q: NDArray[f32],
    k: NDArray[f32],
    v: NDArray[f32],
    causal: bool,
    scale: float | None = None,
    window: int = 0,
    prefix: int = 0,
) -> NDArray[f32]:
    """q [n_heads, q_len, d], k, v [n_kv_heads, kv_len, d] -> [n_heads, q_len, d]."""
    scale = f32(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    (q8, s_q), (k8, s_k), (v8, s_v) = map(quantize_tensor, (q, k, v))
    with np.errstate(over="ignore"):
        factor = np.minimum(s_q * s_k * scale, np.finfo(f32).max)
    begin, end = visible_range(q.shape[1], k.shape[1], causal, window, prefix)
    out = np.empty_like(q)
    for h in range(len(q)):
        g = h // (len(q) // len(k))
        out[h] = _head(q8[h], k8[g], v8[g], begin, end, factor, s_v)
    return out


def _decay(old: NDArray, new: NDArray, factor: f32) -> NDArray[f32]:
    with np.errstate(over="ignore"):
        a = exp_f32((old - new).astype(f32) * factor)
    return np.where(old == NO_MAX, f32(0), a)


def _head(q8, k8, v8, begin, end, factor, s_v) -> NDArray[f32]:
    rows, d = q8.shape
    all_o, all_total = np.zeros((rows, d), f32), np.zeros(rows, f32)
    all_m = np.full(rows, NO_MAX, np.int64)
    for start in range(0, len(k8), KEY_RANGE):
        keys = slice(start, start + KEY_RANGE)
        o, total, m = _range(q8, k8[keys], v8[keys], begin - start, end - start, factor)
        merged = np.maximum(all_m, m)
        old, new = _decay(all_m, merged, factor), _decay(m, merged, factor)
        seen = m > NO_MAX
        all_o = np.where(seen[:, None], all_o * old[:, None] + o * new[:, None], all_o)
        all_total = np.where(seen, all_total * old + total * new, all_total)
        all_m = merged
    inverse = np.where(all_total > 0, s_v / np.where(all_total > 0, all_total, f32(1)), f32(0))
    return all_o * inverse[:, None]


def _range(q8, k8, v8, begin, end, factor):
    rows, d = q8.shape
    o, total = np.zeros((rows, d), f32), np.zeros(rows, f32)
    m = np.full(rows, NO_MAX, np.int64)
    for start in range(0, len(k8), KEY_BLOCK):
        keys = slice(start, start + KEY_BLOCK)
        logits = q8.astype(np.int64) @ k8[keys].astype(np.int64).T
        n = logits.shape[1]
        first, last = np.clip(begin - start, 0, n), np.clip(end - start, 0, n)
        probs, new, block_sum = softmax_block(logits, first, last, factor, m)
        new = new.astype(np.int64)
        a = _decay(m, new, factor)
        moved = new != m
        o = np.where(moved[:, None], o * a[:, None], o)
        total = np.where(moved, total * a, total) + block_sum.astype(f32)
        o = o + (probs.astype(np.int64) @ v8[keys].astype(np.int64)).astype(f32)
        m = new
    return o, total, m
