"""What keeps int8 safe where a few channels of q or k are huge (Qwen2's biases, Qwen3's norms).

One scale for a head vector leaves nothing for the other channels if one of them is a hundred times
larger. Two changes cost nothing in exact arithmetic, and both commute with RoPE:

- A constant may be subtracted from every k after RoPE: it adds the same to all logits of a query.
  Of a bias, pairs that turn slowly keep their mean over the context; that is subtracted.
- q may be multiplied and k divided by one factor per rotary pair. The rounding errors of q.k are
  smallest (Cauchy-Schwarz) where both have the same share of their vector's length in a pair, so
  the factor is the square root of the ratio of their sizes, rounded to a power of two.

docs/numerics.md section 10 has the measurement.
"""

from dataclasses import dataclass

import numpy as np

from intattention._core import PackedWeights
from intattention.dtypes import F32, F64

ROWS_AT_ONCE = 1024


@dataclass(frozen=True)
class QK:
    """q and k of a layer before RoPE: their weights, and what happens to the products.

    ``input_norm`` [hidden]: weights of the RMSNorm in front; ``bias``: of q, k, v side by side;
    ``q_norm``, ``k_norm`` [head_dim]. None where the model has none.
    """

    q_proj: PackedWeights
    k_proj: PackedWeights
    input_norm: F32
    bias: F32 | None = None
    q_norm: F32 | None = None
    k_norm: F32 | None = None


@dataclass(frozen=True)
class Balance:
    """``scale`` and ``center`` [kv_heads * head_dim], as DecoderLayer's qk_scale and k_center."""

    scale: F32 | None
    center: F32 | None


def balance(qk: QK, head_dim: int, frequencies: F64, factor: float, context: int) -> Balance:
    """For rotations of ``frequencies`` [rotary_dim / 2], times ``factor``, and ``context`` tokens.

    The inputs are taken to have one variance in all channels after their norm.
    """
    kv_heads = qk.k_proj.shape[0] // head_dim
    q_mean, k_mean = _biases(qk)
    q_size = _squares(qk.q_proj, qk.input_norm, qk.q_norm).reshape(-1, head_dim) + (
        q_mean.reshape(-1, head_dim) ** 2
    )
    k_size = _squares(qk.k_proj, qk.input_norm, qk.k_norm).reshape(-1, head_dim)
    bias = k_mean.reshape(-1, head_dim)
    center, left = _center(bias, frequencies, context)
    q_size = q_size.reshape(kv_heads, -1, head_dim).max(axis=1)
    scale = _scale(q_size, k_size + left, len(frequencies))
    centered = bool(np.abs(center).max(initial=0) > 0)
    return Balance(
        scale=None if (scale == 1).all() else scale.reshape(-1),
        center=(factor * center / scale).astype(np.float32).reshape(-1) if centered else None,
    )


def _biases(qk: QK) -> tuple[F64, F64]:
    q, kv = qk.q_proj.shape[0], qk.k_proj.shape[0]
    if qk.bias is None:
        return np.zeros(q), np.zeros(kv)
    bias = qk.bias.astype(np.float64)
    return bias[:q], bias[q : q + kv]


def _squares(weights: PackedWeights, input_norm: F32, head_norm: F32 | None) -> F64:
    """Variance of every output for inputs of variance 1 before ``input_norm``'s weights."""
    rows = weights.shape[0]
    if head_norm is not None:  # the norm leaves its own weights
        return np.tile(head_norm.astype(np.float64) ** 2, rows // len(head_norm))
    total = np.empty(rows)
    for start in range(0, rows, ROWS_AT_ONCE):
        some = np.arange(start, min(start + ROWS_AT_ONCE, rows), dtype=np.int32)
        scaled = weights.dequantize_rows(some) * input_norm
        total[some] = np.einsum("rk,rk->r", scaled, scaled)
    return total


def _center(bias: F64, frequencies: F64, context: int) -> tuple[F64, F64]:
    """Mean of the rotated bias [heads, head_dim] over positions 0 .. context-1, and the variance
    that it leaves."""
    half = len(frequencies)
    first, second, rest = bias[:, :half], bias[:, half : 2 * half], bias[:, 2 * half :]
    turned = (first + 1j * second) * _mean_turn(frequencies, context)
    left = (first**2 + second**2 - np.abs(turned) ** 2) / 2
    center = np.concatenate([turned.real, turned.imag, rest], axis=1)
    return center, np.concatenate([left, left, 0 * rest], axis=1)


def _mean_turn(frequencies: F64, context: int) -> np.ndarray:
    """Mean of exp(i p f) over p = 0 .. context-1: a geometric series."""
    step = np.exp(1j * frequencies) - 1
    still = np.abs(step) < 1e-12
    total = np.exp(1j * frequencies * context) - 1
    return np.where(still, 1, total / np.where(still, 1, step) / context)


def _scale(q_size: F64, k_size: F64, half: int) -> F32:
    """Powers of two [heads, head_dim]: sqrt(|k| / |q|) of every pair, relative to the others."""

    def pairs(squares: F64) -> F64:
        mean = (squares[:, :half] + squares[:, half : 2 * half]) / 2
        return np.concatenate([mean, mean, squares[:, 2 * half :]], axis=1)

    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = np.log2(pairs(k_size) / pairs(q_size)) / 4  # of squares: a fourth root
    exponent[~np.isfinite(exponent)] = 0  # a pair that is always zero on one side
    exponent -= np.median(exponent, axis=1, keepdims=True)
    rounded: F32 = np.exp2(np.rint(exponent)).astype(np.float32)
    return rounded
