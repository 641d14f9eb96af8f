"""SmolLM2-135M-Instruct against transformers in float32 (scripts/make_smollm2_golden.py)."""

from pathlib import Path

import numpy as np
import pytest
import smollm2_core
from numpy.typing import NDArray

from intattention import LLM, _core

MAX_MEAN_KL = 0.02  # nats, W4A8, int8 KV and index softmax together; measured 0.0033
MIN_TOP1 = 0.95  # measured 63 of 64
MAX_PPL_CHANGE = 0.015  # measured 23.683 against 23.609, 0.3 %
ANSWER_TOKENS = 16
TEXT = Path(__file__).parent / "data" / "wikitext2_test_prefix.txt"


@pytest.fixture(scope="module")
def decoder() -> _core.Decoder:
    return smollm2_core.build(threads=2)


@pytest.fixture(scope="module")
def golden() -> dict[str, NDArray]:
    return smollm2_core.golden()


def forward(decoder: _core.Decoder, ids: NDArray, chunk: int = 4096) -> NDArray[np.float32]:
    cache = decoder.new_cache(len(ids))
    ids = np.ascontiguousarray(ids, np.int32)
    parts = [decoder.forward(ids[i : i + chunk], cache, "all") for i in range(0, len(ids), chunk)]
    return np.concatenate(parts)


def test_close_to_the_golden_logits(decoder: _core.Decoder, golden: dict[str, NDArray]) -> None:
    """KL over the golden's top 1,024 tokens and the rest as one."""
    ours = smollm2_core.log_softmax(forward(decoder, golden["ids"]))
    top = golden["top_ids"].astype(np.int64)
    log_p = np.concatenate(
        [golden["top_logprobs"], golden["rest_logprob"][:, None]], axis=1
    ).astype(np.float64)
    rest = ours.copy()
    np.put_along_axis(rest, top, -np.inf, 1)
    log_q = np.concatenate(
        [np.take_along_axis(ours, top, 1), np.log(np.exp(rest).sum(1, keepdims=True))], axis=1
    )
    kl = (np.exp(log_p) * (log_p - log_q)).sum(axis=1)
    agreement = (ours.argmax(axis=1) == golden["top1"]).mean()
    assert kl.mean() <= MAX_MEAN_KL
    assert agreement >= MIN_TOP1


@pytest.mark.slow
def test_perplexity(decoder: _core.Decoder, golden: dict[str, NDArray]) -> None:
    """The first 8 windows of 1,024 tokens of WikiText-2 test."""
    nll = []
    for window in golden["wikitext_ids"].astype(np.int32).reshape(8, 1024):
        log_probs = smollm2_core.log_softmax(forward(decoder, window)[:-1])
        nll.append(-log_probs[np.arange(1023), window[1:]].mean())
    ppl, expected = float(np.exp(np.mean(nll))), float(golden["ppl"])
    assert abs(ppl / expected - 1) <= MAX_PPL_CHANGE, f"{ppl} against {expected}"


def greedy(decoder: _core.Decoder, ids: NDArray, count: int) -> list[int]:
    cache = decoder.new_cache(len(ids) + count)
    ids = ids.astype(np.int32)
    answer: list[int] = []
    for _ in range(count):
        ids = decoder.forward(ids, cache).argmax(axis=1).astype(np.int32)
        answer.append(int(ids[0]))
    return answer


def test_greedy_answer(decoder: _core.Decoder, golden: dict[str, NDArray]) -> None:
    """'Name the capital of France.' through the chat template."""
    answer = greedy(decoder, golden["chat_ids"], ANSWER_TOKENS)
    assert int(golden["chat_expected_id"]) in answer


def test_llm_is_the_same_model(decoder: _core.Decoder, golden: dict[str, NDArray]) -> None:
    """LLM.load: transformers' token ids, and the answer of the independent loader above."""
    llm = LLM.load(smollm2_core.gguf_path(), threads=2)
    encode = llm.tokenizer.encode
    assert encode(str(golden["prompt"]), add_bos=False)[:64] == golden["ids"].tolist()
    text = TEXT.read_text(encoding="utf-8")
    assert encode(text, add_bos=False)[:8192] == golden["wikitext_ids"].tolist()
    question = {"role": "user", "content": "Name the capital of France."}
    answer = llm.chat([question], max_new_tokens=ANSWER_TOKENS)
    assert "Paris" in answer
    expected = greedy(decoder, golden["chat_ids"], llm.last_stats.generated_tokens)
    assert answer == llm.tokenizer.decode(expected)


def test_threads_chunks_and_tables_do_not_matter(
    decoder: _core.Decoder, golden: dict[str, NDArray]
) -> None:
    ids = golden["wikitext_ids"][:300].astype(np.int32)
    former = _core.active_isa()
    expected = forward(smollm2_core.build(threads=1), ids)
    for chunk in (300, 77, 256):
        np.testing.assert_array_equal(forward(decoder, ids, chunk), expected)
    try:
        for isa in _core.available_isas():
            _core.use_isa(isa)
            logits = forward(smollm2_core.build(threads=2), ids[:40])
            np.testing.assert_array_equal(logits, expected[:40])
    finally:
        _core.use_isa(former)
