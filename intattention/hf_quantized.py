"""GPTQ and AWQ tensors -> logical int4 matrices; the integers and scales are kept as they are.

Both store w = scale * (q - zero) with q in 0..15, groups along in_features, eight integers in an
int32::

    GPTQ  qweight [in/8, out]   nibble i of row r is input 8r + i
          qzeros  [groups, out/8]  nibble i of column c is output 8c + i, minus 1 (v2: as it is)
    AWQ   qweight [in, out/8], qzeros [groups, out/8]  nibble i of column c is output 8c + ORDER[i]
    both  scales  [groups, out] float16

With all zeros 8 that is w4g32 to the bit. Otherwise it is w4g32a with min = -scale * zero, which
float16 rounds by at most 2^-11 of itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from intattention._core import GROUP
from intattention.checkpoint import LogicalTensor, packed_nibbles
from intattention.dtypes import F16, U8
from intattention.errors import ModelFileError, UnsupportedModelError
from intattention.metadata import Metadata

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
METHODS = ("gptq", "awq")
SYMMETRIC_ZERO = 8
S32 = NDArray[np.int32]


@dataclass(frozen=True)
class Scheme:
    """``group_size`` -1: one group per output. ``zero_offset``: what is added to stored zeros."""

    method: Literal["gptq", "awq"]
    group_size: int
    zero_offset: int

    def shape(self, qweight: tuple[int, ...]) -> tuple[int, int]:
        """(out_features, in_features) of a packed matrix."""
        rows, columns = qweight
        return (columns, 8 * rows) if self.method == "gptq" else (8 * columns, rows)

    def matrix(self, qweight: S32, scales: F16, qzeros: S32 | None) -> LogicalTensor:
        """ValueError if the shapes do not fit together or a scale is not finite."""
        n, k = self.shape(qweight.shape)
        group = k if self.group_size == -1 else self.group_size
        if k % group != 0 or group % GROUP != 0:
            raise ValueError(f"{k} inputs do not divide into groups of {group}")
        if scales.shape != (k // group, n):
            raise ValueError(f"scales are {scales.shape}, expected {(k // group, n)}")
        if not np.isfinite(scales).all():
            raise ValueError("a scale is NaN or Inf")
        zeros = self._zeros(qzeros, scales.shape)
        q = packed_nibbles(self._integers(qweight).reshape(n, -1, GROUP))
        scale = _per_group(scales, k)
        if (zeros == SYMMETRIC_ZERO).all():
            return LogicalTensor("w4g32", q, scale)
        minimum = -(scales.astype(np.float32) * zeros)
        if np.abs(minimum).max(initial=0) > np.finfo(np.float16).max:
            raise ValueError("a scale times its zero point is beyond float16")
        return LogicalTensor("w4g32a", q, scale, _per_group(minimum.astype(np.float16), k))

    def _integers(self, qweight: S32) -> U8:
        """uint8 [out, in]"""
        if self.method == "awq":
            return np.ascontiguousarray(_columns(qweight, AWQ_ORDER).T)
        nibbles = _nibbles(np.ascontiguousarray(qweight.T))  # [out, in / 8, 8]
        return nibbles.reshape(len(nibbles), -1)

    def _zeros(self, qzeros: S32 | None, shape: tuple[int, ...]) -> U8:
        if qzeros is None:
            return np.full(shape, SYMMETRIC_ZERO, np.uint8)
        if qzeros.shape != (shape[0], shape[1] // 8):
            raise ValueError(f"qzeros are {qzeros.shape}, expected {(shape[0], shape[1] // 8)}")
        order = AWQ_ORDER if self.method == "awq" else tuple(range(8))
        return _columns(qzeros, order) + np.uint8(self.zero_offset)


def read_scheme(path: Path, config: Mapping[str, Any]) -> Scheme | None:
    """``quantization_config`` of a config.json; None if there is none.

    UnsupportedModelError names the value that is not built and those that are.
    """
    stated = config.get("quantization_config")
    if stated is None:
        return None
    if not isinstance(stated, dict):
        raise ModelFileError(f"{path}: quantization_config is {stated!r}, expected an object")
    meta = Metadata(path, stated)
    method = _one_of(meta, "quant_method", METHODS)
    _one_of(meta, "bits", (4,))
    group = meta.integer("group_size", -1, 1 << 20)
    if group != -1 and (group <= 0 or group % GROUP != 0):
        raise UnsupportedModelError(
            f"{path}: quantization_config.group_size is {group}, supported: multiples of {GROUP}, "
            "and -1 for one group"
        )
    if method == "awq":
        version = meta.text("version", default="gemm").lower()
        _one_of(Metadata(path, {"version": version}), "version", ("gemm",))
        return Scheme("awq", group, 0)
    if stated.get("desc_act"):
        raise UnsupportedModelError(
            f"{path}: quantization_config.desc_act is True, supported: False (activation order "
            "scatters the groups over the inputs; quantise the model without it)"
        )
    layout = _one_of(meta, "checkpoint_format", ("gptq", "gptq_v2"), default="gptq")
    return Scheme("gptq", group, 1 if layout == "gptq" else 0)


def _one_of(meta: Metadata, key: str, supported: tuple[Any, ...], default: Any = None) -> Any:
    value = meta.values.get(key, default)
    if value not in supported:
        raise UnsupportedModelError(
            f"{meta.path}: quantization_config.{key} is {value!r}, "
            f"supported: {', '.join(map(repr, supported))}"
        )
    return value


def _nibbles(packed: S32) -> U8:
    """[...] -> uint8 [..., 8], the lowest nibble first."""
    shifts = np.arange(0, 32, 4, dtype=np.uint32)
    nibbles: U8 = (packed.view(np.uint32)[..., None] >> shifts & 15).astype(np.uint8)
    return nibbles


def _columns(packed: S32, order: tuple[int, ...]) -> U8:
    """[rows, n / 8] -> uint8 [rows, n], nibble i being column ``order[i]`` of its eight."""
    nibbles = _nibbles(packed)
    columns = np.empty_like(nibbles)
    columns[..., list(order)] = nibbles
    return columns.reshape(len(packed), -1)


def _per_group(values: F16, k: int) -> F16:
    """[groups, out] -> [out, in/32]: every group of 32 has its larger group's value."""
    repeated = np.repeat(values.T, k // GROUP // len(values), axis=1)
    return np.ascontiguousarray(repeated)
