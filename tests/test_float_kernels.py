"""rmsnorm, rope, swiglu: the same bits as the oracle on every table."""

import numpy as np
import pytest
from isa_fixture import isa  # noqa: F401
from reference.float_kernels import exp_f32, plain_frequencies, rmsnorm, rope, rope_tables, swiglu

from intattention import _core, ops

pytestmark = pytest.mark.usefixtures("isa")

EXP_RELATIVE_ERROR = 3e-7  # measured 2.5e-7 over [-87, 88]
RMSNORM_RELATIVE_ERROR = 2e-6
SILU_RELATIVE_ERROR = 1e-6


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("n", [8, 16, 24, 64, 576, 1000, 4096])
@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_rmsnorm(n: int, size: float) -> None:
    x, weight = normal(n, 5, n) * np.float32(size), normal(n + 1, n)
    y = _core.rmsnorm_f32(x, weight, 1e-5)
    np.testing.assert_array_equal(y, rmsnorm(x, weight, 1e-5))
    wide = x.astype(np.float64)
    exact = wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(y, exact, rtol=RMSNORM_RELATIVE_ERROR, atol=0)


def test_rmsnorm_of_zeros_is_zero() -> None:
    assert not _core.rmsnorm_f32(np.zeros((2, 64), np.float32), np.ones(64, np.float32), 1e-6).any()


@pytest.mark.parametrize("d", [16, 32, 48, 64, 80, 96, 128, 256])
def test_rope(d: int) -> None:
    x = normal(d, 300, d)
    cos, sin = rope_tables(np.arange(300), plain_frequencies(d, 10000.0))
    y = _core.rope_f32(x, cos, sin)
    np.testing.assert_array_equal(y, rope(x, cos, sin))
    np.testing.assert_array_equal(y[0], x[0])  # position 0 is not rotated
    length = np.linalg.norm(x.astype(np.float64), axis=1)
    np.testing.assert_allclose(np.linalg.norm(y.astype(np.float64), axis=1), length, rtol=1e-6)


@pytest.mark.parametrize("n", [8, 24, 96, 1536])
@pytest.mark.parametrize("size", [0.01, 1.0, 30.0, 200.0])
def test_swiglu(n: int, size: float) -> None:
    gate, up = normal(n, 4, n) * np.float32(size), normal(n + 1, 4, n)
    y = _core.swiglu_f32(gate, up)
    np.testing.assert_array_equal(y, swiglu(gate, up))
    ordinary = np.abs(gate) < 80  # beyond, exp_f32 is clamped
    wide = gate.astype(np.float64)[ordinary]
    exact = wide / (1 + np.exp(-wide)) * up[ordinary]
    np.testing.assert_allclose(y[ordinary], exact, rtol=SILU_RELATIVE_ERROR, atol=0)


def test_swiglu_extremes() -> None:
    gate = np.array([[0, -0.0, 88, -88, 1e30, -1e30, 87.5, -87.5]], np.float32)
    y = _core.swiglu_f32(gate, np.ones_like(gate))
    np.testing.assert_array_equal(y, swiglu(gate, np.ones_like(gate)))
    assert np.isfinite(y).all()


def test_exp_accuracy() -> None:
    """The oracle's exp against double; that the kernels equal the oracle is tested below."""
    x = np.linspace(-87, 88, 1_000_001).astype(np.float32)
    relative = exp_f32(x) / np.exp(x.astype(np.float64)) - 1
    assert np.abs(relative).max() <= EXP_RELATIVE_ERROR
    assert exp_f32(np.float32([0, -0.0])).tolist() == [1, 1]
    assert exp_f32(np.float32([-1e9])) == exp_f32(np.float32([-87]))


def test_swiglu_dense_gate() -> None:
    """A million gates across exp's range: the same bits as the oracle."""
    gate = np.linspace(-90, 90, 1 << 20).astype(np.float32).reshape(64, -1)
    up = np.full_like(gate, 0.7)
    np.testing.assert_array_equal(_core.swiglu_f32(gate, up), swiglu(gate, up))


@pytest.mark.parametrize("decay", [0.0, 0.37, 1.0])
def test_accumulate(decay: float) -> None:
    rng = np.random.default_rng(5)
    total = rng.integers(-(2**31), 2**31, (3, 24)).astype(np.int32)
    out, scale = normal(6, 3, 24), np.float32(0.0123)
    expected = out * np.float32(decay) + total.astype(np.float32) * scale
    y = ops.accumulate_s32f32(total, out, decay, float(scale))
    np.testing.assert_array_equal(y, expected)
    with pytest.raises(ValueError, match="12 is not a multiple of 8"):
        ops.accumulate_s32f32(total[:, :12].copy(), out[:, :12].copy(), decay, 1.0)
    with pytest.raises(ValueError, match="out"):
        ops.accumulate_s32f32(total, out[:2].copy(), decay, 1.0)


def test_refuses() -> None:
    x, w = np.zeros((4, 64), np.float32), np.zeros(64, np.float32)
    with pytest.raises((ValueError, TypeError), match="float64"):
        _core.rmsnorm_f32(x.astype(np.float64), w, 1e-5)
    with pytest.raises(ValueError, match="contiguous"):
        _core.rmsnorm_f32(x[:, ::2], w[:32], 1e-5)
    with pytest.raises(ValueError, match=r"64.*63|63.*64"):
        _core.rmsnorm_f32(x, w[:63], 1e-5)
    with pytest.raises(ValueError, match="60"):
        _core.rmsnorm_f32(np.zeros((4, 60), np.float32), np.zeros(60, np.float32), 1e-5)
    with pytest.raises(ValueError, match="eps"):
        _core.rmsnorm_f32(x, w, float("nan"))
    with pytest.raises(ValueError, match="40"):
        _core.rope_f32(
            x[:, :40].copy(), np.zeros((4, 20), np.float32), np.zeros((4, 20), np.float32)
        )
    with pytest.raises(ValueError, match=r"32.*16|16.*32"):
        _core.rope_f32(x, np.zeros((4, 16), np.float32), np.zeros((4, 32), np.float32))
    with pytest.raises(ValueError, match=r"64.*32|32.*64"):
        _core.swiglu_f32(x, x[:, :32].copy())
    with pytest.raises((ValueError, TypeError), match="float16"):
        _core.swiglu_f32(x, x.astype(np.float16))
