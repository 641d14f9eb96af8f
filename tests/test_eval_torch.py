"""intattention eval ppl --against float, on SmolLM2."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import smollm2_core

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

TEXT = Path(__file__).parent / "data" / "wikitext2_test_prefix.txt"
MAX_CHANGE = 0.02  # measured 0.0024; W4A8 linears included
MAX_KL, MAX_P999 = 0.02, 0.5  # measured 0.0035, 0.087
MIN_TOP1 = 0.9  # measured 95.3 %


def test_against_float(run: Callable[..., tuple[int, str, str]]) -> None:
    model = smollm2_core.gguf_path()
    arguments = ("eval", "ppl", model, "--text", TEXT, "--ctx", 256, "--windows", 2)
    status, out, _ = run(*arguments, "--against", "float", "--json")
    assert status == 0
    result = json.loads(out)
    assert abs(result["ppl"] / result["ppl_against"] - 1) < MAX_CHANGE
    assert 0 < result["kl_mean"] < MAX_KL
    assert result["kl_mean"] < result["kl_p999"] < MAX_P999
    assert MIN_TOP1 < result["top1_agreement"] < 1
    assert (result["tokens"], result["nan_count"]) == (510, 0)
