"""From a power trace to joules per iteration: where the load begins and ends, and how sure that is.

Method. A trace holds one stretch of load, N equal iterations, and idle before or after it.

1. Idle is the median power of the quietest second; the plateau is the 90th percentile of power
   smoothed over 0.5 s.
2. The load lasts while power smoothed over 0.1 s is above idle + 1/4 of the rise to the plateau;
   dips of up to 1 s (an iteration's quiet phase) belong to it. Of several stretches the longest
   counts. An edge is placed where two straight lines between samples cross that level.
3. Energy is the integral of the raw samples over the load (trapezoidal rule), and N iterations
   share it. Idle power is the median below that level, half a second and more outside the load.
4. Standard uncertainty (k = 1): the scatter of the mean power over at least 10 blocks of equal
   length, each 0.5 s or longer where the load allows, and each edge that is in the trace known to
   +-0.1 s (uniform, so 0.058 s), added in quadrature. Not in it: the meter's own accuracy, and what
   came before a trace that begins under load (``starts_under_load``: the load began earlier).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from intattention.energy.trace import Trace, TraceError

F64 = NDArray[np.float64]
QUIET_S, PLATEAU_S, EDGE_S, DIP_S = 1.0, 0.5, 0.1, 1.0
IDLE_AWAY_S = 0.5
LEVEL = 0.25
LEAST_RISE = 1.2  # plateau over idle; less is no load
EDGE_UNCERTAINTY_S = 0.1 / math.sqrt(3)
BLOCK_S, LEAST_BLOCKS = 0.5, 10


@dataclass(frozen=True)
class LoadEnergy:
    """``idle_power_w`` is None where the trace has no idle outside the load."""

    joules: float
    joules_per_iteration: float
    joules_above_idle_per_iteration: float | None
    uncertainty: float
    seconds_per_iteration: float
    mean_power_w: float
    idle_power_w: float | None
    interval_s: tuple[float, float]
    repeats: int
    samples: int
    skipped_rows: int
    starts_under_load: bool
    ends_under_load: bool


def load_energy(
    trace: Trace, repeats: int, interval: tuple[float, float] | None = None
) -> LoadEnergy:
    """Energy of ``repeats`` iterations in J, ``uncertainty`` in J per iteration.

    ``interval`` (seconds of the trace) replaces steps 1 and 2. ValueError: repeats below 1, an
    empty interval or one outside the trace. TraceError: no load or no idle to tell it from.
    """
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}; it must be 1 or more")
    begin, end = find_load(trace) if interval is None else _checked(interval, trace)
    inside = (trace.seconds > begin) & (trace.seconds < end)
    seconds = np.concatenate([[begin], trace.seconds[inside], [end]])
    watts = np.interp(seconds, trace.seconds, trace.watts)
    joules = float(np.sum(np.diff(seconds) * (watts[1:] + watts[:-1]) / 2))
    length = end - begin
    power = joules / length
    idle = _idle_power(trace, begin, end)
    edges = [begin > trace.seconds[0] + EDGE_S, end < trace.seconds[-1] - EDGE_S]
    parts = [_power_uncertainty(seconds, watts) * length]
    parts += [EDGE_UNCERTAINTY_S * power] * sum(edges)
    return LoadEnergy(
        joules=joules,
        joules_per_iteration=joules / repeats,
        joules_above_idle_per_iteration=None if idle is None else (power - idle) * length / repeats,
        uncertainty=math.hypot(*parts) / repeats,
        seconds_per_iteration=length / repeats,
        mean_power_w=power,
        idle_power_w=idle,
        interval_s=(begin, end),
        repeats=repeats,
        samples=int(inside.sum()),
        skipped_rows=trace.skipped,
        starts_under_load=not edges[0],
        ends_under_load=not edges[1],
    )


def find_load(trace: Trace) -> tuple[float, float]:
    """Seconds at which the longest load begins and ends (steps 1 and 2). TraceError if none."""
    level = _load_level(trace)
    power = smooth(trace, EDGE_S)
    runs = _runs(power > level, trace.seconds)
    first, last = max(runs, key=lambda run: trace.seconds[run[1]] - trace.seconds[run[0]])
    return _crossing(trace, power, level, first - 1, first), _crossing(
        trace, power, level, last, last + 1
    )


def _load_level(trace: Trace) -> float:
    """Watts above which there is load. TraceError if no load can be told from idle."""
    quiet = smooth(trace, QUIET_S)
    at = trace.seconds[int(quiet.argmin())]
    idle = float(np.median(trace.watts[np.abs(trace.seconds - at) <= QUIET_S / 2]))
    plateau = float(np.percentile(smooth(trace, PLATEAU_S), 90))
    if not plateau > LEAST_RISE * idle:
        raise TraceError(
            f"power stays between {idle:.2f} and {plateau:.2f} W: no load can be told from idle; "
            "record some seconds of idle too, or give --interval"
        )
    return idle + LEVEL * (plateau - idle)


def smooth(trace: Trace, width_s: float) -> F64:
    """Mean over a centred window; at the ends over what there is of it."""
    half = max(1, round(width_s / trace.sample_s)) // 2
    sums = np.concatenate([[0.0], np.cumsum(trace.watts)])
    index = np.arange(len(trace.watts))
    low, high = np.maximum(index - half, 0), np.minimum(index + half + 1, len(index))
    mean: F64 = (sums[high] - sums[low]) / (high - low)
    return mean


def _runs(above: NDArray[np.bool_], seconds: F64) -> list[tuple[int, int]]:
    """(first, last) index of each stretch that is above, dips of up to DIP_S bridged."""
    runs: list[tuple[int, int]] = []
    for i in np.flatnonzero(above).tolist():
        if runs and seconds[i] - seconds[runs[-1][1]] <= DIP_S:
            runs[-1] = (runs[-1][0], i)
        else:
            runs.append((i, i))
    return runs


def _crossing(trace: Trace, power: F64, level: float, i: int, j: int) -> float:
    """Time between samples i and j at which power crosses the level; the trace's end if cut off."""
    if i < 0 or j >= len(power):
        return float(trace.seconds[max(i, 0) if j >= len(power) else j])
    part = (level - power[i]) / (power[j] - power[i])
    return float(trace.seconds[i] + part * (trace.seconds[j] - trace.seconds[i]))


