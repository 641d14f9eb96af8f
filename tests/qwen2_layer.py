"""A synthetic attention layer like Qwen2's: a bias of k of a given norm on few channels.

Qwen2.5-7B has k_proj.bias of norm 22 in the median layer, 605 in layer 0 and 921 in layer 27. A
model that works has queries that keep the bias's part of the logits in bounds: here q is so small
in those pairs that turning the bias over the whole context moves a logit by BIAS_NATS at most, and
of the size of its other channels where the bias hardly turns.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import intattention
from intattention.models.qk_balance import QK, Balance, balance
from intattention.quantize import quantize_w8g32

F64 = NDArray[np.float64]
HEAD_DIM, GROUP, HIDDEN, THETA, CONTEXT = 128, 7, 896, 1e6, 32768
KEYS, QUERIES, BIAS_NATS = 1024, 32, 3.0
PAIRS = {"slow": [63, 60, 56, 48], "mixed": [63, 48, 32, 16], "middle": [30, 31], "fast": [3, 9]}
FREQUENCIES = THETA ** (-np.arange(HEAD_DIM // 2) / (HEAD_DIM // 2))


@dataclass(frozen=True)
class Layer:
    """q [GROUP, QUERIES, d], k [KEYS, d] before RoPE, v [KEYS, d]; positions of k."""

    q: F64
    k: F64
    v: F64
    positions: NDArray[np.int64]
    weights: QK


def make(norm: float, pairs: list[int], first: int, seed: int = 0) -> Layer:
    random = np.random.RandomState(seed)
    half = HEAD_DIM // 2
    size = np.zeros(half)
    size[pairs] = random.uniform(0.5, 1.5, len(pairs))
    size *= norm / np.linalg.norm(size)
    angle = random.uniform(0, 2 * np.pi, half)
    k_bias = random.standard_normal(HEAD_DIM)
    k_bias += np.concatenate([size * np.cos(angle), size * np.sin(angle)])
    turn = size * np.minimum(2, FREQUENCIES * CONTEXT)
    q_size = np.minimum(1, BIAS_NATS * np.sqrt(HEAD_DIM) / np.maximum(turn, 1e-9))
    rows = np.tile(np.concatenate([q_size, q_size]), GROUP)[:, None]
    q_proj, k_proj, v_proj = (
        quantize_w8g32((random.standard_normal((n, HIDDEN)) * scale).astype(np.float32))
        for n, scale in (
            (GROUP * HEAD_DIM, rows / np.sqrt(HIDDEN)),
            (HEAD_DIM, 1.5 / np.sqrt(HIDDEN)),
            (HEAD_DIM, 1 / np.sqrt(HIDDEN)),
        )
    )
    x = random.standard_normal((KEYS, HIDDEN))
    q = x[-QUERIES:] @ q_proj.dequantize().T.astype(np.float64)
    bias = np.concatenate([np.zeros(GROUP * HEAD_DIM), k_bias, np.zeros(HEAD_DIM)])
    return Layer(
        q.reshape(QUERIES, GROUP, HEAD_DIM).swapaxes(0, 1),
        x @ k_proj.dequantize().T.astype(np.float64) + k_bias.astype(np.float32),
        x @ v_proj.dequantize().T.astype(np.float64),
        first + np.arange(KEYS),
        QK(
            q_proj.pack(), k_proj.pack(), np.ones(HIDDEN, np.float32), bias.astype(np.float32)
        ),
    )  # fmt: skip


def rope(x: F64, positions: NDArray[np.int64]) -> F64:
    angle = positions[:, None] * FREQUENCIES
    a, b = np.split(x, 2, axis=-1)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def hadamard(x: F64) -> F64:
    """Walsh-Hadamard transform of the last axis, orthonormal."""
    matrix = np.ones((1, 1))
    while len(matrix) < x.shape[-1]:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return x @ matrix / np.sqrt(len(matrix))


def int8(x: F64) -> F64:
    """What int8 with one scale per vector keeps."""
    scale = np.abs(x).max(axis=-1, keepdims=True) / 127
    return np.rint(x / scale) * scale


def attend(layer: Layer, q: F64, k: F64) -> F64:
    """Exact softmax over the visible keys; q and k after RoPE."""
    logits = np.einsum("gtd,sd->gts", q, k) / np.sqrt(HEAD_DIM)
    visible = layer.positions <= layer.positions[-QUERIES:][:, None]
    logits = np.where(visible, logits, -np.inf)
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True) @ layer.v


def remedy(layer: Layer, scale: bool = True, center: bool = True) -> Balance:
    """What the package does with this layer, or a part of it."""
    forever = 10**12  # tokens over which no mean is left
    found = balance(layer.weights, HEAD_DIM, FREQUENCIES, 1.0, CONTEXT if center else forever)
    if scale:
        return found if center else Balance(found.scale, None)
    assert found.center is not None
    return Balance(None, found.center * (1 if found.scale is None else found.scale))


def error(layer: Layer, remedy: Balance, rotated: bool) -> float:
    """Relative L1 error of the output if q and k are rounded to int8. ``rotated``: after a
    Walsh-Hadamard rotation, as the kernels do it."""
    q, k = prepared(layer, remedy)
    if rotated:
        q, k = hadamard(q), hadamard(k)
    return relative(attend(layer, int8(q), int8(k)), layer)


def kernel_error(layer: Layer, remedy: Balance) -> float:
    """The same of the runtime's own attention: int8 v, look-up softmax and all."""
    q, k, v = (
        np.ascontiguousarray(x, np.float32)
        for x in (*prepared(layer, remedy), layer.v[None])
    )  # fmt: skip
    return relative(intattention.attention(q, k[None], v, causal=True), layer)


def prepared(layer: Layer, remedy: Balance) -> tuple[F64, F64]:
    """q and k after RoPE, scale and centre."""
    q, k = rope(layer.q, layer.positions[-QUERIES:]), rope(layer.k, layer.positions)
    if remedy.scale is not None:
        q, k = q * remedy.scale, k / remedy.scale
    return q, k if remedy.center is None else k - remedy.center


def relative(out: NDArray[np.floating], layer: Layer) -> float:
    exact = attend(layer, *prepared(layer, Balance(None, None)))
    return float(np.abs(out - exact).sum() / np.abs(exact).sum())
