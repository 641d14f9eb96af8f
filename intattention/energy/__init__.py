"""Energy meters behind one small interface, and the import of traces of external ones.

A reader is a file here: a ``Meter`` that knows its rails and which of them add up to the total.
Nothing is estimated: a machine without a meter has no energy figures.
"""

from intattention.energy.find import READERS, Found, find_meters, open_meter
from intattention.energy.meter import Meter, MeterError
from intattention.energy.recorder import Energy, Recorder

__all__ = [
    "READERS",
    "Energy",
    "Found",
    "Meter",
    "MeterError",
    "Recorder",
    "find_meters",
    "open_meter",
]
