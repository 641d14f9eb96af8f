"""Reads the header of an ``.iatt`` file, drawn in ``iatt_header.py``; believes nothing in it."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import numpy as np

from intattention._core import WEIGHT_LAYOUT
from intattention.checkpoint import MetadataValue
from intattention.errors import UnsupportedModelError
from intattention.framed_file import PRELUDE_BYTES, aligned
from intattention.iatt_header import (
    FRAME,
    IattHeader,
    IattSection,
    IattTensor,
    tensor_bytes,
)

PLACE = ("offset", "nbytes", "crc32")
DTYPES = {"bool": bool, "float32": float, "float64": float} | {
    f"{sign}int{bits}": int for sign in ("", "u") for bits in (8, 16, 32, 64)
}
Record = TypeVar("Record", IattTensor, IattSection)


def decode(path: Path, content: memoryview) -> IattHeader:
    """The header of a whole file; the bytes of tensors and sections are not read.

    ModelFileError if anything is not as ``encode_*`` write it; UnsupportedModelError if the
    version or the weight layout is another one.
    """
    return _Decoder(path).decode(content)


class _Decoder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def fail(self, problem: str) -> NoReturn:
        FRAME.fail(self.path, problem)

    def decode(self, content: memoryview) -> IattHeader:
        version, start, header = FRAME.read(self.path, content)
        header.setdefault("sections", [])
        layout = header["layout"]
        if layout != WEIGHT_LAYOUT:
            raise UnsupportedModelError(
                f"{self.path}: the weights are packed as {str(layout)[:40]!r}, this version reads "
                f"{WEIGHT_LAYOUT!r}; pack the original model again"
            )
        for key, type_ in (("metadata", dict), ("tensors", list), ("sections", list)):
            if not isinstance(header[key], type_):
                self.fail(f"the header's {key} have the wrong type")
        metadata = {key: self.value(key, value) for key, value in header["metadata"].items()}
        tensors = self.by_name("tensor", map(self.tensor, header["tensors"]))
        sections = self.by_name("section", map(self.section, header["sections"]))
        self.check_places([*tensors.values(), *sections.values()], start)
        for name in sections.keys() & metadata.keys():
            self.fail(f"{name!r} is both metadata and a section")
        return IattHeader(version, metadata, tensors, sections)

    # metadata --------------------------------------------------------------------------------
    def value(self, key: str, value: object) -> MetadataValue:
        if isinstance(value, str):
            self.unicode(f"metadata {key}", value)
        elif isinstance(value, list) and set(map(type, value)) <= {str}:
            self.unicode(f"metadata {key}", "\n".join(value))
        elif isinstance(value, dict):
            return self.array(key, value)
        elif isinstance(value, float) and not isfinite(value):
            self.fail(f"metadata {key} is not finite")
        elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
            self.fail(f"metadata {key} does not fit 64 bits")
        elif not isinstance(value, (int, float)):
            self.fail(f"metadata {key} has no known type")
        return cast(MetadataValue, value)

    def unicode(self, what: str, text: str) -> None:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            self.fail(f"{what} holds a lone surrogate: {error.reason}")

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

    # tensors and sections --------------------------------------------------------------------
    def by_name(self, what: str, records: Iterable[Record]) -> dict[str, Record]:
        found: dict[str, Record] = {}
        for record in records:
            if record.name in found:
                self.fail(f"{what} {record.name!r} occurs twice")
            found[record.name] = record
        return found

    def check_places(self, records: Sequence[IattTensor | IattSection], end: int) -> None:
        """They and the header must fill the file without a gap."""
        position = PRELUDE_BYTES
        for record in records:
            if record.offset != position:
                self.fail(f"{record.name}: offset {record.offset}, expected {position}")
            position = aligned(position + record.nbytes)
        if position != end:
            self.fail(f"the contents end at byte {position}, the header begins at {end}")

    def named(
        self, what: str, record: object, type_: type, numbers: Sequence[str]
    ) -> dict[str, Any]:
        """A record with the fields of ``type_``: its name is text, ``numbers`` are not negative."""
        r = FRAME.record(self.path, f"a {what}", record, [field.name for field in fields(type_)])
        name = r["name"]
        if not isinstance(name, str):
            self.fail(f"the name of a {what} is no string")
        self.unicode(f"{what} name", name)
        if any(type(r[key]) is not int or r[key] < 0 for key in numbers):
            self.fail(f"{what} {name}: {', '.join(numbers)} must be integers >= 0")
        return r

    def section(self, record: object) -> IattSection:
        return IattSection(**self.named("section", record, IattSection, PLACE))

    def tensor(self, record: object) -> IattTensor:
        r = self.named("tensor", record, IattTensor, ("rotary_heads", *PLACE))
        name, shape = r["name"], r["shape"]
        if not isinstance(r["format"], str):
            self.fail(f"tensor {name}: the format is no string")
        if not isinstance(shape, list) or not set(map(type, shape)) <= {int}:
            self.fail(f"tensor {name}: the shape is no list of integers")
        try:
            expected = tensor_bytes(r["format"], tuple(shape))
        except ValueError as error:
            self.fail(f"tensor {name}: {error}")
        if r["nbytes"] != expected:
            self.fail(f"tensor {name}: {r['nbytes']} bytes, expected {expected}")
        return IattTensor(**{**r, "shape": tuple(shape)})
