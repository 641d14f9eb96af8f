"""Plots of a result as PNG: one question each, log axes, one panel per shape."""

import importlib.util
import io
import math
from collections.abc import Callable, Iterator
from typing import Any

from intattention.bench.errors import BenchError
from intattention.bench.tables import attention_case, base_pipeline

Row = dict[str, Any]
# One colour and marker per pipeline in every plot (Okabe and Ito's palette, safe for colour-blind).
STYLES = {
    "index": ("#D55E00", "o", "IntAttention, ours (index)"),
    "paper": ("#E69F00", "s", "IntAttention, paper"),
    "quant_only": ("#009E73", "^", "Quant-Only"),
    "fp16": ("#0072B2", "D", "FP16"),
    "fp32": ("#56B4E9", "v", "FP32"),
    "torch fp32": ("#999999", "x", "torch SDPA fp32"),
    "torch bf16": ("#555555", "+", "torch SDPA bf16"),
}
STAGES = {"qk": "#0072B2", "softmax": "#D55E00", "pv": "#009E73", "other": "#BBBBBB"}
FORMATS = {"w4g32": "#0072B2", "w4g32a": "#009E73", "w8g32": "#D55E00"}
DPI = 110
MOST_ACROSS = 3


def plots(result: dict[str, Any]) -> dict[str, bytes]:
    """File name -> PNG, for what was measured. BenchError without matplotlib."""
    require_matplotlib()
    from matplotlib.figure import Figure

    return {name: png(figure) for name, figure in _figures(result, Figure)}


def require_matplotlib() -> None:
    """BenchError where it is not installed."""
    if not importlib.util.find_spec("matplotlib"):
        raise BenchError("plots need matplotlib: pip install 'intattention[bench]'")


