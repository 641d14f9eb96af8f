"""``intattention bench``: run, compare, report, and a loop for external meters."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from intattention.bench import options as o
from intattention.cli_options import Cpus, Debug, Isa, usage

INTERRUPTED = 130
MASKS = {"causal": True, "full": False}
LENGTHS, DEPTHS = "1k,2k,4k,8k", "0,1k,2k,4k,7680"
PIPELINES = "fp32,fp16,quant_only,paper,index"
MODEL, LINEAR_MODELS = "smollm2-135m-instruct", "smollm2-135m,llama-3.2-1b"

app = typer.Typer(help="Latency, throughput and energy by sequence length.")
Model = Annotated[str, typer.Option("--model", "-m", help="A file or a model name.")]
Result = Annotated[Path, typer.Argument(metavar="RESULT.json", help="Written by --json.")]


@app.command()
def attention(
    lengths: o.Lengths = LENGTHS,
    dims: o.Dims = "128",
    heads: o.Heads = "8",
    masks: o.Masks = "causal,full",
    pipelines: o.Pipelines = PIPELINES,
    threads: o.Threads = "0",
    cpus: Cpus = "",
    isa: Isa = "",
    rounds: o.Rounds = 0,
    seconds: o.Seconds = 8.0,
    meter: o.MeterName = "auto",
    rails: o.Rails = "",
    energy_seconds: o.EnergySeconds = 2.0,
    json: o.JsonFile = None,
    csv: o.CsvFile = None,
    markdown: o.MarkdownFile = None,
    report: o.ReportFolder = None,
    debug: Debug = False,
) -> None:
    """Attention alone: every pipeline by sequence length, checked against float64."""
    from intattention.bench.attention_cases import PIPELINES as KNOWN

    with usage():
        settings = {
            "lengths": o.counts(lengths, "lengths"),
            "dims": o.counts(dims, "dims"),
            "heads": o.head_counts(heads),
            "masks": [MASKS[name] for name in o.names(masks, list(MASKS), "masks")],
            "pipelines": o.names(pipelines, KNOWN, "pipelines"),
        }
    settings |= _measuring(rounds, seconds, meter, energy_seconds)
    settings |= o.common(threads, cpus, isa, rails)
    _run(settings, ["attention"], o.Outputs(json, csv, markdown, report))


@app.command()
def llm(
    model: Model = MODEL,
    synthetic: o.Synthetic = "",
    layers: o.Layers = 0,
    depths: o.Depths = DEPTHS,
    prompt: o.Prompt = 512,
    tokens: o.Tokens = 32,
    threads: o.Threads = "0",
    cpus: Cpus = "",
    isa: Isa = "",
    rounds: o.Rounds = 0,
    seconds: o.Seconds = 45.0,
    meter: o.MeterName = "auto",
    rails: o.Rails = "",
    energy_seconds: o.EnergySeconds = 2.0,
    json: o.JsonFile = None,
    csv: o.CsvFile = None,
    markdown: o.MarkdownFile = None,
    report: o.ReportFolder = None,
    debug: Debug = False,
) -> None:
    """A whole model: prefill and decode behind so many tokens, its tokens checked first."""
    from intattention.bench.shapes import SHAPES

    with usage():
        if synthetic:
            o.names(synthetic, list(SHAPES), "synthetic")
        settings = {
            "model": model, "synthetic": synthetic, "layers": layers, "prompt": prompt,
            "tokens": tokens, "depths": o.counts(depths, "depths", least=0),
        }  # fmt: skip
    settings |= _measuring(rounds, seconds, meter, energy_seconds)
    settings |= o.common(threads, cpus, isa, rails)
    _run(settings, ["llm"], o.Outputs(json, csv, markdown, report))


@app.command()
def linear(
    models: o.Models = LINEAR_MODELS,
    formats: o.Formats = "w4g32,w4g32a,w8g32",
    rows: o.RowCounts = "1,128",
    threads: o.Threads = "0",
    cpus: Cpus = "",
    isa: Isa = "",
    rounds: o.Rounds = 0,
    seconds: o.Seconds = 8.0,
    meter: o.MeterName = "auto",
    rails: o.Rails = "",
    energy_seconds: o.EnergySeconds = 2.0,
    json: o.JsonFile = None,
    csv: o.CsvFile = None,
    markdown: o.MarkdownFile = None,
    report: o.ReportFolder = None,
    debug: Debug = False,
) -> None:
    """The linears of known models, one row (decode) and many (prefill)."""
    from intattention.bench.linear_cases import FORMATS
    from intattention.bench.shapes import SHAPES

    with usage():
        settings = {
            "linear_models": o.names(models, list(SHAPES), "models"),
            "formats": o.names(formats, FORMATS, "formats"),
            "row_counts": o.counts(rows, "rows"),
        }
    settings |= _measuring(rounds, seconds, meter, energy_seconds)
    settings |= o.common(threads, cpus, isa, rails)
    _run(settings, ["linear"], o.Outputs(json, csv, markdown, report))


@app.command()
def lookup(
    model: Model = MODEL,
    guesses: Annotated[str, typer.Option(help="Tokens guessed per step.")] = "1,2,3,4",
    tokens: Annotated[int, typer.Option(min=2, help="Tokens per answer.")] = 128,
    threads: Annotated[int, typer.Option(min=0)] = 0,
    cpus: Cpus = "",
    isa: Isa = "",
    rounds: o.Rounds = 0,
    seconds: o.Seconds = 60.0,
    markdown: o.MarkdownFile = None,
    debug: Debug = False,
) -> None:
    """Prompt lookup against plain decoding, whose text it must give, interleaved."""
    from intattention import LLM
    from intattention.bench.lookup_cases import lookup_table, measure_lookup
    from intattention.bench.report import print_tables
    from intattention.bench.timing import Policy

    with usage():
        counts = o.counts(guesses, "guesses")
        pinned = o.common("0", cpus, isa, "")["cpus"]
    policy = Policy.exactly(rounds) if rounds else Policy(seconds=seconds)
    llm = LLM.load(model, threads, pinned)
    table = lookup_table(*measure_lookup(llm, counts, tokens, policy))
    print_tables([table])
    if markdown:
        markdown.write_text(table.markdown(), encoding="utf-8")


@app.command("all")
def everything(
    model: Model = MODEL,
    lengths: o.Lengths = LENGTHS,
    threads: o.Threads = "0",
    cpus: Cpus = "",
    isa: Isa = "",
    rounds: o.Rounds = 0,
    seconds: o.Seconds = 4.0,
    meter: o.MeterName = "auto",
    rails: o.Rails = "",
    energy_seconds: o.EnergySeconds = 2.0,
    json: o.JsonFile = None,
    csv: o.CsvFile = None,
    markdown: o.MarkdownFile = None,
    report: o.ReportFolder = None,
    debug: Debug = False,
) -> None:
    """Attention, a whole model and linears, with the defaults of each."""
    with usage():
        settings: dict[str, Any] = {"model": model, "lengths": o.counts(lengths, "lengths")}
    settings |= _measuring(rounds, seconds, meter, energy_seconds)
    settings |= o.common(threads, cpus, isa, rails)
    _run(settings, ["attention", "llm", "linear"], o.Outputs(json, csv, markdown, report))


@app.command()
def compare(a: Result, b: Result, debug: Debug = False) -> None:
    """Ratios of B's medians to A's, and whether the repetitions tell them apart."""
    from intattention.bench.compare import NOTE
    from intattention.bench.compare import compare as compare_results
    from intattention.bench.report import print_tables
    from intattention.bench.result import read_result

    tables, notes = compare_results(read_result(a), read_result(b))
    print_tables(tables)
    for note in notes:
        typer.echo(note)
    typer.echo(NOTE if tables else "the results have no row in common")


@app.command()
def report(
    result: Result,
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Default: tables on the terminal.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Render a result again, from its JSON alone."""
    from intattention.bench.report import print_result, write_report
    from intattention.bench.result import read_result

    loaded = read_result(result)
    if folder is None:
        print_result(loaded)
    else:
        write_report(loaded, folder)
        typer.echo(f"wrote {folder / 'index.html'}", err=True)


