#!/usr/bin/env python3
"""Attention output of candidate definitions against softmax in float64, on q, k, v of a real model.

    python scripts/study_attention_accuracy.py [--tokens 2048] [--queries 256] [--layers 0 3 6]

The relative L1 error and the cosine of each layer's whole output, SmolLM2-135M-Instruct on
WikiText-2. docs/attention-accuracy.md holds the results and what they mean. Candidates
(attention_variants.py) have one part of the definition changed each. Needs torch.
"""

import argparse
from dataclasses import replace

import numpy as np
from attention_variants import DEFINITION, FORMER, attend
from numpy.typing import NDArray

from intattention import _core, models
from intattention.dtypes import F32
from intattention.gguf_file import GGUFFile
from intattention.model_registry import find_model
from intattention.tokenizer import TextTokenizer

MODEL = "smollm2-135m-instruct"
VARIANTS = {
    "former definition": FORMER,
    "former with Hadamard": replace(FORMER, rotation=True),
    "definition": DEFINITION,
    "- Hadamard": replace(DEFINITION, rotation=False),
    "- 64 entries (32)": replace(DEFINITION, entries=32),
    "- up": replace(DEFINITION, up=False),
    "- sum by 1/s_v (E, running)": replace(DEFINITION, reciprocal_sum=False, own_maximum=False),
    "- sum by 1/s_v (E, own)": replace(DEFINITION, reciprocal_sum=False),
    "1/s_v in 8 bits": replace(DEFINITION, reciprocal_one=255),
    "1/s_v in 6 bits": replace(DEFINITION, reciprocal_one=63),
    "int8, exact softmax": replace(FORMER, exact_softmax=True),
    "int8, Hadamard, exact softmax": replace(DEFINITION, exact_softmax=True),
}


def exact_output(q: F32, k: F32, v: F32) -> NDArray[np.float64]:
    """Causal softmax in float64, queries at the end of the keys."""
    visible = np.arange(k.shape[1]) <= np.arange(k.shape[1] - q.shape[1], k.shape[1])[:, None]
    out = np.empty(q.shape)
    for head in range(len(q)):
        kv = head // (len(q) // len(k))
        x = q[head].astype(np.float64) @ k[kv].T.astype(np.float64) / np.sqrt(q.shape[2])
        x = np.where(visible, x, -np.inf)
        p = np.exp(x - x.max(1, keepdims=True))
        out[head] = p @ v[kv] / p.sum(1, keepdims=True)
    return out


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
        q, k, v = decoder.capture_qkv(ids, decoder.new_cache(len(ids)), layer)
        q = q[:, -args.queries :]
        exact, scale = exact_output(q, k, v), q.shape[2] ** -0.5
        for name, variant in VARIANTS.items():
            out = attend(q, k, v, causal=True, scale=scale, variant=variant).astype(np.float64)
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