def _figures(result: dict[str, Any], new: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    attention, llm, linear = (result[section] for section in ("attention", "llm", "linear"))
    if attention:
        yield "latency.png", by_length(new, attention, "Latency", "ms", _milliseconds)
        yield (
            "gmacs.png",
            by_length(new, attention, "Throughput", "GMAC/s", lambda row: row["gmac_s"]),
        )
        base = base_pipeline(attention)
        if len({row["pipeline"] for row in attention}) > 1:
            title = f"Speed-up over {STYLES[base][2]}"
            yield (
                "speedup.png",
                by_length(new, attention, title, "x", _speedup(attention, base), False),
            )
        if any(row["share"] for row in attention):
            yield "stages.png", stages(new, attention)
        if any(row["energy"] for row in attention):
            yield "energy.png", by_length(new, attention, "Energy per call", "J", _joules)
    if llm:
        yield "llm.png", llm_figure(new, llm)
    if linear:
        yield "linear.png", linear_figure(new, linear, result["limits"])


def by_length(
    new: Callable[..., Any], rows: list[Row], title: str, unit: str,
    value: Callable[[Row], float | None], log: bool = True,
) -> Any:  # fmt: skip
    """A panel per shape, a line per pipeline, both axes logarithmic unless told otherwise."""
    panels = _panels(rows)
    figure, axes = _grid(new, len(panels))
    for axis, (name, members) in zip(axes, panels.items(), strict=True):
        for pipeline in STYLES:
            points = [(row["length"], value(row)) for row in members if row["pipeline"] == pipeline]
            points = [(length, y) for length, y in points if y is not None]
            if points:
                colour, marker, label = STYLES[pipeline]
                axis.plot(*zip(*points, strict=True), color=colour, marker=marker, label=label,
                          linewidth=2.6 if pipeline == "index" else 1.6)  # fmt: skip
        axis.set_yscale("log" if log else "linear")
        _length_axis(axis, sorted({row["length"] for row in members}))
        axis.set_title(name, fontsize=11)
    figure.supylabel(unit, fontsize=11)
    if log:
        _plain_numbers(axes[0])
    else:
        axes[0].set_ylim(bottom=0)
    _legend(figure, axes[0])
    figure.suptitle(title, fontsize=13)
    return figure


def stages(new: Callable[..., Any], rows: list[Row]) -> Any:
    """Where the index pipeline's time goes, a stacked bar per length."""
    panels = _panels([row for row in rows if row["share"]])
    figure, axes = _grid(new, len(panels))
    for axis, (name, members) in zip(axes, panels.items(), strict=True):
        labels = [f"{row['length']:,}" for row in members]
        bottom = [0.0] * len(members)
        for stage, colour in STAGES.items():
            parts = [_stage(row["share"], stage) * 100 for row in members]
            axis.bar(labels, parts, bottom=bottom, color=colour, label=stage, width=0.7)
            for x, (low, part) in enumerate(zip(bottom, parts, strict=True)):
                if part >= 6:
                    axis.text(x, low + part / 2, f"{part:.0f}", ha="center", va="center",
                              color="white" if stage != "other" else "black")  # fmt: skip
            bottom = [low + part for low, part in zip(bottom, parts, strict=True)]
        axis.set_title(name, fontsize=11)
        axis.set_xlabel("keys")
    figure.supylabel("% of the time", fontsize=11)
    _legend(figure, axes[0])
    figure.suptitle("Where the time of the index pipeline goes", fontsize=13)
    return figure


def llm_figure(new: Callable[..., Any], rows: list[Row]) -> Any:
    """Depths stand at equal distances: they begin at 0, which a log axis has not."""
    figure = new(figsize=(9.5, 4.4), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, test, title in zip(axes, ("pp", "tg"), ("Prefill", "Decode"), strict=True):
        members = [row for row in rows if row["test"] == test]
        places = {depth: i for i, depth in enumerate(sorted({row["depth"] for row in members}))}
        for model, threads in dict.fromkeys((row["model"], row["threads"]) for row in members):
            line = [row for row in members if (row["model"], row["threads"]) == (model, threads)]
            label = f"{model}, {_threads(line[0])}"
            axis.plot([places[row["depth"]] for row in line], [row["tok_s"] for row in line],
                      marker="o", linewidth=2, label=label)  # fmt: skip
        axis.set_title(f"{title}, {members[0]['tokens']} tokens", fontsize=11)
        axis.set_xticks(list(places.values()), [f"{depth:,}" for depth in places])
        axis.set_xlabel("tokens in the cache")
        axis.set_ylabel("tok/s")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    _legend(figure, axes[0])
    figure.suptitle("Whole models", fontsize=13)
    return figure


def linear_figure(new: Callable[..., Any], rows: list[Row], limits: dict[str, float]) -> Any:
    """Bars by linear and format: one row against read bandwidth, many against the s8 peak."""
    one = [row for row in rows if row["gb_s"]]
    many = [row for row in rows if row["gop_s"]]
    panels = [
        ("One row, GB/s of weights", one, "gb_s", limits["read_gb_s"]),
        ("Many rows, GOP/s", many, "gop_s", 2 * limits["s8_peak_gmac_s"]),
    ]
    panels = [panel for panel in panels if panel[1]]
    most = max(len(panel[1]) for panel in panels)
    figure = new(figsize=(7.5 * len(panels), 1.6 + 0.24 * most), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, members, key, limit) in zip(axes, panels, strict=True):
        labels = [_linear_label(row) for row in members]
        bars = [row[key] for row in members]
        axis.barh(range(len(bars)), bars, color=[FORMATS[row["format"]] for row in members])
        axis.set_yticks(range(len(bars)), labels, fontsize=8)
        axis.margins(y=0.01)
        axis.invert_yaxis()
        axis.axvline(limit, color="black", linestyle="--", linewidth=1)
        axis.set_title(f"{title} (dashed: {limit:.0f}, measured here)", fontsize=11)
        axis.grid(axis="x", alpha=0.3)
    figure.suptitle("Linears", fontsize=13)
    return figure


def png(figure: Any) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, dpi=DPI, format="png")
    return out.getvalue()


def _grid(new: Callable[..., Any], count: int) -> tuple[Any, list[Any]]:
    """A figure and its panels with a common y axis, at most MOST_ACROSS side by side."""
    across = min(count, MOST_ACROSS)
    down = math.ceil(count / across)
    figure = new(figsize=(1.5 + 4.6 * across, 1.0 + 3.4 * down), layout="constrained")
    axes = list(figure.subplots(down, across, squeeze=False, sharey=True).flat)
    for empty in axes[count:]:
        empty.set_axis_off()
    return figure, axes[:count]


def _panels(rows: list[Row]) -> dict[str, list[Row]]:
    """Title -> rows of a shape; titles name only what differs between the panels."""
    heads = {(row["heads"], row["kv_heads"]) for row in rows}
    threads = {row["threads"] for row in rows}
    panels: dict[str, list[Row]] = {}
    for row in rows:
        title = f"{'causal' if row['causal'] else 'full'}, d = {row['d']}"
        if len(heads) > 1:
            title += f", {row['heads']}/{row['kv_heads']} heads"
        if len(threads) > 1:
            title += f", {_threads(row)}"
        panels.setdefault(title, []).append(row)
    return panels


def _threads(row: Row) -> str:
    return f"{row['threads']} thread{'s' if row['threads'] > 1 else ''}"


def _length_axis(axis: Any, lengths: list[int]) -> None:
    axis.set_xscale("log", base=2)
    axis.set_xticks(lengths, [f"{n // 1024}K" if n % 1024 == 0 else str(n) for n in lengths])
    axis.minorticks_off()
    axis.set_xlabel("keys")
    axis.grid(alpha=0.3)


def _plain_numbers(axis: Any) -> None:
    """1, 2, 5, 10, ... instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def _legend(figure: Any, axis: Any) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)


def _milliseconds(row: Row) -> float:
    return float(row["time"]["median_s"]) * 1e3


def _joules(row: Row) -> float | None:
    return row["energy"] and float(row["energy"]["joules"])


def _speedup(rows: list[Row], base: str) -> Callable[[Row], float | None]:
    medians = {attention_case(row): row["time"]["median_s"] for row in rows
               if row["pipeline"] == base}  # fmt: skip

    def value(row: Row) -> float | None:
        seconds = medians.get(attention_case(row))
        return seconds / row["time"]["median_s"] if seconds else None

    return value


def _stage(share: dict[str, float], stage: str) -> float:
    return 1 - sum(share.values()) if stage == "other" else share.get(stage, 0.0)


def _linear_label(row: Row) -> str:
    more = f" +{len(row['names']) - 1}" if len(row["names"]) > 1 else ""
    rows = "" if row["m"] == 1 else f", {row['m']} rows"
    return f"{row['names'][0]}{more}, {row['format']}{rows}"
