"""``intattention bench``: results that fit their schema, reports from JSON alone, comparisons."""

import copy
import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from test_cli import Run, one_line_error

from intattention import machine
from intattention.bench import attention_cases, cli, measurer, options, sweep
from intattention.bench.compare import ratio_interval, statement
from intattention.bench.report import html, markdown, write_report
from intattention.bench.result import SECTIONS, ResultError, read_result, schema
from intattention.bench.tables import base_pipeline, csv_text, number, tables
from intattention.bench.timing import Policy
from intattention.energy import Meter, MeterError

jsonschema = pytest.importorskip("jsonschema")
TINY = ("--threads", 1, "--rounds", 3, "--seconds", 1)
TINY_ATTENTION = ("bench", "attention", "--lengths", "32,64", "--dims", 32, "--heads", "2/1", *TINY)
PNG = b"\x89PNG\r\n\x1a\n"


class SteadyMeter(Meter):
    """3 W in, 1 W of them in the CPU."""

    name, method, kind = "steady", "a fake", "power"
    rails, total, interval_s = ("in", "cpu"), ("in",), 0.002
    fails = False

    def read(self) -> dict[str, float]:
        if self.fails:
            raise MeterError("unplugged")
        return {"in": 3.0, "cpu": 1.0}


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> SteadyMeter:
    made = SteadyMeter()
    monkeypatch.setattr(sweep, "open_meter", lambda name, rails: made)
    monkeypatch.setattr(measurer, "IDLE_S", 0.02)
    return made


def measured(run: Run, path: Path, *arguments: object) -> dict[str, Any]:
    status, _, err = run(*arguments, "--json", path)
    assert (status, err) == (0, "")
    result: dict[str, Any] = json.loads(path.read_text())
    jsonschema.validate(result, schema())
    return result


@pytest.fixture(scope="session")
def one_run(tiny_path: Path) -> dict[str, Any]:
    """Rows in all sections; not to be changed."""
    settings = sweep.Settings(
        lengths=(32, 64), dims=(32,), heads=((2, 1),), threads=(1,), model=str(tiny_path),
        depths=(0, 4), prompt=8, tokens=2, linear_models=("smollm2-135m",), formats=("w4g32",),
        row_counts=(1, 3), cold_bytes=1 << 20, policy=Policy.exactly(3), meter="none",
    )  # fmt: skip
    result = sweep.run(settings, SECTIONS)
    jsonschema.validate(result, schema())
    return result


