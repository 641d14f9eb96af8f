"""The index softmax kernel: exact against the oracle, and the error bound of docs/numerics.md."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from isa_fixture import isa  # noqa: F401
from reference import index_softmax as ism
from reference.gemm import gemm
from reference.quantize import quantize

from intattention import _core

pytestmark = pytest.mark.usefixtures("isa")

KEYS = (1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 64, 100, 255, 256)


def arguments(rng: np.random.Generator, m: int, n: int, narrow: int, spread: int) -> dict:
    end = rng.integers(0, n + 1, m, dtype=np.int32)
    running = rng.integers(-2000, 2000, m, dtype=np.int32)
    return {
        "logits": rng.integers(-spread, spread + 1, (m, n), dtype=np.int32),
        "key_ratio": rng.integers(0, 32768, n).astype(np.int16),
        "log_scale": rng.integers(-16384, 16384, n).astype(np.int16)
        if spread % 2
        else rng.integers(-600, 1, n).astype(np.int16),
        "sum_weight": rng.integers(0, 32768, n).astype(np.uint16),
        "begin": (end * rng.random(m) * rng.integers(0, 2, m)).astype(np.int32),
        "end": end,
        "narrow": narrow,
        "factor": rng.integers(0, 32768, m).astype(np.int16),
        "lshift": rng.integers(0, 16, m, dtype=np.int32),
        "running_max": np.where(rng.random(m) < 0.5, ism.NO_MAX, running).astype(np.int32),
    }


def check(a: dict) -> None:
    expected = ism.index_softmax(**a)
    for name, got, want in zip(
        expected._fields, _core.index_softmax_s32u8(**a), expected, strict=True
    ):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want, err_msg=name)


@pytest.mark.parametrize("n", KEYS)
@pytest.mark.parametrize("narrow", [0, 1, 5, 15])
@pytest.mark.parametrize("spread", [0, 1000, 1_000_000, 2**31 - 1])
def test_grid(n: int, narrow: int, spread: int) -> None:
    rng = np.random.default_rng(n * 16 + narrow)
    if spread == 2**31 - 1:
        spread -= 1 << 15  # room for the rounding, as |A| <= 127 * 127 * 65536 has
    for m in (1, 3, 40):
        check(arguments(rng, m, n, narrow, spread))


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    m=st.integers(1, 9),
    n=st.integers(1, 256),
    narrow=st.integers(0, 15),
    spread=st.sampled_from([0, 1, 100, 20_000, 1_000_000, 16_000_000]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any(m: int, n: int, narrow: int, spread: int, seed: int) -> None:
    check(arguments(np.random.default_rng(seed), m, n, narrow, spread))


def plain(m: int, n: int, logits: int = 0) -> dict:
    """Ratios and weights of one, y = t = logits / 2, nothing seen yet, all visible."""
    return {
        "logits": np.full((m, n), logits, np.int32),
        "key_ratio": np.full(n, 32767, np.int16),
        "log_scale": np.zeros(n, np.int16),
        "sum_weight": np.full(n, 32767, np.uint16),
        "begin": np.zeros(m, np.int32),
        "end": np.full(m, n, np.int32),
        "narrow": 0,
        "factor": np.full(m, 16384, np.int16),
        "lshift": np.zeros(m, np.int32),
        "running_max": np.full(m, ism.NO_MAX, np.int32),
    }


def test_flat_row_of_256() -> None:
    """The largest row sum there is: just below 2^31."""
    probs, largest, total = _core.index_softmax_s32u8(**plain(2, 256, 400))
    assert (probs == 255).all()
    assert largest.tolist() == [200, 200]
    assert total.tolist() == [32767 * 255 * 256] * 2


def test_lut_by_walking_delta() -> None:
    """E' at every distance 0..1100 from the maximum is the table of the formula."""
    formula = [max(1, round(255 * math.exp(-6.6 * i / 63))) for i in range(63)] + [0]
    assert formula == ism.LUT.tolist()
    for first in range(0, 1100, 255):
        a = plain(1, 256)
        delta = np.array([0, *range(first, first + 255)])
        a["logits"][0] = -2 * delta
        probs, largest, total = _core.index_softmax_s32u8(**a)
        expected = [formula[(min(x, 1024) * 63 + 512) >> 10] for x in delta.tolist()]
        assert probs[0].tolist() == expected
        assert largest[0] == 0
        assert total[0] == 32767 * sum(expected)


@pytest.mark.parametrize(("running", "dropped"), [(2148, False), (2149, True)])
def test_blocks_far_below_the_running_maximum_are_dropped(running: int, dropped: bool) -> None:
    a = plain(2, 48, 200)
    a["running_max"][:] = [running, ism.NO_MAX]
    probs, largest, total = _core.index_softmax_s32u8(**a)
    assert largest.tolist() == [100, 100]
    assert (probs[0] == (0 if dropped else 255)).all()
    assert (total[0] == 0) == dropped
    assert (probs[1] == 255).all()


def test_log_scale_moves_the_maximum_and_the_weights() -> None:
    a = plain(1, 16)
    a["log_scale"][:] = -300
    a["log_scale"][3] = 0
    a["sum_weight"][3] = 7
    probs, largest, total = _core.index_softmax_s32u8(**a)
    expected = np.full(16, ism.LUT[(300 * 63 + 512) >> 10])
    expected[3] = 255
    assert probs[0].tolist() == expected.tolist()
    assert largest[0] == 0
    assert total[0] == 32767 * (int(expected.sum()) - 255) + 7 * 255


