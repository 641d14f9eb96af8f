"""Attention alone: inputs, the pipelines to compare, and the check that each is attention."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import intattention
from intattention import _core
from intattention.attention import SOFTMAXES
from intattention.bench.errors import BenchError
from intattention.bench.measurer import Measurer
from intattention.dtypes import F32

Run = Callable[[], F32]
TORCH = ("torch fp32", "torch bf16")
PIPELINES = (*SOFTMAXES, *TORCH)
CHECKED_QUERIES = 16
STAGE_RUNS = 5
# Largest relative L1 error that still counts as the same function: float pipelines, integer ones,
# and the two whose error is known to grow with the length (docs/numerics.md section 1).
MAX_ERROR = {"fp32": 1e-4, "fp16": 1e-2, "torch fp32": 1e-4, "torch bf16": 3e-2, "index": 0.12}
UNBOUNDED = ("paper", "quant_only")
NO_FP16 = ("narrow_f32f16", "none")  # kernel of a table without float16


@dataclass(frozen=True)
class Inputs:
    """q [heads, length, d], k and v [kv_heads, length, d]."""

    q: F32
    k: F32
    v: F32
    causal: bool

    @property
    def macs(self) -> float:
        """Multiply-adds of QK and PV, visible keys only."""
        heads, length, d = self.q.shape
        keys = (length + 1) / 2 if self.causal else length
        return float(2 * d * heads * length * keys)

    def about(self) -> dict[str, Any]:
        heads, length, d = self.q.shape
        return {
            "length": length,
            "d": d,
            "heads": heads,
            "kv_heads": self.k.shape[0],
            "causal": self.causal,
        }


def gaussian(length: int, d: int, heads: int, kv_heads: int, causal: bool) -> Inputs:
    """Normal q, k, v whose logits have standard deviation 2."""
    rng = np.random.default_rng(length + d)
    shapes = ((heads, length, d), (kv_heads, length, d), (kv_heads, length, d))
    q, k, v = (rng.standard_normal(shape, np.float32) for shape in shapes)
    return Inputs(q * np.float32(math.sqrt(2)), k * np.float32(math.sqrt(2)), v, causal)


def captured(text: Path, layer: int, length: int, causal: bool) -> Inputs:
    """q, k, v of a SmolLM2 layer for the first tokens of a text. BenchError: it is too short."""
    from intattention.bench.llm_cases import load_decoder
    from intattention.gguf_file import GGUFFile
    from intattention.model_registry import find_model
    from intattention.tokenizer import TextTokenizer

    checkpoint = GGUFFile(find_model("smollm2-135m-instruct"))
    ids = TextTokenizer(checkpoint).encode(text.read_text(encoding="utf-8"))
    if len(ids) < length:
        raise BenchError(f"{text} has {len(ids)} tokens, {length} are asked for")
    decoder = load_decoder(checkpoint, _core.ThreadPool(0))
    tokens = np.array(ids[:length], np.int32)
    return Inputs(*decoder.capture_qkv(tokens, decoder.new_cache(length), layer), causal)


def pipelines(inputs: Inputs, pool: _core.ThreadPool, wanted: Sequence[str]) -> dict[str, Run]:
    """Name -> a call that computes it; the wanted ones that this machine can run."""
    runs: dict[str, Run] = {}
    for name in SOFTMAXES:
        if name in wanted and not (name == "fp16" and NO_FP16 in _core.kernel_names().items()):
            runs[name] = partial(
                intattention.attention,
                *(inputs.q, inputs.k, inputs.v),
                causal=inputs.causal,
                softmax=name,
                pool=pool,
            )
    if any(name in wanted for name in TORCH):
        runs |= torch_pipelines(inputs, pool.threads, wanted)
    return runs


def torch_pipelines(inputs: Inputs, threads: int, wanted: Sequence[str]) -> dict[str, Run]:
    try:
        import torch
    except ImportError:
        return {}
    torch.set_num_threads(threads)
    group = inputs.q.shape[0] // inputs.k.shape[0]
    runs: dict[str, Run] = {}
    for name, dtype in zip(TORCH, (torch.float32, torch.bfloat16), strict=True):
        if name not in wanted:
            continue
        tensors = [torch.from_numpy(x)[None].to(dtype) for x in (inputs.q, inputs.k, inputs.v)]
        tensors[1:] = [x.repeat_interleave(group, 1) for x in tensors[1:]]

        def run(tensors: list[Any] = tensors) -> F32:
            with torch.no_grad():
                out = torch.nn.functional.scaled_dot_product_attention(
                    *tensors, is_causal=inputs.causal
                )
            array: F32 = out[0].float().numpy()
            return array

        runs[name] = run
    return runs


def checked(runs: dict[str, Run], inputs: Inputs) -> dict[str, float]:
    """Runs each once: relative L1 error by name. BenchError if one is not attention."""
    errors = {name: relative_error(run(), inputs) for name, run in runs.items()}
    for name, error in errors.items():
        limit = math.inf if name in UNBOUNDED else MAX_ERROR[name]
        if not error <= limit or math.isinf(error):
            raise BenchError(f"{name} is off by {error:.2e}, the limit is {limit}")
    return errors


def relative_error(out: F32, inputs: Inputs) -> float:
    """Relative L1 against float64 on CHECKED_QUERIES queries spread over the length, all heads."""
    q, k, v = inputs.q, inputs.k, inputs.v
    rows = np.unique(np.linspace(0, q.shape[1] - 1, CHECKED_QUERIES).astype(int))
    group = q.shape[0] // k.shape[0]
    difference = total = 0.0
    for h in range(q.shape[0]):
        logits = q[h, rows].astype(np.float64) @ k[h // group].T.astype(np.float64)
        logits /= math.sqrt(q.shape[2])
        if inputs.causal:
            logits[np.arange(k.shape[1]) > rows[:, None]] = -np.inf
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        exact = p @ v[h // group].astype(np.float64) / p.sum(axis=1, keepdims=True)
        difference += float(np.abs(out[h, rows] - exact).sum())
        total += float(np.abs(exact).sum())
    return difference / total


def measure_case(
    inputs: Inputs, measurer: Measurer, pool: _core.ThreadPool, wanted: Sequence[str]
) -> list[dict[str, Any]]:
    """One row per pipeline, checked, then interleaved. BenchError."""
    runs = pipelines(inputs, pool, wanted)
    errors = checked(runs, inputs)
    rows = []
    for name, measured in measurer.measure(runs).items():
        rows.append(
            {
                "pipeline": name,
                **inputs.about(),
                "threads": pool.threads,
                "gmac_s": inputs.macs / measured.time.median / 1e9,
                "error": errors[name],
                "share": stage_shares(inputs, pool) if name == "index" else None,
                **measured.as_dict(),
            }
        )
    return rows


def stage_shares(inputs: Inputs, pool: _core.ThreadPool) -> dict[str, float]:
    """Share of the index pipeline's time in "qk", "softmax" and "pv", in the quickest of
    STAGE_RUNS; the rest is quantising, packing, merging and waiting."""
    scale = 1 / math.sqrt(inputs.q.shape[2])
    arrays = (inputs.q, inputs.k, inputs.v)
    runs = [_core.attention_stages(*arrays, inputs.causal, scale, pool) for _ in range(STAGE_RUNS)]
    stages = min(runs, key=lambda run: run["total"])
    total = stages.pop("total")
    return {name: value / total for name, value in stages.items()}
