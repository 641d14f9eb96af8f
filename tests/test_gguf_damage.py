"""Damaged and hostile GGUF files: always a ModelFileError, never a crash."""

import struct
from pathlib import Path

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intattention import LLM
from intattention.errors import (
    ContextOverflowError,
    ModelFileError,
    NumericError,
    UnsupportedModelError,
)
from intattention.gguf_file import GGUFFile

UINT8, UINT32, STRING, ARRAY, BOOL = 0, 4, 8, 9, 7


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def key_value(key: str, code: int, payload: bytes) -> bytes:
    return text(key) + struct.pack("<I", code) + payload


def tensor(name: str, dims: tuple[int, ...], type_: int = 0, offset: int = 0) -> bytes:
    shape = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    return text(name) + shape + struct.pack("<IQ", type_, offset)


def raw_file(
    values: list[bytes] = [],  # noqa: B006
    tensors: list[bytes] = [],  # noqa: B006
    magic: bytes = b"GGUF",
    version: int = 3,
    counts: tuple[int, int] | None = None,
    data: int = 4096,
) -> bytes:
    counts = counts or (len(tensors), len(values))
    head = magic + struct.pack("<IQQ", version, *counts) + b"".join(values) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + bytes(data)


U32 = struct.pack("<I", 7)
HOSTILE = {
    "starts with": raw_file(magic=b"GGML"),
    "version 1,": raw_file(version=1),
    "big-endian": raw_file(version=3 << 24),
    "tensor count is 18446744073709551615": raw_file(counts=(2**64 - 1, 0)),
    "metadata count is 9999999": raw_file(counts=(0, 9999999)),
    "'k' occurs twice": raw_file([key_value("k", UINT32, U32)] * 2),
    "key has 0 bytes": raw_file([key_value("", UINT32, U32)]),
    "unknown value type 13": raw_file([key_value("k", 13, U32)]),
    "k needs 4611686018427387904 bytes": raw_file(
        [key_value("k", STRING, struct.pack("<Q", 2**62))]
    ),
    "not UTF-8": raw_file([key_value("k", STRING, text(b"\xff\xfe"))]),
    "boolean with the value 2": raw_file([key_value("k", BOOL, b"\x02")]),
    "array of arrays": raw_file([key_value("k", ARRAY, struct.pack("<IQ", ARRAY, 1))]),
    "array of unknown type 77": raw_file([key_value("k", ARRAY, struct.pack("<IQ", 77, 1))]),
    "length of k is 1152921504606846976": raw_file(
        [key_value("k", ARRAY, struct.pack("<IQ", UINT8, 2**60))]
    ),
    "general.alignment is 24": raw_file(
        [key_value("general.alignment", UINT32, struct.pack("<I", 24))]
    ),
    "general.alignment is 0": raw_file(
        [key_value("general.alignment", UINT32, struct.pack("<I", 0))]
    ),
    "general.alignment is True": raw_file([key_value("general.alignment", BOOL, b"\x01")]),
    "tensor 't' occurs twice": raw_file([], [tensor("t", (4,)), tensor("t", (4,), 0, 32)]),
    "has 0 dimensions": raw_file([], [tensor("t", ()) + bytes(8)]),
    "has 5 dimensions": raw_file([], [tensor("t", (1, 1, 1, 1, 1))]),
    "expected dimensions > 0": raw_file([], [tensor("t", (4, 0))]),
    "needs 340282366920938463463374607431768211456": raw_file([], [tensor("t", (2**63, 2**63))]),
    "unknown type 999": raw_file([], [tensor("t", (4,), 999)]),
    "33 columns are no multiple of Q4_0's 32": raw_file([], [tensor("t", (33, 1), 2)]),
    "offset 33 is no multiple": raw_file([], [tensor("t", (4,), 0, 33)]),
    "truncated": raw_file([], [tensor("t", (1024,), 0, 32)]),
    "ends at byte": raw_file([], [tensor("t", (4,), 0, 2**64 - 32)]),
    "overlaps": raw_file([], [tensor("a", (16,)), tensor("b", (4,), 0, 32)]),
    "name has 65 bytes": raw_file([], [tensor("t" * 65, (4,))]),
}


@pytest.mark.parametrize("words", HOSTILE)
def test_hostile_headers(tmp_path: Path, words: str) -> None:
    path = tmp_path / "hostile.gguf"
    path.write_bytes(HOSTILE[words])
    with pytest.raises(ModelFileError) as caught:
        LLM.load(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_every_truncation_is_noticed(tiny_path: Path, tmp_path: Path) -> None:
    """Lengths: all of the fixed header, then a prime stride, then around each tensor's ends."""
    data = tiny_path.read_bytes()
    tensors = gguf.GGUFReader(tiny_path).tensors
    ends = [t.data_offset + t.n_bytes for t in tensors]
    near_ends = [end + delta for end in ends for delta in (-1, 0)]
    lengths = {
        *range(64),
        *range(64, len(data), 241),
        *near_ends,
        *(t.data_offset for t in tensors),
    }
    path = tmp_path / "short.gguf"
    for length in sorted(lengths - {max(ends)}):
        if length >= max(ends):
            continue
        path.write_bytes(data[:length])
        with pytest.raises(ModelFileError):
            GGUFFile(path)


def test_file_that_shrinks_after_the_header_was_read(tiny_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "shrinks.gguf"
    path.write_bytes(tiny_path.read_bytes())
    file = GGUFFile(path)
    path.write_bytes(tiny_path.read_bytes()[:20000])
    with pytest.raises(ModelFileError, match=r"read \d+ of"):
        file.matrix("blk.1.ffn_down.weight", "w4g32a")


@settings(
    max_examples=300, deadline=5000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_mutated_headers_never_crash(tiny_path: Path, tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(tiny_path.read_bytes())
    header = gguf.GGUFReader(tiny_path).data_offset
    places = st.integers(0, header - 1)
    for place, byte in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=4)):
        content[place] = byte
    path = tmp_path / "mutated.gguf"
    path.write_bytes(content)
    try:
        llm = LLM.load(path, threads=1)
        llm.generate("the 1", max_new_tokens=2)
    except (ModelFileError, UnsupportedModelError):
        pass
    except (ContextOverflowError, NumericError):
        pass  # a tiny context_length, or weights read from elsewhere
