"""Random requests and disconnects against a server, and how its memory develops.

    python scripts/soak_serve.py [-m MODEL] [--minutes 30] [--clients 6] [--out soak/]

Each client asks for completions and chats, greedy and sampled, short and long, whole and as a
stream; goes away before, while or after it is answered; sends requests that must be refused. Some
greedy questions come again and again: their answers must never change. Fails if one does, if a
request is answered with a status that it should not get, or if the memory of the last quarter is
--growth above that of the third. Writes memory.csv, memory.png (with matplotlib) and log.json.
"""

import argparse
import csv
import http.client
import json
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

QUESTIONS = ["Name a colour.", "What is two plus two?", "Where do fish live?", "Say hello."]
WORDS = ["the", "sea", "a", "river", "of", "stone", "and", "light", "in", "winter", "she", "said"]
REFUSED: list[dict[str, Any]] = [
    {"prompt": "x", "temperature": 9},
    {"prompt": []},
    {"prompt": [-1]},
    {"prompt": "x", "max_tokens": 10**6},
    {"messages": "x"},
]


class Soak:
    def __init__(self, port: int, seed: int) -> None:
        self.port, self.seed = port, seed
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.answers: dict[str, str] = {}
        self.stop = threading.Event()
        self._lock = threading.Lock()

    def client(self, number: int) -> None:
        rng = random.Random(self.seed + number)
        while not self.stop.is_set():
            try:
                self.one(rng)
            except OSError as error:
                self.problem(f"{type(error).__name__}: {error}")

    def one(self, rng: random.Random) -> None:
        kind = rng.choices(["known", "random", "leave", "refused"], [3, 4, 3, 1])[0]
        if kind == "known":
            self.known(rng.choice(QUESTIONS), rng.random() < 0.5)
        elif kind == "refused":
            body = rng.choice(REFUSED)
            path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
            self.expect(kind, self.ask(path, body)[0], 400)
        elif kind == "random":
            self.expect(kind, self.ask("/v1/completions", self.random_body(rng))[0], 200, 429)
        else:
            self.leave(rng)
        with self._lock:
            self.counts[kind] += 1

    def known(self, question: str, stream: bool) -> None:
        """The first answer is the standard for all later ones."""
        messages = [{"role": "user", "content": question}]
        body = {"messages": messages, "temperature": 0, "max_tokens": 24, "stream": stream}
        status, text = self.ask("/v1/chat/completions", body)
        if status == 429:
            return
        self.expect("known", status, 200)
        with self._lock:
            if self.answers.setdefault(question, text) != text:
                self.problems.append(f"{question!r}: {text!r}, not {self.answers[question]!r}")

    def leave(self, rng: random.Random) -> None:
        """Closes the connection at a random moment."""
        connection = self.send("/v1/completions", {**self.random_body(rng), "stream": True})
        until = time.monotonic() + rng.choice([0, 0.05, 0.3, 1.0])
        connection.sock.settimeout(0.05)
        while time.monotonic() < until:
            try:
                if not connection.sock.recv(1000):
                    break
            except TimeoutError:
                pass
        connection.close()

    def random_body(self, rng: random.Random) -> dict[str, Any]:
        length = rng.choice([3, 10, 40, 200, 900])
        return {
            "prompt": " ".join(rng.choice(WORDS) for _ in range(length)),
            "max_tokens": rng.choice([1, 5, 20, 80]),
            "temperature": rng.choice([0, 0.7, 1.2]),
            "top_p": rng.choice([1, 0.9]),
            "n": rng.choice([1, 1, 1, 3]),
            "stop": rng.choice([None, ["."], ["\n", "the"]]),
            "logprobs": rng.choice([None, None, 2]),
            "echo": rng.random() < 0.2,
            "seed": rng.randrange(1000),
            "stream": rng.random() < 0.5,
        }

    def send(self, path: str, body: dict[str, Any]) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        raw = json.dumps({"model": "soak", **body})
        connection.request("POST", path, raw, {"Content-Type": "application/json"})
        return connection

    def ask(self, path: str, body: dict[str, Any]) -> tuple[int, str]:
        """Status, and the text of choice 0."""
        connection = self.send(path, body)
        response = connection.getresponse()
        raw = response.read().decode()
        connection.close()
        if response.status != 200:
            return response.status, ""
        if not body.get("stream"):
            choice = json.loads(raw)["choices"][0]
            return 200, choice.get("text") or choice.get("message", {}).get("content") or ""
        if not raw.endswith("data: [DONE]\n\n"):
            self.problem(f"a stream ends with {raw[-200:]!r}")
        text = ""
        for line in raw.splitlines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:]).get("choices", []):
                    if choice["index"] == 0:
                        text += choice.get("text") or choice.get("delta", {}).get("content") or ""
        return 200, text

    def expect(self, kind: str, status: int, *wanted: int) -> None:
        if status not in wanted:
            self.problem(f"{kind}: status {status}, expected {wanted}")

    def problem(self, text: str) -> None:
        with self._lock:
            self.problems.append(text)


class Sample(NamedTuple):
    """Memory in MiB: the process's own pages, those of mapped files, the KV caches."""

    seconds: float
    anon: float
    file: float
    caches: float
    threads: int


