"""Power sensors of Linux hwmon drivers (INA219, INA226, ...) and of batteries.

hwmon: ``powerN_input`` or ``powerN_average`` in microwatts, named by ``powerN_label`` or the
driver (Documentation/hwmon/sysfs-interface.rst). Batteries: ``power_now`` in microwatts or
``voltage_now`` x ``current_now``, and only while discharging: on mains they measure nothing of us.
"""

from pathlib import Path

from intattention.energy.meter import Meter, MeterError, read_number, read_text

HWMON = Path("/sys/class/hwmon")
POWER_SUPPLY = Path("/sys/class/power_supply")
NOT_THE_BOARD = ("amdgpu", "nouveau", "xe", "i915", "ina3221")  # GPUs; Jetson has its own reader


class HwmonMeter(Meter):
    name = "hwmon"
    kind = "power"
    method = "hwmon power sensors (powerN_input, microwatts), integrated over time"

    def __init__(self, root: Path = HWMON, rails: list[str] | None = None) -> None:
        """MeterError: no sensor; several, and ``rails`` does not say which make up the total."""
        self._sensors = _sensors(root)
        if not self._sensors:
            raise MeterError(f"no power sensor in {root}")
        self.rails = tuple(self._sensors)
        if rails is None and len(self.rails) > 1:
            raise MeterError(
                f"several hwmon power rails, which may overlap: {', '.join(self.rails)}; "
                "choose with --meter hwmon --rails"
            )
        self.choose_total(rails or list(self.rails))
        self.read()

    def read(self) -> dict[str, float]:
        return {rail: read_number(path) / 1e6 for rail, path in self._sensors.items()}


class BatteryMeter(Meter):
    name = "power_supply"
    kind = "power"
    method = "battery discharge (power_supply class), integrated over time: the whole machine"
    interval_s = 0.25

    def __init__(self, root: Path = POWER_SUPPLY) -> None:
        """MeterError: no battery, or none that discharges."""
        batteries = [path for path in sorted(root.glob("*")) if _is_battery(path)]
        if not batteries:
            raise MeterError(f"no battery in {root}")
        self._batteries = {path.name: path for path in batteries}
        self.rails = self.total = tuple(self._batteries)
        self.read()

    def read(self) -> dict[str, float]:
        states = {name: read_text(path / "status") for name, path in self._batteries.items()}
        if "Discharging" not in states.values():
            told = ", ".join(f"{name} is {state or 'unknown'}" for name, state in states.items())
            raise MeterError(f"{told}: a battery tells only what it gives; unplug the supply")
        return {
            name: _battery_watts(path) if states[name] == "Discharging" else 0.0
            for name, path in self._batteries.items()
        }


def _sensors(root: Path) -> dict[str, Path]:
    sensors: dict[str, Path] = {}
    for folder in sorted(root.glob("hwmon*")):
        driver = read_text(folder / "name") or folder.name
        if driver in NOT_THE_BOARD:
            continue
        for path in sorted([*folder.glob("power*_input"), *folder.glob("power*_average")]):
            label = read_text(folder / f"{path.name.partition('_')[0]}_label")
            rail = _unused(f"{driver} {label}".strip(), sensors)
            sensors[rail] = path
    return sensors


def _unused(rail: str, taken: dict[str, Path]) -> str:
    if rail not in taken:
        return rail
    return next(name for i in range(2, 1000) if (name := f"{rail} {i}") not in taken)


def _is_battery(path: Path) -> bool:
    """Of the machine: the battery of a mouse has scope "Device"."""
    return read_text(path / "type") == "Battery" and read_text(path / "scope") != "Device"


def _battery_watts(path: Path) -> float:
    if (path / "power_now").exists():
        return abs(read_number(path / "power_now")) / 1e6
    return abs(read_number(path / "voltage_now") * read_number(path / "current_now")) / 1e12
