"""Counts and times for Prometheus."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from intattention.serve.sequence import Sequence

SECONDS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The numbers of one server; any thread may write them."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter(
            "intattention_requests",
            "HTTP requests answered.",
            ["path", "status"],
            registry=registry,
        )
        self._prompt = Counter(
            "intattention_prompt_tokens", "Prompt tokens of texts that ended.", registry=registry
        )
        self._reused = Counter(
            "intattention_reused_tokens", "Of these, found in a cache.", registry=registry
        )
        self._generated = Counter(
            "intattention_generated_tokens", "Tokens written.", registry=registry
        )
        self._ended = Counter(
            "intattention_texts", "Texts that ended.", ["reason"], registry=registry
        )
        self._first = Histogram(
            "intattention_first_token_seconds", "From the request to the first token.",
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._whole = Histogram(
            "intattention_text_seconds", "From the request to the last token.",
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._batch = Histogram(
            "intattention_batch_rows", "Tokens computed together.", buckets=ROWS, registry=registry
        )
        self._busy = Counter("intattention_busy_seconds", "Spent in batches.", registry=registry)

    def watch(
        self,
        running: Callable[[], float],
        waiting: Callable[[], float],
        cache_bytes: Callable[[], float],
    ) -> None:
        """Values that are asked for when they are read."""
        for name, what, value in (
            ("running_texts", "Texts being generated.", running),
            ("waiting_texts", "Texts in the queue.", waiting),
            ("cache_bytes", "KV caches, running and kept for reuse.", cache_bytes),
        ):
            Gauge(f"intattention_{name}", what, registry=self._registry).set_function(value)

    def request(self, path: str, status: int) -> None:
        self._requests.labels(path, str(status)).inc()

    def batch(self, rows: int, seconds: float) -> None:
        self._batch.observe(rows)
        self._busy.inc(seconds)

    def ended(self, sequence: Sequence) -> None:
        self._prompt.inc(sequence.prompt_tokens)
        self._reused.inc(sequence.reused_tokens)
        self._generated.inc(len(sequence.answer.tokens))
        reason = "failed" if sequence.failed else sequence.answer.finish_reason or "cancelled"
        self._ended.labels(reason).inc()
        if sequence.first_token is not None:
            self._first.observe(sequence.first_token - sequence.submitted)
        self._whole.observe(time.perf_counter() - sequence.submitted)

    def text(self) -> bytes:
        """In Prometheus' text format 0.0.4."""
        text: bytes = generate_latest(self._registry)
        return text
