"""Tables of a result, once for the terminal, Markdown, CSV and HTML."""

import csv
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

from intattention.bench.conditions import spread

Row = dict[str, Any]
Column = tuple[str, Callable[[Row], str]]
# What speed-ups are against: the first of these that was measured.
BASES = ("fp16", "fp32", "torch fp32")


@dataclass(frozen=True)
class Table:
    """Cells are formatted text."""

    title: str
    columns: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        lines = [f"### {self.title}", "", "| " + " | ".join(self.columns) + " |"]
        lines.append("|" + "---|" * len(self.columns))
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join(lines) + "\n"

    def html(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n"
            for row in self.rows
        )
        return f"<h2>{escape(self.title)}</h2>\n<table>\n<tr>{head}</tr>\n{body}</table>\n"


def tables(result: dict[str, Any]) -> list[Table]:
    """One per section that has rows."""
    builders = (attention_table, llm_table, linear_table)
    built = [build(result) for build in builders]
    return [table for table in built if table.rows]


def attention_table(result: dict[str, Any]) -> Table:
    rows, peak = result["attention"], result["limits"]["s8_peak_gmac_s"]
    base = base_pipeline(rows)
    bases = {
        attention_case(row): row["time"]["median_s"] for row in rows if row["pipeline"] == base
    }

    def speedup(row: Row) -> str:
        seconds = bases.get(attention_case(row))
        return f"{seconds / row['time']['median_s']:.2f} x" if seconds else ""

    columns: list[Column] = [
        ("keys", lambda row: f"{row['length']:,}"),
        ("d", lambda row: str(row["d"])),
        ("heads", lambda row: f"{row['heads']}/{row['kv_heads']}"),
        ("mask", lambda row: "causal" if row["causal"] else "full"),
        ("threads", lambda row: str(row["threads"])),
        ("pipeline", lambda row: row["pipeline"]),
        ("ms", lambda row: number(row["time"]["median_s"] * 1e3)),
        ("spread", _spread),
        ("GMAC/s", lambda row: f"{row['gmac_s']:.1f}"),
        ("of s8 peak", lambda row: f"{row['gmac_s'] / peak:.0%}"),
        (f"speed-up over {base}", speedup),
        ("error", lambda row: f"{row['error']:.1e}"),
        ("qk / softmax / pv", _shares),
    ]
    columns += energy_columns(rows, lambda row: row["length"])
    return _table("Attention", columns, rows)


def llm_table(result: dict[str, Any]) -> Table:
    rows, bandwidth = result["llm"], result["limits"]["read_gb_s"]
    columns: list[Column] = [
        ("model", lambda row: row["model"]),
        ("threads", lambda row: str(row["threads"])),
        ("test", lambda row: f"{row['test']}{row['tokens']}"),
        ("tokens before", lambda row: f"{row['depth']:,}"),
        ("tok/s", lambda row: f"{row['tok_s']:.1f}"),
        ("spread", _spread),
        ("GB/s", lambda row: _optional(row["gb_s"], ".1f")),
        ("of read bandwidth", lambda row: _optional(row["gb_s"], ".0%", bandwidth)),
    ]
    columns += energy_columns(rows, lambda row: row["tokens"])
    return _table("Whole models", columns, rows)


def linear_table(result: dict[str, Any]) -> Table:
    rows, limits = result["linear"], result["limits"]
    columns: list[Column] = [
        ("linear", lambda row: ", ".join(row["names"])),
        ("inputs", lambda row: f"{row['k']:,}"),
        ("outputs", lambda row: f"{row['n']:,}"),
        ("format", lambda row: row["format"]),
        ("rows", lambda row: str(row["m"])),
        ("threads", lambda row: str(row["threads"])),
        ("us", lambda row: number(row["time"]["median_s"] * 1e6)),
        ("spread", _spread),
        ("GB/s", lambda row: _optional(row["gb_s"], ".1f")),
        ("of read bandwidth", lambda row: "in cache" if row["in_cache"]
         else _optional(row["gb_s"], ".0%", limits["read_gb_s"])),
        ("GOP/s", lambda row: _optional(row["gop_s"], ".0f")),
        ("of s8 peak", lambda row: _optional(row["gop_s"], ".0%", 2 * limits["s8_peak_gmac_s"])),
    ]  # fmt: skip
    columns += energy_columns(rows, lambda row: row["m"])
    return _table("Linears", columns, rows)


def energy_columns(rows: list[Row], tokens: Callable[[Row], int]) -> list[Column]:
    """None if nothing was metered."""
    if not any(row["energy"] for row in rows):
        return []

    def cell(row: Row, key: str, share: float = 1.0) -> str:
        return number(row["energy"][key] * 1e3 / share) if row["energy"] else ""

    return [
        ("mJ", lambda row: cell(row, "joules")),
        ("mJ above idle", lambda row: cell(row, "joules_above_idle")),
        ("mJ/token", lambda row: cell(row, "joules", tokens(row))),
        ("W", lambda row: f"{row['energy']['watts']:.2f}" if row["energy"] else ""),
    ]


def base_pipeline(rows: Iterable[Row]) -> str:
    """What the others are compared with: the first of BASES, or whatever came first."""
    measured = list(dict.fromkeys(row["pipeline"] for row in rows))
    return next((name for name in BASES if name in measured), measured[0] if measured else "")


def attention_case(row: Row) -> tuple[Any, ...]:
    """Everything but the pipeline."""
    return tuple(row[key] for key in ("length", "d", "heads", "kv_heads", "causal", "threads"))


def number(value: float) -> str:
    """Four digits, never an exponent."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def csv_text(rows: list[Row]) -> str:
    """Raw values; nested ones get dotted names, lists are left out but for names."""
    flat = [dict(_flatten(row)) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


def _flatten(row: Row, prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        elif name == "names":
            yield f"{prefix}{name}", ", ".join(value)
        elif not isinstance(value, list):
            yield f"{prefix}{name}", value


def _table(title: str, columns: list[Column], rows: list[Row]) -> Table:
    cells = [[cell(row) for _, cell in columns] for row in rows]
    return Table(title, [name for name, _ in columns], cells)


def _spread(row: Row) -> str:
    return f"{spread(row['time']):.1%}" + ("" if row["time"]["settled"] else " *")


def _shares(row: Row) -> str:
    share = row["share"] or {}
    return " / ".join(f"{share[name]:.0%}" for name in ("qk", "softmax", "pv") if name in share)


def _optional(value: float | None, form: str, unit: float = 1.0) -> str:
    return "" if value is None else format(value / unit, form)
