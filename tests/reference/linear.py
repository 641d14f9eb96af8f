"""Quantised linears W4A8 and W8A8 (docs/numerics.md section 6), bit exact in float32."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.quantize import quantize

f32 = np.float32
GROUP = 32
FORMATS = ("w4g32", "w4g32a", "w8g32")


class Weights(NamedTuple):
    """What PackedWeights is built from."""

    format: str
    q: NDArray  # w4: u8 [n, k/32, 16]; w8: s8 [n, k]
    scale: NDArray[np.float16]  # [n, k/32]
    min: NDArray[np.float16] | None = None


def unpack(w: Weights) -> NDArray[np.int64]:
    """[n, k/32, 32]: nibbles 0..15, or the int8 values."""
    n, groups = w.scale.shape
    if w.format == "w8g32":
        return w.q.reshape(n, groups, GROUP).astype(np.int64)
    return np.concatenate([w.q & 15, w.q >> 4], axis=-1).astype(np.int64)


def minimum(w: Weights) -> NDArray[f32]:
    if w.format == "w4g32a":
        return w.min.astype(f32)
    return (f32(-8) if w.format == "w4g32" else f32(0)) * w.scale.astype(f32)


def dequantize(w: Weights) -> NDArray[f32]:
    """[n, k]"""
    values = w.scale.astype(f32)[..., None] * unpack(w).astype(f32)
    if w.format != "w8g32":
        values = values + minimum(w)[..., None]
    return values.reshape(len(w.scale), -1)


def fma(a: NDArray[f32], b: NDArray[f32], c: NDArray[f32]) -> NDArray[f32]:
    """a * b + c rounded once.

    The product is exact in double. The sum is rounded to odd there, so that rounding it again, to
    float32, gives what a single rounding does.
    """
    product = a.astype(np.float64) * b.astype(np.float64)
    c64 = np.broadcast_to(c.astype(np.float64), product.shape)
    total = product + c64
    from_product = total - c64
    error = (product - from_product) + (c64 - (total - from_product))
    odd = (total.view(np.int64) & 1).astype(bool)
    towards = np.where(error > 0, np.inf, -np.inf)
    return np.where((error == 0) | odd, total, np.nextafter(total, towards)).astype(f32)


def activations(x: NDArray[f32]) -> tuple[NDArray, NDArray[f32], NDArray[f32]]:
    """x [m, k] -> int8 as float64 [m, k/32, 32]; sx and float(xsum) [m, k/32]."""
    x8, scale, total = quantize(x, GROUP)
    sx = (scale.view(np.uint32) & ~np.uint32(3)).view(f32)
    return x8.reshape(len(x), -1, GROUP).astype(np.float64), sx, total.astype(f32)


def linear(x: NDArray[f32], w: Weights) -> NDArray[f32]:
    """x [m, k] -> [m, n]"""
    n, groups = w.scale.shape
    x8, sx, xsum = activations(x)
    values = unpack(w).astype(np.float64)
    if w.format == "w4g32":
        values = values - 8
    y = np.zeros((len(x), n), f32)
    for g in range(groups):
        isum = (x8[:, g] @ values[:, g].T).astype(f32)  # exact: below 2^24
        y = fma(w.scale[:, g].astype(f32), sx[:, g, None] * isum, y)
        if w.format == "w4g32a":
            y = fma(w.min[:, g].astype(f32), (sx[:, g] * xsum[:, g])[:, None], y)
    return y


def random_weights(
    rng: np.random.Generator, format: str, n: int, k: int, std: float = 0.05
) -> Weights:
    """Plausible weights of standard deviation about `std`."""
    groups = k // GROUP
    if format == "w8g32":
        q = rng.integers(-127, 128, (n, k), dtype=np.int8)
        step = std / 73
    else:
        q = rng.integers(0, 256, (n, groups, 16), dtype=np.uint8)
        step = std / 4.6
    scale = (step * rng.uniform(0.5, 1.5, (n, groups))).astype(np.float16)
    low = None
    if format == "w4g32a":
        low = (-7.5 * scale * rng.uniform(0.8, 1.2, (n, groups))).astype(np.float16)
    return Weights(format, q, scale, low)
