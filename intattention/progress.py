"""The progress bar of commands that go through a model's tensors."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from intattention.models import Progress


@contextmanager
def progress_bar(label: str) -> Iterator[Progress | None]:
    """A bar on stderr if that is a terminal, else nothing."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress  # slow to import
    from rich.console import Console

    columns = (
        progress.TextColumn(label),
        progress.BarColumn(),
        progress.TextColumn("{task.percentage:3.0f} %"),
        progress.TimeElapsedColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda done, total, name: bar.update(task, completed=done, total=total)
