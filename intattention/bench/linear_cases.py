"""The linears of known models, one row (decode) and many (prefill), by weight format.

Each output is checked against float64 (the dequantised weights times the quantised activations, on
sampled rows and outputs) before anything is timed. One row goes through copies of the matrix, so
that it reads memory as a decoder does. Times include the call from Python and quantising.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import numpy as np

from intattention import ops
from intattention._core import GROUP, PackedWeights, ThreadPool
from intattention.bench.errors import BenchError
from intattention.bench.limits import last_level_cache
from intattention.bench.measurer import Measured, Measurer
from intattention.bench.shapes import SHAPES
from intattention.bench.synthetic import Format, random_matrix
from intattention.dtypes import F32

FORMATS: tuple[Format, ...] = get_args(Format)
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

    format: Format
    x: F32
    copies: list[list[PackedWeights]]
    error: float
    calls: int


def distinct_linears(models: Sequence[str], wanted: Sequence[str]) -> list[Linear]:
    names: dict[tuple[tuple[int, ...], int], list[str]] = {}
    for model in models:
        for linear, size in SHAPES[model].linears().items():
            if linear in wanted:
                names.setdefault(size, []).append(f"{model} {linear}")
    return [Linear(outs, k, tuple(users)) for (outs, k), users in names.items()]


def copies_of(linear: Linear, format: Format, cold_bytes: int) -> list[list[PackedWeights]]:
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
        difference += float(np.abs(y[np.ix_(rows, offset + outputs)] - exact).sum())
        total += float(np.abs(exact).sum())
        offset += n
    return difference / total


def prepare(
    linear: Linear, format: Format, m: int, copies: list[list[PackedWeights]], pool: ThreadPool
) -> Case:
    """Checks every copy (one row) or the first, and finds how many calls make a sample."""
    x = np.random.default_rng(m).standard_normal((m, linear.k), np.float32)
    y = ops.linear(x, copies[0], pool)
    error = relative_error(y, x, copies[0])
    same = m > 1 or all(np.array_equal(y, ops.linear(x, parts, pool)) for parts in copies)
    if not error <= MAX_ERROR or not same:
        raise BenchError(
            f"{linear.names[0]}, {format}, m {m}: off by {error:.2e}, the limit is "
            f"{MAX_ERROR}" + ("" if same else "; copies of the matrix give different results")
        )
    case = Case(format, x, copies, error, len(copies) if m == 1 else 1)
    case.calls *= math.ceil(SAMPLE_SECONDS / max(run(case, pool), 1e-6))
    return case


def run(case: Case, pool: ThreadPool) -> float:
    start = time.perf_counter()
    for i in range(case.calls):
        ops.linear(case.x, case.copies[i % len(case.copies)], pool)
    return time.perf_counter() - start


def measure_linear(
    linear: Linear,
    formats: Sequence[Format],
    row_counts: Sequence[int],
    cold_bytes: int,
    measurer: Measurer,
    pool: ThreadPool,
) -> list[dict[str, Any]]:
    """One row per format and row count, interleaved; lm_head with one row only. BenchError."""
    cases = []
    for format in formats:
        copies = copies_of(linear, format, cold_bytes)
        counts = [m for m in row_counts if m == 1 or not linear.logits_only]
        cases += [prepare(linear, format, m, copies, pool) for m in counts]
    numbered = dict(enumerate(cases))
    works = {i: partial(run, case, pool) for i, case in numbered.items()}
    measured = measurer.measure(works, {i: case.calls for i, case in numbered.items()})
    threads = {"threads": pool.threads}
    return [row(linear, case, measured[i]) | threads for i, case in numbered.items()]


def row(linear: Linear, case: Case, measured: Measured) -> dict[str, Any]:
    median, m = measured.time.median, len(case.x)
    size = nbytes(case.copies[0])
    one = m == 1
    return {
        "names": list(linear.names),
        "n": linear.n,
        "k": linear.k,
        "format": case.format,
        "m": m,
        "gb_s": size / median / 1e9 if one else None,
        "in_cache": size * len(case.copies) < 2 * last_level_cache() if one else None,
        "gop_s": None if one else 2 * m * linear.n * linear.k / median / 1e9,
        "error": case.error,
        **measured.as_dict(),
    }
