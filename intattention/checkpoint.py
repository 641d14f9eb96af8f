"""A model file, seen without its format: metadata, tensor names, logical weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from intattention._core import GROUP, PackedWeights
from intattention.dtypes import F16, F32, S8, U8

WeightFormat = Literal["w4g32", "w4g32a", "w8g32"]
FloatFormat = Literal["w4g32a", "w8g32"]
MetadataValue = bool | int | float | str | list[str] | NDArray[Any]


@dataclass(frozen=True)
class LogicalTensor:
    """A quantised matrix ``[out_features, in_features]``, groups of 32 along in_features.

    ``w4g32``: w = scale * (q - 8); ``w4g32a``: w = scale * q + min; ``w8g32``: w = scale * q.
    q is uint8 ``[out, in/32, 16]`` (w4: byte j holds element j in its low nibble and j + 16 in
    its high one) or int8 ``[out, in]`` (w8); scale and min are float16 ``[out, in/32]``.
    """

    format: WeightFormat
    q: U8 | S8
    scale: F16
    min: F16 | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(out_features, in_features)"""
        return self.scale.shape[0], self.scale.shape[1] * GROUP

    def take_rows(self, index: NDArray[np.intp]) -> "LogicalTensor":
        """The same matrix with its rows in the order of ``index`` [rows]."""
        minimum = None if self.min is None else self.min[index]
        return LogicalTensor(self.format, self.q[index], self.scale[index], minimum)

    def pack(self) -> PackedWeights:
        """The layout that the kernels read."""
        return PackedWeights(self.format, self.q, self.scale, self.min)

    def dequantize(self) -> F32:
        """float32 ``[out_features, in_features]``; for tests and study."""
        scale = self.scale.astype(np.float32)[:, :, None]
        if self.format == "w8g32":
            q = self.q.reshape(*self.scale.shape, GROUP).astype(np.float32)
        else:
            q = np.concatenate([self.q & 15, self.q >> 4], axis=2).astype(np.float32)
        if self.format == "w4g32":
            q -= 8
        w = scale * q
        if self.min is not None:
            w += self.min.astype(np.float32)[:, :, None]
        return np.ascontiguousarray(w.reshape(self.shape), dtype=np.float32)


def packed_nibbles(integers: U8) -> U8:
    """``[..., 32]`` integers 0..15 -> ``[..., 16]`` as ``LogicalTensor.q`` of w4 holds them."""
    half = GROUP // 2
    return (integers[..., :half] | integers[..., half:] << 4).astype(np.uint8, copy=False)


def requantised_note(losses: Mapping[str, float]) -> str:
    """``Checkpoint.losses`` (not empty) in a sentence for people."""
    low, high = (f"{100 * value:.2g} %" for value in (min(losses.values()), max(losses.values())))
    return (
        f"{len(losses)} matrices have no exact form here and were quantised anew; "
        f"that added an error of {low} to {high}"
    )


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a file; ``shape`` is row-major: (out_features, in_features) of a matrix."""

    name: str
    type: str
    shape: tuple[int, ...]
    nbytes: int


class Checkpoint(Protocol):
    """What the model builders need of a file."""

    @property
    def path(self) -> Path: ...
    @property
    def format(self) -> str:
        """The file format and its version, e.g. "GGUF 3"."""

    @property
    def metadata(self) -> Mapping[str, MetadataValue]: ...
    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...

    @property
    def losses(self) -> Mapping[str, float]:
        """Quantised matrices read so far that had to be quantised anew -> the error that this
        added, relative to the matrix (root mean squares)."""

    def packed(self, name: str, float_format: FloatFormat, rotary_heads: int = 0) -> PackedWeights:
        """A matrix for the kernels; ``float_format`` is what F32, F16 and BF16 are quantised to.

        ``rotary_heads``: the rows of so many heads come in Hugging Face order (q and k).
        UnsupportedModelError if its type has no logical format, ModelFileError if it is damaged.
        """

    def vector(self, name: str) -> F32:
        """A float vector ``[n]`` as float32; ModelFileError unless it is finite."""
