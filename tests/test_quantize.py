"""float32 -> int8, bit exact against the oracle (docs/numerics.md section 2)."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from isa_fixture import isa  # noqa: F401
from reference.quantize import quantize

from intattention import _core

pytestmark = pytest.mark.usefixtures("isa")

GROUPS = (8, 16, 32, 64, 80, 96, 128, 256)


def check(x: np.ndarray, group: int) -> None:
    for got, expected in zip(_core.quantize_f32s8(x, group), quantize(x, group), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_random(group: int, rows: int) -> None:
    x = np.random.default_rng(group).standard_normal((rows, 3 * group)).astype(np.float32)
    check(x, group)
    check(x[0], group)
    check(x.reshape(rows, 3, group), group)


def test_range_and_error() -> None:
    x = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)
    q, scale, _ = _core.quantize_f32s8(x, 64)
    assert q.min() >= -127
    assert (np.abs(q).max(axis=1) == 127).all()
    assert (np.abs(q * scale - x) <= 0.5001 * scale).all()


def test_ties_go_to_even() -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, :9] = [127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 3.5, -3.5]
    q, scale, total = _core.quantize_f32s8(x, 32)
    assert scale[0, 0] == 1
    assert q[0, :9].tolist() == [127, 0, 2, 2, 0, -2, -2, 4, -4]
    assert total[0, 0] == 127


def test_zeros_are_zeros() -> None:
    x = np.zeros((2, 64), np.float32)
    x[1] = -0.0
    q, scale, total = _core.quantize_f32s8(x, 32)
    assert not q.any()
    assert not scale.any()
    assert not total.any()


@pytest.mark.parametrize("largest", [1e-45, 1e-40, 1e-38, 1e-30, 1e30, 3.4e38])
def test_extreme_magnitudes(largest: float) -> None:
    x = np.random.default_rng(2).uniform(-1, 1, (4, 64)) * largest
    check(x.astype(np.float32), 32)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 7, 31])
def test_non_finite_group_is_marked(bad: float, place: int) -> None:
    x = np.ones((1, 96), np.float32)
    x[0, 32 + place] = bad
    q, scale, _ = _core.quantize_f32s8(x, 32)
    assert np.isnan(scale[0]).tolist() == [False, True, False]
    assert not q[0, 32:64].any()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    group=st.sampled_from(GROUPS),
    rows=st.integers(1, 9),
    exponent=st.integers(-30, 30),
    seed=st.integers(0, 2**32 - 1),
)
def test_any(group: int, rows: int, exponent: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, group)) * 10.0**exponent
    x[rng.random(x.shape) < 0.2] = 0
    check(x.astype(np.float32), group)


def test_refuses() -> None:
    x = np.zeros((4, 64), np.float32)
    with pytest.raises((ValueError, TypeError), match="float64"):
        _core.quantize_f32s8(x.astype(np.float64), 32)
    with pytest.raises(ValueError, match="contiguous"):
        _core.quantize_f32s8(x[:, ::2], 32)
    with pytest.raises(ValueError, match=r"64.*48|48.*64"):
        _core.quantize_f32s8(x, 48)
    with pytest.raises(ValueError, match="12"):
        _core.quantize_f32s8(np.zeros((4, 24), np.float32), 12)
    with pytest.raises(ValueError, match="0"):
        _core.quantize_f32s8(x, 0)
    with pytest.raises((ValueError, TypeError), match="-32"):
        _core.quantize_f32s8(x, -32)