def test_masked_rows() -> None:
    a = plain(3, 64, 100)
    a["begin"][:] = [0, 64, 20]
    a["end"][:] = [0, 64, 20]
    a["running_max"][:] = [ism.NO_MAX, 7, ism.NO_MAX]
    probs, largest, total = _core.index_softmax_s32u8(**a)
    assert not probs.any()
    assert largest.tolist() == [ism.NO_MAX] * 3
    assert not total.any()


def test_masked_keys_do_not_matter() -> None:
    a = plain(1, 100, 50)
    a["begin"][0], a["end"][0] = 33, 71
    expected = _core.index_softmax_s32u8(**a)
    a["logits"][0, :33] = 2_000_000
    a["logits"][0, 71:] = -2_000_000
    for got, want in zip(_core.index_softmax_s32u8(**a), expected, strict=True):
        np.testing.assert_array_equal(got, want)


def kernel_counts(a: dict) -> np.ndarray:
    """The kernel's t of every key: the maximum of a row that sees only this key, log scale 0."""
    n = a["logits"].shape[1]
    t = []
    for j in range(n):
        rows = np.full(len(a["factor"]), j, np.int32)
        one = a | {"begin": rows, "end": rows + np.int32(1)}
        t.append(_core.index_softmax_s32u8(**one)[1])
    return np.stack(t, axis=1)


def heads(kind: str, rng: np.random.Generator, rows: int, d: int) -> np.ndarray:
    x = rng.standard_normal((rows, d))
    if kind == "spread":  # scales over three orders of magnitude, so that the key ratios matter
        x *= 10 ** rng.uniform(-3, 0, (rows, 1))
    elif kind == "spike":  # one outlier channel: small int8 everywhere else, a small |q8|_1
        x[np.arange(rows), rng.integers(0, d, rows)] *= 50
    elif kind == "signs":  # every int8 is +-127: the largest |q8|_1 and |A|
        x = np.sign(x)
    elif kind == "equal":
        x = np.ones((rows, d))
    return x.astype(np.float32)


@pytest.mark.parametrize("d", [16, 64, 128, 256])
@pytest.mark.parametrize("kind", ["normal", "spread", "spike", "signs", "equal"])
@pytest.mark.parametrize("size", [0.02, 1.0, 3.0, 6.0])
def test_error_bound(d: int, kind: str, size: float) -> None:
    """|t - t*| <= 1.5 F + 1.5 counts wherever t* is within 16383 counts."""
    rng = np.random.default_rng(d)
    q8, s_q, _ = quantize(heads(kind, rng, 16, d) * np.float32(size), d)
    k8, s_k, _ = quantize(heads(kind, rng, 64, d) * np.float32(size), d)
    s_q, s_k, scale = s_q[:, 0], s_k[:, 0], 1 / math.sqrt(d)
    logits, narrow = gemm(q8, k8), ism.narrow_bits(q8)
    counts_per_unit, factor, lshift = ism.row_factor(s_q, s_k.max(), scale, narrow)
    exact = logits * (s_q.astype(np.float64)[:, None] * s_k * scale * 1024 / 6.6)
    a = plain(16, 64) | {
        "logits": logits,
        "key_ratio": ism.key_ratio(s_k, s_k.max()),
        "factor": factor,
        "lshift": lshift,
    }
    for n in np.unique(narrow):
        rows = narrow == n
        part = a | {
            x: a[x][rows] for x in ("logits", "begin", "end", "factor", "lshift", "running_max")
        }
        t = kernel_counts(part | {"narrow": int(n)})
        inside = np.abs(exact[rows]) < 16383
        bound = 1.5 * counts_per_unit[rows, None].astype(np.float64) + 1.5
        error = np.abs(t - exact[rows])
        assert inside.any() or kind == "equal"
        assert (error <= bound)[inside].all(), (
            f"largest error / bound {(error / bound)[inside].max()}"
        )


@pytest.mark.parametrize("d", [16, 64, 80, 128, 256])
def test_narrow_never_saturates(d: int) -> None:
    for q8 in (np.full(d, 127, np.int8), np.eye(1, d, dtype=np.int8)[0], np.zeros(d, np.int8)):
        n = int(ism.narrow_bits(q8))
        largest = 127 * int(np.abs(q8.astype(int)).sum())
        assert (largest + ((1 << n) >> 1)) >> n <= 32767
        assert n == 0 or largest > 32767 << (n - 1)


def test_refuses() -> None:
    good = plain(3, 64)
    for name, value in good.items():
        if name == "narrow":
            continue
        with pytest.raises((ValueError, TypeError), match="float64"):
            _core.index_softmax_s32u8(**good | {name: value.astype(np.float64)})
    wrong = {
        "logits": np.zeros((3, 257), np.int32),
        "key_ratio": np.zeros(63, np.int16),
        "log_scale": np.zeros(65, np.int16),
        "sum_weight": np.zeros(66, np.uint16),
        "begin": np.zeros(4, np.int32),
        "end": np.full(3, 65, np.int32),
        "narrow": 16,
        "factor": np.full(3, -1, np.int16),
        "lshift": np.full(3, 16, np.int32),
        "running_max": np.full(3, 40000, np.int32),
    }
    numbers = {
        "logits": "257",
        "key_ratio": "63",
        "log_scale": "65",
        "sum_weight": "66",
        "begin": "4",
        "end": "65",
        "narrow": "16",
        "factor": "-1",
        "lshift": "16",
        "running_max": "40000",
    }
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=numbers[name]):
            _core.index_softmax_s32u8(**good | {name: value})
    with pytest.raises(ValueError, match="16384"):
        _core.index_softmax_s32u8(**good | {"log_scale": np.full(64, 16384, np.int16)})
    with pytest.raises(ValueError, match="contiguous"):
        _core.index_softmax_s32u8(**good | {"logits": np.zeros((3, 128), np.int32)[:, ::2]})
