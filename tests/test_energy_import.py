"""Traces of external meters: exact on synthetic loads, the published ratios on recorded ones.

tests/data/power_traces: POWER-Z KM003C traces of an RK3588S2 board published with IntAttention
(WanliZhong/IntAttention), time and power only, five samples of 20 ms averaged into one.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_cli import Run, one_line_error

from intattention.energy.interval import LoadEnergy, find_load, load_energy
from intattention.energy.trace import KM003C, Columns, Trace, TraceError, read_trace

TRACES = Path(__file__).parent / "data" / "power_traces"
KM003C_HEADER = "ElapsedTime,Unix,VBUS,IBUS,DP,DM,CC1,CC2,TEMP,CHARGE,ENERGY,PWR"
WriteCsv = Callable[[str], Path]


@pytest.fixture
def write_csv(tmp_path: Path) -> WriteCsv:
    def write(text: str) -> Path:
        path = tmp_path / "trace.csv"
        path.write_text(text)
        return path

    return write


def synthetic(idle: float = 4.0, load: float = 9.0, noise: float = 0.3) -> Trace:
    """3 s of idle, 10 s of load, 2 s of idle; iterations of 0.4 s with a phase at 6 W."""
    seconds = np.arange(0, 15, 0.02)
    watts = np.full(len(seconds), idle)
    inside = (seconds >= 3) & (seconds < 13)
    watts[inside] = np.where(seconds[inside] % 0.4 < 0.1, 6.0, load)
    return Trace(seconds, watts + np.random.default_rng(0).normal(0, noise, len(seconds)), 0)


# the load -------------------------------------------------------------------------------------
def test_synthetic_load() -> None:
    trace = synthetic()
    energy = load_energy(trace, repeats=25)
    power = (6.0 + 3 * 9.0) / 4
    assert energy.interval_s == (pytest.approx(3, abs=0.05), pytest.approx(13, abs=0.05))
    assert energy.joules_per_iteration == pytest.approx(power * 0.4, rel=0.01)
    assert energy.mean_power_w == pytest.approx(power, rel=0.01)
    assert energy.idle_power_w == pytest.approx(4.0, abs=0.1)
    assert energy.joules_above_idle_per_iteration == pytest.approx((power - 4) * 0.4, rel=0.02)
    assert abs(energy.joules_per_iteration - power * 0.4) < 3 * energy.uncertainty
    assert energy.uncertainty < 0.02 * energy.joules_per_iteration
    assert not energy.starts_under_load
    assert not energy.ends_under_load


def test_uncertainty_grows_with_the_scatter() -> None:
    quiet, loud = (load_energy(synthetic(noise=noise), 25) for noise in (0.1, 2.0))
    assert loud.uncertainty > 1.5 * quiet.uncertainty


def test_trace_cut_off_at_the_start() -> None:
    whole = synthetic()
    late = whole.seconds > 5
    energy = load_energy(Trace(whole.seconds[late], whole.watts[late], 0), 20)
    assert energy.starts_under_load
    assert not energy.ends_under_load
    assert energy.interval_s[0] == pytest.approx(5.02)


def test_the_longest_load_counts_and_short_dips_belong_to_it() -> None:
    trace = synthetic()
    trace.watts[(trace.seconds > 0.5) & (trace.seconds < 1)] = 12  # something else ran
    trace.watts[(trace.seconds > 7) & (trace.seconds < 7.8)] = 4
    assert find_load(trace) == (pytest.approx(3, abs=0.05), pytest.approx(13, abs=0.05))


def test_no_load() -> None:
    flat = synthetic(load=4.0)
    flat.watts[:] = 4.0
    with pytest.raises(TraceError, match=r"between 4\.00 and 4\.00 W: no load"):
        load_energy(flat, 1)
    energy = load_energy(flat, 10, interval=(2.0, 7.0))
    assert energy.joules_per_iteration == pytest.approx(2.0)
    assert energy.idle_power_w is None


@pytest.mark.parametrize("interval", [(5, 5), (9, 5), (-1, 5), (5, 16)])
def test_bad_interval(interval: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match=r"not within the trace, which goes from 0 to 14\.98 s"):
        load_energy(synthetic(), 1, interval)


# the publication ------------------------------------------------------------------------------
def published(pipeline: str) -> list[LoadEnergy]:
    """Of 1K, 2K, 4K and 8K."""
    energies = []
    for k in (1, 2, 4, 8):
        [path] = TRACES.glob(f"{pipeline}_L{k}k_repeat*.csv")
        repeats = re.search(r"repeat(\d+)", path.name)
        assert repeats
        energies.append(load_energy(read_trace(path), int(repeats[1])))
    return energies


def test_energy_ratios_of_the_publication() -> None:
    """Published means over 1K to 16K: 39.2 % and 62.4 % of FP16. docs/energy.md has the table."""
    fp16, quant_only, index = (published(p) for p in ("fp16", "quant_only", "int_attention"))

    def mean_ratio(energies: list[LoadEnergy], field: str) -> float:
        pairs = zip(energies, fp16, strict=True)
        return float(np.mean([getattr(a, field) / getattr(b, field) for a, b in pairs]))

    assert mean_ratio(index, "joules_per_iteration") == pytest.approx(0.340, abs=0.005)
    assert mean_ratio(index, "joules_above_idle_per_iteration") == pytest.approx(0.347, abs=0.005)
    assert mean_ratio(quant_only, "joules_per_iteration") == pytest.approx(0.593, abs=0.005)
    assert all(e.starts_under_load and not e.ends_under_load for e in fp16 + quant_only + index)
    assert all(3.6 < e.idle_power_w < 4.0 for e in fp16 + quant_only + index if e.idle_power_w)


# files ----------------------------------------------------------------------------------------
def km003c(power: str = "8.5", rows: int = 20) -> str:
    cells = "12.0,0.7,0.03,0.04,0.003,1.6,34.5,4.5e-06,5.4e-05"
    lines = [f"0:00:00.{20 * i:03}, {0.02 * i:.3f},{cells},{power}" for i in range(rows)]
    return "\n".join([KM003C_HEADER, *lines]) + "\n"


def test_km003c_columns(write_csv: WriteCsv) -> None:
    trace = read_trace(write_csv(km003c()))
    assert trace.sample_s == pytest.approx(0.02)
    assert set(trace.watts) == {8.5}


def test_rows_without_values_are_skipped_and_counted(write_csv: WriteCsv) -> None:
    # One published file has four empty columns more, and notes behind its last sample.
    text = km003c().replace("\n", ",,,,\n") + "," * 14 + "0.03992\n" + "," * 15 + "\n"
    trace = read_trace(write_csv(text))
    assert (len(trace.seconds), trace.skipped) == (20, 2)


def test_other_columns(write_csv: WriteCsv) -> None:
    text = "t (ms),U,I\n" + "".join(f"{20 * i},5.0,{0.5 + i}\n" for i in range(20))
    trace = read_trace(write_csv(text), Columns.parse("time=t (ms), voltage=U, current=I", "ms"))
    assert trace.seconds[1] == pytest.approx(0.02)
    assert trace.watts[1] == pytest.approx(7.5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no column Unix, PWR among"),
        ("a,b\n1,2\n", r"no column Unix, PWR among a, b \(name them with --columns\)"),
        (km003c(rows=3), "3 samples; that is not a trace"),
        (km003c("much"), "line 2: 'much' is not a number"),
        (km003c("nan"), "line 2: 'nan' is not a number"),
        (km003c(""), "line 2: '' is not a number"),
        (km003c() + km003c().splitlines()[5] + "\n", "line 22: time 0.08 does not increase"),
        (km003c() + '"' + "x" * 140_000, "field larger than field limit"),
    ],
)
def test_malformed_traces(write_csv: WriteCsv, text: str, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        read_trace(write_csv(text))


@pytest.mark.parametrize(
    "columns",
    ["", "time", "time=t", "power=P", "time=t,voltage=U", "watts=P,time=t", "time=,power=P"],
)
def test_bad_column_maps(columns: str) -> None:
    with pytest.raises(ValueError, match="columns"):
        Columns.parse(columns)


def test_default_columns_are_those_of_the_km003c() -> None:
    assert {KM003C.time, KM003C.power} <= set(KM003C_HEADER.split(","))


# command line ---------------------------------------------------------------------------------
def test_import_command(run: Run) -> None:
    [path] = TRACES.glob("fp16_L8k*.csv")
    status, out, err = run("energy", "import", path, "--repeats", 200, "--json")
    assert (status, err) == (0, "")
    result = json.loads(out)
    assert {
        "joules_per_iteration", "uncertainty", "mean_power_w", "interval_s", "idle_power_w",
    } <= result.keys()  # fmt: skip
    _, out, _ = run("energy", "import", path, "--repeats", 200)
    assert f"{result['joules_per_iteration']:.6g} J per iteration" in out
    assert "the trace starts under load" in out


def test_import_errors(run: Run, write_csv: WriteCsv) -> None:
    path = write_csv(km003c())
    for arguments, code, words in (
        (("--repeats", 1), 1, "no load"),
        (("--repeats", 0), 2, "--repeats"),
        (("--repeats", 1, "--columns", "time=t"), 2, "give time and power"),
        (("--repeats", 1, "--interval", 0, 99), 1, "is not within the trace"),
    ):
        status, out, err = run("energy", "import", path, *arguments)
        assert (status, out) == (code, "")
        assert one_line_error(err)
        assert words in err
    status, _, err = run("energy", "import", path.with_name("none.csv"), "--repeats", 1)
    assert status == 1
    assert "none.csv" in err
