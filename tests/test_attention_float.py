"""attention_float(): close to float64 on every table, the same bits for every thread count."""

import math

import numpy as np
import pytest
from isa_fixture import isa  # noqa: F401
from reference.attention import float_attention

from intattention import _core

pytestmark = pytest.mark.usefixtures("isa")

# Largest error over the largest output.
FP32_TOLERANCE = 1e-5
FP16_TOLERANCE = 5e-3
# Logits of thousands: float32 keeps them to 2^-24 of their size; exp makes that a relative error.
LARGE_LOGIT_TOLERANCE = 2e-3

TOLERANCES = {"fp32": FP32_TOLERANCE, "fp16": FP16_TOLERANCE}


@pytest.fixture(params=TOLERANCES)
def precision(request: pytest.FixtureRequest, isa: str) -> str:  # noqa: F811
    kernels = _core.kernel_names()
    if request.param == "fp16" and kernels["gemm_f16f16f32"] == kernels["widen_f16f32"] == "none":
        pytest.skip(f"{isa} has no float16")
    return request.param


def qkv(
    heads: int, kv_heads: int, q_len: int, kv_len: int, d: int, size: float = 1.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = ((heads, q_len, d), (kv_heads, kv_len, d), (kv_heads, kv_len, d))
    return tuple((rng.standard_normal(s) * size).astype(np.float32) for s in shapes)


def run(q, k, v, precision, causal=True, scale=None, window=0, prefix=0, pool=None) -> np.ndarray:
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return _core.attention_float(q, k, v, causal, scale, window, prefix, precision, pool)


def check(q, k, v, precision, causal=True, scale=None, window=0, prefix=0, tolerance=None):
    out = run(q, k, v, precision, causal, scale, window, prefix)
    exact = float_attention(q, k, v, causal, scale, window, prefix)
    assert out.dtype == np.float32
    assert np.isfinite(out).all()
    error = np.abs(out - exact).max() / np.abs(exact).max()
    assert error <= (tolerance or TOLERANCES[precision])
    return out


@pytest.mark.parametrize("d", [16, 64, 80, 96, 128, 256])
@pytest.mark.parametrize("kv_len", [1, 15, 17, 255, 257, 1025])
def test_head_dims_and_tails(precision: str, d: int, kv_len: int) -> None:
    for q_len in {1, min(kv_len, 5), min(kv_len, 49)}:
        check(*qkv(2, 1, q_len, kv_len, d, seed=kv_len), precision)


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 4), (9, 3), (14, 2), (60, 1)])
@pytest.mark.parametrize(("q_len", "kv_len"), [(1, 300), (40, 40), (33, 700)])
def test_grouped_heads(precision: str, heads: int, kv_heads: int, q_len: int, kv_len: int) -> None:
    check(*qkv(heads, kv_heads, q_len, kv_len, 64), precision)


def test_each_query_head_reads_its_kv_head(precision: str) -> None:
    q, k, v = qkv(6, 2, 3, 20, 64)
    v[:] = np.array([1.0, -1.0], np.float32)[:, None, None]
    out = check(q, k, v, precision)
    assert (out[:3] > 0.99).all()
    assert (out[3:] < -0.99).all()


@pytest.mark.parametrize("q_len", [1, 47, 48, 49, 300])
def test_not_causal(precision: str, q_len: int) -> None:
    check(*qkv(3, 1, q_len, 270, 64), precision, causal=False)


@pytest.mark.parametrize("window", [1, 16, 255, 256, 257, 1024, 5000])
@pytest.mark.parametrize(("q_len", "kv_len"), [(1, 1300), (600, 600), (70, 1400)])
def test_window(precision: str, window: int, q_len: int, kv_len: int) -> None:
    check(*qkv(2, 1, q_len, kv_len, 32), precision, window=window)


@pytest.mark.parametrize("prefix", [1, 17, 256, 300, 1000])
def test_prefix(precision: str, prefix: int) -> None:
    check(*qkv(4, 2, 280, 290, 32), precision, prefix=prefix)


