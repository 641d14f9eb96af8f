"""Log-likelihoods of continuations against one forward per pair, whatever prefixes are shared."""

import numpy as np
import pytest
from reference.decoder import Config, random_model
from small_decoder import build

from intattention import _core
from intattention.eval.loglikelihood import Pair, loglikelihoods
from intattention.eval.perplexity import log_softmax


@pytest.fixture(scope="module")
def decoder() -> _core.Decoder:
    return build(random_model(Config(), ("w8g32",)))


class Counted:
    """A decoder that counts the tokens it computes."""

    def __init__(self, decoder: _core.Decoder) -> None:
        self.decoder, self.tokens, self.calls = decoder, 0, 0

    def new_cache(self, length: int) -> _core.KVCache:
        return self.decoder.new_cache(length)

    def forward(self, ids: np.ndarray, cache: _core.KVCache, rows: str) -> np.ndarray:
        self.tokens += len(ids)
        self.calls += 1
        return self.decoder.forward(ids, cache, rows)  # type: ignore[arg-type]


def alone(decoder: _core.Decoder, pair: Pair) -> tuple[float, bool]:
    prompt, continuation = pair
    ids = np.array([*prompt, *continuation], np.int32)
    log_p = log_softmax(decoder.forward(ids, decoder.new_cache(len(ids)), "all"))
    rows = np.arange(len(prompt) - 1, len(ids) - 1)
    greedy = (log_p[rows].argmax(axis=1) == continuation).all()
    return float(log_p[rows, continuation].sum()), bool(greedy)


def ids(seed: int, count: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 128, count).tolist()


def greedy_answer(decoder: _core.Decoder, prompt: list[int], count: int) -> list[int]:
    cache, step, answer = decoder.new_cache(400), np.array(prompt, np.int32), []
    for _ in range(count):
        step = decoder.forward(step, cache).argmax(axis=1).astype(np.int32)
        answer.append(int(step[0]))
    return answer


def test_equals_each_alone(decoder: _core.Decoder) -> None:
    """Shared prompts, prompts that are beginnings of others, equal pairs, one-token answers."""
    shot, question = ids(0, 40), ids(1, 9)
    pairs: list[Pair] = [
        (shot + question, ids(2, 5)),
        (shot + question, ids(3, 1)),
        (shot + question, ids(4, 1)),
        (shot, question),
        (shot + question, ids(2, 5)),
        (ids(5, 1), ids(6, 300)),  # more than a chunk
        (ids(7, 300), ids(8, 2)),
        (shot + question, greedy_answer(decoder, shot + question, 4)),
    ]
    found = loglikelihoods(decoder, pairs, 400)
    for pair, likelihood in zip(pairs, found, strict=True):
        logprob, greedy = alone(decoder, pair)
        assert likelihood.logprob == pytest.approx(logprob, abs=1e-9)
        assert likelihood.greedy == greedy
    assert [x.greedy for x in found] == [False] * 7 + [True]


def test_shared_beginnings_are_computed_once(decoder: _core.Decoder) -> None:
    """Four questions with four answers each, in any order: the shots once, a question once."""
    shots = ids(0, 100)
    pairs = [(shots + ids(1 + q, 10), ids(10 * q + a, 3)) for a in range(1, 5) for q in range(4)]
    counted = Counted(decoder)
    found = loglikelihoods(counted, pairs, 400)  # type: ignore[arg-type]
    assert found == [loglikelihoods(decoder, [pair], 400)[0] for pair in pairs]
    # an answer of 3 takes the question's last token and two of its own
    assert counted.tokens == 100 + 4 * 9 + 16 * 3


def test_equal_inputs_are_one(decoder: _core.Decoder) -> None:
    counted = Counted(decoder)
    prompt = ids(0, 30)
    loglikelihoods(counted, [(prompt, [i]) for i in range(9)], 400)  # type: ignore[arg-type]
    assert (counted.tokens, counted.calls) == (30, 2)


def test_a_long_prompt_loses_its_beginning(decoder: _core.Decoder) -> None:
    prompt, answer = ids(0, 60), ids(1, 4)
    cut = loglikelihoods(decoder, [(prompt, answer)], 20)
    assert cut == loglikelihoods(decoder, [(prompt[-17:], answer)], 20)


def test_refuses(decoder: _core.Decoder) -> None:
    for pair, message in (
        (([], [1]), "a prompt of 0 and"),
        (([1], []), "a continuation of 0 tokens"),
        (([1], ids(0, 21)), "has 21 tokens, the context holds 20"),
    ):
        with pytest.raises(ValueError, match=message):
            loglikelihoods(decoder, [pair], 20)


def test_progress(decoder: _core.Decoder) -> None:
    calls = []
    pairs = [([1, 2], [3]), ([1, 2], [4]), ([5], [6])]
    loglikelihoods(decoder, pairs, 20, lambda done, total: calls.append((done, total)))
    assert calls == [(2, 3), (3, 3)]
