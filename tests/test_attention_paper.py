"""softmax="paper": the publication's results; the oracle's bits on every table; masks, threads."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from isa_fixture import isa  # noqa: F401
from reference import paper

from intattention import _core, ops

pytestmark = pytest.mark.usefixtures("isa")

GOLDEN = Path(__file__).parent / "data" / "paper_golden.npz"  # scripts/make_paper_golden.py
ROUNDINGS = ("nearest", "floor")


def qkv(
    heads: int, kv_heads: int, q_len: int, kv_len: int, d: int, size: float = 1.5, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = ((heads, q_len, d), (kv_heads, kv_len, d), (kv_heads, kv_len, d))
    return tuple((rng.standard_normal(s) * size).astype(np.float32) for s in shapes)


def run_int8(q, k, v, scales, causal, rounding, **more) -> tuple[np.ndarray, np.ndarray]:
    scale = more.pop("scale", 1 / math.sqrt(q.shape[-1]))
    return _core.attention_paper_int8(
        q, k, v, *map(float, scales), causal, scale, rounding=rounding, return_probs=True, **more
    )


def run(q, k, v, causal=True, rounding="nearest", **more) -> np.ndarray:
    scale = more.pop("scale", 1 / math.sqrt(q.shape[-1]))
    return _core.attention_paper(q, k, v, causal, scale, rounding=rounding, **more)


def check(q, k, v, causal=True, **more) -> np.ndarray:
    """Both entries, both roundings, P and out."""
    for rounding in ROUNDINGS:
        (q8, s_q), (k8, s_k), (v8, s_v) = map(paper.quantize_tensor, (q, k, v))
        scales = (s_q, s_k, s_v)
        expected, expected_p = paper.attention_int8(
            q8, k8, v8, scales, causal, rounding=rounding, **more
        )
        out, p = run_int8(q8, k8, v8, scales, causal, rounding, **more)
        np.testing.assert_array_equal(p, expected_p)
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(run(q, k, v, causal, rounding, **more), expected)
    return out


@pytest.mark.parametrize("case", "abcdefg")
def test_publication(case: str) -> None:
    """P equals the published simulation's, and so does out once rounded to its float16."""
    golden = np.load(GOLDEN)
    causal, expected = bool(golden[f"{case}_causal"]), golden[f"{case}_out"]
    s_q, s_k = golden[f"{case}_scale_q"], golden[f"{case}_scale_k"]
    if f"{case}_q" in golden:
        arrays = [golden[f"{case}_{name}"] for name in "qkv"]
        quantised = [paper.quantize_tensor(x) for x in arrays]
        assert (quantised[0][1], quantised[1][1]) == (s_q, s_k)
        out = run(*arrays, causal, "floor")
        np.testing.assert_array_equal(out.astype(np.float16), expected)
        int8, scales = [x for x, _ in quantised], [s for _, s in quantised]
    else:
        int8 = [golden[f"{case}_{name}8"] for name in "qkv"]
        scales = [golden[f"{case}_s{name}"] for name in "qkv"]
        assert (scales[0], scales[1]) == (s_q, s_k)
    out, p = run_int8(*int8, scales, causal, "floor")
    np.testing.assert_array_equal(out.astype(np.float16), expected)
    if f"{case}_P" in golden:
        np.testing.assert_array_equal(p, golden[f"{case}_P"])


def test_roundings_differ() -> None:
    q, k, v = qkv(2, 2, 30, 60, 64)
    assert (run(q, k, v, rounding="floor") != run(q, k, v, rounding="nearest")).any()


@pytest.mark.parametrize("c_int", [1, 2, 31, 63, 64, 65, 1000, 56273, 541201, 2**25, 2**31 - 1])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_index_is_exact(c_int: int, rounding: str) -> None:
    """Distances around every step of the index, and the largest that int8 vectors can have."""
    steps = np.arange(64) * c_int // 62
    delta = (steps[:, None] + np.arange(-2, 3)).ravel()
    limit = 2 * 127 * 127 * 1024
    delta = np.unique(np.clip(np.concatenate([delta, [0, limit - 1, limit]]), 0, limit))
    logits = (127 * 127 * 1024 - delta).astype(np.int32)[None]
    n = logits.shape[1]
    begin, end = np.zeros(1, np.int32), np.full(1, n, np.int32)
    # A row of two keys per distance: P tells E only while the sum is small, so compare pairs.
    for j in range(n):
        pair = np.array([[logits[0, 0], logits[0, j]]], np.int32)
        p, total = _core.paper_softmax_s32u8(pair, begin, np.full(1, 2, np.int32), c_int, rounding)
        expected_p, expected_total = paper.softmax_rows(
            pair, np.ones((1, 2), bool), c_int, rounding
        )
        assert total[0] == expected_total[0], delta[j]  # 255 + E
        np.testing.assert_array_equal(p, expected_p)
    p, total = _core.paper_softmax_s32u8(logits, begin, end, c_int, rounding)
    expected_p, expected_total = paper.softmax_rows(logits, np.ones((1, n), bool), c_int, rounding)
    assert total[0] == expected_total[0]
    np.testing.assert_array_equal(p, expected_p)


def test_probabilities_of_every_sum() -> None:
    """P = rne(255 E / sum) with ties, for rows of equal keys and one of each other weight."""
    for n in [*range(1, 40), 255, 256, 509, 510, 511, 1020]:
        logits = np.zeros((1, n + 31), np.int32)
        logits[0, n:] = -np.arange(1, 32) * 10
        span = np.zeros(1, np.int32), np.full(1, n + 31, np.int32)
        p, total = _core.paper_softmax_s32u8(logits, *span, 310, "floor")
        expected_p, expected_total = paper.softmax_rows(
            logits, np.ones(logits.shape, bool), 310, "floor"
        )
        assert total[0] == expected_total[0]
        np.testing.assert_array_equal(p, expected_p)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 100, 256, 1000])