@app.command()
def loop(
    repeats: Annotated[int, typer.Option(min=1, help="Iterations, exactly.")],
    pipeline: Annotated[str, typer.Option(help="One pipeline.")] = "index",
    length: Annotated[str, typer.Option(help="Sequence length.")] = "1k",
    dim: Annotated[int, typer.Option(min=16, help="Head dimension.")] = 128,
    heads: Annotated[str, typer.Option(help='Query heads, or "query/kv".')] = "8",
    mask: Annotated[str, typer.Option(help="causal or full.")] = "full",
    rest: Annotated[float, typer.Option(min=0, help="Seconds of idle before and after.")] = 5.0,
    threads: Annotated[int, typer.Option(min=0)] = 0,
    cpus: Cpus = "",
    isa: Isa = "",
    debug: Debug = False,
) -> None:
    """Idle, then attention exactly so often, then idle: a load for ``energy import``."""
    from intattention._core import ThreadPool
    from intattention.bench.attention_cases import PIPELINES as KNOWN
    from intattention.bench.attention_cases import checked, gaussian, pipelines

    with usage():
        [name] = o.names(pipeline, KNOWN, "pipeline")
        [causal] = [MASKS[kind] for kind in o.names(mask, list(MASKS), "mask")]
        [size], [(q_heads, kv_heads)] = o.counts(length, "length"), o.head_counts(heads)
        pool = ThreadPool(threads, o.common("0", cpus, isa, "")["cpus"])
    inputs = gaussian(size, dim, q_heads, kv_heads, causal)
    runs = pipelines(inputs, pool, [name])
    if name not in runs:
        raise ValueError(f"{name} cannot run here")
    checked(runs, inputs)  # once, before the rest: nothing is warmed up under load
    typer.echo(f"idle {rest:g} s", err=True)
    time.sleep(rest)
    start = time.perf_counter()
    for _ in range(repeats):
        runs[name]()
    took = time.perf_counter() - start
    typer.echo(f"load {took:.3f} s, {took / repeats * 1e3:.4g} ms each; idle {rest:g} s", err=True)
    time.sleep(rest)


