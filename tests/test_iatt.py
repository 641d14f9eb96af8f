"""Packed model files: the same bits as their source, borrowed memory, whole files or none."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType as Type

from intattention import LLM, _core, models
from intattention.errors import ModelFileError
from intattention.iatt_file import IattFile
from intattention.model_file import open_model_file
from intattention.models.description import DECODER_TEXT
from intattention.pack import pack_model

WriteTiny = Callable[..., Path]
MATRIX = "blk.1.ffn_down.weight"


def logits(path: Path) -> np.ndarray:
    checkpoint, pool = open_model_file(path), _core.ThreadPool(1)
    decoder = models.find(checkpoint).build(checkpoint, pool, None)
    ids = np.arange(3, 40, dtype=np.int32)
    return decoder.forward(ids, decoder.new_cache(64), "all")


# the same model ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "fields",
    [{}, {"tied": True}, {"type": Type.Q4_0}, {"type": Type.Q8_0}, {"type": Type.F16}],
    ids=str,
)
def test_packed_model_gives_the_same_bits(
    write_tiny: WriteTiny, tmp_path: Path, fields: dict[str, object]
) -> None:
    source, target = write_tiny(**fields), tmp_path / "packed.iatt"
    pack_model(source, target)
    np.testing.assert_array_equal(logits(target), logits(source))


def test_packed_model_chats_without_its_source(tiny: LLM, packed_path: Path) -> None:
    messages = [{"role": "user", "content": "the one"}]
    packed = LLM.load(packed_path, threads=1)
    assert packed.chat(messages, max_new_tokens=8) == tiny.chat(messages, max_new_tokens=8)


def test_packing_again_changes_nothing(packed_path: Path, tmp_path: Path) -> None:
    pack_model(packed_path, tmp_path / "again.iatt")
    assert (tmp_path / "again.iatt").read_bytes() == packed_path.read_bytes()


def test_metadata_survives(tiny_path: Path, packed_path: Path) -> None:
    source, packed = open_model_file(tiny_path), IattFile(packed_path)
    assert list(packed.metadata) == [*source.metadata, DECODER_TEXT]
    for key, value in source.metadata.items():
        np.testing.assert_array_equal(packed.metadata[key], value)
        assert type(packed.metadata[key]) is type(value)
    packed.verify()


# borrowed memory --------------------------------------------------------------------------------
def test_weights_keep_the_mapping_alive(packed_path: Path) -> None:
    file = IattFile(packed_path)
    weights, content = file.packed(MATRIX, "w4g32a"), file._content
    mapping = content.obj
    expected = bytes(weights)
    del file
    content.release()
    with pytest.raises(BufferError):
        mapping.close()  # type: ignore[attr-defined]
    assert bytes(weights) == expected
    del weights
    mapping.close()  # type: ignore[attr-defined]


def test_borrowed_weights_are_checked() -> None:
    size = _core.PackedWeights.packed_bytes("w8g32", 8, 32)
    room = np.zeros(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    view = memoryview(room)
    _core.PackedWeights.from_packed("w8g32", 8, 32, view[start : start + size])
    cases = [
        ("w8g32", 8, 32, view[start + 1 : start + 1 + size], "1 bytes behind"),
        ("w8g32", 8, 32, view[start : start + size - 1], "271 bytes"),
        ("w8g32", 9, 32, view[start : start + size], "has 544"),
        ("w8g32", 8, 33, view[start : start + size], "multiple of 32"),
        ("w8g32", 0, 32, view[:0], "expected 1 to"),
        ("w8g32", 2**63, 2**63, view, "expected 1 to"),
        ("w8g32", 8, 32, view[start : start + size : 2], "contiguous"),
        ("w8g32", 8, 32, view[: 4 * 64].cast("I"), "4-byte items"),
        ("w5g32", 8, 32, view, "w5g32"),
    ]
    for format_, rows, columns, data, words in cases:
        with pytest.raises(ValueError, match=words):
            _core.PackedWeights.from_packed(format_, rows, columns, data)  # type: ignore[arg-type]


# writing ----------------------------------------------------------------------------------------
def test_an_existing_file_stays(tiny_path: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.iatt"
    target.write_bytes(b"precious")
    with pytest.raises(FileExistsError, match="--force"):
        pack_model(tiny_path, target)
    assert target.read_bytes() == b"precious"
    pack_model(tiny_path, target, force=True)
    IattFile(target).verify()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interrupted_write_leaves_nothing(
    tiny_path: Path, tmp_path: Path, error: type[BaseException]
) -> None:
    def interrupt(done: int, total: int, name: str) -> None:
        if done == 5:
            raise error

    with pytest.raises(error):
        pack_model(tiny_path, tmp_path / "out.iatt", progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_replaced_file_can_still_be_in_use(
    packed_path: Path, tiny_path: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out.iatt"
    pack_model(packed_path, target)
    llm = LLM.load(target, threads=1)
    pack_model(target, target, force=True)
    assert llm.generate("the", max_new_tokens=4)


def test_not_finite_metadata_cannot_be_packed(write_tiny: WriteTiny, tmp_path: Path) -> None:
    source = write_tiny(metadata={"odd": float("nan")})
    with pytest.raises(ModelFileError, match="metadata"):
        pack_model(source, tmp_path / "out.iatt")
    assert list(tmp_path.iterdir()) == [source]
