"""The frame of an ``.iatt`` file: 64 bytes in front, tensors, texts, a JSON header at the end.

::

    0    8 s   magic              16   u64  offset of the header    60  u32  CRC-32 of bytes 0..59
    8    u32   version            24   u64  bytes of the header
    12   u32   CRC-32 of header   32   28 zero bytes
    64   tensors, then sections, in the header's order, each at the next multiple of 64, zeros
         between
    ...  header, also at a multiple of 64, and it ends the file

The header stands last because packing streams: checksums are known when the tensors are written.
Integers are little-endian. Nothing in a file is trusted; the layout is checked to the byte.

The header is one JSON object in UTF-8::

    {"layout":   name of the layout that the matrices are packed in,
     "metadata": {key: bool | int | float | string | [string, ...] | {"dtype": d, "values": [...]}},
     "tensors":  [{"name", "format", "shape", "rotary_heads", "offset", "nbytes", "crc32"}, ...],
     "sections": [{"name", "offset", "nbytes", "crc32"}, ...]}

A section is a file of UTF-8 text, kept to the byte, so that a host without Python needs no other
file. ``pack`` writes the tokenizer's, under Hugging Face's names (``hf_vocabulary.folder_texts``)::

    tokenizer.json          reads as it stands with the library tokenizers; its post-processor adds
                            the BOS token where the model wants one
    tokenizer_config.json   {"bos_token": "<s>", "eos_token": ...}: special tokens as text
    generation_config.json  {"bos_token_id": 1, "eos_token_id": [2, 7], ...}; always a list: every
                            id that ends a turn
    chat_template.jinja     the chat template; there is none if the model has none

and, for models from a Hugging Face folder, that folder's config.json and other JSON files. Models
from a GGUF file have its hyperparameters in the metadata. Other names may occur and are kept.

Version 1 had no sections: the header lacks the key, the texts were metadata.
"""

import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import cast

import numpy as np

from intattention._core import WEIGHT_LAYOUT, PackedWeights
from intattention.checkpoint import MetadataValue, WeightFormat

MAGIC = b"IATT\r\n\x1a\n"  # the line ends show a transfer in text mode
VERSION = 2
ALIGNMENT = 64
MAX_DIM = 1 << 31
PRELUDE = struct.Struct("<8sIIQQ28x")
PRELUDE_BYTES = PRELUDE.size + 4
WEIGHT_FORMATS = ("w4g32", "w4g32a", "w8g32")


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


@dataclass(frozen=True)
class IattSection:
    """A text; ``nbytes`` of UTF-8, without a zero at the end."""

    name: str
    offset: int
    nbytes: int
    crc32: int


@dataclass(frozen=True)
class IattHeader:
    """What a file says of itself; tensors and sections by name, in the file's order."""

    version: int
    metadata: dict[str, MetadataValue]
    tensors: dict[str, IattTensor]
    sections: dict[str, IattSection]


def aligned(offset: int) -> int:
    """The next multiple of 64."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def tensor_bytes(format: str, shape: tuple[int, ...]) -> int:
    """Size of a tensor. ValueError if there is no such format or shape."""
    if format == "f32" and len(shape) == 1 and 1 <= shape[0] <= MAX_DIM:
        return 4 * shape[0]
    if format in WEIGHT_FORMATS and len(shape) == 2 and 1 <= min(shape) <= max(shape) <= MAX_DIM:
        return PackedWeights.packed_bytes(cast(WeightFormat, format), *shape)
    raise ValueError(f"{format!r} with the shape {shape} is no tensor of this format")


def encode_header(
    metadata: Mapping[str, MetadataValue],
    tensors: Iterable[IattTensor],
    sections: Iterable[IattSection],
) -> bytes:
    """The JSON header. ValueError if the metadata holds NaN or Inf."""
    header = {
        "layout": WEIGHT_LAYOUT,
        "metadata": {key: _to_json(value) for key, value in metadata.items()},
        "tensors": [asdict(tensor) for tensor in tensors],
        "sections": [asdict(section) for section in sections],
    }
    text = json.dumps(header, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8")


def encode_prelude(offset: int, header: bytes) -> bytes:
    """The first 64 bytes of a file whose header lies at ``offset``."""
    return prelude(VERSION, zlib.crc32(header), offset, len(header))


def prelude(version: int, crc32: int, offset: int, nbytes: int) -> bytes:
    """The first 64 bytes: of a header with this checksum, place and size."""
    head = PRELUDE.pack(MAGIC, version, crc32, offset, nbytes)
    return head + struct.pack("<I", zlib.crc32(head))


def _to_json(value: MetadataValue) -> object:
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.name, "values": value.tolist()}
    return value
