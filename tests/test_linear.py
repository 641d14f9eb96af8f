"""W4A8 and W8A8 linears: bit exact float32 against the oracle."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from isa_fixture import isa  # noqa: F401
from reference.linear import FORMATS, Weights, dequantize, linear, random_weights

from intattention import _core

pytestmark = pytest.mark.usefixtures("isa")

ACTIVATION_RELATIVE_L1 = 0.01  # int8 activations of a normal distribution: about 0.006


def pack(w: Weights) -> _core.PackedWeights:
    return _core.PackedWeights(*w)


def activations(rng: np.random.Generator, m: int, k: int) -> np.ndarray:
    return rng.standard_normal((m, k)).astype(np.float32)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("k", [32, 64, 96, 576, 1536])
def test_grid(format: str, k: int) -> None:
    rng = np.random.default_rng(k)
    for m in (1, 2, 3, 4, 5, 8, 9, 65):
        for n in (1, 7, 8, 9, 40, 65):
            w, x = random_weights(rng, format, n, k), activations(rng, m, k)
            y = _core.linear(x, [pack(w)])
            np.testing.assert_array_equal(y, linear(x, w), err_msg=f"m {m} n {n}")


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    format=st.sampled_from(FORMATS),
    m=st.integers(1, 20),
    n=st.integers(1, 50),
    groups=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
)
def test_any(format: str, m: int, n: int, groups: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    w, x = random_weights(rng, format, n, 32 * groups), activations(rng, m, 32 * groups)
    np.testing.assert_array_equal(_core.linear(x, [pack(w)]), linear(x, w))


@pytest.mark.parametrize("format", FORMATS)
def test_approximates_the_float_product(format: str) -> None:
    rng = np.random.default_rng(0)
    w, x = random_weights(rng, format, 64, 576), activations(rng, 32, 576)
    exact = x.astype(np.float64) @ dequantize(w).astype(np.float64).T
    error = np.abs(_core.linear(x, [pack(w)]) - exact).sum() / np.abs(exact).sum()
    assert error <= ACTIVATION_RELATIVE_L1


@pytest.mark.parametrize("format", FORMATS)
def test_extremes(format: str) -> None:
    """Largest nibbles or -128 against +-127, the largest f16 scale, and zeros."""
    n, k = 9, 128
    if format == "w8g32":
        values = [np.full((n, k), v, np.int8) for v in (-128, 127, 0)]
    else:
        values = [np.full((n, k // 32, 16), v, np.uint8) for v in (0xFF, 0xF0, 0)]
    for q in values:
        for step in (65504.0, 6e-8, 0.0):
            scale = np.full((n, k // 32), step, np.float16)
            low = -scale if format == "w4g32a" else None
            w = Weights(format, q, scale, low)
            x = np.concatenate([np.ones((2, k)), -np.ones((2, k)), np.zeros((1, k))]).astype(
                np.float32
            )
            np.testing.assert_array_equal(_core.linear(x, [pack(w)]), linear(x, w))


def test_parts_are_side_by_side() -> None:
    rng = np.random.default_rng(3)
    parts = [random_weights(rng, f, n, 96) for f, n in zip(FORMATS, (40, 9, 17), strict=True)]
    x = activations(rng, 5, 96)
    y = _core.linear(x, [pack(w) for w in parts])
    np.testing.assert_array_equal(y, np.concatenate([linear(x, w) for w in parts], axis=1))


@pytest.mark.parametrize("format", FORMATS)
def test_one_row_equals_many(format: str) -> None:
    rng = np.random.default_rng(4)
    w, x = pack(random_weights(rng, format, 100, 192)), activations(rng, 70, 192)
    together = _core.linear(x, [w])
    single = np.concatenate([_core.linear(x[i : i + 1], [w]) for i in range(len(x))])
    np.testing.assert_array_equal(together, single)


@pytest.mark.parametrize("format", FORMATS)
def test_threads_do_not_matter(format: str) -> None:
    rng = np.random.default_rng(5)
    w, x = pack(random_weights(rng, format, 333, 160)), activations(rng, 130, 160)
    first, *others = (_core.linear(x, [w], _core.ThreadPool(t)) for t in (1, 2, 3))
    for other in others:
        np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize("format", FORMATS)
def test_properties_and_dequantize(format: str) -> None:
    w = random_weights(np.random.default_rng(6), format, 21, 96)
    packed = pack(w)
    assert packed.format == format
    assert packed.shape == (21, 96)
    assert packed.nbytes >= w.q.nbytes + w.scale.nbytes
    rows = np.array([20, 0, 7, 8, 8], np.int32)
    np.testing.assert_array_equal(packed.dequantize_rows(rows), dequantize(w)[rows])
    for bad in (21, -1):
        with pytest.raises(ValueError, match=str(bad)):
            packed.dequantize_rows(np.array([bad], np.int32))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_must_be_finite(bad: float) -> None:
    rng = np.random.default_rng(7)
    for format in FORMATS:
        w = random_weights(rng, format, 4, 64)
        w.scale[3, 1] = bad
        with pytest.raises((ValueError, ArithmeticError)):
            pack(w)
    w = random_weights(rng, "w4g32a", 4, 64)
    w.min[0, 0] = bad
    with pytest.raises((ValueError, ArithmeticError)):
        pack(w)


def test_refuses_weights() -> None:
    w = random_weights(np.random.default_rng(8), "w4g32a", 8, 64)
    with pytest.raises(ValueError, match="w5g32"):
        _core.PackedWeights("w5g32", *w[1:])
    with pytest.raises(ValueError, match="min"):
        _core.PackedWeights("w4g32a", w.q, w.scale)
    with pytest.raises(ValueError, match="min"):
        _core.PackedWeights("w4g32", w.q, w.scale, w.min)
    with pytest.raises((ValueError, TypeError), match="float32"):
        _core.PackedWeights("w4g32", w.q, w.scale.astype(np.float32))
    with pytest.raises((ValueError, TypeError), match="uint8"):
        _core.PackedWeights("w8g32", w.q, w.scale)
    with pytest.raises(ValueError, match="15"):
        _core.PackedWeights("w4g32", w.q[:, :, :15].copy(), w.scale)
    with pytest.raises(ValueError, match=r"8, 2.*8, 1"):
        _core.PackedWeights("w4g32", w.q, w.scale[:, :1].copy())
    with pytest.raises(ValueError, match="contiguous"):
        _core.PackedWeights("w4g32", w.q[::2], w.scale[::2])
    with pytest.raises(ValueError, match="48"):
        _core.PackedWeights("w8g32", np.zeros((2, 48), np.int8), np.zeros((2, 1), np.float16))


def test_refuses_activations() -> None:
    rng = np.random.default_rng(9)
    w = pack(random_weights(rng, "w8g32", 8, 64))
    other = pack(random_weights(rng, "w8g32", 8, 96))
    x = activations(rng, 4, 64)
    with pytest.raises(ValueError, match=r"64.*96|96.*64"):
        _core.linear(np.zeros((4, 96), np.float32), [w])
    with pytest.raises(ValueError, match=r"64.*96|96.*64"):
        _core.linear(x, [w, other])
    with pytest.raises((ValueError, TypeError), match="float64"):
        _core.linear(x.astype(np.float64), [w])
    with pytest.raises(ValueError, match="contiguous"):
        _core.linear(np.zeros((4, 128), np.float32)[:, ::2], [w])
    with pytest.raises(ValueError, match="no weights"):
        _core.linear(x, [])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("format", FORMATS)
def test_non_finite_activations_are_refused(bad: float, format: str) -> None:
    rng = np.random.default_rng(10)
    w, x = random_weights(rng, format, 8, 64), activations(rng, 4, 64)
    x[1, 40] = bad
    with pytest.raises(ValueError, match="row 1 holds NaN or Inf"):
        _core.linear(x, [pack(w)])
