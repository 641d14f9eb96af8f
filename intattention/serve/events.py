"""What the scheduler tells about a text while it is generated."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from intattention.dtypes import F32
from intattention.stats import FinishReason


@dataclass(frozen=True)
class TokenLogprob:
    """``logprob`` is None for a text's first token. ``top``: (token, log-probability), best
    first."""

    token: int
    logprob: float | None
    top: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True)
class Event:
    """A step of one text. The last event has a ``finish_reason`` or an ``error``."""

    text: str = ""
    prompt_logprobs: Sequence[TokenLogprob] = ()
    logprobs: Sequence[TokenLogprob] = ()
    tokens: int = 0
    """Generated so far."""
    reused_tokens: int = 0
    """Of the prompt, found in a cache."""
    finish_reason: FinishReason = ""
    error: Exception | None = None

    @property
    def last(self) -> bool:
        return bool(self.finish_reason) or self.error is not None


def token_logprob(logits: F32, token: int, top: int) -> TokenLogprob:
    """Of ``token`` among logits ``[vocab]``, before any sampling option."""
    high = logits.max()
    total = high + np.log(np.exp(logits - high, dtype=np.float64).sum())
    best: list[int] = []
    if top:
        likely = np.argpartition(-logits, min(top, logits.size) - 1)[:top]
        best = likely[np.lexsort((likely, -logits[likely]))].tolist()
    return TokenLogprob(
        token,
        float(logits[token] - total),
        [(other, float(logits[other] - total)) for other in best],
    )
