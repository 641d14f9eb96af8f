"""Guesses the next tokens from the text itself: what followed when it last went this way."""

from collections.abc import Iterable, Sequence

from intattention.answer import Answer

LONGEST, SHORTEST = 3, 2  # tokens that must be the same; one alone guesses wrong too often

MOST_GUESSES = 64


class PromptLookup:
    """Remembers every place of a text by the tokens before it.

    The guesses cost nothing but the check, in which the model computes several tokens in one pass
    over its weights; good for answers that repeat their prompt: summaries, edits, code, data.
    """

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self._ids: list[int] = []
        # n tokens -> index of the token after their latest and after their latest but one place
        self._after: dict[tuple[int, ...], tuple[int, int]] = {}
        self.extend(ids)

    def extend(self, ids: Iterable[int]) -> None:
        """Appends tokens to the text."""
        for token in ids:
            self._ids.append(token)
            end = len(self._ids)
            for n in range(SHORTEST, min(LONGEST, end) + 1):
                key = tuple(self._ids[end - n :])
                self._after[key] = end, self._after.get(key, (0, 0))[0]

    def guess(self, most: int) -> list[int]:
        """``most`` tokens that may follow the text; none where it has no precedent."""
        end = len(self._ids)
        for n in range(min(LONGEST, end), SHORTEST - 1, -1):
            before = self._after[tuple(self._ids[end - n :])][1]
            if before:  # what repeats is taken to go on repeating
                return [self._ids[before + i % (end - before)] for i in range(most)]
        return []


class Drafter:
    """The guesses for one answer, never more than it may still come to need."""

    def __init__(self, prompt: Sequence[int], most: int) -> None:
        """ValueError unless ``most`` is 0 (no guesses) to 64."""
        if isinstance(most, bool) or not isinstance(most, int) or not 0 <= most <= MOST_GUESSES:
            raise ValueError(f"lookup is {most!r}, expected an integer from 0 to {MOST_GUESSES}")
        self._most = most
        self._lookup = PromptLookup(prompt if most else ())
        self._known = 0  # tokens of the answer that the lookup has

    def draft(self, answer: Answer) -> list[int]:
        """Tokens that may follow those of ``answer``; empty if there is no guess."""
        most = min(self._most, answer.tokens_left - 1)
        if most <= 0:
            return []
        self._lookup.extend(answer.tokens[self._known :])
        self._known = len(answer.tokens)
        return self._lookup.guess(most)
