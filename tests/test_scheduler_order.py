"""Who gets on and who waits: order, fairness, starvation."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from running_scheduler import TEXT, Gate, Listener, Start, schedulers

from intattention import LLM
from intattention.serve.events import Event
from intattention.serve.scheduler import PROMPT_ROWS, Scheduler
from intattention.serve.sequence import Sequence


@pytest.fixture
def start(tiny: LLM) -> Iterator[Start]:
    with schedulers(tiny) as start:
        yield start


def successive(numbers: list[int]) -> bool:
    return numbers == list(range(numbers[0], numbers[-1] + 1))


def test_a_long_prompt_holds_nobody_up(
    smollm2: LLM, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everyone who is admitted gets on with each batch, and short prompts are read at once."""
    scheduler = start(smollm2, parallel=4)
    gate = Gate(scheduler, monkeypatch)
    ids = [list(map(int, np.random.default_rng(i).integers(100, 40000, 2000))) for i in range(4)]
    lengths = (2000, 1500, 30, 10)
    listeners = [Listener() for _ in lengths]
    sequences = [
        scheduler.submit([replace(TEXT, ids=i[:length], max_tokens=5)], listener)[0]
        for i, length, listener in zip(ids, lengths, listeners, strict=True)
    ]
    gate.open.set()
    for listener in listeners:
        listener.wait()
    assert all(successive(gate.batches(sequence)) for sequence in sequences)
    batches = [[rows.get(id(s), 0) for s in sequences] for rows in gate.rows]
    first = next(i for i, rows in enumerate(batches) if rows[3])
    assert batches[first][2:] == [30, 10] or batches[first][3] == 10
    assert all(sum(rows) <= PROMPT_ROWS + len(lengths) for rows in batches)


class Stream:
    """Short texts: whenever one ends, the next one is asked for, until ``count`` have been."""

    def __init__(self, scheduler: Scheduler, count: int) -> None:
        self.texts: list[Sequence] = []
        self.ended = Listener(count)
        self._scheduler, self._count = scheduler, count

    def ask(self) -> None:
        number = len(self.texts)
        text = replace(TEXT, ids=[20 + number, 6, 7], max_tokens=1 + number % 4)

        def emit(_: int, event: Event) -> None:
            if event.last and len(self.texts) < self._count:
                self.ask()
            self.ended(number, event)

        self.texts += self._scheduler.submit([text], emit)


def test_neither_long_nor_short_texts_starve(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long answer gets a token from every batch, whatever comes and goes beside it; the short
    ones come in their order meanwhile."""
    scheduler = start(parallel=3)
    gate = Gate(scheduler, monkeypatch)
    long, stream = Listener(), Stream(scheduler, 40)
    [text] = scheduler.submit([replace(TEXT, max_tokens=120)], long)
    for _ in range(5):
        stream.ask()
    gate.open.set()
    stream.ended.wait()
    long.wait()
    assert len(text.answer.tokens) > 80
    assert gate.batches(text) == list(range(len(text.answer.tokens)))
    begun = [gate.batches(short)[0] for short in stream.texts]
    assert begun == sorted(begun)
    assert sum(batch < gate.batches(text)[-1] for batch in begun) > 30


def test_a_waiting_text_gets_the_next_place(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """With P places, number k begins in the batch after k - P + 1 of those before it ended."""
    scheduler = start(parallel=3)
    gate = Gate(scheduler, monkeypatch)
    lengths = [30, 4, 9, 17, 1, 1, 25, 3, 12, 2, 8, 5]
    texts = [replace(TEXT, ids=[20 + i, 6], max_tokens=n) for i, n in enumerate(lengths)]
    listener = Listener(len(texts))
    sequences = scheduler.submit(texts, listener)
    gate.open.set()
    listener.wait()
    assert max(len(rows) for rows in gate.rows) == 3
    batches = [gate.batches(sequence) for sequence in sequences]
    assert all(successive(own) for own in batches)
    ended = [own[-1] for own in batches]
    for k, own in enumerate(batches):
        assert own[0] == (0 if k < 3 else sorted(ended[:k])[k - 3] + 1)


def test_a_large_text_is_not_overtaken(
    write_tiny: Callable[..., Path], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs all the memory: the small texts that came later wait with it."""
    llm = LLM.load(write_tiny(metadata={"llama.context_length": 1024}), threads=1)
    block = llm.cpu_decoder.new_cache(256).bytes_for(256)
    scheduler = start(llm, memory_bytes=3 * block, parallel=8)
    gate = Gate(scheduler, monkeypatch)
    small = [replace(TEXT, ids=[20 + i, 6], max_tokens=3 + i) for i in range(8)]
    large = replace(TEXT, ids=[5] * 700, max_tokens=9)
    listener = Listener(9)
    sequences = scheduler.submit([*small[:2], large, *small[2:]], listener)
    gate.open.set()
    listener.wait()
    first, second, big, *others = [gate.batches(sequence) for sequence in sequences]
    assert first[0] == second[0] == 0
    assert big[0] == max(first[-1], second[-1]) + 1
    assert min(own[0] for own in others) == big[-1] + 1
