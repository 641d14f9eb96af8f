"""Cutting streamed text at stop strings, without ever emitting part of one."""

from collections.abc import Sequence


def checked_stop(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """One or several stop strings as a tuple; ValueError if one is empty or not a string."""
    strings = () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)
    for string in strings:
        if not isinstance(string, str) or not string:
            raise ValueError(f"stop holds {string!r}, expected non-empty strings")
    return strings


class StopStrings:
    """Holds back text that may be the beginning of a stop string.

    ``hit`` is set once a stop string has come; what follows it is dropped.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = strings
        self._held = ""
        self.hit = False

    def push(self, text: str) -> str:
        """The text that can be emitted now; ends just before a stop string."""
        if self.hit:
            return ""
        self._held += text
        found = [i for i in (self._held.find(string) for string in self._strings) if i >= 0]
        if found:
            self.hit = True
            return self._release(min(found), keep=False)
        return self._release(len(self._held) - self._open_length(), keep=True)

    def flush(self) -> str:
        """The text that was held back, once no more will come."""
        return self._release(len(self._held), keep=False)

    def _open_length(self) -> int:
        """Length of the longest end of the held text that a stop string begins with."""
        longest = max((len(string) for string in self._strings), default=1) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(string.startswith(self._held[-length:]) for string in self._strings):
                return length
        return 0

    def _release(self, length: int, keep: bool) -> str:
        text, rest = self._held[:length], self._held[length:]
        self._held = rest if keep else ""
        return text
