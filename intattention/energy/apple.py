"""Apple silicon: ``zeus-apple-silicon`` where installed (no root), else ``powermetrics`` (root).

Both tell what macOS models for the chip, not what a meter at the plug would show: compare figures
of one machine with one another. powermetrics prints blocks, each the mean over the time since
the last: "*** Sampled system activity (...) (503.17ms elapsed) ***", "CPU Power: 823 mW".
"""

import importlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import threading
from collections.abc import Iterable
from typing import Any

from intattention.energy.meter import Meter, MeterError

PERIOD_MS = 100
COMMAND = ["powermetrics", "--samplers", "cpu_power", "-i", str(PERIOD_MS), "-b", "1"]
FIRST_BLOCK_S = 10
ELAPSED = re.compile(r"\(([0-9.]+)ms elapsed\)")
POWER = re.compile(r"^(CPU|GPU|ANE|DRAM) Power: ([0-9.]+) ?(m?W)\s*$")
ZEUS_RAILS = {"cpu": "cpu_total_mj", "dram": "dram_mj", "gpu": "gpu_mj", "ane": "ane_mj"}


class ZeusMeter(Meter):
    name = "zeus_apple_silicon"
    kind = "counter"
    method = (
        "Apple's energy model of the chip (IOReport through zeus-apple-silicon): "
        "CPU and memory; not display, storage or supply"
    )

    def __init__(self, monitor: Any = None) -> None:
        """MeterError: the package is not installed, or the chip tells no CPU energy."""
        if monitor is None:
            if not importlib.util.find_spec("zeus_apple_silicon"):
                raise MeterError("zeus-apple-silicon is not installed")
            monitor = importlib.import_module("zeus_apple_silicon").AppleEnergyMonitor()
        self._monitor = monitor
        self._first = self._millijoules()
        self.rails = tuple(self._first)
        if "cpu" not in self.rails:
            raise MeterError("zeus-apple-silicon tells no CPU energy on this chip")
        self.total = tuple(rail for rail in ("cpu", "dram") if rail in self.rails)

    def read(self) -> dict[str, float]:
        now = self._millijoules()
        return {rail: (now[rail] - first) / 1e3 for rail, first in self._first.items()}

    def _millijoules(self) -> dict[str, float]:
        try:
            metrics = self._monitor.get_cumulative_energy()
        except Exception as error:  # the extension documents no types
            raise MeterError(f"zeus-apple-silicon: {error}") from error
        values = {rail: getattr(metrics, field, None) for rail, field in ZEUS_RAILS.items()}
        return {rail: float(value) for rail, value in values.items() if value is not None}


class BlockParser:
    """Adds up the joules of powermetrics' blocks, line by line."""

    def __init__(self) -> None:
        self.joules: dict[str, float] = {}
        self._seconds = 0.0

    def feed(self, line: str) -> None:
        elapsed = ELAPSED.search(line)
        if elapsed:
            self._seconds = float(elapsed.group(1)) / 1e3
            return
        power = POWER.match(line.strip())
        if power:
            rail, value, unit = power.groups()
            watts = float(value) * (1e-3 if unit == "mW" else 1.0)
            self.joules[rail.lower()] = self.joules.get(rail.lower(), 0.0) + watts * self._seconds


class PowermetricsMeter(Meter):
    name = "powermetrics"
    kind = "counter"
    method = (
        f"powermetrics cpu_power, blocks of {PERIOD_MS} ms added up (Apple's model of the chip): "
        "CPU; not memory, display or supply"
    )
    interval_s = PERIOD_MS / 1e3

    def __init__(self) -> None:
        """MeterError: not macOS, not root, or no block within 10 s."""
        if platform.system() != "Darwin" or not shutil.which("powermetrics"):
            raise MeterError("no powermetrics: not macOS")
        if os.geteuid() != 0:
            raise MeterError(
                "powermetrics needs root (sudo), or pip install zeus-apple-silicon, which does not"
            )
        self._parser = BlockParser()
        self._complete = threading.Event()
        self._process = subprocess.Popen(
            COMMAND, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        threading.Thread(target=self._follow, args=(self._process.stdout,), daemon=True).start()
        if not self._complete.wait(FIRST_BLOCK_S) or "cpu" not in self._parser.joules:
            self.close()
            raise MeterError(f"powermetrics printed no CPU power within {FIRST_BLOCK_S} s")
        self.rails = tuple(self._parser.joules)
        self.total = ("cpu",)

    def read(self) -> dict[str, float]:
        if self._process.poll() is not None:
            raise MeterError(f"powermetrics ended with status {self._process.returncode}")
        return dict(self._parser.joules)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _follow(self, lines: Iterable[str]) -> None:
        for line in lines:
            if ELAPSED.search(line) and self._parser.joules:
                self._complete.set()
            self._parser.feed(line)
