"""``intattention serve`` as a process."""

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable

COMMAND = [sys.executable, "-m", "intattention", "serve"]


class Process:
    """A server; ``port`` is known once it answers."""

    def __init__(self, *arguments: object, command: list[str] = COMMAND) -> None:
        whole = [*command, "--port", "0", *map(str, arguments)]
        self.process = subprocess.Popen(whole, cwd="/", stderr=subprocess.PIPE, text=True)
        self.port = 0

    def wait_until_ready(self) -> "Process":
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"at http://127\.0\.0\.1:(\d+)/v1: ", line):
                self.port = int(found[1])
                return self
        raise AssertionError(f"ended with {self.process.wait()}")

    def post(self, **fields: object) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = json.dumps({"temperature": 0, **fields})
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text

    def end(self, number: signal.Signals, seconds: float = 30) -> tuple[int, str]:
        """Exit status, and what it still said."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, err


Start = Callable[..., Process]
