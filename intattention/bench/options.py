"""Options of ``intattention bench`` and their parsing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from intattention import machine, use_isa
from intattention.cli_options import usage

Value = TypeVar("Value")

Threads = Annotated[str, typer.Option(help='"1,2,4": run with each; 0: one per performance core.')]
Lengths = Annotated[str, typer.Option(help='Sequence lengths, e.g. "1k,2k,4096".')]
Dims = Annotated[str, typer.Option(help="Head dimensions.")]
Heads = Annotated[str, typer.Option(help='Query heads, or "query/kv" heads, e.g. "8,32/8".')]
Masks = Annotated[str, typer.Option(help="causal, full.")]
Pipelines = Annotated[str, typer.Option(help="What to compare; torch's if it is installed.")]
Depths = Annotated[str, typer.Option(help="Tokens in the cache before the measured ones.")]
Prompt = Annotated[int, typer.Option(min=1, help="Tokens per prefill.")]
Tokens = Annotated[int, typer.Option(min=1, help="Tokens per decode run.")]
Synthetic = Annotated[str, typer.Option(help="Random weights of this shape, no file.")]
Layers = Annotated[int, typer.Option(min=0, help="Of the synthetic model; 0: all.")]
Models = Annotated[str, typer.Option(help="Shapes whose linears are run.")]
Formats = Annotated[str, typer.Option(help="Weight formats.")]
RowCounts = Annotated[str, typer.Option("--rows", help="Rows of activations; 1: decode.")]
Rounds = Annotated[
    int, typer.Option(min=0, help="Exactly so many repetitions; 0: until the medians settle.")
]
Seconds = Annotated[float, typer.Option(min=0, help="No new repetition of a case after this.")]
MeterName = Annotated[str, typer.Option("--meter", help="See doctor; auto, none or a name.")]
EnergySeconds = Annotated[
    float, typer.Option("--energy-seconds", min=0, help="Of each case, where there is a meter.")
]
Rails = Annotated[str, typer.Option(help="Rails that make up the meter's total.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the result here.")]
CsvFile = Annotated[
    Path | None, typer.Option("--csv", help="Write raw values here; several sections: a file each.")
]
MarkdownFile = Annotated[Path | None, typer.Option("--markdown", help="Write tables here.")]
ReportFolder = Annotated[
    Path | None, typer.Option("--report", help="Write plots and a page into this folder.")
]


@dataclass(frozen=True)
class Outputs:
    """Where a result goes besides the terminal."""

    json: Path | None
    csv: Path | None
    markdown: Path | None
    report: Path | None


def parse_list(text: str, parse: Callable[[str], Value], what: str) -> list[Value]:
    """Comma-separated values. ValueError naming the bad one, or repeats, or an empty list."""
    values = []
    for part in (part.strip() for part in text.split(",")):
        try:
            values.append(parse(part))
        except (ValueError, KeyError) as error:
            raise ValueError(f"{what} {text!r}: {part!r} is not one of them") from error
    if len(set(values)) != len(values):
        raise ValueError(f"{what} {text!r}: a value is repeated")
    return values


def counts(text: str, what: str, least: int = 1, most: int = 1 << 20) -> list[int]:
    """ "1k,2048" -> [1024, 2048]; sorted. ValueError."""

    def count(part: str) -> int:
        number, thousand = (part[:-1], 1024) if part[-1:] in ("k", "K") else (part, 1)
        value = int(number) * thousand
        if not least <= value <= most:
            raise ValueError
        return value

    return sorted(parse_list(text, count, what))


def head_counts(text: str) -> list[tuple[int, int]]:
    """ "8,32/8" -> [(8, 8), (32, 8)]. ValueError."""

    def pair(part: str) -> tuple[int, int]:
        query, slash, kv = part.partition("/")
        heads, kv_heads = int(query), int(kv) if slash else int(query)
        if not 1 <= kv_heads <= heads <= 1024 or heads % kv_heads:
            raise ValueError
        return heads, kv_heads

    return parse_list(text, pair, "heads")


def names(text: str, known: Sequence[str], what: str) -> list[str]:
    """ValueError names the unknown one and those that are known."""
    chosen = parse_list(text, str, what)
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise ValueError(f"{what}: no {', '.join(unknown)}; there are {', '.join(known)}")
    return chosen


def common(threads: str, cpus: str, isa: str, rails: str) -> dict[str, Any]:
    """Settings that every section takes; forces the kernel table. Usage errors."""
    with usage():
        if isa:
            use_isa(isa)
        return {
            "threads": counts(threads, "threads", least=0, most=1024),
            "cpus": machine.parse_cpus(cpus) if cpus else None,
            "rails": parse_list(rails, str, "rails") if rails else None,
        }