def _measuring(rounds: int, seconds: float, meter: str, energy_seconds: float) -> dict[str, Any]:
    from intattention.bench.timing import Policy

    policy = Policy.exactly(rounds) if rounds else Policy(seconds=seconds)
    return {"policy": policy, "meter": meter, "energy_seconds": energy_seconds}


def _run(settings: dict[str, Any], sections: Sequence[str], outputs: o.Outputs) -> None:
    """Measures, prints, writes. Exit status 130 if Ctrl-C cut it short."""
    from intattention.bench.report import print_result, write_outputs
    from intattention.bench.sweep import Settings, run
    from intattention.progress import progress_bar

    if outputs.report:
        from intattention.bench.plots import require_matplotlib

        require_matplotlib()  # before minutes of measuring
    with progress_bar("measuring") as progress:
        result = run(Settings(**settings), sections, progress)
    write_outputs(result, outputs.json, outputs.csv, outputs.markdown, outputs.report)
    print_result(result)
    measured = {row["pipeline"] for row in result["attention"]}
    missing = [name for name in settings.get("pipelines", ()) if measured and name not in measured]
    if missing:
        typer.echo(f"not measured, as this machine cannot run it: {', '.join(missing)}", err=True)
    if any(problem.startswith("interrupted") for problem in result["problems"]):
        raise typer.Exit(INTERRUPTED)
