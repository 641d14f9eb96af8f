"""GGUF files as checkpoints; see gguf_blocks.py for what becomes of each tensor type."""

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import numpy as np
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Type
from numpy.typing import NDArray

from intattention._core import GROUP, PackedWeights
from intattention.checkpoint import FloatFormat, LogicalTensor, MetadataValue, TensorInfo
from intattention.dtypes import F32, U8
from intattention.errors import ModelFileError, UnsupportedModelError
from intattention.gguf_blocks import (
    ALWAYS_W8,
    FLOAT_TYPES,
    READERS,
    REQUANTIZED_TYPES,
    relative_error,
    to_float32,
)
from intattention.gguf_header import GGUFTensor, read_header
from intattention.quantize import quantize


class GGUFFile:
    """A checked GGUF file. Tensors are read on request; the file may be any size.

    Raises ModelFileError if the header is damaged, OSError if the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        header = read_header(path)
        self._version = header.version
        self._metadata = header.metadata
        self._records = header.tensors
        self._losses: dict[str, float] = {}
        self._tensors = {
            t.name: TensorInfo(t.name, t.type.name, t.dims[::-1], t.nbytes)
            for t in header.tensors.values()
        }

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._path

    @property
    def format(self) -> str:
        """See ``Checkpoint.format``."""
        return f"GGUF {self._version}"

    @property
    def metadata(self) -> Mapping[str, MetadataValue]:
        """Key -> value, in the file's order."""
        return self._metadata

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Name -> tensor, in the file's order."""
        return self._tensors

    @property
    def losses(self) -> Mapping[str, float]:
        """See ``Checkpoint.losses``."""
        return self._losses

    def packed(self, name: str, float_format: FloatFormat, rotary_heads: int = 0) -> PackedWeights:
        """See ``Checkpoint.packed``."""
        tensor = self.matrix(name, float_format)
        if rotary_heads:
            rows = unpermuted_rows(rotary_heads, tensor.shape[0] // rotary_heads)
            tensor = tensor.take_rows(rows)
        return tensor.pack()

    def matrix(self, name: str, float_format: FloatFormat) -> LogicalTensor:
        """The matrix before packing; types of ``READERS`` keep their integers, others go through
        float32. Errors as in ``Checkpoint.packed``.
        """
        record = self._record(name, 2)
        if record.type in READERS:
            tensor = READERS[record.type](self._blocks(record))
            self._check_finite(record, tensor)
            return tensor
        if record.type in FLOAT_TYPES or record.type in REQUANTIZED_TYPES:
            return self._quantized(record, float_format)
        self._unsupported(record, (*READERS, *REQUANTIZED_TYPES, *FLOAT_TYPES))

    def vector(self, name: str) -> F32:
        """See ``Checkpoint.vector``; F32, F16 or BF16, and finite."""
        record = self._record(name, 1)
        if record.type not in FLOAT_TYPES:
            self._unsupported(record, FLOAT_TYPES)
        values = to_float32(self._read(record), record.type)
        if not np.isfinite(values).all():
            raise ModelFileError(f"{self._path}: tensor {name} holds NaN or Inf")
        return values

    def _record(self, name: str, n_dims: int) -> GGUFTensor:
        record = self._records.get(name)
        if record is None:
            raise ModelFileError(f"{self._path}: tensor {name} is missing")
        if len(record.dims) != n_dims:
            raise ModelFileError(
                f"{self._path}: tensor {name} has the shape {record.dims[::-1]}, "
                f"expected {n_dims} dimension{'s' if n_dims > 1 else ''}"
            )
        return record

    def _read(self, record: GGUFTensor) -> U8:
        # read() and not a memory map: a file that shrinks meanwhile is an error, not a SIGBUS
        with self._path.open("rb") as file:
            file.seek(record.offset)
            data = file.read(record.nbytes)
        if len(data) != record.nbytes:
            raise ModelFileError(
                f"{self._path}: tensor {record.name}: read {len(data)} of {record.nbytes} bytes"
            )
        return np.frombuffer(data, np.uint8)

    def _blocks(self, record: GGUFTensor) -> U8:
        """[rows, blocks per row, bytes per block]"""
        columns, rows = record.dims
        return self._read(record).reshape(rows, columns // GGML_QUANT_SIZES[record.type][0], -1)

    def _quantized(self, record: GGUFTensor, float_format: FloatFormat) -> LogicalTensor:
        columns, rows = record.dims
        if columns % GROUP != 0:
            raise UnsupportedModelError(
                f"{self._path}: tensor {record.name} has {columns} columns, "
                f"expected a multiple of {GROUP}"
            )
        data = self._read(record).reshape(rows, -1)
        target: FloatFormat = "w8g32" if record.type in ALWAYS_W8 else float_format
        try:
            tensor = quantize(data, lambda raw: to_float32(raw, record.type), target)
        except ValueError as error:
            raise ModelFileError(f"{self._path}: tensor {record.name}: {error}") from error
        if record.type in REQUANTIZED_TYPES:
            self._losses[record.name] = relative_error(tensor, data, record.type)
        return tensor

    def _check_finite(self, record: GGUFTensor, tensor: LogicalTensor) -> None:
        for what, values in (("scale", tensor.scale), ("minimum", tensor.min)):
            if values is not None and not np.isfinite(values).all():
                row, group = np.argwhere(~np.isfinite(values))[0]
                raise ModelFileError(
                    f"{self._path}: tensor {record.name}: the {what} of row {row}, group {group} "
                    f"is {values[row, group]}"
                )

    def _unsupported(self, record: GGUFTensor, types: tuple[Type, ...]) -> NoReturn:
        raise UnsupportedModelError(
            f"{self._path}: tensor {record.name} has the type {record.type.name}; supported here: "
            + ", ".join(type_.name for type_ in types)
        )


def unpermuted_rows(heads: int, head_dim: int) -> NDArray[np.intp]:
    """Where each Hugging Face row of q or k lies in the GGUF matrix, [heads * head_dim].

    llama.cpp's converter interleaves the two halves of each head, so that rotary pairs are
    neighbours: GGUF row (h, i, p) is Hugging Face row (h, p, i), p = 0 or 1, i < head_dim / 2.
    """
    rows = np.arange(heads * head_dim).reshape(heads, head_dim // 2, 2)
    order: NDArray[np.intp] = rows.swapaxes(1, 2).reshape(-1)
    return order
