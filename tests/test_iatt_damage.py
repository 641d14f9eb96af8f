"""Damaged and hostile .iatt files: always a clear error, never a crash."""

import json
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

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
from intattention.framed_file import PRELUDE, PRELUDE_BYTES
from intattention.iatt_file import IattFile
from intattention.iatt_header import FRAME, MAGIC

Change = Callable[[dict[str, Any]], object]
MATRIX = "blk.1.ffn_down.weight"


def header_of(data: bytes) -> tuple[int, dict[str, Any]]:
    offset = PRELUDE.unpack(data[: PRELUDE.size])[3]
    return offset, json.loads(data[offset:])


def framed(data: bytes, header: bytes, version: int = max(FRAME.fields)) -> bytes:
    """``data``'s tensors before another header, with checksums that are right."""
    offset = header_of(data)[0]
    head = PRELUDE.pack(MAGIC, version, zlib.crc32(header), offset, len(header))
    return head + struct.pack("<I", zlib.crc32(head)) + data[PRELUDE_BYTES:offset] + header


def changed(data: bytes, change: Change) -> bytes:
    header = header_of(data)[1]
    change(header)
    return framed(data, json.dumps(header).encode())


def first(header: dict[str, Any]) -> dict[str, Any]:
    tensor: dict[str, Any] = header["tensors"][0]
    return tensor


def test_every_truncation_is_noticed(packed_path: Path, tmp_path: Path) -> None:
    data = packed_path.read_bytes()
    path = tmp_path / "short.iatt"
    lengths = {*range(130), *range(130, len(data), 241), len(data) - 1}
    for length in sorted(lengths):
        path.write_bytes(data[:length])
        with pytest.raises(ModelFileError):
            IattFile(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(ModelFileError, match="the file has"):
        IattFile(path)


def test_every_bit_before_the_tensors_counts(packed_path: Path, tmp_path: Path) -> None:
    data, path = packed_path.read_bytes(), tmp_path / "flipped.iatt"
    header = header_of(data)[0]
    for place in (*range(PRELUDE_BYTES), *range(header, len(data), 97)):
        for bit in range(8) if place < PRELUDE_BYTES else (place % 8,):
            content = bytearray(data)
            content[place] ^= 1 << bit
            path.write_bytes(content)
            with pytest.raises((ModelFileError, UnsupportedModelError)):
                LLM.load(path)


def test_a_damaged_tensor_is_found_by_verify(packed_path: Path, tmp_path: Path) -> None:
    content, path = bytearray(packed_path.read_bytes()), tmp_path / "flipped.iatt"
    record = next(t for t in header_of(content)[1]["tensors"] if t["name"] == MATRIX)
    content[record["offset"] + record["nbytes"] - 1] ^= 16
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=f"{MATRIX} is damaged"):
        IattFile(path).verify()


