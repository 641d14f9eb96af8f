"""The CUDA back end; present only in builds with -DINTATTENTION_CUDA=ON."""

from typing import Any, Literal

from intattention import _core
from intattention.dtypes import F32, S32

def why_unavailable() -> str:
    """Empty if a kernel of this build runs on the current device."""

def device_facts() -> dict[str, Any]: ...

class KVCache:
    """All of max_len is taken at once."""
    def __len__(self) -> int: ...
    @property
    def max_len(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def truncate(self, length: int) -> None: ...

class Decoder:
    def __init__(self, model: _core.Decoder) -> None:
        """Copies the weights to the device; ``model`` is not kept."""
    @property
    def config(self) -> _core.DecoderConfig: ...
    @property
    def nbytes(self) -> int: ...
    def new_cache(self, max_len: int) -> KVCache: ...
    def forward(
        self, ids: S32, cache: KVCache, logits: Literal["last", "all", "none"] = "last"
    ) -> F32: ...
    def greedy(self, id: int, count: int, cache: KVCache, limit: int = 0) -> S32:
        """Feeds ``id``, then ``count`` - 1 times the most probable token below ``limit`` (0: all);
        returns the ``count`` tokens chosen. The host is not asked in between."""
    def use_graphs(self, on: bool) -> None: ...
