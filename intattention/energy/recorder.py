"""Energy of a stretch of work: a meter read in the background while the work runs."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from intattention.energy.meter import Meter, MeterError


@dataclass
class Energy:
    """What a stretch cost; ``joules`` is the sum of the meter's total rails, ``rails`` each one."""

    seconds: float = 0.0
    samples: int = 0
    joules: float = 0.0
    rails: dict[str, float] = field(default_factory=dict)

    @property
    def watts(self) -> float:
        return self.joules / self.seconds if self.seconds > 0 else 0.0


class Recorder:
    """Counters are read at both ends (and in between, for the wrap-around); sensors are integrated
    by the trapezoidal rule, their first and last readings replaced by the next ones inside: at both
    ends the work does not run."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self._samples: list[tuple[float, dict[str, float]]] = []

    def sample(self) -> None:
        """Read now; the time is the middle of the reading."""
        before = time.perf_counter()
        values = self.meter.read()
        self._samples.append(((before + time.perf_counter()) / 2, values))

    @contextmanager
    def record(self) -> Iterator[Energy]:
        """Yields an ``Energy`` that is filled in at the end of the block. MeterError if the meter
        fails in between."""
        energy, stop, failures = Energy(), threading.Event(), list[MeterError]()

        def follow() -> None:
            while not stop.wait(self.meter.interval_s):
                try:
                    self.sample()
                except MeterError as error:
                    failures.append(error)
                    return

        self._samples = []
        self.sample()
        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield energy
        finally:
            stop.set()
            thread.join()
        if failures:
            raise failures[0]
        self.sample()
        self._fill(energy)

    def _fill(self, energy: Energy) -> None:
        times = [moment for moment, _ in self._samples]
        energy.seconds = times[-1] - times[0]
        energy.samples = len(times)
        for rail in self.meter.rails:
            values = [reading[rail] for _, reading in self._samples]
            if self.meter.kind == "counter":
                energy.rails[rail] = values[-1] - values[0]
            else:
                inside = values[1:-1] or values
                energy.rails[rail] = trapezoid(times, [inside[0], *values[1:-1], inside[-1]])
        energy.joules = sum(energy.rails[rail] for rail in self.meter.total)


def trapezoid(times: list[float], values: list[float]) -> float:
    return sum(
        (times[i + 1] - times[i]) * (values[i + 1] + values[i]) / 2 for i in range(len(times) - 1)
    )
