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
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from conditions import commit, cpu_name, resident_bytes
from limits import read_bandwidth
from numpy.typing import NDArray
from rivals import llama_cpp_rows
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
    """Seconds of one prefill and one decode run behind the first ``depth`` tokens of the cache."""
    ids = prompt_ids(decoder, depth + args.prompt)
    cache.truncate(depth)
    start = time.perf_counter()
    token = int(prefill(decoder, ids[depth:], cache).argmax())
    middle = time.perf_counter()
    cache.truncate(max(depth, 1))
    resumed = time.perf_counter()
    decode(decoder, token, cache, args.tokens)
    return {"pp": middle - start, "tg": time.perf_counter() - resumed}


def measure(decoder: Decoder, args: argparse.Namespace, read_bytes: int) -> list[dict[str, Any]]:
    """Rows per depth: medians over ``args.repeats`` interleaved runs."""
    caches: dict[int, KVCache] = {}
    for depth in args.depths:
        caches[depth] = decoder.new_cache(depth + max(args.prompt, args.tokens) + 1)
        if depth:
            prefill(decoder, prompt_ids(decoder, depth), caches[depth])
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(args.repeats):
        for depth, cache in caches.items():
            for kind, seconds in timed(decoder, args, depth, cache).items():
                times.setdefault((kind, depth), []).append(seconds)
    return [row(decoder.config, read_bytes, args, *key, times[key]) for key in times]


def row(
    config: DecoderConfig, read_bytes: int, args: argparse.Namespace, kind: str, depth: int,
    seconds: list[float],
) -> dict[str, Any]:  # fmt: skip
    count = args.prompt if kind == "pp" else args.tokens
    result = {
        "test": f"{kind}{count}",
        "depth": depth,
        "tok_s": count / statistics.median(seconds),
        "min_tok_s": count / max(seconds),
        "max_tok_s": count / min(seconds),
    }
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
    parser.add_argument("--json", type=Path, help="also write the result here")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if args.isa:
        intattention.use_isa(args.isa)
    pool = ThreadPool(args.threads)
    decoder, about = load(args, pool)
    result = {
        "cpu": cpu_name(),
        "isa": intattention.active_isa(),
        "threads": pool.threads,
        "commit": commit(),
        **about,
        "check": check_prefill(decoder) if args.synthetic else check(decoder),
        "rows": measure(decoder, args, about["read_bytes"]),
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
        f"{result['done']} in {result['load_seconds']:.1f} s\n"
        f"resident after loading {gib['resident_bytes']:.2f} GiB, at most "
        f"{gib['peak_bytes']:.2f} GiB until then and {gib['peak_bytes_after']:.2f} GiB in all\n"
        f"read bandwidth {result['read_bandwidth_gb_s']:.1f} GB/s (NumPy sum)\n{result['check']}"
    )
    rivals = {(row["test"], row["depth"]): row for row in result.get("rival_rows", [])}
    for row in result["rows"]:
        line = f"{row['test']:>6} @ {row['depth']:<5} {row['tok_s']:8.1f} tok/s"
        line += f"  ({row['min_tok_s']:.1f} to {row['max_tok_s']:.1f})"
        if "gb_s" in row:
            share = row["gb_s"] / result["read_bandwidth_gb_s"]
            line += f"  {row['gb_s']:.1f} GB/s, {share:.0%} of the read bandwidth"
        rival = rivals.get((row["test"], row["depth"]))
        if rival:
            line += f"  {result['rival']} {rival['tok_s']:.1f} tok/s"
            line += f" ({rival['min_tok_s']:.1f} to {rival['max_tok_s']:.1f})"
        print(line)


if __name__ == "__main__":
    main()
