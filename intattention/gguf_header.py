"""Strict reading of a GGUF header: every count and length is checked before it is used.

Nothing in the file is trusted: the walk reads sequentially, never past the end, and rejects what
the format forbids. It returns plain values, so that no second parser has to agree with it.
"""

import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from intattention.checkpoint import MetadataValue
from intattention.errors import ModelFileError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 20
MAX_KEY_BYTES = 65535
MAX_TENSOR_NAME_BYTES = 64
MAX_DIMS = 4
MIN_KEY_VALUE_BYTES = 8 + 1 + 4 + 1
MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8
STRING, ARRAY, BOOL = 8, 9, 7
SCALARS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", BOOL: "u1",
           10: "<u8", 11: "<i8", 12: "<f8"}  # fmt: skip


@dataclass(frozen=True)
class GGUFTensor:
    """A tensor record: ``dims`` as in the file (fastest first), ``offset`` from its start."""

    name: str
    type: GGMLQuantizationType
    dims: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True)
class GGUFHeader:
    """What stands before the tensor data; numeric arrays are NumPy arrays."""

    version: int
    metadata: dict[str, MetadataValue]
    tensors: dict[str, GGUFTensor]


def read_header(path: Path) -> GGUFHeader:
    """Reads and checks everything before the tensor data, and that the data lies in the file.

    Raises ModelFileError naming the file and the offending value, OSError if it cannot be read.
    """
    with path.open("rb") as file:
        return _HeaderReader(path, file).read()


