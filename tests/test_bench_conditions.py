"""When repetitions have settled, and what makes a run not clean."""

import re
from pathlib import Path
from typing import Any

import fake_sysfs
import pytest

from intattention import _core, doctor, machine
from intattention.bench import conditions, timing
from intattention.bench.throttling import mac_signs, new_signs, pi_signs, throttle_signs
from intattention.bench.timing import Policy, Samples, measure, settled
from intattention.energy import find
from intattention.energy.ina3221 import Ina3221Meter
from intattention.machine_facts import governor_advice


# repetitions ----------------------------------------------------------------------------------
def test_settled_is_about_the_median() -> None:
    assert settled([1.0, 1.01, 0.99, 1.0, 1.005], 0.03)
    assert not settled([1.0, 1.01, 0.99, 1.0, 1.2], 0.03)
    many = [1.0 + 0.01 * (i % 5) for i in range(30)]
    assert settled([*many, 5.0, 6.0], 0.03)  # outliers beyond the ranks of the interval
    assert not settled([1.0], 0.03)


def test_rounds_are_interleaved_and_end_when_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    now, order = [0.0], list[str]()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def work(name: str, seconds: list[float]) -> timing.Work:
        def run() -> None:
            order.append(name)
            now[0] += seconds.pop(0) if len(seconds) > 1 else seconds[0]

        return run

    works = {"a": work("a", [1.0]), "b": work("b", [4.0, 2.0])}
    samples = measure(works, Policy(least=3, most=50, seconds=1e9), {"a": 1, "b": 2})
    assert order == ["a", "b"] * (len(order) // 2)
    assert samples["a"].seconds[:3] == [1.0] * 3
    assert samples["b"].seconds[:3] == [2.0, 1.0, 1.0]  # per call
    assert samples["b"].settled
    assert 3 < len(samples["b"].seconds) < 50

    late = measure({"a": work("a", [1.0, 9.0, 1.0, 9.0, 1.0, 9.0, 1.0])}, Policy(seconds=2))
    assert late["a"].seconds == [1.0, 9.0, 1.0]  # three rounds, though the time was up after two
    assert not late["a"].settled


def test_samples() -> None:
    time = Samples([3.0, 1.0, 2.0, 4.0, 5.0]).as_dict()
    assert (time["min_s"], time["q1_s"], time["median_s"], time["q3_s"], time["max_s"]) == (
        1, 2, 3, 4, 5,
    )  # fmt: skip
    assert conditions.spread(time) == pytest.approx(2 / 3)


# conditions -----------------------------------------------------------------------------------
def state(**changes: Any) -> dict[str, Any]:
    return {
        "time": "2026-12-03T06:00:00.000+00:00", "mhz": {"0": 2400.0}, "temperatures_c": {},
        "throttle_signs": {}, "load_average": 0.0, "stolen_cpu_s": 10.0, "s8_peak_gmac_s": 100.0,
    } | changes  # fmt: skip


LATER = "2026-12-03T06:01:40.000+00:00"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({}, {"s8_peak_gmac_s": 90.0}, "slower at the end: s8 gemm peak 100 -> 90"),
        ({}, {"mhz": {"0": 1800.0}}, "CPU 0 fell from 2400 to 1800 MHz"),
        ({"load_average": 64.0}, {}, "other work ran before: load average 64.00"),
        ({}, {"throttle_signs": {"x": 3.0}}, r"throttled: x \(0 -> 3\)"),
        ({}, {"stolen_cpu_s": 10.0 + 2000}, "the hypervisor took"),
    ],
)
def test_problems(before: dict[str, Any], after: dict[str, Any], words: str) -> None:
    [problem] = conditions.condition_problems(state(**before), state(time=LATER, **after))
    assert re.search(words, problem)


def test_no_problem() -> None:
    fine = state(time=LATER, s8_peak_gmac_s=97.0, mhz={"0": 2390.0}, stolen_cpu_s=10.1)
    assert conditions.condition_problems(state(), fine) == []
    assert conditions.condition_problems(state(stolen_cpu_s=None), state(stolen_cpu_s=None)) == []


def test_rows_with_wide_spread_are_told() -> None:
    rows = [{"time": Samples([1.0, 1.0, 1.0], True).as_dict(), "energy": {"readings": 9}},
            {"time": Samples([1.0, 1.5, 2.0], False).as_dict(), "energy": None}]  # fmt: skip
    assert conditions.row_problems("llm", rows) == [
        "llm: wide spread in 1 of 2 rows, quartiles up to 33% of the median apart",
        "llm: the median had not settled in 1 of 2 rows",
        "llm: fewer than 10 meter readings in 1 rows",
    ]


