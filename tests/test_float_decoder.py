"""The decoder in float32 around any attention: transformers' logits, the runtime's steps."""

from pathlib import Path

import numpy as np
import pytest
import tiny_hf
from test_families import error

from intattention import _core
from intattention.eval import float_decoder
from intattention.eval.float_decoder import FloatDecoder
from intattention.eval.opened_model import OpenedModel

GOLDEN = Path(__file__).parent / "data" / "families.npz"
# In standard deviations of the logits, all of it w8g32's rounding of random weights; 0.025 measured
# (the int8 runtime: 0.042).
W8_TOLERANCE = 0.03
W8_LARGEST = 0.25
HEAD_TOLERANCE = 1e-5  # of the logits' deviation: BLAS sums a product of fewer rows otherwise


def logits(model: FloatDecoder, ids: np.ndarray) -> np.ndarray:
    return np.concatenate(list(model.logits(ids)))


@pytest.mark.parametrize("case", tiny_hf.CASES)
def test_logits_of_transformers(tmp_path: Path, case: str) -> None:
    with np.load(GOLDEN) as data:
        expected = data[f"logits/{case}"]
    folder = tiny_hf.write(tmp_path, tiny_hf.config(case))
    opened = OpenedModel(folder, len(tiny_hf.IDS), _core.ThreadPool(1), "w8g32")
    mean, largest = error(logits(opened.float32("fp32"), tiny_hf.IDS), expected)
    assert mean <= W8_TOLERANCE
    assert largest <= W8_LARGEST


def test_huge_biases_are_balanced_as_in_the_runtime(tmp_path: Path) -> None:
    """Integer attention in here sees the same q and k as the runtime's own."""
    with np.load(GOLDEN) as data:
        expected = data["logits/large bias"]
    folder = tiny_hf.write(tmp_path, tiny_hf.LARGE_BIAS, tiny_hf.large_bias_weights())
    opened = OpenedModel(folder, len(tiny_hf.IDS), _core.ThreadPool(1), "w8g32")
    for softmax, tolerance in (("fp32", W8_TOLERANCE), ("index", 0.06)):
        mean, _ = error(logits(opened.float32(softmax), tiny_hf.IDS), expected)
        assert mean <= tolerance


@pytest.mark.parametrize("softmax", ["paper", "paper-floor", "quant_only"])
def test_scales_per_tensor_are_those_of_a_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, softmax: str
) -> None:
    """However many rows of logits come at a time, attention sees the whole window in one call."""
    folder = tiny_hf.write(tmp_path, tiny_hf.config("llama"))
    model = OpenedModel(folder, len(tiny_hf.IDS), _core.ThreadPool(1)).float32(softmax)
    whole = logits(model, tiny_hf.IDS)
    for chunk in (1, 7, len(tiny_hf.IDS) - 1):
        monkeypatch.setattr(float_decoder, "CHUNK", chunk)
        np.testing.assert_allclose(
            logits(model, tiny_hf.IDS), whole, rtol=0, atol=HEAD_TOLERANCE * whole.std()
        )


def test_refuses(tmp_path: Path) -> None:
    folder = tiny_hf.write(tmp_path, tiny_hf.config("llama"))
    opened = OpenedModel(folder, 100, _core.ThreadPool(1))
    with pytest.raises(ValueError, match=r"softmax is 'gelu', accepted: 'index', 'paper'"):
        opened.float32("gelu")
    with pytest.raises(_core.ContextOverflowError, match="513 tokens, the model's context is 512"):
        next(opened.float32("fp32").logits(np.zeros(513, np.int32)))
    with pytest.raises(ValueError, match="ctx is 513"):
        OpenedModel(folder, 513, _core.ThreadPool(1))
