"""Strict reading of a safetensors file: 8 bytes of length, a JSON header, tensors.

Nothing in the file is trusted: every name, type, shape and offset is checked before it is used.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from intattention.dtypes import U8
from intattention.errors import ModelFileError
from intattention.mapped_file import map_file

MAX_HEADER_BYTES = 100_000_000  # the format's own limit
ITEM_BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2,
              "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8,
              "F64": 8}  # fmt: skip


@dataclass(frozen=True)
class StoredTensor:
    """``shape`` row-major; ``start`` from the beginning of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    nbytes: int


class SafetensorsFile:
    """A checked, memory-mapped file. It must not be shortened while it is in use.

    ModelFileError if the header is damaged, OSError if the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._content = map_file(path)
        self.tensors = self._header()

    def raw(self, name: str) -> U8:
        """The bytes of a tensor, a view of the file."""
        tensor = self.tensors[name]
        return np.frombuffer(self._content, np.uint8, tensor.nbytes, tensor.start)

    def _header(self) -> dict[str, StoredTensor]:
        size = int.from_bytes(self._content[:8], "little")
        if not 2 <= size <= min(MAX_HEADER_BYTES, len(self._content) - 8):
            self._fail(f"the header has {size} bytes, the file {len(self._content)}")
        try:
            header = json.loads(bytes(self._content[8 : 8 + size]))
        except (ValueError, RecursionError) as error:
            self._fail(f"the header is not JSON: {error}")
        if not isinstance(header, dict):
            self._fail("the header is not a JSON object")
        header.pop("__metadata__", None)
        tensors = {name: self._tensor(name, entry, 8 + size) for name, entry in header.items()}
        end = 8 + size
        for tensor in sorted(tensors.values(), key=lambda t: (t.start, t.nbytes)):
            if tensor.start != end:
                self._fail(f"tensor {tensor.name} starts at byte {tensor.start}, expected {end}")
            end += tensor.nbytes
        if end != len(self._content):
            self._fail(f"the tensors end at byte {end}, the file has {len(self._content)}")
        return tensors

    def _tensor(self, name: str, entry: object, data: int) -> StoredTensor:
        if not isinstance(entry, Mapping):
            self._fail(f"tensor {name} is described by {str(entry)[:60]}")
        dtype = entry.get("dtype")
        if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
            self._fail(f"tensor {name} has the type {str(dtype)[:60]!r}")
        shape = self._counts(name, entry, "shape")
        offsets = self._counts(name, entry, "data_offsets")
        nbytes = math.prod(shape) * ITEM_BYTES[dtype]
        if len(offsets) != 2 or offsets[1] - offsets[0] != nbytes:
            self._fail(f"tensor {name} {shape} {dtype} lies at {offsets}, expected {nbytes} bytes")
        return StoredTensor(name, dtype, shape, data + offsets[0], nbytes)

    def _counts(self, name: str, entry: Mapping[str, object], key: str) -> tuple[int, ...]:
        values = entry.get(key)
        if isinstance(values, list) and all(type(v) is int and 0 <= v < 1 << 48 for v in values):
            return tuple(values)
        self._fail(f"tensor {name} has the {key} {str(values)[:60]}")

    def _fail(self, problem: str) -> NoReturn:
        raise ModelFileError(f"{self.path}: {problem}")
