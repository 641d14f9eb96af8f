"""The float steps, operation by operation in float32 (docs/numerics.md section 6, exp_f32.h)."""

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
f32 = np.float32


def exp_f32(x: F32) -> F32:
    x = np.asarray(x, f32)
    x = np.where(x > f32(-87), x, f32(-87))
    x = np.where(x < f32(88), x, f32(88))
    n = (x * f32(1.44269504) + f32(12582912)) - f32(12582912)
    r = x - n * f32(0.693359375)
    r = r - n * f32(-2.12194440e-4)
    p = np.full_like(r, f32(1) / f32(720))
    for c in (f32(1) / f32(120), f32(1) / f32(24), f32(1) / f32(6), f32(0.5), f32(1), f32(1)):
        p = p * r + c
    bits = ((n.astype(np.int32) + 127) << 23).astype(np.uint32)
    return p * bits.view(f32)


def rmsnorm(x: F32, weight: F32, eps: float) -> F32:
    """x [..., n]: the sum of squares runs in 8 lanes, in order of i."""
    x = np.asarray(x, f32)
    n = x.shape[-1]
    lanes = np.zeros((*x.shape[:-1], 8), f32)
    for i in range(0, n, 8):
        lanes = lanes + x[..., i : i + 8] * x[..., i : i + 8]
    lane = [lanes[..., i] for i in range(8)]
    total = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + (
        (lane[1] + lane[5]) + (lane[3] + lane[7])
    )
    inverse = f32(1) / np.sqrt(total / f32(n) + f32(eps))
    return (x * inverse[..., None]) * weight


def plain_frequencies(dim: int, theta: float) -> NDArray[np.float64]:
    return theta ** (-2.0 * np.arange(dim // 2) / dim)


def rope_tables(
    positions: NDArray, frequency: NDArray[np.float64], factor: float = 1.0
) -> tuple[F32, F32]:
    """cos and sin [len(positions), len(frequency)], computed in double, rounded once."""
    angle = np.asarray(positions, np.float64)[:, None] * frequency
    return (np.cos(angle) * factor).astype(f32), (np.sin(angle) * factor).astype(f32)


def rope(x: F32, cos: F32, sin: F32) -> F32:
    """x [..., d] rotated in pairs (i, i + r/2) of the first r; cos, sin broadcast to [..., r/2]."""
    half = cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def swiglu(gate: F32, up: F32) -> F32:
    return (gate / (f32(1) + exp_f32(-gate))) * up
