"""The scheduler without HTTP: memory, failures, reuse, the end."""

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from running_scheduler import TEXT, Gate, Listener, Start, run, schedulers

from intattention import LLM, _core
from intattention.serve.events import Event
from intattention.serve.prefix_cache import Prefix, PrefixCache
from intattention.serve.scheduler import QueueFullError, StoppedError
from intattention.serve.settings import Settings, fitting_settings


@pytest.fixture
def start(tiny: LLM) -> Iterator[Start]:
    with schedulers(tiny) as start:
        yield start


# the queue ------------------------------------------------------------------------------------
def test_the_queue_has_a_bound(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = start(parallel=1, queue=2)
    gate = Gate(scheduler, monkeypatch)
    listeners = [Listener() for _ in range(3)]
    for listener in listeners:
        scheduler.submit([TEXT], listener)
    with pytest.raises(QueueFullError, match="limit of 2"):
        scheduler.submit([TEXT], Listener())
    gate.open.set()
    assert len({listener.wait().text for listener in listeners}) == 1
    run(scheduler, TEXT)


# cancelling -----------------------------------------------------------------------------------
def test_cancelled_texts_say_nothing_more(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = start(parallel=1)
    gate = Gate(scheduler, monkeypatch)
    running, waiting, other = Listener(), Listener(), Listener()
    first = scheduler.submit([TEXT], running)
    second = scheduler.submit([TEXT], waiting)
    scheduler.cancel(first)
    scheduler.cancel(second)
    scheduler.submit([TEXT], other)
    gate.open.set()
    other.wait()
    assert running.events == waiting.events == [[]]


# memory ---------------------------------------------------------------------------------------
def test_memory_is_a_bound_for_running_and_kept_caches(smollm2: LLM, start: Start) -> None:
    block = smollm2.decoder.new_cache(256).bytes_for(256)
    scheduler = start(smollm2, memory_bytes=3 * block, parallel=8)
    assert scheduler._settings.context == 768
    most = 0
    listeners = [Listener() for _ in range(9)]
    forward = scheduler._forward

    def watched(plan: Any) -> Any:
        nonlocal most
        logits = forward(plan)
        most = max(most, scheduler._cache_bytes())
        return logits

    scheduler._forward = watched  # type: ignore[method-assign]
    for i, listener in enumerate(listeners):
        ids = list(map(int, np.random.default_rng(i).integers(100, 40000, 20 + 70 * i)))
        scheduler.submit([replace(TEXT, ids=ids)], listener)
    for listener in listeners:
        assert listener.wait().last.finish_reason
    assert block <= most <= 3 * block
    assert 0 < scheduler.prefixes.nbytes <= 3 * block


def test_memory_that_holds_nothing(tiny: LLM) -> None:
    with pytest.raises(ValueError, match=r"1000 B of memory, but 256 tokens of cache take"):
        fitting_settings(Settings("tiny"), tiny, 1000)


# failures -------------------------------------------------------------------------------------
@pytest.mark.parametrize("error", [MemoryError(), _core.NumericError("NaN"), RuntimeError("bug")])
def test_only_the_cause_of_a_failure_fails(
    start: Start, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    scheduler = start(parallel=3)
    expected = run(scheduler, TEXT).text
    forward, bad = scheduler._forward, [9, 9, 9]

    def failing(plan: Any) -> Any:
        if any(list(sequence.text.ids) == bad for sequence, _ in plan):
            raise error
        return forward(plan)

    monkeypatch.setattr(scheduler, "_forward", failing)
    good, failed = Listener(), Listener()
    scheduler.submit([TEXT], good)
    scheduler.submit([replace(TEXT, ids=bad)], failed)
    assert failed.wait().last.error is error
    assert good.wait().text == expected
    assert run(scheduler, TEXT).text == expected


def test_a_bug_in_the_loop_does_not_end_it(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = start()
    monkeypatch.setattr(scheduler, "_plan", lambda: 1 / 0)
    assert isinstance(run(scheduler, TEXT).last.error, ZeroDivisionError)
    assert "the scheduler failed" in caplog.text
    monkeypatch.undo()
    assert run(scheduler, TEXT).last.finish_reason


def test_the_end_is_told_to_all(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = start(parallel=1)
    gate = Gate(scheduler, monkeypatch)
    listeners = [Listener(), Listener()]
    for listener in listeners:
        scheduler.submit([replace(TEXT, max_tokens=100)], listener)
    gate.open.set()
    scheduler.stop()
    for listener in listeners:
        assert isinstance(listener.wait().last.error, StoppedError)
    with pytest.raises(StoppedError):
        scheduler.submit([TEXT], Listener())


# reuse ----------------------------------------------------------------------------------------
def test_a_conversation_computes_only_what_is_new(start: Start, tiny: LLM) -> None:
    scheduler = start()
    ids = list(range(10, 40))
    first = run(scheduler, replace(TEXT, ids=ids))
    assert first.last.reused_tokens == 0
    again = run(scheduler, replace(TEXT, ids=ids))
    assert again.last.reused_tokens == len(ids) - 1
    assert again.text == first.text
    longer = [*ids, *range(50, 60)]
    other = run(scheduler, replace(TEXT, ids=longer))
    assert other.last.reused_tokens == len(ids)
    fresh = start(LLM(tiny.decoder, tiny.tokenizer, tiny._pool, tiny.context))
    assert other.text == run(fresh, replace(TEXT, ids=longer)).text


def test_running_texts_share_their_beginning(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = start()
    gate = Gate(scheduler, monkeypatch)
    ids = list(range(10, 40))
    first, second = Listener(), Listener()
    arrived = threading.Event()

    def emit(index: int, event: Event) -> None:
        first(index, event)
        if not arrived.is_set():
            scheduler.submit([replace(TEXT, ids=[*ids, 70])], second)
            arrived.set()

    scheduler.submit([replace(TEXT, ids=ids, max_tokens=60)], emit)
    gate.open.set()
    second.wait()
    assert second.last.reused_tokens == len(ids)
    first.wait()
    fresh = start()
    assert second.text == run(fresh, replace(TEXT, ids=[*ids, 70])).text
    assert first.text == run(fresh, replace(TEXT, ids=ids, max_tokens=60)).text


def common(a: np.ndarray, b: np.ndarray) -> int:
    return len([*itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))])


def test_prefix_cache_finds_the_longest_beginning(tiny: LLM) -> None:
    random = np.random.default_rng(1)
    prefixes = PrefixCache()
    for _ in range(200):
        ids = random.integers(0, 2, int(random.integers(17, 40))).astype(np.int32)
        ids[:16] = 7
        best = max((common(prefix.ids, ids) for prefix in prefixes._kept), default=0)
        cache = prefixes.fork(ids)
        assert (len(cache) if cache else 0) == min(best, len(ids) - 1)
        cache = cache or tiny.decoder.new_cache(128)
        tiny.decoder.forward(ids[len(cache) :], cache, "none")
        prefixes.keep(Prefix(ids, cache))
        kept = [prefix.ids.tolist() for prefix in prefixes._kept]
        assert any(other[: len(ids)] == ids.tolist() for other in kept)
        assert all(a == b or b[: len(a)] != a for a in kept for b in kept)
        assert all(len(prefix.ids) == len(prefix.cache) for prefix in prefixes._kept)
    newest = prefixes._kept[-1]
    prefixes.shrink(newest.cache.nbytes * 3)
    assert prefixes.nbytes == newest.cache.nbytes * 3
    assert prefixes._kept[-1] is newest
    prefixes.shrink(0)
    assert prefixes.nbytes == 0
