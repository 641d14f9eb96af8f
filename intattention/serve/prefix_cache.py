"""KV caches of texts that have ended, kept for requests that begin in the same way."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from intattention._core import KVCache

MIN_SHARED = 16  # tokens; a fork copies a block of 256, which costs more than computing fewer

Ids = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Prefix:
    """``cache`` holds ``ids``."""

    ids: Ids
    cache: KVCache


class PrefixCache:
    """Least recently used first out. Only the scheduler's thread may use it."""

    def __init__(self) -> None:
        self._kept: list[Prefix] = []  # last: used last

    @property
    def nbytes(self) -> int:
        """Of the caches kept; blocks that several of them share are counted for each."""
        return sum(prefix.cache.nbytes for prefix in self._kept)

    def fork(self, ids: Ids, running: Iterable[Prefix] = ()) -> KVCache | None:
        """A cache with the longest beginning of ``ids`` that a cache here or in ``running`` holds.

        At least one token is left to compute, since its logits are needed. A cache kept here that
        ``ids`` merely continue is handed over. None if too little is shared.
        """
        best, common = None, MIN_SHARED - 1
        for prefix in (*self._kept, *running):
            shared = min(common_length(prefix.ids, ids), len(ids) - 1)
            if shared > common:
                best, common = prefix, shared
        if best is None:
            return None
        kept = best in self._kept
        if kept:
            self._kept.remove(best)
            if common == len(best.ids):
                return best.cache
            self._kept.append(best)
        cache = best.cache.fork()
        cache.truncate(common)
        return cache

    def keep(self, prefix: Prefix) -> None:
        """Takes over a cache, and drops those that it makes needless."""
        if len(prefix.ids) < MIN_SHARED or any(begins(prefix, other) for other in self._kept):
            return
        self._kept = [other for other in self._kept if not begins(other, prefix)]
        self._kept.append(prefix)

    def shrink(self, nbytes: int) -> None:
        """Drops caches until the rest takes no more than ``nbytes``."""
        while self._kept and self.nbytes > nbytes:
            del self._kept[0]


def common_length(a: Ids, b: Ids) -> int:
    """Tokens that two texts have in common at their beginning."""
    length = min(len(a), len(b))
    different = np.flatnonzero(a[:length] != b[:length])
    return int(different[0]) if len(different) else length


def begins(a: Prefix, b: Prefix) -> bool:
    """Whether ``b`` begins with all of ``a``."""
    return common_length(a.ids, b.ids) == len(a.ids)
