"""Signs that the machine slowed itself down, as far as each system tells them."""

import platform
import re
import shutil
import subprocess
from pathlib import Path

SYS = Path("/sys")
# vcgencmd get_throttled: bits 0 to 3 hold now, 16 to 19 at some time since the start.
PI_FLAGS = ("under-voltage", "frequency capped", "throttled", "soft temperature limit")
SPEED_LIMIT = re.compile(r"CPU_Speed_Limit\s*=\s*(\d+)")

Signs = dict[str, float]


def throttle_signs(sys: Path = SYS) -> Signs:
    """Name -> how much; only a growing number means anything. Empty where nothing is told."""
    signs = {
        "CPU thermal throttle events": _sum(sys, "devices/system/cpu/cpu*/thermal_throttle/*_count")
    }
    for folder in sorted(sys.glob("class/thermal/cooling_device*")):
        kind = _text(folder / "type")
        if "cpufreq" in kind:  # "thermal-cpufreq-0": the frequency is being held down
            signs[f"cooling by {kind}"] = _number(folder / "cur_state")
    if shutil.which("vcgencmd"):
        signs |= pi_signs(_output(["vcgencmd", "get_throttled"]))
    if platform.system() == "Darwin":
        signs |= mac_signs(_output(["pmset", "-g", "therm"]))
    return signs


def pi_signs(text: str) -> Signs:
    """ "throttled=0x50005" -> a sign per flag."""
    match = re.search(r"throttled=0x([0-9a-fA-F]+)", text)
    bits = int(match[1], 16) if match else 0
    return {
        f"firmware: {name}": float((bits >> i & 1) + (bits >> (16 + i) & 1))
        for i, name in enumerate(PI_FLAGS)
    }


def mac_signs(text: str) -> Signs:
    match = SPEED_LIMIT.search(text)
    return {"macOS CPU speed limit": 100.0 - float(match[1])} if match else {}


def new_signs(before: Signs, after: Signs) -> list[str]:
    """What grew in between, or a state that held at the end."""
    return [
        f"{name} ({before.get(name, 0):g} -> {value:g})"
        for name, value in after.items()
        if value > before.get(name, 0)
    ]


def _sum(root: Path, pattern: str) -> float:
    return sum(_number(path) for path in root.glob(pattern))


def _number(path: Path) -> float:
    text = _text(path)
    return float(text) if text.isdecimal() else 0.0


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=5
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
