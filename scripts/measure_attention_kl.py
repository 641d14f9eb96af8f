#!/usr/bin/env python3
"""What integer attention alone costs, by context length: PPL and KL(float || pipeline) per token.

transformers in float32 computes a GGUF model's logits twice for the same text: with its own
attention, and with every layer's attention replaced (intattention.integrations.transformers). The
weights and everything else stay float32. Windows are independent, without BOS, from the start of
the text. Needs torch, transformers, gguf, accelerate. Usage:
    python scripts/measure_attention_kl.py --gguf MODEL.gguf --text wikitext2_test.txt
"""

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from make_smollm2_golden import load
from numpy.typing import NDArray

from intattention.integrations.torch_attention import METHODS
from intattention.integrations.transformers import register

VOCAB_ROWS = 256  # positions whose logits are compared at a time


def hidden_states(model: Any, ids: NDArray[np.int64], attention: str) -> torch.Tensor:
    model.set_attn_implementation(attention)
    return model.model(torch.tensor(ids)[None], use_cache=False).last_hidden_state[0]


def log_probs(model: Any, hidden: torch.Tensor) -> Iterator[torch.Tensor]:
    """Log-probabilities [<= VOCAB_ROWS, vocab] of consecutive positions, in double."""
    for rows in hidden.split(VOCAB_ROWS):
        yield torch.log_softmax(model.lm_head(rows).double(), -1)


def compare(
    model: Any, ids: NDArray[np.int64], exact: torch.Tensor, attention: str
) -> NDArray[np.float64]:
    """Sums over the window's predictions: NLL of float and of ours, KL, same best token.

    exact: float attention's ``hidden_states``.
    """
    ours = hidden_states(model, ids, attention)
    targets = torch.tensor(ids[1:]).split(VOCAB_ROWS)
    sums = np.zeros(4)
    pairs = zip(log_probs(model, exact[:-1]), log_probs(model, ours[:-1]), targets, strict=True)
    for p, q, target in pairs:
        nll = [-x.gather(1, target[:, None]).sum().item() for x in (p, q)]
        kl = (p.exp() * (p - q)).sum().item()
        sums += [*nll, kl, (p.argmax(1) == q.argmax(1)).sum().item()]
    return sums


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 4096, 8192])
    parser.add_argument("--windows", type=int, default=1)
    parser.add_argument("--attention", nargs="+", default=["intattention"], choices=METHODS)
    args = parser.parse_args()
    tokenizer, model = load(args.gguf)
    text = args.text.read_text(encoding="utf-8")
    needed = max(args.lengths) * args.windows
    ids = np.array(tokenizer(text, add_special_tokens=False)["input_ids"][:needed])
    if len(ids) < needed:
        parser.error(f"the text has {len(ids)} tokens, {needed} are needed")
    register()
    print("length  windows  attention                 PPL float  PPL ours  mean KL  same top-1")
    with torch.no_grad():
        for length in args.lengths:
            windows = np.split(ids[: length * args.windows], args.windows)
            exact = [hidden_states(model, window, "sdpa") for window in windows]
            for name in args.attention:
                sums = sum(map(partial(compare, model, attention=name), windows, exact))
                float_nll, nll, kl, same = sums / (args.windows * (length - 1))
                print(
                    f"{length:<8}{args.windows:<9}{name:<26}{np.exp(float_nll):9.3f}"
                    f"{np.exp(nll):10.3f}{kl:9.4f}{same:12.1%}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
