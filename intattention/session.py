"""One conversation's KV cache and the tokens in it."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import numpy as np

from intattention._core import ContextOverflowError, Decoder, DecoderConfig, KVCache
from intattention.dtypes import F32, S32
from intattention.session_file import read_session, write_session

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


def on_cpu(decoder: AnyDecoder, purpose: str) -> Decoder:
    """``decoder``, if it is the CPU's; RuntimeError if it is not."""
    if not isinstance(decoder, Decoder):
        raise RuntimeError(f"{purpose}: the model is on a GPU, this works on the CPU only")
    return decoder


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
        limit = min(self._valid(), len(ids) - 1)
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
            logits = self._forward(chunk, "last" if last else "none")
            if progress is not None:
                progress(start + len(chunk), len(ids))
        return logits.reshape(-1)

    def step(self, ids: Sequence[int]) -> F32:
        """Appends tokens; returns the logits ``[len(ids), vocab]`` after each."""
        return self._forward(ids, "all")

    def drop(self, count: int) -> None:
        """Takes back the last ``count`` tokens."""
        length = len(self._cache) - count
        self._cache.truncate(length)
        del self._ids[length:]

    def save(self, path: Path) -> int:
        """Writes tokens, keys and values to a file; returns how many tokens. See ``read_session``.

        ValueError if there are none. OSError. RuntimeError for a model on a GPU.
        """
        ids = self._ids[: self._valid()]
        if not ids:
            raise ValueError("the session holds no tokens yet")
        decoder = on_cpu(self._decoder, "saving a session")
        write_session(path, decoder, ids, cast(KVCache, self._cache))
        return len(ids)

    def load(self, path: Path) -> int:
        """Takes the place of what is held by what a file holds; returns how many tokens.

        SessionFileError, ContextOverflowError or OSError, RuntimeError for a model on a GPU; the
        session is then as it was.
        """
        decoder = on_cpu(self._decoder, "loading a session")
        self._ids, self._cache = read_session(path, decoder, self.context)
        return len(self._ids)

    def _valid(self) -> int:
        """Tokens that both hold: an interrupted call may have left ids and cache different."""
        return min(len(self._ids), len(self._cache))

    def _forward(self, ids: Sequence[int], rows: Literal["last", "all", "none"]) -> F32:
        logits = self._decoder.forward(np.array(ids, dtype=np.int32), self._cache, rows)
        self._ids.extend(ids)
        return logits


class Clock:
    """Adds up the seconds spent inside ``with`` blocks."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._start = 0.0

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._start
