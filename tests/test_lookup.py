"""Prompt lookup: guesses from the text itself, and never another answer than without them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny_model

from intattention import LLM
from intattention.prompt_lookup import PromptLookup
from intattention.session import Session

PROMPT = "the one in the other one and the one in the"


@pytest.fixture
def parrot(tmp_path: Path) -> LLM:
    """A model whose next token hardly depends on more than the last one: it soon repeats itself."""
    model = tiny_model.TinyModel(seed=5)
    tensors = tiny_model.float_tensors(model)
    quiet = {name: 0.05 * t for name, t in tensors.items() if name.endswith("attn_output.weight")}
    return LLM.load(
        tiny_model.write(tmp_path / "parrot.gguf", tiny_model.TinyModel(seed=5, tensors=quiet)),
        threads=1,
    )


# guesses --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "guess"),
    [
        ("abcXabc", "Xabc"),
        ("abcXabcYabc", "Yabc"),  # the latest place
        ("bcXabcYbc", "YbcY"),
        ("abab", "abab"),
        ("aaa", "aaaa"),
        ("abcd", ""),
        ("aXa", ""),  # one token is not enough
        ("a", ""),
        ("", ""),
    ],
)
def test_guesses(text: str, guess: str) -> None:
    found = PromptLookup(map(ord, text)).guess(4)
    assert "".join(map(chr, found)) == guess


def test_longer_precedents_come_first() -> None:
    """Three tokens alike tell more than two, though the place is further back."""
    lookup = PromptLookup(map(ord, "abcX...bcY...abc"))
    assert chr(lookup.guess(1)[0]) == "X"


def test_growing_gives_the_same_as_starting_anew() -> None:
    random = np.random.default_rng(0)
    ids = random.integers(0, 3, 300).tolist()
    growing = PromptLookup()
    for i, token in enumerate(ids):
        growing.extend([token])
        assert growing.guess(5) == PromptLookup(ids[: i + 1]).guess(5)


# generation -----------------------------------------------------------------------------------
@pytest.mark.parametrize("lookup", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 1.2, "seed": 3},
        {"temperature": 0.4, "seed": 4, "top_k": 5, "repetition_penalty": 1.1},
        {"stop": ["e"]},
        {"max_new_tokens": 2},
        {"max_new_tokens": 500},  # the context is full
    ],
)
def test_the_answer_is_the_same(parrot: LLM, lookup: int, options: dict[str, object]) -> None:
    options = {"max_new_tokens": 60, **options}
    expected = parrot.generate(PROMPT, **options)
    plain = parrot.last_stats
    parrot.reset()
    assert parrot.generate(PROMPT, lookup=lookup, **options) == expected
    stats = parrot.last_stats
    assert stats.finish_reason == plain.finish_reason
    assert stats.generated_tokens == plain.generated_tokens
    assert stats.decode_tokens == plain.decode_tokens
    assert stats.decode_steps <= stats.decode_tokens
    assert stats.accepted_tokens <= stats.drafted_tokens <= lookup * stats.decode_steps
    assert (plain.decode_steps, plain.drafted_tokens) == (plain.decode_tokens, 0)


def test_steps_are_saved(parrot: LLM) -> None:
    parrot.generate(PROMPT, max_new_tokens=60, lookup=4)
    stats = parrot.last_stats
    assert stats.decode_tokens == 59
    assert stats.accepted_tokens > 5
    assert stats.decode_steps == stats.decode_tokens - stats.accepted_tokens


def test_streams_token_by_token(parrot: LLM) -> None:
    text = parrot.generate(PROMPT, max_new_tokens=40)
    plain = list(parrot.generate(PROMPT, max_new_tokens=40, stream=True))
    assert list(parrot.generate(PROMPT, max_new_tokens=40, stream=True, lookup=4)) == plain
    assert "".join(plain) == text


def test_the_cache_holds_what_was_accepted(parrot: LLM) -> None:
    """The next call reuses it; rows of refused guesses would change its text."""
    answer = parrot.generate(PROMPT, max_new_tokens=30, lookup=4)
    longer = PROMPT + answer + " and then"
    again = parrot.generate(longer, max_new_tokens=30, lookup=3)
    assert parrot.last_stats.reused_tokens > 20
    parrot.reset()
    assert parrot.generate(longer, max_new_tokens=30) == again


@pytest.mark.parametrize("at", [2, 3, 5])
def test_an_interrupt_leaves_the_llm_usable(
    parrot: LLM, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = parrot.generate(PROMPT, max_new_tokens=30)
    parrot.reset()
    forward: Callable[..., object] = Session._forward
    calls = 0

    def interrupted(self: Session, ids: list[int], rows: str) -> object:
        nonlocal calls
        calls += 1
        result = forward(self, ids, rows)
        if calls == at:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(Session, "_forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        parrot.generate(PROMPT, max_new_tokens=30, lookup=4)
    assert parrot.generate(PROMPT, max_new_tokens=30, lookup=4) == expected


def test_a_stale_iterator_is_refused(parrot: LLM) -> None:
    stale = parrot.generate(PROMPT, max_new_tokens=30, stream=True, lookup=4)
    next(stale)
    expected = parrot.generate("the", max_new_tokens=9)
    with pytest.raises(RuntimeError, match="stale"):
        list(stale)
    assert parrot.generate("the", max_new_tokens=9) == expected


@pytest.mark.parametrize("lookup", [-1, 1.0, True, 65])
def test_bad_values(parrot: LLM, lookup: object) -> None:
    with pytest.raises(ValueError, match=f"lookup is {lookup}"):
        parrot.generate(PROMPT, lookup=lookup)


def test_smollm2_copies_faster_than_token_by_token(smollm2: LLM) -> None:
    sentence = "The keeper of the lighthouse counts the ships that pass in the night."
    messages = [{"role": "user", "content": f"Repeat this sentence exactly: {sentence}"}]
    expected = smollm2.chat(messages, max_new_tokens=40)
    assert smollm2.chat(messages, max_new_tokens=40, lookup=4) == expected
    assert smollm2.last_stats.accepted_tokens > 5


def test_cli(run: Callable[..., tuple[int, str, str]], tiny_path: Path) -> None:
    command = ["generate", "-m", tiny_path, "--raw", "-n", 30, PROMPT]
    expected = run(*command)
    status, text, err = run(*command, "--lookup", 3)
    assert (status, text) == expected[:2]
    assert "accepted" in err
    assert "accepted" not in expected[2]


def test_bench(
    run: Callable[..., tuple[int, str, str]], smollm2_path: Path, tmp_path: Path
) -> None:
    """It checks the texts itself; copying accepts more guesses than a story does."""
    target = tmp_path / "lookup.md"
    options = ["--guesses", 3, "--tokens", 32, "--rounds", 1, "--markdown", target]
    status, out, err = run("bench", "lookup", "-m", smollm2_path, *options)
    assert (status, err) == (0, "")
    rows = [line.split("|")[1:-1] for line in target.read_text().splitlines() if "%" in line]
    cells = {(row[0].strip(), row[1].strip()): float(row[3]) for row in rows}
    assert cells["copy", "3"] > cells["open", "3"] >= cells["open", "off"] == 1
    assert "Prompt lookup" in out
