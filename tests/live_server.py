"""A server in a thread of this process, and plain HTTP requests to it."""

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn

from intattention import LLM
from intattention.serve.app import create_app
from intattention.serve.settings import Settings, fitting_settings

MODEL = "tiny"


@dataclass(frozen=True)
class Live:
    """``settings`` as the server has them."""

    port: int
    settings: Settings

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, JSON or text, headers. ``body``: JSON, or bytes as they are."""
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        connection = self.connect()
        try:
            connection.request(method, path, raw, sent)
            response = connection.getresponse()
            text = response.read().decode()
            kind = response.headers.get("content-type", "")
            answer = json.loads(text) if kind == "application/json" else text
            return response.status, answer, {k.lower(): v for k, v in response.headers.items()}
        finally:
            connection.close()

    def post(self, path: str, **fields: Any) -> tuple[int, Any]:
        status, answer, _ = self.request("POST", path, {"model": self.settings.model, **fields})
        return status, answer

    def metric(self, name: str) -> float:
        """The sum over all labels."""
        lines = self.request("GET", "/metrics")[1].splitlines()
        found = [line for line in lines if line.partition("{")[0].partition(" ")[0] == name]
        assert found, name
        return sum(float(line.rpartition(" ")[2]) for line in found)

    def wait_for(self, name: str, value: float) -> None:
        """Until a metric has a value."""
        deadline = time.monotonic() + 60
        while self.metric(name) != value:
            assert time.monotonic() < deadline, f"{name} is {self.metric(name)}, not {value}"
            time.sleep(0.02)


@contextmanager
def live(llm: LLM, memory_bytes: int | None = None, **settings: Any) -> Iterator[Live]:
    """``settings``: fields of Settings."""
    chosen = fitting_settings(Settings(**{"model": MODEL, **settings}), llm, memory_bytes)
    config = uvicorn.Config(
        create_app(llm, chosen), port=0, lifespan="on", log_level="warning",
        timeout_graceful_shutdown=5,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        yield Live(server.servers[0].sockets[0].getsockname()[1], chosen)
    finally:
        server.should_exit = True
        thread.join()
