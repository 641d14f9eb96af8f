"""The options that commands share."""

from typing import Annotated, Literal

import typer

WHAT = "A .gguf or .iatt file, a Hugging Face folder or name (owner/name), or an installed name."

Model = Annotated[str, typer.Option("--model", "-m", help=WHAT)]
ModelArgument = Annotated[str, typer.Argument(help=WHAT)]
Threads = Annotated[
    int, typer.Option(min=0, help="0: one per CPU of --cpus or per performance core.")
]
Cpus = Annotated[str, typer.Option(help='Pin the threads to these CPUs, e.g. "4-7,0".')]
Isa = Annotated[str, typer.Option(help="Force a kernel table; see doctor.")]
Ctx = Annotated[
    int, typer.Option(min=0, help="Tokens of context; 0: the model's, or what memory holds.")
]
WeightFormat = Annotated[
    Literal["w4g32a", "w8g32"], typer.Option("--weights", help="What float weights become.")
]
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
System = Annotated[str, typer.Option(help="System message.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
