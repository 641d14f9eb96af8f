"""The linears of known models: one row (decode) and many (prefill), by weight format.

    python bench/bench_linear.py --threads 2 --models qwen2.5-0.5b --formats w4g32 --json out.json

Each output is checked against float64 (the dequantised weights times the quantised activations, on
sampled rows and outputs) before anything is timed. Repetitions are interleaved over formats and row
counts and medians reported. A linear that several models share is run once.

One row: GB/s of packed weights beside the measured read bandwidth. The calls go through copies of
the matrix, four times the last-level cache in all (``--cold-mib``); where they are less than twice
it, the line says "in cache". Many rows: GOP/s (two per multiplication) beside the rate of the
active table's own s8 gemm on data in the first-level cache. The logits are computed for one row
only, so lm_head is not run with many. Times are of ``ops.linear`` and include its call from Python
and quantising the activations.
"""

import argparse
import json
import math
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from conditions import commit, cpu_name
from limits import last_level_cache, peak_gmacs, read_bandwidth
from shapes import SHAPES
from synthetic import random_matrix

import intattention
from intattention import ops
from intattention._core import GROUP, PackedWeights, ThreadPool
from intattention.dtypes import F32

FORMATS = ("w4g32", "w4g32a", "w8g32")
LINEARS = ("qkv", "o", "gate_up", "down", "lm_head")
CHECKED_ROWS, CHECKED_OUTPUTS = 8, 96
MAX_ERROR = 1e-5  # relative L1; float32 sums of up to 592 groups
SAMPLE_SECONDS = 0.01  # at least so long is each timed loop


@dataclass(frozen=True)
class Linear:
    outs: tuple[int, ...]
    k: int
    names: tuple[str, ...]  # "model linear"

    @property
    def n(self) -> int:
        return sum(self.outs)

    @property
    def logits_only(self) -> bool:
        return all(name.endswith(" lm_head") for name in self.names)


@dataclass
class Case:
    """One thing to time: ``calls`` calls, going through the copies."""

    format: str
    x: F32
    copies: list[list[PackedWeights]]
    error: float
    calls: int
    seconds: list[float]


def distinct_linears(models: list[str], wanted: list[str]) -> list[Linear]:
    names: dict[tuple[tuple[int, ...], int], list[str]] = {}
    for model in models:
        for linear, size in SHAPES[model].linears().items():
            if linear in wanted:
                names.setdefault(size, []).append(f"{model} {linear}")
    return [Linear(outs, k, tuple(users)) for (outs, k), users in names.items()]


def copies_of(linear: Linear, format: str, cold_bytes: int) -> list[list[PackedWeights]]:
    """As many packed matrices, each the same, as fill ``cold_bytes``."""

    def pack() -> list[PackedWeights]:
        rng = np.random.default_rng(linear.k)
        return [random_matrix(rng, format, n, linear.k) for n in linear.outs]

    first = pack()
    count = max(1, math.ceil(cold_bytes / nbytes(first)))
    return [first, *(pack() for _ in range(count - 1))]


def nbytes(parts: list[PackedWeights]) -> int:
    return sum(part.nbytes for part in parts)


def relative_error(y: F32, x: F32, parts: list[PackedWeights]) -> float:
    """Relative L1 on some rows of x and some outputs of each part; inf if a shape is wrong."""
    if y.shape != (len(x), sum(part.shape[0] for part in parts)):
        return math.inf
    rows = np.unique(np.linspace(0, len(x) - 1, CHECKED_ROWS).astype(int))
    x8, scale, _ = ops.quantize_f32s8(x[rows], GROUP)
    exact_x = x8.astype(np.float64) * np.repeat(scale.astype(np.float64), GROUP, axis=1)
    difference = total = 0.0
    offset = 0
    for part in parts:
        n = part.shape[0]
        outputs = np.unique(np.linspace(0, n - 1, CHECKED_OUTPUTS).astype(np.int32))
        exact = exact_x @ part.dequantize_rows(outputs).astype(np.float64).T
        difference += np.abs(y[np.ix_(rows, offset + outputs)] - exact).sum()
        total += np.abs(exact).sum()
        offset += n
    return difference / total


