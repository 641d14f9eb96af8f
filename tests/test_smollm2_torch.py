"""As test_smollm2_golden.py, with torch at hand: the full vocabulary, recomputed."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import smollm2_core

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

MAX_MEAN_KL = 0.02  # measured 0.0043
MIN_TOP1 = 0.95
GOLDEN_TOLERANCE = 2e-3  # log-probability; another torch version sums in another order
SCRIPT = Path(__file__).parents[1] / "scripts" / "make_smollm2_golden.py"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_smollm2_golden", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reference() -> Any:
    """Tokenizer, and log-probabilities [64, vocab] of transformers in float32."""
    golden_script = script()
    tokenizer, model = golden_script.load(smollm2_core.gguf_path())
    return tokenizer, golden_script.log_probs(model, smollm2_core.golden()["ids"].tolist())


def test_ids_are_the_tokenizers(reference: Any) -> None:
    golden = smollm2_core.golden()
    ids = reference[0](str(golden["prompt"]), add_special_tokens=False)["input_ids"]
    assert ids[:64] == golden["ids"].tolist()


def test_golden_matches_recomputation(reference: Any) -> None:
    golden = smollm2_core.golden()
    log_p = np.take_along_axis(reference[1], golden["top_ids"].astype(np.int64), 1)
    np.testing.assert_allclose(log_p, golden["top_logprobs"], atol=GOLDEN_TOLERANCE, rtol=0)


def test_close_over_the_full_vocabulary(reference: Any) -> None:
    log_p = reference[1]
    decoder = smollm2_core.build(threads=2)
    ids = smollm2_core.golden()["ids"].astype(np.int32)
    log_q = smollm2_core.log_softmax(decoder.forward(ids, decoder.new_cache(64), "all"))
    kl = (np.exp(log_p) * (log_p - log_q)).sum(axis=1)
    agreement = (log_p.argmax(axis=1) == log_q.argmax(axis=1)).mean()
    assert kl.mean() <= MAX_MEAN_KL
    assert agreement >= MIN_TOP1
