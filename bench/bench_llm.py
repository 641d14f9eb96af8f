"""Prompt and decode speed of a whole model, in the style of llama-bench.

    python bench/bench_llm.py -t 2 [-m model.gguf] [--depths 0 512 4096 8192]
    python bench/bench_llm.py -t 2 --synthetic qwen2.5-7b --prompt 64 --tokens 8

The result is checked first. A model file: the greedy continuation on the active ISA must equal the
one of the portable kernels. Random weights (``--synthetic``): logits and tokens after the whole
prompt at once must equal those after the prompt token by token. Then prefill (``pp``) and decode
(``tg``) are timed in turns, each behind ``--depths`` tokens, and medians are printed, with GB/s of
weights and cache read per decoded token beside the measured read bandwidth. Where llama-cpp-python
or llama-bench is installed, the same file takes turns there, with float16 and q8_0 cache and with
and without flash attention, and the ratio to the best of them is printed: of the medians, and of
the fastest turns, which is the one to trust on a machine that others use. So is ``--cpu-time`` with
one thread: waiting for the CPU does not count then.
"""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rivals import Rival, llama_cpp

import intattention
from intattention._core import ThreadPool
from intattention.bench.errors import BenchError
from intattention.bench.limits import read_bandwidth
from intattention.bench.llm_cases import load_model, measure_model, random_model
from intattention.bench.measurer import Measurer
from intattention.bench.shapes import SHAPES
from intattention.bench.timing import Policy, Work
from intattention.machine import cpu_model, peak_memory_bytes
from intattention.machine_facts import commit
from intattention.model_registry import find_model

SETTLE_SECONDS = 0.05  # OpenMP threads spin for a while after their last loop


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
    parser.add_argument(
        "--cpu-time", action="store_true", help="tokens per CPU second; with one thread"
    )
    parser.add_argument("--json", type=Path, help="also write the result here")
    return parser.parse_args()


class Turns:
    """What the rivals reached, each in its turn: tok/s by (kind, depth) and rival."""

    def __init__(self, rivals: Sequence[Rival], prompt: int, tokens: int) -> None:
        self._rivals, self._prompt, self._tokens = rivals, prompt, tokens
        self._rates: dict[tuple[str, int], dict[str, list[float]]] = {}

    def works(self, depths: Sequence[int]) -> dict[tuple[str, int], Work]:
        return {
            (rival.name, depth): partial(self._run, rival, depth)
            for depth in depths
            for rival in self._rivals
        }

    def _run(self, rival: Rival, depth: int) -> None:
        time.sleep(SETTLE_SECONDS)
        for kind, rate in rival.rates(self._prompt, self._tokens, depth).items():
            by_rival = self._rates.setdefault((kind, depth), {})
            by_rival.setdefault(rival.name, []).append(rate)
        time.sleep(SETTLE_SECONDS)

    def summary(self, kind: str, depth: int) -> dict[str, dict[str, float]]:
        return {
            name: {
                "tok_s": statistics.median(rates),
                "min_tok_s": min(rates),
                "max_tok_s": max(rates),
            }
            for name, rates in self._rates.get((kind, depth), {}).items()
        }


def measure(args: argparse.Namespace, pool: ThreadPool) -> dict[str, Any]:
    """What the model is, and one row per test and depth."""
    clock = time.process_time if args.cpu_time else time.perf_counter
    if args.synthetic:
        model, rivals = random_model(args.synthetic, args.layers or 0, pool), []
    else:
        model = load_model(args.model, pool)
        rivals = llama_cpp(find_model(args.model), pool.threads, clock)
    turns = Turns(rivals, args.prompt, args.tokens)
    measurer = Measurer(Policy.exactly(args.repeats, clock))
    rows = measure_model(
        model, args.depths, args.prompt, args.tokens, measurer, pool, turns.works(args.depths)
    )
    for row in rows:
        row["rivals"] = turns.summary(row["test"], row["depth"])
    return {**model.about(), "clock": "cpu" if args.cpu_time else "wall", "rows": rows}


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
    for row in result["rows"]:
        ours = {
            "tok_s": row["tok_s"],
            "min_tok_s": row["tokens"] / row["time"]["max_s"],
            "max_tok_s": row["tokens"] / row["time"]["min_s"],
        }
        test = f"{row['test']}{row['tokens']}"
        line = f"{test:>6} @ {row['depth']:<5} {speed(ours)}"
        if row["gb_s"]:
            share = row["gb_s"] / result["read_bandwidth_gb_s"]
            line += f"  {row['gb_s']:.1f} GB/s, {share:.0%} of the read bandwidth"
        print(line)
        for name, rival in row["rivals"].items():
            print(f"{'':15}{speed(rival)}  {name}")
        if row["rivals"]:
            median, fastest = (
                ours[key] / max(rival[key] for rival in row["rivals"].values())
                for key in ("tok_s", "max_tok_s")
            )
            print(f"{'':15}{median:8.2f} x the best of them, {fastest:.2f} x by fastest turns")


def speed(rates: dict[str, float]) -> str:
    low, high = rates["min_tok_s"], rates["max_tok_s"]
    return f"{rates['tok_s']:8.1f} tok/s  ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    main()