def resident(pid: int) -> tuple[float, float]:
    """MiB in memory: the process's own pages, and those of mapped files."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kib = {name: int(rest.split()[0]) for name, _, rest in (x.partition(":") for x in lines)
           if name in ("RssAnon", "RssFile")}  # fmt: skip
    return kib["RssAnon"] / 1024, kib["RssFile"] / 1024


def metrics(port: int) -> dict[str, float]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    pairs = (line.rpartition(" ") for line in lines if line.startswith("intattention_"))
    return {name: float(value) for name, _, value in pairs}


def watch(soak: Soak, pid: int, minutes: float) -> list[Sample]:
    """One sample every two seconds."""
    start, rows = time.monotonic(), []
    while (seconds := time.monotonic() - start) < minutes * 60 and not soak.stop.is_set():
        try:
            caches = metrics(soak.port)["intattention_cache_bytes"] / 2**20
            threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
            rows.append(Sample(seconds, *resident(pid), caches, threads))
        except OSError as error:
            soak.problem(f"the server does not answer: {error}")
            break
        if int(seconds) % 60 < 2 or len(rows) == 1:
            done = f"{sum(soak.counts.values())} requests, {len(soak.problems)} problems"
            anon, mapped = rows[-1].anon, rows[-1].file
            memory = f"{anon:7.1f} MiB own, {mapped:.1f} of files, caches {caches:6.1f}"
            print(f"{seconds:6.0f} s  {memory}, {done}", flush=True)
        time.sleep(2)
    return rows


def start_server(options: argparse.Namespace) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, "-m", "intattention", "serve", "-m", options.model, "--port", "0",
               "--name", "soak", "--memory", options.memory, "--parallel", "4", "--queue", "8",
               "--threads", str(options.threads), "--max-tokens", "256"]  # fmt: skip
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    for line in server.stderr:
        print(line, end="", flush=True)
        if found := re.search(r"at http://127\.0\.0\.1:(\d+)/v1: ", line):
            return server, int(found[1])
    raise SystemExit(f"the server ended with {server.wait()}")


def plot(rows: list[Sample], path: Path) -> None:
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 3.5), layout="constrained")
    minutes = [row.seconds / 60 for row in rows]
    axes.plot(minutes, [row.anon + row.file for row in rows], label="resident memory")
    axes.plot(minutes, [row.anon for row in rows], label="without mapped files")
    axes.plot(minutes, [row.caches for row in rows], label="KV caches")
    axes.set(xlabel="minutes", ylabel="MiB", ylim=(0, None))
    axes.legend()
    figure.savefig(path, dpi=120)


def growth(rows: list[Sample]) -> float:
    """MiB between the third and the fourth quarter's mean resident memory."""
    quarter = max(1, len(rows) // 4)
    last, before = rows[-quarter:], rows[-2 * quarter : -quarter] or rows[:quarter]
    mean = [sum(row.anon + row.file for row in part) / len(part) for part in (before, last)]
    return mean[1] - mean[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", default="smollm2-135m-instruct")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--memory", default="200M", help="of the server's caches")
    parser.add_argument("--growth", type=float, default=8, help="MiB")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("soak"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    server, port = start_server(options)
    soak = Soak(port, options.seed)
    clients = [threading.Thread(target=soak.client, args=(i,)) for i in range(options.clients)]
    for client in clients:
        client.start()
    try:
        rows = watch(soak, server.pid, options.minutes)
    finally:
        soak.stop.set()
        for client in clients:
            client.join()
    left = settled(port)
    server.send_signal(signal.SIGTERM)
    _, err = server.communicate(timeout=60)
    report(options, soak, rows, left, err)


def settled(port: int) -> dict[str, float]:
    """The metrics once nothing runs any more."""
    for _ in range(200):
        values = metrics(port)
        if values["intattention_running_texts"] == values["intattention_waiting_texts"] == 0:
            break
        time.sleep(0.1)
    return values


def report(
    options: argparse.Namespace,
    soak: Soak,
    rows: list[Sample],
    left: dict[str, float],
    err: str,
) -> None:
    with (options.out / "memory.csv").open("w", newline="") as file:
        csv.writer(file).writerows([Sample._fields, *rows])
    plot(rows, options.out / "memory.png")
    grown = growth(rows)
    for name in ("intattention_running_texts", "intattention_waiting_texts"):
        if left[name]:
            soak.problems.append(f"{name} is {left[name]} at the end")
    if grown > options.growth:
        soak.problems.append(f"memory grew by {grown:.1f} MiB from the third to the last quarter")
    if err:
        soak.problems.append(f"the server said: {err[-2000:]}")
    log = {
        "minutes": rows[-1].seconds / 60, "requests": dict(soak.counts),
        "growth_mib": round(grown, 2),
        "rss_mib": [round(end(row.anon + row.file for row in rows), 1) for end in (min, max)],
        "threads": [end(row.threads for row in rows) for end in (min, max)],
        "answers": soak.answers, "problems": soak.problems, "metrics": left,
    }  # fmt: skip
    (options.out / "log.json").write_text(json.dumps(log, indent=1))
    shown = {key: log[key] for key in ("minutes", "requests", "growth_mib", "rss_mib", "threads")}
    print(json.dumps(shown))
    for problem in soak.problems[:20]:
        print("problem:", problem)
    sys.exit(bool(soak.problems))


if __name__ == "__main__":
    main()
