"""What the machine was doing before and after a run, and what makes the run not clean."""

import os
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from intattention import _core, machine
from intattention.bench.limits import peak_gmacs
from intattention.bench.throttling import new_signs, throttle_signs

THERMAL = Path("/sys/class/thermal")
CPU_ROOT = Path("/sys/devices/system/cpu")
WIDEST_SPREAD = 0.10  # quartiles' distance over the median
LARGEST_DROP = 0.07  # of the s8 gemm peak from before to after
LARGEST_MHZ_DROP = 0.05
LARGEST_STEAL = 0.01  # of the CPU time that passed
LARGEST_LOAD = 0.25  # load average per CPU before the run
FEWEST_READINGS = 10  # of the meter, per stretch


def snapshot(pool: _core.ThreadPool) -> dict[str, Any]:
    """The load average is taken first, frequencies right after work on all threads."""
    load = os.getloadavg()[0]
    peak = peak_gmacs(pool)
    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "mhz": frequencies(machine.allowed_cpus()),
        "temperatures_c": temperatures(),
        "throttle_signs": throttle_signs(),
        "load_average": load,
        "stolen_cpu_s": stolen_seconds(),
        "s8_peak_gmac_s": peak,
    }


def frequencies(cpus: Iterable[int], root: Path = CPU_ROOT) -> dict[str, float]:
    """CPU -> MHz now; empty where there is no cpufreq (virtual machines, macOS)."""
    found = {}
    for cpu in cpus:
        path = root / f"cpu{cpu}" / "cpufreq" / "scaling_cur_freq"
        if path.exists():
            found[str(cpu)] = int(path.read_text()) / 1e3
    return found


def temperatures(root: Path = THERMAL) -> dict[str, float]:
    """Thermal zone -> degrees Celsius; empty where there are none."""
    found = {}
    for zone in sorted(root.glob("thermal_zone*")):
        try:
            kind, value = (zone / "type").read_text().strip(), int((zone / "temp").read_text())
        except (OSError, ValueError):
            continue
        found[f"{zone.name.removeprefix('thermal_zone')} {kind}"] = value / 1e3
    return found


def stolen_seconds(stat: Path = Path("/proc/stat")) -> float | None:
    """CPU seconds that a hypervisor gave to others since the start; None where not told."""
    if not stat.exists():
        return None
    fields = stat.read_text().split("\n", 1)[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK") if len(fields) > 8 else None


def condition_problems(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Reasons that the machine gives not to call a run clean."""
    problems = [f"throttled: {sign}" for sign in
                new_signs(before["throttle_signs"], after["throttle_signs"])]  # fmt: skip
    drop = 1 - after["s8_peak_gmac_s"] / before["s8_peak_gmac_s"]
    if drop > LARGEST_DROP:
        problems.append(
            f"slower at the end: s8 gemm peak {before['s8_peak_gmac_s']:.0f} -> "
            f"{after['s8_peak_gmac_s']:.0f} GMAC/s"
        )
    for cpu, mhz in before["mhz"].items():
        now = after["mhz"].get(cpu, mhz)
        if now < (1 - LARGEST_MHZ_DROP) * mhz:
            problems.append(f"CPU {cpu} fell from {mhz:.0f} to {now:.0f} MHz")
    usable = len(machine.allowed_cpus())
    if before["load_average"] > LARGEST_LOAD * usable:
        problems.append(f"other work ran before: load average {before['load_average']:.2f}")
    problems += _stolen(before, after, usable)
    return problems


def _stolen(before: dict[str, Any], after: dict[str, Any], usable: int) -> list[str]:
    if before["stolen_cpu_s"] is None or after["stolen_cpu_s"] is None:
        return []
    begin, end = (datetime.fromisoformat(state["time"]) for state in (before, after))
    stolen = after["stolen_cpu_s"] - before["stolen_cpu_s"]
    share = stolen / max(1e-3, (end - begin).total_seconds() * usable)
    return [f"the hypervisor took {share:.1%} of the CPU time"] if share > LARGEST_STEAL else []


def row_problems(section: str, rows: list[dict[str, Any]]) -> list[str]:
    """Reasons that the times themselves give."""
    problems = []
    spreads = [spread(row["time"]) for row in rows]
    wide = [value for value in spreads if value > WIDEST_SPREAD]
    if wide:
        problems.append(
            f"{section}: wide spread in {len(wide)} of {len(rows)} rows, quartiles up to "
            f"{max(wide):.0%} of the median apart"
        )
    unsettled = sum(not row["time"]["settled"] for row in rows)
    if unsettled:
        problems.append(f"{section}: the median had not settled in {unsettled} of {len(rows)} rows")
    few = sum(bool(row["energy"]) and row["energy"]["readings"] < FEWEST_READINGS for row in rows)
    if few:
        problems.append(f"{section}: fewer than {FEWEST_READINGS} meter readings in {few} rows")
    return problems


def spread(time: dict[str, Any]) -> float:
    """Distance of the quartiles over the median."""
    return float((time["q3_s"] - time["q1_s"]) / time["median_s"])
