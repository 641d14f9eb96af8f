"""What a person types in a chat."""

import sys
from collections.abc import Iterator

import typer


def questions() -> Iterator[str]:
    """Non-empty lines from stdin until Ctrl-D; the prompt is shown to a person only."""
    person = sys.stdin.isatty()
    if person:
        import readline  # noqa: F401 - line editing and history for input()
    while True:
        try:
            question = input("> " if person else "").strip()
        except EOFError:
            if person:
                typer.echo(err=True)
            return
        except KeyboardInterrupt:
            typer.echo("\n(Ctrl-D leaves)", err=True)
            continue
        if question:
            yield question
