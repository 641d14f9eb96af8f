"""Log-likelihoods of continuations; what prompts share is computed once."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from intattention.dtypes import F32, F64, S32, S64
from intattention.eval.perplexity import CHUNK, log_softmax
from intattention.session import AnyDecoder

Ids = tuple[int, ...]
Pair = tuple[Sequence[int], Sequence[int]]
"""Token ids of a prompt and of its continuation."""


class Likelihood(NamedTuple):
    """ln p(continuation | prompt), and whether greedy decoding would have given it."""

    logprob: float
    greedy: bool


def loglikelihoods(
    decoder: AnyDecoder,
    pairs: Sequence[Pair],
    context: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[Likelihood]:
    """One per pair, in their order; ``progress(done, total)`` in pairs.

    Sequences are computed in the order of their ids, so that a beginning which several share is
    computed once, whatever the order of the pairs, and equal sequences (continuations that differ
    in their last token) are one. Of a sequence longer than ``context`` tokens the prompt's
    beginning is left out.

    ValueError: an empty prompt or continuation, or a continuation of more than ``context`` tokens.
    """
    wanted: dict[Ids, list[int]] = {}
    for index, pair in enumerate(pairs):
        wanted.setdefault(_inputs(pair, context), []).append(index)
    found: dict[int, Likelihood] = {}
    prefixes = _Prefixes(decoder, context)
    for ids in sorted(wanted):
        answers = {index: np.array(pairs[index][1], np.int64) for index in wanted[ids]}
        found |= dict.fromkeys(answers, Likelihood(0.0, True))
        longest = max(map(len, answers.values()))
        for start, logits in prefixes.logits(ids, len(ids) - longest):
            log_p = log_softmax(logits)
            for index, answer in answers.items():
                before, more = found[index], _part(log_p, answer, start - len(ids) + len(answer))
                found[index] = Likelihood(
                    before.logprob + more.logprob, before.greedy and more.greedy
                )
        if progress is not None:
            progress(len(found), len(pairs))
    return [found[index] for index in range(len(pairs))]


def _inputs(pair: Pair, context: int) -> Ids:
    """What the decoder reads: all but the last token, cut at the front."""
    prompt, continuation = pair
    if not prompt or not continuation:
        raise ValueError(
            f"a prompt of {len(prompt)} and a continuation of {len(continuation)} tokens, "
            "expected at least one each"
        )
    if len(continuation) > context:
        raise ValueError(
            f"the continuation has {len(continuation)} tokens, the context holds {context}"
        )
    return (*prompt, *continuation)[:-1][-context:]


class _Prefixes:
    """A decoder whose cache keeps what one sequence shares with the next."""

    def __init__(self, decoder: AnyDecoder, context: int) -> None:
        self._decoder = decoder
        self._cache = decoder.new_cache(context)
        self._held: Ids = ()

    def logits(self, ids: Ids, first: int) -> Iterator[tuple[int, F32]]:
        """(position, logits ``[CHUNK or fewer, vocab]`` from there on) of ids[first:]."""
        limit = min(len(self._held), len(self._cache), first)
        shared = next((i for i in range(limit) if self._held[i] != ids[i]), limit)
        self._cache.truncate(shared)
        self._held = ids
        for _, chunk in _chunks(ids, shared, first):
            self._decoder.forward(chunk, self._cache, "none")
        for start, chunk in _chunks(ids, first, len(ids)):
            yield start, self._decoder.forward(chunk, self._cache, "all")


def _chunks(ids: Ids, begin: int, end: int) -> Iterator[tuple[int, S32]]:
    for start in range(begin, end, CHUNK):
        yield start, np.array(ids[start : min(start + CHUNK, end)], np.int32)


def _part(log_p: F64, answer: S64, at: int) -> Likelihood:
    """Of the tokens of ``answer`` that the rows of ``log_p`` predict; row 0 predicts token at."""
    rows = np.arange(max(0, -at), min(len(log_p), len(answer) - at))
    tokens = answer[at + rows]
    chosen = log_p[rows, tokens]
    return Likelihood(float(chosen.sum()), bool((log_p[rows].argmax(axis=1) == tokens).all()))
