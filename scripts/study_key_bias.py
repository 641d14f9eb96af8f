#!/usr/bin/env python3
"""What int8 q and k cost a layer with Qwen2's bias of k, and what remedies bring.

The layer is synthetic (tests/qwen2_layer.py). Relative L1 error of the attention output: with int8
q and k, softmax in double and v exact; the same after the Walsh-Hadamard rotation; and of the
runtime's whole attention. The worst of the places where the bias sits, of 1,024 keys from position
0 and from 30,000. Some minutes. Usage:
    python scripts/study_key_bias.py
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import qwen2_layer

from intattention.models.qk_balance import Balance

NORMS = (0, 22, 600, 900)
REMEDIES: dict[str, dict[str, bool] | None] = {
    "none": None,
    "centre": {"scale": False},
    "scale per pair": {"center": False},
    "centre and scale per pair": {},
}


def remedied(layer: qwen2_layer.Layer, parts: dict[str, bool] | None) -> Balance:
    return Balance(None, None) if parts is None else qwen2_layer.remedy(layer, **parts)


def main() -> None:
    print(f"{'remedy':46}" + "".join(f"{norm:>9}" for norm in NORMS))
    layers = {
        norm: [
            qwen2_layer.make(norm, pairs, first)
            for pairs in qwen2_layer.PAIRS.values()
            for first in (0, 30_000)
        ]
        for norm in NORMS
    }
    measures = {
        "": lambda layer, remedy: qwen2_layer.error(layer, remedy, rotated=False),
        ", rotated": lambda layer, remedy: qwen2_layer.error(layer, remedy, rotated=True),
        ", all of attention": qwen2_layer.kernel_error,
    }
    for suffix, measure in measures.items():
        for name, parts in REMEDIES.items():
            worst = [max(measure(x, remedied(x, parts)) for x in layers[norm]) for norm in NORMS]
            values = "".join(f"{value:9.4f}" for value in worst)
            print(f"{name + suffix:46}{values}", flush=True)


if __name__ == "__main__":
    main()
