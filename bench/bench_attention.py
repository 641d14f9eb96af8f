"""Attention by sequence length: every pipeline of this build, and torch's SDPA if installed.

    python bench/bench_attention.py --threads 2 --lengths 1024 4096 --json out.json --plot out.png

Each output is checked against softmax attention in float64 (on sampled queries) before anything
is timed. Repetitions are interleaved over the pipelines and medians reported. GMAC/s counts QK and
PV of the visible keys only. The peak is the rate of the active table's own s8 gemm on data in the
first-level cache, measured in the same run.

Inputs: ``synthetic`` (Gaussian, logits of standard deviation 2) or ``captured`` (q, k, v of a
SmolLM2 layer for WikiText-2 text; d = 64, 9 query and 3 key heads).
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from conditions import commit, cpu_name
from limits import peak_gmacs
from numpy.typing import NDArray

import intattention
from intattention import _core
from intattention.attention import SOFTMAXES

F32 = NDArray[np.float32]
Run = Callable[[], F32]
CHECKED_QUERIES = 16
# Largest relative L1 error that still counts as the same function: float pipelines, integer ones,
# and the two whose error is known to grow with the length (docs/numerics.md section 1).
MAX_ERROR = {"fp32": 1e-4, "fp16": 1e-2, "torch fp32": 1e-4, "torch bf16": 3e-2, "index": 0.12}
UNBOUNDED = ("paper", "quant_only")
TEXT = Path(__file__).parents[1] / "tests" / "data" / "wikitext2_test_prefix.txt"


def synthetic(args: argparse.Namespace, length: int, d: int) -> tuple[F32, F32, F32]:
    rng = np.random.default_rng(length + d)
    shapes = ((args.heads, length, d), (args.kv_heads, length, d), (args.kv_heads, length, d))
    q, k, v = (rng.standard_normal(shape, np.float32) for shape in shapes)
    return q * np.float32(math.sqrt(2)), k * np.float32(math.sqrt(2)), v


def captured(layer: int, length: int) -> tuple[F32, F32, F32]:
    from intattention import models
    from intattention.gguf_file import GGUFFile
    from intattention.model_registry import find_model
    from intattention.tokenizer import TextTokenizer

    checkpoint = GGUFFile(find_model("smollm2-135m-instruct"))
    ids = TextTokenizer(checkpoint).encode(TEXT.read_text(encoding="utf-8"))
    if len(ids) < length:
        raise SystemExit(f"error: the text has {len(ids)} tokens, --lengths asks for {length}")
    decoder = models.find(checkpoint).build(checkpoint, _core.ThreadPool(0), None)
    return decoder.capture_qkv(np.array(ids[:length], np.int32), decoder.new_cache(length), layer)


def pipelines(
    q: F32, k: F32, v: F32, causal: bool, pool: _core.ThreadPool, wanted: list[str]
) -> dict[str, Run]:
    runs: dict[str, Run] = {}
    for name in SOFTMAXES:
        if name in wanted:
            runs[name] = lambda name=name: intattention.attention(
                q, k, v, causal=causal, softmax=name, pool=pool
            )
    return runs | torch_pipelines(q, k, v, causal, pool.threads, wanted)


def torch_pipelines(
    q: F32, k: F32, v: F32, causal: bool, threads: int, wanted: list[str]
) -> dict[str, Run]:
    try:
        import torch
    except ImportError:
        return {}
    torch.set_num_threads(threads)
    group = q.shape[0] // k.shape[0]
    runs: dict[str, Run] = {}
    for name, dtype in (("torch fp32", torch.float32), ("torch bf16", torch.bfloat16)):
        if name not in wanted:
            continue
        tensors = [torch.from_numpy(x)[None].to(dtype) for x in (q, k, v)]
        tensors[1:] = [x.repeat_interleave(group, 1) for x in tensors[1:]]

        def run(tensors: list[Any] = tensors) -> F32:
            with torch.no_grad():
                out = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=causal)
            return out[0].float().numpy()

        runs[name] = run
    return runs


def relative_error(out: F32, q: F32, k: F32, v: F32, causal: bool) -> float:
    """Relative L1 against float64 on CHECKED_QUERIES queries spread over the length, all heads."""
    rows = np.unique(np.linspace(0, q.shape[1] - 1, CHECKED_QUERIES).astype(int))
    group = q.shape[0] // k.shape[0]
    difference = total = 0.0
    for h in range(q.shape[0]):
        logits = q[h, rows].astype(np.float64) @ k[h // group].T.astype(np.float64)
        logits /= math.sqrt(q.shape[2])
        if causal:
            logits[np.arange(k.shape[1]) > rows[:, None]] = -np.inf
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        exact = p @ v[h // group].astype(np.float64) / p.sum(axis=1, keepdims=True)
        difference += np.abs(out[h, rows] - exact).sum()
        total += np.abs(exact).sum()
    return difference / total


def measure(args: argparse.Namespace, pool: _core.ThreadPool) -> list[dict[str, Any]]:
    rows = []
    for length in args.lengths:
        for d in [64] if args.inputs == "captured" else args.dims:
            q, k, v = (
                captured(args.layer, length)
                if args.inputs == "captured"
                else synthetic(args, length, d)
            )
            for causal in (True, False):
                rows += measure_case(args, pool, q, k, v, causal)
    return rows


def measure_case(
    args: argparse.Namespace, pool: _core.ThreadPool, q: F32, k: F32, v: F32, causal: bool
) -> list[dict[str, Any]]:
    runs = pipelines(q, k, v, causal, pool, args.pipelines)
    errors = {name: relative_error(run(), q, k, v, causal) for name, run in runs.items()}
    for name, error in errors.items():
        if name not in UNBOUNDED and not error <= MAX_ERROR[name]:
            raise SystemExit(f"error: {name} is off by {error:.2e}, the limit is {MAX_ERROR[name]}")
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(args.repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    heads, length, d = q.shape
    macs = 2 * d * heads * length * ((length + 1) / 2 if causal else length)
    rows = []
    for name, times in seconds.items():
        median = statistics.median(times)
        rows.append(
            {"pipeline": name, "length": length, "d": d, "heads": heads, "kv_heads": k.shape[0],
             "causal": causal, "ms": median * 1e3, "ms_min": min(times) * 1e3,
             "ms_max": max(times) * 1e3, "gmac_s": macs / median / 1e9, "error": errors[name]}
        )  # fmt: skip
    if "index" in runs:
        stages = _core.attention_stages(q, k, v, causal, 1 / math.sqrt(d), pool)
        total = stages.pop("total")
        rows[0]["share"] = {name: value / total for name, value in stages.items()}
    return rows


def report(result: dict[str, Any]) -> None:
    print(f"{result['cpu']}, {result['isa']}, {result['threads']} threads, commit "
          f"{result['commit']}, {result['inputs']} inputs; "
          f"s8 gemm peak {result['peak_gmac_s']:.0f} GMAC/s")  # fmt: skip
    case, base = None, 1.0
    for row in result["rows"]:
        if case != (row["length"], row["d"], row["causal"]):
            case, base = (row["length"], row["d"], row["causal"]), row["ms"]
            mask = "causal" if row["causal"] else "full"
            heads = f"{row['heads']}/{row['kv_heads']} heads"
            print(f"\nL {row['length']}, d {row['d']}, {heads}, {mask}")
        print(
            f"  {row['pipeline']:<11}{row['ms']:9.2f} ms "
            f"({row['ms_min']:.2f} to {row['ms_max']:.2f}){row['gmac_s']:8.1f} GMAC/s "
            f"{row['gmac_s'] / result['peak_gmac_s']:5.0%} of peak {row['ms'] / base:6.2f} x"
            f"  error {row['error']:.1e}  "
            + ", ".join(f"{name} {part:.0%}" for name, part in row.get("share", {}).items())
        )


def plot(result: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cases = sorted({(row["d"], row["causal"]) for row in result["rows"]})
    figure, axes = pyplot.subplots(1, len(cases), figsize=(5 * len(cases), 4), squeeze=False)
    for axis, (d, causal) in zip(axes[0], cases, strict=True):
        rows = [row for row in result["rows"] if (row["d"], row["causal"]) == (d, causal)]
        for name in dict.fromkeys(row["pipeline"] for row in rows):
            points = [(row["length"], row["gmac_s"]) for row in rows if row["pipeline"] == name]
            axis.plot(*zip(*points, strict=True), marker="o", label=name)
        axis.set_xscale("log", base=2)
        axis.set_title(f"d = {d}, {'causal' if causal else 'full'}")
        axis.set_xlabel("sequence length")
        axis.set_ylabel("GMAC/s")
        axis.set_ylim(bottom=0)
        axis.legend()
    figure.suptitle(f"{result['cpu']}, {result['isa']}, {result['threads']} threads")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    everything = [*SOFTMAXES, "torch fp32", "torch bf16"]
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("--isa", help="force a kernel table")
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096])
    parser.add_argument("--dims", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--inputs", choices=["synthetic", "captured"], default="synthetic")
    parser.add_argument("--layer", type=int, default=12, help="of the captured inputs")
    parser.add_argument("--pipelines", nargs="+", default=everything, choices=everything)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()
    if args.isa:
        intattention.use_isa(args.isa)
    pool = _core.ThreadPool(args.threads)
    result = {"cpu": cpu_name(), "isa": intattention.active_isa(), "threads": pool.threads,
              "commit": commit(), "inputs": args.inputs, "peak_gmac_s": peak_gmacs(pool),
              "rows": measure(args, pool)}  # fmt: skip
    report(result)
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")
    if args.plot:
        plot(result, args.plot)


if __name__ == "__main__":
    main()
