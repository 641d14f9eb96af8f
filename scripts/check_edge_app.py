#!/usr/bin/env python3
"""Compare the tokens of examples/edge_app with those of Python, greedy and sampled.

python scripts/check_edge_app.py MODEL.iatt build/edge_app/edge_app
python scripts/check_edge_app.py MODEL.iatt qemu-aarch64-static -cpu cortex-a72 -L /usr/aarch64-linux-gnu .../edge_app
"""  # noqa: E501

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from intattention import LLM
from intattention._core import KVCache
from intattention.sampling import Sampler, SamplingParams

PROMPT = "The lighthouse at the end of the harbour was built in"
CASES = {
    "greedy": SamplingParams(),
    "seed 1": SamplingParams(temperature=0.9, top_k=50, top_p=0.95, seed=1),
    "seed 2": SamplingParams(temperature=1.3, seed=2),
}


def python_tokens(llm: LLM, ids: list[int], params: SamplingParams, most: int) -> list[int]:
    """What the edge app should print: new ids without the one that ends the turn."""
    cache = llm.decoder.new_cache(len(ids) + most)
    sampler, out = Sampler(params, seen=ids), list[int]()
    logits = forward(llm, cache, ids)
    while len(out) < most:
        token = sampler.choose(logits[: llm.tokenizer.vocab_size])
        if token in llm.tokenizer.end_ids:
            break
        out.append(token)
        logits = forward(llm, cache, [token])
    return out


def forward(llm: LLM, cache: KVCache, ids: list[int]) -> NDArray[np.float32]:
    return llm.decoder.forward(np.array(ids, np.int32), cache, "last").reshape(-1)


def app_tokens(
    command: list[str], model: Path, ids: list[int], params: SamplingParams, most: int
) -> list[int]:
    options = {
        "max": most,
        "temperature": params.temperature,
        "top-k": params.top_k,
        "top-p": params.top_p,
        "seed": params.seed or 0,
        "threads": 2,
    }
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    output = subprocess.run(
        [*command, str(model), *words, *map(str, ids)], check=True, capture_output=True, text=True
    ).stdout
    return [int(word) for word in output.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="how the edge app is started")
    parser.add_argument("--tokens", type=int, default=16)
    arguments = parser.parse_args()
    llm = LLM.load(arguments.model, threads=2)
    ids = llm.tokenizer.encode(PROMPT)
    for name, params in CASES.items():
        expected = python_tokens(llm, ids, params, arguments.tokens)
        got = app_tokens(arguments.command, arguments.model, ids, params, arguments.tokens)
        if got != expected:
            sys.exit(f"{name}: the edge app printed {got}, Python {expected}")
        print(f"{name}: {len(got)} equal tokens: {llm.tokenizer.decode(got)!r}")


if __name__ == "__main__":
    main()
