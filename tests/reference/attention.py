"""Integer attention: blocks, ranges, merging (docs/numerics.md sections 2 to 5)."""

import math

import numpy as np
from numpy.typing import NDArray

from reference import index_softmax as ism
from reference.float_kernels import exp_f32
from reference.gemm import gemm
from reference.quantize import quantize

f32 = np.float32
KEY_BLOCK = 256
KEY_RANGE = 1024


def attention(
    q: NDArray[f32],
    k: NDArray[f32],
    v: NDArray[f32],
    causal: bool = True,
    scale: float | None = None,
    window: int = 0,
    prefix: int = 0,
) -> NDArray[f32]:
    """q [n_heads, q_len, d], k, v [n_kv_heads, kv_len, d] -> [n_heads, q_len, d]."""
    heads, q_len, d = q.shape
    kv_heads, kv_len, _ = k.shape
    scale = f32(1) / np.sqrt(f32(d)) if scale is None else f32(scale)
    begin, end = visible_range(q_len, kv_len, causal, window, prefix)
    (q8, s_q, _), (k8, s_k, _), (v8, s_v, _) = (quantize(hadamard(x), d) for x in (q, k, v))
    log_v = ism.log_scale(s_v)
    out = np.empty_like(q)
    for h in range(heads):
        g = h // (heads // kv_heads)
        out[h] = _head(
            q8[h], s_q[h, :, 0], k8[g], s_k[g, :, 0], v8[g], log_v[g, :, 0], begin, end, scale
        )
    return out


def rotation_size(d: int) -> int:
    """Largest power of two that divides d."""
    return d & -d


