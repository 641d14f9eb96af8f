"""Prompt and decode speed of a whole model, in the style of llama-bench.

    python bench/bench_llm.py -t 2 [-m model.gguf] [--depths 0 512 4096 8192]
    python bench/bench_llm.py -t 2 --synthetic qwen2.5-7b --prompt 64 --tokens 8

The result is checked first. A model file: the greedy continuation on the active ISA must equal the
one of the portable kernels. Random weights (``--synthetic``): logits and tokens after the whole
prompt at once must equal those after the prompt token by token. Then prefill (``pp``) and decode
(``tg``) are timed in turns, each behind ``--depths`` tokens, and medians are printed, with GB/s of
weights and cache read per decoded token beside the measured read bandwidth. Where llama-bench or
llama-cpp-python is installed, the same file runs there too, after this build and not in turns.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from rivals import llama_cpp_rows

import intattention
from intattention._core import ThreadPool
from intattention.bench.errors import BenchError
from intattention.bench.limits import read_bandwidth
from intattention.bench.llm_cases import load_model, measure_model, random_model
from intattention.bench.measurer import Measurer
from intattention.bench.shapes import SHAPES
from intattention.bench.timing import Policy
from intattention.machine import cpu_model, peak_memory_bytes
from intattention.machine_facts import commit
from intattention.model_registry import find_model


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-m", "--model", default="smollm2-135m-instruct")
    parser.add_argument("--synthetic", choices=list(SHAPES), help="random weights, no file")
    parser.add_argument("--layers", type=positive, help="of the synthetic model (default: all)")
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("--isa", help="force a kernel table")
    parser.add_argument("--prompt", type=positive, default=512, help="tokens per prefill")
    parser.add_argument("--tokens", type=positive, default=64, help="tokens per decode run")
    parser.add_argument("--depths", type=int, nargs="+", default=[0])
    parser.add_argument("--repeats", type=positive, default=5)
    parser.add_argument("--json", type=Path, help="also write the result here")
    return parser.parse_args()


def measure(args: argparse.Namespace, pool: ThreadPool) -> dict[str, Any]:
    """What the model is, and one row per test and depth."""
    if args.synthetic:
        model = random_model(args.synthetic, args.layers or 0, pool)
    else:
        model = load_model(args.model, pool)
    measurer = Measurer(Policy.exactly(args.repeats))
    rows = measure_model(model, args.depths, args.prompt, args.tokens, measurer, pool)
    return {**model.about(), "rows": rows}


def main() -> None:
    args = arguments()
    if args.isa:
        intattention.use_isa(args.isa)
    pool = ThreadPool(args.threads)
    try:
        measured = measure(args, pool)
    except BenchError as error:
        raise SystemExit(f"error: {error}") from error
    result = {
        "cpu": cpu_model(),
        "isa": intattention.active_isa(),
        "threads": pool.threads,
        "commit": commit(),
        **measured,
        "peak_bytes_after": peak_memory_bytes(),
        "read_bandwidth_gb_s": read_bandwidth(pool.threads) / 1e9,
    }
    if not args.synthetic:
        result["rival"], result["rival_rows"] = llama_cpp_rows(
            find_model(args.model), pool.threads, args.prompt, args.tokens, args.depths,
            args.repeats,
        )  # fmt: skip
    report(result)
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")


def report(result: dict[str, Any]) -> None:
    gib = {key: result[key] / (1 << 30) for key in result if "_bytes" in key}
    print(
        f"{result['cpu']}, {result['isa']}, {result['threads']} threads, "
        f"commit {result['commit']}\n{result['model']}: {gib['weight_bytes']:.2f} GiB of weights, "
        f"ready in {result['load_seconds']:.1f} s\n"
        f"resident after loading {gib['resident_bytes']:.2f} GiB, at most "
        f"{gib['peak_bytes']:.2f} GiB until then and {gib['peak_bytes_after']:.2f} GiB in all\n"
        f"read bandwidth {result['read_bandwidth_gb_s']:.1f} GB/s (NumPy sum)\n{result['check']}"
    )
    rivals = {(row["test"], row["depth"]): row for row in result.get("rival_rows", [])}
    for row in result["rows"]:
        test, seconds = f"{row['test']}{row['tokens']}", row["time"]
        line = f"{test:>6} @ {row['depth']:<5} {row['tok_s']:8.1f} tok/s"
        low, high = row["tokens"] / seconds["max_s"], row["tokens"] / seconds["min_s"]
        line += f"  ({low:.1f} to {high:.1f})"
        if row["gb_s"]:
            share = row["gb_s"] / result["read_bandwidth_gb_s"]
            line += f"  {row['gb_s']:.1f} GB/s, {share:.0%} of the read bandwidth"
        rival = rivals.get((test, row["depth"]))
        if rival:
            line += f"  {result['rival']} {rival['tok_s']:.1f} tok/s"
            line += f" ({rival['min_tok_s']:.1f} to {rival['max_tok_s']:.1f})"
        print(line)


if __name__ == "__main__":
    main()
