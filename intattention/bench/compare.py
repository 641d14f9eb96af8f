"""Two results side by side: ratios of medians, and whether the repetitions tell them apart."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from intattention.bench.result import SECTIONS
from intattention.bench.tables import Table, number

KEYS = {
    "attention": ("pipeline", "length", "d", "heads", "kv_heads", "causal", "threads"),
    "llm": ("model", "test", "tokens", "depth", "threads"),
    "linear": ("names", "format", "m", "threads"),
}
RESAMPLES = 4000
FEWEST = 5  # repetitions below which no statement is made
NOTE = (
    "B / A below 1: B is faster. The interval (95 %, bootstrap of both medians) covers the "
    "repetitions within each run, not what differs from run to run: repeat both runs before "
    "trusting a difference of a few percent."
)


def compare(a: dict[str, Any], b: dict[str, Any]) -> tuple[list[Table], list[str]]:
    """Tables of the rows both have, and notes on what else differs."""
    tables = [table for section in SECTIONS for table in _section_table(section, a, b)]
    return tables, list(_notes(a, b, tables))


def ratio_interval(a: list[float], b: list[float]) -> tuple[float, float, float]:
    """(ratio of medians b / a, low, high): percentile bootstrap with a fixed seed."""
    rng = np.random.default_rng(0)
    medians = [
        np.median(rng.choice(np.array(values), (RESAMPLES, len(values))), axis=1)
        for values in (a, b)
    ]
    low, high = np.percentile(medians[1] / medians[0], [2.5, 97.5])
    return float(np.median(b) / np.median(a)), float(low), float(high)


def statement(a: list[float], b: list[float]) -> tuple[str, str, str]:
    """Ratio, interval and verdict as text."""
    ratio, low, high = ratio_interval(a, b)
    if min(len(a), len(b)) < FEWEST:
        return f"{ratio:.3f}", "", f"fewer than {FEWEST} repetitions"
    word = "faster" if high < 1 else "slower" if low > 1 else "not significant"
    return f"{ratio:.3f}", f"{low:.3f} to {high:.3f}", word


def _section_table(section: str, a: dict[str, Any], b: dict[str, Any]) -> Iterator[Table]:
    keys = KEYS[section]
    left, right = ({_key(row, keys): row for row in result[section]} for result in (a, b))
    both = [key for key in left if key in right]
    if not both:
        return
    metered = any(left[key]["energy"] and right[key]["energy"] for key in both)
    columns = [*keys, "A ms", "B ms", "B / A", "interval", "B is"]
    rows = []
    for key in both:
        times = [rows_of[key]["time"] for rows_of in (left, right)]
        row = [str(part) for part in key]
        row += [number(time["median_s"] * 1e3) for time in times]
        row += statement(times[0]["samples_s"], times[1]["samples_s"])
        rows.append(row + ([_energy_ratio(left[key], right[key])] if metered else []))
    yield Table(section, columns + ["J, B / A"] * metered, rows)


def _notes(a: dict[str, Any], b: dict[str, Any], tables: list[Table]) -> Iterator[str]:
    for name, result in (("A", a), ("B", b)):
        for problem in result["problems"]:
            yield f"{name} is not clean: {problem}"
    for key in ("processor", "board", "commit", "compiler", "system", "governors"):
        if a["machine"][key] != b["machine"][key]:
            yield f"{key} differs: {a['machine'][key]} / {b['machine'][key]}"
    kernels = [result["machine"]["tables"]["active"] for result in (a, b)]
    if kernels[0] != kernels[1]:
        yield f"kernels differ: {kernels[0]} / {kernels[1]}"
    if a["energy"].get("total") != b["energy"].get("total"):
        yield "the meters or their rails differ: energy ratios mean nothing"
    rows = sum(len(table.rows) for table in tables)
    for name, result in (("A", a), ("B", b)):
        alone = sum(len(result[section]) for section in SECTIONS) - rows
        if alone:
            yield f"{alone} rows are in {name} alone"


def _key(row: dict[str, Any], keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(", ".join(row[key]) if key == "names" else row[key] for key in keys)


def _energy_ratio(a: dict[str, Any], b: dict[str, Any]) -> str:
    if not a["energy"] or not b["energy"] or not a["energy"]["joules"]:
        return ""
    return f"{b['energy']['joules'] / a['energy']['joules']:.3f}"
