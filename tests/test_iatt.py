"""Packed model files: the same bits as their source, borrowed memory, whole files or none."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_hf
import tiny_model
import tokenizer_files
from gguf.constants import GGMLQuantizationType as Type
from tokenizers import Tokenizer

from intattention import LLM, _core, models
from intattention.errors import ModelFileError
from intattention.framed_file import PRELUDE_BYTES, aligned
from intattention.iatt_file import IattFile
from intattention.iatt_header import FIELDS, FRAME, encode_header
from intattention.model_file import open_model_file
from intattention.models.description import DECODER_TEXT
from intattention.pack import pack_model
from intattention.tokenizer import read_vocabulary

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
    """The tokenizer's has become the files that a host without Python reads."""
    source, packed = open_model_file(tiny_path), IattFile(packed_path)
    kept = [key for key in source.metadata if not key.startswith("tokenizer.")]
    assert list(packed.metadata)[: len(kept)] == kept
    assert sorted(set(packed.metadata) - set(kept)) == [
        "chat_template.jinja", "generation_config.json", DECODER_TEXT, "tokenizer.json",
        "tokenizer_config.json",
    ]  # fmt: skip
    for key in kept:
        np.testing.assert_array_equal(packed.metadata[key], source.metadata[key])
        assert type(packed.metadata[key]) is type(source.metadata[key])
    packed.verify()


# the tokenizer ----------------------------------------------------------------------------------
VOCABULARY = ("tokens", "spelling", "control", "special", "add_bos", "end_ids", "chat_template")
USER_DEFINED = {"tokenizer.ggml.token_type": [*tiny_model.vocabulary()[1][:-1], 4]}


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"tokenizer.ggml.add_bos_token": True},
        {"tokenizer.ggml.pre": "llama-bpe"},
        {"tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.eot_token_id": 0},
        {"tokenizer.chat_template": None, "tokenizer.ggml.eos_token_id": None},
        USER_DEFINED,
        tokenizer_files.sentencepiece_metadata(),
        {**tokenizer_files.sentencepiece_metadata(), "tokenizer.ggml.add_space_prefix": False},
    ],
    ids=range(8),
)
def test_the_vocabulary_of_a_gguf_file_survives(
    write_tiny: WriteTiny, tmp_path: Path, metadata: dict[str, object]
) -> None:
    source, target = write_tiny(metadata=metadata), tmp_path / "packed.iatt"
    pack_model(source, target)
    ours, theirs = read_vocabulary(IattFile(target)), read_vocabulary(open_model_file(source))
    for field in VOCABULARY:
        assert getattr(ours, field) == getattr(theirs, field), field
    assert ours.control | ours.literal == theirs.control | theirs.literal
    for text in tokenizer_files.TORTURE:
        for add_bos in (False, True):
            encoded = [v.tokenizer.encode(text, add_special_tokens=add_bos) for v in (ours, theirs)]
            assert encoded[0].ids == encoded[1].ids
        assert ours.tokenizer.decode(encoded[0].ids) == theirs.tokenizer.decode(encoded[1].ids)


def test_a_host_finds_ids_and_template(write_tiny: WriteTiny, tmp_path: Path) -> None:
    source = write_tiny(metadata={"tokenizer.ggml.add_bos_token": True})
    target = tmp_path / "packed.iatt"
    pack_model(source, target)
    texts, llm = IattFile(target).metadata, LLM.load(source, threads=1)
    ids = json.loads(texts["generation_config.json"])
    assert (ids["bos_token_id"], ids["eos_token_id"]) == (1, sorted(llm.tokenizer.end_ids))
    assert texts["chat_template.jinja"] == tiny_model.CHAT_TEMPLATE
    content = Tokenizer.from_str(texts["tokenizer.json"])
    assert content.encode("the one").ids == llm.tokenizer.encode("the one")
    assert content.decode(content.encode("the one").ids) == "the one"


def test_the_texts_of_a_folder_survive(tmp_path: Path) -> None:
    """To the byte, but that all ends are in one place, and the template too."""
    written = {
        "tokenizer_config.json": json.dumps(
            {"bos_token": "<s>", "eos_token": "</s>", "chat_template": tiny_hf.CHAT_TEMPLATE}
        ),
        "generation_config.json": '{"eos_token_id": 7, "temperature": 0.6}',
    }
    folder = tiny_hf.write(tmp_path / "folder", tiny_hf.config("qwen2"), texts=written)
    pack_model(folder, tmp_path / "packed.iatt")
    source, packed = open_model_file(folder), IattFile(tmp_path / "packed.iatt")
    assert json.loads(packed.metadata["generation_config.json"]) == {
        "bos_token_id": 1, "eos_token_id": [2, 3, 7], "temperature": 0.6,
    }  # fmt: skip
    assert packed.metadata["chat_template.jinja"] == tiny_hf.CHAT_TEMPLATE
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        assert packed.metadata[name] == source.metadata[name]
    pack_model(tmp_path / "packed.iatt", tmp_path / "again.iatt")
    assert (tmp_path / "again.iatt").read_bytes() == (tmp_path / "packed.iatt").read_bytes()


def test_files_of_version_1_are_read(tiny_path: Path, packed_path: Path, tmp_path: Path) -> None:
    """They have no sections; the tokenizer is in the metadata."""
    old, content = tmp_path / "old.iatt", memoryview(packed_path.read_bytes())
    tensors = IattFile(packed_path)._records.values()
    offset = aligned(max(t.offset + t.nbytes for t in tensors))
    header = json.loads(encode_header(open_model_file(tiny_path).metadata, tensors, []))
    del header["sections"]
    data = json.dumps(header).encode()
    prelude = replace(FRAME, fields={1: FIELDS[1]}).prelude(offset, data)
    old.write_bytes(prelude + content[PRELUDE_BYTES:offset] + data)
    assert "IATT 1" in IattFile(old).format
    loaded = [LLM.load(path, threads=1) for path in (old, packed_path)]
    assert loaded[0].generate("the one") == loaded[1].generate("the one")
    pack_model(old, tmp_path / "new.iatt")
    assert (tmp_path / "new.iatt").read_bytes() == packed_path.read_bytes()


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
