"""Everything about this machine and build that a figure depends on, as JSON takes it."""

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import intattention
from intattention import _core, machine


def machine_facts(threads: int, cpus: list[int] | None) -> dict[str, Any]:
    """``threads`` and ``cpus`` as for a thread pool. ValueError, as that has it."""
    allowed = machine.allowed_cpus()
    pool = _core.ThreadPool(threads, cpus)
    memory = machine.memory_bytes()
    return {
        "intattention": intattention.__version__,
        "commit": commit(),
        "compiler": _core.compiler,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.release()} on {platform.machine()}",
        "processor": machine.cpu_model(),
        "board": machine.board_model() or None,
        "features": _core.cpu_features(),
        "tables": {
            "built": _core.built_isas(),
            "runnable": _core.available_isas(),
            "active": _core.active_isa(),
            "why": why_active(os.environ),
        },
        "kernels": _core.kernel_names(),
        "cpus": {
            "usable": machine.format_cpus(allowed),
            "clusters": {
                machine.format_cpus(members): speed
                for speed, members in machine.clusters(allowed).items()
            },
            "performance": machine.format_cpus(_core.performance_cpus()),
            "threads": pool.threads,
            "pinned": machine.format_cpus(pool.cpus),
        },
        "governors": {
            name: machine.format_cpus(on) for name, on in machine.governors(allowed).items()
        },
        "memory": memory
        and {
            "total_bytes": memory[0],
            "available_bytes": memory[1],
            "type": machine.memory_type() or None,
        },
    }


def why_active(environment: Mapping[str, str]) -> str:
    """Why the active kernel table is in use."""
    active = _core.active_isa()
    if active == _core.available_isas()[0]:
        return "the best that this CPU can run"
    if environment.get("INTATTENTION_ISA") == active:
        return "forced by INTATTENTION_ISA"
    return "forced by --isa or use_isa()"


def governor_advice(governors: Mapping[str, str]) -> str:
    """What to do before measuring, "" if nothing: a governor ramps up late and unevenly."""
    slow = [name for name in governors if name != "performance"]
    if not slow:
        return ""
    return (
        f"{', '.join(slow)} changes frequencies while you measure; echo performance | "
        "sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    )


def commit() -> str:
    """Of the source tree that the package is part of; "unknown" for an installed one."""
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():
        return "unknown"
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return result.stdout.strip() or "unknown"
