"""Which meters this machine has, best first, and why the others cannot be used."""

from collections.abc import Callable
from dataclasses import dataclass

from intattention.energy.apple import PowermetricsMeter, ZeusMeter
from intattention.energy.hwmon import BatteryMeter, HwmonMeter
from intattention.energy.ina3221 import Ina3221Meter
from intattention.energy.meter import Meter, MeterError
from intattention.energy.rapl import RaplMeter
from intattention.energy.raspberry_pi import RaspberryPiMeter

READERS: dict[str, Callable[[], Meter]] = {
    "ina3221": Ina3221Meter,
    "rapl": RaplMeter,
    "zeus_apple_silicon": ZeusMeter,
    "powermetrics": PowermetricsMeter,
    "raspberry_pi": RaspberryPiMeter,
    "hwmon": HwmonMeter,
    "power_supply": BatteryMeter,
}


@dataclass
class Found:
    """A reader's meter, or the reason why there is none."""

    name: str
    meter: Meter | None
    reason: str


def find_meters() -> list[Found]:
    """Every reader, tried; the caller closes the meters."""
    found = []
    for name, reader in READERS.items():
        try:
            found.append(Found(name, reader(), ""))
        except MeterError as error:
            found.append(Found(name, None, str(error)))
    return found


def open_meter(name: str = "auto", rails: list[str] | None = None) -> Meter:
    """The named meter, or with "auto" the first that works; ``rails`` make up its total.

    MeterError: it does not work, with the reason (of every reader, for "auto"). ValueError: no such
    reader or rail.
    """
    if name == "auto":
        return _first(rails)
    if name not in READERS:
        raise ValueError(f"no meter is called {name!r}; there are auto, {', '.join(READERS)}")
    if name == "hwmon":
        return HwmonMeter(rails=rails)
    meter = READERS[name]()
    if rails:
        meter.choose_total(rails)
    return meter


def _first(rails: list[str] | None) -> Meter:
    reasons = []
    for name in READERS:
        try:
            return open_meter(name, rails)
        except MeterError as error:
            reasons.append(f"{name}: {error}")
    raise MeterError(f"no energy meter ({'; '.join(reasons)})")
