"""llama.cpp on the same file, where it is found: the llama_cpp package, else ``llama-bench``.

One rival per cache type. The package keeps a context per depth between turns, so that a turn is as
short as ours; llama-bench starts anew and fills the cache each time.
"""

import importlib.util
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

CACHES = ("f16", "f16 fa", "q8_0 fa")  # cache type, with flash attention (q8_0 needs it)
GGML_TYPES = {"f16": 1, "q8_0": 8}


Clock = Callable[[], float]


class Rival(Protocol):
    name: str

    def rates(self, prompt: int, tokens: int, depth: int) -> dict[str, float]:
        """tok/s of one prefill ("pp") and one decode run ("tg") behind ``depth`` tokens."""
        ...


def llama_cpp(path: Path, threads: int, clock: Clock) -> Sequence[Rival]:
    """Empty if neither is installed. llama-bench knows wall time only."""
    if importlib.util.find_spec("llama_cpp"):
        return [LlamaPython(path, threads, cache, clock) for cache in CACHES]
    if shutil.which("llama-bench") and clock is time.perf_counter:
        return [LlamaBench(path, threads, cache) for cache in CACHES]
    return []


class LlamaPython:
    def __init__(self, path: Path, threads: int, cache: str, clock: Clock) -> None:
        self.name = f"llama-cpp-python {cache}"
        self._clock = clock
        kind = GGML_TYPES[cache.split()[0]]
        self._options = {
            "model_path": str(path),
            "n_threads": threads,
            "n_threads_batch": threads,
            "n_gpu_layers": 0,
            "flash_attn": cache.endswith("fa"),
            "type_k": kind,
            "type_v": kind,
            "verbose": False,
        }
        self._contexts: dict[int, Any] = {}

    def _context(self, size: int, depth: int) -> Any:
        """A context that holds ``depth`` tokens and has seen every batch size before."""
        if depth not in self._contexts:
            import llama_cpp

            llama = llama_cpp.Llama(n_ctx=depth + size, **self._options)
            ids = np.random.default_rng(1).integers(0, llama.n_vocab(), depth + 8).tolist()
            llama.eval(ids)
            llama.eval(ids[:1])
            self._contexts[depth] = llama
        return self._contexts[depth]

    def rates(self, prompt: int, tokens: int, depth: int) -> dict[str, float]:
        llama = self._context(max(prompt, tokens) + 16, depth)
        ids = np.random.default_rng(2).integers(0, llama.n_vocab(), prompt).tolist()
        llama.n_tokens = depth  # eval() drops what lies behind
        start = self._clock()
        llama.eval(ids)
        middle = self._clock()
        llama.n_tokens = depth
        resumed = self._clock()
        for token in range(tokens):
            llama.eval([token + 1])
        return {
            "pp": prompt / (middle - start),
            "tg": tokens / (self._clock() - resumed),
        }


class LlamaBench:
    def __init__(self, path: Path, threads: int, cache: str) -> None:
        self.name = f"llama-bench {cache}"
        kind, attention = cache.split()[0], "on" if cache.endswith("fa") else "off"
        self._command = ["llama-bench", "-m", str(path), "-t", str(threads), "-r", "1"]
        self._command += ["-ctk", kind, "-ctv", kind, "-fa", attention, "-ngl", "0", "-o", "json"]

    def rates(self, prompt: int, tokens: int, depth: int) -> dict[str, float]:
        command = [*self._command, "-p", str(prompt), "-n", str(tokens), "-d", str(depth)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise SystemExit(f"error: llama-bench failed with {done.returncode}: {last}")
        return {
            "pp" if run["n_prompt"] else "tg": run["samples_ts"][0]
            for run in json.loads(done.stdout)
        }
