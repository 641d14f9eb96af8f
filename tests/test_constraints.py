"""Constrained answers: whatever the model wants to say, schema and expression hold."""

import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from intattention import LLM
from intattention.constraints import Constraints

installed = importlib.util.find_spec("llguidance") is not None
needs_llguidance = pytest.mark.skipif(not installed, reason="llguidance is not installed")

PROMPT = "the one in the"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "ü"]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


@needs_llguidance
@pytest.mark.parametrize("seed", range(8))
def test_a_random_model_obeys_a_schema(tiny: LLM, seed: int) -> None:
    """Its weights are noise, so that nothing but the constraint makes this JSON."""
    text = tiny.generate(PROMPT, json_schema=PERSON, temperature=1.0, seed=seed, max_new_tokens=100)
    assert tiny.last_stats.finish_reason == "eos"
    jsonschema.validate(json.loads(text), PERSON)


@needs_llguidance
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("regex", [r"[a-c]{3,6}", r"(yes|no)!", r"[0-9]{2}:[0-9]{2}", "[é☃]{2}"])
def test_a_random_model_obeys_a_regex(tiny: LLM, seed: int, regex: str) -> None:
    """Characters of several bytes are several tokens here."""
    text = tiny.generate(PROMPT, regex=regex, temperature=1.5, seed=seed)
    assert tiny.last_stats.finish_reason == "eos"
    assert re.fullmatch(regex, text), text  # classes like \d would depend on Unicode's version


@needs_llguidance
def test_greedy_takes_the_best_allowed_token(tiny: LLM) -> None:
    constraint = Constraints(tiny.tokenizer).make(None, r"[a-c]{3}")
    assert constraint is not None
    mask = constraint.allowed()
    allowed = {tiny.tokenizer.token_bytes(i) for i in np.flatnonzero(mask)}
    assert allowed == {b"a", b"b", b"c"}
    logits = tiny._session.prefill(tiny.tokenizer.encode(PROMPT))
    best = max(np.flatnonzero(mask), key=lambda i: logits[i])
    text = tiny.generate(PROMPT, regex=r"[a-c]{3}")
    assert text[0].encode() == tiny.tokenizer.token_bytes(int(best))


@needs_llguidance
def test_control_tokens_are_no_text(tiny: LLM) -> None:
    """A text like <|im_end|> may be allowed, the token of that name may not."""
    constraint = Constraints(tiny.tokenizer).make(None, r"<\|im_end\|>")
    assert constraint is not None
    allowed = {tiny.tokenizer.token_bytes(i) for i in np.flatnonzero(constraint.allowed())}
    assert allowed == {b"<"}
    assert tiny.generate(PROMPT, regex=r"<\|im_end\|>") == "<|im_end|>"


@needs_llguidance
def test_stream_lookup_and_penalty_go_together(tiny: LLM) -> None:
    options = {"regex": r"(ab|ba){10,20}", "temperature": 0.9, "seed": 2, "max_new_tokens": 60}
    expected = tiny.generate(PROMPT, **options)
    assert re.fullmatch(options["regex"], expected)
    assert "".join(tiny.generate(PROMPT, stream=True, **options)) == expected
    assert tiny.generate(PROMPT, lookup=4, **options) == expected
    assert tiny.last_stats.accepted_tokens > 0
    penalised = tiny.generate(PROMPT, repetition_penalty=1.5, top_k=3, **options)
    assert re.fullmatch(options["regex"], penalised)


@needs_llguidance
def test_schema_as_text_is_the_same(tiny: LLM) -> None:
    options = {"temperature": 1.0, "seed": 1, "max_new_tokens": 100}
    assert tiny.generate(PROMPT, json_schema=json.dumps(PERSON), **options) == tiny.generate(
        PROMPT, json_schema=PERSON, **options
    )


@needs_llguidance
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"json_schema": {"type": "nonsense"}}, "json_schema: "),
        ({"json_schema": "{"}, "json_schema is no JSON"),
        ({"json_schema": "[1]"}, "expected an object"),
        ({"json_schema": 7}, "expected an object"),
        ({"json_schema": {"a": {1, 2}}}, "json_schema is no JSON"),
        ({"regex": "("}, "regex: "),
        ({"regex": ""}, "regex is ''"),
        ({"regex": b"a"}, "regex is b'a'"),
        ({"regex": "a", "json_schema": {}}, "exclude each other"),
    ],
)
def test_bad_constraints(tiny: LLM, options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        tiny.generate(PROMPT, **options)
    assert tiny.generate(PROMPT, max_new_tokens=2)


@needs_llguidance
def test_a_model_without_an_end_token_cannot(write_tiny: Callable[..., Path]) -> None:
    metadata = {"tokenizer.ggml.eos_token_id": None, "tokenizer.chat_template": None}
    llm = LLM.load(write_tiny(metadata=metadata), threads=1)
    assert not llm.tokenizer.end_ids
    with pytest.raises(RuntimeError, match="no token that ends a turn"):
        llm.generate(PROMPT, regex="a")


@pytest.mark.skipif(installed, reason="llguidance is installed")
def test_without_llguidance(tiny: LLM) -> None:
    with pytest.raises(RuntimeError, match=r"pip install 'intattention\[constraints\]'"):
        tiny.generate(PROMPT, regex="a")


@needs_llguidance
def test_smollm2_fills_a_schema(smollm2: LLM) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
        "required": ["city", "country"],
        "additionalProperties": False,
    }
    question = "Name the capital of France, as JSON with city and country."
    answer = json.loads(smollm2.chat([{"role": "user", "content": question}], json_schema=schema))
    assert answer["city"] == "Paris"


@needs_llguidance
def test_cli(run: Callable[..., tuple[int, str, str]], tiny_path: Path, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"enum": ["x", "yy"]}')
    command = ["generate", "-m", tiny_path, "--raw", PROMPT]
    status, text, _ = run(*command, "--json-schema", schema)
    assert (status, json.loads(text)) in [(0, "x"), (0, "yy")]
    assert run(*command, "--regex", "[0-9]{3}x")[1][3:] == "x\n"
    assert run(*command, "--regex", "(")[0] == 1
