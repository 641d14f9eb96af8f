"""Times, and where there is a meter, energy of the same works."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from intattention.bench.timing import Clock, Key, Policy, Samples, Work, measure
from intattention.energy import Recorder

IDLE_S = 3.0


@dataclass
class CallEnergy:
    """Of one call; measured over ``seconds`` in which ``calls`` were made back to back."""

    joules: float
    joules_above_idle: float
    watts: float
    seconds: float
    calls: int
    readings: int


@dataclass
class Measured:
    time: Samples
    energy: CallEnergy | None

    def as_dict(self) -> dict[str, Any]:
        """The fields ``time`` and ``energy`` of a result's row (schema.json)."""
        return {"time": self.time.as_dict(), "energy": self.energy and vars(self.energy)}


class Measurer:
    """First the times, interleaved; then the energy of each work, in a stretch of its own."""

    def __init__(
        self,
        policy: Policy,
        recorder: Recorder | None = None,
        energy_seconds: float = 2.0,
        clock: Clock | None = None,
    ) -> None:
        """Measures idle power now, if there is a meter. MeterError."""
        self.policy = policy
        self._clock = clock
        self._recorder = recorder
        self._energy_seconds = energy_seconds
        self.idle_watts = 0.0
        if recorder:
            with recorder.record() as idle:
                time.sleep(IDLE_S)
            self.idle_watts = idle.watts

    def measure(
        self, works: Mapping[Key, Work], calls: Mapping[Key, int] | None = None
    ) -> dict[Key, Measured]:
        """``calls``: how many each work makes, 1 by default. MeterError."""
        times = measure(works, self.policy, calls, self._clock)
        return {
            key: Measured(times[key], self._energy(work, calls[key] if calls else 1))
            for key, work in works.items()
        }

    def _energy(self, work: Work, calls: int) -> CallEnergy | None:
        if self._recorder is None:
            return None
        end, count = time.perf_counter() + self._energy_seconds, 0
        with self._recorder.record() as energy:
            while not count or time.perf_counter() < end:
                work()
                count += calls
        above = energy.joules - self.idle_watts * energy.seconds
        return CallEnergy(
            joules=energy.joules / count,
            joules_above_idle=above / count,
            watts=energy.watts,
            seconds=energy.seconds,
            calls=count,
            readings=energy.samples,
        )
