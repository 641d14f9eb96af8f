"""The header of an ``.iatt`` file: packed tensors in the frame of ``framed_file.py``.

The tensors lie in the header's order without a gap; the layout is checked to the byte.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np

from intattention._core import WEIGHT_LAYOUT, PackedWeights
from intattention.checkpoint import MetadataValue, WeightFormat
from intattention.errors import ModelFileError, UnsupportedModelError
from intattention.framed_file import PRELUDE_BYTES, Frame, aligned, encoded_json

MAGIC = b"IATT\r\n\x1a\n"  # the line ends show a transfer in text mode
VERSION = 1
FRAME = Frame(MAGIC, VERSION, "an .iatt file", ModelFileError, UnsupportedModelError)
MAX_DIM = 1 << 31
WEIGHT_FORMATS = ("w4g32", "w4g32a", "w8g32")
DTYPES = {"bool": bool, "float32": float, "float64": float} | {
    f"{sign}int{bits}": int for sign in ("", "u") for bits in (8, 16, 32, 64)
}


@dataclass(frozen=True)
class IattTensor:
    """A packed matrix, or a float32 vector (``format`` "f32").

    ``rotary_heads``: rows are in Hugging Face order for so many heads, 0 if never permuted.
    """

    name: str
    format: str
    shape: tuple[int, ...]
    rotary_heads: int
    offset: int
    nbytes: int
    crc32: int


def tensor_bytes(format: str, shape: tuple[int, ...]) -> int:
    """Size of a tensor. ValueError if there is no such format or shape."""
    if format == "f32" and len(shape) == 1 and 1 <= shape[0] <= MAX_DIM:
        return 4 * shape[0]
    if format in WEIGHT_FORMATS and len(shape) == 2 and 1 <= min(shape) <= max(shape) <= MAX_DIM:
        return PackedWeights.packed_bytes(cast(WeightFormat, format), *shape)
    raise ValueError(f"{format!r} with the shape {shape} is no tensor of this format")


def encode_header(metadata: Mapping[str, MetadataValue], tensors: Iterable[IattTensor]) -> bytes:
    """The JSON header. ValueError if the metadata holds NaN or Inf."""
    return encoded_json(
        {
            "layout": WEIGHT_LAYOUT,
            "metadata": {key: _to_json(value) for key, value in metadata.items()},
            "tensors": [asdict(tensor) for tensor in tensors],
        }
    )


def _to_json(value: MetadataValue) -> object:
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.name, "values": value.tolist()}
    return value


def decode(
    path: Path, content: memoryview
) -> tuple[dict[str, MetadataValue], dict[str, IattTensor]]:
    """(metadata, tensors) of a whole file; the tensors' bytes are not read.

    ModelFileError if anything is not as it is written; UnsupportedModelError if the
    version or the weight layout is another one.
    """
    return _Decoder(path).decode(content)


class _Decoder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def fail(self, problem: str) -> NoReturn:
        FRAME.fail(self.path, problem)

    def decode(self, content: memoryview) -> tuple[dict[str, MetadataValue], dict[str, IattTensor]]:
        start, header = FRAME.read(self.path, content, ("layout", "metadata", "tensors"))
        layout = header["layout"]
        if layout != WEIGHT_LAYOUT:
            raise UnsupportedModelError(
                f"{self.path}: the weights are packed as {str(layout)[:40]!r}, this version reads "
                f"{WEIGHT_LAYOUT!r}; pack the original model again"
            )
        if not isinstance(header["metadata"], dict) or not isinstance(header["tensors"], list):
            self.fail("the header's metadata or tensors have the wrong type")
        metadata = {key: self.value(key, value) for key, value in header["metadata"].items()}
        return metadata, self.tensors(header["tensors"], start)

    # metadata --------------------------------------------------------------------------------
    def value(self, key: str, value: object) -> MetadataValue:
        if isinstance(value, str):
            self.unicode(key, value)
        elif isinstance(value, list) and set(map(type, value)) <= {str}:
            self.unicode(key, "\n".join(value))
        elif isinstance(value, dict):
            return self.array(key, value)
        elif isinstance(value, float) and not isfinite(value):
            self.fail(f"metadata {key} is not finite")
        elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
            self.fail(f"metadata {key} does not fit 64 bits")
        elif not isinstance(value, (int, float)):
            self.fail(f"metadata {key} has no known type")
        return cast(MetadataValue, value)

    def unicode(self, key: str, text: str) -> None:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            self.fail(f"metadata {key} holds a lone surrogate: {error.reason}")

    def array(self, key: str, value: dict[str, Any]) -> MetadataValue:
        record = FRAME.record(self.path, f"metadata {key}", value, ("dtype", "values"))
        dtype, values = record["dtype"], record["values"]
        if not isinstance(dtype, str) or dtype not in DTYPES or not isinstance(values, list):
            self.fail(f"metadata {key} is an array of an unknown type")
        if not set(map(type, values)) <= {DTYPES[dtype]}:
            self.fail(f"metadata {key} holds values that are no {dtype}")
        try:
            with np.errstate(over="ignore"):
                return np.array(values, dtype)
        except (OverflowError, ValueError) as error:
            self.fail(f"metadata {key}: {error}")

    # tensors ---------------------------------------------------------------------------------
    def tensors(self, records: list[object], end: int) -> dict[str, IattTensor]:
        """Checked tensors; they and the header must fill the file without a gap."""
        tensors: dict[str, IattTensor] = {}
        position = PRELUDE_BYTES
        for record in records:
            tensor = self.tensor(record)
            if tensor.name in tensors:
                self.fail(f"tensor {tensor.name!r} occurs twice")
            if tensor.offset != position:
                self.fail(f"tensor {tensor.name}: offset {tensor.offset}, expected {position}")
            position = aligned(position + tensor.nbytes)
            tensors[tensor.name] = tensor
        if position != end:
            self.fail(f"the tensors end at byte {position}, the header begins at {end}")
        return tensors

    def tensor(self, record: object) -> IattTensor:
        r = FRAME.record(self.path, "a tensor", record, [f.name for f in fields(IattTensor)])
        name = r["name"]
        if not isinstance(name, str) or not isinstance(r["format"], str):
            self.fail("the name or format of a tensor is no string")
        self.unicode("tensor name", name)
        numbers = ("rotary_heads", "offset", "nbytes", "crc32")
        shape = r["shape"]
        if not isinstance(shape, list) or not set(map(type, shape)) <= {int}:
            self.fail(f"tensor {name}: the shape is no list of integers")
        if any(type(r[key]) is not int or r[key] < 0 for key in numbers):
            self.fail(f"tensor {name}: {', '.join(numbers)} must be integers >= 0")
        try:
            expected = tensor_bytes(r["format"], tuple(shape))
        except ValueError as error:
            self.fail(f"tensor {name}: {error}")
        if r["nbytes"] != expected:
            self.fail(f"tensor {name}: {r['nbytes']} bytes, expected {expected}")
        return IattTensor(**{**r, "shape": tuple(shape)})
