"""intattention.attention on NumPy arrays: close to float attention, strict about its arguments."""

import math

import numpy as np
import pytest

import intattention

# One look-up step is 0.21 nats, so weights are off by up to 11 %, 6 % RMS; so is a mean of noise.
MAX_ATTENTION_ERROR = 0.08


def heads(n: int, length: int, d: int = 32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, length, d)).astype(np.float32)


def exact_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    k, v = (np.repeat(x, len(q) // len(x), axis=0) for x in (k, v))
    logits = np.einsum("hid,hjd->hij", q, k) / math.sqrt(q.shape[2])
    if causal:
        hidden = np.triu(np.ones(logits.shape[1:], bool), logits.shape[2] - logits.shape[1] + 1)
        logits[:, hidden] = -np.inf
    p = np.exp(logits - logits.max(axis=2, keepdims=True))
    return np.einsum("hij,hjd->hid", p / p.sum(axis=2, keepdims=True), v)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_close_to_float(causal: bool) -> None:
    q, k, v = heads(4, 20), heads(2, 300, seed=1), heads(2, 300, seed=2)
    out = intattention.attention(q, k, v, causal=causal)
    exact = exact_attention(q, k, v, causal)
    assert np.linalg.norm(out - exact) < MAX_ATTENTION_ERROR * np.linalg.norm(exact)
    strided = intattention.attention(q[:, :, ::-1][:, :, ::-1], k, np.asfortranarray(v), causal)
    np.testing.assert_array_equal(strided, out)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"softmax": "float"}, "accepted: 'index'"),
        ({"window": -1}, "window is -1"),
        ({"window": 1.5}, "window is 1.5"),
        ({"scale": math.nan}, "scale"),
        ({"q": heads(4, 20).astype(np.float64)}, "q is float64"),
        ({"k": [[1.0]]}, "k is list"),
        ({"v": heads(2, 30)[0]}, r"v has the shape \(30, 32\)"),
        ({"v": heads(2, 29)}, "v.*shape"),
        ({"q": heads(3, 20)}, "multiple"),
        ({"q": np.full((4, 20, 32), np.nan, np.float32)}, "q holds NaN"),
        ({"v": np.full((2, 30, 32), np.inf, np.float32)}, "v holds NaN"),
    ],
)
def test_attention_refuses(change: dict[str, object], words: str) -> None:
    arguments = {"q": heads(4, 20), "k": heads(2, 30), "v": heads(2, 30), "causal": True, **change}
    with pytest.raises(ValueError, match=words):
        intattention.attention(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("softmax", ["index", "paper", "quant_only", "fp32", "fp16"])
@pytest.mark.parametrize("mask", [{}, {"causal": True}, {"causal": True, "window": 7},
                                  {"causal": True, "prefix": 25}])  # fmt: skip
def test_every_pipeline_is_reached(softmax: str, mask: dict[str, object]) -> None:
    """Each name gives its own pipeline: near float attention, and unlike the others."""
    q, k, v = heads(4, 20), heads(2, 30, seed=1), heads(2, 30, seed=2)
    if softmax == "fp16" and intattention.active_isa() in ("portable", "neon"):
        pytest.skip("this table has no float16")
    exact = intattention.attention(q, k, v, softmax="fp32", **mask)  # type: ignore[arg-type]
    out = intattention.attention(q, k, v, softmax=softmax, **mask)  # type: ignore[arg-type]
    limit = {"fp32": 0.0, "fp16": 1e-3}.get(softmax, 0.15)
    error = np.linalg.norm(out - exact) / np.linalg.norm(exact)
    assert error <= limit
    assert softmax == "fp32" or error > 0


def test_paper_rounding_is_checked() -> None:
    q, k, v = heads(4, 20), heads(2, 30, seed=1), heads(2, 30, seed=2)
    nearest = intattention.attention(q, k, v, softmax="paper")
    floor = intattention.attention(q, k, v, softmax="paper", rounding="floor")
    assert not np.array_equal(nearest, floor)
    with pytest.raises(ValueError, match="rounding is 'up'"):
        intattention.attention(q, k, v, softmax="paper", rounding="up")  # type: ignore[arg-type]
