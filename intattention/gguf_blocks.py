"""Tensor types of GGUF files -> logical formats.

Kept as they are: Q4_0 (w4g32), Q4_1 (w4g32a), Q8_0, and Q5_0 and IQ4_NL, whose values are small
integers times the block's scale, as w8g32. Q4_K keeps its integers as w4g32a; its scales and
minimums are products that float16 rounds by at most 2^-11. All others are dequantised by the gguf
package and quantised anew: those finer than 4 bits to w8g32, coarser ones to the format that float
weights get. Their groups of 16, or their 5 and 6 bits, have no counterpart here.
"""

from collections.abc import Callable

import numpy as np
from gguf import quants
from gguf.constants import GGMLQuantizationType as Type

from intattention._core import GROUP
from intattention.checkpoint import LogicalTensor, packed_nibbles
from intattention.dtypes import F16, F32, U8

Blocks = U8  # [rows, blocks per row, bytes per block]
FLOAT_TYPES = (Type.F32, Type.F16, Type.BF16)
ALWAYS_W8 = (Type.Q5_1, Type.Q5_K, Type.Q6_K)
REQUANTIZED_TYPES = (*ALWAYS_W8, Type.Q2_K, Type.Q3_K, Type.IQ4_XS)
CHUNK_ROWS = 256


def to_float32(raw: U8, type_: Type) -> F32:
    """Bytes ``[..., bytes of a row]`` -> float32 ``[..., columns]``."""
    with np.errstate(invalid="ignore", over="ignore"):  # the callers look for NaN and Inf
        values: F32 = quants.dequantize(raw, type_)
    return values.astype(np.float32, copy=type_ == Type.F32)  # a view of bytes may be unaligned


def relative_error(tensor: LogicalTensor, data: U8, type_: Type) -> float:
    """Squared error of ``tensor`` against ``data`` [rows, bytes] over that of zeros; its root."""
    error = total = 0.0
    for start in range(0, len(data), CHUNK_ROWS):
        rows = np.arange(start, min(start + CHUNK_ROWS, len(data)))
        exact = to_float32(data[rows], type_)
        error += float(np.square(tensor.take_rows(rows).dequantize() - exact).sum())
        total += float(np.square(exact).sum())
    return float(np.sqrt(error / total)) if total else 0.0


def _field(blocks: Blocks, start: int, stop: int) -> U8:
    return np.ascontiguousarray(blocks[:, :, start:stop])


def _half(blocks: Blocks, start: int) -> F16:
    values = _field(blocks, start, start + 2).view("<f2")[:, :, 0]
    return np.ascontiguousarray(values, dtype=np.float16)


def _read_q4_0(blocks: Blocks) -> LogicalTensor:
    """18 bytes: f16 d, 16 bytes of nibbles (byte j: element j low, j + 16 high)."""
    return LogicalTensor("w4g32", _field(blocks, 2, 18), _half(blocks, 0))


def _read_q4_1(blocks: Blocks) -> LogicalTensor:
    """20 bytes: f16 d, f16 m, 16 bytes of nibbles."""
    return LogicalTensor("w4g32a", _field(blocks, 4, 20), _half(blocks, 0), _half(blocks, 2))


def _read_q8_0(blocks: Blocks) -> LogicalTensor:
    """34 bytes: f16 d, 32 int8."""
    q = _field(blocks, 2, 34).view(np.int8).reshape(blocks.shape[0], -1)
    return LogicalTensor("w8g32", q, _half(blocks, 0))


def _read_integers(type_: Type) -> Callable[[Blocks], LogicalTensor]:
    """Blocks of 32 that begin with an f16 d and mean d times integers of -128..127."""

    def read(blocks: Blocks) -> LogicalTensor:
        scale = _half(blocks, 0)
        values = to_float32(blocks.reshape(blocks.shape[0], -1), type_)
        d = scale.astype(np.float32)[:, :, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            q = np.rint(values.reshape(*scale.shape, GROUP) / d)  # exact: 19 bits of 24
        q = np.where(np.isfinite(q), q, 0).astype(np.int8)
        return LogicalTensor("w8g32", q.reshape(blocks.shape[0], -1), scale)

    return read


def _read_q4_k(blocks: Blocks) -> LogicalTensor:
    """144 bytes for 256 values: f16 d, f16 dmin, 8 six-bit scales and minimums, 128 of nibbles
    (32 low ones, then 32 high ones of the same bytes)."""
    rows, per_row, _ = blocks.shape
    d, dmin = (_half(blocks, at).astype(np.float32)[:, :, None] for at in (0, 2))
    scales, minimums = quants.Q4_K.get_scale_min(_field(blocks, 4, 16).reshape(-1, 12))
    shape = (rows, per_row, 8)
    with np.errstate(over="ignore"):
        scale = (d * scales.reshape(shape)).astype(np.float16)
        minimum = (-dmin * minimums.reshape(shape)).astype(np.float16)
    nibbles = _field(blocks, 16, 144).reshape(rows, per_row, 4, 1, GROUP)
    q = (nibbles >> np.array([0, 4], np.uint8)[:, None] & 15).astype(np.uint8, copy=False)
    q = q.reshape(rows, -1, GROUP)
    return LogicalTensor(
        "w4g32a", packed_nibbles(q), scale.reshape(rows, -1), minimum.reshape(rows, -1)
    )


READERS: dict[Type, Callable[[Blocks], LogicalTensor]] = {
    Type.Q4_0: _read_q4_0,
    Type.Q4_1: _read_q4_1,
    Type.Q8_0: _read_q8_0,
    Type.Q5_0: _read_integers(Type.Q5_0),
    Type.IQ4_NL: _read_integers(Type.IQ4_NL),
    Type.Q4_K: _read_q4_k,
}
