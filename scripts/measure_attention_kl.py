#!/usr/bin/env python3
"""What integer attention alone costs, by context length: PPL and KL(float || pipeline) per token.

transformers in float32 computes a GGUF model's logits twice for the same text: with its own
attention, and with every layer's attention replaced by intattention.attention. The weights and
everything else stay float32. Needs torch, transformers, gguf, accelerate. Usage:
    python scripts/measure_attention_kl.py --gguf MODEL.gguf --text wikitext2_test.txt
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from make_smollm2_golden import load
from numpy.typing import NDArray
from transformers import AttentionInterface

import intattention
from intattention.attention import SOFTMAXES

VOCAB_ROWS = 256  # positions whose logits are compared at a time


def replacement(softmax: Any) -> Any:
    """A transformers attention function that calls this library; one sequence, causal."""

    def forward(
        _: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *__: Any, **rest: Any
    ) -> tuple[torch.Tensor, None]:
        q, k, v = (x[0].contiguous().numpy() for x in (query, key, value))
        out = intattention.attention(
            q, k, v, causal=True, scale=rest.get("scaling"), softmax=softmax
        )
        return torch.from_numpy(out).transpose(0, 1)[None], None

    return forward


def hidden_states(model: Any, ids: NDArray[np.int64], attention: str) -> torch.Tensor:
    model.set_attn_implementation(attention)
    return model.model(torch.tensor(ids)[None], use_cache=False).last_hidden_state[0]


def log_probs(model: Any, hidden: torch.Tensor) -> Iterator[torch.Tensor]:
    """Log-probabilities [<= VOCAB_ROWS, vocab] of consecutive positions, in double."""
    for rows in hidden.split(VOCAB_ROWS):
        yield torch.log_softmax(model.lm_head(rows).double(), -1)


def compare(model: Any, ids: NDArray[np.int64], softmax: str) -> tuple[float, float, float, float]:
    """Perplexity of float and pipeline, mean KL, share of positions with the same best token."""
    exact, ours = (hidden_states(model, ids, name) for name in ("sdpa", f"intattention_{softmax}"))
    targets = torch.tensor(ids[1:]).split(VOCAB_ROWS)
    nll = np.zeros(2)
    kl = same = 0.0
    pairs = zip(log_probs(model, exact[:-1]), log_probs(model, ours[:-1]), targets, strict=True)
    for p, q, target in pairs:
        nll += [-x.gather(1, target[:, None]).sum().item() for x in (p, q)]
        kl += (p.exp() * (p - q)).sum().item()
        same += (p.argmax(1) == q.argmax(1)).sum().item()
    n = len(ids) - 1
    return float(np.exp(nll[0] / n)), float(np.exp(nll[1] / n)), kl / n, same / n


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 4096, 8192])
    parser.add_argument("--softmax", nargs="+", default=["index"], choices=SOFTMAXES)
    args = parser.parse_args()
    tokenizer, model = load(args.gguf)
    text = args.text.read_text(encoding="utf-8")
    ids = np.array(tokenizer(text, add_special_tokens=False)["input_ids"][: max(args.lengths)])
    for softmax in args.softmax:
        AttentionInterface.register(f"intattention_{softmax}", replacement(softmax))
    print("length  softmax      PPL float  PPL ours  mean KL  same top-1")
    with torch.no_grad():
        for length in args.lengths:
            for softmax in args.softmax:
                ppl, ours, kl, same = compare(model, ids[:length], softmax)
                print(
                    f"{length:<8}{softmax:<13}{ppl:9.3f}{ours:10.3f}{kl:9.4f}{same:12.1%}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
