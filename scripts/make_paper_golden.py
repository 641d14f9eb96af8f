#!/usr/bin/env python3
"""Write tests/data/paper_golden.npz: what the tests need of the published simulation's results.

    python scripts/make_paper_golden.py paper_golden.npz

The source holds, for cases a to g, q, k, v (float32), causal, and what the simulation published
with IntAttention (WanliZhong/IntAttention, pysimulation/IntAttention.py, which truncates c_int and
the index) made of them: scale_q, scale_k, P (u8; f has none) and out (float16). Cases a, b, e, g
keep their float inputs. The larger c, d and f keep the int8 values and the scale of the whole
tensor, which is what the simulation computes with, and f only the first of its two heads.
"""

import sys
from pathlib import Path

import numpy as np

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
SMALL = "abeg"  # kept in float as well, for the quantiser


def main() -> None:
    source = np.load(sys.argv[1])
    kept = {}
    for case in "abcdefg":
        for name in ("causal", "scale_q", "scale_k", "P", "out"):
            if f"{case}_{name}" in source:
                kept[f"{case}_{name}"] = source[f"{case}_{name}"]
        for name in "qkv":
            x = source[f"{case}_{name}"]
            heads = slice(0, 1) if case == "f" else slice(None)
            scale = np.abs(x).max() / np.float32(127)
            if case in SMALL:
                kept[f"{case}_{name}"] = x
            else:
                quantised = np.clip(np.rint(x / scale), -127, 127).astype(np.int8)
                kept[f"{case}_{name}8"] = quantised[heads]
                kept[f"{case}_s{name}"] = scale
    kept["f_out"] = kept["f_out"][:1]
    np.savez_compressed(DATA / "paper_golden.npz", **kept)


if __name__ == "__main__":
    main()
