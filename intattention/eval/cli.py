"""``intattention eval``: quality of a model on this library's own runtime."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

import intattention
from intattention import machine
from intattention._core import ThreadPool
from intattention.checkpoint import FloatFormat
from intattention.cli_options import Cpus, Debug, Isa, ModelArgument, Threads, Weights, usage
from intattention.eval.float_decoder import ATTENTIONS
from intattention.eval.float_model import FloatModel
from intattention.eval.opened_model import OpenedModel
from intattention.eval.perplexity import Perplexity, Predictor, cut, perplexity
from intattention.model_registry import find_model
from intattention.progress import progress_bar
from intattention.tokenizer import TextTokenizer

app = typer.Typer(help="Perplexity, and distance to float.")

RUNTIME_SOFTMAX = "index"  # the decoder's only attention
RIVALS = ("float", "dequantized")
Compute = Literal["int8", "float32"]


@app.callback()
def _group() -> None: ...


@app.command()
def ppl(
    model: ModelArgument,
    text: Annotated[Path, typer.Option(metavar="FILE", help="Text in UTF-8.")],
    ctx: Annotated[int, typer.Option(min=2, help="Tokens of a window.")] = 1024,
    windows: Annotated[int, typer.Option(min=0, help="From the start; 0: the whole text.")] = 0,
    compute: Annotated[
        Compute,
        typer.Option(help="int8: the runtime. float32: its weights; all but attention in float32."),
    ] = "int8",
    softmax: Annotated[
        str,
        typer.Option(help="index; with --compute float32 also paper, paper-floor, quant_only, ..."),
    ] = RUNTIME_SOFTMAX,
    against: Annotated[
        str,
        typer.Option(
            help='Compare with "float" (transformers, the file\'s weights) or "dequantized" '
            "(the runtime's weights, float32, no torch needed)."
        ),
    ] = "",
    weights: Weights = "w4g32a",
    threads: Threads = 0,
    cpus: Cpus = "",
    isa: Isa = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Perplexity of FILE: independent windows, no BOS, all tokens but each window's first."""
    with usage():
        _check_choices(compute, softmax, against)
        pool = ThreadPool(threads, machine.parse_cpus(cpus) if cpus else None)
        if isa:
            intattention.use_isa(isa)
    content = text.read_text(encoding="utf-8")
    chosen = (compute, softmax, against)
    tokenizer, ours, rival = _predictors(model, *chosen, ctx, weights, pool)
    cuts = cut(tokenizer.encode(content, add_bos=False), ctx, windows)
    with progress_bar("evaluating") as bar:
        progress = (lambda done, total: bar(done, total, "")) if bar else None
        result = perplexity(ours, cuts, rival, progress)
    typer.echo(_json(result) if as_json else "\n".join(_lines(result, ctx)))


def _predictors(
    name: str, compute: Compute, softmax: str, against: str, ctx: int, weights: FloatFormat,
    pool: ThreadPool,
) -> tuple[TextTokenizer, Predictor, Predictor | None]:  # fmt: skip
    """The tokenizer, the model that is asked about, and its rival."""
    path = find_model(name)
    rival: Predictor | None = FloatModel(path) if against == "float" else None
    with progress_bar("loading") as loading:
        opened = OpenedModel(path, ctx, pool, weights, loading)
    if against == "dequantized":
        rival = opened.float32("fp32")
    ours = opened.float32(softmax) if compute == "float32" else opened.runtime()
    return opened.tokenizer, ours, rival


def _check_choices(compute: str, softmax: str, against: str) -> None:
    if softmax not in ATTENTIONS:
        raise ValueError(f"softmax is {softmax!r}, accepted: {', '.join(map(repr, ATTENTIONS))}")
    if compute == "int8" and softmax != RUNTIME_SOFTMAX:
        raise ValueError(
            f"softmax is {softmax!r}, but the runtime's decoder only has {RUNTIME_SOFTMAX!r}; "
            "others need --compute float32"
        )
    if against and against not in RIVALS:
        raise ValueError(f"against is {against!r}, accepted: {', '.join(map(repr, RIVALS))}")


def _json(result: Perplexity) -> str:
    """Numbers that are not finite, which JSON does not know, become null."""
    values = asdict(result).items()
    finite = {
        key: None if isinstance(x, float) and not math.isfinite(x) else x for key, x in values
    }
    return json.dumps(finite, indent=2)


def _lines(result: Perplexity, ctx: int) -> list[str]:
    lines = [f"perplexity        {result.ppl:.4f} ({result.tokens} tokens, windows of {ctx})"]
    if result.ppl_against is not None:
        change = result.ppl / result.ppl_against - 1
        lines += [
            f"float             {result.ppl_against:.4f} ({change:+.2%})",
            f"KL(float || ours) mean {result.kl_mean:.5f}, 99.9 % {result.kl_p999:.4f} nats",
            f"same best token   {result.top1_agreement:.2%}",
        ]
    lines += [
        f"worst token loss  {result.worst_token_loss:.3f} nats",
        f"not finite        {result.nan_count}",
    ]
    return lines
