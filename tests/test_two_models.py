"""Two models in one process: neither touches what is the other's."""

import gc
import threading
from itertools import zip_longest
from pathlib import Path

import pytest
import tiny_model

from intattention import LLM

PROMPTS = ["the one in the", "a there", "x" * 60]
TOKENS = 40


@pytest.fixture(scope="module")
def paths(tiny_path: Path, packed_path: Path) -> list[Path]:
    """Two that differ in weights and every size, and the first one packed."""
    other = tiny_model.TinyModel(seed=7, layers=3, hidden=96, heads=6, kv_heads=3, inner=160)
    return [tiny_path, tiny_model.write(tiny_path.with_name("other.gguf"), other), packed_path]


@pytest.fixture(scope="module")
def alone(paths: list[Path]) -> list[list[str]]:
    """What each model answers while there is no other one."""
    answers = []
    for path in paths:
        gc.collect()
        llm = LLM.load(path, threads=2)
        answers.append([llm.generate(prompt, max_new_tokens=TOKENS) for prompt in PROMPTS])
        del llm
    assert answers[0] != answers[1]
    assert answers[0] == answers[2]
    return answers


def test_token_by_token_in_turns(paths: list[Path], alone: list[list[str]]) -> None:
    llms = [LLM.load(path, threads=2) for path in paths]
    for i, prompt in enumerate(PROMPTS):
        streams = [llm.generate(prompt, max_new_tokens=TOKENS, stream=True) for llm in llms]
        turns = list(zip_longest(*streams, fillvalue=""))
        assert len(turns) > 10
        assert ["".join(pieces) for pieces in zip(*turns, strict=True)] == [own[i] for own in alone]


def test_in_threads_of_their_own(paths: list[Path], alone: list[list[str]]) -> None:
    """Loaded, used and given up in threads that begin together."""
    barrier = threading.Barrier(len(paths))
    answers: list[list[list[str]]] = [[] for _ in paths]

    def work(own: list[list[str]], path: Path) -> None:
        barrier.wait()
        for _ in range(3):
            llm = LLM.load(path, threads=2)
            for _ in range(5):
                llm.reset()
                own.append([llm.generate(prompt, max_new_tokens=TOKENS) for prompt in PROMPTS])

    threads = [
        threading.Thread(target=work, args=pair) for pair in zip(answers, paths, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [[own] * 15 for own in alone]


def test_one_outlives_the_other(paths: list[Path], alone: list[list[str]]) -> None:
    first, second = (LLM.load(path, threads=2) for path in paths[:2])
    stream = second.generate(PROMPTS[0], max_new_tokens=TOKENS, stream=True)
    begun = next(stream)
    first.generate(PROMPTS[0], max_new_tokens=TOKENS)
    del first
    gc.collect()
    assert begun + "".join(stream) == alone[1][0]
