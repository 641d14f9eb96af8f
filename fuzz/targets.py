"""What is fuzzed in Python: a function of bytes per parser, for atheris (run.py) and for pytest
(tests/test_fuzz_corpus.py). Each returns what it refused with, None if the bytes were taken.

Files with checksums are tried twice, as they are and with the checksums made right, since a
fuzzer does not find a CRC.
"""

import os
import sys
import tempfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import tiny_model

from intattention import LLM, IntAttentionError, NumericError
from intattention.framed_file import PRELUDE, PRELUDE_BYTES, Frame
from intattention.gguf_file import GGUFFile
from intattention.iatt_file import IattFile
from intattention.iatt_header import FRAME as IATT
from intattention.session_file import FRAME as SESSION
from intattention.session_file import read_session

Target = Callable[[bytes], Exception | None]
FOLDER = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
REFUSALS = (IntAttentionError, NumericError)


def gguf(data: bytes) -> Exception | None:
    """A GGUF file: header, vocabulary, chat template, tensors, and a few tokens if it loads."""
    path = written("gguf", data)
    try:
        GGUFFile(path)
        LLM.load(path, threads=1, ctx=8).generate("a", max_new_tokens=1)
    except (*REFUSALS, ValueError) as error:
        return error
    return None


def iatt(data: bytes) -> Exception | None:
    """A packed model."""
    return with_and_without_checksums(data, IATT, iatt_once)


def iatt_once(data: bytes) -> Exception | None:
    path = written("iatt", data)
    try:
        IattFile(path)
        LLM.load(path, threads=1, ctx=8).generate("a", max_new_tokens=1)
    except (*REFUSALS, ValueError) as error:
        return error
    return None


def session(data: bytes) -> Exception | None:
    """A session file of the tiny model, whose fingerprint is part of the corpus."""
    return with_and_without_checksums(data, SESSION, session_once)


def session_once(data: bytes) -> Exception | None:
    path = written("session", data)
    try:
        read_session(path, model().decoder, model().context)
    except REFUSALS as error:
        return error
    model().load_session(path)
    with suppress(NumericError):
        model().generate("the one", max_new_tokens=1)
    return None


TARGETS: dict[str, Target] = {"gguf": gguf, "iatt": iatt, "session": session}


@cache
def model() -> LLM:
    return LLM.load(tiny_model.write(FOLDER / "tiny.gguf"), threads=1)


def written(name: str, data: bytes) -> Path:
    path = FOLDER / f"input.{name}"
    path.write_bytes(data)
    return path


def with_and_without_checksums(data: bytes, frame: Frame, once: Target) -> Exception | None:
    refusal = once(data)
    return refusal and once(repaired(data, frame))


def repaired(data: bytes, frame: Frame) -> bytes:
    """With the prelude that the rest calls for: the header begins where the prelude says, or at
    the last multiple of 64."""
    if len(data) < PRELUDE_BYTES:
        return data
    offset = PRELUDE.unpack(data[: PRELUDE.size])[3]
    if not PRELUDE_BYTES <= offset <= len(data):
        offset = len(data) // 64 * 64
    header = data[offset:]
    if frame is SESSION and b'"crc32":' in header:
        at = header.index(b'"crc32":') + len(b'"crc32":')
        digits = len(header[at:]) - len(header[at:].lstrip(b"0123456789"))
        crc32 = str(zlib.crc32(data[PRELUDE_BYTES:offset])).encode()
        header = header[:at] + crc32 + header[at + digits :]
    return frame.prelude(offset, header) + data[PRELUDE_BYTES:offset] + header
