"""softmax="quant_only": the oracle's bits on every table; close to float attention."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from isa_fixture import isa  # noqa: F401
from reference import quant_only
from reference.attention import float_attention
from reference.index_softmax import NO_MAX

from intattention import _core, ops

pytestmark = pytest.mark.usefixtures("isa")

# Of normal q, k, v with one scale per tensor; measured 0.9998 and 0.004 to 0.03.
MIN_COSINE = 0.999
MAX_RELATIVE_L1 = 0.06


def qkv(
    heads: int, kv_heads: int, q_len: int, kv_len: int, d: int, size: float = 1.5, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = ((heads, q_len, d), (kv_heads, kv_len, d), (kv_heads, kv_len, d))
    return tuple((rng.standard_normal(s) * size).astype(np.float32) for s in shapes)


def run(q, k, v, causal=True, **more) -> np.ndarray:
    scale = more.pop("scale", 1 / math.sqrt(q.shape[-1]))
    return _core.attention_quant_only(q, k, v, causal, scale, **more)


def check(q, k, v, causal=True, **more) -> np.ndarray:
    out = run(q, k, v, causal, **more)
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, quant_only.attention(q, k, v, causal, **more))
    return out


@pytest.mark.parametrize("n", [1, 15, 16, 17, 100, 255, 256])
@pytest.mark.parametrize("factor", [0.0, 1e-7, 3e-4, 0.5, 1e30])
def test_kernel(n: int, factor: float) -> None:
    rng = np.random.default_rng(n)
    m = 20
    logits = rng.integers(-20_000, 20_000, (m, n), dtype=np.int32)
    logits[::4] = rng.integers(-(2**24), 2**24, (m // 4, n), dtype=np.int32)
    end = rng.integers(0, n + 1, m, dtype=np.int32)
    end[:4] = n
    begin = (end * rng.random(m) * rng.integers(0, 2, m)).astype(np.int32)
    running = np.where(rng.random(m) < 0.5, NO_MAX, rng.integers(-30_000, 30_000, m))
    running = running.astype(np.int32)
    got = _core.softmax_s32s8(logits, begin, end, factor, running)
    want = quant_only.softmax_block(logits, begin, end, np.float32(factor), running)
    for name, a, b in zip(("probs", "max", "sum"), got, want, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)


def test_kernel_over_all_distances() -> None:
    """Every P from 127 to 0, in steps fine enough to meet each rounding."""
    delta = np.arange(0, 256 * 80)
    logits = np.zeros((80, 256), np.int32) - delta.reshape(80, 256).astype(np.int32)
    zeros, ends = np.zeros(80, np.int32), np.full(80, 256, np.int32)
    probs, largest, _ = _core.softmax_s32s8(logits, zeros, ends, 6.0 / delta.size, zeros)
    expected, _, _ = quant_only.softmax_block(
        logits, zeros, ends, np.float32(6.0 / delta.size), zeros
    )
    np.testing.assert_array_equal(probs, expected)
    assert not largest.any()
    exact = 127 * np.exp(-delta * (6.0 / delta.size))
    assert np.abs(probs.ravel() - exact).max() <= 0.5001
    assert set(range(1, 128)) <= set(probs.ravel().tolist())


@pytest.mark.parametrize("d", [16, 64, 80, 128, 256])
@pytest.mark.parametrize("kv_len", [1, 7, 255, 256, 257, 1023, 1025, 2049])
def test_head_dims_and_blocks(d: int, kv_len: int) -> None:
    for q_len in {1, min(kv_len, 5), min(kv_len, 33)}:
        check(*qkv(2, 1, q_len, kv_len, d, seed=kv_len))


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (9, 3), (9, 1), (40, 1)])
@pytest.mark.parametrize(("q_len", "kv_len"), [(1, 300), (40, 40), (33, 700)])
def test_grouped_heads(heads: int, kv_heads: int, q_len: int, kv_len: int) -> None:
    check(*qkv(heads, kv_heads, q_len, kv_len, 64))


@pytest.mark.parametrize("q_len", [1, 33, 300])
def test_not_causal(q_len: int) -> None:
    check(*qkv(3, 1, q_len, 300, 64), causal=False)
    check(*qkv(2, 2, 50, 10, 64), causal=False)


@pytest.mark.parametrize("window", [1, 16, 255, 257, 1024, 5000])
@pytest.mark.parametrize(("q_len", "kv_len"), [(1, 1300), (600, 600), (70, 1400)])
def test_window(window: int, q_len: int, kv_len: int) -> None:
    check(*qkv(2, 1, q_len, kv_len, 32), window=window)


@pytest.mark.parametrize("prefix", [1, 17, 256, 300, 1000])
def test_prefix(prefix: int) -> None:
    check(*qkv(4, 2, 280, 290, 32), prefix=prefix)


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


def test_flat_rows() -> None:
    """The sum of the rounded P divides, so that the weights add up to 1 and the mean survives."""
    q, _, v = qkv(2, 1, 3, 3000, 64)
    v = v + np.float32(2)
    out = check(q, np.ones((1, 3000, 64), np.float32), v, causal=False)
    mean = v[0].astype(np.float64).mean(axis=0)
    assert np.abs(out - mean).max() <= 0.005 * np.abs(mean).max()


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("size", [0.0, 1e-40, 1e-33, 1e-20, 1e15, 1e30])
def test_zeros_tiny_and_huge_values(which: int, size: float) -> None:
    arrays = list(qkv(2, 1, 20, 300, 64))
    arrays[which] = (arrays[which] * size).astype(np.float32)
    assert np.isfinite(check(*arrays)).all()


def test_factor_beyond_float() -> None:
    q, k, v = qkv(2, 1, 20, 300, 64)
    check(q * np.float32(1e30), k * np.float32(1e30), v)


def test_threads_do_not_matter() -> None:
    for shape in ((4, 2, 1, 5000, 64), (4, 2, 300, 300, 64), (3, 3, 65, 1300, 64)):
        q, k, v = qkv(*shape)
        default = check(q, k, v)
        for threads in (1, 2, 3):
            pool = _core.ThreadPool(threads)
            np.testing.assert_array_equal(run(q, k, v, pool=pool), default)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    d=st.sampled_from([16, 48, 64, 128]),
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


def test_refuses() -> None:
    q, k, v = qkv(4, 2, 3, 40, 64)
    with pytest.raises(ValueError, match="3 query heads"):
        run(q[:3].copy(), k, v)
    with pytest.raises(ValueError, match=r"40.*39|39.*40"):
        run(q, k, v[:, :39].copy())
    with pytest.raises(ValueError, match="head_dim 40"):
        run(*(x[..., :40].copy() for x in (q, k, v)))
    with pytest.raises(ValueError, match="float16"):
        run(q, k.astype(np.float16), v)
    with pytest.raises(ValueError, match="window 2 and prefix 3"):
        run(q, k, v, window=2, prefix=3)
    for scale in (math.nan, math.inf, 0.0, -1.0):
        with pytest.raises(ValueError, match="scale"):
            run(q, k, v, scale=scale)
    for name, x in zip("qkv", (q, k, v), strict=True):
        bad = {"q": q, "k": k, "v": v, name: np.where(x > 2, np.float32(np.nan), x)}
        with pytest.raises(ValueError, match=f"{name} holds NaN or Inf"):
            run(**bad)
    span = np.zeros(1, np.int32), np.full(1, 5, np.int32)
    with pytest.raises(ValueError, match="keys 0 to 5"):
        _core.softmax_s32s8(np.zeros((1, 4), np.int32), *span, 1.0, span[0])
    with pytest.raises(ValueError, match="factor is -1"):
        _core.softmax_s32s8(np.zeros((1, 5), np.int32), *span, -1.0, span[0])
    far = np.array([[0, 1 << 29]], np.int32)
    ends = np.zeros(1, np.int32), np.full(1, 2, np.int32)
    with pytest.raises(ValueError, match="row 0 is 536870912"):
        ops.softmax_s32s8(far, *ends, 1.0, np.zeros(1, np.int32))
    with pytest.raises(ValueError, match="row 0 is 536870912"):
        ops.softmax_s32s8(np.zeros((1, 2), np.int32), *ends, 1.0, far[0, 1:].copy())
