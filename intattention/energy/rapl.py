"""x86 RAPL: energy counters of the processor packages and the memory (Linux powercap).

Documentation/power/powercap/powercap.rst: ``energy_uj`` counts microjoules up to
``max_energy_range_uj`` and starts again at 0. Zones ``intel-rapl:P`` are packages (or "psys", the
platform); ``intel-rapl:P:S`` their parts, of which only "dram" lies outside the package's figure.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from intattention.energy.meter import Meter, MeterError, read_number, read_text

ROOT = Path("/sys/class/powercap")
IN_TOTAL = re.compile(r"package-[^ ]+|.* dram")


@dataclass
class Zone:
    """One counter, unwrapped: right as long as it is read once per turn of the counter."""

    rail: str
    energy: Path
    range_uj: float
    last_uj: float
    joules: float = 0.0

    def advance(self) -> float:
        now = read_number(self.energy)
        step = now - self.last_uj
        self.joules += (step if step >= 0 else step + self.range_uj) / 1e6
        self.last_uj = now
        return self.joules


class RaplMeter(Meter):
    """A turn takes a package of 100 W some 40 minutes; the recorder reads far more often."""

    name = "rapl"
    kind = "counter"
    method = (
        "Intel/AMD RAPL energy counters (powercap energy_uj), wrap-around undone: "
        "processor packages and, where present, memory; not the board or the supply"
    )

    def __init__(self, root: Path = ROOT) -> None:
        """MeterError: no zones, or energy_uj not readable (root only since Linux 5.10)."""
        folders = sorted(root.glob("intel-rapl:*")) if root.is_dir() else []
        if not folders:
            raise MeterError(f"no RAPL zones in {root}")
        self._zones = [self._zone(folder) for folder in folders]
        self.rails = tuple(zone.rail for zone in self._zones)
        self.total = tuple(rail for rail in self.rails if IN_TOTAL.fullmatch(rail))
        if not self.total:
            raise MeterError(f"RAPL zones {', '.join(self.rails)}: no package among them")

    def read(self) -> dict[str, float]:
        return {zone.rail: zone.advance() for zone in self._zones}

    def _zone(self, folder: Path) -> Zone:
        name = read_text(folder / "name")
        if not name:
            raise MeterError(f"{folder / 'name'} is empty or missing")
        if folder.name.count(":") == 2:  # a part: "package-0 core"
            name = f"{read_text(folder.with_name(folder.name.rpartition(':')[0]) / 'name')} {name}"
        energy = folder / "energy_uj"
        span = read_number(folder / "max_energy_range_uj")
        return Zone(name, energy, span, read_number(energy))
