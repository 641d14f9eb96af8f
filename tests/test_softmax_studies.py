"""Study-only softmaxes: examples worked out by hand, and float attention as their limit."""

import math
from functools import partial

import numpy as np
import pytest
from reference import paper

import intattention
from intattention.integrations.softmax_studies import EXAQ_CLIP, exaq, index_softmax_only


def heads(*rows: list[float]) -> np.ndarray:
    return np.array([[[x] for x in row] for row in rows], np.float32)


ONE = heads([1.0])


def test_exaq_by_hand() -> None:
    """Logits 0, -1, -2, -9: mean -3, squared deviations 9 + 4 + 1 + 36, sigma sqrt(50 / 3).

    2 bits: the clip is -1.66 * 4.08248 - 1.85 = -8.62692, the levels are 0, -2.87564, -5.75128
    and -8.62692; -1 goes to 0 and -2 to -2.87564. 3 bits: -1.75 * 4.08248 - 2.06 = -9.20434 is
    beyond the smallest logit, so levels are 9/7 apart: -1 to -1.28571, -2 to -2.57143.
    """
    k, v = heads([0, -1, -2, -9]), heads([1, 10, 100, 1000])
    for bits, levels in ((2, (0, 0, -2.87564, -8.62692)), (3, (0, -1.28571, -2.57143, -9))):
        weights = [math.exp(x) for x in levels]
        expected = sum(w * x for w, x in zip(weights, (1, 10, 100, 1000), strict=True))
        out = exaq(ONE, k, v, causal=False, scale=1, bits=bits)
        assert out.item() == pytest.approx(expected / sum(weights), rel=1e-5)


def test_exaq_clips_are_the_published_ones() -> None:
    assert EXAQ_CLIP == {2: (1.66, 1.85), 3: (1.75, 2.06)}


def test_exaq_sigma_is_of_all_visible_logits() -> None:
    """Logits of two queries less their maxima: 0 | 0, -4. Sigma sqrt(16/3); the clip binds not."""
    q, k, v = heads([1, 1]), heads([0, -4]), heads([1, 2])
    out = exaq(q, k, v, causal=True, scale=1, bits=2)
    weight = math.exp(-4)
    assert out.ravel() == pytest.approx([1, (1 + 2 * weight) / (1 + weight)])


def test_exaq_of_equal_logits_is_the_mean() -> None:
    k, v = heads([2, 2, 2]), heads([1, 2, 6])
    assert exaq(ONE, k, v, causal=False, scale=1, bits=3).item() == pytest.approx(3)


def test_index_softmax_by_hand() -> None:
    """Deltas 0, 1, 6.6: indices 0, 4.697 -> 5, 31; E 255, 88, 0; P 190, 65, 0."""
    k, v = heads([0, -1, -6.6]), heads([1, 10, 1000])
    out = index_softmax_only(ONE, k, v, causal=False, scale=1)
    assert out.item() == pytest.approx((190 + 650) / 255)


def test_index_softmax_is_papers_softmax() -> None:
    """Integer vectors that the paper's quantisation leaves as they are: the same E and P."""
    rng = np.random.default_rng(0)
    q8, k8, v8 = (rng.integers(-127, 128, (2, 40, 16)) for _ in range(3))
    for x in (q8, k8, v8):
        x[0, 0, 0] = 127
    scale = 6.6 / 12345  # c_int is exact
    expected, _ = paper.attention_int8(
        *(x.astype(np.int8) for x in (q8, k8, v8)), (1, 1, 1), True, scale
    )
    q, k, v = (x.astype(np.float32) for x in (q8, k8, v8))
    out = index_softmax_only(q, k, v, causal=True, scale=scale)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("window", [0, 7])
def test_masks_and_groups_are_those_of_attention(window: int) -> None:
    rng = np.random.default_rng(1)
    q = rng.standard_normal((4, 300, 16)).astype(np.float32)
    k, v = (rng.standard_normal((2, 310, 16)).astype(np.float32) for _ in range(2))
    exact = intattention.attention(q, k, v, causal=True, window=window, softmax="fp32")
    for method in (index_softmax_only, partial(exaq, bits=3)):
        out = method(q, k, v, causal=True, scale=0.25, window=window)
        assert np.abs(out - exact).sum() < 0.2 * np.abs(exact).sum()  # a wrong mask: about 1