def hadamard(x: NDArray[f32]) -> NDArray[f32]:
    """Unnormalised Walsh-Hadamard transform of each rotation_size(d) channels of x [..., d]."""
    d = x.shape[-1]
    y = x.reshape(*x.shape[:-1], d // rotation_size(d), rotation_size(d))
    half = 1
    while half < y.shape[-1]:
        pairs = y.reshape(*y.shape[:-1], -1, 2, half)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        y = np.stack([a + b, a - b], axis=-2).reshape(y.shape)
        half *= 2
    return y.reshape(x.shape)


def visible_range(
    q_len: int, kv_len: int, causal: bool, window: int, prefix: int = 0
) -> tuple[NDArray, NDArray]:
    """Absolute keys begin <= j < end that each query sees."""
    position = kv_len - q_len + np.arange(q_len)
    end = np.clip(np.maximum(position + 1, prefix), 0, kv_len) if causal else np.full(q_len, kv_len)
    begin = np.maximum(position + 1 - window, 0) if window else np.zeros(q_len, np.int64)
    return np.minimum(begin, end), end


def _decay(start: NDArray, end: NDArray) -> NDArray[f32]:
    """Factor of what was summed at maximum `start` when the maximum is `end`."""
    factor = exp_f32((start - end).astype(f32) * ism.NATS_PER_COUNT)
    return np.where(start == ism.NO_MAX, f32(0), factor)


def _head(q8, s_q, k8, s_k, v8, log_v, begin, end, scale) -> NDArray[f32]:
    rows, d = q8.shape
    all_o = np.zeros((rows, d), f32)
    all_total = np.zeros(rows, f32)
    all_m = np.full(rows, ism.NO_MAX, np.int64)
    for start in range(0, len(k8), KEY_RANGE):
        keys = slice(start, start + KEY_RANGE)
        o, total, m = _range(
            q8, s_q, k8[keys], s_k[keys], v8[keys], log_v[keys], begin - start, end - start, scale
        )
        merged = np.maximum(all_m, m)
        old, new = _decay(all_m, merged), _decay(m, merged)
        seen = m > ism.NO_MAX  # a range with no visible key is skipped
        all_o = np.where(seen[:, None], all_o * old[:, None] + o * new[:, None], all_o)
        all_total = np.where(seen, all_total * old + total * new, all_total)
        all_m = merged
    dead = all_total == 0
    inverse = f32(32767 / rotation_size(d)) / np.where(dead, f32(1), all_total)
    return hadamard(np.where(dead[:, None], f32(0), all_o * inverse[:, None]))


def _range(q8, s_q, k8, s_k, v8, log_v, begin, end, scale):
    """One key range, blocks in order; begin and end relative to the range."""
    rows, d = q8.shape
    narrow = ism.narrow_bits(q8)
    scale = scale / f32(rotation_size(d))
    o = np.zeros((rows, d), f32)
    total = np.zeros(rows, f32)
    m = np.full(rows, ism.NO_MAX, np.int64)
    for start in range(0, len(k8), KEY_BLOCK):
        keys = slice(start, start + KEY_BLOCK)
        n = len(k8[keys])
        first = np.clip(begin - start, 0, n)
        last = np.clip(end - start, 0, n)
        if not (first < last).any():
            continue
        prefix = np.maximum(last, 1)  # scales are taken over the block's keys 0 .. end-1
        largest_k = np.maximum.accumulate(s_k[keys])[prefix - 1]
        # Keys past `end` are masked; their ratio may exceed 1, so cap it to keep the types.
        ratio_k = ism.key_ratio(np.minimum(s_k[keys], largest_k[:, None]), largest_k[:, None])
        fold = ism.value_fold(log_v[keys], prefix)
        _, factor, lshift = ism.row_factor(s_q, largest_k, scale, narrow)
        block = ism.index_softmax(
            gemm(q8, k8[keys]), ratio_k, fold.log_scale, fold.sum_weight, first, last, narrow,
            factor, lshift, m,
        )  # fmt: skip
        kept = block.sum > 0
        new_m = np.maximum(m, block.max)
        old, new = _decay(m, new_m), _decay(block.max, new_m)
        pv = gemm(block.probs, np.ascontiguousarray(v8[keys].T))
        new_o = o * old[:, None] + pv.astype(f32) * new[:, None]
        for j in range(n):
            # E' of a key below the contrast stands for a larger scale than V has: take that off
            share = exp_f32(
                (log_v[start + j] - fold.log_scale[:, j]).astype(f32) * ism.NATS_PER_COUNT
            )
            light = (log_v[start + j] < fold.log_scale[:, j]) & (block.probs[:, j] > 0)
            excess = -((block.probs[:, j].astype(f32) * (f32(1) - share)) * new)
            corrected = new_o + v8[start + j].astype(f32) * excess[:, None]
            new_o = np.where(light[:, None], corrected, new_o)
        in_one = exp_f32(-fold.smallest.astype(f32) * ism.NATS_PER_COUNT)
        new_total = total * old + (block.sum.astype(f32) * in_one) * new
        o = np.where(kept[:, None], new_o, o)
        total = np.where(kept, new_total, total)
        m = np.where(kept, new_m, m)
    return o, total, m


def float_attention(
    q: NDArray,
    k: NDArray,
    v: NDArray,
    causal: bool = True,
    scale: float | None = None,
    window: int = 0,
    prefix: int = 0,
) -> NDArray[np.float64]:
    """Softmax attention in double: what the integers approximate."""
    heads, q_len, d = q.shape
    scale = 1 / math.sqrt(d) if scale is None else scale
    repeat = heads // k.shape[0]
    k = np.repeat(k.astype(np.float64), repeat, axis=0)
    v = np.repeat(v.astype(np.float64), repeat, axis=0)
    logits = np.einsum("hqd,hkd->hqk", q.astype(np.float64), k) * scale
    begin, end = visible_range(q_len, k.shape[1], causal, window, prefix)
    j = np.arange(k.shape[1])
    visible = (j >= begin[:, None]) & (j < end[:, None])
    peak = np.where(visible, logits, -1e30).max(axis=-1, keepdims=True)
    p = np.where(visible, np.exp(np.minimum(logits - peak, 0)), 0)
    total = p.sum(axis=-1, keepdims=True)
    return np.einsum("hqk,hkd->hqd", p / np.where(total == 0, 1, total), v)
