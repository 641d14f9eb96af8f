"""Memory limits of control groups, on trees as cgroup v1 and v2 show them."""

from collections.abc import Callable
from pathlib import Path

import fake_sysfs
import pytest

from intattention import cgroup, machine

GIB = 1 << 30
UNLIMITED_V1 = 9223372036854771712
Groups = Callable[[str, dict[str, object]], None]


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Groups:
    """groups(/proc/self/cgroup, files below /sys/fs/cgroup)."""

    def write(membership: str, files: dict[str, object]) -> None:
        fake_sysfs.write(tmp_path, {"membership": membership})
        fake_sysfs.write(tmp_path / "cgroup", files)

    monkeypatch.setattr(cgroup, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(cgroup, "ROOT", tmp_path / "cgroup")
    return write


def test_none(groups: Groups) -> None:
    assert cgroup.memory_limit() is None, "no /proc/self/cgroup"
    groups("0::/", {"memory.stat": "inactive_file 5"})
    assert cgroup.memory_limit() is None, "the root group has no memory.max"
    groups("0::/a", {"a/memory.max": "max", "a/memory.current": GIB})
    assert cgroup.memory_limit() is None


def test_v2_container(groups: Groups) -> None:
    """In a namespace of its own: the group is the root. Page cache that can go does not count."""
    groups("0::/", {
        "memory.max": 4 * GIB, "memory.current": 3 * GIB,
        "memory.stat": f"anon {GIB}\ninactive_file {2 * GIB}\nactive_file 7",
    })  # fmt: skip
    assert cgroup.memory_limit() == (4 * GIB, 3 * GIB)


def test_v2_the_tightest_of_the_groups_around(groups: Groups) -> None:
    groups("0::/system.slice/our.service", {
        "system.slice/our.service/memory.max": 6 * GIB,
        "system.slice/our.service/memory.current": GIB,
        "system.slice/memory.max": 8 * GIB,
        "system.slice/memory.current": 7 * GIB,
    })  # fmt: skip
    assert cgroup.memory_limit() == (6 * GIB, GIB)


def test_v1(groups: Groups) -> None:
    """The host's path, which the container does not see; its own group is at the mount."""
    groups("9:name=systemd:/docker/12ab\n4:cpu,memory:/docker/12ab\n0::/docker/12ab", {
        "memory/memory.limit_in_bytes": 2 * GIB,
        "memory/memory.usage_in_bytes": GIB,
        "memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB // 2}",
    })  # fmt: skip
    assert cgroup.memory_limit() == (2 * GIB, GIB + GIB // 2)
    groups("4:memory:/", {"memory/memory.limit_in_bytes": UNLIMITED_V1})
    assert cgroup.memory_limit() == (UNLIMITED_V1, UNLIMITED_V1 - GIB // 2)


def test_more_than_the_limit_in_use(groups: Groups) -> None:
    groups("0::/", {"memory.max": GIB, "memory.current": GIB + 5})
    assert cgroup.memory_limit() == (GIB, 0)


def test_memory_of_the_machine_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "memory_limit", lambda: None)
    whole = machine.memory_bytes()
    assert whole is not None
    monkeypatch.setattr(cgroup, "memory_limit", lambda: (123_000, 456))
    assert machine.memory_bytes() == (123_000, 456)
    monkeypatch.setattr(cgroup, "memory_limit", lambda: (UNLIMITED_V1, UNLIMITED_V1))
    cut = machine.memory_bytes()
    assert cut is not None
    assert cut[0] == whole[0]