def prepare(
    linear: Linear, format: str, m: int, copies: list[list[PackedWeights]], pool: ThreadPool
) -> Case:
    """Checks every copy (one row) or the first, and finds how many calls make a sample."""
    x = np.random.default_rng(m).standard_normal((m, linear.k), np.float32)
    y = ops.linear(x, copies[0], pool)
    error = relative_error(y, x, copies[0])
    same = m > 1 or all(np.array_equal(y, ops.linear(x, parts, pool)) for parts in copies)
    if not error <= MAX_ERROR or not same:
        raise SystemExit(
            f"error: {linear.names[0]}, {format}, m {m}: off by {error:.2e}, the limit is "
            f"{MAX_ERROR}" + ("" if same else "; copies of the matrix give different results")
        )
    case = Case(format, x, copies, error, len(copies) if m == 1 else 1, [])
    case.calls *= math.ceil(SAMPLE_SECONDS / max(run(case, pool), 1e-6))
    return case


def run(case: Case, pool: ThreadPool) -> float:
    start = time.perf_counter()
    for i in range(case.calls):
        ops.linear(case.x, case.copies[i % len(case.copies)], pool)
    return time.perf_counter() - start


def measure_linear(linear: Linear, args: argparse.Namespace, pool: ThreadPool) -> dict[str, Any]:
    cases = []
    for format in args.formats:
        copies = copies_of(linear, format, args.cold_mib << 20)
        counts = [m for m in args.m if m == 1 or not linear.logits_only]
        cases += [prepare(linear, format, m, copies, pool) for m in counts]
    for _ in range(args.repeats):
        for case in cases:
            case.seconds.append(run(case, pool) / case.calls)
    return {
        "names": linear.names,
        "n": linear.n,
        "k": linear.k,
        "rows": [row(linear, case) for case in cases],
    }


def row(linear: Linear, case: Case) -> dict[str, Any]:
    median, m = statistics.median(case.seconds), len(case.x)
    size = nbytes(case.copies[0])
    result = {
        "format": case.format,
        "m": m,
        "us": median * 1e6,
        "us_min": min(case.seconds) * 1e6,
        "us_max": max(case.seconds) * 1e6,
        "error": case.error,
    }
    if m == 1:
        result["gb_s"] = size / median / 1e9
        result["in_cache"] = size * len(case.copies) < 2 * last_level_cache()
    else:
        result["gop_s"] = 2 * m * linear.n * linear.k / median / 1e9
    return result


def report(result: dict[str, Any]) -> None:
    bandwidth, peak = result["read_bandwidth_gb_s"], result["peak_gop_s"]
    print(
        f"{result['cpu']}, {result['isa']}, {result['threads']} threads, "
        f"commit {result['commit']}\nread bandwidth {bandwidth:.1f} GB/s (NumPy sum), "
        f"s8 gemm peak {peak:.0f} GOP/s"
    )
    for linear in result["linears"]:
        print(f"\n{linear['k']} -> {linear['n']}: {', '.join(linear['names'])}")
        for row in linear["rows"]:
            line = f"  {row['format']:<7} m {row['m']:<4}{row['us']:11.1f} us "
            line += f"({row['us_min']:.1f} to {row['us_max']:.1f})"
            if "gb_s" in row:
                line += f"  {row['gb_s']:.1f} GB/s, "
                share = f"{row['gb_s'] / bandwidth:.0%} of the read bandwidth"
                line += "in cache" if row["in_cache"] else share
            else:
                line += f"  {row['gop_s']:.0f} GOP/s, {row['gop_s'] / peak:.0%} of peak"
            print(f"{line}  error {row['error']:.0e}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("--isa", help="force a kernel table")
    parser.add_argument("--models", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--linears", nargs="+", default=list(LINEARS), choices=LINEARS)
    parser.add_argument("--formats", nargs="+", default=list(FORMATS), choices=FORMATS)
    parser.add_argument("--m", type=int, nargs="+", default=[1, 128, 512], help="rows")
    parser.add_argument(
        "--cold-mib", type=int, default=4 * last_level_cache() >> 20, help="copies for one row"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the result here")
    args = parser.parse_args()
    if args.isa:
        intattention.use_isa(args.isa)
    pool = ThreadPool(args.threads)
    result = {
        "cpu": cpu_name(),
        "isa": intattention.active_isa(),
        "threads": pool.threads,
        "commit": commit(),
        "read_bandwidth_gb_s": read_bandwidth(pool.threads) / 1e9,
        "peak_gop_s": 2 * peak_gmacs(pool),
        "linears": [
            measure_linear(linear, args, pool)
            for linear in distinct_linears(args.models, args.linears)
        ],
    }
    report(result)
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
