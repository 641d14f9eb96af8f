"""What every energy reader is: rails that are read, and which of them add up to the total."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Literal

from intattention.errors import IntAttentionError


class MeterError(IntAttentionError, OSError):
    """A meter that is absent, not readable, or without the rails that make up its total."""


class Meter(ABC):
    """Reads either counters (joules) or sensors (watts), by rail."""

    name: str
    kind: Literal["counter", "power"]
    method: str
    """What is read and what it covers, for the report."""
    rails: tuple[str, ...]
    """Every rail that ``read`` returns."""
    total: tuple[str, ...]
    """The rails whose sum is the total; others are parts of these, or beside them."""
    interval_s: float = 0.05
    """Reading more often than this tells nothing new."""

    @abstractmethod
    def read(self) -> dict[str, float]:
        """Rail -> joules since some moment (counter) or watts now (power). MeterError."""

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """Ends what the meter runs in the background."""

    def choose_total(self, rails: list[str]) -> None:
        """Make these rails the total. ValueError if one is unknown or named twice."""
        unknown = [rail for rail in rails if rail not in self.rails]
        if unknown:
            known = ", ".join(self.rails)
            raise ValueError(f"{self.name} has no rail {', '.join(unknown)}; it has {known}")
        if not rails or len(set(rails)) != len(rails):
            raise ValueError(f"rails {', '.join(rails) or '(none)'}: name each once")
        self.total = tuple(rails)


def read_number(path: Path) -> float:
    """The number in a sysfs file. MeterError, with the cure if it is a matter of permission."""
    try:
        text = path.read_text().strip()
    except PermissionError as error:
        raise MeterError(
            f"{path} may not be read by this user (run as root, or `sudo chmod a+r {path}`)"
        ) from error
    except OSError as error:
        raise MeterError(f"{path}: {error.strerror or error}") from error
    try:
        return float(text)
    except ValueError as error:
        raise MeterError(f"{path} holds {text!r}, not a number") from error


def read_text(path: Path) -> str:
    """Stripped text of a sysfs file, "" where it is absent or not readable."""
    try:
        return path.read_text(errors="replace").strip("\0 \n")
    except OSError:
        return ""
