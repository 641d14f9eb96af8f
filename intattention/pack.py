"""Writes ``.iatt`` files: a load whose tensors are written down on the way."""

import mmap
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from intattention import models
from intattention._core import PackedWeights, ThreadPool
from intattention.checkpoint import Checkpoint, FloatFormat, MetadataValue, TensorInfo
from intattention.dtypes import F32
from intattention.errors import ModelFileError
from intattention.framed_file import FrameWriter, replaced
from intattention.hf_vocabulary import folder_texts
from intattention.iatt_file import IattFile
from intattention.iatt_header import FRAME, IattSection, IattTensor, encode_header
from intattention.model_file import open_model_file
from intattention.models.description import DECODER_TEXT, describe
from intattention.tokenizer import read_vocabulary

GGUF_TOKENIZER = "tokenizer."  # begins the keys that the sections replace


def pack_model(
    source: Path,
    target: Path,
    force: bool = False,
    progress: models.Progress | None = None,
    weight_format: FloatFormat = "w4g32a",
) -> Mapping[str, float]:
    """Packs the model file ``source`` into ``target``, which appears whole and verified or not
    at all. One tensor at a time is held in memory.

    ``weight_format``: what float weights become. Returns ``Checkpoint.losses``.

    FileExistsError if there is a ``target`` and not ``force``; otherwise what ``LLM.load`` raises
    for ``source``, and OSError.
    """
    if target.exists() and not force:
        raise FileExistsError(f"{target} exists; --force replaces it")
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a directory")
    checkpoint = open_model_file(source)
    model = models.find(checkpoint)
    vocabulary = read_vocabulary(checkpoint)  # refuses early what could not be loaded later
    with replaced(target) as (path, file):
        recorder = _Recorder(checkpoint, file)
        parts = model.read(recorder, progress, weight_format)
        model.decoder(recorder, parts, ThreadPool(1))  # checks that they fit together
        decoder = describe(model, parts, len(vocabulary.tokens), vocabulary.end_ids)
        recorder.finish({**folder_texts(vocabulary, checkpoint), DECODER_TEXT: decoder})
        IattFile(path).verify()
    return checkpoint.losses


class _Recorder:
    """A checkpoint that passes another one on and writes what is read of it.

    Matrices are handed out as pages of the file just written, so that they take no memory.
    """

    def __init__(self, source: Checkpoint, file: BinaryIO) -> None:
        self._source = source
        self._file = file
        self._writer = FrameWriter(FRAME, file)
        self._written: list[IattTensor] = []

    @property
    def path(self) -> Path:
        return self._source.path

    @property
    def format(self) -> str:
        return self._source.format

    @property
    def metadata(self) -> Mapping[str, MetadataValue]:
        return self._source.metadata

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._source.tensors

    @property
    def losses(self) -> Mapping[str, float]:
        return self._source.losses

    def packed(self, name: str, float_format: FloatFormat, rotary_heads: int = 0) -> PackedWeights:
        weights = self._source.packed(name, float_format, rotary_heads)
        rows, columns = weights.shape
        view = self._write(name, weights.format, weights.shape, rotary_heads, memoryview(weights))
        return PackedWeights.from_packed(weights.format, rows, columns, view)

    def vector(self, name: str) -> F32:
        values = self._source.vector(name)
        data = memoryview(np.ascontiguousarray(values, "<f4").tobytes())
        self._write(name, "f32", values.shape, 0, data)
        return values

    def finish(self, texts: Mapping[str, str]) -> None:
        """Writes ``texts`` and the header and makes the file durable.

        Metadata that ``texts`` stand for are left out. ModelFileError: metadata with NaN.
        """
        sections = [
            IattSection(name, *self._append(memoryview(text.encode("utf-8"))))
            for name, text in texts.items()
        ]
        metadata = {
            key: value
            for key, value in self.metadata.items()
            if key not in texts and not key.startswith(GGUF_TOKENIZER)
        }
        try:
            header = encode_header(metadata, self._written, sections)
        except ValueError as error:
            raise ModelFileError(f"{self.path}: the metadata: {error}") from error
        self._writer.finish(header)

    def _write(
        self, name: str, format: str, shape: tuple[int, ...], rotary_heads: int, data: memoryview
    ) -> memoryview:
        """Appends a tensor; returns its bytes in the file."""
        start, nbytes, crc32 = self._append(data)
        self._file.flush()
        self._written.append(IattTensor(name, format, shape, rotary_heads, start, nbytes, crc32))
        skip = start % mmap.ALLOCATIONGRANULARITY
        pages = mmap.mmap(
            self._file.fileno(), skip + data.nbytes, access=mmap.ACCESS_READ, offset=start - skip
        )
        return memoryview(pages)[skip:]

    def _append(self, data: memoryview) -> tuple[int, int, int]:
        """Offset, size and checksum of ``data``, now in the file."""
        return self._writer.append(data), data.nbytes, zlib.crc32(data)
