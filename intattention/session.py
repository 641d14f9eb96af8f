"""One conversation's KV cache and the tokens in it."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from intattention._core import ContextOverflowError, DecoderConfig
from intattention.dtypes import F32, S32

PREFILL_CHUNK = 256  # tokens per call; Ctrl-C and progress come between calls


class AnyCache(Protocol):
    """The KV cache of a decoder."""

    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def truncate(self, length: int) -> None: ...


class AnyDecoder(Protocol):
    """The decoder of ``_core`` or of ``_cuda``; each takes the caches that it made itself."""

    @property
    def config(self) -> DecoderConfig: ...
    @property
    def nbytes(self) -> int: ...
    def new_cache(self, max_len: int) -> Any: ...
    def forward(
        self, ids: S32, cache: Any, logits: Literal["last", "all", "none"] = "last"
    ) -> F32: ...


class Session:
    """Feeds tokens to a decoder and remembers which ones its cache holds."""

    def __init__(self, decoder: AnyDecoder, context: int) -> None:
        self._decoder = decoder
        self._cache: AnyCache = decoder.new_cache(context)
        self._ids: list[int] = []
        self.context = context

    def __len__(self) -> int:
        return len(self._cache)

    @property
    def nbytes(self) -> int:
        """Bytes that the cache holds now."""
        return self._cache.nbytes

    def rewind(self, ids: Sequence[int]) -> int:
        """Truncates the cache to what it shares with ``ids``; returns how many tokens that are.

        At least one token of ``ids`` is left to compute, since its logits are needed.
        ContextOverflowError if ``ids`` leave no room for an answer.
        """
        if len(ids) >= self.context:
            raise ContextOverflowError(
                f"the prompt has {len(ids)} tokens, the context {self.context}: "
                "at least one must be left for the answer"
            )
        # An interrupted call may have left the two different; only what both hold is valid.
        limit = min(len(self._ids), len(self._cache), len(ids) - 1)
        common = next((i for i in range(limit) if self._ids[i] != ids[i]), limit)
        self._cache.truncate(common)
        self._ids = list(ids[:common])
        return common

    def prefill(
        self, ids: Sequence[int], progress: Callable[[int, int], None] | None = None
    ) -> F32:
        """Appends ``ids`` in chunks; returns the logits ``[vocab]`` after the last."""
        for start in range(0, len(ids), PREFILL_CHUNK):
            chunk = ids[start : start + PREFILL_CHUNK]
            last = start + len(chunk) == len(ids)
            logits = self._forward(chunk, want_logits=last)
            if progress is not None:
                progress(start + len(chunk), len(ids))
        return logits

    def step(self, token: int) -> F32:
        """Appends one token; returns the logits ``[vocab]`` after it."""
        return self._forward([token], want_logits=True)

    def _forward(self, ids: Sequence[int], want_logits: bool) -> F32:
        array = np.array(ids, dtype=np.int32)
        logits = self._decoder.forward(array, self._cache, "last" if want_logits else "none")
        self._ids.extend(ids)
        return logits.reshape(-1)


class Clock:
    """Adds up the seconds spent inside ``with`` blocks."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._start = 0.0

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._start
