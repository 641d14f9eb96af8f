"""--model intattention in lm_eval: tasks of our own, against the runtime called directly."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

lm_eval = pytest.importorskip("lm_eval", reason="lm_eval is not installed")

from lm_eval_tasks import FACTS, PROMPTS, PROSE, evaluate  # noqa: E402

from intattention import LLM  # noqa: E402
from intattention.eval.perplexity import log_softmax  # noqa: E402
from intattention.integrations.lm_eval import IntAttentionLM  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def results(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return evaluate(
        tmp_path_factory.mktemp("tasks"),
        model="intattention",
        model_args=f"pretrained={smollm2_path},max_length=64,threads=2",
    )


def score(llm: LLM, prompt: list[int], answer: list[int]) -> tuple[float, bool]:
    """One forward over the whole."""
    ids = np.array([*prompt, *answer], np.int32)
    log_p = log_softmax(llm.decoder.forward(ids, llm.decoder.new_cache(len(ids)), "all"))
    rows = np.arange(len(prompt) - 1, len(ids) - 1)
    greedy = bool((log_p[rows].argmax(axis=1) == answer).all())
    return float(log_p[rows, answer].sum()), greedy


def test_multiple_choice(results: dict[str, Any], smollm2: LLM) -> None:
    encode = smollm2.tokenizer.encode
    samples = {sample["doc_id"]: sample for sample in results["samples"]["facts"]}
    right = 0
    for i, doc in enumerate(FACTS):
        scores = []
        for choice, response in zip(doc["choices"], samples[i]["filtered_resps"], strict=True):
            prompt = encode(doc["question"])
            whole = encode(f"{doc['question']} {choice}")
            logprob, greedy = score(smollm2, prompt, whole[len(prompt) :])
            assert float(response[0]) == pytest.approx(logprob, abs=1e-6)
            assert str(response[1]) == str(greedy)
            scores.append(logprob)
        right += np.argmax(scores) == doc["label"]
    assert results["results"]["facts"]["acc,none"] == pytest.approx(right / len(FACTS))
    assert right > 1


def test_rolling(results: dict[str, Any], smollm2: LLM) -> None:
    """Windows of 64 tokens: each token once, after BOS or as many before it as there is room."""
    tokens = smollm2.tokenizer
    total, words = 0.0, 0
    for doc in PROSE:
        ids = tokens.encode(doc["text"], add_bos=False)
        row = [tokens.bos_id, *ids]
        total += score(smollm2, row[:1], row[1:65])[0]
        if len(ids) > 64:
            rest = len(ids) - 64
            assert rest <= 64
            window = row[-65:]
            total += score(smollm2, window[:-rest], window[-rest:])[0]
        words += len(doc["text"].split())
    expected = math.exp(-total / words)
    assert results["results"]["prose"]["word_perplexity,none"] == pytest.approx(expected, rel=1e-3)


def test_generate_until(results: dict[str, Any], smollm2: LLM) -> None:
    samples = {sample["doc_id"]: sample for sample in results["samples"]["days"]}
    for i, doc in enumerate(PROMPTS):
        expected = smollm2.generate(doc["question"], max_new_tokens=8, stop=[",", "."])
        assert samples[i]["resps"][0][0] == expected
    assert results["results"]["days"]["exact_match,none"] == 1


@pytest.fixture(scope="module")
def model(smollm2_path: Path) -> IntAttentionLM:
    return IntAttentionLM(str(smollm2_path), max_length=64, threads=2)


def instance(*arguments: Any) -> Any:
    return lm_eval.api.instance.Instance("generate_until", {}, arguments, 0)


def test_order_and_long_prompts(model: IntAttentionLM) -> None:
    """Answers in the order of the requests; a prompt that does not fit loses its beginning."""
    prompts = ["One, two, three, " * 20, "A", "One, two,"]
    options = {"until": ["\n"], "max_gen_toks": 4, "do_sample": False, "temperature": 0.7}
    together = model.generate_until([instance(x, options) for x in prompts], disable_tqdm=True)
    for prompt, text in zip(prompts, together, strict=True):
        assert model.generate_until([instance(prompt, options)], disable_tqdm=True) == [text]


def test_sampling_arrives(model: IntAttentionLM) -> None:
    def sample(**options: Any) -> str:
        return model.generate_until([instance("Once", {"max_gen_toks": 12} | options)], True)[0]

    assert sample(do_sample=True, seed=1) == sample(temperature=1.0, seed=1)
    assert sample(do_sample=True, seed=1) != sample()
    with pytest.raises(ValueError, match=r"generation_kwargs has num_beams, known: until"):
        sample(num_beams=2)


def test_chat_and_bos(model: IntAttentionLM, smollm2_path: Path) -> None:
    text = model.apply_chat_template([{"role": "user", "content": "Hi"}])
    assert "user\nHi<|im_end|>" in text
    assert text.endswith("assistant\n")
    ids = model.tok_encode("Hi")
    with_bos = IntAttentionLM(str(smollm2_path), max_length=64, add_bos_token=True)
    assert with_bos.tok_encode("Hi") == [with_bos.prefix_token_id, *ids]
    assert with_bos.tok_encode(with_bos._llm.tokenizer.decode([1], False)) == [1]
    assert with_bos.prefix_token_id == 1


def test_refuses_other_devices(smollm2_path: Path) -> None:
    with pytest.raises(ValueError, match="device is 'cuda'"):
        IntAttentionLM(str(smollm2_path), device="cuda")
