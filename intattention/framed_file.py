"""The frame of the files that this package writes: 64 bytes, sections, a JSON header at the end.

::

    0    8 s   magic              16   u64  offset of the header    60  u32  CRC-32 of bytes 0..59
    8    u32   version            24   u64  bytes of the header
    12   u32   CRC-32 of header   32   28 zero bytes
    64   sections, each at the next multiple of 64, zeros between
    ...  header, also at a multiple of 64, and it ends the file

The header stands last because writing streams: checksums are known when the sections are written.
Integers are little-endian. Nothing in a file is trusted.
"""

import json
import os
import secrets
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from intattention.errors import IntAttentionError

ALIGNMENT = 64
MAX_HEADER_BYTES = 1 << 28
PRELUDE = struct.Struct("<8sIIQQ28x")
PRELUDE_BYTES = PRELUDE.size + 4


def aligned(offset: int) -> int:
    """The next multiple of 64."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Frame:
    """One kind of file. ``fields``: exactly what the header of each version has; the highest is
    what is written. ``kind``: what messages call it, e.g. "an .iatt file"; ``damaged`` and
    ``unsupported``: what is raised for files that are not whole, or of another version."""

    magic: bytes
    fields: Mapping[int, Sequence[str]]
    kind: str
    damaged: type[IntAttentionError]
    unsupported: type[IntAttentionError]

    def prelude(self, offset: int, header: bytes) -> bytes:
        """The first 64 bytes of a file whose header lies at ``offset``."""
        return self._prelude(max(self.fields), zlib.crc32(header), offset, len(header))

    def _prelude(self, version: int, crc32: int, offset: int, nbytes: int) -> bytes:
        head = PRELUDE.pack(self.magic, version, crc32, offset, nbytes)
        return head + struct.pack("<I", zlib.crc32(head))

    def read(self, path: Path, content: memoryview) -> tuple[int, int, dict[str, Any]]:
        """Version of a whole file, and offset and fields of its header.

        The checksums of prelude and header are compared; sections are not read.
        """
        version, offset, data = self._header(path, content)
        try:
            header = json.loads(
                data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse
            )
        except (ValueError, RecursionError) as error:
            self.fail(path, f"the header is no valid JSON: {error}")
        return version, offset, self.record(path, "the header", header, self.fields[version])

    def record(self, path: Path, what: str, value: object, keys: Sequence[str]) -> dict[str, Any]:
        """``value``, if it is a JSON object with exactly these keys."""
        if not isinstance(value, dict) or sorted(value) != sorted(keys):
            self.fail(path, f"{what} must have exactly the fields {', '.join(keys)}")
        return value

    def fail(self, path: Path, problem: str) -> NoReturn:
        """Raises ``damaged``."""
        raise self.damaged(f"{path}: {problem}")

    def _header(self, path: Path, content: memoryview) -> tuple[int, int, bytes]:
        magic = bytes(content[:8])
        if magic != self.magic:
            self.fail(path, f"not {self.kind}: it starts with {magic!r} instead of {self.magic!r}")
        if len(content) < PRELUDE_BYTES:
            self.fail(path, f"the file has {len(content)} bytes, at least {PRELUDE_BYTES} are "
                      "needed")  # fmt: skip
        _, version, crc32, offset, nbytes = PRELUDE.unpack(content[: PRELUDE.size])
        if version not in self.fields:
            known = " and ".join(map(str, self.fields))
            raise self.unsupported(
                f"{path}: {self.kind} of version {version}, this version reads {known}"
            )
        if content[:PRELUDE_BYTES] != self._prelude(version, crc32, offset, nbytes):
            self.fail(path, "the first 64 bytes are damaged (checksum)")
        if nbytes > MAX_HEADER_BYTES:
            self.fail(path, f"the header has {nbytes} bytes, at most {MAX_HEADER_BYTES}")
        if offset < PRELUDE_BYTES or offset + nbytes != len(content):
            self.fail(path, f"the header ends at byte {offset + nbytes}, the file has "
                      f"{len(content)} (truncated?)")  # fmt: skip
        data = bytes(content[offset:])
        if zlib.crc32(data) != crc32:
            self.fail(path, "the header is damaged (checksum)")
        return version, offset, data


class FrameWriter:
    """Writes one file from front to end. ``position``: where the next section begins."""

    def __init__(self, frame: Frame, file: BinaryIO) -> None:
        self._frame = frame
        self._file = file
        self.position = PRELUDE_BYTES
        file.write(bytes(PRELUDE_BYTES))

    def append(self, data: memoryview) -> int:
        """Writes a section; returns its offset."""
        start, end = self.position, aligned(self.position + data.nbytes)
        self._file.write(data)
        self._file.write(bytes(end - start - data.nbytes))
        self.position = end
        return start

    def finish(self, header: bytes) -> None:
        """Writes the header and makes the file durable."""
        self._file.write(header)
        self._file.seek(0)
        self._file.write(self._frame.prelude(self.position, header))
        self._file.flush()
        os.fsync(self._file.fileno())


def encoded_json(header: object) -> bytes:
    """As ``Frame.read`` takes it. ValueError if it holds NaN or Inf."""
    text = json.dumps(header, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8")


@contextmanager
def replaced(target: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A temporary file beside ``target`` that takes its place, unless an exception passes.

    The caller makes the file durable. Whenever the process dies, ``target`` is the old file or
    the new one, whole; a ``.part`` file may then be left beside it.
    """
    path = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with path.open("x+b") as file:
            yield path, file
        path.replace(target)
    except BaseException:  # Ctrl-C too leaves nothing behind
        path.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Without it a power cut may bring the old name back."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice")
    return result


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
