"""Total throughput and fairness of the server, by number of clients.

    python bench/bench_serve.py [-m MODEL] [--clients 1 8] [--tokens 128] [--rounds 5] [-t THREADS]

The server is a process of its own; clients are threads here, which stream greedy completions of
prompts that no two requests share. Numbers of clients take turns. Every answer is compared with
what the model gives without a server.
"""

import argparse
import http.client
import json
import re
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from intattention import LLM
from intattention.machine import cpu_model
from intattention.machine_facts import commit

WORDS = ["river", "stone", "lamp", "garden", "winter", "music", "paper", "bridge", "harbour"]


@dataclass
class Request:
    """One completion: what was asked, what came, and when (seconds since it was sent)."""

    prompt: str
    text: str = ""
    tokens: int = 0
    first: float = 0.0
    total: float = 0.0


def prompt(round_: int, client: int, words: int) -> str:
    """Different from its first word on."""
    chosen = [
        WORDS[(round_ * 7 + client * 5 + i * (client + 1)) % len(WORDS)] for i in range(words)
    ]
    return f"{round_}{client} " + " ".join(chosen) + ". The story begins when"


def ask(port: int, request: Request, tokens: int) -> None:
    body = {"model": "bench", "prompt": request.prompt, "max_tokens": tokens, "temperature": 0,
            "stream": True, "stream_options": {"include_usage": True}}  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", port)
    start = time.perf_counter()
    connection.request(
        "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
    )
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"{response.status}: {response.read().decode()}")
    for line in response:
        data = line.decode().removeprefix("data: ").strip()
        if not data or data == "[DONE]":
            continue
        piece = json.loads(data)
        request.tokens = (piece.get("usage") or {}).get("completion_tokens", 0)
        for choice in piece["choices"]:
            request.first = request.first or time.perf_counter() - start
            request.text += choice["text"]
    request.total = time.perf_counter() - start
    connection.close()


def together(port: int, requests: list[Request], tokens: int) -> float:
    """Seconds until the last of the requests, sent at the same time, is answered."""
    threads = [threading.Thread(target=ask, args=(port, r, tokens)) for r in requests]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def check(llm: LLM, requests: list[Request], tokens: int) -> None:
    for request in requests:
        llm.reset()
        if request.text != llm.generate(request.prompt, max_new_tokens=tokens):
            raise SystemExit(f"the answer to {request.prompt!r} is not that of a single run")


def start_server(options: argparse.Namespace) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, "-m", "intattention", "serve", "-m", options.model, "--port", "0",
               "--name", "bench", "--threads", str(options.threads),
               "--parallel", str(max(options.clients))]  # fmt: skip
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    for line in server.stderr:
        if found := re.search(r"at http://127\.0\.0\.1:(\d+)/v1: ", line):
            return server, int(found[1])
    raise SystemExit(f"the server ended with {server.wait()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", default="smollm2-135m-instruct")
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--tokens", type=int, default=128, help="of an answer")
    parser.add_argument("--words", type=int, default=20, help="of a prompt")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    server, port = start_server(options)
    runs: dict[int, list[tuple[float, list[Request]]]] = {n: [] for n in options.clients}
    try:
        for round_ in range(-1, options.rounds):  # the first warms up
            for n in options.clients:
                key = (round_ + 1) * len(options.clients) + options.clients.index(n)
                requests = [Request(prompt(key, client, options.words)) for client in range(n)]
                seconds = together(port, requests, options.tokens)
                if round_ >= 0:
                    runs[n].append((seconds, requests))
    finally:
        server.terminate()
        server.wait()
    llm = LLM.load(options.model, threads=options.threads)
    print(f"{cpu_model()}, {llm.threads} threads, commit {commit()}, {options.model}, "
          f"prompts of {options.words} words, up to {options.tokens} tokens; "
          f"medians of {options.rounds} rounds")  # fmt: skip
    rates = {}
    for n, results in runs.items():
        for _, requests in results:
            check(llm, requests, options.tokens)
        total = [sum(r.tokens for r in requests) / seconds for seconds, requests in results]
        slow = [min(r.tokens / r.total for r in requests) for _, requests in results]
        fast = [max(r.tokens / r.total for r in requests) for _, requests in results]
        first = [r.first for _, requests in results for r in requests]
        rates[n] = statistics.median(total)
        print(
            f"{n} clients: {rates[n]:.1f} tok/s in all ({min(total):.1f} to {max(total):.1f}); "
            f"slowest client {statistics.median(slow):.1f}, fastest {statistics.median(fast):.1f}; "
            f"first token after {statistics.median(first):.3f} s, at most {max(first):.3f} s"
        )
    least, most = min(rates), max(rates)
    print(f"{most} clients : {least} = {rates[most] / rates[least]:.2f}; answers as in single runs")


if __name__ == "__main__":
    main()
