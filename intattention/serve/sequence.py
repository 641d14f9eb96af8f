"""One text that the scheduler works on: its tokens, its cache, and who listens."""

import time
from collections.abc import Callable
from typing import Literal

import numpy as np

from intattention._core import KVCache
from intattention.answer import Answer
from intattention.dtypes import F32
from intattention.serve.events import Event, TokenLogprob, token_logprob
from intattention.serve.prefix_cache import Ids, Prefix
from intattention.serve.protocol import Text
from intattention.tokenizer import TextTokenizer


class Sequence:
    """``emit`` is called in the scheduler's thread, last with an event that is the last.

    The cache, once there is one, holds ``ids[: len(cache)]``; what is missing comes next.
    """

    def __init__(
        self, text: Text, context: int, tokenizer: TextTokenizer, emit: Callable[[Event], None]
    ) -> None:
        """ValueError for options that the answer refuses."""
        self.text = text
        self.ids = list(text.ids)
        self.cache: KVCache | None = None
        self.reused_tokens = 0
        self.cancelled = False
        """Set by any thread; nothing is emitted afterwards."""
        self.ended = False
        self.failed = False
        self.submitted = time.perf_counter()
        self.first_token: float | None = None
        self.answer = Answer(
            tokenizer, self.ids, text.params, text.max_tokens, context, text.stop, text.at_start,
            text.constraint,
        )  # fmt: skip
        self.limit = min(context, len(self.ids) + max(0, text.max_tokens - 1))
        """Tokens that the cache may come to hold."""
        self._vocab = tokenizer.vocab_size
        self._emit = emit
        self._prompt_logprobs: list[TokenLogprob] = []

    @property
    def prompt_tokens(self) -> int:
        return len(self.text.ids)

    @property
    def pending(self) -> int:
        """Tokens that the cache does not hold yet; at least one until the text has ended."""
        return len(self.ids) - (len(self.cache) if self.cache is not None else 0)

    @property
    def decoding(self) -> bool:
        """Whether the prompt is in the cache."""
        return len(self.ids) > self.prompt_tokens

    @property
    def over(self) -> bool:
        return self.ended or self.cancelled

    def next_ids(self, count: int) -> Ids:
        """The next tokens that the cache needs."""
        first = len(self.ids) - self.pending
        return np.array(self.ids[first : first + count], np.int32)

    def wanted_rows(self, count: int) -> Literal["last", "all", "none"]:
        """Which of the next tokens' logits ``advance`` needs."""
        if self.text.echo and not self.decoding:
            return "all"
        return "last" if count == self.pending else "none"

    def prefix(self) -> Prefix | None:
        """What the cache holds, if it may serve other texts."""
        if self.cache is None or self.text.echo or self.failed:
            return None
        return Prefix(np.array(self.ids[: len(self.cache)], np.int32), self.cache)

    def start(self) -> None:
        """Ends at once a text of no tokens that nothing needs to be computed for."""
        if self.answer.finish_reason and not self.text.echo:
            self._send("")

    def advance(self, logits: F32) -> None:
        """Takes the logits ``[rows, vocab]`` of the last tokens that went into the cache: of all
        if the prompt's log-probabilities are wanted, else of the last one of ``ids``."""
        assert self.cache is not None
        if self.text.echo and not self.decoding:
            self._read_prompt(logits, len(self.cache) - len(logits))
        if self.pending:
            return
        if self.answer.finish_reason:  # no token was asked for
            self._send("")
            return
        row = logits[-1, : self._vocab]
        piece = self.answer.push(row)
        self.first_token = self.first_token or time.perf_counter()
        self.ids += self.answer.tokens[len(self.ids) - self.prompt_tokens :]  # none at a turn's end
        wanted = self.text.logprobs
        chosen = [] if wanted is None else [token_logprob(row, self.answer.chosen, wanted)]
        self._send(piece, chosen)

    def fail(self, error: Exception) -> None:
        self.failed = True
        self._finish(Event(error=error))

    def _read_prompt(self, logits: F32, first: int) -> None:
        """Row i is what follows token first + i."""
        if first == 0:
            self._prompt_logprobs.append(TokenLogprob(self.ids[0], None))
        for row, token in zip(logits, self.ids[first + 1 : self.prompt_tokens], strict=False):
            wanted = self.text.logprobs or 0
            self._prompt_logprobs.append(token_logprob(row[: self._vocab], token, wanted))

    def _send(self, piece: str, logprobs: list[TokenLogprob] | None = None) -> None:
        event = Event(
            piece,
            self._prompt_logprobs,
            logprobs or [],
            len(self.answer.tokens),
            self.reused_tokens,
            self.answer.finish_reason,
        )
        self._prompt_logprobs = []
        if event.last:
            self._finish(event)
        elif event.text or event.logprobs or event.prompt_logprobs:
            self._tell(event)

    def _finish(self, event: Event) -> None:
        self._tell(event)
        self.ended = True

    def _tell(self, event: Event) -> None:
        if not self.cancelled:
            self._emit(event)
