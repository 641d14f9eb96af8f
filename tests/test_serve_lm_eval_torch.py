"""lm_eval's own API model (local-completions) against a running server: the numbers of
--model intattention.

The tokenizer is the one that transformers makes of the file.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval", reason="lm_eval is not installed")
for _package in ("aiohttp", "tenacity"):
    pytest.importorskip(_package, reason="lm_eval[api] is not installed")
pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from live_server import Live, live  # noqa: E402
from lm_eval_tasks import FACTS, PROMPTS, evaluate  # noqa: E402

from intattention import LLM  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

WINDOW = 64
# local-completions keeps one token for the answer, and one more in texts of several windows.
API_LENGTH = WINDOW + 2
MAX_LOGPROB_ERROR = 1e-8


@pytest.fixture(scope="module")
def server(smollm2: LLM) -> Iterator[Live]:
    with live(smollm2, memory_bytes=64 << 20, parallel=4) as served:
        yield served


@pytest.fixture(scope="module")
def tokenizer(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "model.gguf").symlink_to(smollm2_path)
    made = transformers.AutoTokenizer.from_pretrained(folder, gguf_file="model.gguf")
    made.save_pretrained(folder / "saved")
    return folder / "saved"


@pytest.fixture(scope="module")
def expected(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return evaluate(
        tmp_path_factory.mktemp("inside"),
        model="intattention",
        model_args=f"pretrained={smollm2_path},max_length={WINDOW},threads=2",
    )


@pytest.fixture(scope="module", params=["concurrent", "one by one", "lists"])
def results(
    request: pytest.FixtureRequest,
    server: Live,
    tokenizer: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    options = {"concurrent": {"num_concurrent": 4}, "lists": {"batch_size": 3}}
    return evaluate(
        tmp_path_factory.mktemp("api"),
        model="local-completions",
        model_args={
            "model": server.settings.model,
            "base_url": f"{server.url}/completions",
            "tokenizer": str(tokenizer),
            "max_length": API_LENGTH,
            "max_retries": 1,
            **options.get(request.param, {}),
        },
    )


def samples(results: dict[str, Any], task: str) -> list[Any]:
    return sorted(results["samples"][task], key=lambda sample: sample["doc_id"])


def test_log_likelihoods(results: dict[str, Any], expected: dict[str, Any]) -> None:
    theirs, ours = samples(results, "facts"), samples(expected, "facts")
    assert len(theirs) == len(ours) == len(FACTS)
    for a, b in zip(theirs, ours, strict=True):
        assert len(a["filtered_resps"]) == len(a["doc"]["choices"])
        for x, y in zip(a["filtered_resps"], b["filtered_resps"], strict=True):
            assert float(x[0]) == pytest.approx(float(y[0]), abs=MAX_LOGPROB_ERROR)
            assert str(x[1]) == str(y[1])  # greedy or not
    assert results["results"]["facts"]["acc,none"] == expected["results"]["facts"]["acc,none"]


def test_texts_of_several_windows(results: dict[str, Any], expected: dict[str, Any]) -> None:
    name = "word_perplexity,none"
    found = results["results"]["prose"][name]
    assert found == pytest.approx(expected["results"]["prose"][name], rel=MAX_LOGPROB_ERROR)


def test_generated_texts(results: dict[str, Any], expected: dict[str, Any]) -> None:
    theirs, ours = samples(results, "days"), samples(expected, "days")
    assert len(theirs) == len(ours) == len(PROMPTS)
    assert [a["resps"] for a in theirs] == [b["resps"] for b in ours]
    assert results["results"]["days"]["exact_match,none"] == 1
