"""intattention eval ppl --against float, on SmolLM2."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import smollm2_core
import tiny_hf

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

TEXT = Path(__file__).parent / "data" / "wikitext2_test_prefix.txt"
MAX_CHANGE = 0.02  # measured 0.0012; W4A8 linears included
MAX_KL = 0.02  # measured 0.0071, half of it one token near the start of a window
MIN_TOP1 = 0.9  # measured 95.9 %


def test_against_float(run: Callable[..., tuple[int, str, str]]) -> None:
    model = smollm2_core.gguf_path()
    arguments = ("eval", "ppl", model, "--text", TEXT, "--ctx", 256, "--windows", 2)
    status, out, _ = run(*arguments, "--against", "float", "--json")
    assert status == 0
    result = json.loads(out)
    assert abs(result["ppl"] / result["ppl_against"] - 1) < MAX_CHANGE
    assert 0 < result["kl_mean"] < MAX_KL
    assert result["kl_p999"] > result["kl_mean"]
    assert MIN_TOP1 < result["top1_agreement"] < 1
    assert (result["tokens"], result["nan_count"]) == (510, 0)


def test_folder_against_float(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    """The text is longer than a chunk, so the two models' chunks must stay in step."""
    folder = tiny_hf.write(tmp_path / "folder", tiny_hf.config("qwen2"))
    arguments = ("eval", "ppl", folder, "--text", TEXT, "--ctx", 300, "--windows", 1)
    status, out, err = run(*arguments, "--against", "float", "--json")
    assert status == 0, err
    result = json.loads(out)
    assert result["tokens"] == 299
    assert abs(result["ppl"] / result["ppl_against"] - 1) < 0.1
    assert 0 < result["kl_mean"] < 0.1
