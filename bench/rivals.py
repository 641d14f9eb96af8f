"""llama.cpp on the same file, where it is found: ``llama-bench``, else the llama_cpp package."""

import importlib.util
import json
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]


def llama_cpp_rows(
    path: Path, threads: int, prompt: int, tokens: int, depths: list[int], repeats: int
) -> tuple[str, list[Row]]:
    """(what ran, one row per test and depth); an empty name if neither is installed."""
    if shutil.which("llama-bench"):
        return "llama-bench", llama_bench(path, threads, prompt, tokens, depths, repeats)
    if importlib.util.find_spec("llama_cpp"):
        return "llama-cpp-python", llama_python(path, threads, prompt, tokens, depths, repeats)
    return "", []


def llama_bench(
    path: Path, threads: int, prompt: int, tokens: int, depths: list[int], repeats: int
) -> list[Row]:
    command = ["llama-bench", "-m", str(path), "-t", str(threads), "-p", str(prompt)]
    command += ["-n", str(tokens), "-d", ",".join(map(str, depths)), "-r", str(repeats)]
    command += ["-ngl", "0", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SystemExit(f"error: llama-bench failed with {done.returncode}: {last}")
    rows = []
    for run in json.loads(done.stdout):
        kind, count = ("pp", run["n_prompt"]) if run["n_prompt"] else ("tg", run["n_gen"])
        rows.append(row(kind, count, run.get("n_depth", 0), run["samples_ts"]))
    return rows


def llama_python(
    path: Path, threads: int, prompt: int, tokens: int, depths: list[int], repeats: int
) -> list[Row]:
    import llama_cpp

    llama = llama_cpp.Llama(
        str(path), n_ctx=max(depths) + prompt + tokens + 1, n_threads=threads,
        n_threads_batch=threads, n_gpu_layers=0, verbose=False,
    )  # fmt: skip
    rng = np.random.default_rng(1)
    rows = []
    for depth in depths:
        ids = rng.integers(0, llama.n_vocab(), depth + prompt).tolist()
        rates: dict[str, list[float]] = {"pp": [], "tg": []}
        llama.reset()
        if depth:
            llama.eval(ids[:depth])
        for _ in range(repeats):
            llama.n_tokens = depth  # eval() drops what lies behind
            start = time.perf_counter()
            llama.eval(ids[depth:])
            rates["pp"].append(prompt / (time.perf_counter() - start))
            llama.n_tokens = depth
            start = time.perf_counter()
            for token in range(tokens):
                llama.eval([token + 1])
            rates["tg"].append(tokens / (time.perf_counter() - start))
        rows += [row("pp", prompt, depth, rates["pp"]), row("tg", tokens, depth, rates["tg"])]
    return rows


def row(kind: str, count: int, depth: int, rates: list[float]) -> Row:
    return {
        "test": f"{kind}{count}",
        "depth": depth,
        "tok_s": statistics.median(rates),
        "min_tok_s": min(rates),
        "max_tok_s": max(rates),
    }
