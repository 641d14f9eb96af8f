"""Rotary frequencies: what the scalings of long-context models do to theta^(-2i/dim).

Formulas as in transformers' ``modeling_rope_utils`` (and llama.cpp for yarn), here in double. Two
of them depend on the length of the text: dynamic NTK and longrope. A cache cannot change its
rotations later, and results must not depend on how a prompt was cut, so here they depend on the
context that was chosen when the model was loaded.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from intattention.dtypes import F64

RopeKind = Literal["default", "linear", "dynamic", "yarn", "llama3", "longrope", "factors"]


@dataclass(frozen=True)
class Rope:
    """``dim``: elements of a head that rotate. ``original_context``: tokens before scaling.

    ``attention_factor`` None: what the kind prescribes. The factors of longrope, and of "factors"
    (GGUF's rope_freqs.weight, in ``short_factors``), divide the frequencies one by one.
    """

    theta: float
    dim: int
    kind: RopeKind = "default"
    factor: float = 1.0
    original_context: int = 0
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()

    def frequencies(self, context: int) -> F64:
        """Radians per token [dim / 2] for a model that is used up to ``context`` tokens."""
        if self.kind == "linear":
            return np.asarray(_plain(self.theta, self.dim) / self.factor)
        if self.kind == "dynamic":
            return _plain(self._dynamic_theta(context), self.dim)
        if self.kind == "yarn":
            return self._yarn()
        if self.kind == "llama3":
            return self._llama3()
        plain = _plain(self.theta, self.dim)
        if self.kind == "longrope" and context > self.original_context:
            return np.asarray(plain / np.array(self.long_factors))
        return np.asarray(plain / np.array(self.short_factors)) if self.short_factors else plain

    def scale(self) -> float:
        """The factor on cos and sin."""
        if self.attention_factor is not None:
            return self.attention_factor
        if self.kind == "yarn":
            return yarn_mscale(self.factor)
        if self.kind == "longrope" and self.factor > 1:
            return math.sqrt(1 + math.log(self.factor) / math.log(self.original_context))
        return 1.0

    def _dynamic_theta(self, context: int) -> float:
        stretch = max(context, self.original_context) / self.original_context
        growth = self.factor * stretch - (self.factor - 1)
        return float(self.theta * growth ** (self.dim / (self.dim - 2)))

    def _yarn(self) -> F64:
        plain = _plain(self.theta, self.dim)
        low, high = self._turns_at(self.beta_fast), self._turns_at(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, self.dim - 1)
        if low == high:
            high += 0.001
        ramp = np.clip((np.arange(self.dim // 2) - low) / (high - low), 0, 1)
        return np.asarray(plain / self.factor * ramp + plain * (1 - ramp))

    def _turns_at(self, rotations: float) -> float:
        """The pair that makes so many rotations over the original context."""
        wavelengths = self.original_context / (rotations * 2 * math.pi)
        return self.dim * math.log(wavelengths) / (2 * math.log(self.theta))

    def _llama3(self) -> F64:
        plain = _plain(self.theta, self.dim)
        turns = self.original_context * plain / (2 * math.pi)
        span = self.high_freq_factor - self.low_freq_factor
        smooth = np.clip((turns - self.low_freq_factor) / span, 0, 1)
        return np.asarray(plain / self.factor * (1 - smooth) + plain * smooth)


def yarn_mscale(factor: float, mscale: float = 1.0) -> float:
    """YaRN's temperature for a context stretched by ``factor``."""
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _plain(theta: float, dim: int) -> F64:
    return np.asarray(float(theta) ** (-2.0 * np.arange(dim // 2) / dim))
