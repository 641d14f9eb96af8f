"""From logits to the next token."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from intattention import _core
from intattention.dtypes import F32, F64

MAX_UINT64 = (1 << 64) - 1


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen; ValueError with the value if one is out of range.

    temperature: 0 takes the most likely token (the lowest id on ties), else logits are divided by
    it. top_k: keep the k most likely tokens (0: all). top_p: keep the fewest tokens whose
    probabilities add up to top_p. min_p: drop tokens less likely than min_p times the best.
    repetition_penalty: positive logits of tokens already seen are divided by it, negative ones
    multiplied, at most to the largest float (1e-6 to 1e6; 1: off). seed: None draws a fresh one.
    Applied in the order repetition_penalty, temperature, top_k, top_p, min_p, as transformers does.
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
        _check_number("repetition_penalty", self.repetition_penalty, 1e-6, 1e6)
        _check_integer("top_k", self.top_k)
        if self.seed is not None:
            _check_integer("seed", self.seed)
            if self.seed > MAX_UINT64:
                raise ValueError(f"seed is {self.seed}, expected at most {MAX_UINT64}")


def _check_number(name: str, value: object, low: float, high: float, zero: bool = True) -> None:
    number = isinstance(value, (int, float, np.floating)) and not isinstance(value, bool)
    if not number or not low <= value <= high or (value == 0 and not zero):  # type: ignore[operator]
        edge = "" if zero else ", not 0"  # NaN fails every comparison
        raise ValueError(f"{name} is {value!r}, expected a number from {low:g} to {high:g}{edge}")


def _check_integer(name: str, value: object) -> None:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} is {value!r}, expected an integer >= 0")


class Sampler:
    """Chooses tokens for one text; remembers what it has seen for the repetition penalty.

    One seed gives the same tokens on every machine, and through the C API.
    """

    def __init__(self, params: SamplingParams, seen: Iterable[int] = ()) -> None:
        self.params = params
        self._core = _core_sampler(params)
        for token in seen:
            self._core.see(token)

    def choose(self, logits: F32) -> int:
        """The next token id, given float32 logits ``[vocab]`` (not modified).

        Logits of -inf are never chosen; one at least must be finite.
        """
        return self._core.choose(logits)


def candidates(logits: F32, params: SamplingParams) -> tuple[NDArray[np.int32], F64]:
    """Ids that may be chosen and their probabilities, not renormalised after the cuts.

    In order of id; most likely first if top_p cuts. Needs temperature > 0.
    """
    return _core_sampler(params).candidates(logits)


def _core_sampler(params: SamplingParams) -> _core.Sampler:
    return _core.Sampler(
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=min(params.top_k, MAX_UINT64),
        min_p=params.min_p,
        repetition_penalty=params.repetition_penalty,
        seed=secrets.randbits(64) if params.seed is None else params.seed,
    )
