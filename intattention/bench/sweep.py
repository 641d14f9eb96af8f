"""A whole run: which cases, in what order, under which conditions."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import product
from typing import Any

from intattention import _core
from intattention.bench.attention_cases import gaussian, measure_case
from intattention.bench.conditions import condition_problems, row_problems, snapshot
from intattention.bench.limits import last_level_cache, read_bandwidth
from intattention.bench.linear_cases import (
    FORMATS,
    LINEARS,
    Linear,
    distinct_linears,
    measure_linear,
)
from intattention.bench.llm_cases import load_model, measure_model, random_model
from intattention.bench.measurer import IDLE_S, Measurer
from intattention.bench.result import SCHEMA_NAME, SECTIONS
from intattention.bench.synthetic import Format
from intattention.bench.timing import Policy
from intattention.energy import MeterError, Recorder, open_meter
from intattention.machine_facts import machine_facts

Rows = list[dict[str, Any]]
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Settings:
    """What to measure. ``heads``: (query, key/value); ``masks``: causal or not."""

    lengths: Sequence[int] = (1024, 2048, 4096, 8192)
    dims: Sequence[int] = (128,)
    heads: Sequence[tuple[int, int]] = ((8, 8),)
    masks: Sequence[bool] = (True, False)
    pipelines: Sequence[str] = ("fp32", "fp16", "quant_only", "paper", "index")
    threads: Sequence[int] = (0,)
    cpus: list[int] | None = None
    model: str = "smollm2-135m-instruct"
    synthetic: str = ""
    layers: int = 0
    depths: Sequence[int] = (0, 1024, 2048, 4096, 7680)
    prompt: int = 512
    tokens: int = 32
    linear_models: Sequence[str] = ("smollm2-135m", "llama-3.2-1b")
    linears: Sequence[str] = LINEARS
    formats: Sequence[Format] = FORMATS
    row_counts: Sequence[int] = (1, 128)
    cold_bytes: int = field(default_factory=lambda: 4 * last_level_cache())
    policy: Policy = field(default_factory=Policy)
    meter: str = "auto"
    rails: list[str] | None = None
    energy_seconds: float = 2.0


@dataclass(frozen=True)
class Step:
    """``measure`` returns rows of the section."""

    section: str
    label: str
    measure: Callable[[Measurer], Rows]


def run(
    settings: Settings, sections: Sequence[str], progress: Progress | None = None
) -> dict[str, Any]:
    """The result as schema.json has it. Ctrl-C, or a meter that fails, ends the measuring and keeps
    the finished steps; then ``clean`` is False.

    BenchError: an output is wrong. MeterError: the meter asked for does not work. ValueError: a
    setting out of range. Errors of loading the model as ``LLM.load`` has them.
    """
    pools = [_core.ThreadPool(threads, settings.cpus) for threads in settings.threads]
    steps = [step for pool in pools for step in _steps(settings, sections, pool)]
    recorder, no_meter = _recorder(settings)
    largest = max(pools, key=lambda pool: pool.threads)
    problems: list[str] = []
    rows: dict[str, Rows] = {section: [] for section in SECTIONS}
    try:
        measurer = Measurer(settings.policy, recorder, settings.energy_seconds)
        before = snapshot(largest)
        problems += _measure(steps, measurer, rows, progress)
        after = snapshot(largest)
    finally:
        if recorder:
            recorder.meter.close()
    problems += condition_problems(before, after)
    for section in SECTIONS:
        problems += row_problems(section, rows[section])
    return {
        "schema": SCHEMA_NAME,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": sys.argv[1:],
        "clean": not problems,
        "problems": problems,
        "machine": machine_facts(largest.threads, settings.cpus),
        "before": before,
        "after": after,
        "policy": vars(settings.policy),
        "limits": {
            "s8_peak_gmac_s": max(before["s8_peak_gmac_s"], after["s8_peak_gmac_s"]),
            "read_gb_s": read_bandwidth(largest.threads) / 1e9,
        },
        "energy": _energy(recorder, measurer, no_meter),
        **rows,
    }


def _steps(settings: Settings, sections: Sequence[str], pool: _core.ThreadPool) -> Iterator[Step]:
    if "attention" in sections:
        yield from _attention_steps(settings, pool)
    if "llm" in sections:
        yield _llm_step(settings, pool)
    if "linear" in sections:
        for linear in distinct_linears(settings.linear_models, settings.linears):
            yield _linear_step(settings, linear, pool)


def _attention_steps(settings: Settings, pool: _core.ThreadPool) -> Iterator[Step]:
    """Short lengths first."""
    cases = product(settings.lengths, settings.dims, settings.heads, settings.masks)
    for length, d, (heads, kv_heads), causal in cases:
        label = f"L {length}, d {d}, {'causal' if causal else 'full'}"
        yield _attention_step(settings, label, (length, d, heads, kv_heads, causal), pool)


def _attention_step(
    settings: Settings, label: str, shape: tuple[int, int, int, int, bool], pool: _core.ThreadPool
) -> Step:
    def measure(measurer: Measurer) -> Rows:
        return measure_case(gaussian(*shape), measurer, pool, settings.pipelines)

    return Step("attention", label, measure)


def _llm_step(settings: Settings, pool: _core.ThreadPool) -> Step:
    def measure(measurer: Measurer) -> Rows:
        if settings.synthetic:
            model = random_model(settings.synthetic, settings.layers, pool)
        else:
            model = load_model(settings.model, pool)
        return measure_model(
            model, settings.depths, settings.prompt, settings.tokens, measurer, pool
        )

    return Step("llm", settings.synthetic or settings.model, measure)


def _linear_step(settings: Settings, linear: Linear, pool: _core.ThreadPool) -> Step:
    def measure(measurer: Measurer) -> Rows:
        return measure_linear(
            linear, settings.formats, settings.row_counts, settings.cold_bytes, measurer, pool
        )

    return Step("linear", linear.names[0], measure)


def _measure(
    steps: Sequence[Step], measurer: Measurer, rows: dict[str, Rows], progress: Progress | None
) -> list[str]:
    """Fills ``rows``; returns problems."""
    for done, step in enumerate(steps):
        if progress:
            progress(done, len(steps), step.label)
        try:
            rows[step.section] += step.measure(measurer)
        except KeyboardInterrupt:
            return [f"interrupted after {done} of {len(steps)} steps"]
        except MeterError as error:
            return [f"the meter failed after {done} of {len(steps)} steps: {error}"]
    return []


def _recorder(settings: Settings) -> tuple[Recorder | None, str]:
    """The recorder, or why there is none."""
    if settings.meter == "none":
        return None, "no meter: switched off"
    try:
        return Recorder(open_meter(settings.meter, settings.rails)), ""
    except MeterError as error:
        if settings.meter != "auto":
            raise
        return None, str(error)


def _energy(recorder: Recorder | None, measurer: Measurer, no_meter: str) -> dict[str, Any]:
    if recorder is None:
        return {"meter": None, "reason": no_meter}
    meter = recorder.meter
    return {
        "meter": meter.name,
        "method": meter.method,
        "rails": list(meter.rails),
        "total": list(meter.total),
        "reading_interval_s": meter.interval_s,
        "idle_w": measurer.idle_watts,
        "idle_seconds": IDLE_S,
    }
