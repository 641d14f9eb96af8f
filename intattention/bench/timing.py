"""Interleaved repetitions until the medians settle."""

import math
import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

Key = TypeVar("Key", bound=Hashable)
Work = Callable[[], object]
Clock = Callable[[], float]
LEAST_LATE = 3  # rounds; one in three may be disturbed
SETTLE_S = 0.01  # before each work: another library's threads (OpenMP's) spin on after its turn
CONFIDENCE = 0.98  # half of a 95 % interval of a median, in units of sqrt(n) ranks


@dataclass(frozen=True)
class Policy:
    """How often to repeat: until the 95 % interval of every median is within +-``precision`` of
    it, at least ``least`` and at most ``most`` times; after ``seconds`` no new round begins, if
    there have been LEAST_LATE."""

    least: int = 5
    most: int = 40
    seconds: float = 8.0
    precision: float = 0.03

    @classmethod
    def exactly(cls, rounds: int) -> "Policy":
        return cls(rounds, rounds, math.inf, 0.0)


@dataclass
class Samples:
    """Seconds per call, in the order measured."""

    seconds: list[float] = field(default_factory=list)
    settled: bool = False

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def as_dict(self) -> dict[str, Any]:
        """As the ``time`` of a result's row (schema.json)."""
        low, high = quartiles(self.seconds)
        return {
            "median_s": self.median,
            "min_s": min(self.seconds),
            "max_s": max(self.seconds),
            "q1_s": low,
            "q3_s": high,
            "settled": self.settled,
            "samples_s": self.seconds,
        }


def measure(
    works: Mapping[Key, Work],
    policy: Policy,
    calls: Mapping[Key, int] | None = None,
    clock: Clock | None = None,
) -> dict[Key, Samples]:
    """Runs every work once a round; a work that makes several ``calls`` gets seconds per call.

    ``clock``: of the works, wall time by default; rounds always go by wall time.

    A KeyboardInterrupt passes through; the caller decides what becomes of earlier results.
    """
    clock = clock or time.perf_counter
    samples = {key: Samples() for key in works}
    begin = time.perf_counter()
    for done in range(policy.most):
        late = time.perf_counter() - begin > policy.seconds
        if done >= policy.least and all(s.settled for s in samples.values()):
            break
        if late and done >= LEAST_LATE:
            break
        for key, work in works.items():
            time.sleep(SETTLE_S)
            start = clock()
            work()
            seconds = clock() - start
            samples[key].seconds.append(seconds / (calls[key] if calls else 1))
            samples[key].settled = settled(samples[key].seconds, policy.precision)
    return samples


def settled(seconds: list[float], precision: float) -> bool:
    """Is the 95 % interval of the median (by ranks, distribution-free) within +-precision?"""
    ordered, n = sorted(seconds), len(seconds)
    low = max(0, math.floor(n / 2 - CONFIDENCE * math.sqrt(n)))
    high = min(n - 1, math.ceil(n / 2 + CONFIDENCE * math.sqrt(n)) - 1)
    return n > 1 and ordered[high] - ordered[low] <= 2 * precision * statistics.median(ordered)


def quartiles(values: list[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high
