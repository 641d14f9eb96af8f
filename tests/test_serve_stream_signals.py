"""Signals while a stream is open: the server ends in time, and the stream ends for its client."""

import http.client
import json
import signal
import threading
import time
from pathlib import Path

import pytest
from server_process import Process, Start

GRACE = 1


def read_stream(server: Process, prompt: str, opened: threading.Event, got: list[str]) -> None:
    """``got``: all that came until the stream ended, however it did."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    fields = {"model": "m", "prompt": prompt, "max_tokens": 2000, "n": 8, "stream": True, "seed": 1}
    connection.request(
        "POST", "/v1/completions", json.dumps(fields), {"Content-Type": "application/json"}
    )
    text = ""
    try:
        response = connection.getresponse()
        opened.set()
        while piece := response.read1(1000):
            text += piece.decode(errors="replace")
    except (http.client.HTTPException, ConnectionError):
        pass
    connection.close()
    got.append(text)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("phase", ["prompt", "answer"])
def test_an_open_stream_is_ended(
    start: Start, smollm2_path: Path, number: signal.Signals, phase: str
) -> None:
    # One thread: the prompt must last until the signal on fast machines too.
    options = ["--name", "m", "--grace", GRACE, "--threads", 1]
    server = start("-m", smollm2_path, *options).wait_until_ready()
    prompt = "x " * 7000 if phase == "prompt" else "The sea"
    opened, got = threading.Event(), list[str]()
    client = threading.Thread(target=read_stream, args=(server, prompt, opened, got))
    client.start()
    assert opened.wait(10)
    time.sleep(0.2)
    asked = time.monotonic()
    status, _ = server.end(number)
    client.join(10)
    assert time.monotonic() - asked < GRACE + 10
    assert not client.is_alive()
    assert status == (130 if number == signal.SIGINT else -number)
    assert "[DONE]" not in got[0]
    assert ('"text"' in got[0]) == (phase == "answer")
