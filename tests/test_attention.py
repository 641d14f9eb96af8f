"""attention(): the oracle's bits on every table and thread count; close to float attention."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from isa_fixture import isa  # noqa: F401
from reference import index_softmax as ism
from reference.attention import attention, float_attention

from intattention import _core

pytestmark = pytest.mark.usefixtures("isa")

MIN_COSINE = 0.999
MAX_RELATIVE_L1 = 0.06  # of normal q, k, v; measured 0.02 (short) to 0.05 (flat rows of thousands)


def qkv(
    heads: int, kv_heads: int, q_len: int, kv_len: int, d: int, size: float = 1.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = ((heads, q_len, d), (kv_heads, kv_len, d), (kv_heads, kv_len, d))
    return tuple((rng.standard_normal(s) * size).astype(np.float32) for s in shapes)


def run(q, k, v, causal=True, scale=None, window=0, pool=None, prefix=0) -> np.ndarray:
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return _core.attention(q, k, v, causal, scale, window, pool, prefix)


def check(q, k, v, causal=True, scale=None, window=0, prefix=0) -> np.ndarray:
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    out = run(q, k, v, causal, scale, window, prefix=prefix)
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, attention(q, k, v, causal, scale, window, prefix))
    return out


@pytest.mark.parametrize("prefix", [1, 17, 256, 300, 1000])
def test_prefix(prefix: int) -> None:
    """Keys below the prefix are seen by every query; more than kv_len means all keys."""
    check(*qkv(4, 2, 280, 290, 32), prefix=prefix)


def test_prefix_needs_causal_and_no_window() -> None:
    q, k, v = qkv(1, 1, 4, 9, 16)
    with pytest.raises(ValueError, match="prefix 3 need causal"):
        run(q, k, v, causal=False, prefix=3)
    with pytest.raises(ValueError, match="window 2 and prefix 3"):
        run(q, k, v, window=2, prefix=3)


@pytest.mark.parametrize("d", [16, 48, 64, 80, 96, 128, 256])
@pytest.mark.parametrize("kv_len", [1, 7, 9, 255, 256, 257, 1023, 1025, 2049])
def test_head_dims_and_blocks(d: int, kv_len: int) -> None:
    for q_len in {1, min(kv_len, 5), min(kv_len, 33)}:
        check(*qkv(2, 1, q_len, kv_len, d, 1.5, seed=kv_len))


@pytest.mark.parametrize(
    ("heads", "kv_heads"), [(1, 1), (4, 4), (9, 3), (8, 2), (9, 1), (14, 2), (40, 1)]
)
@pytest.mark.parametrize(("q_len", "kv_len"), [(1, 300), (40, 40), (33, 700)])
def test_grouped_heads(heads: int, kv_heads: int, q_len: int, kv_len: int) -> None:
    check(*qkv(heads, kv_heads, q_len, kv_len, 64, 1.5))


def test_each_query_head_reads_its_kv_head() -> None:
    q, k, v = qkv(6, 2, 3, 20, 64)
    v[:] = np.array([1.0, -1.0], np.float32)[:, None, None]
    out = check(q, k, v)
    assert (out[:3] > 0.9).all()
    assert (out[3:] < -0.9).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("q_len", [1, 2, 31, 32, 33, 300])
def test_causal_or_not(causal: bool, q_len: int) -> None:
    check(*qkv(3, 1, q_len, 300, 64, 2.0), causal=causal)


def test_more_queries_than_keys() -> None:
    check(*qkv(2, 2, 50, 10, 64), causal=False)
    with pytest.raises(ValueError, match=r"50.*10"):
        run(*qkv(2, 2, 50, 10, 64))


@pytest.mark.parametrize("window", [1, 2, 16, 255, 256, 257, 1024, 5000])
@pytest.mark.parametrize(("q_len", "kv_len"), [(1, 1300), (600, 600), (70, 1400)])
def test_window(window: int, q_len: int, kv_len: int) -> None:
    q, k, v = qkv(2, 1, q_len, kv_len, 32, 1.5)
    out = check(q, k, v, window=window)
    if window == 1:  # each query sees its own key only
        own = v[0, kv_len - q_len :]
        # the rotation spreads an int8 rounding over the channels; ln s_v is rounded to 0.3 %
        assert np.abs(out[0] - own).max() <= 2 * np.abs(own).max() / 127
    if window >= kv_len:
        np.testing.assert_array_equal(out, run(q, k, v))


@pytest.mark.parametrize("size", [0.01, 0.3, 1.0, 3.0, 10.0, 100.0])
def test_sizes_of_logits(size: float) -> None:
    check(*qkv(3, 1, 20, 1100, 64, size))


@pytest.mark.parametrize("size", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("kv_len", [64, 300, 2100])
def test_close_to_float(size: float, kv_len: int) -> None:
    q, k, v = qkv(4, 2, 40, kv_len, 64, size)
    v = v / np.float32(size) + np.float32(0.5)
    out, exact = run(q, k, v).astype(np.float64), float_attention(q, k, v)
    cosine = (out * exact).sum() / math.sqrt((out**2).sum() * (exact**2).sum())
    assert cosine >= MIN_COSINE
    assert np.abs(out - exact).sum() / np.abs(exact).sum() <= MAX_RELATIVE_L1


@pytest.mark.parametrize("kv_len", [256, 258, 4096])
def test_flat_rows(kv_len: int) -> None:
    """Equal keys: the mean of v, though each weight is far below 1/510."""
    q, _, v = qkv(2, 1, 3, kv_len, 64)
    v = v + np.float32(2)
    k = np.ones((1, kv_len, 64), np.float32)
    out = check(q, k, v, causal=False)
    mean = v[0].astype(np.float64).mean(axis=0)
    assert np.abs(out - mean).max() <= 0.005 * np.abs(mean).max()


def test_scales_of_later_keys_do_not_matter() -> None:
    """A row sees the same numbers whether a huge later key is in the block or not."""
    q, k, v = qkv(2, 1, 40, 40, 64)
    k[0, 30:] *= 1000
    v[0, 30:] *= 1000
    whole = check(q, k, v)
    np.testing.assert_array_equal(
        whole[:, :30], run(q[:, :30].copy(), k[:, :30].copy(), v[:, :30].copy())
    )


def test_uneven_key_and_value_scales() -> None:
    q, k, v = qkv(3, 1, 50, 600, 64, 2.0)
    rng = np.random.default_rng(1)
    for x in (k, v):
        x *= 10 ** rng.uniform(-3, 0, (1, 600, 1)).astype(np.float32)
    check(q, k, v)


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("size", [0.0, 1e-40, 1e-33, 1e-25])
def test_zeros_and_tiny_values(which: int, size: float) -> None:
    arrays = list(qkv(2, 1, 20, 300, 64))
    arrays[which] = (arrays[which] * size).astype(np.float32)
    out = check(*arrays)
    assert np.isfinite(out).all()


def test_huge_values() -> None:
    q, k, v = qkv(2, 1, 20, 300, 64, 1e15)
    assert np.isfinite(check(q, k, v)).all()


def test_queries_equal_one_by_one() -> None:
    """Prefill equals decode: the same query alone, with the keys it saw."""
    q, k, v = qkv(4, 2, 1300, 1300, 32, 1.5)
    whole = run(q, k, v)
    for i in (0, 1, 31, 32, 255, 256, 257, 1023, 1024, 1299):
        one = run(q[:, i : i + 1].copy(), k[:, : i + 1].copy(), v[:, : i + 1].copy())
        np.testing.assert_array_equal(one, whole[:, i : i + 1])


@pytest.mark.parametrize(("q_len", "kv_len"), [(1, 5000), (3, 2500), (300, 300), (65, 1300)])
def test_threads_do_not_matter(q_len: int, kv_len: int) -> None:
    q, k, v = qkv(4, 2, q_len, kv_len, 64, 1.5)
    default = run(q, k, v)
    for threads in (1, 2, 3):
        np.testing.assert_array_equal(run(q, k, v, pool=_core.ThreadPool(threads)), default)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    d=st.sampled_from([16, 32, 64, 80, 128]),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 5),
    kv_len=st.integers(1, 1200),
    q_part=st.floats(0, 1),
    causal=st.booleans(),
    window=st.integers(0, 1300),
    size=st.floats(0.05, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_any(d, kv_heads, group, kv_len, q_part, causal, window, size, seed) -> None:
    q_len = max(1, min(60, int(q_part * kv_len)))
    arrays = qkv(kv_heads * group, kv_heads, q_len, kv_len, d, size, seed)
    check(*arrays, causal=causal, window=window if causal else 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_non_finite_raises(bad: float, which: int) -> None:
    arrays = qkv(2, 1, 4, 40, 64)
    arrays[which][0, 3, 17] = bad
    with pytest.raises(ValueError, match="qkv"[which]):
        run(*arrays)
    check(*qkv(2, 1, 4, 40, 64))  # and the next call works


def test_refuses() -> None:
    q, k, v = qkv(4, 2, 3, 40, 64)
    with pytest.raises(ValueError, match=r"3.*2|2.*3"):
        run(q[:3].copy(), k, v)
    with pytest.raises(ValueError, match=r"40.*39|39.*40"):
        run(q, k, v[:, :39].copy())
    with pytest.raises(ValueError, match=r"64.*48|48.*64"):
        run(q, k[..., :48].copy(), v[..., :48].copy())
    with pytest.raises(ValueError, match="40"):
        run(*(x[..., :40].copy() for x in (q, k, v)))
    with pytest.raises(ValueError, match="0"):
        run(q[:, :0].copy(), k, v)
    with pytest.raises(ValueError, match="0"):
        run(q, k[:, :0].copy(), v[:, :0].copy())
    with pytest.raises((ValueError, TypeError), match="float64"):
        run(q.astype(np.float64), k, v)
    with pytest.raises((ValueError, TypeError), match="float16"):
        run(q, k.astype(np.float16), v)
    with pytest.raises(ValueError, match="contiguous"):
        run(q, k, np.zeros((2, 40, 128), np.float32)[..., ::2])
    with pytest.raises(ValueError, match="dimensions"):
        run(q[0], k, v)
    for scale in (math.nan, math.inf, 0.0, -1.0):
        with pytest.raises(ValueError, match="scale"):
            run(q, k, v, scale=scale)
    with pytest.raises((ValueError, TypeError)):
        run(q, k, v, window=-1)


def test_limits_of_the_format() -> None:
    assert (_core.KEY_BLOCK, _core.KEY_RANGE, _core.GROUP) == (256, 1024, 32)
    assert ism.LUT[62:].tolist() == [1, 0]
