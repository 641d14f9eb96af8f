#!/usr/bin/env python3
"""Attention output of candidate definitions against softmax in float64, on q, k, v of a real model.

    python scripts/study_attention_accuracy.py [--tokens 2048] [--queries 256] [--layers 0 3 6]

The relative L1 error and the cosine of each layer's whole output, SmolLM2-135M-Instruct on
WikiText-2. Logits are exact products of the int8 vectors (the 16-bit logits of docs/numerics.md
section 3 are off by a sixth of a table step at most), ln s_v is neither rounded nor bounded; what
follows is emulated to the bit of the integers. docs/attention-accuracy.md holds the results and
what they mean. Candidates, each with one part of the definition changed:

  Hadamard    q, k and v are rotated by a Walsh-Hadamard matrix before they are rounded to int8,
              the output is rotated back: outlier channels spread, the dot products stay
  own maximum each block of 256 keys uses its own maximum, not the running one
  table       entries of the exponential's table; never 0 before the clip ("up")
  sum         "E": E = table(m - t) is summed, E' = E * s_v / max(s_v) multiplies V (formerly);
              "1/s_v": E' = table(max(t + ln s_v) - (t + ln s_v)) multiplies V, and the row sum is
              the dot product of the same E' with min(s_v) / s_v in 15 bits
"""

import argparse
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from intattention import _core, models
from intattention.dtypes import F32
from intattention.gguf_file import GGUFFile
from intattention.model_registry import find_model
from intattention.tokenizer import TextTokenizer

MODEL = "smollm2-135m-instruct"
BLOCK, RANGE = 256, 1024
CLIP = 6.6


@dataclass(frozen=True)
class Variant:
    hadamard: bool = True
    own_maximum: bool = True
    entries: int = 64
    up: bool = True
    reciprocal_sum: bool = True
    reciprocal_one: int = 32767  # min(s_v) / s_v = 1 in integers
    exact_softmax: bool = False


DEFINITION = Variant()
FORMER = Variant(hadamard=False, own_maximum=False, entries=32, up=False, reciprocal_sum=False)
VARIANTS = {
    "former definition": FORMER,
    "former with Hadamard": replace(FORMER, hadamard=True),
    "definition": DEFINITION,
    "- Hadamard": replace(DEFINITION, hadamard=False),
    "- 64 entries (32)": replace(DEFINITION, entries=32),
    "- up": replace(DEFINITION, up=False),
    "- sum by 1/s_v (E, running)": replace(DEFINITION, reciprocal_sum=False, own_maximum=False),
    "- sum by 1/s_v (E, own)": replace(DEFINITION, reciprocal_sum=False),
    "1/s_v in 8 bits": replace(DEFINITION, reciprocal_one=255),
    "1/s_v in 6 bits": replace(DEFINITION, reciprocal_one=63),
    "int8, exact softmax": replace(FORMER, exact_softmax=True),
    "int8, Hadamard, exact softmax": replace(DEFINITION, exact_softmax=True),
}


def rotate(x: F32) -> F32:
    """Walsh-Hadamard over the last axis, a power of two; its own inverse."""
    h = np.ones((1, 1), np.float32)
    while len(h) < x.shape[-1]:
        h = np.block([[h, h], [h, -h]])
    return x @ (h / np.float32(np.sqrt(x.shape[-1])))


def quantise(x: F32) -> tuple[F32, F32]:
    """Integers as float32, and the scale of each row."""
    scale = np.abs(x).max(-1) / np.float32(127)
    safe = np.where(scale == 0, 1, scale)[..., None]
    return np.clip(np.rint(x / safe), -127, 127).astype(np.float32), scale


def table(variant: Variant) -> F32:
    steps = np.arange(variant.entries)
    entries = np.rint(255 * np.exp(-CLIP * steps / (variant.entries - 1)))
    if variant.up:
        entries = np.maximum(entries, 1)
    entries[-1] = 0
    return entries.astype(np.float32)


def look_up(entries: F32, distance: F32) -> F32:
    index = np.minimum(distance, CLIP) * ((len(entries) - 1) / CLIP) + 0.5
    return entries[index.astype(np.int32)]


def value_fold(s_v: F32, last: NDArray[np.intp]) -> tuple[F32, F32]:
    """The former g [rows, keys], 0..256, and S_v [rows] over the visible prefix of the block."""
    largest = np.maximum.accumulate(s_v)[last]
    return np.rint(np.minimum(s_v, largest[:, None]) * (256 / largest[:, None])), largest


