"""fork and spawn: a child may use a model of its parent, whatever the parent's threads do."""

import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest

from intattention import LLM

PROMPT = "the one in the"

# In a process of its own: a test run has threads that fork() would warn about.
FORKS = """
import os, signal, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from intattention import LLM

llm = LLM.load(sys.argv[1], threads=3)
other = LLM(llm.decoder, llm.tokenizer, llm._pool, llm.context)
expected = llm.generate("the one in the", max_new_tokens=20)
stop = threading.Event()

def busy():
    while not stop.is_set():
        other.generate("x" * 100, max_new_tokens=5)
        other.reset()

thread = threading.Thread(target=busy)
if sys.argv[2] == "busy":
    thread.start()
status = 0
for _ in range(20):
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # what hangs is killed
        same = llm.generate("the one in the", max_new_tokens=20) == expected
        llm.reset()
        same = same and llm.generate("the one in the", max_new_tokens=20) == expected
        grandchild = os.fork()
        if grandchild == 0:
            os._exit(llm.generate("the one in the", max_new_tokens=20) != expected)
        os._exit(not same or os.waitpid(grandchild, 0)[1] != 0)
    status |= os.waitpid(child, 0)[1]
    status |= llm.generate("the one in the", max_new_tokens=20) != expected
stop.set()
sys.exit(status != 0)
"""


@pytest.mark.parametrize("parent", ["idle", "busy"])
def test_children_of_fork_do_not_hang(tiny_path: Path, parent: str) -> None:
    command = [sys.executable, "-c", FORKS, str(tiny_path), parent]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def answer(path: Path) -> str:
    return LLM.load(path, threads=2).generate(PROMPT, max_new_tokens=20)


def test_spawned_processes(tiny: LLM, tiny_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert set(pool.map(answer, [tiny_path] * 4)) == {tiny.generate(PROMPT, max_new_tokens=20)}