@pytest.fixture
def everything(one_run: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(one_run)


# measuring ------------------------------------------------------------------------------------
def test_the_schema_is_one_and_strict() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


def test_sections(everything: dict[str, Any]) -> None:
    rows = everything["attention"]
    assert [(row["pipeline"], row["length"], row["causal"]) for row in rows[:2]] == [
        ("index", 32, True), ("paper", 32, True),
    ]  # fmt: skip
    assert len(rows) == 2 * 2 * 5
    assert all(len(row["time"]["samples_s"]) == 3 for row in rows)
    assert all((row["share"] is None) == (row["pipeline"] != "index") for row in rows)
    assert [(row["test"], row["depth"]) for row in everything["llm"]] == [
        ("pp", 0), ("tg", 0), ("pp", 4), ("tg", 4),
    ]  # fmt: skip
    heads = [row for row in everything["linear"] if row["names"] == ["smollm2-135m lm_head"]]
    assert [row["m"] for row in heads] == [1]
    assert everything["energy"] == {"meter": None, "reason": "no meter: switched off"}
    assert everything["machine"]["cpus"]["threads"] == 1


def test_sweeps(run: Run, tmp_path: Path) -> None:
    result = measured(
        run, tmp_path / "r.json", "bench", "attention", "--lengths", "32", "--dims", "16,32",
        "--heads", "2,4/2", "--masks", "full", "--pipelines", "index", "--threads", "1,2",
        "--rounds", 1, "--cpus", str(machine.allowed_cpus()[0]), "--meter", "none",
    )  # fmt: skip
    keys = [
        (row["threads"], row["d"], row["heads"], row["kv_heads"]) for row in result["attention"]
    ]
    assert keys == [(t, d, *h) for t in (1, 2) for d in (16, 32) for h in ((2, 2), (4, 2))]
    assert result["machine"]["cpus"]["pinned"] == str(machine.allowed_cpus()[0])


def test_energy_is_measured_above_idle(run: Run, tmp_path: Path, meter: SteadyMeter) -> None:
    result = measured(run, tmp_path / "r.json", *TINY_ATTENTION, "--pipelines", "index,fp32",
                      "--energy-seconds", 0.05)  # fmt: skip
    assert result["energy"]["meter"] == "steady"
    assert result["energy"]["total"] == ["in"]
    assert result["energy"]["idle_w"] == pytest.approx(3.0)
    for row in result["attention"]:
        energy = row["energy"]
        assert energy["watts"] == pytest.approx(3.0)
        assert energy["joules"] == pytest.approx(3 * energy["seconds"] / energy["calls"])
        assert energy["joules_above_idle"] == pytest.approx(0, abs=1e-9)
        assert energy["readings"] >= 5
    [table] = tables(result)
    assert table.columns[-4:] == ["mJ", "mJ above idle", "mJ/token", "W"]
    first = result["attention"][0]
    assert table.rows[0][-2] == number(first["energy"]["joules"] * 1e3 / first["length"])


def test_no_meter_is_said_and_one_asked_for_must_work(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str, rails: object) -> Meter:
        raise MeterError("no energy meter (rapl: absent)")

    monkeypatch.setattr(sweep, "open_meter", absent)
    small = (*TINY_ATTENTION, "--pipelines", "index")
    result = measured(run, tmp_path / "r.json", *small)
    assert result["energy"] == {"meter": None, "reason": "no energy meter (rapl: absent)"}
    assert all(row["energy"] is None for row in result["attention"])
    status, out, err = run(*small, "--meter", "rapl")
    assert (status, out) == (1, "")
    assert one_line_error(err)


def test_a_meter_that_fails_keeps_what_was_measured(
    run: Run, tmp_path: Path, meter: SteadyMeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = sweep.measure_case, []

    def fails_later(*arguments: Any) -> list[dict[str, Any]]:
        calls.append(arguments)
        meter.fails = len(calls) > 1
        return real(*arguments)

    monkeypatch.setattr(sweep, "measure_case", fails_later)
    result = measured(run, tmp_path / "r.json", *TINY_ATTENTION, "--pipelines", "index",
                      "--energy-seconds", 0.02)  # fmt: skip
    assert not result["clean"]
    assert "the meter failed after 1 of 4 steps: unplugged" in result["problems"]
    assert len(result["attention"]) == 1


def test_interrupt_keeps_what_was_measured(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = sweep.measure_case, []

    def interrupted(*arguments: Any) -> list[dict[str, Any]]:
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(sweep, "measure_case", interrupted)
    path = tmp_path / "r.json"
    status, out, _ = run(*TINY_ATTENTION, "--meter", "none", "--json", path)
    result = read_result(path)
    assert status == 130
    assert "NOT CLEAN: interrupted after 2 of 4 steps" in out
    assert "interrupted after 2 of 4 steps" in result["problems"]
    assert len(result["attention"]) == 2 * 5


def test_a_pipeline_that_cannot_run_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_cases, "torch_pipelines", lambda *arguments: {})
    status, out, err = run(*TINY_ATTENTION, "--pipelines", "index,torch fp32", "--meter", "none")
    assert status == 0
    assert "torch" not in out
    assert err == "not measured, as this machine cannot run it: torch fp32\n"


def test_a_wrong_output_has_no_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(attention_cases.MAX_ERROR, "index", 1e-9)
    status, out, err = run(*TINY_ATTENTION, "--meter", "none")
    assert (status, out) == (1, "")
    assert "index is off by" in err


# reports --------------------------------------------------------------------------------------
def test_a_report_from_json_alone_is_the_same(
    run: Run, everything: dict[str, Any], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    first, second = tmp_path / "first", tmp_path / "second"
    write_report(everything, first)
    status, _, _ = run("bench", "report", first / "result.json", second)
    assert status == 0
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in second.iterdir())
    assert {"index.html", "report.md", "attention.csv", "latency.png", "gmacs.png", "speedup.png",
            "stages.png", "llm.png", "linear.png"} <= set(names)  # fmt: skip
    for name in names:
        if not name.endswith((".png", ".html")):
            assert (first / name).read_bytes() == (second / name).read_bytes(), name
    read_back = read_result(second / "result.json")
    assert tables(read_back) == tables(everything)
    _, out, _ = run("bench", "report", second / "result.json")
    for table in tables(everything):
        assert table.title in out
        assert all(cell in out for row in table.rows for cell in row[-3:])


def test_the_page_needs_nothing_else(everything: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_report(everything, tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert (tmp_path / "latency.png").read_bytes().startswith(PNG)
    assert page.count("data:image/png;base64,") == len(list(tmp_path.glob("*.png")))
    assert all(source.startswith("data:") for source in re.findall(r"src='([^']*)'", page))
    assert "href" not in page
    assert page.count("<tr>") > len(everything["attention"]) + len(everything["linear"])


def test_markdown_and_problems(everything: dict[str, Any]) -> None:
    everything |= {"clean": False, "problems": ["throttled <b>"]}
    text = markdown(everything)
    assert "**NOT CLEAN: throttled <b>**" in text
    assert text.count("\n| ") == sum(1 + len(table.rows) for table in tables(everything))
    assert "throttled &lt;b&gt;" in html(everything, {})
    everything |= {"clean": True, "problems": []}
    assert "**clean: " in markdown(everything)


def test_csv_has_raw_values(everything: dict[str, Any]) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(everything["attention"]))))
    assert float(rows[0]["time.median_s"]) == everything["attention"][0]["time"]["median_s"]
    assert float(rows[0]["share.qk"]) == everything["attention"][0]["share"]["qk"]
    rows = list(csv.DictReader(io.StringIO(csv_text(everything["linear"]))))
    assert rows[0]["names"] == ", ".join(everything["linear"][0]["names"])


def test_speed_up_is_over_fp16(everything: dict[str, Any]) -> None:
    assert base_pipeline(everything["attention"]) == "fp16"
    [table, *_] = tables(everything)
    place = table.columns.index("speed-up over fp16")
    by_name = {row[5]: row[place] for row in table.rows[:5]}
    assert by_name["fp16"] == "1.00 x"
    seconds = {row["pipeline"]: row["time"]["median_s"] for row in everything["attention"][:5]}
    assert by_name["index"] == f"{seconds['fp16'] / seconds['index']:.2f} x"


def test_files_for_sections(run: Run, tmp_path: Path) -> None:
    run(*TINY_ATTENTION, "--meter", "none", "--csv", tmp_path / "x.csv",
        "--markdown", tmp_path / "x.md")  # fmt: skip
    assert (tmp_path / "x.csv").read_text().startswith("pipeline,length,d,")
    assert "| keys | d |" in (tmp_path / "x.md").read_text()


def test_report_without_matplotlib_says_so_before_measuring(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(sweep, "snapshot", lambda pool: pytest.fail("it measured"))
    status, out, err = run(*TINY_ATTENTION, "--report", tmp_path / "r")
    assert (status, out) == (1, "")
    assert "pip install 'intattention[bench]'" in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "has the schema None"),
        ('{"schema": "llama-bench"}', "has the schema 'llama-bench', not 'intattention-bench/1'"),
        ('{"schema": "intattention-bench/1"}', "lacks created, command"),
    ],
)
def test_bad_results(run: Run, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    for command in (("report", path), ("compare", path, path)):
        status, out, err = run("bench", *command)
        assert (status, out) == (1, "")
        assert one_line_error(err)
        assert words in err


def test_damaged_result(everything: dict[str, Any], tmp_path: Path) -> None:
    everything["attention"][3]["time"]["median_s"] = "fast"
    path = tmp_path / "r.json"
    path.write_text(json.dumps(everything))
    with pytest.raises(ResultError, match=r"\$\.attention\[3\]\.time\.median_s: 'fast' is not"):
        read_result(path)


# comparing ------------------------------------------------------------------------------------
def test_ratios_and_their_significance() -> None:
    a = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0]
    assert ratio_interval(a, [2 * x for x in a])[0] == pytest.approx(2)
    assert statement(a, [0.9 * x for x in a])[2] == "faster"
    assert statement(a, [1.1 * x for x in a])[2] == "slower"
    assert statement(a, a[::-1])[2] == "not significant"
    wide = [0.5, 1.5, 0.7, 1.4, 1.0, 1.1]
    assert statement(a, [0.9 * x for x in wide])[2] == "not significant"
    assert statement(a[:3], a)[2] == "fewer than 5 repetitions"


