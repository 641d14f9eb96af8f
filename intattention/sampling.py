"""From logits to the next token."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from intattention.dtypes import F32, F64


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen; ValueError with the value if one is out of range.

    temperature: 0 takes the most likely token (the lowest id on ties), else logits are divided by
    it. top_k: keep the k most likely tokens (0: all). top_p: keep the fewest tokens whose
    probabilities add up to top_p. min_p: drop tokens less likely than min_p times the best.
    repetition_penalty: positive logits of tokens already seen are divided by it, negative ones
    multiplied (1: off). seed: None draws a fresh one. Applied in the order repetition_penalty,
    temperature, top_k, top_p, min_p, as transformers does.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        _check_number("temperature", self.temperature, 0, 1e6)
        _check_number("top_p", self.top_p, 0, 1, zero=False)
        _check_number("min_p", self.min_p, 0, 1)
        _check_number("repetition_penalty", self.repetition_penalty, 0, 1e6, zero=False)
        _check_integer("top_k", self.top_k)
        if self.seed is not None:
            _check_integer("seed", self.seed)


def _check_number(name: str, value: object, low: float, high: float, zero: bool = True) -> None:
    number = isinstance(value, (int, float, np.floating)) and not isinstance(value, bool)
    if not number or not low <= value <= high or (value == 0 and not zero):  # type: ignore[operator]
        edge = "" if zero else ", not 0"  # NaN fails every comparison
        raise ValueError(f"{name} is {value!r}, expected a number from {low:g} to {high:g}{edge}")


def _check_integer(name: str, value: object) -> None:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} is {value!r}, expected an integer >= 0")


class Sampler:
    """Chooses tokens for one text; remembers what it has seen for the repetition penalty."""

    def __init__(self, params: SamplingParams, seen: Iterable[int] = ()) -> None:
        self.params = params
        self._random = np.random.default_rng(params.seed)
        self._seen = set(seen)

    def choose(self, logits: F32) -> int:
        """The next token id, given float32 logits ``[vocab]`` (not modified).

        Logits of -inf are never chosen; one at least must be finite.
        """
        params = self.params
        if params.repetition_penalty != 1.0:
            logits = self._penalized(logits)
        if params.temperature == 0:
            token = int(np.argmax(logits))
        else:
            ids, p = candidates(logits, params)
            sums = np.cumsum(p)
            token = int(ids[np.searchsorted(sums, self._random.random() * sums[-1])])
        self._seen.add(token)
        return token

    def _penalized(self, logits: F32) -> F32:
        seen = np.fromiter(self._seen, np.intp, len(self._seen))
        logits = logits.copy()
        penalty = np.float32(self.params.repetition_penalty)
        chosen = logits[seen]
        logits[seen] = np.where(chosen > 0, chosen / penalty, chosen * penalty)
        return logits


def candidates(logits: F32, params: SamplingParams) -> tuple[NDArray[np.intp], F64]:
    """Ids that may be chosen and their probabilities, not renormalised after the cuts.

    In order of id; most likely first if top_p cuts. Needs temperature > 0.
    """
    p = np.exp((logits.astype(np.float64) - logits.max()) / params.temperature)  # the best has 1
    ids = np.flatnonzero(p)
    if 0 < params.top_k < ids.size:
        ids = np.sort(ids[np.argpartition(-p[ids], params.top_k - 1)[: params.top_k]])
    total = p[ids].sum()
    if params.min_p > 0:
        ids = ids[p[ids] >= params.min_p]
    if params.top_p < 1:
        # Sorting a whole vocabulary is slow. Tokens under this floor have less than 1 - top_p
        # together, so that none of them is needed.
        ids = ids[p[ids] >= total * (1 - params.top_p) / p.size]
        ids = ids[np.argsort(-p[ids], kind="stable")]
        ids = ids[: int(np.searchsorted(np.cumsum(p[ids]), params.top_p * total)) + 1]
    return ids, p[ids] / total
