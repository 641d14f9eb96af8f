"""CSV traces of external power meters: POWER-Z KM003C as it exports, others by a column map."""

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from intattention.errors import IntAttentionError

TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
FIELDS = ("time", "power", "voltage", "current")


class TraceError(IntAttentionError, ValueError):
    """A trace that is malformed, or in which nothing can be measured."""


@dataclass(frozen=True)
class Columns:
    """Column names. Power in watts, or volts and amperes; time in ``time_unit``."""

    time: str
    power: str = ""
    voltage: str = ""
    current: str = ""
    time_unit: str = "s"

    @classmethod
    def parse(cls, text: str, time_unit: str = "s") -> "Columns":
        """"time=t,power=P" or "time=t,voltage=U,current=I". ValueError."""  # fmt: skip
        pairs = dict.fromkeys(FIELDS, "")
        for part in text.split(","):
            field, equals, column = part.partition("=")
            if field.strip() not in FIELDS or not equals or not column.strip():
                raise ValueError(f"columns {text!r}: {part!r} is not one of {'=, '.join(FIELDS)}=")
            pairs[field.strip()] = column.strip()
        if not pairs["time"] or not (pairs["power"] or (pairs["voltage"] and pairs["current"])):
            raise ValueError(f"columns {text!r}: give time and power, or time, voltage and current")
        if time_unit not in TIME_UNITS:
            raise ValueError(f"time unit {time_unit!r} is none of {', '.join(TIME_UNITS)}")
        return cls(**pairs, time_unit=time_unit)


# ElapsedTime is formatted differently from export to export; Unix holds seconds.
KM003C = Columns(time="Unix", power="PWR")


@dataclass(frozen=True)
class Trace:
    """Seconds (increasing) and watts; ``skipped`` rows had no values at all in these columns."""

    seconds: NDArray[np.float64]
    watts: NDArray[np.float64]
    skipped: int

    @property
    def sample_s(self) -> float:
        return float(np.median(np.diff(self.seconds)))


def read_trace(path: Path, columns: Columns = KM003C) -> Trace:
    """TraceError: a missing column, a cell that is no number, time that does not increase, or fewer
    than ten samples; the line is named."""
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        try:
            rows = list(_rows(csv.reader(file), path, columns))
        except csv.Error as error:
            raise TraceError(f"{path}: {error}") from error
    values = [row for row in rows if row is not None]
    if len(values) < 10:
        raise TraceError(f"{path}: {len(values)} samples; that is not a trace")
    seconds, watts = (np.array(column) for column in zip(*values, strict=True))
    return Trace(seconds, watts, len(rows) - len(values))


def _rows(
    reader: "Iterator[list[str]]", path: Path, columns: Columns
) -> Iterator[tuple[float, float] | None]:
    """(seconds, watts) of each row, None for one without values."""
    header = [name.strip() for name in next(reader, [])]
    wanted = [columns.time, columns.power or columns.voltage]
    if not columns.power:
        wanted.append(columns.current)
    missing = [name for name in wanted if name not in header]
    if missing:
        raise TraceError(
            f"{path}: no column {', '.join(missing)} among {', '.join(filter(None, header))}"
            " (name them with --columns)"
        )
    places = [header.index(name) for name in wanted]
    unit, last = TIME_UNITS[columns.time_unit], -math.inf
    for line, row in enumerate(reader, 2):
        cells = [row[place].strip() if place < len(row) else "" for place in places]
        if not any(cells):
            yield None
            continue
        time, *rest = (_number(cell, path, line) for cell in cells)
        if not time * unit > last:
            raise TraceError(f"{path}, line {line}: time {time:g} does not increase")
        last = time * unit
        yield last, math.prod(rest)


def _number(cell: str, path: Path, line: int) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise TraceError(f"{path}, line {line}: {cell!r} is not a number")
    return value
