"""NVIDIA Jetson: the INA3221 power monitors of the module, rails by label.

Each of a monitor's three channels has ``inN_label``, ``inN_input`` (mV) and ``currN_input`` (mA);
hwmon numbers change from start to start, labels do not (Jetson Linux Developer Guide, "Power
Monitoring"). Orin NX and Nano have VDD_IN, the module's input. AGX Orin has none: its total is
three rails. The fourth, VDDQ_VDD2_1V8AO, is left out of the sum: its input is measured at 5 V, so
VIN_SYS_5V0 is taken to feed it. The carrier board is in none of them.
"""

from dataclasses import dataclass
from pathlib import Path

from intattention.energy.meter import Meter, MeterError, read_number, read_text

ROOT = Path("/sys/bus/i2c/drivers/ina3221")
TOTALS = (
    ("VDD_IN",),
    ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"),
)
CHANNELS = (1, 2, 3)
UNCONNECTED = ("", "NC")


@dataclass(frozen=True)
class Channel:
    rail: str
    millivolts: Path
    milliamperes: Path

    def watts(self) -> float:
        return read_number(self.millivolts) * read_number(self.milliamperes) / 1e6


class Ina3221Meter(Meter):
    name = "ina3221"
    kind = "power"
    method = (
        "Jetson INA3221 monitors (hwmon, mV x mA by rail label), integrated over time: "
        "the module; not the carrier board"
    )

    def __init__(self, root: Path = ROOT) -> None:
        """MeterError: no monitor, a channel that cannot be read, or none of the known totals."""
        self._channels = list(_channels(root))
        if not self._channels:
            raise MeterError(f"no INA3221 monitor with labelled rails in {root}")
        self.rails = tuple(channel.rail for channel in self._channels)
        for total in TOTALS:
            if set(total) <= set(self.rails):
                self.total = total
                break
        else:
            known = " or ".join(" + ".join(total) for total in TOTALS)
            raise MeterError(
                f"INA3221 rails {', '.join(self.rails)}: a total needs {known}; is one missing?"
            )
        self.read()

    def read(self) -> dict[str, float]:
        return {channel.rail: channel.watts() for channel in self._channels}


def _channels(root: Path) -> list[Channel]:
    found = []
    for folder in sorted(root.glob("*/hwmon/hwmon*")):
        for number in CHANNELS:
            rail = read_text(folder / f"in{number}_label")
            if rail not in UNCONNECTED:
                paths = (folder / f"in{number}_input", folder / f"curr{number}_input")
                found.append(Channel(rail, *paths))
    return found