def test_rows_with_hidden_keys(n: int) -> None:
    rng = np.random.default_rng(n)
    m = 12
    logits = rng.integers(-(2**24), 2**24, (m, n), dtype=np.int32)
    end = rng.integers(0, n + 1, m, dtype=np.int32)
    begin = (end * rng.random(m)).astype(np.int32)
    j = np.arange(n)
    visible = (j >= begin[:, None]) & (j < end[:, None])
    for rounding in ROUNDINGS:
        p, total = _core.paper_softmax_s32u8(logits, begin, end, 5_000_000, rounding)
        expected_p, expected_total = paper.softmax_rows(logits, visible, 5_000_000, rounding)
        np.testing.assert_array_equal(p, expected_p)
        np.testing.assert_array_equal(total, expected_total)
        assert not p[~visible].any()


@pytest.mark.parametrize("d", [16, 64, 80, 128, 256])
@pytest.mark.parametrize("kv_len", [1, 7, 255, 256, 257, 1025])
def test_head_dims_and_blocks(d: int, kv_len: int) -> None:
    for q_len in {1, min(kv_len, 5), min(kv_len, 33)}:
        check(*qkv(2, 1, q_len, kv_len, d, seed=kv_len))


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (9, 3), (9, 1), (40, 1)])
@pytest.mark.parametrize(("q_len", "kv_len"), [(1, 300), (40, 40), (33, 700)])
def test_grouped_heads(heads: int, kv_heads: int, q_len: int, kv_len: int) -> None:
    check(*qkv(heads, kv_heads, q_len, kv_len, 64))


@pytest.mark.parametrize("size", [0.01, 0.3, 1.0, 3.0, 10.0, 100.0])
def test_sizes_of_logits(size: float) -> None:
    check(*qkv(3, 1, 20, 1100, 64, size))


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


def test_flat_rows_vanish() -> None:
    """The defect that the default does not have: every weight below 1/510 is lost, the output 0."""
    for kv_len, lost in ((256, False), (510, True), (1000, True)):
        q, _, v = qkv(2, 1, 3, kv_len, 64)
        v = v + np.float32(2)
        k = np.ones((1, kv_len, 64), np.float32)
        out = check(q, k, v, causal=False)
        assert (not out.any()) == lost


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("size", [0.0, 1e-40, 1e-33, 1e-20, 1e15])
def test_zeros_tiny_and_huge_values(which: int, size: float) -> None:
    arrays = list(qkv(2, 1, 20, 300, 64))
    arrays[which] = (arrays[which] * size).astype(np.float32)
    assert np.isfinite(check(*arrays)).all()


def test_threads_do_not_matter() -> None:
    for shape in ((4, 2, 1, 2000, 64), (4, 2, 300, 300, 64), (3, 3, 65, 1300, 64)):
        q, k, v = qkv(*shape)
        default = run(q, k, v)
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
    kv_len=st.integers(1, 900),
    q_part=st.floats(0, 1),
    causal=st.booleans(),
    window=st.integers(0, 1000),
    size=st.floats(0.05, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_any(d, kv_heads, group, kv_len, q_part, causal, window, size, seed) -> None:
    q_len = max(1, min(60, int(q_part * kv_len)))
    arrays = qkv(kv_heads * group, kv_heads, q_len, kv_len, d, size, seed)
    check(*arrays, causal=causal, window=window if causal else 0)


def test_refuses() -> None:
    q, k, v = qkv(4, 2, 3, 40, 64)
    with pytest.raises(ValueError, match="rounding is 'even'"):
        run(q, k, v, rounding="even")
    with pytest.raises(ValueError, match="3 query heads"):
        run(q[:3].copy(), k, v)
    with pytest.raises(ValueError, match=r"head_dim 40"):
        run(*(x[..., :40].copy() for x in (q, k, v)))
    with pytest.raises(ValueError, match="float64"):
        run(q.astype(np.float64), k, v)
    with pytest.raises(ValueError, match="prefix 3 need causal"):
        run(q, k, v, causal=False, prefix=3)
    with pytest.raises(ValueError, match="scale"):
        run(q, k, v, scale=math.nan)
    for name, x in zip("qkv", (q, k, v), strict=True):
        bad = {"q": q, "k": k, "v": v, name: np.where(x > 2, np.float32(np.inf), x)}
        with pytest.raises(ValueError, match=f"{name} holds NaN or Inf"):
            run(**bad)
    int8 = [np.ones(x.shape, np.int8) for x in (q, k, v)]
    with pytest.raises(ValueError, match="scale of k is nan"):
        run_int8(*int8, (0.1, math.nan, 0.1), True, "floor")
    with pytest.raises(ValueError, match="float32"):
        run_int8(q, k, v, (0.1, 0.1, 0.1), True, "floor")


def test_paper_softmax_refuses_logits_too_far_apart() -> None:
    ends = np.zeros(1, np.int32), np.full(1, 2, np.int32)
    with pytest.raises(ValueError, match="at most 33554432 apart"):
        ops.paper_softmax_s32u8(np.array([[-1, 1 << 25]], np.int32), *ends, 310, "floor")
    _, total = ops.paper_softmax_s32u8(np.array([[0, 1 << 25]], np.int32), *ends, 310, "floor")
    assert total.tolist() == [255]
