"""Loading a model as the command line asks for it."""

import sys

import typer

import intattention
from intattention import LLM, machine
from intattention.checkpoint import FloatFormat
from intattention.cli_options import usage
from intattention.model_registry import find_model
from intattention.progress import progress_bar


def load_llm(model: str, threads: int, cpus: str, isa: str, ctx: int, weights: FloatFormat) -> LLM:
    """The arguments are those of the options of these names; notes go to stderr."""
    with usage():
        pinned = machine.parse_cpus(cpus) if cpus else None
        if isa:
            intattention.use_isa(isa)
    path = find_model(model, show_progress=sys.stderr.isatty())
    with progress_bar("loading") as progress:
        llm = LLM.load(path, threads, pinned, ctx or None, progress, weights)
    for note in llm.notes:
        typer.echo(f"note: {note}", err=True)
    return llm