def attend(x: F32, end: NDArray[np.intp], v8: F32, s_v: F32, variant: Variant) -> F32:
    """Logits [rows, keys], -inf where masked; end: one past the last visible key of each row."""
    entries = table(variant)
    rows, n = x.shape
    y = x + np.log(s_v) if variant.reciprocal_sum else x
    overall = y.max(1)
    out, total = np.zeros((rows, v8.shape[1])), np.zeros(rows)
    m = np.full(rows, -np.inf)
    for a in range(0, n, BLOCK):
        block = slice(a, min(a + BLOCK, n))
        own = y[:, block].max(1)
        m = own if variant.own_maximum or a % RANGE == 0 else np.maximum(m, own)
        seen = own > -np.inf
        distance = np.where(seen, m, 0)[:, None] - y[:, block]
        e = look_up(entries, distance)
        weight = np.where(seen, np.exp(np.where(seen, m, 0) - overall), 0)
        if variant.reciprocal_sum:
            smallest = s_v[block].min()
            r = np.rint(variant.reciprocal_one * smallest / s_v[block])
            out += (e @ v8[block]) * weight[:, None]
            total += (e @ r) * weight / (variant.reciprocal_one * smallest)
        else:
            g, largest = value_fold(s_v[block], np.clip(end - a, 1, e.shape[1]) - 1)
            out += np.floor((e * g + 128) / 256) @ v8[block] * (largest * weight)[:, None]
            total += e.sum(1) * weight
    return out / total[:, None]


def head_output(q: F32, k: F32, v: F32, bias: F32, variant: Variant | None) -> NDArray[np.float64]:
    """One head in float64 (None) or by a variant; bias: 0 or -inf."""
    scale = 1 / np.sqrt(q.shape[1])
    if variant is None or variant.exact_softmax:
        if variant is not None:
            turn = rotate if variant.hadamard else np.asarray
            q, k, v = (n[0] * n[1][:, None] for n in map(quantise, map(turn, (q, k, v))))
        x = q.astype(np.float64) @ k.T.astype(np.float64) * scale + bias
        p = np.exp(x - x.max(1, keepdims=True))
        out = (p @ v) / p.sum(1, keepdims=True)
    else:
        turn = rotate if variant.hadamard else np.asarray
        (q8, s_q), (k8, s_k), (v8, s_v) = map(quantise, map(turn, (q, k, v)))
        x = (q8 @ k8.T) * (s_q[:, None] * s_k * np.float32(scale)) + bias
        out = attend(x, np.isfinite(bias).sum(1), v8, np.maximum(s_v, 1e-30), variant)
    return rotate(out) if variant is not None and variant.hadamard else out


def layer_output(qkv: tuple[F32, F32, F32], queries: int, variant: Variant | None) -> NDArray:
    """[n_heads, queries, d] of the last queries, causal."""
    q, k, v = qkv
    n, group = q.shape[1], q.shape[0] // k.shape[0]
    visible = np.arange(n) <= np.arange(n - queries, n)[:, None]
    bias = np.where(visible, 0, -np.inf).astype(np.float32)
    heads = range(q.shape[0])
    return np.stack(
        [head_output(q[h, -queries:], k[h // group], v[h // group], bias, variant) for h in heads]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--queries", type=int, default=256, help="the last of the tokens")
    parser.add_argument("--layers", type=int, nargs="+", default=list(range(0, 30, 3)))
    parser.add_argument("--text", default="tests/data/wikitext2_test_prefix.txt")
    args = parser.parse_args()
    checkpoint = GGUFFile(find_model(MODEL))
    with open(args.text, encoding="utf-8") as file:
        ids = np.array(TextTokenizer(checkpoint).encode(file.read())[: args.tokens], np.int32)
    decoder = models.find(checkpoint).build(checkpoint, _core.ThreadPool(0), None)
    errors = {name: [] for name in VARIANTS}
    cosines = {name: [] for name in VARIANTS}
    for layer in args.layers:
        qkv = decoder.capture_qkv(ids, decoder.new_cache(len(ids)), layer)
        exact = layer_output(qkv, args.queries, None)
        for name, variant in VARIANTS.items():
            out = layer_output(qkv, args.queries, variant)
            errors[name].append(np.abs(out - exact).sum() / np.abs(exact).sum())
            norms = np.linalg.norm(out) * np.linalg.norm(exact)
            cosines[name].append((out * exact).sum() / norms)
    print(f"{'relative L1':<32}" + "".join(f"{layer:>6}" for layer in args.layers)
          + "    mean worst   worst cosine")  # fmt: skip
    for name, values in errors.items():
        print(f"{name:<32}" + "".join(f"{value:6.3f}" for value in values)
              + f"   {np.mean(values):.4f} {max(values):.4f} {min(cosines[name]):.5f}")  # fmt: skip


if __name__ == "__main__":
    main()