HOSTILE: dict[str, Change] = {
    "packed as 'r8k8x'": lambda h: h.update(layout="r8k8x"),
    "packed as '['": lambda h: h.update(layout="["),
    "must have exactly the fields layout": lambda h: h.update(extra=1),
    "must have exactly the fields name": lambda h: first(h).pop("crc32"),
    "wrong type": lambda h: h.update(tensors={}),
    "a tensor must": lambda h: h["tensors"].append(7),
    "occurs twice": lambda h: h["tensors"].insert(1, first(h)),
    "offset 0, expected 64": lambda h: first(h).update(offset=0),
    "offset 65, expected 64": lambda h: first(h).update(offset=65),
    f"offset {2**70}, expected 64": lambda h: first(h).update(offset=2**70),
    "integers >= 0": lambda h: first(h).update(nbytes=-1),
    "must be integers": lambda h: first(h).update(offset=64.0),
    "bytes, expected": lambda h: first(h).update(nbytes=first(h)["nbytes"] + 64),
    "(9223372036854775808, 64) is no tensor": lambda h: first(h).update(shape=[2**63, 64]),
    "(0, 64) is no tensor": lambda h: first(h).update(shape=[0, 64]),
    "() is no tensor": lambda h: first(h).update(shape=[]),
    "no list of integers": lambda h: first(h).update(shape=[True, 64]),
    "is no tensor": lambda h: first(h).update(format="w9"),
    "no string": lambda h: first(h).update(name=None),
    "the contents end at byte": lambda h: h["sections"].pop(),
    "sections have the wrong type": lambda h: h.update(sections=None),
    "must have exactly the fields name, offset": lambda h: h["sections"][0].update(format="text"),
    "section 'generation_config.json' occurs twice": lambda h: h["sections"].insert(
        0, h["sections"][0]
    ),
    "the name of a section": lambda h: h["sections"][0].update(name=1),
    "generation_config.json: offset": lambda h: h["sections"][0].update(offset=128),
    "generation_config.json is damaged": lambda h: h["sections"][0].update(crc32=1),
    "both metadata and a section": lambda h: h["metadata"].update({"tokenizer.json": "{}"}),
    "metadata k has no known type": lambda h: h["metadata"].update(k=None),
    "does not fit 64 bits": lambda h: h["metadata"].update(k=10**400),
    "lone surrogate": lambda h: h["metadata"].update(k=["a", "\ud800"]),
    "NaN is no JSON": lambda h: h["metadata"].update(k=float("nan")),
    "unknown type": lambda h: h["metadata"].update(k={"dtype": "object", "values": []}),
    "values that are no uint8": lambda h: h["metadata"].update(
        k={"dtype": "uint8", "values": [""]}
    ),
    "must have exactly the fields dtype": lambda h: h["metadata"].update(k={}),
    "order for 4 heads, expected 0": lambda h: [
        t.update(rotary_heads=4) for t in h["tensors"] if t["name"] == "blk.0.attn_v.weight"
    ],
    "1 heads, expected 4": lambda h: [
        t.update(rotary_heads=1) for t in h["tensors"] if t["name"] == "blk.0.attn_q.weight"
    ],
    "is missing": lambda h: first(h).update(name="other"),
}


@pytest.mark.parametrize("words", HOSTILE)
def test_hostile_headers(packed_path: Path, tmp_path: Path, words: str) -> None:
    path = tmp_path / "hostile.iatt"
    path.write_bytes(changed(packed_path.read_bytes(), HOSTILE[words]))
    with pytest.raises((ModelFileError, UnsupportedModelError)) as caught:
        LLM.load(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"", "no valid JSON"),
        (b"\xff", "no valid JSON"),
        (b"[" * 100_000, "no valid JSON"),
        (b'{"layout":1,"layout":2}', "a key occurs twice"),
        (b"[]", "must have exactly"),
        (b'{"layout":' + b"9" * 5000 + b"}", "no valid JSON"),
    ],
    ids=range(6),
)
def test_hostile_json(packed_path: Path, tmp_path: Path, header: bytes, words: str) -> None:
    path = tmp_path / "hostile.iatt"
    path.write_bytes(framed(packed_path.read_bytes(), header))
    with pytest.raises(ModelFileError, match=words):
        IattFile(path)


def test_another_version_is_refused(packed_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "newer.iatt"
    path.write_bytes(framed(packed_path.read_bytes(), b"{}", version=3))
    with pytest.raises(UnsupportedModelError, match="version 3, this version reads 1 and 2"):
        IattFile(path)


@settings(
    max_examples=150, deadline=5000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_mutated_json_never_crashes(packed_path: Path, tmp_path: Path, data: st.DataObject) -> None:
    """With checksums made right again, so that the parsing behind them is reached."""
    content = packed_path.read_bytes()
    header = bytearray(content[header_of(content)[0] :])
    places = st.integers(0, len(header) - 1)
    for place, byte in data.draw(st.lists(st.tuples(places, st.integers(32, 126)), max_size=4)):
        header[place] = byte
    path = tmp_path / "mutated.iatt"
    path.write_bytes(framed(content, bytes(header)))
    with suppress(ModelFileError, UnsupportedModelError, ContextOverflowError, NumericError):
        LLM.load(path, threads=1).generate("the 1", max_new_tokens=2)
