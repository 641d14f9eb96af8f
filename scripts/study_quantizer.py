#!/usr/bin/env python3
"""What the scale search gains, and what each matrix of a model loses at 4 bit. Writes two tables.

    python scripts/study_quantizer.py --gguf SmolLM2-135M-Instruct.Q4_1.gguf --threads 2

1. Squared error of the search over that of the plain rule, on random weights and on the file's own
   Q8_0 embedding (real weights, already rounded to 8 bit).
2. Perplexity of WikiText-2 test (8 windows of 1,024 tokens, tests/data) and bytes, with some
   matrices quantised again. The file's linears are Q4_1, so a row that changes them says what a
   second rounding costs, not what rounding float weights would.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from intattention import models
from intattention._core import Decoder, ThreadPool
from intattention.checkpoint import FloatFormat, LogicalTensor, WeightFormat
from intattention.dtypes import F32
from intattention.gguf_file import GGUFFile
from intattention.quantize import quantize_float

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "data" / "smollm2_golden.npz"
CHUNK = 256
Quantizer = Callable[[F32], LogicalTensor]


def plain(w: F32, format: WeightFormat) -> LogicalTensor:
    """Peak at -8 (as GGUF writes Q4_0), or minimum and maximum at 0 and 15 (Q4_1)."""
    groups = w.reshape(len(w), -1, 32)
    if format == "w4g32":
        at = np.abs(groups).argmax(2)[..., None]
        scale = (np.take_along_axis(groups, at, 2)[..., 0] / -8).astype(np.float16)
        minimum, offset = None, np.float32(8)
    else:
        low, high = groups.min(2), groups.max(2)
        scale = ((high - low) / 15).astype(np.float16)
        minimum, offset = low.astype(np.float16), np.float32(0)
        groups = groups - minimum.astype(np.float32)[..., None]
    step = scale.astype(np.float32)[..., None]
    q = np.clip(np.rint(groups / np.where(step == 0, 1, step)) + offset, 0, 15).astype(np.uint8)
    return LogicalTensor(format, q[..., :16] | q[..., 16:] << 4, scale, minimum)


def searched(format: WeightFormat, importance: F32 | None = None) -> Quantizer:
    return lambda w: quantize_float(w, format, importance)


class Requantised(GGUFFile):
    """A file of which the matrices whose name ends in a key of ``plan`` are quantised again."""

    def __init__(self, path: Path, plan: dict[str, Quantizer]) -> None:
        super().__init__(path)
        self._plan = plan

    def matrix(self, name: str, float_format: FloatFormat) -> LogicalTensor:
        tensor = super().matrix(name, float_format)
        for end, quantizer in self._plan.items():
            if name.endswith(f"{end}.weight"):
                return quantizer(tensor.dequantize())
        return tensor


def error(tensor: LogicalTensor, w: F32) -> float:
    return float(np.square(tensor.dequantize().astype(np.float64) - w).mean())


def print_errors(file: GGUFFile) -> None:
    rng = np.random.default_rng(0)
    sources = {
        "normal": rng.standard_normal((1024, 1024)),
        "Laplace": rng.laplace(size=(1024, 1024)),
        "Student t, 4 degrees": rng.standard_t(4, (1024, 1024)),
        "SmolLM2 embedding (Q8_0)": file.matrix("token_embd.weight", "w8g32").dequantize(),
    }
    print("| weights | w4g32 searched / plain | w4g32a searched / plain | w4g32 / w4g32a |")
    print("|---|---|---|---|")
    for name, values in sources.items():
        w = values.astype(np.float32)
        best = {f: error(quantize_float(w, f), w) for f in ("w4g32", "w4g32a")}
        ratios = [best[f] / error(plain(w, f), w) for f in ("w4g32", "w4g32a")]
        print(
            f"| {name} | {ratios[0]:.3f} | {ratios[1]:.3f} | {best['w4g32'] / best['w4g32a']:.2f} |"
        )


def perplexity(decoder: Decoder) -> float:
    with np.load(GOLDEN) as golden:
        windows = golden["wikitext_ids"].astype(np.int32).reshape(8, 1024)
    nll = []
    for window in windows:
        cache = decoder.new_cache(len(window))
        total = 0.0
        for start in range(0, len(window), CHUNK):
            logits = decoder.forward(window[start : start + CHUNK], cache, "all").astype(np.float64)
            targets = window[start + 1 : start + 1 + CHUNK]
            logits = logits[: len(targets)]
            peak = logits.max(axis=1)
            log_sum = peak + np.log(np.exp(logits - peak[:, None]).sum(axis=1))
            total += float((log_sum - logits[np.arange(len(targets)), targets]).sum())
        nll.append(total / (len(window) - 1))
    return float(np.exp(np.mean(nll)))


def plans(norm: F32) -> dict[str, dict[str, Quantizer]]:
    w4, w4a = searched("w4g32"), searched("w4g32a")
    linears = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    return {
        "the file: embedding and lm_head w8g32, linears w4g32a": {},
        "lm_head w4g32a": {"token_embd": w4a},
        "lm_head w4g32a, plain": {"token_embd": lambda w: plain(w, "w4g32a")},
        "lm_head w4g32a, weighted by output_norm^2": {"token_embd": searched("w4g32a", norm**2)},
        "lm_head w4g32": {"token_embd": w4},
        "lm_head w4g32, plain": {"token_embd": lambda w: plain(w, "w4g32")},
        "ffn_down w4g32": {"ffn_down": w4},
        "ffn_down w4g32, plain": {"ffn_down": lambda w: plain(w, "w4g32")},
        "attn_q, k, v w4g32": dict.fromkeys(linears[:3], w4),
        "attn_output w4g32": {"attn_output": w4},
        "ffn_gate, ffn_up w4g32": dict.fromkeys(linears[4:6], w4),
        "all linears w4g32": dict.fromkeys(linears, w4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("-t", "--threads", type=int, default=0)
    arguments = parser.parse_args()
    file = GGUFFile(arguments.gguf)
    print_errors(file)
    print("\n| quantised again | MB | perplexity |\n|---|---|---|")
    pool = ThreadPool(arguments.threads)
    for name, plan in plans(file.vector("output_norm.weight")).items():
        checkpoint = Requantised(arguments.gguf, plan)
        decoder = models.find(checkpoint).build(checkpoint, pool, None)
        print(f"| {name} | {decoder.nbytes / 1e6:.1f} | {perplexity(decoder):.3f} |", flush=True)


if __name__ == "__main__":
    main()
