"""Options that several groups of commands take."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from intattention.checkpoint import FloatFormat

MODELS = "A .gguf or .iatt file, a Hugging Face folder, or a name (owner/name: on its hub)."
Model = Annotated[str, typer.Option("--model", "-m", help=MODELS)]
ModelArgument = Annotated[str, typer.Argument(help=MODELS)]
Threads = Annotated[
    int, typer.Option(min=0, help="0: one per CPU of --cpus or per performance core.")
]
Cpus = Annotated[str, typer.Option(help='Pin the threads to these CPUs, e.g. "4-7,0".')]
Isa = Annotated[str, typer.Option(help="Force a kernel table; see doctor.")]
Ctx = Annotated[int, typer.Option(min=0, help="Tokens; 0: the model's, or what memory holds.")]
Weights = Annotated[FloatFormat, typer.Option("--weights", help="What float weights become.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


@contextmanager
def usage() -> Iterator[None]:
    """What fails in here is the fault of the command line: exit status 2."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        raise typer.BadParameter(str(error)) from error