def test_compare_command(run: Run, everything: dict[str, Any], tmp_path: Path) -> None:
    a, b = tmp_path / "A.json", tmp_path / "B.json"
    a.write_text(json.dumps(everything))
    for row in everything["attention"]:
        row["time"]["samples_s"] = [2 * x for x in row["time"]["samples_s"]]
        row["time"]["median_s"] *= 2
    everything["machine"]["processor"] = "another"
    everything["llm"] = everything["llm"][:1]
    everything |= {"clean": False, "problems": ["throttled"]}
    b.write_text(json.dumps(everything))
    status, out, err = run("bench", "compare", a, b)
    assert (status, err) == (0, "")
    assert out.count("2.000") == 20
    assert "fewer than 5 repetitions" in out
    assert "B is not clean: throttled" in out
    assert "processor differs" in out
    assert "3 rows are in A alone" in out


# command line ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("attention", "--lengths", "1k,x"), "'x'"),
        (("attention", "--lengths", "0"), "'0'"),
        (("attention", "--lengths", "64,64"), "repeated"),
        (("attention", "--heads", "8/3"), "'8/3'"),
        (("attention", "--masks", "half"), "there are causal, full"),
        (("attention", "--pipelines", "int4"), "there are index, paper"),
        (("attention", "--isa", "sse9"), "sse9"),
        (("attention", "--cpus", "7-4"), "'7-4'"),
        (("llm", "--synthetic", "gpt-5"), "smollm2-135m"),
        (("linear", "--formats", "w2"), "w4g32"),
        (("loop", "--repeats", 0), "--repeats"),
        (("fly",), "fly"),
        ((), "Missing command"),
    ],
)
def test_usage_errors(run: Run, arguments: tuple[object, ...], words: str) -> None:
    status, out, err = run("bench", *arguments)
    assert (status, out) == (2, "")
    assert one_line_error(err)
    assert words in err


def test_defaults_of_the_commands_are_those_of_all() -> None:
    settings = sweep.Settings()
    assert options.counts(cli.LENGTHS, "lengths") == list(settings.lengths)
    assert options.counts(cli.DEPTHS, "depths", least=0) == list(settings.depths)
    assert ",".join(settings.pipelines) == cli.PIPELINES
    assert ",".join(settings.linear_models) == cli.LINEAR_MODELS
    assert settings.model == cli.MODEL


def test_meter_name_errors(run: Run) -> None:
    status, _, err = run(*TINY_ATTENTION, "--meter", "tdp")
    assert status == 1
    assert "no meter is called 'tdp'" in err


def test_loop(run: Run) -> None:
    status, out, err = run("bench", "loop", "--repeats", 3, "--length", 64, "--dim", 32,
                           "--heads", 2, "--rest", 0, "--threads", 1)  # fmt: skip
    assert (status, out) == (0, "")
    assert re.search(r"load 0\.\d+ s, .* ms each", err)
