"""One text in the making: from the logits after each token to text, until something ends it."""

from collections.abc import Sequence

import numpy as np

from intattention.constraints import Constraint
from intattention.dtypes import F32
from intattention.sampling import Sampler, SamplingParams
from intattention.stats import FinishReason
from intattention.stop_strings import StopStrings, checked_stop
from intattention.tokenizer import TextTokenizer


class Answer:
    """Chooses the tokens that follow ``prompt`` and gives their text; knows no model or cache."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        prompt: Sequence[int],
        params: SamplingParams,
        max_new_tokens: int,
        context: int,
        stop: str | Sequence[str] | None = None,
        at_start: bool = False,
        constraint: Constraint | None = None,
    ) -> None:
        """``context``: tokens that prompt and answer may have together, the last one apart, which
        needs no place in a cache. ``at_start``: see ``TextTokenizer.stream``. ``constraint``: what
        the text must fit; a fresh one.

        ValueError: ``max_new_tokens`` or ``stop`` out of range, or an empty prompt.
        """
        if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int):
            raise ValueError(f"max_new_tokens is {max_new_tokens!r}, expected an integer >= 0")
        if max_new_tokens < 0:
            raise ValueError(f"max_new_tokens is {max_new_tokens}, expected >= 0")
        if not prompt:
            raise ValueError("the prompt has no tokens")
        self.tokens: list[int] = []
        """Without the one that ends the turn."""
        self.chosen = -1
        """The last token, the one that ends the turn included."""
        self.finish_reason: FinishReason = "" if max_new_tokens else "length"
        self._end_ids = tokenizer.end_ids
        self._vocab = tokenizer.vocab_size  # the model may have padding rows beyond it
        self._constraint = constraint
        self._sampler = Sampler(params, seen=prompt)
        self._text = tokenizer.stream(at_start=at_start)
        self._stop = StopStrings(checked_stop(stop))
        self._max_new_tokens = max_new_tokens
        self._room = context - len(prompt) + 1

    @property
    def tokens_left(self) -> int:
        """Tokens that may come at most."""
        return min(self._max_new_tokens, self._room) - len(self.tokens)

    def push(self, logits: F32) -> str:
        """The text that is complete after the next token, given the logits ``[vocab]`` for it.

        Never half a character, nor a part of a stop string; may be empty. ValueError if the
        constraint becomes too complex.
        """
        logits = logits[: self._vocab]
        if self._constraint is not None:
            logits = np.where(self._constraint.allowed(), logits, np.float32(-np.inf))
        token = self.chosen = self._sampler.choose(logits)
        if token in self._end_ids:
            self.finish_reason = "eos"
            return self._rest()
        if self._constraint is not None:
            self._constraint.push(token)
        self.tokens.append(token)
        piece = self._stop.push(self._text.push(token))
        if self._stop.hit:
            self.finish_reason = "stop"
            return piece
        if len(self.tokens) == self._max_new_tokens:
            self.finish_reason = "length"
        elif len(self.tokens) == self._room:
            self.finish_reason = "context"
        return piece + self._rest() if self.finish_reason else piece

    def _rest(self) -> str:
        piece = self._stop.push(self._text.flush())
        return piece + self._stop.flush()
