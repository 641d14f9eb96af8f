"""Typed access to a checkpoint's metadata; what is missing or absurd is said with its value.

A null of a JSON file is the same as no value.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import numpy as np

from intattention.errors import ModelFileError


class Metadata:
    """Reads keys as ints, floats, strings and lists. Every failure is a ModelFileError."""

    def __init__(self, path: Path, values: Mapping[str, object]) -> None:
        """``path``: what messages name."""
        self.path = path
        self.values = values

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """An int in low..high; ``default`` (unchecked) if the key is absent."""
        if default is not None and self.values.get(key) is None:
            return default
        value = self._get(key, None)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self._fail(key, value, f"an integer from {low} to {high}")
        return value

    def real(self, key: str, low: float, high: float, default: float | None = None) -> float:
        """A finite number in low..high; ``default`` (unchecked) if the key is absent."""
        if default is not None and self.values.get(key) is None:
            return default
        value = self._get(key, None)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            self._fail(key, value, "a number")
        if not (math.isfinite(value) and low <= value <= high):
            self._fail(key, value, f"a number from {low:g} to {high:g}")
        return float(value)

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._get(key, default)
        if not isinstance(value, str):
            self._fail(key, value, "a string")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """A boolean."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            self._fail(key, value, "a boolean")
        return value

    def texts(self, key: str) -> list[str]:
        """A list of strings."""
        value = self._get(key, None)
        if not isinstance(value, list):
            self._fail(key, value, "a list of strings")
        return value

    def integers(self, key: str) -> list[int]:
        """A list of integers."""
        value = self._get(key, None)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu":
            self._fail(key, value, "a list of integers")
        result: list[int] = value.tolist()
        return result

    def numbers(self, key: str) -> list[float]:
        """A list of numbers as GGUF stores it."""
        value = self._get(key, None)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf":
            self._fail(key, value, "a list of numbers")
        result: list[float] = value.tolist()
        return result

    def reals(self, key: str, low: float, high: float) -> list[float]:
        """A list of finite numbers in low..high."""
        values = self._get(key, None)
        if not isinstance(values, list):
            self._fail(key, values, "a list of numbers")
        items = Metadata(self.path, {f"{key}[{i}]": value for i, value in enumerate(values)})
        return [items.real(item, low, high) for item in items.values]

    def _get(self, key: str, default: object) -> object:
        value = self.values.get(key)
        value = default if value is None else value
        if value is None:
            raise ModelFileError(f"{self.path}: the metadata key {key} is missing")
        return value

    def _fail(self, key: str, value: object, expected: str) -> NoReturn:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:60] + "..."
        raise ModelFileError(f"{self.path}: {key} is {shown}, expected {expected}")
