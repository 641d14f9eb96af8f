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
from pathlib import Path
from typing import Any

import numpy as np
from conditions import commit, cpu_name, resident_bytes
from limits import read_bandwidth
from numpy.typing import NDArray
from rivals import Rival, llama_cpp
from shapes import SHAPES
from synthetic import build as build_synthetic
from synthetic import embed_bytes

import intattention
from intattention import models
from intattention._core import Decoder, DecoderConfig, KVCache, ThreadPool
from intattention.gguf_file import GGUFFile
from intattention.machine import peak_memory_bytes
from intattention.model_registry import find_model

CHECK_PROMPT, CHECK_TOKENS = 24, 8
PREFILL_CHUNK = 256
SETTLE_SECONDS = 0.05  # OpenMP threads spin for a while after their last loop


def prompt_ids(decoder: Decoder, count: int) -> NDArray[np.int32]:
    rng = np.random.default_rng(1)
    return rng.integers(0, decoder.config.vocab_size, count).astype(np.int32)


def prefill(decoder: Decoder, ids: NDArray[np.int32], cache: KVCache) -> NDArray[np.float32]:
    for start in range(0, len(ids), PREFILL_CHUNK):
        logits = decoder.forward(ids[start : start + PREFILL_CHUNK], cache)
    return logits[0]


def decode(decoder: Decoder, token: int, cache: KVCache, count: int) -> list[int]:
    tokens = [token]
    for _ in range(count):
        logits = decoder.forward(np.array(tokens[-1:], np.int32), cache)
        tokens.append(int(logits[0].argmax()))
    return tokens


def greedy(decoder: Decoder, isa: str) -> list[int]:
    intattention.use_isa(isa)
    cache = decoder.new_cache(CHECK_PROMPT + CHECK_TOKENS + 1)
    first = int(prefill(decoder, prompt_ids(decoder, CHECK_PROMPT), cache).argmax())
    return decode(decoder, first, cache, CHECK_TOKENS)


def check(decoder: Decoder) -> str:
    isa = intattention.active_isa()
    expected, got = greedy(decoder, "portable"), greedy(decoder, isa)
    if expected != got:
        raise SystemExit(f"error: {isa} decodes {got}, portable decodes {expected}")
    return "greedy tokens equal those of the portable kernels"


def check_prefill(decoder: Decoder) -> str:
    """The portable kernels would take minutes for billions of weights."""
    whole = prefill(decoder, prompt_ids(decoder, CHECK_PROMPT), decoder.new_cache(CHECK_PROMPT + 1))
    got = greedy(decoder, intattention.active_isa())
    cache = decoder.new_cache(CHECK_PROMPT + CHECK_TOKENS + 1)
    for token in prompt_ids(decoder, CHECK_PROMPT):
        logits = decoder.forward(np.array([token], np.int32), cache)[0]
    if not np.isfinite(logits).all():
        raise SystemExit("error: the logits are not finite")
    expected = decode(decoder, int(logits.argmax()), cache, CHECK_TOKENS)
    if expected != got or not np.array_equal(whole, logits):
        raise SystemExit(f"error: {got} after the whole prompt, {expected} token by token")
    return "logits and greedy tokens after the whole prompt equal those after it token by token"


def timed(
    decoder: Decoder, args: argparse.Namespace, depth: int, cache: KVCache
) -> dict[str, float]:
    """tok/s of one prefill and one decode run behind the first ``depth`` tokens of the cache."""
    ids = prompt_ids(decoder, depth + args.prompt)
    cache.truncate(depth)
    clock = time.process_time if args.cpu_time else time.perf_counter
    start = clock()
    token = int(prefill(decoder, ids[depth:], cache).argmax())
    middle = clock()
    cache.truncate(max(depth, 1))
    resumed = clock()
    decode(decoder, token, cache, args.tokens)
    ended = clock()
    return {"pp": args.prompt / (middle - start), "tg": args.tokens / (ended - resumed)}


def measure(
    decoder: Decoder, args: argparse.Namespace, read_bytes: int, rivals: Sequence[Rival]
) -> list[dict[str, Any]]:
    """Rows per depth: medians over ``args.repeats`` interleaved runs."""
    caches: dict[int, KVCache] = {}
    for depth in args.depths:
        caches[depth] = decoder.new_cache(depth + max(args.prompt, args.tokens) + 1)
        if depth:
            prefill(decoder, prompt_ids(decoder, depth), caches[depth])
    ours: dict[tuple[str, int], list[float]] = {}
    others: dict[tuple[str, int, str], list[float]] = {}
    for _ in range(args.repeats):
        for depth, cache in caches.items():
            for kind, rate in timed(decoder, args, depth, cache).items():
                ours.setdefault((kind, depth), []).append(rate)
            for rival in rivals:
                time.sleep(SETTLE_SECONDS)
                for kind, rate in rival.rates(args.prompt, args.tokens, depth).items():
                    others.setdefault((kind, depth, rival.name), []).append(rate)
            time.sleep(SETTLE_SECONDS if rivals else 0)
    rows = []
    for (kind, depth), rates in ours.items():
        one = row(decoder.config, read_bytes, args, kind, depth, rates)
        one["rivals"] = {r.name: summary(others[kind, depth, r.name]) for r in rivals}
        rows.append(one)
    return rows


