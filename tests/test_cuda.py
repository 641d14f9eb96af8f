"""The CUDA back end from Python: what it says without a GPU; with one, that it equals the CPU."""

from pathlib import Path

import numpy as np
import pytest

from intattention import LLM, ContextOverflowError, cuda

PROMPTS = (
    "Name the capital of France and what it is known for.",
    "Explain in two sentences why the sky is blue.",
    "Write a haiku about autumn leaves.",
    "List three prime numbers larger than ten and say why they are prime.",
    "Give me a recipe for pancakes with exact amounts.",
)


@pytest.fixture
def gpu() -> None:
    usable, reason = cuda.available()
    if not usable:
        pytest.skip(f"no CUDA: {reason}")


def test_available_says_why_not():
    usable, reason = cuda.available()
    assert isinstance(usable, bool)
    assert usable == (reason == "")


def test_without_a_gpu_loading_says_why(tiny_path: Path):
    usable, reason = cuda.available()
    if usable:
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match='device="cuda"') as caught:
        LLM.load(tiny_path, device="cuda")
    assert reason in str(caught.value)


def test_unknown_device(tiny_path: Path):
    with pytest.raises(ValueError, match="device is 'tpu'"):
        LLM.load(tiny_path, device="tpu")


@pytest.mark.usefixtures("gpu")
def test_logits_equal_the_cpus(tiny_path: Path):
    on_cpu, on_gpu = LLM.load(tiny_path, threads=1), LLM.load(tiny_path, device="cuda")
    ids = np.arange(40, dtype=np.int32) % on_cpu.config.vocab_size
    for cut in (1, 7, 40):
        caches = [llm._decoder.new_cache(64) for llm in (on_cpu, on_gpu)]
        for start in range(0, 40, cut):
            chunk = ids[start : start + cut]
            expected = on_cpu._decoder.forward(chunk, caches[0], "all")
            got = on_gpu._decoder.forward(chunk, caches[1], "all")
            assert np.array_equal(got.view(np.uint32), expected.view(np.uint32))


@pytest.mark.usefixtures("gpu")
def test_errors_are_those_of_the_core(tiny_path: Path):
    llm = LLM.load(tiny_path, device="cuda", ctx=32)
    cache = llm._decoder.new_cache(8)
    with pytest.raises(ContextOverflowError, match="exceed the limit of 8"):
        llm._decoder.forward(np.zeros(9, np.int32), cache)
    with pytest.raises(ValueError, match="outside the vocabulary"):
        llm._decoder.forward(np.array([-1], np.int32), cache)
    assert len(cache) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("gpu")
def test_smollm2_answers_as_on_the_cpu(smollm2: LLM, smollm2_path: Path):
    on_gpu = LLM.load(smollm2_path, device="cuda")
    for prompt in PROMPTS:
        messages = [{"role": "user", "content": prompt}]
        assert on_gpu.chat(messages, max_new_tokens=96) == smollm2.chat(messages, max_new_tokens=96)
