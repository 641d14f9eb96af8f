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
from pathlib import Path
from typing import Any

import intattention
from intattention._core import ThreadPool
from intattention.bench.errors import BenchError
from intattention.bench.limits import last_level_cache, peak_gmacs, read_bandwidth
from intattention.bench.linear_cases import FORMATS, LINEARS, distinct_linears, measure_linear
from intattention.bench.measurer import Measurer
from intattention.bench.shapes import SHAPES
from intattention.bench.timing import Policy
from intattention.machine import cpu_model
from intattention.machine_facts import commit


def measure(args: argparse.Namespace, pool: ThreadPool) -> list[dict[str, Any]]:
    measurer = Measurer(Policy.exactly(args.repeats))
    linears = []
    for linear in distinct_linears(args.models, args.linears):
        rows = measure_linear(linear, args.formats, args.m, args.cold_mib << 20, measurer, pool)
        linears.append({"names": linear.names, "n": linear.n, "k": linear.k, "rows": rows})
    return linears


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
            median, low, high = (row["time"][f"{key}_s"] * 1e6 for key in ("median", "min", "max"))
            line = f"  {row['format']:<7} m {row['m']:<4}{median:11.1f} us "
            line += f"({low:.1f} to {high:.1f})"
            if row["m"] == 1:
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
    try:
        linears = measure(args, pool)
    except BenchError as error:
        raise SystemExit(f"error: {error}") from error
    result = {
        "cpu": cpu_model(),
        "isa": intattention.active_isa(),
        "threads": pool.threads,
        "commit": commit(),
        "read_bandwidth_gb_s": read_bandwidth(pool.threads) / 1e9,
        "peak_gop_s": 2 * peak_gmacs(pool),
        "linears": linears,
    }
    report(result)
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
