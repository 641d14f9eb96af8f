"""What ``intattention doctor`` says: machine facts, meters, and advice."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from intattention import machine
from intattention.energy import find_meters
from intattention.machine_facts import governor_advice, machine_facts
from intattention.reports import Line


def doctor_facts(threads: int, cpus: list[int] | None) -> dict[str, Any]:
    """``machine_facts``, the meters with their rails or the reason why not, and advice."""
    facts = machine_facts(threads, cpus)
    facts["meters"] = list(meter_facts())
    advice = governor_advice(facts["governors"])
    facts["advice"] = [advice] if advice else []
    return facts


def meter_facts() -> Iterator[dict[str, Any]]:
    for found in find_meters():
        meter = found.meter
        if meter is None:
            yield {"name": found.name, "usable": False, "reason": found.reason}
            continue
        with suppress(OSError):
            meter.close()
        yield {
            "name": found.name,
            "usable": True,
            "rails": list(meter.rails),
            "total": list(meter.total),
            "method": meter.method,
        }


def doctor_lines(facts: dict[str, Any]) -> Iterator[Line]:
    """``doctor_facts`` for people."""
    yield "intattention", f"{facts['intattention']}, commit {facts['commit']}"
    yield (
        "built with",
        f"{facts['compiler']}; Python {facts['python']}, NumPy {facts['numpy']}",
    )
    yield "system", facts["system"]
    yield "processor", facts["processor"]
    if facts["board"]:
        yield "board", facts["board"]
    yield from _kernel_lines(facts)
    yield from _cpu_lines(facts)
    memory = facts["memory"]
    if memory:
        total, available = (
            machine.format_bytes(memory[f"{key}_bytes"]) for key in ("total", "available")
        )
        kind = f", {memory['type']}" if memory["type"] else ""
        yield "memory", f"{available} available of {total}{kind}"
    yield from _meter_lines(facts)
    for advice in facts["advice"]:
        yield "advice", advice


def _kernel_lines(facts: dict[str, Any]) -> Iterator[Line]:
    tables = facts["tables"]
    yield "CPU features", " ".join(facts["features"]) or "none that a kernel uses"
    yield "tables built", ", ".join(tables["built"])
    missing = [name for name in tables["built"] if name not in tables["runnable"]]
    note = f" (this CPU cannot run {', '.join(missing)})" if missing else ""
    yield "tables runnable", ", ".join(tables["runnable"]) + note
    yield "table active", f"{tables['active']}: {tables['why']}"
    for op, kernel in facts["kernels"].items():
        yield f"  {op}", kernel


def _cpu_lines(facts: dict[str, Any]) -> Iterator[Line]:
    cpus = facts["cpus"]
    yield "CPUs", f"usable: {cpus['usable']}"
    for members, speed in cpus["clusters"].items():
        yield "  cluster", f"{members}: {speed}"
    yield "performance CPUs", cpus["performance"] or "unknown"
    pinning = f"pinned to {cpus['pinned']}" if cpus["pinned"] else "not pinned"
    yield "threads", f"{cpus['threads']}, {pinning}"
    governors = "; ".join(f"{name} on {on}" for name, on in facts["governors"].items())
    yield "governor", governors or "not visible"


def _meter_lines(facts: dict[str, Any]) -> Iterator[Line]:
    usable = [meter["name"] for meter in facts["meters"] if meter["usable"]]
    yield "energy meters", ", ".join(usable) or "none: no energy figures, none are estimated"
    for meter in facts["meters"]:
        if meter["usable"]:
            yield f"  {meter['name']}", f"total {' + '.join(meter['total'])}; {meter['method']}"
        else:
            yield f"  {meter['name']}", f"no: {meter['reason']}"
