"""Perplexity of a text, and how far a model's predictions are from another's."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from intattention.dtypes import F32, F64, S32
from intattention.session import AnyDecoder

CHUNK = 256  # tokens at a time; progress and Ctrl-C come between
P999 = 99.9


class Predictor(Protocol):
    """A model seen as what it predicts."""

    def logits(self, ids: S32) -> Iterator[F32]:
        """Logits ``[CHUNK or, at the end, fewer, vocab]`` after each of ``ids``, from nothing."""


@dataclass(frozen=True)
class Perplexity:
    """Over all predicted tokens. Losses and KL in nats per token; None: there was no other model.

    nan_count: predictions with a logit that is not finite; with any, ppl and the like are NaN.
    """

    tokens: int
    ppl: float
    ppl_against: float | None
    kl_mean: float | None
    kl_p999: float | None
    top1_agreement: float | None
    nan_count: int
    worst_token_loss: float


class Runtime:
    """This library's decoder as a ``Predictor``."""

    def __init__(self, decoder: AnyDecoder) -> None:
        self._decoder = decoder

    def logits(self, ids: S32) -> Iterator[F32]:
        cache = self._decoder.new_cache(len(ids))
        for start in range(0, len(ids), CHUNK):
            yield self._decoder.forward(ids[start : start + CHUNK], cache, "all")


def cut(ids: Sequence[int], ctx: int, windows: int) -> list[S32]:
    """The first ``windows`` windows of ``ctx`` tokens; 0: all that are complete. ValueError."""
    available = len(ids) // ctx
    if available < max(windows, 1):
        raise ValueError(
            f"the text has {len(ids)} tokens, {max(windows, 1) * ctx} are needed for "
            f"{max(windows, 1)} x {ctx}"
        )
    count = windows or available
    return list(np.array(ids[: count * ctx], np.int32).reshape(count, ctx))


def perplexity(
    model: Predictor,
    windows: Sequence[S32],
    against: Predictor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Perplexity:
    """Each window by itself: its tokens 1, 2, ... are predicted from those before them.

    KL is KL(against || model) over the whole vocabulary; ``progress(done, total)`` in tokens.
    """
    losses, other_losses, kl, same = [], [], [], []
    nan_count = done = 0
    total = sum(map(len, windows)) - len(windows)
    for targets, logits, others in _chunks(model, against, windows):
        nan_count += int((~np.isfinite(logits)).any(axis=1).sum())
        log_q = log_softmax(logits)
        losses.append(_loss(log_q, targets))
        if others is not None:
            log_p = log_softmax(others)
            other_losses.append(_loss(log_p, targets))
            kl.append((np.exp(log_p) * (log_p - log_q)).sum(axis=1))
            same.append(log_p.argmax(axis=1) == log_q.argmax(axis=1))
        done += len(targets)
        if progress is not None:
            progress(done, total)
    loss = np.concatenate(losses)
    known = against is not None
    return Perplexity(
        tokens=len(loss),
        ppl=_ppl(loss),
        ppl_against=_ppl(np.concatenate(other_losses)) if known else None,
        kl_mean=float(np.concatenate(kl).mean()) if known else None,
        kl_p999=float(np.percentile(np.concatenate(kl), P999)) if known else None,
        top1_agreement=float(np.concatenate(same).mean()) if known else None,
        nan_count=nan_count,
        worst_token_loss=float(loss.max()),
    )


def _chunks(
    model: Predictor, against: Predictor | None, windows: Sequence[S32]
) -> Iterator[tuple[S32, F32, F32 | None]]:
    """Tokens, and both models' logits for them; nothing follows a window's last token."""
    for ids in windows:
        rival = None if against is None else against.logits(ids)
        targets = ids[1:]
        for logits in model.logits(ids):
            some, targets = targets[: len(logits)], targets[len(logits) :]
            others = None if rival is None else next(rival)
            if others is not None and others.shape != logits.shape:
                raise ValueError(f"logits differ in shape: {logits.shape} and {others.shape}")
            yield some, logits[: len(some)], None if others is None else others[: len(some)]


def log_softmax(logits: F32) -> F64:
    """Of each row, in double; NaN where a row is not finite."""
    with np.errstate(invalid="ignore"):  # rows that are not finite are counted
        shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
        log: F64 = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return log


def _loss(log_probs: F64, targets: S32) -> F64:
    loss: F64 = -log_probs[np.arange(len(targets)), targets]
    return loss


def _ppl(losses: F64) -> float:
    return math.exp(losses.mean())
