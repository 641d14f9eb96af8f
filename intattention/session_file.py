"""Session files: tokens and their keys and values, in the frame of ``framed_file.py``.

Sections: the token ids, int32; then per layer k, k_scale, v, v_log_scale as ``KVCache.rows``
gives them. Their sizes follow from the header's numbers; one checksum is over all of them.
"""

import zlib
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from intattention._core import Decoder, KVCache
from intattention.errors import ContextOverflowError, SessionFileError
from intattention.fingerprint import fingerprint
from intattention.framed_file import (
    PRELUDE_BYTES,
    Frame,
    FrameWriter,
    aligned,
    encoded_json,
    replaced,
)
from intattention.mapped_file import map_file

FIELDS = {1: ("fingerprint", "tokens", "crc32")}
FRAME = Frame(b"IASN\r\n\x1a\n", FIELDS, "a session file", SessionFileError, SessionFileError)
ROW_TYPES = ("i1", "<f4", "i1", "<i2")
MAX_TOKENS = 1 << 31
Shape = tuple[str, tuple[int, ...]]
"""dtype and shape of a section"""


def write_session(path: Path, decoder: Decoder, ids: Sequence[int], cache: KVCache) -> None:
    """Writes ``ids`` and the rows that ``cache`` holds for them; the file appears whole, durable
    and at once, in place of an older one, or not at all. OSError if it cannot be written."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory")
    model = fingerprint(decoder)
    with replaced(path) as (_, file):
        writer, crc32 = FrameWriter(FRAME, file), 0

        def section(data: memoryview) -> None:
            nonlocal crc32
            gap = writer.append(data) + data.nbytes
            crc32 = zlib.crc32(bytes(writer.position - gap), zlib.crc32(data, crc32))

        section(np.array(ids, "<i4").data)
        for layer in range(decoder.config.num_hidden_layers):
            for part in cache.rows(layer, len(ids)):
                section(part.data)
        writer.finish(encoded_json({"fingerprint": model, "tokens": len(ids), "crc32": crc32}))


def read_session(path: Path, decoder: Decoder, context: int) -> tuple[list[int], KVCache]:
    """Token ids and a cache of ``context`` tokens that holds their rows.

    SessionFileError: not a whole session file, or one of another model. ContextOverflowError: it
    holds more tokens than ``context``. OSError if it cannot be read.
    """
    content = map_file(path, SessionFileError)
    _, end, header = FRAME.read(path, content)
    tokens, crc32 = header["tokens"], header["crc32"]
    if type(tokens) is not int or not 1 <= tokens <= MAX_TOKENS or type(crc32) is not int:
        FRAME.fail(path, f"the header says {str(tokens)[:40]} tokens")
    if header["fingerprint"] != fingerprint(decoder):
        FRAME.fail(path, "the session is of another model, or of another version of this package")
    config = decoder.config
    scales = config.num_key_value_heads, tokens
    rows = [(*scales, config.head_dim), scales] * 2
    layer: list[Shape] = list(zip(ROW_TYPES, rows, strict=True))
    shapes: list[Shape] = [("<i4", (tokens,)), *layer * config.num_hidden_layers]
    ids, *parts = _sections(path, content, end, shapes, crc32)
    if not ((ids >= 0) & (ids < config.vocab_size)).all():
        FRAME.fail(path, f"a token is outside the vocabulary of {config.vocab_size}")
    cache = decoder.new_cache(context)
    try:
        cache.append_rows(list(zip(*(parts[i::4] for i in range(4)), strict=True)))
    except ContextOverflowError:
        raise
    except ValueError as error:
        FRAME.fail(path, str(error))
    return ids.tolist(), cache


def _sections(
    path: Path, content: memoryview, end: int, shapes: Sequence[Shape], crc32: int
) -> list[NDArray[Any]]:
    """Views of the sections, which must end at ``end`` and have that checksum together."""
    position, arrays = PRELUDE_BYTES, []
    for dtype, shape in shapes:
        nbytes = prod(shape) * np.dtype(dtype).itemsize
        data = content[position : position + nbytes]
        if position + nbytes > end:
            FRAME.fail(path, f"the sections end beyond byte {position + nbytes}, the header begins "
                       f"at {end}")  # fmt: skip
        arrays.append(np.frombuffer(data, dtype).reshape(shape))
        position = aligned(position + nbytes)
    if position != end:
        FRAME.fail(path, f"the sections end at byte {position}, the header begins at {end}")
    if zlib.crc32(content[PRELUDE_BYTES:end]) != crc32:
        FRAME.fail(path, "the tokens or their keys and values are damaged (checksum)")
    return arrays
