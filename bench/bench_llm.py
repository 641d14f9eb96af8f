"""Prompt and decode speed of a whole model: `python bench/bench_llm.py [--threads 2]`.

The result is checked first: the greedy continuation on the active ISA must equal the one of the
portable kernels. Then prefill (``pp``) and decode (``tg``) are timed in turns and medians are
printed, with GB/s of weights and cache read per decoded token beside the measured read bandwidth.
"""

import argparse
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from conditions import commit, cpu_name
from numpy.typing import NDArray

import intattention
from intattention import models
from intattention._core import Decoder, KVCache, ThreadPool
from intattention.gguf_file import GGUFFile
from intattention.model_registry import find_model

CHECK_PROMPT, CHECK_TOKENS = 24, 8
PREFILL_CHUNK = 256
BANDWIDTH_BYTES = 1 << 28  # far beyond any last-level share of one core


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


def check(decoder: Decoder) -> None:
    isa = intattention.active_isa()
    expected, got = greedy(decoder, "portable"), greedy(decoder, isa)
    if expected != got:
        raise SystemExit(f"error: {isa} decodes {got}, portable decodes {expected}")


def read_bandwidth(threads: int) -> float:
    """Bytes per second that ``threads`` NumPy sums over separate arrays read, best of three."""
    arrays = [np.ones(BANDWIDTH_BYTES // 8, np.int64) for _ in range(threads)]
    best = 0.0
    with ThreadPoolExecutor(threads) as executor:
        for _ in range(3):
            start = time.perf_counter()
            list(executor.map(np.sum, arrays))
            best = max(best, threads * BANDWIDTH_BYTES / (time.perf_counter() - start))
    return best


def measure(decoder: Decoder, args: argparse.Namespace) -> list[dict[str, float | str]]:
    """One row per depth: medians over ``args.repeats`` interleaved runs."""
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(args.repeats):
        for depth in args.depths:
            cache = decoder.new_cache(depth + args.prompt + args.tokens + 1)
            ids = prompt_ids(decoder, depth + args.prompt)
            if depth:
                prefill(decoder, ids[:depth], cache)
            start = time.perf_counter()
            token = int(prefill(decoder, ids[depth:], cache).argmax())
            times.setdefault(("pp", depth), []).append(time.perf_counter() - start)
            cache.truncate(max(depth, 1))
            start = time.perf_counter()
            decode(decoder, token, cache, args.tokens)
            times.setdefault(("tg", depth), []).append(time.perf_counter() - start)
    rows: list[dict[str, float | str]] = []
    for (kind, depth), seconds in times.items():
        count = args.prompt if kind == "pp" else args.tokens
        row: dict[str, float | str] = {
            "test": f"{kind}{count}",
            "depth": depth,
            "tok_s": count / statistics.median(seconds),
            "min_tok_s": count / max(seconds),
            "max_tok_s": count / min(seconds),
        }
        if kind == "tg":
            config = decoder.config
            per_key = 2 * (config.head_dim + 4) * config.num_key_value_heads
            cache_bytes = per_key * config.num_hidden_layers * (depth + args.tokens / 2)
            row["gb_s"] = (decoder.nbytes + cache_bytes) * float(row["tok_s"]) / 1e9
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", default="smollm2-135m-instruct")
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("--isa", help="force a kernel table")
    parser.add_argument("--prompt", type=int, default=512, help="tokens per prefill")
    parser.add_argument("--tokens", type=int, default=64, help="tokens per decode run")
    parser.add_argument("--depths", type=int, nargs="*", default=[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the result here")
    args = parser.parse_args()
    if args.isa:
        intattention.use_isa(args.isa)
    pool = ThreadPool(args.threads)
    checkpoint = GGUFFile(find_model(args.model))
    decoder = models.find(checkpoint).build(checkpoint, pool, None)
    check(decoder)
    bandwidth = read_bandwidth(pool.threads)
    result = {
        "cpu": cpu_name(),
        "isa": intattention.active_isa(),
        "threads": pool.threads,
        "commit": commit(),
        "model": str(args.model),
        "weight_bytes": decoder.nbytes,
        "read_bandwidth_gb_s": bandwidth / 1e9,
        "rows": measure(decoder, args),
    }
    report(result)
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")


def report(result: dict[str, object]) -> None:
    print(
        f"{result['cpu']}, {result['isa']}, {result['threads']} threads, "
        f"commit {result['commit']}\n{result['model']}, {result['weight_bytes']} bytes of weights, "
        f"read bandwidth {result['read_bandwidth_gb_s']:.1f} GB/s (NumPy sum)\n"
        "greedy tokens equal those of the portable kernels"
    )
    rows = result["rows"]
    assert isinstance(rows, list)
    for row in rows:
        line = f"{row['test']:>6} @ {row['depth']:<5} {row['tok_s']:8.1f} tok/s"
        line += f"  ({row['min_tok_s']:.1f} to {row['max_tok_s']:.1f})"
        if "gb_s" in row:
            bandwidth = result["read_bandwidth_gb_s"]
            assert isinstance(bandwidth, float)
            line += f"  {row['gb_s']:.1f} GB/s, {row['gb_s'] / bandwidth:.0%} of the read bandwidth"
        print(line)


if __name__ == "__main__":
    main()
