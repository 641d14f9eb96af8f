"""Memory limits of the control groups that this process runs in: containers, systemd units."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class _Files:
    """Where a version of control groups keeps what is asked here."""

    limit: str
    usage: str
    reclaimable: str  # key in memory.stat: page cache that the kernel drops before it refuses


V1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
V2 = _Files("memory.max", "memory.current", "inactive_file")


def memory_limit() -> tuple[int, int] | None:
    """(limit, bytes left below it), each of the tightest group; None where nothing is limited."""
    limits = [group for folder, files in _groups() if (group := _limit(folder, files))]
    if not limits:
        return None
    return min(limit for limit, _ in limits), min(left for _, left in limits)


def _groups() -> Iterator[tuple[Path, _Files]]:
    """This process's group and those around it, as far as they are mounted here.

    In a container the path in /proc may be the host's, of which only the end or nothing exists.
    """
    for line in _read(MEMBERSHIP).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            mount, files = ROOT, V2
        elif "memory" in controllers.split(","):
            mount, files = ROOT / "memory", V1
        else:
            continue
        group = PurePosixPath(*(part for part in path.split("/") if part not in ("", "..")))
        for folder in (group, *group.parents):
            yield mount / folder, files


def _limit(folder: Path, files: _Files) -> tuple[int, int] | None:
    limit, usage = (_read(folder / name).strip() for name in (files.limit, files.usage))
    if not limit.isdecimal() or not usage.isdecimal():  # "max": none
        return None
    kept = int(usage) - _reclaimable(folder, files)
    return int(limit), max(0, int(limit) - max(0, kept))


def _reclaimable(folder: Path, files: _Files) -> int:
    for line in _read(folder / "memory.stat").splitlines():
        key, _, value = line.partition(" ")
        if key == files.reclaimable and value.isdecimal():
            return int(value)
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
