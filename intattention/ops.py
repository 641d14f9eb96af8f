"""The kernels of the active table as NumPy functions, for tests, study and integrations.

All arrays must be C-contiguous and of exactly the dtype named; nothing is converted silently.
Every function raises ValueError with the name and the offending dtype, shape or value. What is
computed, to the bit, is in docs/numerics.md; ``intattention.use_isa`` chooses the kernels.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from intattention import _core
from intattention._core import PackedWeights, ThreadPool
from intattention.attention import attention
from intattention.dtypes import F32, S8, S32, U8

__all__ = [
    "PackedWeights",
    "ThreadPool",
    "accumulate_s32f32",
    "attention",
    "gemm_s8s8s32",
    "gemm_u8s8s32",
    "index_softmax_s32u8",
    "linear",
    "paper_softmax_s32u8",
    "quantize_f32s8",
    "rmsnorm_f32",
    "rope_f32",
    "softmax_s32s8",
    "swiglu_f32",
]

NO_MAXIMUM = -(2**30)
"""``running_max`` of a row that has seen no key."""


def gemm_s8s8s32(a: S8, b: S8) -> S32:
    """Exact product a x b^T: int8 ``[m, k]``, int8 ``[n, k]`` -> int32 ``[m, n]``; k <= 65536."""
    return _core.gemm_s8s8s32(a, b)


def gemm_u8s8s32(a: U8, b: S8) -> S32:
    """Exact product a x b^T: uint8 ``[m, k]``, int8 ``[n, k]`` -> int32 ``[m, n]``; k <= 65536."""
    return _core.gemm_u8s8s32(a, b)


def index_softmax_s32u8(
    logits: S32,
    key_ratio: NDArray[np.int16],
    log_scale: NDArray[np.int16],
    sum_weight: NDArray[np.uint16],
    begin: S32,
    end: S32,
    narrow: int,
    factor: NDArray[np.int16],
    lshift: S32,
    running_max: S32,
) -> tuple[U8, S32, NDArray[np.uint32]]:
    """Clip and look-up in place of exp, for one key block (docs/numerics.md, sections 3 and 4).

    logits: int32 ``[m, n]`` (the A of the page), n <= 256. Per key: key_ratio int16 ``[n]`` (r,
    Q15, 0..32767), log_scale int16 ``[n]`` (ln of the scale of V in counts, -16384..16383),
    sum_weight uint16 ``[n]`` (w, 0..32767). Per row: begin, end int32 ``[m]`` (visible keys are
    begin..end-1), factor int16 ``[m]`` (f, Q15), lshift int32 ``[m]`` (e, 0..15), running_max
    int32 ``[m]`` (counts, or ``NO_MAXIMUM``). narrow: n, 0..15. One count is 6.6/1024 nats.

    Returns E' uint8 ``[m, n]`` (0 for masked keys, and for the whole row if the block lies more
    than 2048 counts below running_max), the block's own maximum int32 ``[m]`` in counts
    (``NO_MAXIMUM`` if no key is visible), and the sum of E' w uint32 ``[m]``.
    """
    return _core.index_softmax_s32u8(
        logits, key_ratio, log_scale, sum_weight, begin, end, narrow, factor, lshift, running_max
    )


def quantize_f32s8(x: F32, group: int) -> tuple[S8, F32, S32]:
    """Symmetric int8 per group of the last dimension (docs/numerics.md, section 2).

    x: float32 ``[..., k]``, k a multiple of group, group of 8. Returns q int8 ``[..., k]`` in
    -127..127, scale float32 ``[..., k/group]`` (x is about q * scale) and the sum of q, int32,
    likewise. A group with NaN or Inf gets a scale that is not finite.
    """
    return _core.quantize_f32s8(x, group)


def rmsnorm_f32(x: F32, weight: F32, eps: float) -> F32:
    """x / rms(x) * weight per row: float32 ``[m, n]``, weight ``[n]``; n a multiple of 8.

    docs/numerics.md, section 6.
    """
    return _core.rmsnorm_f32(x, weight, eps)


def rope_f32(x: F32, cos: F32, sin: F32) -> F32:
    """Rotary positions: float32 ``[rows, d]``, cos and sin ``[rows, d/2]``; pairs are i, i + d/2.

    d is a multiple of 16. docs/numerics.md, section 6.
    """
    return _core.rope_f32(x, cos, sin)


def swiglu_f32(gate: F32, up: F32) -> F32:
    """silu(gate) * up, float32 ``[m, n]`` each; n a multiple of 8. docs/numerics.md, section 6."""
    return _core.swiglu_f32(gate, up)


def accumulate_s32f32(sum: S32, out: F32, decay: float, scale: float) -> F32:
    """A key block's PV sums into the output (section 5): out * decay + float32(sum) * scale.

    sum int32, out float32 ``[m, n]`` -> float32 ``[m, n]``, a new array; n a multiple of 8.
    """
    return _core.accumulate_s32f32(sum, out, decay, scale)


def softmax_s32s8(
    logits: S32, begin: S32, end: S32, factor: float, running_max: S32
) -> tuple[S8, S32, S32]:
    """The float softmax of ``quant_only`` for one key block (docs/numerics.md, section 8).

    logits int32 ``[m, n]`` below 2^29; per row: begin, end, running_max int32 ``[m]`` (NO_MAXIMUM
    before the first key); factor: nats per unit. Returns P int8 ``[m, n]``, the maximum int32
    ``[m]``, and the sum of P int32 ``[m]``.
    """
    return _core.softmax_s32s8(logits, begin, end, factor, running_max)


def paper_softmax_s32u8(
    logits: S32, begin: S32, end: S32, c_int: int, rounding: Literal["nearest", "floor"]
) -> tuple[U8, NDArray[np.uint32]]:
    """The published IndexSoftmax of whole rows (docs/numerics.md, section 7).

    logits int32 ``[m, n]``, at most 2^25 apart in a row; begin, end int32 ``[m]``. Returns P uint8
    ``[m, n]`` and the sum of E uint32 ``[m]``.
    """
    return _core.paper_softmax_s32u8(logits, begin, end, c_int, rounding)


def linear(x: F32, parts: Sequence[PackedWeights], pool: ThreadPool | None = None) -> F32:
    """x times the transposed weights, int8 activations (docs/numerics.md, section 6).

    x: float32 ``[m, in_features]``; parts: matrices with that in_features whose outputs are
    concatenated. Returns float32 ``[m, sum of out_features]``. NumericError if x is not finite.
    """
    return _core.linear(x, parts, pool)
