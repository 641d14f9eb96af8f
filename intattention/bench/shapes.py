"""Sizes of models that people run, from the ``config.json`` each was published with."""

from dataclasses import dataclass
from functools import partial


@dataclass(frozen=True)
class ModelShape:
    """Names as in ``config.json``; ``extras``: parts of the model that the decoder may not have."""

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    rope_theta: float
    eps: float
    context: int
    extras: tuple[str, ...] = ()

    @property
    def q_rows(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_rows(self) -> int:
        return self.kv_heads * self.head_dim

    def linears(self) -> dict[str, tuple[tuple[int, ...], int]]:
        """Name -> (out_features of each part, in_features), as the decoder calls them."""
        return {
            "qkv": ((self.q_rows, self.kv_rows, self.kv_rows), self.hidden),
            "o": ((self.hidden,), self.q_rows),
            "gate_up": ((self.intermediate, self.intermediate), self.hidden),
            "down": ((self.hidden,), self.intermediate),
            "lm_head": ((self.vocab,), self.hidden),
        }


_smollm2 = partial(ModelShape, rope_theta=1e5, eps=1e-5, context=8192)
_qwen2_5 = partial(ModelShape, rope_theta=1e6, eps=1e-6, context=32768, extras=("qkv bias",))
_qwen3 = partial(ModelShape, rope_theta=1e6, eps=1e-6, context=40960, extras=("q and k norm",))
_llama3_2 = partial(ModelShape, rope_theta=5e5, eps=1e-5, context=131072, extras=("rope scaling",))

SHAPES = {
    shape.name: shape
    for shape in (
        _smollm2("smollm2-135m", 576, 1536, 30, 9, 3, 64, 49152, True),
        _qwen2_5("qwen2.5-0.5b", 896, 4864, 24, 14, 2, 64, 151936, True),
        _qwen2_5("qwen2.5-1.5b", 1536, 8960, 28, 12, 2, 128, 151936, True),
        _qwen2_5("qwen2.5-7b", 3584, 18944, 28, 28, 4, 128, 152064, False),
        _qwen3("qwen3-0.6b", 1024, 3072, 28, 16, 8, 128, 151936, True),
        _qwen3("qwen3-1.7b", 2048, 6144, 28, 16, 8, 128, 151936, True),
        _llama3_2("llama-3.2-1b", 2048, 8192, 16, 32, 8, 64, 128256, True),
        _llama3_2("llama-3.2-3b", 3072, 8192, 28, 24, 8, 128, 128256, True),
    )
}