def _checked(interval: tuple[float, float], trace: Trace) -> tuple[float, float]:
    begin, end = interval
    if not trace.seconds[0] <= begin < end <= trace.seconds[-1]:
        raise ValueError(
            f"interval {begin:g} to {end:g} s is not within the trace, which goes from "
            f"{trace.seconds[0]:g} to {trace.seconds[-1]:g} s"
        )
    return begin, end


def _idle_power(trace: Trace, begin: float, end: float) -> float | None:
    outside = (trace.seconds < begin - IDLE_AWAY_S) | (trace.seconds > end + IDLE_AWAY_S)
    try:
        outside &= trace.watts < _load_level(trace)
    except TraceError:
        return None
    return float(np.median(trace.watts[outside])) if outside.any() else None


def _power_uncertainty(seconds: F64, watts: F64) -> float:
    """Standard error of the mean power, from block means: samples are not independent."""
    length = seconds[-1] - seconds[0]
    count = max(LEAST_BLOCKS, int(length / BLOCK_S))
    block = np.minimum(((seconds - seconds[0]) / length * count).astype(int), count - 1)
    sizes = np.bincount(block, minlength=count)
    means = np.bincount(block, watts, minlength=count)[sizes > 0] / sizes[sizes > 0]
    if len(means) < 2:
        raise TraceError(f"the load has only {len(seconds)} samples")
    return float(means.std(ddof=1) / math.sqrt(len(means)))
