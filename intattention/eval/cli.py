"""``intattention eval``: quality of a model on this library's own runtime."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from intattention.cli_options import Cpus, Debug, Isa, ModelArgument, Threads, usage
from intattention.eval.perplexity import Perplexity

app = typer.Typer(help="Perplexity, and distance to float.")

RUNTIME_SOFTMAX = "index"  # the decoder's only attention


@app.callback()
def _group() -> None: ...


@app.command()
def ppl(
    model: ModelArgument,
    text: Annotated[Path, typer.Option(metavar="FILE", help="Text in UTF-8.")],
    ctx: Annotated[int, typer.Option(min=2, help="Tokens of a window.")] = 1024,
    windows: Annotated[int, typer.Option(min=0, help="From the start; 0: the whole text.")] = 0,
    softmax: Annotated[str, typer.Option(help="Of the runtime's attention: index.")] = "index",
    against: Annotated[
        str, typer.Option(help='"float": compare with transformers in float32.')
    ] = "",
    threads: Threads = 0,
    cpus: Cpus = "",
    isa: Isa = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Perplexity of FILE: independent windows, no BOS, all tokens but each window's first."""
    import intattention
    from intattention import LLM, machine
    from intattention.eval.float_model import FloatModel
    from intattention.eval.perplexity import Runtime, cut, perplexity
    from intattention.model_registry import find_model
    from intattention.progress import progress_bar

    with usage():
        _check_choices(softmax, against)
        pinned = machine.parse_cpus(cpus) if cpus else None
        if isa:
            intattention.use_isa(isa)
    content = text.read_text(encoding="utf-8")
    other = FloatModel(find_model(model)) if against else None
    with progress_bar("loading") as loading:
        llm = LLM.load(model, threads, pinned, ctx, loading)
    cuts = cut(llm.tokenizer.encode(content, add_bos=False), ctx, windows)
    with progress_bar("evaluating") as bar:
        progress = (lambda done, total: bar(done, total, "")) if bar else None
        result = perplexity(Runtime(llm.decoder), cuts, other, progress)
    typer.echo(_json(result) if as_json else "\n".join(_lines(result, ctx)))


def _check_choices(softmax: str, against: str) -> None:
    from intattention.attention import SOFTMAXES

    if softmax != RUNTIME_SOFTMAX:
        known = softmax in SOFTMAXES
        raise ValueError(
            f"softmax is {softmax!r}, but the runtime's decoder only has {RUNTIME_SOFTMAX!r}"
            + ("; for others see intattention.integrations.transformers" if known else "")
        )
    if against not in ("", "float"):
        raise ValueError(f"against is {against!r}, accepted: 'float'")


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
