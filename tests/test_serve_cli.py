"""``intattention serve`` as a process: signals at any time, memory, options."""

import contextlib
import http.client
import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from server_process import Start

from intattention import LLM

Run = Callable[..., tuple[int, str, str]]
# Once the model is loaded and warm, 60 MiB of address space are left.
LITTLE_MEMORY = """
import resource, sys
from intattention import LLM, cli

load = LLM.load.__func__

def limited(*arguments, **options):
    llm = load(*arguments, **options)
    llm.generate("x " * 300, max_new_tokens=2)
    llm.reset()
    size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (60 << 20),) * 2)
    return llm

LLM.load = classmethod(limited)
cli.main(sys.argv[1:])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("seconds", [0.0, 0.3, 0.6, 1.0, 1.5, 2.0])
def test_signals_while_it_starts(
    start: Start, tiny_path: Path, number: signal.Signals, seconds: float
) -> None:
    server = start("-m", tiny_path)
    time.sleep(seconds)
    status, err = server.end(number)
    assert status in (130, -number)
    if seconds >= 1.0:  # Python itself may be interrupted in an import
        assert "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_answers_that_are_being_written_are_finished(
    start: Start, smollm2_path: Path, smollm2: LLM, number: signal.Signals
) -> None:
    server = start("-m", smollm2_path, "--name", "m").wait_until_ready()
    expected = smollm2.generate("The sea", max_new_tokens=100)
    got: list[tuple[int, str]] = []
    fields = {"model": "m", "prompt": "The sea", "max_tokens": 100}
    thread = threading.Thread(target=lambda: got.append(server.post(**fields)))
    thread.start()
    time.sleep(0.1)
    status, err = server.end(number)
    thread.join()
    assert got[0][0] == 200
    assert json.loads(got[0][1])["choices"][0]["text"] == expected
    assert status == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in err


def test_answers_that_take_too_long_are_given_up(start: Start, smollm2_path: Path) -> None:
    server = start("-m", smollm2_path, "--name", "m", "--grace", 1).wait_until_ready()
    fields = {"model": "m", "prompt": "x " * 3000, "max_tokens": 2000, "n": 8, "seed": 1}

    def ask() -> None:
        with contextlib.suppress(http.client.HTTPException, OSError):
            statuses.append(server.post(**fields, temperature=1)[0])

    statuses: list[int] = []
    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.5)
    asked = time.monotonic()
    assert server.end(signal.SIGTERM)[0] == -signal.SIGTERM
    assert time.monotonic() - asked < 15
    thread.join()
    assert all(status >= 500 for status in statuses)


def test_too_little_memory_for_one_request(start: Start, smollm2_path: Path, smollm2: LLM) -> None:
    """The address space is limited: the long request fails, the next one works."""
    limited = [sys.executable, "-c", LITTLE_MEMORY, "serve"]
    options = ["--name", "m", "--memory", "8G", "--threads", 2]
    server = start("-m", smollm2_path, *options, command=limited).wait_until_ready()
    for _ in range(2):
        status, body = server.post(model="m", prompt=[100] * 8000, max_tokens=2)
        assert status == 503
        assert json.loads(body)["error"]["code"] == "out_of_memory"
        status, body = server.post(model="m", prompt="The sea", max_tokens=9)
        assert status == 200
        expected = smollm2.generate("The sea", max_new_tokens=9)
        assert json.loads(body)["choices"][0]["text"] == expected
    server.end(signal.SIGTERM)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--memory", "x"], "'x' is not a size"),
        (["--memory", "1K"], "256 tokens of cache take"),
        (["--api-key", "short"], "5 characters"),
        (["--port", "70000"], "65535"),
    ],
)
def test_options_that_do_not_fit(run: Run, tiny_path: Path, options: list[str], words: str) -> None:
    status, _, err = run("serve", "-m", tiny_path, *options)
    assert status == 2
    assert err.startswith("error: ")
    assert words in err
