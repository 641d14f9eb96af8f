"""Keeps control tokens that other people's text spells out from being taken for control tokens."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

PRIVATE_USE = range(0xE000, 0xF900)


class ControlGuard:
    """Breaks up control tokens in strings with a mark, a character that occurs nowhere else.

    A chat template may then write its own control tokens around the strings: what is still whole
    in the rendered text is the template's. ``guarded`` texts hold marks; ``plain`` removes them.
    """

    def __init__(self, control_tokens: Iterable[str]) -> None:
        tokens = sorted(filter(None, control_tokens), key=len, reverse=True)
        prefixes = {token[:i] for token in tokens for i in range(1, len(token))}
        longest_first = sorted(prefixes, key=len, reverse=True)
        # Within a token; and where a string ends with the beginning of one, which the next string
        # might complete. Templates strip white space.
        self._whole = re.compile("|".join(map(re.escape, tokens)) or "(?!)")
        self._open = re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})(?=\\s*$)")
        self._mark = ""

    def protect(self, value: Any) -> Any:
        """``value`` (JSON) with marks in its strings; picks a mark that they do not hold."""
        used = set("".join(_strings(value)))
        self._mark = next(chr(code) for code in PRIVATE_USE if chr(code) not in used)
        return self._protected(value)

    def guarded(self, text: str) -> bool:
        return self._mark in text

    def plain(self, text: str) -> str:
        return text.replace(self._mark, "")

    def _protected(self, value: Any) -> Any:
        if isinstance(value, str):
            text = self._whole.sub(lambda found: found[0][0] + self._mark + found[0][1:], value)
            return self._open.sub(lambda found: found[0] + self._mark, text)
        if isinstance(value, Mapping):
            return {self._protected(key): self._protected(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._protected(item) for item in value]
        return value


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)
