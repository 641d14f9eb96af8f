"""A result for people: on the terminal, as Markdown, and as a folder with plots and one page."""

import base64
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import typer

from intattention.bench.plots import plots
from intattention.bench.result import SECTIONS, write_result
from intattention.bench.tables import Table, csv_text, tables

WIDTH = 180  # of tables that do not go to a terminal
NOTES = "spread: distance of the quartiles over the median; *: the median had not settled"
STYLE = """body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 75em;
  padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; font-size: 13px; }
td, th { border: 1px solid #ccc; padding: 2px 8px; text-align: right; white-space: nowrap; }
th { background: #f3f3f3; } img { max-width: 100%; } .problem { color: #b00020; }
div.wide { overflow-x: auto; }"""


def facts(result: dict[str, Any]) -> list[tuple[str, str]]:
    """What the figures were measured on, as (name, value) lines."""
    machine, before, after = result["machine"], result["before"], result["after"]
    cpus, memory, meter = machine["cpus"], machine["memory"], result["energy"]
    lines = [
        ("machine", ", ".join(filter(None, (machine["board"], machine["processor"])))),
        ("system", machine["system"]),
        ("CPUs", "; ".join(f"{on}: {speed}" for on, speed in cpus["clusters"].items())),
        ("threads", f"{cpus['threads']}, "
         + (f"pinned to {cpus['pinned']}" if cpus["pinned"] else "not pinned")),
        ("kernels", f"{machine['tables']['active']} ({machine['tables']['why']})"),
        ("governor", ", ".join(machine["governors"]) or "not visible"),
        ("frequency", _change(_mean(before["mhz"]), _mean(after["mhz"]), "MHz")),
        ("temperature", _change(_most(before), _most(after), "deg C, hottest zone")),
        ("memory", _memory(memory)),
        ("s8 gemm peak", _change(before["s8_peak_gmac_s"], after["s8_peak_gmac_s"], "GMAC/s")),
        ("read bandwidth", f"{result['limits']['read_gb_s']:.1f} GB/s (NumPy sum)"),
        ("software", f"intattention {machine['intattention']}, commit {machine['commit']}, "
         f"{machine['compiler']}, Python {machine['python']}"),
        ("energy", "no meter (intattention doctor says why)" if meter["meter"] is None else
         f"{meter['method']}; total {' + '.join(meter['total'])}, idle {meter['idle_w']:.2f} W"),
        ("created", result["created"]),
        ("command", "intattention " + " ".join(result["command"])),
    ]  # fmt: skip
    return [(name, value) for name, value in lines if value]


def verdict(result: dict[str, Any]) -> list[str]:
    """One line if the run is clean, else a line per problem."""
    if result["clean"]:
        return ["clean: no throttling seen, medians settled, spread below 10 %"]
    return [f"NOT CLEAN: {problem}" for problem in result["problems"]]


def print_result(result: dict[str, Any]) -> None:
    """Facts, tables and verdict on stdout."""
    for name, value in facts(result):
        typer.echo(f"{name:<15}{value}")
    print_tables(tables(result))
    typer.echo(NOTES)
    for line in verdict(result):
        typer.secho(line, fg="green" if result["clean"] else "red")


def print_tables(shown: Sequence[Table]) -> None:
    from rich.console import Console  # slow to import
    from rich.table import Table as RichTable

    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    for table in shown:
        grid = RichTable(title=table.title, title_justify="left", title_style="bold")
        for column in table.columns:
            grid.add_column(column, justify="right", overflow="fold")
        for row in table.rows:
            grid.add_row(*row)
        console.print(grid)


def write_outputs(
    result: dict[str, Any], json: Path | None, csv: Path | None, md: Path | None,
    report: Path | None,
) -> None:  # fmt: skip
    """What was asked for of a result's JSON, CSV, Markdown and report folder."""
    if json:
        write_result(result, json)
    if csv:
        filled = [section for section in SECTIONS if result[section]]
        for section in filled:
            name = csv.name if len(filled) == 1 else f"{csv.stem}-{section}{csv.suffix}"
            csv.with_name(name).write_text(csv_text(result[section]), encoding="utf-8")
    if md:
        md.write_text(markdown(result), encoding="utf-8")
    if report:
        write_report(result, report)


def markdown(result: dict[str, Any]) -> str:
    lines = ["## intattention bench", ""]
    lines += [f"- {name}: {value}" for name, value in facts(result)]
    lines += ["", *(f"**{line}**  " for line in verdict(result)), ""]
    shown = [table.markdown() for table in tables(result)]
    return "\n".join([*lines, *shown, NOTES]) + "\n"


def write_report(result: dict[str, Any], folder: Path) -> list[Path]:
    """result.json, CSV by section, report.md, the plots and index.html. BenchError without
    matplotlib, before anything is written."""
    pictures = plots(result)
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, bytes] = {"report.md": markdown(result).encode()}
    for section in SECTIONS:
        if result[section]:
            files[f"{section}.csv"] = csv_text(result[section]).encode()
    files |= pictures
    files["index.html"] = html(result, pictures).encode()
    write_result(result, folder / "result.json")
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in ("result.json", *files)]


def html(result: dict[str, Any], pictures: dict[str, bytes]) -> str:
    """One page with everything in it."""
    lines = "".join(
        f"<tr><th>{escape(name)}</th><td style='text-align:left;white-space:normal'>"
        f"{escape(value)}</td></tr>\n"
        for name, value in facts(result)
    )
    kind = "" if result["clean"] else " class='problem'"
    told = "".join(f"<p{kind}>{escape(line)}</p>\n" for line in verdict(result))
    images = "".join(
        f"<p><img alt='{escape(name)}' src='data:image/png;base64,"
        f"{base64.b64encode(png).decode()}'></p>\n"
        for name, png in pictures.items()
    )
    body = "".join(f"<div class='wide'>{table.html()}</div>\n" for table in tables(result))
    title = f"intattention on {escape(result['machine']['processor'])}"
    return (
        f"<!doctype html>\n<html lang='en'>\n<meta charset='utf-8'>\n<title>{title}</title>\n"
        f"<style>{STYLE}</style>\n<h1>{title}</h1>\n{told}{images}<table>\n{lines}</table>\n{body}"
        f"<p>{NOTES}</p>\n</html>\n"
    )


def _change(before: float | None, after: float | None, unit: str) -> str:
    return "" if before is None or after is None else f"{before:.0f} -> {after:.0f} {unit}"


def _mean(values: dict[str, float]) -> float | None:
    return sum(values.values()) / len(values) if values else None


def _most(state: dict[str, Any]) -> float | None:
    return max(state["temperatures_c"].values(), default=None)


def _memory(memory: dict[str, Any] | None) -> str:
    if not memory:
        return ""
    kind = f" {memory['type']}" if memory["type"] else ""
    return f"{memory['total_bytes'] / (1 << 30):.1f} GiB{kind}"