def test_snapshot() -> None:
    taken = conditions.snapshot(_core.ThreadPool(1))
    assert taken["s8_peak_gmac_s"] > 0
    assert taken.keys() == state().keys()


def test_sysfs_readings(tmp_path: Path) -> None:
    fake_sysfs.write(tmp_path, {
        "cpu0/cpufreq/scaling_cur_freq": 2256000, "cpu4/cpufreq/scaling_cur_freq": 1608000,
        "thermal_zone0/type": "soc-thermal", "thermal_zone0/temp": 45307,
        "thermal_zone1/type": "broken",
    })  # fmt: skip
    assert conditions.frequencies([0, 1, 4], tmp_path) == {"0": 2256.0, "4": 1608.0}
    assert conditions.temperatures(tmp_path) == {"0 soc-thermal": 45.307}
    stat = tmp_path / "stat"
    stat.write_text("cpu  457758 97284 71295 3363157 1756 0 396 1400 0 0\ncpu0 1\n")
    assert conditions.stolen_seconds(stat) == pytest.approx(14.0)
    assert conditions.stolen_seconds(tmp_path / "absent") is None


def test_throttle_signs(tmp_path: Path) -> None:
    cpu = "devices/system/cpu/cpu{}/thermal_throttle/{}_throttle_count"
    fake_sysfs.write(tmp_path, {
        cpu.format(0, "core"): 3, cpu.format(1, "package"): 4,
        "class/thermal/cooling_device0/type": "thermal-cpufreq-0",
        "class/thermal/cooling_device0/cur_state": 0,
        "class/thermal/cooling_device1/type": "pwm-fan",
        "class/thermal/cooling_device1/cur_state": 2,
    })  # fmt: skip
    before = throttle_signs(tmp_path)
    assert before["CPU thermal throttle events"] == 7
    assert new_signs(before, throttle_signs(tmp_path)) == []
    fake_sysfs.write(tmp_path, {"class/thermal/cooling_device0/cur_state": 2,
                                "class/thermal/cooling_device1/cur_state": 4})  # fmt: skip
    assert new_signs(before, throttle_signs(tmp_path)) == ["cooling by thermal-cpufreq-0 (0 -> 2)"]


def test_firmware_signs() -> None:
    assert set(pi_signs("throttled=0x0").values()) == {0.0}
    told = new_signs(pi_signs("throttled=0x50000"), pi_signs("throttled=0x50005"))
    assert told == ["firmware: under-voltage (1 -> 2)", "firmware: throttled (1 -> 2)"]
    assert mac_signs("CPU_Scheduler_Limit \t= 100\n\tCPU_Speed_Limit \t= 80\n") == {
        "macOS CPU speed limit": 20.0
    }
    assert mac_signs("Note: No thermal warning level has been recorded") == {}


# doctor ---------------------------------------------------------------------------------------
def test_doctor_lists_meters_with_rails_or_reasons(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_sysfs.ina3221(tmp_path / "i2c", fake_sysfs.AGX_ORIN)
    readers = {"ina3221": lambda: Ina3221Meter(tmp_path / "i2c"),
               "rapl": lambda: find.RaplMeter(tmp_path)}  # fmt: skip
    monkeypatch.setattr(find, "READERS", readers)
    facts = doctor.doctor_facts(1, None)
    assert [meter["usable"] for meter in facts["meters"]] == [True, False]
    lines = dict(doctor.doctor_lines(facts))
    assert lines["energy meters"] == "ina3221"
    assert lines["  ina3221"].startswith("total VDD_GPU_SOC + VDD_CPU_CV + VIN_SYS_5V0")
    assert lines["  rapl"] == f"no: no RAPL zones in {tmp_path}"
    assert lines["built with"].startswith(("gcc ", "clang "))


def test_governor_advice() -> None:
    assert governor_advice({}) == governor_advice({"performance": "0-3"}) == ""
    assert "ondemand changes frequencies" in governor_advice(
        {"ondemand": "0-3", "performance": "4"}
    )


def test_memory_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_sysfs.write(tmp_path, {"mc0/dimm0/dimm_mem_type": "Unbuffered-DDR5",
                                "mc0/dimm1/dimm_mem_type": "Unbuffered-DDR5"})  # fmt: skip
    monkeypatch.setattr(machine, "EDAC", tmp_path)
    assert machine.memory_type() == "Unbuffered-DDR5"
