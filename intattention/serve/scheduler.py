"""The thread that runs the model: one batch of many texts' tokens after the other."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Many

import numpy as np

from intattention.dtypes import F32
from intattention.llm import LLM
from intattention.serve.events import Event
from intattention.serve.metrics import Metrics
from intattention.serve.prefix_cache import PrefixCache
from intattention.serve.protocol import Text
from intattention.serve.sequence import Sequence
from intattention.serve.settings import Settings

PROMPT_ROWS = 256  # prompt tokens of a batch: the weights are read once for all of them
PROMPT_ROWS_BESIDE = 64  # while answers are being written, which wait for the batch

log = logging.getLogger(__name__)

Plan = list[tuple[Sequence, int]]
"""Texts and how many of their pending tokens come next."""


class QueueFullError(Exception):
    """As many texts wait as may; ask again later."""


class StoppedError(Exception):
    """The server is shutting down."""


class Scheduler:
    """Texts are admitted in the order they came, when there is a place and memory for all that
    they may come to need; a batch holds the next token of every text that is being answered and a
    part of the prompts of the others. So each admitted text advances with every batch.

    Results do not depend on what else is in the batch (docs/numerics.md).
    """

    def __init__(self, llm: LLM, settings: Settings, metrics: Metrics) -> None:
        self.prefixes = PrefixCache()
        self._llm, self._settings, self._metrics = llm, settings, metrics
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._stopping = False
        self._changed = threading.Condition()
        self._bytes_for = llm.cpu_decoder.new_cache(llm.context).bytes_for
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        metrics.watch(lambda: len(self._running), lambda: len(self._waiting), self._cache_bytes)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Fails what is waiting or running with StoppedError and ends the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, texts: Many[Text], emit: Callable[[int, Event], None]) -> list[Sequence]:
        """Queues the texts of a request. ``emit(index, event)`` is called in the scheduler's
        thread. QueueFullError, StoppedError; ValueError for options out of range."""
        sequences = [
            Sequence(text, self._settings.context, self._llm.tokenizer, _indexed(emit, i))
            for i, text in enumerate(texts)
        ]
        with self._changed:
            if self._stopping:
                raise StoppedError("the server is shutting down")
            free = self._settings.parallel - len(self._running)
            if len(self._waiting) + len(sequences) > self._settings.queue + max(0, free):
                raise QueueFullError(
                    f"{len(self._waiting)} texts are waiting and {len(sequences)} more exceed "
                    f"the limit of {self._settings.queue}"
                )
            self._waiting += sequences
            self._changed.notify()
        return sequences

    def cancel(self, sequences: Many[Sequence]) -> None:
        """Any thread; a batch that is being computed is finished first."""
        with self._changed:
            for sequence in sequences:
                sequence.cancelled = True
            self._changed.notify()

    def _run(self) -> None:
        while self._wait():
            try:
                self._admit()
                self._step(self._plan())
            except Exception as error:  # a bug must not end the server
                log.exception("the scheduler failed")
                self._fail(self._running, error)
            self._release()
        self._fail([*self._running, *self._waiting], StoppedError("the server is shutting down"))

    def _wait(self) -> bool:
        """Until there is work (True) or the end has come (False)."""
        with self._changed:
            while not (self._waiting or self._running or self._stopping):
                self._changed.wait()
            return not self._stopping

    def _admit(self) -> None:
        """Starts texts at the head of the queue while there is a place and memory for them."""
        with self._changed:
            for sequence in [s for s in self._waiting if s.cancelled]:
                self._waiting.remove(sequence)
            while self._waiting and len(self._running) < self._settings.parallel:
                if not self._make_room(self._waiting[0]):
                    return
                self._begin(self._waiting.popleft())

    def _make_room(self, sequence: Sequence) -> bool:
        needed = sum(self._bytes_for(other.limit) for other in (*self._running, sequence))
        if needed > self._settings.memory_bytes and self._running:
            return False
        self.prefixes.shrink(self._settings.memory_bytes - needed)
        return True

    def _begin(self, sequence: Sequence) -> None:
        self._running.append(sequence)
        if not sequence.text.echo:
            ids = np.array(sequence.ids, np.int32)
            others = (s.prefix() for s in self._running)
            sequence.cache = self.prefixes.fork(ids, [p for p in others if p is not None])
            sequence.reused_tokens = len(sequence.cache or ())
        if sequence.cache is None:
            sequence.cache = self._llm.cpu_decoder.new_cache(self._llm.context)
        sequence.start()

    def _plan(self) -> Plan:
        """Every text that is being answered gets a row; prompts share the others, short ones
        first, so that a long prompt holds nobody up and all get on."""
        answering = [s for s in self._running if s.decoding and not s.over]
        prompts = [s for s in self._running if not s.decoding and not s.over]
        plan = [(sequence, 1) for sequence in answering]
        rows = PROMPT_ROWS_BESIDE if answering else PROMPT_ROWS
        prompts.sort(key=lambda sequence: sequence.pending)
        for i, sequence in enumerate(prompts):
            count = min(sequence.pending, max(1, rows // (len(prompts) - i)))
            plan.append((sequence, count))
            rows -= count
        return plan

    def _step(self, plan: Plan) -> None:
        if not plan:
            return
        start = time.perf_counter()
        try:
            logits = self._forward(plan)
        except Exception as error:
            self._isolate(plan, error)
            return
        for (sequence, _), rows in zip(plan, logits, strict=True):
            try:
                sequence.advance(rows)
            except ValueError as error:  # its constraint has become too complex
                sequence.fail(error)
        self._metrics.batch(sum(count for _, count in plan), time.perf_counter() - start)

    def _isolate(self, plan: Plan, error: Exception) -> None:
        """A batch failed: memory is freed, and the texts go on one by one, so that only those
        fail that are the cause. The caches are as they were."""
        self.prefixes.shrink(0)
        if len(plan) > 1:
            for item in plan:
                self._step([item])
            return
        log.warning("a request failed: %s: %s", type(error).__name__, error)
        plan[0][0].fail(error.with_traceback(None))  # its frames would keep the cache alive

    def _forward(self, plan: Plan) -> list[F32]:
        """Appends the next tokens of each text to its cache; the logits of its rows."""
        ids = [sequence.next_ids(count) for sequence, count in plan]
        wanted = [sequence.wanted_rows(count) for sequence, count in plan]
        caches = [sequence.cache for sequence, _ in plan if sequence.cache is not None]
        logits = self._llm.cpu_decoder.forward_batch(ids, caches, wanted)
        rows = [{"none": 0, "last": 1, "all": len(i)}[w] for i, w in zip(ids, wanted, strict=True)]
        return np.split(logits, np.cumsum(rows)[:-1])

    def _release(self) -> None:
        """Takes texts that are over off the list; their caches are kept for others."""
        for sequence in [s for s in self._running if s.over]:
            self._running.remove(sequence)
            prefix = sequence.prefix()
            if prefix is not None:
                self.prefixes.keep(prefix)
            sequence.cache = None  # whoever still holds the sequence does not hold memory
            self._metrics.ended(sequence)

    def _fail(self, sequences: Many[Sequence], error: Exception) -> None:
        for sequence in sequences:
            sequence.fail(error)

    def _cache_bytes(self) -> int:
        caches = [s.cache for s in list(self._running) if s.cache is not None]
        return sum(cache.nbytes for cache in caches) + self.prefixes.nbytes


def _indexed(emit: Callable[[int, Event], None], index: int) -> Callable[[Event], None]:
    return lambda event: emit(index, event)
