"""The command line: generate, chat, pack, info, doctor; serve, bench, energy and eval."""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

import intattention
from intattention import LLM, machine, reports
from intattention.bench.cli import app as bench_app
from intattention.checkpoint import requantised_note
from intattention.cli_model import load_llm
from intattention.cli_options import (
    Cpus,
    Ctx,
    Debug,
    Isa,
    Model,
    ModelArgument,
    Threads,
    Weights,
    usage,
)
from intattention.energy.cli import app as energy_app
from intattention.errors import ContextOverflowError, IntAttentionError, NumericError
from intattention.eval.cli import app as eval_app
from intattention.model_registry import find_model
from intattention.pack import pack_model
from intattention.progress import progress_bar
from intattention.prompt_lookup import MOST_GUESSES
from intattention.questions import questions
from intattention.sampling import SamplingParams
from intattention.serve.cli import serve

CLICK_ERROR: type[Any] = typer.BadParameter.__mro__[2]  # ClickException, of typer's own click
EXPECTED_ERRORS = (IntAttentionError, NumericError, ValueError, RuntimeError, OSError, MemoryError)
INTERRUPTED = 130

app = typer.Typer(
    help="Run language models with integer attention.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(bench_app, name="bench")
app.add_typer(energy_app, name="energy")
app.add_typer(eval_app, name="eval")
app.command()(serve)

MaxNewTokens = Annotated[
    int, typer.Option("--max-new-tokens", "-n", min=0, help="Tokens per answer.")
]
Temperature = Annotated[float, typer.Option(help="0: always the most likely token.")]
TopP = Annotated[float, typer.Option(help="Keep the likeliest tokens up to this probability.")]
TopK = Annotated[int, typer.Option(help="Keep this many tokens; 0: all.")]
MinP = Annotated[float, typer.Option(help="Drop tokens below this fraction of the best.")]
Penalty = Annotated[float, typer.Option("--repetition-penalty", help="1: off.")]
Seed = Annotated[int, typer.Option(help="Random seed; -1: a fresh one.")]
Stop = Annotated[list[str], typer.Option(help="End before this text; may be repeated.")]
JsonSchema = Annotated[
    Path | None, typer.Option("--json-schema", metavar="FILE", help="What the answer must fit.")
]
Regex = Annotated[str, typer.Option(help="What the whole answer must match.")]
Lookup = Annotated[
    int,
    typer.Option(
        min=0, max=MOST_GUESSES, help="Guess so many tokens from the text itself; 0: off."
    ),
]
System = Annotated[str, typer.Option(help="System message.")]
SessionFile = Annotated[
    Path | None,
    typer.Option("--session", metavar="FILE", help="Start from this cache and save it at the end."),
]


def main(arguments: list[str] | None = None) -> None:
    """Entry point. Exits with 0, 1 (``error: ...`` on stderr), 2 (usage) or 130 (Ctrl-C)."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal may not know every character
    if "--debug" in arguments:
        sys.exit(app(arguments, standalone_mode=False))
    sys.exit(_run(arguments))


def _run(arguments: list[str]) -> int:
    try:
        return int(app(arguments, standalone_mode=False) or 0)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except CLICK_ERROR as error:
        return _fail(error.format_message(), int(error.exit_code))
    except EXPECTED_ERRORS as error:
        return _fail(str(error) or type(error).__name__)
    except Exception as error:
        return _fail(f"{type(error).__name__}: {error} (a bug; --debug shows where)")


def _fail(message: str, status: int = 1) -> int:
    print("error:", " ".join(message.split()), file=sys.stderr)  # noqa: T201
    return status


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"intattention {intattention.__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None: ...


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help='The prompt; "-" reads it from stdin.')],
    model: Model,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text instead of answering it.")
    ] = False,
    system: System = "",
    max_new_tokens: MaxNewTokens = 256,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    top_k: TopK = 0,
    min_p: MinP = 0.0,
    repetition_penalty: Penalty = 1.0,
    seed: Seed = -1,
    stop: Stop = [],  # noqa: B006 - typer copies it
    lookup: Lookup = 0,
    json_schema: JsonSchema = None,
    regex: Regex = "",
    threads: Threads = 0,
    cpus: Cpus = "",
    isa: Isa = "",
    ctx: Ctx = 0,
    weights: Weights = "w4g32a",
    session: SessionFile = None,
    debug: Debug = False,
) -> None:
    """Answer PROMPT (through the model's chat template, if it has one) and exit."""
    options = _sampling(temperature, top_p, top_k, min_p, repetition_penalty, seed)
    options |= {"max_new_tokens": max_new_tokens, "stop": stop, "lookup": lookup}
    options |= {"json_schema": json_schema and json_schema.read_text(), "regex": regex or None}
    prompt = sys.stdin.read() if prompt == "-" else prompt
    if not prompt:
        raise ValueError("the prompt is empty")
    llm = load_llm(model, threads, cpus, isa, ctx, weights)
    if session is not None and session.exists():
        llm.load_session(session)
    if raw or llm.tokenizer.chat_template is None:
        pieces = llm.generate(system + prompt, stream=True, **options)
    else:
        pieces = llm.chat(_messages(system, prompt), stream=True, **options)
    try:
        _write(pieces)
    finally:
        typer.echo()
        _write_stats(llm)
    if session is not None:
        llm.save_session(session)


@app.command()
def chat(
    model: Model,
    system: System = "",
    max_new_tokens: MaxNewTokens = 1024,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    top_k: TopK = 0,
    min_p: MinP = 0.0,
    repetition_penalty: Penalty = 1.0,
    seed: Seed = -1,
    stop: Stop = [],  # noqa: B006 - typer copies it
    lookup: Lookup = 0,
    threads: Threads = 0,
    cpus: Cpus = "",
    isa: Isa = "",
    ctx: Ctx = 0,
    weights: Weights = "w4g32a",
    debug: Debug = False,
) -> None:
    """Talk to a model. Ctrl-C stops an answer, Ctrl-D leaves."""
    options = _sampling(temperature, top_p, top_k, min_p, repetition_penalty, seed)
    options |= {"max_new_tokens": max_new_tokens, "stop": stop, "lookup": lookup}
    llm = load_llm(model, threads, cpus, isa, ctx, weights)
    messages = _messages(system)
    for question in questions():
        messages.append({"role": "user", "content": question})
        answer: list[str] = []
        try:
            _write(_recorded(llm.chat(messages, stream=True, **options), answer))
        except KeyboardInterrupt:
            typer.echo(" [stopped]", nl=False, err=True)
        except ContextOverflowError as error:
            _fail(f"{error}; the conversation starts afresh")
            messages = _messages(system)
            continue
        typer.echo()
        _write_stats(llm)
        messages.append({"role": "assistant", "content": "".join(answer)})


@app.command()
def pack(
    model: ModelArgument,
    target: Annotated[Path, typer.Argument(metavar="OUT.iatt", help="The file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    weights: Weights = "w4g32a",
    debug: Debug = False,
) -> None:
    """Write MODEL as the kernels read it: such a file starts at once and is mapped, not loaded."""
    path = find_model(model, show_progress=sys.stderr.isatty())
    with progress_bar("packing") as progress:
        losses = pack_model(path, target, force, progress, weights)
    if losses:
        typer.echo(f"note: {requantised_note(losses)}", err=True)


@app.command()
def info(
    model: ModelArgument,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all tensors of an .iatt file and check them.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Show what a model file holds and whether it can run, without loading its weights."""
    _write_report(reports.model_report(find_model(model), verify))


@app.command()
def doctor(
    threads: Threads = 0,
    cpus: Cpus = "",
    isa: Isa = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Show features, kernels in use and why, cores, pinning, memory and energy meters."""
    from intattention.doctor import doctor_facts, doctor_lines  # tries all meters

    with usage():
        if isa:
            intattention.use_isa(isa)
        pinned = machine.parse_cpus(cpus) if cpus else None
        facts = doctor_facts(threads, pinned)
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        _write_report(doctor_lines(facts))


def _sampling(
    temperature: float, top_p: float, top_k: int, min_p: float, penalty: float, seed: int
) -> dict[str, Any]:
    """Checked before the model loads."""
    options = {
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "repetition_penalty": penalty,
        "seed": None if seed == -1 else seed,
    }
    SamplingParams(**options)  # type: ignore[arg-type]
    return options


def _messages(system: str, *user: str) -> list[dict[str, str]]:
    messages = [{"role": "system", "content": system}] if system else []
    return messages + [{"role": "user", "content": text} for text in user]


def _recorded(pieces: Iterable[str], record: list[str]) -> Iterator[str]:
    for piece in pieces:
        record.append(piece)
        yield piece


def _write(pieces: Iterable[str]) -> None:
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()


def _write_stats(llm: LLM) -> None:
    stats = llm.last_stats
    guesses = f" ({stats.accepted_tokens} of {stats.drafted_tokens} guesses accepted)"
    typer.echo(
        f"prompt {stats.prompt_tokens} tokens ({stats.reused_tokens} reused), "
        f"{stats.prompt_tokens_per_second:.1f} tok/s; decode {stats.generated_tokens} tokens, "
        f"{stats.decode_tokens_per_second:.1f} tok/s{guesses if stats.drafted_tokens else ''}; "
        f"peak memory {machine.format_bytes(machine.peak_memory_bytes())}",
        err=True,
    )


def _write_report(lines: Iterable[reports.Line]) -> None:
    lines = list(lines)
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        typer.echo(f"{name:<{width}}  {value}")
