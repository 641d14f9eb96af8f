"""Whole models: prompt and decode speed behind so many tokens, in the style of llama-bench.

The result is checked first. A model file: the greedy continuation on the active ISA must equal the
one of the portable kernels. Random weights: logits and tokens after the whole prompt at once must
equal those after the prompt token by token.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import intattention
from intattention import models
from intattention._core import Decoder, KVCache, ThreadPool
from intattention.bench import synthetic
from intattention.bench.errors import BenchError
from intattention.bench.measurer import Measured, Measurer
from intattention.bench.shapes import SHAPES
from intattention.bench.timing import Work
from intattention.checkpoint import Checkpoint
from intattention.machine import peak_memory_bytes, resident_bytes
from intattention.model_file import open_model_file
from intattention.model_registry import find_model

CHECK_PROMPT, CHECK_TOKENS = 24, 8
PREFILL_CHUNK = 256


@dataclass
class LoadedModel:
    """A decoder and what a report says about it; ``read_bytes``: of weights, per token."""

    decoder: Decoder
    name: str
    check: str
    load_seconds: float
    read_bytes: int
    resident_bytes: int
    peak_bytes: int

    def about(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "check": self.check,
            "load_seconds": self.load_seconds,
            "weight_bytes": self.decoder.nbytes,
            "read_bytes": self.read_bytes,
            "resident_bytes": self.resident_bytes,
            "peak_bytes": self.peak_bytes,
        }


def load_model(name: str, pool: ThreadPool) -> LoadedModel:
    """A file or a name, loaded and checked. BenchError: its tokens are wrong."""
    start = time.perf_counter()
    checkpoint = open_model_file(find_model(name))
    decoder = load_decoder(checkpoint, pool)
    unread = embed_bytes(checkpoint)
    return _loaded(decoder, name, start, unread, check_greedy)


def random_model(name: str, layers: int, pool: ThreadPool) -> LoadedModel:
    """Random weights of a named shape, checked; ``layers``: only so many, 0: all. BenchError."""
    start = time.perf_counter()
    shape = SHAPES[name]
    decoder = synthetic.build(shape, pool, layers)
    title = f"{shape.name} shape, random weights"
    if layers:
        title += f", {layers} of {shape.layers} layers"
    if shape.extras:
        title += f", without {' and '.join(shape.extras)}"
    return _loaded(decoder, title, start, synthetic.embed_bytes(shape), check_prefill)


def _loaded(
    decoder: Decoder, name: str, start: float, unread: int, check: Callable[[Decoder], str]
) -> LoadedModel:
    seconds = time.perf_counter() - start
    resident, peak = resident_bytes(), peak_memory_bytes()
    read = decoder.nbytes - unread
    return LoadedModel(decoder, name, check(decoder), seconds, read, resident, peak)


def load_decoder(checkpoint: Checkpoint, pool: ThreadPool) -> Decoder:
    return models.find(checkpoint).build(checkpoint, pool, None)


def embed_bytes(checkpoint: Checkpoint) -> int:
    """Of the matrix that a token reads one row of; 0 if it is that of the logits too."""
    if "output.weight" not in checkpoint.tensors:
        return 0
    return checkpoint.packed("token_embd.weight", "w8g32").nbytes


def prompt_ids(decoder: Decoder, count: int) -> NDArray[np.int32]:
    rng = np.random.default_rng(1)
    return rng.integers(0, decoder.config.vocab_size, count).astype(np.int32)


def prefill(decoder: Decoder, ids: NDArray[np.int32], cache: KVCache) -> NDArray[np.float32]:
    for start in range(0, len(ids), PREFILL_CHUNK):
        logits = decoder.forward(ids[start : start + PREFILL_CHUNK], cache)
    last: NDArray[np.float32] = logits[0]
    return last


def decode(decoder: Decoder, token: int, cache: KVCache, count: int) -> list[int]:
    tokens = [token]
    for _ in range(count):
        logits = decoder.forward(np.array(tokens[-1:], np.int32), cache)
        tokens.append(int(logits[0].argmax()))
    return tokens


def greedy(decoder: Decoder, isa: str) -> list[int]:
    """Tokens after the check prompt, on that ISA, which stays in use."""
    intattention.use_isa(isa)
    cache = decoder.new_cache(CHECK_PROMPT + CHECK_TOKENS + 1)
    first = int(prefill(decoder, prompt_ids(decoder, CHECK_PROMPT), cache).argmax())
    return decode(decoder, first, cache, CHECK_TOKENS)


def check_greedy(decoder: Decoder) -> str:
    isa = intattention.active_isa()
    expected, got = greedy(decoder, "portable"), greedy(decoder, isa)
    if expected != got:
        raise BenchError(f"{isa} decodes {got}, portable decodes {expected}")
    return "greedy tokens equal those of the portable kernels"


def check_prefill(decoder: Decoder) -> str:
    """The portable kernels would take minutes for billions of weights."""
    whole = prefill(decoder, prompt_ids(decoder, CHECK_PROMPT), decoder.new_cache(CHECK_PROMPT + 1))
    got = greedy(decoder, intattention.active_isa())
    cache = decoder.new_cache(CHECK_PROMPT + CHECK_TOKENS + 1)
    for token in prompt_ids(decoder, CHECK_PROMPT):
        logits = decoder.forward(np.array([token], np.int32), cache)[0]
    if not np.isfinite(logits).all():
        raise BenchError("the logits are not finite")
    expected = decode(decoder, int(logits.argmax()), cache, CHECK_TOKENS)
    if expected != got or not np.array_equal(whole, logits):
        raise BenchError(f"{got} after the whole prompt, {expected} token by token")
    return "logits and greedy tokens after the whole prompt equal those after it token by token"


def measure_model(
    model: LoadedModel,
    depths: Sequence[int],
    prompt: int,
    tokens: int,
    measurer: Measurer,
    pool: ThreadPool,
    beside: Mapping[tuple[str, int], Work] | None = None,
) -> list[dict[str, Any]]:
    """Rows of prefill (``pp``) and decode (``tg``) behind each depth, all interleaved.

    ``beside``: works that take turns with them and keep their own results."""
    works: dict[tuple[str, int], Work] = {}
    cache = model.decoder.new_cache(max(depths) + max(prompt, tokens) + 1)
    for depth in sorted(depths):
        if depth:
            prefill(model.decoder, prompt_ids(model.decoder, depth)[len(cache) :], cache)
        works |= works_at(model.decoder, cache.fork(), prompt, tokens)
    measured = measurer.measure({**works, **(beside or {})})
    return [
        row(model, kind, prompt if kind == "pp" else tokens, depth, measured[kind, depth])
        | {"threads": pool.threads}
        for kind, depth in works
    ]


def works_at(
    decoder: Decoder, cache: KVCache, prompt: int, tokens: int
) -> dict[tuple[str, int], Work]:
    """Both start from what the cache holds now (decode: from one token at least)."""
    depth = len(cache)
    ids = prompt_ids(decoder, prompt)
    first = int(prefill(decoder, ids, cache).argmax())

    def run_prefill() -> None:
        cache.truncate(depth)
        prefill(decoder, ids, cache)

    def run_decode() -> None:
        cache.truncate(max(depth, 1))
        decode(decoder, first, cache, tokens)

    return {("pp", depth): run_prefill, ("tg", depth): run_decode}


def row(
    model: LoadedModel, kind: str, count: int, depth: int, measured: Measured
) -> dict[str, Any]:
    """GB/s of a decode run: weights, and keys and values of half-way through it."""
    config, gb_s = model.decoder.config, None
    if kind == "tg":
        per_key = 2 * (config.head_dim + 4) * config.num_key_value_heads
        cache_bytes = per_key * config.num_hidden_layers * (depth + count / 2)
        gb_s = (model.read_bytes + cache_bytes) * count / measured.time.median / 1e9
    return {
        "model": model.name,
        "test": kind,
        "tokens": count,
        "depth": depth,
        "tok_s": count / measured.time.median,
        "gb_s": gb_s,
        **measured.as_dict(),
    }