class _HeaderReader:
    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.file = file
        self.size = os.fstat(file.fileno()).st_size
        self.position = 0

    def fail(self, problem: str) -> NoReturn:
        raise ModelFileError(f"{self.path}: {problem}")

    # primitives ------------------------------------------------------------------------------
    def take(self, count: int, what: str) -> bytes:
        left = self.size - self.position
        if count > left:
            self.fail(f"{what} needs {count} bytes at offset {self.position}, {left} are left")
        data = self.file.read(count)
        if len(data) != count:
            self.fail(f"{what}: the file ended at offset {self.position + len(data)}")
        self.position += count
        return data

    def u32(self, what: str) -> int:
        return int.from_bytes(self.take(4, what), "little")

    def u64(self, what: str) -> int:
        return int.from_bytes(self.take(8, what), "little")

    def text(self, what: str, limit: int | None = None) -> str:
        length = self.u64(what)
        if limit is not None and not 0 < length <= limit:
            self.fail(f"{what} has {length} bytes, expected 1 to {limit}")
        data = self.take(length, what)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            self.fail(f"{what} at offset {self.position - length} is not UTF-8: {error.reason}")

    def count(self, what: str, least_bytes: int) -> int:
        """A count of records of at least ``least_bytes`` each; they must fit into the file."""
        count = self.u64(what)
        left = self.size - self.position
        if count * least_bytes > left:
            self.fail(f"{what} is {count}, but only {left} bytes are left in the file")
        return count

    # header ----------------------------------------------------------------------------------
    def read(self) -> GGUFHeader:
        magic = self.take(4, "the magic number")
        if magic != MAGIC:
            self.fail(f"not a GGUF file: it starts with {magic!r} instead of {MAGIC!r}")
        version = self.u32("the version")
        if version not in VERSIONS:
            note = " (a big-endian file?)" if version & 0xFFFF == 0 and version else ""
            self.fail(f"GGUF version {version}{note}, expected 2 or 3")
        tensor_count = self.count("the tensor count", MIN_TENSOR_BYTES)
        value_count = self.count("the metadata count", MIN_KEY_VALUE_BYTES)
        metadata: dict[str, MetadataValue] = {}
        for _ in range(value_count):
            key = self.text("a metadata key", MAX_KEY_BYTES)
            if key in metadata:
                self.fail(f"metadata key {key!r} occurs twice")
            metadata[key] = self.value(key)
        records = self.tensor_records(tensor_count)
        return GGUFHeader(version, metadata, self.place(records, self.alignment(metadata)))

    def alignment(self, metadata: dict[str, MetadataValue]) -> int:
        value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if type(value) is not int or not 8 <= value <= MAX_ALIGNMENT or value & (value - 1):
            self.fail(f"general.alignment is {value!r}, expected a power of two from 8 to 2^20")
        return value

    # values ----------------------------------------------------------------------------------
    def value(self, key: str) -> MetadataValue:
        code = self.u32(f"the type of {key}")
        if code == STRING:
            return self.text(key)
        if code == ARRAY:
            return self.array(key)
        if code not in SCALARS:
            self.fail(f"{key} has the unknown value type {code}")
        data = np.frombuffer(self.take(np.dtype(SCALARS[code]).itemsize, key), SCALARS[code])
        if code == BOOL:
            return self.boolean(key, int(data[0]))
        item: int | float = data[0].item()
        return item

    def boolean(self, key: str, byte: int) -> bool:
        if byte > 1:
            self.fail(f"{key} is a boolean with the value {byte}")
        return byte == 1

    def array(self, key: str) -> MetadataValue:
        code = self.u32(f"the element type of {key}")
        if code == STRING:
            what = f"an element of {key}"
            return [self.text(what) for _ in range(self.count(f"the length of {key}", 8))]
        if code not in SCALARS:
            kind = "an array of arrays" if code == ARRAY else f"an array of unknown type {code}"
            self.fail(f"{key} is {kind}")
        dtype = np.dtype(SCALARS[code])
        count = self.count(f"the length of {key}", dtype.itemsize)
        data = np.frombuffer(self.take(count * dtype.itemsize, key), dtype)
        if code != BOOL:
            return data
        if count and data.max() > 1:
            self.fail(f"{key} holds a boolean with the value {data.max()}")
        return data.astype(np.bool_)

    # tensors ---------------------------------------------------------------------------------
    def tensor_records(self, count: int) -> list[GGUFTensor]:
        """The tensor table; offsets are still relative to the data section."""
        records: dict[str, GGUFTensor] = {}
        for _ in range(count):
            name = self.text("a tensor name", MAX_TENSOR_NAME_BYTES)
            if name in records:
                self.fail(f"tensor {name!r} occurs twice")
            n_dims = self.u32(f"the dimension count of {name}")
            if not 1 <= n_dims <= MAX_DIMS:
                self.fail(f"tensor {name} has {n_dims} dimensions, expected 1 to {MAX_DIMS}")
            dims = struct.unpack(f"<{n_dims}Q", self.take(8 * n_dims, f"the shape of {name}"))
            type_ = self.tensor_type(name, self.u32(f"the type of {name}"))
            nbytes = self.tensor_bytes(name, dims, type_)
            offset = self.u64(f"the offset of {name}")
            records[name] = GGUFTensor(name, type_, dims, offset, nbytes)
        return list(records.values())

    def tensor_type(self, name: str, code: int) -> GGMLQuantizationType:
        try:
            return GGMLQuantizationType(code)
        except ValueError:
            self.fail(f"tensor {name} has the unknown type {code}")

    def tensor_bytes(self, name: str, dims: tuple[int, ...], type_: GGMLQuantizationType) -> int:
        block, block_bytes = GGML_QUANT_SIZES[type_]
        if 0 in dims:
            self.fail(f"tensor {name} has the shape {dims}, expected dimensions > 0")
        if dims[0] % block != 0:
            self.fail(f"tensor {name}: {dims[0]} columns are no multiple of {type_.name}'s {block}")
        nbytes = math.prod(dims) // block * block_bytes
        if nbytes > self.size:
            self.fail(f"tensor {name} {dims} {type_.name} needs {nbytes} bytes, "
                      f"the file has {self.size}")  # fmt: skip
        return nbytes

    def place(self, records: list[GGUFTensor], alignment: int) -> dict[str, GGUFTensor]:
        """Absolute offsets; tensors must be aligned, inside the file, and must not overlap."""
        start = -(-self.position // alignment) * alignment
        placed: dict[str, GGUFTensor] = {}
        end = start
        for t in sorted(records, key=lambda record: record.offset):
            offset = start + t.offset
            if t.offset % alignment != 0:
                self.fail(f"tensor {t.name}: offset {t.offset} is no multiple of {alignment}")
            if offset + t.nbytes > self.size:
                self.fail(f"tensor {t.name} ends at byte {offset + t.nbytes}, "
                          f"the file has {self.size} (truncated?)")  # fmt: skip
            if offset < end:
                self.fail(f"tensor {t.name} at offset {t.offset} overlaps the one before it")
            end = offset + t.nbytes
            placed[t.name] = GGUFTensor(t.name, t.type, t.dims, offset, t.nbytes)
        return {t.name: placed[t.name] for t in records}
