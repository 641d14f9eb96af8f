"""Raspberry Pi 5: the rails of its power chip, from ``vcgencmd pmic_read_adc``.

Lines come in pairs, "VDD_CORE_A current(7)=0.81A" and "VDD_CORE_V volt(15)=0.90V". The input
(EXT5V_V) has a voltage only, so the total is the sum of the rails: less than the supply gives by
what the chip loses and by USB, which the 5 V feeds directly.
"""

import re
import shutil
import subprocess
from collections.abc import Callable

from intattention.energy.meter import Meter, MeterError

LINE = re.compile(r"^\s*(\w+)_([AV]) (?:current|volt)\(\d+\)=([0-9.]+)[AV]\s*$")
TIMEOUT_S = 5


class RaspberryPiMeter(Meter):
    name = "raspberry_pi"
    kind = "power"
    method = (
        "Raspberry Pi 5 power chip (vcgencmd pmic_read_adc, V x A by rail), integrated over "
        "time: the rails after the chip; not USB and not the supply's loss"
    )
    interval_s = 0.1  # each read starts a process

    def __init__(self, run: Callable[[], str] | None = None) -> None:
        """MeterError: no vcgencmd, or one that knows no rail currents (a Pi before the 5)."""
        self._run = run or run_vcgencmd
        self.rails = self.total = tuple(self.read())

    def read(self) -> dict[str, float]:
        return rail_watts(self._run())


def rail_watts(text: str) -> dict[str, float]:
    """Output of ``vcgencmd pmic_read_adc`` -> watts of the rails with voltage and current."""
    values: dict[str, dict[str, float]] = {"A": {}, "V": {}}
    for line in text.splitlines():
        match = LINE.match(line)
        if match:
            rail, quantity, value = match.groups()
            try:
                values[quantity][rail] = float(value)
            except ValueError as error:
                raise MeterError(f"vcgencmd pmic_read_adc: {line.strip()!r}") from error
    watts = {
        rail: amperes * values["V"][rail]
        for rail, amperes in values["A"].items()
        if rail in values["V"]
    }
    if not watts:
        first = (text.strip().splitlines() or ["nothing"])[0]
        raise MeterError(f"vcgencmd pmic_read_adc tells no rail with volts and amperes: {first}")
    return watts


def run_vcgencmd() -> str:
    """MeterError where the command is missing or fails."""
    if not shutil.which("vcgencmd"):
        raise MeterError("no vcgencmd: not a Raspberry Pi, or without its tools")
    try:
        done = subprocess.run(
            ["vcgencmd", "pmic_read_adc"], capture_output=True, text=True, check=False,
            timeout=TIMEOUT_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MeterError(f"vcgencmd pmic_read_adc: {error}") from error
    if done.returncode:
        message = (done.stderr or done.stdout).strip() or f"status {done.returncode}"
        raise MeterError(f"vcgencmd pmic_read_adc failed: {message}")
    return done.stdout
