"""Attention on real q, k, v of SmolLM2 at 1K, 4K and 8K keys against softmax attention in double.

What is lost is the definition's (docs/attention-accuracy.md): two thirds are the int8 rounding of
q, k and v, the rest the table. It must not grow with the length, as the paper's last step makes it.
"""

import functools

import numpy as np
import pytest
import smollm2_core
from numpy.typing import NDArray
from reference.attention import float_attention

import intattention

MIN_COSINE = 0.9995
MAX_RELATIVE_L1 = 0.02
MAX_GROWTH = 1.2  # of relative L1 from 1K to any length
QUERIES = 128  # checked per length: the last ones, which see the most keys


@functools.cache
def captured(layer: int) -> tuple[NDArray, NDArray, NDArray]:
    """q [9, 8192, 64], k and v [3, 8192, 64] of WikiText-2 test."""
    ids = smollm2_core.golden()["wikitext_ids"].astype(np.int32)
    decoder = smollm2_core.build(threads=2)
    return decoder.capture_qkv(ids, decoder.new_cache(len(ids)), layer)


@functools.cache
def error(layer: int, length: int) -> tuple[float, float]:
    """Cosine and relative L1 over the last QUERIES queries of the first ``length`` tokens."""
    q, k, v = (np.ascontiguousarray(x[:, :length]) for x in captured(layer))
    q = np.ascontiguousarray(q[:, -QUERIES:])
    ours = intattention.attention(q, k, v, causal=True).astype(np.float64)
    exact = float_attention(q, k, v)
    cosine = (ours * exact).sum() / np.sqrt((ours**2).sum() * (exact**2).sum())
    return float(cosine), float(np.abs(ours - exact).sum() / np.abs(exact).sum())


@pytest.mark.slow
@pytest.mark.parametrize("length", [1024, 4096, 8192])
@pytest.mark.parametrize("layer", [0, 12, 18])  # the last two are the worst
def test_close_to_float_at_every_length(layer: int, length: int) -> None:
    cosine, relative_l1 = error(layer, length)
    assert cosine >= MIN_COSINE
    assert relative_l1 <= MAX_RELATIVE_L1
    assert relative_l1 <= MAX_GROWTH * error(layer, 1024)[1]


def test_capture_is_what_the_decoder_caches() -> None:
    """The captured tensors give the decoder's own attention: same cache, so same later logits."""
    ids = smollm2_core.golden()["wikitext_ids"].astype(np.int32)[:300]
    decoder = smollm2_core.build(threads=2)
    cache = decoder.new_cache(400)
    decoder.forward(ids[:100], cache, "none")
    q, k, v = decoder.capture_qkv(ids[100:], cache, 3)
    assert (q.shape, k.shape, v.shape) == ((9, 200, 64), (3, 200, 64), (3, 200, 64))
    assert len(cache) == 100
    whole = decoder.capture_qkv(ids, decoder.new_cache(300), 3)
    for part, all_tokens in zip((q, k, v), whole, strict=True):
        np.testing.assert_array_equal(part, all_tokens[:, 100:])
    with pytest.raises(ValueError, match="layer 30 of a model with 30"):
        decoder.capture_qkv(ids, decoder.new_cache(300), 30)
