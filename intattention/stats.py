"""What one generation cost."""

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["", "eos", "stop", "length", "context"]


@dataclass
class GenerationStats:
    """Counts and times of one ``generate`` or ``chat`` call; complete when its text has ended.

    ``prompt_tokens`` counts the whole prompt, ``reused_tokens`` the part of it that the cache
    still held. ``decode_tokens`` came out of ``decode_steps`` passes over the weights, in which
    ``accepted_tokens`` of ``drafted_tokens`` guesses (``lookup``) were right; without guesses a
    step gives a token. Times are wall-clock seconds in the model and the sampler.
    ``finish_reason``: "eos" (the model ended its turn), "stop" (a stop string), "length"
    (``max_new_tokens``), "context" (the cache is full), "" (not finished, or interrupted).
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    prompt_seconds: float = 0.0
    generated_tokens: int = 0
    decode_tokens: int = 0
    decode_steps: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    decode_seconds: float = 0.0
    finish_reason: FinishReason = ""

    @property
    def prompt_tokens_per_second(self) -> float:
        """Prompt tokens computed (not reused) per second; 0 if none were."""
        return _rate(self.prompt_tokens - self.reused_tokens, self.prompt_seconds)

    @property
    def decode_tokens_per_second(self) -> float:
        """Tokens per second after the first one, which the prompt's time includes; 0 if none."""
        return _rate(self.decode_tokens, self.decode_seconds)


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
