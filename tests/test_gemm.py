"""Integer gemms: exact on every table, tails and extremes included."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from isa_fixture import isa  # noqa: F401
from reference.gemm import gemm

from intattention import _core

pytestmark = pytest.mark.usefixtures("isa")

# 1, tile - 1, tile, tile + 1 and deep ones, for tiles of 8 rows and of 2, 4, 8 or 16 query rows
M = (1, 2, 3, 4, 5, 7, 8, 9, 17, 33)
N = (1, 7, 8, 9, 16, 31, 64)
K = (1, 3, 4, 5, 8, 31, 64, 100, 257)


def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return _core.gemm_u8s8s32(a, b) if a.dtype == np.uint8 else _core.gemm_s8s8s32(a, b)


def random(rng: np.random.Generator, dtype: type, shape: tuple[int, int]) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("k", K)
def test_grid(dtype: type, k: int) -> None:
    rng = np.random.default_rng(k)
    for m in M:
        for n in N:
            a, b = random(rng, dtype, (m, k)), random(rng, np.int8, (n, k))
            result = run(a, b)
            assert result.dtype == np.int32
            np.testing.assert_array_equal(result, gemm(a, b), err_msg=f"m {m} n {n} k {k}")


@pytest.mark.parametrize(
    ("dtype", "left", "right"),
    [
        (np.uint8, 255, -128),
        (np.uint8, 255, 127),
        (np.uint8, 0, -128),
        (np.int8, -128, -128),
        (np.int8, -128, 127),
        (np.int8, 127, -128),
        (np.int8, 0, 0),
    ],
)
@pytest.mark.parametrize("shape", [(1, 8, 64), (5, 9, 260), (33, 16, 4096)])
def test_extremes(dtype: type, left: int, right: int, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = np.full((m, k), left, dtype), np.full((n, k), right, np.int8)
    np.testing.assert_array_equal(run(a, b), np.full((m, n), left * right * k, np.int32))


def test_alternating_extremes() -> None:
    """Pairs that saturate 16 bits if multiplied and added in 16 bits (vpmaddubsw)."""
    a = np.tile(np.array([255, 255, 0, 255], np.uint8), (3, 64))
    b = np.tile(np.array([127, 127, -128, -128], np.int8), (9, 64))
    np.testing.assert_array_equal(run(a, b), gemm(a, b))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_deepest_k(dtype: type) -> None:
    k = 65536
    left = np.iinfo(dtype).max if dtype == np.uint8 else np.iinfo(dtype).min
    a, b = np.full((1, k), left, dtype), np.full((1, k), -128, np.int8)
    assert run(a, b)[0, 0] == left * -128 * k


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    m=st.integers(1, 40),
    n=st.integers(1, 40),
    k=st.integers(1, 300),
    unsigned=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_shape(m: int, n: int, k: int, unsigned: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = random(rng, np.uint8 if unsigned else np.int8, (m, k))
    b = random(rng, np.int8, (n, k))
    np.testing.assert_array_equal(run(a, b), gemm(a, b))


@pytest.mark.parametrize("function", [_core.gemm_s8s8s32, _core.gemm_u8s8s32])
def test_refuses(function) -> None:
    left = np.uint8 if function is _core.gemm_u8s8s32 else np.int8
    a, b = np.zeros((4, 32), left), np.zeros((8, 32), np.int8)
    with pytest.raises((ValueError, TypeError), match="int64"):
        function(a.astype(np.int64), b)
    with pytest.raises((ValueError, TypeError), match="int16"):
        function(a, b.astype(np.int16))
    with pytest.raises(ValueError, match="contiguous"):
        function(a[:, ::2], b[:, :16])
    with pytest.raises(ValueError, match="contiguous"):
        function(np.asfortranarray(a), b)
    with pytest.raises(ValueError, match=r"32.*16|16.*32"):
        function(a, np.zeros((8, 16), np.int8))
    with pytest.raises(ValueError, match="dimensions"):
        function(a[0], b)
    with pytest.raises(ValueError, match="0"):
        function(a[:0], b)
    with pytest.raises(ValueError, match="65537"):
        function(np.zeros((1, 65537), left), np.zeros((1, 65537), np.int8))
