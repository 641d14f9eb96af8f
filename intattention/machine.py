"""Facts about this machine that decide speed: cores, clusters, governor, memory."""

import os
import platform
import re
import resource
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from intattention import cgroup

CPU_ROOT = Path("/sys/devices/system/cpu")
EDAC = Path("/sys/devices/system/edac/mc")


def parse_cpus(text: str) -> list[int]:
    """CPU list: "4-7,0" -> [4, 5, 6, 7, 0]. ValueError if malformed, empty or with repeats."""
    cpus: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"CPU list {text!r}: {part!r} is neither a number nor a range")
        low, high = int(first), int(last) if dash else int(first)
        if high < low or high > 4095:
            raise ValueError(f"CPU list {text!r}: {part!r} is not a range from 0 to 4095")
        cpus.extend(range(low, high + 1))
    if len(set(cpus)) != len(cpus):
        raise ValueError(f"CPU list {text!r} names a CPU twice")
    return cpus


def format_cpus(cpus: Iterable[int]) -> str:
    """[0, 4, 5, 6] -> "0,4-6"; sorted."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in ranges)


def allowed_cpus() -> list[int]:
    """The CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def clusters(cpus: Sequence[int]) -> dict[str, list[int]]:
    """CPUs grouped by capacity and top frequency, as far as the system tells them."""
    groups: dict[str, list[int]] = {}
    for cpu in cpus:
        capacity = _sysfs(cpu, "cpu_capacity")
        kilohertz = _sysfs(cpu, "cpufreq/cpuinfo_max_freq")
        facts = [f"capacity {capacity}"] if capacity else []
        if kilohertz.isdecimal():
            facts.append(f"{int(kilohertz) / 1e6:.2f} GHz")
        groups.setdefault(", ".join(facts) or "unknown speed", []).append(cpu)
    return groups


def governors(cpus: Sequence[int]) -> dict[str, list[int]]:
    """Frequency governor -> CPUs; empty where there is none (virtual machines, macOS)."""
    groups: dict[str, list[int]] = {}
    for cpu in cpus:
        governor = _sysfs(cpu, "cpufreq/scaling_governor")
        if governor:
            groups.setdefault(governor, []).append(cpu)
    return groups


def cpu_model() -> str:
    """A name for the processor, as far as the system tells."""
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Hardware", "Model") and value.strip():
            return value.strip()
    return board_model() or platform.processor() or "unknown"


def board_model() -> str:
    """The board's name from its device tree; "" where there is none (x86, macOS)."""
    return _read(Path("/proc/device-tree/model")).rstrip("\0")


def memory_type() -> str:
    """E.g. "LPDDR5", where the kernel's memory controller driver tells it; else ""."""
    types = {_read(path).strip() for path in EDAC.glob("mc*/*/dimm_mem_type")}
    return ", ".join(sorted(types - {"", "Unknown"}))


def memory_bytes() -> tuple[int, int] | None:
    """(total, available) bytes of main memory, or of what control groups leave of it to this
    process if that is less; None where /proc/meminfo is absent."""
    kibibytes: dict[str, int] = {}
    for line in _read(Path("/proc/meminfo")).splitlines():
        key, _, value = line.partition(":")
        number = value.split()[:1]
        if number and number[0].isdecimal():
            kibibytes[key] = int(number[0])
    if "MemTotal" not in kibibytes or "MemAvailable" not in kibibytes:
        return None
    total, available = kibibytes["MemTotal"] * 1024, kibibytes["MemAvailable"] * 1024
    limit, left = cgroup.memory_limit() or (total, available)
    return min(total, limit), min(available, left)


def peak_memory_bytes() -> int:
    """The largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def resident_bytes() -> int:
    """Memory of this process that is in RAM now; 0 where /proc is absent."""
    pages = _read(Path("/proc/self/statm")).split()[1:2]
    return int(pages[0]) * resource.getpagesize() if pages else 0


def format_bytes(count: int) -> str:
    """1536 -> "1.5 KiB"."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def parse_bytes(text: str) -> int:
    """ "1.5G" -> 1610612736; K, M, G, T are powers of 1024, "GiB" and "GB" the same as "G".
    ValueError if malformed or not positive."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    count = int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " ")) if found else 0
    if count < 1:
        raise ValueError(f"{text!r} is not a size, expected e.g. 512M or 2.5G")
    return count


def _sysfs(cpu: int, leaf: str) -> str:
    return _read(CPU_ROOT / f"cpu{cpu}" / leaf).strip()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
