"""GGUF files as checkpoints: the lossless import of Q4_0, Q4_1 and Q8_0."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from gguf.constants import GGMLQuantizationType as Type
from numpy.typing import NDArray

from intattention._core import GROUP, PackedWeights
from intattention.checkpoint import FloatFormat, LogicalTensor, MetadataValue, TensorInfo
from intattention.dtypes import F16, F32, U8
from intattention.errors import ModelFileError, UnsupportedModelError
from intattention.gguf_header import GGUFTensor, read_header
from intattention.quantize import quantize

Blocks = U8  # [rows, blocks per row, bytes per block]
QUANTIZED_TYPES = (Type.Q4_0, Type.Q4_1, Type.Q8_0)
FLOAT_TYPES = (Type.F32, Type.F16, Type.BF16)


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

    def packed(self, name: str, float_format: FloatFormat, rotary_heads: int = 0) -> PackedWeights:
        """See ``Checkpoint.packed``."""
        tensor = self.matrix(name, float_format)
        if rotary_heads:
            rows = unpermuted_rows(rotary_heads, tensor.shape[0] // rotary_heads)
            tensor = tensor.take_rows(rows)
        return tensor.pack()

    def matrix(self, name: str, float_format: FloatFormat) -> LogicalTensor:
        """The matrix before packing; Q4_0, Q4_1 and Q8_0 keep their bits.

        Errors as in ``Checkpoint.packed``.
        """
        record = self._record(name, 2)
        if record.type in FLOAT_TYPES:
            tensor = self._quantized(record, float_format)
        elif record.type in READERS:
            tensor = READERS[record.type](self._blocks(record))
        else:
            self._unsupported(record, (*QUANTIZED_TYPES, *FLOAT_TYPES))
        self._check_finite(record, tensor)
        return tensor

    def vector(self, name: str) -> F32:
        """See ``Checkpoint.vector``; F32, F16 or BF16, and finite."""
        record = self._record(name, 1)
        if record.type not in FLOAT_TYPES:
            self._unsupported(record, FLOAT_TYPES)
        values = _to_float32(self._read(record), record.type)
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

    def _blocks(self, record: GGUFTensor) -> Blocks:
        columns, rows = record.dims
        return self._read(record).reshape(rows, columns // GROUP, -1)

    def _quantized(self, record: GGUFTensor, float_format: FloatFormat) -> LogicalTensor:
        columns, rows = record.dims
        if columns % GROUP != 0:
            raise UnsupportedModelError(
                f"{self._path}: tensor {record.name} has {columns} columns, "
                f"expected a multiple of {GROUP}"
            )
        data = self._read(record).reshape(rows, -1)
        try:
            return quantize(data, lambda raw: _to_float32(raw, record.type), float_format)
        except ValueError as error:
            raise ModelFileError(f"{self._path}: tensor {record.name}: {error}") from error

    def _check_finite(self, record: GGUFTensor, tensor: LogicalTensor) -> None:
        for what, values in (("scale", tensor.scale), ("minimum", tensor.min)):
            if values is not None and not np.isfinite(values).all():
                row, group = np.argwhere(~np.isfinite(values))[0]
                raise ModelFileError(
                    f"{self._path}: tensor {record.name}: the {what} of row {row}, group {group} "
                    f"is {values[row, group]}"
                )

    def _unsupported(self, record: GGUFTensor, types: tuple[Type, ...]) -> None:
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


READERS: dict[Type, Callable[[Blocks], LogicalTensor]] = {
    Type.Q4_0: _read_q4_0,
    Type.Q4_1: _read_q4_1,
    Type.Q8_0: _read_q8_0,
}


def _to_float32(raw: U8, type_: Type) -> F32:
    """Bytes ``[..., n * itemsize]`` -> float32 ``[..., n]``."""
    if type_ == Type.BF16:
        bits = raw.view("<u2").astype(np.uint32) << 16
        return bits.view(np.float32)
    return raw.view("<f4" if type_ == Type.F32 else "<f2").astype(np.float32)
