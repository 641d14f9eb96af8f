"""The decoder that C++ builds from a packed file equals the one that Python builds, bit by bit."""

from pathlib import Path

import numpy as np
import pytest
import tiny_hf

from intattention import LLM, _core, models
from intattention.iatt_file import IattFile
from intattention.pack import pack_model

LARGE_BIAS = "qwen2 with large biases"


def packed(tmp_path: Path, case: str) -> Path:
    if case == LARGE_BIAS:
        folder = tiny_hf.write(
            tmp_path / "folder", tiny_hf.LARGE_BIAS, tiny_hf.large_bias_weights()
        )
    else:
        folder = tiny_hf.write(tmp_path / "folder", tiny_hf.config(case))
    pack_model(folder, tmp_path / "packed.iatt")
    return tmp_path / "packed.iatt"


def logits(decoder: _core.Decoder, count: int) -> np.ndarray:
    return decoder.forward(tiny_hf.IDS[:count], decoder.new_cache(count), "all")


@pytest.mark.parametrize("case", [*tiny_hf.CASES, LARGE_BIAS])
def test_every_family_gives_the_same_bits(tmp_path: Path, case: str) -> None:
    path, pool = packed(tmp_path, case), _core.ThreadPool(1)
    checkpoint = IattFile(path)
    model = models.find(checkpoint)
    decoder, context, _, _ = _core.decoder_from_iatt(str(path), 0, pool)
    count = min(len(tiny_hf.IDS), context)
    expected = logits(model.build(checkpoint, pool), count)
    assert context == model.context
    np.testing.assert_array_equal(logits(decoder, count), expected)


def test_longrope_serves_both_of_its_ranges(tmp_path: Path) -> None:
    path, pool = packed(tmp_path, "qwen3 untied longrope"), _core.ThreadPool(1)
    checkpoint = IattFile(path)
    model = models.find(checkpoint)
    found = []
    for context in (model.rope.original_context, model.rope.original_context + 1):
        decoder, got, _, _ = _core.decoder_from_iatt(str(path), context, pool)
        expected = model.build(checkpoint, pool, context=context)
        np.testing.assert_array_equal(logits(decoder, 32), logits(expected, 32))
        assert got == context
        found.append(logits(decoder, 32))
    assert not np.array_equal(*found)


def test_dynamic_ntk_is_refused_beyond_its_training(tmp_path: Path) -> None:
    path = str(packed(tmp_path, "llama dynamic"))
    _core.decoder_from_iatt(path, 64, _core.ThreadPool(1))
    with pytest.raises(ValueError, match=r"context is 65, .* is packed for up to 64"):
        _core.decoder_from_iatt(path, 65, _core.ThreadPool(1))


def test_tokens_and_ends_are_the_tokenizers(packed_path: Path) -> None:
    tokenizer = LLM.load(packed_path, threads=1).tokenizer
    _, _, tokens, ends = _core.decoder_from_iatt(str(packed_path), 0, _core.ThreadPool(1))
    assert tokens == tokenizer.vocab_size
    assert ends == sorted(tokenizer.end_ids)
