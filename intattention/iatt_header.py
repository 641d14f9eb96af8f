"""The header of an ``.iatt`` file: packed tensors and texts in the frame of ``framed_file.py``.

Tensors, then sections lie in the header's order without a gap; the layout is checked to the byte.
The header::

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
    intattention.decoder.json
                            the decoder, for hosts without Python (``models/description.py``)

and, for models from a Hugging Face folder, that folder's config.json and other JSON files. Models
from a GGUF file have its hyperparameters in the metadata. Other names may occur and are kept.

Version 1 had no sections: the header lacks the key, the texts were metadata.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import cast

import numpy as np

from intattention._core import WEIGHT_LAYOUT, PackedWeights
from intattention.checkpoint import MetadataValue, WeightFormat
from intattention.errors import ModelFileError, UnsupportedModelError
from intattention.framed_file import Frame, encoded_json

MAGIC = b"IATT\r\n\x1a\n"  # the line ends show a transfer in text mode
FIELDS = {
    1: ("layout", "metadata", "tensors"),
    2: ("layout", "metadata", "tensors", "sections"),
}
FRAME = Frame(MAGIC, FIELDS, "an .iatt file", ModelFileError, UnsupportedModelError)
MAX_DIM = 1 << 31
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
    return encoded_json(
        {
            "layout": WEIGHT_LAYOUT,
            "metadata": {key: _to_json(value) for key, value in metadata.items()},
            "tensors": [asdict(tensor) for tensor in tensors],
            "sections": [asdict(section) for section in sections],
        }
    )


def _to_json(value: MetadataValue) -> object:
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.name, "values": value.tolist()}
    return value
