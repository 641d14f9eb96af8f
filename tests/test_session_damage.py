"""Damaged and hostile session files: always a clear error, never a crash."""

import json
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intattention import LLM, NumericError, SessionFileError
from intattention.framed_file import PRELUDE, PRELUDE_BYTES, Frame
from intattention.session_file import FRAME

HEADS, DIM, TOKENS = 2, 16, 30  # of tests/tiny_model.py; TOKENS: a prompt of so many letters
K, K_SCALE = 192, 192 + HEADS * TOKENS * DIM  # offsets: 30 ids are 120 bytes


@pytest.fixture(scope="module")
def model(tiny_path: Path) -> LLM:
    return LLM.load(tiny_path, threads=1)


@pytest.fixture(scope="module")
def content(model: LLM, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("session") / "s"
    model.generate("x" * TOKENS, max_new_tokens=1)
    assert model.save_session(path) == TOKENS
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hostile.session"


def header_offset(content: bytes) -> int:
    return int(PRELUDE.unpack(content[: PRELUDE.size])[3])


def framed(content: bytes, header: bytes, frame: Frame = FRAME) -> bytes:
    """``content``'s sections before another header, with checksums that are right."""
    offset = header_offset(content)
    return frame.prelude(offset, header) + content[PRELUDE_BYTES:offset] + header


def with_header(content: bytes, **changes: object) -> bytes:
    header = json.loads(content[header_offset(content) :])
    return framed(content, json.dumps(header | changes).encode())


def with_bytes(content: bytes, at: int, data: bytes) -> bytes:
    """Other bytes in the sections, the checksum made right."""
    changed = bytearray(content)
    changed[at : at + len(data)] = data
    crc = zlib.crc32(changed[PRELUDE_BYTES : header_offset(content)])
    return with_header(bytes(changed), crc32=crc)


def refused(model: LLM, path: Path, data: bytes, words: str = "") -> None:
    path.write_bytes(data)
    with pytest.raises(SessionFileError) as caught:
        model.load_session(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_every_truncation_is_noticed(model: LLM, content: bytes, path: Path) -> None:
    for length in sorted({*range(130), *range(130, len(content), 97), len(content) - 1}):
        refused(model, path, content[:length])
    refused(model, path, content + b"\0", "the file has")


def test_every_damaged_byte_is_noticed(model: LLM, content: bytes, path: Path) -> None:
    """All of prelude and header, samples of the sections."""
    header = header_offset(content)
    for place in (*range(PRELUDE_BYTES), *range(64, header, 211), *range(header, len(content), 7)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        refused(model, path, bytes(changed))


HOSTILE: dict[str, Callable[[bytes], bytes]] = {
    "another model": lambda c: with_header(c, fingerprint="0" * 64),
    "of another model": lambda c: with_header(c, fingerprint=["x"]),
    "says 0 tokens": lambda c: with_header(c, tokens=0),
    "says -1 tokens": lambda c: with_header(c, tokens=-1),
    "says True tokens": lambda c: with_header(c, tokens=True),
    "says 10000000000000": lambda c: with_header(c, tokens=10**400),
    "says 30.0 tokens": lambda c: with_header(c, tokens=30.0),
    "the sections end beyond": lambda c: with_header(c, tokens=2**31),
    "the sections end at": lambda c: with_header(c, tokens=1),
    "(checksum)": lambda c: with_header(c, crc32=1),
    "exactly the fields": lambda c: with_header(c, more=1),
    "no valid JSON": lambda c: framed(c, b"[" * 100_000),
    "a key occurs twice": lambda c: framed(c, b'{"tokens":1,"tokens":2}'),
    "of version 2": lambda c: framed(
        c, b"{}", Frame(FRAME.magic, {2: ()}, "", SessionFileError, SessionFileError)
    ),
    "not a session file": lambda c: b"IATT" + c[4:],
    "outside the vocabulary of 300": lambda c: with_bytes(c, 64, np.int32(300).tobytes()),
    "the vocabulary": lambda c: with_bytes(c, 64, np.int32(-1).tobytes()),
    "k of layer 0 holds -128 at index 5": lambda c: with_bytes(c, K + 5, b"\x80"),
    "k_scale of layer 0 is nan": lambda c: with_bytes(c, K_SCALE, np.float32("nan").tobytes()),
    "k_scale of layer 0 is -1": lambda c: with_bytes(c, K_SCALE, np.float32(-1).tobytes()),
    "k_scale of layer 0 is inf": lambda c: with_bytes(c, K_SCALE, np.float32("inf").tobytes()),
}


@pytest.mark.parametrize("words", HOSTILE)
def test_hostile(model: LLM, content: bytes, path: Path, words: str) -> None:
    refused(model, path, HOSTILE[words](content), words)


def test_log_scales_out_of_range(model: LLM, content: bytes, path: Path) -> None:
    last = header_offset(content) - 64
    for value in (-32768, 32767):
        data = with_bytes(content, last, np.int16(value).tobytes())
        refused(model, path, data, f"v_log_scale of layer 1 is {value}")


@settings(
    max_examples=150, deadline=5000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_mutations_never_crash(model: LLM, content: bytes, path: Path, data: st.DataObject) -> None:
    """With checksums made right again, so that what is behind them is reached."""
    places = st.integers(PRELUDE_BYTES, header_offset(content) - 5)
    changed = content
    for place in data.draw(st.lists(places, max_size=4)):
        changed = with_bytes(changed, place, data.draw(st.binary(min_size=1, max_size=4)))
    path.write_bytes(changed)
    with suppress(SessionFileError, NumericError):
        model.load_session(path)
        model.generate("x" * TOKENS + "the", max_new_tokens=3)
    model.reset()


def test_a_refused_file_changes_nothing(model: LLM, content: bytes, path: Path) -> None:
    expected: Any = model.generate("x" * TOKENS, max_new_tokens=5)
    refused(model, path, with_header(content, crc32=1))
    assert model.generate("x" * TOKENS, max_new_tokens=5) == expected
    assert model.last_stats.reused_tokens == TOKENS - 1
