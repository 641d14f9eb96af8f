"""``.iatt`` files as checkpoints: mapped into memory, already packed, nothing to convert."""

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn, cast

import numpy as np

from intattention._core import WEIGHT_LAYOUT, PackedWeights
from intattention.checkpoint import FloatFormat, MetadataValue, TensorInfo, WeightFormat
from intattention.dtypes import F32
from intattention.errors import ModelFileError
from intattention.iatt_decoder import decode
from intattention.iatt_header import IattSection, IattTensor
from intattention.mapped_file import map_file


class IattFile:
    """A checked, memory-mapped file. Its pages are the weights: shared between processes, and
    given back by the system when memory is short.

    The checksums of the header and of the sections are always compared; the tensors' only by
    ``verify``, since that reads the whole file and a start should not. The file must not be
    shortened while it is in use (the system would kill the process); ``intattention pack --force``
    replaces it safely.

    ModelFileError if it is damaged, UnsupportedModelError if its version or layout is another
    one, OSError if it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._content = map_file(path)
        header = decode(path, self._content)
        self._version = header.version
        self._records = header.tensors
        self._metadata = header.metadata | {
            name: self._text(section) for name, section in header.sections.items()
        }
        self._tensors = {
            t.name: TensorInfo(t.name, t.format, t.shape, t.nbytes) for t in self._records.values()
        }

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._path

    @property
    def format(self) -> str:
        """See ``Checkpoint.format``."""
        return f"IATT {self._version}, packed as {WEIGHT_LAYOUT}"

    @property
    def metadata(self) -> Mapping[str, MetadataValue]:
        """The header's keys and values in its order, then the sections as text."""
        return self._metadata

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Name -> tensor, in the file's order."""
        return self._tensors

    @property
    def losses(self) -> Mapping[str, float]:
        """See ``Checkpoint.losses``: none, packing has said it."""
        return {}

    def packed(self, name: str, float_format: FloatFormat, rotary_heads: int = 0) -> PackedWeights:
        """See ``Checkpoint.packed``; borrows the mapped pages, which then stay mapped.

        ``float_format`` was applied when the file was packed.
        """
        record = self._record(name, 2)
        if record.rotary_heads != rotary_heads:
            self._fail(f"tensor {name} has its rows in order for {record.rotary_heads} heads, "
                       f"expected {rotary_heads}")  # fmt: skip
        rows, columns = record.shape
        format_ = cast(WeightFormat, record.format)
        return PackedWeights.from_packed(format_, rows, columns, self._bytes(record))

    def vector(self, name: str) -> F32:
        """See ``Checkpoint.vector``."""
        values = np.frombuffer(self._bytes(self._record(name, 1)), "<f4")
        if not np.isfinite(values).all():
            self._fail(f"tensor {name} holds NaN or Inf")
        return values

    def verify(self) -> None:
        """Reads every tensor and compares its checksum; ModelFileError names the first damaged."""
        for record in self._records.values():
            if zlib.crc32(self._bytes(record)) != record.crc32:
                self._fail(f"tensor {record.name} is damaged (checksum)")

    def _record(self, name: str, n_dims: int) -> IattTensor:
        record = self._records.get(name)
        if record is None:
            self._fail(f"tensor {name} is missing")
        if len(record.shape) != n_dims:
            self._fail(f"tensor {name} has the shape {record.shape}, expected {n_dims} dimensions")
        return record

    def _text(self, section: IattSection) -> str:
        data = self._bytes(section)
        if zlib.crc32(data) != section.crc32:
            self._fail(f"section {section.name} is damaged (checksum)")
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError as error:
            self._fail(f"section {section.name} is not UTF-8: {error.reason}")

    def _bytes(self, record: IattTensor | IattSection) -> memoryview:
        return self._content[record.offset : record.offset + record.nbytes]

    def _fail(self, problem: str) -> NoReturn:
        raise ModelFileError(f"{self._path}: {problem}")