def test_long_rows(precision: str) -> None:
    """Flat rows, and rows of tiny weights beside one large one, must not lose their mass."""
    q, _, v = qkv(2, 1, 3, 9000, 64)
    v += np.float32(1)
    flat = np.ones((1, 9000, 64), np.float32)
    check(q, flat, v, precision, causal=False)
    k = np.zeros((1, 9000, 64), np.float32)
    q[:] = 1
    k[0, 4000] = 10 / 8  # one logit of 10 against 8,999 of 0: they hold 29 % of the sum
    check(q, k, v, precision, causal=False)


@pytest.mark.parametrize("size", [10.0, 30.0])
def test_large_logits_fp32(size: float) -> None:
    check(*qkv(3, 1, 20, 1100, 64, size), "fp32", tolerance=LARGE_LOGIT_TOLERANCE)


def test_large_logits_pick_the_largest(precision: str) -> None:
    q, k, v = qkv(2, 1, 4, 600, 64)
    q[:], k[:] = 8, -8
    k[0, 77] = 8  # 64 * 64 / 8 = 512 nats above and below zero
    out = check(q, k, v, precision, causal=False)
    assert np.abs(out - v[0, 77]).max() <= 1e-3 * np.abs(v[0, 77]).max()


@pytest.mark.parametrize(("q_len", "kv_len"), [(1, 3000), (1, 70), (130, 1500)])
@pytest.mark.parametrize("mask", [{}, {"window": 300}, {"prefix": 200}, {"causal": False}])
def test_thread_counts(precision: str, q_len: int, kv_len: int, mask: dict) -> None:
    q, k, v = qkv(6, 3, q_len, kv_len, 64)
    expected = run(q, k, v, precision, pool=_core.ThreadPool(1), **mask)
    for threads in (2, 3, 8):
        out = run(q, k, v, precision, pool=_core.ThreadPool(threads), **mask)
        np.testing.assert_array_equal(out, expected)


def test_many_heads_are_packed_in_parts(precision: str) -> None:
    """More K and V than the packed buffer takes at once."""
    q, k, v = qkv(12, 12, 4, 9000, 64)
    check(q, k, v, precision)


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite(precision: str, which: int, value: float) -> None:
    arrays = qkv(2, 2, 5, 9, 16)
    arrays[which][1, 3, 7] = value
    with pytest.raises(ValueError, match=f"{'qkv'[which]} holds NaN or Inf"):
        run(*arrays, precision)


def test_beyond_float16(precision: str) -> None:
    q, k, v = qkv(1, 1, 2, 2, 16)
    v[0, 1] = 70000
    if precision == "fp32":
        check(q, k, v, precision)
    else:
        with pytest.raises(ValueError, match="v exceeds 65504"):
            run(q, k, v, precision)


def test_overflow_of_logits() -> None:
    q, k, v = qkv(1, 1, 2, 2, 16)
    with pytest.raises(_core.NumericError, match="overflow"):
        run(q * np.float32(1e30), k * np.float32(1e30), v, "fp32")


def test_bad_arguments() -> None:
    q, k, v = qkv(2, 2, 5, 9, 16)
    with pytest.raises(ValueError, match="precision is 'bf16'"):
        run(q, k, v, "bf16")
    with pytest.raises(ValueError, match=r"v: expected shape \(2, 9, 16\)"):
        run(q, k, v[:, :8].copy(), "fp32")
    with pytest.raises(ValueError, match="window 2 and prefix 3"):
        run(q, k, v, "fp32", window=2, prefix=3)
    with pytest.raises(ValueError, match="scale is 0"):
        run(q, k, v, "fp32", scale=0.0)
    with pytest.raises(ValueError, match="q: expected C-contiguous float32"):
        run(q.astype(np.float64), k, v, "fp32")
    with pytest.raises(ValueError, match="head_dim 24"):
        run(*(x[:, :, :1].repeat(24, axis=2) for x in (q, k, v)), "fp32")


def test_missing_float16_names_the_isa(isa: str) -> None:  # noqa: F811
    kernels = _core.kernel_names()
    if kernels["gemm_f16f16f32"] != "none" or kernels["widen_f16f32"] != "none":
        pytest.skip(f"{isa} has float16")
    with pytest.raises(RuntimeError, match=isa):
        run(*qkv(1, 1, 1, 1, 16), "fp16")
