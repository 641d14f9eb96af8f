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
from pathlib import Path
from typing import Any

import intattention
from intattention import _core
from intattention.bench.attention_cases import PIPELINES, captured, gaussian, measure_case
from intattention.bench.errors import BenchError
from intattention.bench.limits import peak_gmacs
from intattention.bench.measurer import Measurer
from intattention.bench.timing import Policy
from intattention.machine import cpu_model
from intattention.machine_facts import commit

TEXT = Path(__file__).parents[1] / "tests" / "data" / "wikitext2_test_prefix.txt"


def measure(args: argparse.Namespace, pool: _core.ThreadPool) -> list[dict[str, Any]]:
    rows = []
    measurer = Measurer(Policy.exactly(args.repeats))
    for length in args.lengths:
        for d in [64] if args.inputs == "captured" else args.dims:
            for causal in (True, False):
                inputs = (
                    captured(TEXT, args.layer, length, causal)
                    if args.inputs == "captured"
                    else gaussian(length, d, args.heads, args.kv_heads, causal)
                )
                rows += measure_case(inputs, measurer, pool, args.pipelines)
    return rows


def report(result: dict[str, Any]) -> None:
    print(f"{result['cpu']}, {result['isa']}, {result['threads']} threads, commit "
          f"{result['commit']}, {result['inputs']} inputs; "
          f"s8 gemm peak {result['peak_gmac_s']:.0f} GMAC/s")  # fmt: skip
    case, base = None, 1.0
    for row in result["rows"]:
        if case != (row["length"], row["d"], row["causal"]):
            case, base = (row["length"], row["d"], row["causal"]), row["time"]["median_s"]
            mask = "causal" if row["causal"] else "full"
            heads = f"{row['heads']}/{row['kv_heads']} heads"
            print(f"\nL {row['length']}, d {row['d']}, {heads}, {mask}")
        seconds = row["time"]
        print(
            f"  {row['pipeline']:<11}{seconds['median_s'] * 1e3:9.2f} ms "
            f"({seconds['min_s'] * 1e3:.2f} to {seconds['max_s'] * 1e3:.2f})"
            f"{row['gmac_s']:8.1f} GMAC/s {row['gmac_s'] / result['peak_gmac_s']:5.0%} of peak "
            f"{seconds['median_s'] / base:6.2f} x  error {row['error']:.1e}  "
            + ", ".join(f"{name} {part:.0%}" for name, part in (row["share"] or {}).items())
        )


def plot(result: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cases = sorted({(row["d"], row["causal"]) for row in result["rows"]})
    figure, axes = pyplot.subplots(
        1, len(cases), figsize=(4 * len(cases), 4), squeeze=False, layout="constrained"
    )
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
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    figure.suptitle(f"{result['cpu']}, {result['isa']}, {result['threads']} threads")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("--isa", help="force a kernel table")
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096])
    parser.add_argument("--dims", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--inputs", choices=["synthetic", "captured"], default="synthetic")
    parser.add_argument("--layer", type=int, default=12, help="of the captured inputs")
    parser.add_argument("--pipelines", nargs="+", default=PIPELINES, choices=PIPELINES)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()
    if args.isa:
        intattention.use_isa(args.isa)
    pool = _core.ThreadPool(args.threads)
    try:
        rows = measure(args, pool)
    except BenchError as error:
        raise SystemExit(f"error: {error}") from error
    result = {"cpu": cpu_model(), "isa": intattention.active_isa(), "threads": pool.threads,
              "commit": commit(), "inputs": args.inputs, "peak_gmac_s": peak_gmacs(pool),
              "rows": rows}  # fmt: skip
    report(result)
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")
    if args.plot:
        plot(result, args.plot)


if __name__ == "__main__":
    main()