def summary(rates: list[float]) -> dict[str, float]:
    return {
        "tok_s": statistics.median(rates),
        "min_tok_s": min(rates),
        "max_tok_s": max(rates),
    }


def row(
    config: DecoderConfig, read_bytes: int, args: argparse.Namespace, kind: str, depth: int,
    rates: list[float],
) -> dict[str, Any]:  # fmt: skip
    count = args.prompt if kind == "pp" else args.tokens
    result: dict[str, Any] = {"test": f"{kind}{count}", "depth": depth, **summary(rates)}
    if kind == "tg":
        per_key = 2 * (config.head_dim + 4) * config.num_key_value_heads
        cache_bytes = per_key * config.num_hidden_layers * (depth + args.tokens / 2)
        result["gb_s"] = (read_bytes + cache_bytes) * result["tok_s"] / 1e9
    return result


def load(args: argparse.Namespace, pool: ThreadPool) -> tuple[Decoder, dict[str, Any]]:
    """The decoder, and what the report says about it."""
    start = time.perf_counter()
    if args.synthetic:
        shape = SHAPES[args.synthetic]
        decoder = build_synthetic(shape, pool, args.layers or 0)
        name, done = f"{shape.name} shape, random weights", "generated and packed"
        if args.layers:
            name += f", {args.layers} of {shape.layers} layers"
        if shape.extras:
            name += f", without {' and '.join(shape.extras)}"
    else:
        checkpoint = GGUFFile(find_model(args.model))
        decoder = models.find(checkpoint).build(checkpoint, pool, None)
        name, done = str(args.model), "loaded"
    seconds = time.perf_counter() - start
    memory = {"resident_bytes": resident_bytes(), "peak_bytes": peak_memory_bytes()}
    unread = embed_bytes(shape) if args.synthetic else file_embed_bytes(checkpoint)
    return decoder, {
        "model": name,
        "done": done,
        "load_seconds": seconds,
        "weight_bytes": decoder.nbytes,
        "read_bytes": decoder.nbytes - unread,  # per token
        **memory,
    }


def file_embed_bytes(checkpoint: GGUFFile) -> int:
    """Of the matrix that a token reads one row of; 0 if it is that of the logits too."""
    if "output.weight" not in checkpoint.tensors:
        return 0
    return checkpoint.matrix("token_embd.weight", "w8g32").pack().nbytes


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


def main() -> None:
    args = arguments()
    if args.isa:
        intattention.use_isa(args.isa)
    pool = ThreadPool(args.threads)
    decoder, about = load(args, pool)
    clock = time.process_time if args.cpu_time else time.perf_counter
    rivals = [] if args.synthetic else llama_cpp(find_model(args.model), pool.threads, clock)
    result = {
        "cpu": cpu_name(),
        "isa": intattention.active_isa(),
        "threads": pool.threads,
        "commit": commit(),
        "clock": "cpu" if args.cpu_time else "wall",
        **about,
        "check": check_prefill(decoder) if args.synthetic else check(decoder),
        "rows": measure(decoder, args, about["read_bytes"], rivals),
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
        f"{result['done']} in {result['load_seconds']:.1f} s\n"
        f"resident after loading {gib['resident_bytes']:.2f} GiB, at most "
        f"{gib['peak_bytes']:.2f} GiB until then and {gib['peak_bytes_after']:.2f} GiB in all\n"
        f"read bandwidth {result['read_bandwidth_gb_s']:.1f} GB/s (NumPy sum)\n{result['check']}"
    )
    for row in result["rows"]:
        line = f"{row['test']:>6} @ {row['depth']:<5} {speed(row)}"
        if "gb_s" in row:
            share = row["gb_s"] / result["read_bandwidth_gb_s"]
            line += f"  {row['gb_s']:.1f} GB/s, {share:.0%} of the read bandwidth"
        print(line)
        for name, rival in row["rivals"].items():
            print(f"{'':15}{speed(rival)}  {name}")
        if row["rivals"]:
            median, fastest = (
                row[key] / max(rival[key] for rival in row["rivals"].values())
                for key in ("tok_s", "max_tok_s")
            )
            print(f"{'':15}{median:8.2f} x the best of them, {fastest:.2f} x by fastest turns")


def speed(rates: dict[str, float]) -> str:
    low, high = rates["min_tok_s"], rates["max_tok_s"]
    return f"{rates['tok_s']:8.1f} tok/s  ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    main()
