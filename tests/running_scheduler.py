"""Schedulers without HTTP: started, watched, held up."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from intattention import LLM
from intattention.sampling import SamplingParams
from intattention.serve.events import Event
from intattention.serve.metrics import Metrics
from intattention.serve.protocol import Text
from intattention.serve.scheduler import Scheduler
from intattention.serve.sequence import Sequence
from intattention.serve.settings import Settings, fitting_settings

TEXT = Text([5, 6, 7], SamplingParams(), 10, None, None, False, False)


class Listener:
    """Collects the events of one request."""

    def __init__(self, texts: int = 1) -> None:
        self.events: list[list[Event]] = [[] for _ in range(texts)]
        self._open = threading.Semaphore(0)

    def __call__(self, index: int, event: Event) -> None:
        self.events[index].append(event)
        if event.last:
            self._open.release()

    def wait(self) -> "Listener":
        for _ in self.events:
            assert self._open.acquire(timeout=60)
        return self

    @property
    def last(self) -> Event:
        return self.events[0][-1]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events[0])


Start = Callable[..., Scheduler]


@contextmanager
def schedulers(model: LLM) -> Iterator[Start]:
    """start(**fields of Settings) -> a running scheduler, of ``model`` unless ``llm`` is given."""
    started: list[Scheduler] = []

    def start(llm: LLM = model, memory_bytes: int | None = None, **fields: Any) -> Scheduler:
        settings = fitting_settings(Settings("tiny", **fields), llm, memory_bytes)
        started.append(Scheduler(llm, settings, Metrics()))
        started[-1].start()
        return started[-1]

    try:
        yield start
    finally:
        for scheduler in started:
            scheduler.stop()


def run(scheduler: Scheduler, text: Text) -> Listener:
    listener = Listener()
    scheduler.submit([text], listener)
    return listener.wait()


class Gate:
    """Holds the model's batches up while it is closed, and records their rows per text."""

    def __init__(self, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.rows: list[dict[int, int]] = []
        forward = scheduler._forward

        def gated(plan: Any) -> Any:
            assert self.open.wait(60)
            self.rows.append({id(sequence): count for sequence, count in plan})
            return forward(plan)

        monkeypatch.setattr(scheduler, "_forward", gated)

    def batches(self, sequence: Sequence) -> list[int]:
        """The numbers of the batches that had rows of a text, which must still be referred to."""
        return [i for i, rows in enumerate(self.rows) if id(sequence) in rows]
