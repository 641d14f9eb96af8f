"""``intattention energy``: traces of external meters."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from intattention.cli_options import Debug, usage
from intattention.energy.interval import LoadEnergy, load_energy
from intattention.energy.trace import KM003C, Columns, read_trace

app = typer.Typer(help="Energy from traces of external power meters.")


@app.callback()
def _group() -> None: ...


@app.command("import")
def import_trace(
    trace: Annotated[Path, typer.Argument(metavar="TRACE.csv", help="Exported by the meter.")],
    repeats: Annotated[int, typer.Option(min=1, help="Iterations that the load consists of.")],
    columns: Annotated[
        str, typer.Option(help='E.g. "time=t,power=P" or "time=t,voltage=U,current=I".')
    ] = "",
    time_unit: Annotated[str, typer.Option(help="Of the time column: s, ms or us.")] = "s",
    interval: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="BEGIN END", help="Seconds of the load, instead of finding it."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Find the load in a trace (POWER-Z KM003C columns by default) and print J per iteration."""
    with usage():
        names = Columns.parse(columns, time_unit) if columns else KM003C
    energy = load_energy(read_trace(trace, names), repeats, interval)
    if as_json:
        typer.echo(json.dumps(asdict(energy), indent=2))
        return
    for line in _lines(energy):
        typer.echo(line)


def _lines(energy: LoadEnergy) -> list[str]:
    share = energy.uncertainty / energy.joules_per_iteration
    begin, end = energy.interval_s
    lines = [
        f"energy      {energy.joules_per_iteration:.6g} J per iteration +- "
        f"{energy.uncertainty:.2g} ({share:.1%}, k = 1, without the meter's own error)",
        f"load        {begin:.2f} to {end:.2f} s, {energy.repeats} iterations of "
        f"{energy.seconds_per_iteration * 1e3:.4g} ms, {energy.joules:.6g} J, "
        f"{energy.samples} samples",
        f"mean power  {energy.mean_power_w:.3f} W",
    ]
    if energy.idle_power_w is None:
        lines.append("idle power  none in the trace")
    else:
        lines.append(
            f"idle power  {energy.idle_power_w:.3f} W; above it "
            f"{energy.joules_above_idle_per_iteration:.6g} J per iteration"
        )
    for cut, where in ((energy.starts_under_load, "starts"), (energy.ends_under_load, "ends")):
        if cut:
            lines.append(f"note        the trace {where} under load: that edge is not in it")
    if energy.skipped_rows:
        lines.append(f"note        {energy.skipped_rows} rows without values were skipped")
    return lines
