"""KVCache through the decoder: append, truncate, fork, memory, overflow."""

import numpy as np
import pytest
from isa_fixture import isa  # noqa: F401
from reference.decoder import Config, random_model
from small_decoder import build

from intattention import _core

pytestmark = pytest.mark.usefixtures("isa")

MODEL = random_model(Config())
IDS = np.random.default_rng(0).integers(0, 128, 700, dtype=np.int32)
OTHER = np.random.default_rng(1).integers(0, 128, 700, dtype=np.int32)


@pytest.fixture
def decoder(isa: str) -> _core.Decoder:  # noqa: F811
    return build(MODEL)


def fresh(decoder: _core.Decoder, ids: np.ndarray) -> np.ndarray:
    """Logits of the last id, computed with a new cache."""
    return decoder.forward(np.ascontiguousarray(ids), decoder.new_cache(1000))


def test_starts_empty(decoder: _core.Decoder) -> None:
    cache = decoder.new_cache(700)
    assert len(cache) == 0
    assert cache.max_len == 700
    assert cache.nbytes == 0


def test_bytes_grow_by_blocks(decoder: _core.Decoder) -> None:
    """A block of a layer and head: 256 keys of K, V, a float and three s16 scales, two bytes of
    weight, and 24 bytes, to a multiple of 64."""
    cache = decoder.new_cache(700)
    block = 2 * 2 * (-(-(256 * (2 * 16 + 4 + 3 * 2 + 2) + 24) // 64) * 64)
    lengths = (0, 1, 255, 256, 257, 512, 513, 700)
    assert [cache.bytes_for(n) for n in lengths] == [block * -(-n // 256) for n in lengths]
    for n in lengths[1:]:
        decoder.forward(IDS[len(cache) : n], cache, "none")
        assert len(cache) == n
        assert cache.nbytes == cache.bytes_for(n)


@pytest.mark.parametrize("keep", [0, 1, 100, 255, 256, 257, 300])
def test_truncate_forgets(decoder: _core.Decoder, keep: int) -> None:
    cache = decoder.new_cache(700)
    decoder.forward(IDS[:300], cache, "none")
    cache.truncate(keep)
    assert len(cache) == keep
    assert cache.nbytes == cache.bytes_for(keep)
    logits = decoder.forward(OTHER[:350], cache)
    np.testing.assert_array_equal(logits, fresh(decoder, np.concatenate([IDS[:keep], OTHER[:350]])))


def test_truncate_refuses(decoder: _core.Decoder) -> None:
    cache = decoder.new_cache(700)
    decoder.forward(IDS[:10], cache, "none")
    with pytest.raises(ValueError, match=r"11.*10"):
        cache.truncate(11)
    with pytest.raises((ValueError, TypeError)):
        cache.truncate(-1)
    assert len(cache) == 10


@pytest.mark.parametrize("length", [1, 100, 255, 256, 257, 512, 520])
def test_fork_does_not_leak(decoder: _core.Decoder, length: int) -> None:
    cache = decoder.new_cache(700)
    decoder.forward(IDS[:length], cache, "none")
    child = cache.fork()
    assert len(child) == length
    assert child.max_len == 700
    grandchild = child.fork()
    expected = fresh(decoder, IDS[: length + 40])
    other = fresh(decoder, np.concatenate([IDS[:length], OTHER[:40]]))
    third = fresh(decoder, np.concatenate([IDS[:length], OTHER[40:80]]))
    # step by step in turn, so that a shared row would be seen
    for i in range(40):
        a = decoder.forward(IDS[length + i : length + i + 1], cache)
        b = decoder.forward(OTHER[i : i + 1], child)
    c = decoder.forward(OTHER[40:80], grandchild)
    np.testing.assert_array_equal(a, expected)
    np.testing.assert_array_equal(b, other)
    np.testing.assert_array_equal(c, third)


def test_fork_then_truncate(decoder: _core.Decoder) -> None:
    """Rewriting inside shared blocks must not reach the other cache."""
    cache = decoder.new_cache(700)
    decoder.forward(IDS[:520], cache, "none")
    child = cache.fork()
    child.truncate(100)
    logits = decoder.forward(OTHER[:300], child)
    np.testing.assert_array_equal(logits, fresh(decoder, np.concatenate([IDS[:100], OTHER[:300]])))
    np.testing.assert_array_equal(decoder.forward(IDS[520:521], cache), fresh(decoder, IDS[:521]))


def test_fork_outlives_its_parent(decoder: _core.Decoder) -> None:
    cache = decoder.new_cache(700)
    decoder.forward(IDS[:300], cache, "none")
    child = cache.fork()
    del cache
    np.testing.assert_array_equal(decoder.forward(IDS[300:301], child), fresh(decoder, IDS[:301]))


@pytest.mark.parametrize("max_len", [1, 255, 256, 300])
def test_overflow_leaves_it_usable(decoder: _core.Decoder, max_len: int) -> None:
    cache = decoder.new_cache(max_len)
    with pytest.raises(_core.ContextOverflowError, match=str(max_len)):
        decoder.forward(IDS[: max_len + 1], cache)
    assert len(cache) == 0
    assert cache.nbytes == 0
    logits = decoder.forward(IDS[:max_len], cache)
    np.testing.assert_array_equal(logits, fresh(decoder, IDS[:max_len]))
    with pytest.raises(ValueError, match="overflow"):
        decoder.forward(IDS[:1], cache)
    assert len(cache) == max_len


def test_refuses_shapes() -> None:
    for shape in (
        (0, 1, 16, 8),
        (1, 0, 16, 8),
        (1, 1, 16, 0),
        (1, 1, 24, 8),
        (1, 1, 0, 8),
        (1, 1, 4096, 8),
    ):
        with pytest.raises(ValueError, match=r"\d"):
            _core.KVCache(*shape)
    with pytest.raises((ValueError, TypeError)):
        _core.KVCache(1, 1, 16, -1)
