"""Sampling: exact candidate sets, measured distributions, checked parameters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from intattention.sampling import Sampler, SamplingParams, candidates

LOGITS = np.log(np.array([0.05, 0.5, 0.15, 0.3], np.float32))
DRAWS = 20_000
MAX_SIGMAS = 4.5  # of a binomial share; one in 150,000 by chance
logit_arrays = arrays(np.float32, st.integers(1, 50), elements=st.floats(-30, 30, width=32))


def shares(params: SamplingParams, logits: np.ndarray = LOGITS) -> np.ndarray:
    sampler = Sampler(params)
    draws = [sampler.choose(logits) for _ in range(DRAWS)]
    return np.bincount(draws, minlength=logits.size) / DRAWS


def kept(**params: float) -> list[int]:
    ids, _ = candidates(LOGITS, SamplingParams(**{"temperature": 1.0, **params}))  # type: ignore[arg-type]
    return sorted(ids.tolist(), key=lambda i: -LOGITS[i])


def test_greedy_takes_the_lowest_id_on_ties() -> None:
    assert Sampler(SamplingParams()).choose(np.array([0, 3, 1, 3], np.float32)) == 1


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_distribution_follows_the_temperature(temperature: float) -> None:
    expected = np.exp(LOGITS.astype(np.float64) / temperature)
    expected /= expected.sum()
    error = np.abs(shares(SamplingParams(temperature=temperature, seed=1)) - expected)
    assert (error < MAX_SIGMAS * np.sqrt(expected * (1 - expected) / DRAWS)).all()


def test_distribution_after_cuts_is_renormalised() -> None:
    measured = shares(SamplingParams(temperature=1.0, top_k=2, seed=2))
    expected = np.array([0, 0.625, 0, 0.375])
    assert (np.abs(measured - expected) <= MAX_SIGMAS * np.sqrt(0.25 / DRAWS)).all()
    assert measured[[0, 2]].sum() == 0


def test_cuts() -> None:
    assert kept() == [1, 3, 2, 0]
    assert kept(top_k=3) == [1, 3, 2]
    assert kept(top_k=100) == [1, 3, 2, 0]
    assert kept(top_p=0.5) == [1]
    assert kept(top_p=0.51) == [1, 3]
    assert kept(top_p=0.9) == [1, 3, 2]
    assert kept(min_p=0.25) == [1, 3, 2]
    assert kept(min_p=1.0) == [1]
    assert kept(top_k=3, top_p=0.8) == [1, 3]  # 0.5 / 0.95 + 0.3 / 0.95 = 0.84


@given(logit_arrays, st.floats(0.1, 3), st.integers(0, 60), st.floats(0.01, 1), st.floats(0, 1))
def test_cuts_equal_the_plain_algorithm(
    logits: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    params = SamplingParams(temperature, top_p, top_k, min_p)
    ids, p = candidates(logits, params)
    likely_first = np.argsort(-logits[ids], kind="stable")
    ids, p = ids[likely_first], p[likely_first]
    order = np.argsort(-logits, kind="stable")
    order = order[: top_k or None]
    full = np.exp((logits[order].astype(np.float64) - logits.max()) / temperature)
    full /= full.sum()
    before = np.concatenate([[0], np.cumsum(full)[:-1]])
    keep = (before < top_p) if top_p < 1 else np.ones(order.size, bool)
    keep &= full >= min_p * full[0]
    # rounding decides about tokens that are exactly at an edge
    assert abs(int(keep.sum()) - ids.size) <= 1
    assert ids.size >= 1
    np.testing.assert_allclose(p, full[: ids.size], rtol=1e-6, atol=1e-12)
    # logits that differ by less than exp can tell may swap places
    np.testing.assert_allclose(logits[ids], logits[order[: ids.size]], atol=1e-6)


def test_repetition_penalty() -> None:
    logits = np.array([2.0, 1.9, -1.0], np.float32)
    sampler = Sampler(SamplingParams(repetition_penalty=1.2), seen=[2])
    assert [sampler.choose(logits) for _ in range(3)] == [0, 1, 0]
    np.testing.assert_array_equal(logits, np.array([2.0, 1.9, -1.0], np.float32))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("penalty", [1e-6, 1e6])
def test_a_penalised_logit_stays_finite(penalty: float, temperature: float) -> None:
    """Largest floats past which there is only infinity. Found by fuzz_c_api."""
    big = np.finfo(np.float32).max
    params = SamplingParams(temperature, repetition_penalty=penalty, seed=1)

    def choose(*logits: float, seen: int = 0) -> int:
        return Sampler(params, seen=[seen]).choose(np.array(logits, np.float32))

    assert choose(1e33, 1e32) == (0 if penalty < 1 else 1)
    assert choose(big, -np.inf) == 0
    assert choose(-np.inf, -big, seen=1) == 1  # the only token that may be chosen at all
    assert choose(-np.inf, -big, seen=0) == 1
    assert choose(-1e33, -1e34) == (0 if penalty < 1 else 1)


def test_seed_repeats_and_differs() -> None:
    def draw(seed: int | None) -> list[int]:
        sampler = Sampler(SamplingParams(temperature=1.0, seed=seed))
        return [sampler.choose(LOGITS) for _ in range(50)]

    assert draw(7) == draw(7)
    assert draw(7) != draw(8)
    assert draw(None) != draw(None)


def test_the_generator_is_fixed() -> None:
    """std::mt19937_64(5489) draws 14514284786278117030 and 4620546740167642908 first."""
    logits = np.zeros(1 << 12, np.float32)
    sampler = Sampler(SamplingParams(temperature=1.0, seed=5489))
    expected = [draw >> 52 for draw in (14514284786278117030, 4620546740167642908)]
    assert [sampler.choose(logits) for _ in expected] == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("temperature", value) for value in (float("nan"), float("inf"), -0.1, "1", None, True)),
        *(("top_p", value) for value in (float("nan"), 0.0, -1.0, 1.01)),
        *(("min_p", value) for value in (float("nan"), -0.1, 1.1)),
        *(("repetition_penalty", value) for value in (float("nan"), 0.0, -1.0, 9e-7, 1.1e6)),
        *(("top_k", value) for value in (-1, 1.5, float("nan"))),
        *(("seed", value) for value in (-1, 0.5, 2**64)),
    ],
)
def test_bad_parameters_are_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} is"):
        SamplingParams(**{name: value})  # type: ignore[arg-type]
