#!/usr/bin/env python3
"""What each part of integer attention is worth in a whole model: perplexity and KL to float.

transformers in float32 with every layer's attention replaced by a candidate definition
(attention_variants.py), SmolLM2-135M-Instruct on WikiText-2, windows without BOS from the start of
the text. Needs torch, transformers, gguf, accelerate; matplotlib for the picture. Usage:

    python scripts/study_attention_perplexity.py ablation --gguf MODEL.gguf --text wiki.txt
    python scripts/study_attention_perplexity.py sweep --gguf MODEL.gguf --text wiki.txt --png PNG

ablation: one part changed at a time, and the way from the publication to the definition.
sweep: tables of 2^3 to 2^6 entries up to c = 4.4 to 8.8 nats, with both. Minutes to an hour.
"""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from attention_variants import DEFINITION, PAPER, Variant, attend
from make_smollm2_golden import load
from measure_attention_kl import compare, hidden_states

from intattention.integrations.torch_attention import METHODS
from intattention.integrations.transformers import register

NAME = "variant"
BITS = (3, 4, 5, 6)
CLIPS = (4.4, 5.5, 6.6, 7.7, 8.8)
DEFERRED = replace(PAPER, deferred=True)
PER_TOKEN = replace(DEFERRED, scales="token")
STEPS: dict[str, Variant | str] = {
    "the publication (nearest), kernels": "intattention-paper",
    "the publication, emulated": PAPER,
    "+ deferred division": DEFERRED,
    "+ scales per head": replace(DEFERRED, scales="head"),
    "+ scales per token": PER_TOKEN,
    "+ centred k": replace(PER_TOKEN, center=True),
    "+ rotation, no centre": replace(PER_TOKEN, rotation=True),
    "+ 64 entries, never 0 before the clip": replace(PER_TOKEN, rotation=True, entries=64, up=True),
    "the definition, emulated": DEFINITION,
    "the definition, kernels": "intattention",
    "- deferred (8-bit P)": replace(DEFINITION, deferred=False),
    "- scales per token (per head)": replace(DEFINITION, scales="head"),
    "- scales per token (per tensor)": replace(DEFINITION, scales="tensor"),
    "- rotation": replace(DEFINITION, rotation=False),
    "- rotation, + centred k": replace(DEFINITION, rotation=False, center=True),
    "+ centred k beside the rotation": replace(DEFINITION, center=True),
    "16 entries": replace(DEFINITION, entries=16),
    "32 entries": replace(DEFINITION, entries=32),
    "128 entries": replace(DEFINITION, entries=128),
    "256 entries": replace(DEFINITION, entries=256),
    "blocks of 64 keys": replace(DEFINITION, block=64),
    "blocks of 128 keys": replace(DEFINITION, block=128),
    "blocks of 512 keys": replace(DEFINITION, block=512),
    "blocks of 1024 keys": replace(DEFINITION, block=1024),
    "int8 q, k, v, exact softmax": replace(DEFINITION, exact_softmax=True),
}


class Result(NamedTuple):
    """Per predicted token."""

    ppl_float: float
    ppl: float
    kl: float
    top1: float


class Study:
    """A model, the windows of a text, and what float attention makes of them."""

    def __init__(self, gguf: Path, text: Path, length: int, windows: int) -> None:
        tokenizer, self.model = load(gguf)
        content = text.read_text(encoding="utf-8")
        ids = tokenizer(content, add_special_tokens=False)["input_ids"][: length * windows]
        if len(ids) < length * windows:
            sys.exit(f"the text has {len(ids)} tokens, {length * windows} are needed")
        self.windows = np.split(np.array(ids), windows)
        self.exact = [hidden_states(self.model, window, "sdpa") for window in self.windows]

    def measure(self, candidate: Variant | str) -> Result:
        """A definition, or the name of a registered attention."""
        name = candidate if isinstance(candidate, str) else NAME
        if not isinstance(candidate, str):
            METHODS[NAME] = partial(attend, variant=candidate)
            register()
        sums: Any = sum(map(partial(compare, self.model, attention=name), self.windows, self.exact))
        nll_float, nll, kl, top1 = sums / sum(len(window) - 1 for window in self.windows)
        return Result(float(np.exp(nll_float)), float(np.exp(nll)), float(kl), float(top1))


def ablation(study: Study, names: Iterable[str]) -> None:
    print(f"{'':<40}      PPL  change  mean KL  same top-1")
    for name in names:
        x = study.measure(STEPS[name])
        print(
            f"{name:<40}{x.ppl:9.3f}{x.ppl / x.ppl_float - 1:+8.2%}{x.kl:9.4f}{x.top1:12.1%}",
            flush=True,
        )


def sweep(study: Study, png: Path | None) -> None:
    tables = {}
    for title, base in (("the publication", PAPER), ("the definition", DEFINITION)):
        rows = []
        print(f"{title}: PPL / mean KL, c = {', '.join(map(str, CLIPS))}")
        for bits in BITS:
            row = [study.measure(replace(base, entries=2**bits, clip=clip)) for clip in CLIPS]
            rows.append(row)
            cells = "  ".join(f"{x.ppl:7.3f} / {x.kl:.4f}" for x in row)
            print(f"b = {bits}  {cells}", flush=True)
        tables[title] = np.array([[x.kl for x in row] for row in rows])
        ppl_float = rows[0][0].ppl_float
    print(f"float: {ppl_float:.3f}")
    if png is not None:
        draw(tables, png)


def draw(tables: dict[str, np.ndarray], png: Path) -> None:
    """Mean KL by bits of the table and clip, one map per definition."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot
    from matplotlib.colors import LogNorm

    figure, axes = pyplot.subplots(
        1, len(tables), figsize=(5 * len(tables), 3.2), layout="constrained"
    )
    for axis, (title, kl) in zip(axes, tables.items(), strict=True):
        image = axis.imshow(kl, cmap="viridis_r", norm=LogNorm(), aspect="auto")
        axis.set(
            title=title, xlabel="clip c, nats", ylabel="bits of the table",
            xticks=range(len(CLIPS)), xticklabels=CLIPS,
            yticks=range(len(BITS)), yticklabels=BITS,
        )  # fmt: skip
        dark = np.log(kl) > (np.log(kl).min() + np.log(kl).max()) / 2
        for i, j in np.ndindex(kl.shape):
            color = "white" if dark[i, j] else "black"
            axis.text(j, i, f"{kl[i, j]:.4f}", ha="center", va="center", color=color)
        figure.colorbar(image, ax=axis, label="mean KL to float, nats")
    figure.savefig(png, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=["ablation", "sweep"])
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--windows", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=list(STEPS), choices=STEPS, metavar="ROW")
    parser.add_argument("--png", type=Path, help="the sweep as a picture")
    args = parser.parse_args()
    register()
    with torch.no_grad():
        study = Study(args.gguf, args.text, args.length, args.windows)
        if args.study == "ablation":
            ablation(study, args.only)
        else:
            sweep(study, args.png)


if __name__ == "__main__":
    main()
