"""Candidate definitions of integer attention, emulated in torch: what the studies compare.

Logits are exact products of the int8 vectors (the 16-bit logits of docs/numerics.md section 3 are
off by a sixth of a table step at most), ln s_v is neither rounded nor bounded; what follows is
emulated to the bit of the integers. ``DEFINITION`` is the library's own, ``PAPER`` that of the
publication (rounded to nearest); both also exist as kernels, which say how good the emulation is.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from intattention.dtypes import F32

RANGE = 1024  # keys after which a running maximum starts afresh
TILE = 512  # query rows at a time
Scales = Literal["token", "head", "tensor"]


@dataclass(frozen=True)
class Variant:
    """One definition; every field is a part of it.

    rotation    q, k and v are rotated by a Walsh-Hadamard matrix before they are rounded to int8,
                the output is rotated back: outlier channels spread, the dot products stay
    scales      int8 scales of q, k, v: one per token and head, per head, or per tensor
    center      k less its mean over the keys, which exact attention would not notice
    own_maximum each block uses its own maximum, not the running one
    block       keys of a block; 0: all
    entries     of the exponential's table, up to ``clip`` nats; ``up``: never 0 before the clip
    reciprocal_sum  E' = table(max(t + ln s_v) - (t + ln s_v)) multiplies V, and the row sum is the
                dot product of the same E' with min(s_v) / s_v in ``reciprocal_one`` steps;
                else E = table(m - t) is summed, and E' = E * s_v / max(s_v) multiplies V
    deferred    the division comes after PV; else probabilities are rounded to 1/255 before it
    """

    rotation: bool = True
    scales: Scales = "token"
    center: bool = False
    own_maximum: bool = True
    block: int = 256
    entries: int = 64
    clip: float = 6.6
    up: bool = True
    reciprocal_sum: bool = True
    reciprocal_one: int = 32767
    deferred: bool = True
    exact_softmax: bool = False


DEFINITION = Variant()
FORMER = Variant(rotation=False, own_maximum=False, entries=32, up=False, reciprocal_sum=False)
PAPER = Variant(
    rotation=False, scales="tensor", block=0, entries=32, up=False, reciprocal_sum=False,
    deferred=False,
)  # fmt: skip


def attend(
    q: F32, k: F32, v: F32, *, causal: bool, scale: float, window: int = 0, variant: Variant
) -> F32:
    """Shapes as in ``intattention.attention``; a ``Method`` of the integration for torch."""
    if window:
        raise ValueError("variants have no sliding window")
    tensors = [torch.from_numpy(np.ascontiguousarray(x)) for x in (q, k, v)]
    if variant.center:
        tensors[1] = tensors[1] - tensors[1].mean(dim=1, keepdim=True)
    if variant.rotation:
        tensors = [rotate(x) for x in tensors]
    (q8, s_q), (k8, s_k), (v8, s_v) = (quantise(x, variant.scales) for x in tensors)
    s_v = s_v.clamp(min=1e-30)
    group, offset = q.shape[0] // k.shape[0], k.shape[1] - q.shape[1]
    out = torch.empty(q.shape)
    for head in range(q.shape[0]):
        kv = head // group
        for start in range(0, q.shape[1], TILE):
            rows = slice(start, min(start + TILE, q.shape[1]))
            last = torch.arange(rows.start, rows.stop) + offset if causal else None
            n = rows.stop + offset if causal else k.shape[1]
            factor = s_q[head, rows, None] * (s_k[kv, None, :n] * scale)
            x = (q8[head, rows] @ k8[kv, :n].T).mul_(factor)
            if last is not None:
                x.masked_fill_(torch.arange(n) > last[:, None], -torch.inf)
            out[head, rows] = combine(x, v8[kv, :n], s_v[kv, :n], variant)
    result: F32 = (rotate(out) if variant.rotation else out).numpy()
    return result


def rotate(x: torch.Tensor) -> torch.Tensor:
    """Walsh-Hadamard over the last axis, in blocks of the largest power of two; its own inverse."""
    d = x.shape[-1]
    size = d & -d
    h = torch.ones(1, 1)
    while len(h) < size:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    return (x.reshape(*x.shape[:-1], d // size, size) @ (h / size**0.5)).reshape(x.shape)


def quantise(x: torch.Tensor, scales: Scales) -> tuple[torch.Tensor, torch.Tensor]:
    """Integers as float32, and the scale of each row, of x [heads, length, d]."""
    absmax = x.abs().amax(-1)
    if scales != "token":
        absmax = absmax.amax(dim=1 if scales == "head" else (0, 1), keepdim=True).expand_as(absmax)
    scale = absmax / 127
    safe = torch.where(scale == 0, 1, scale)[..., None]
    return (x / safe).round_().clamp_(-127, 127), scale


def table(variant: Variant) -> torch.Tensor:
    steps = np.arange(variant.entries)
    entries = np.rint(255 * np.exp(-variant.clip * steps / (variant.entries - 1)))
    if variant.up:
        entries = np.maximum(entries, 1)
    entries[-1] = 0
    return torch.from_numpy(entries.astype(np.float32))


def combine(x: torch.Tensor, v8: torch.Tensor, s_v: torch.Tensor, variant: Variant) -> torch.Tensor:
    """Logits [rows, keys], -inf where masked, to the output [rows, d]."""
    if variant.exact_softmax:
        return torch.softmax(x, 1) @ (v8 * s_v[:, None])
    y = x + s_v.log() if variant.reciprocal_sum else x
    overall = y.amax(1)
    out, total = torch.zeros(len(x), v8.shape[1]), torch.zeros(len(x))
    parts = []
    m = torch.full((len(x),), -torch.inf)
    step = variant.block or x.shape[1]
    for a in range(0, x.shape[1], step):
        block = slice(a, a + step)
        own = y[:, block].amax(1)
        m = own if variant.own_maximum or a % RANGE == 0 else torch.maximum(m, own)
        seen = own > -torch.inf
        top = torch.where(seen, m, 0)
        e = look_up(table(variant), top[:, None] - y[:, block], variant.clip)
        weight = torch.where(seen, torch.exp(top - overall), 0)
        multiplier, times, counts = fold(e, s_v[block], variant)
        out += (multiplier @ v8[block]) * (times * weight)[:, None]
        total += (e @ counts) * weight
        if not variant.deferred:
            parts.append((e * counts, weight, v8[block] * s_v[block][:, None]))
    if variant.deferred:
        return out / total[:, None]
    share = ((e * (weight / total)[:, None] * 255).round_() @ v for e, weight, v in parts)
    return sum(share) / 255  # type: ignore[return-value]


def fold(
    e: torch.Tensor, s_v: torch.Tensor, variant: Variant
) -> tuple[torch.Tensor, torch.Tensor | float, torch.Tensor]:
    """What multiplies v8, the unit of that product, and what each e counts in the row sum."""
    if variant.reciprocal_sum:
        smallest, one = s_v.min(), variant.reciprocal_one
        return e, torch.ones(()), (one * smallest / s_v).round() / (one * smallest)
    largest = s_v.max()
    g = (s_v * (256 / largest)).round()
    return ((e * g + 128) / 256).floor(), largest, torch.ones_like(s_v)


def look_up(entries: torch.Tensor, distance: torch.Tensor, clip: float) -> torch.Tensor:
    """e of every key; ``distance`` is overwritten."""
    steps = len(entries) - 1
    index = distance.clamp_(max=clip).mul_(steps / clip).add_(0.5).int()
    return entries[index]
