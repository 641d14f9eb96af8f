"""Text <-> ids against transformers, UTF-8 streaming, end tokens, chat templates."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st

from intattention.chat_template import ChatTemplate
from intattention.errors import ModelFileError, UnsupportedModelError
from intattention.gguf_file import GGUFFile
from intattention.gguf_vocabulary import PRE_TOKENIZERS
from intattention.tokenizer import TextTokenizer

GOLDEN = json.loads((Path(__file__).parent / "data" / "smollm2_tokens.json").read_text("utf-8"))
WriteTiny = Callable[..., Path]
USER = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2_path: Path) -> TextTokenizer:
    return TextTokenizer(GGUFFile(smollm2_path))


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_path: Path) -> TextTokenizer:
    return TextTokenizer(GGUFFile(tiny_path))


# SmolLM2 --------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", GOLDEN["texts"], ids=range(len(GOLDEN["texts"])))
def test_ids_of_transformers(smollm2_tokenizer: TextTokenizer, case: dict[str, object]) -> None:
    assert smollm2_tokenizer.encode(str(case["text"])) == case["ids"]
    ids = [int(i) for i in case["ids"]]  # type: ignore[attr-defined]
    assert smollm2_tokenizer.decode(ids, skip_special=False) == case["decoded"]


@pytest.mark.parametrize("case", GOLDEN["chats"], ids=range(len(GOLDEN["chats"])))
def test_chats_of_transformers(smollm2_tokenizer: TextTokenizer, case: dict[str, object]) -> None:
    assert smollm2_tokenizer.chat_template is not None
    text = smollm2_tokenizer.chat_template.render(case["messages"])  # type: ignore[arg-type]
    assert text == case["text"]
    assert smollm2_tokenizer.encode(text, add_bos=False) == case["ids"]


def test_digits_beyond_ascii_stand_alone(smollm2_tokenizer: TextTokenizer) -> None:
    """SmolLM2's Digits pre-tokenizer, which transformers' GGUF path forgets: ½ leaves its space."""
    ids = smollm2_tokenizer.encode("a ½")
    assert ids == [*smollm2_tokenizer.encode("a "), *smollm2_tokenizer.encode("½")]


@settings(max_examples=200, deadline=None)
@given(text=st.text())
def test_round_trip(tiny_tokenizer: TextTokenizer, text: str) -> None:
    ids = tiny_tokenizer.encode(text)
    assert tiny_tokenizer.decode(ids, skip_special=False) == text


# SmolLM2 has no tokens for some control characters, nor for the bytes F1 and F2, with which the
# unassigned planes 4 to 11 begin.
EXPRESSIBLE = st.characters(
    codec="utf-8", max_codepoint=0x3FFFF, exclude_characters="\x04\x06\x13\x14\x16\x1d"
)


@settings(max_examples=200, deadline=None)
@given(text=st.text(EXPRESSIBLE))
def test_smollm2_round_trip(smollm2_tokenizer: TextTokenizer, text: str) -> None:
    ids = smollm2_tokenizer.encode(text)
    assert smollm2_tokenizer.decode(ids, skip_special=False) == text


# streaming ------------------------------------------------------------------------------------
def test_characters_are_never_split(tiny_tokenizer: TextTokenizer) -> None:
    text = "aé€😀 the"
    stream = tiny_tokenizer.stream()
    pieces = [stream.push(i) for i in tiny_tokenizer.encode(text)]
    assert "".join(pieces) == text
    assert not stream.flush()
    assert "\ufffd" not in "".join(pieces)
    assert [piece for piece in pieces if piece][:4] == ["a", "é", "€", "😀"]


def test_incomplete_character_comes_at_the_end(tiny_tokenizer: TextTokenizer) -> None:
    stream = tiny_tokenizer.stream()
    ids = tiny_tokenizer.encode("x😀")
    assert [stream.push(i) for i in ids[:-1]] == ["x", "", "", ""]
    assert stream.flush() == "\ufffd"


@settings(max_examples=200, deadline=None)
@given(ids=st.lists(st.integers(0, tiny_model.VOCAB - 1), max_size=40))
def test_stream_equals_decoding_at_once(tiny_tokenizer: TextTokenizer, ids: list[int]) -> None:
    stream = tiny_tokenizer.stream()
    joined = "".join(stream.push(i) for i in ids) + stream.flush()
    data = b"".join(tiny_tokenizer.token_bytes(i) for i in ids)
    assert joined == data.decode("utf-8", "replace") == tiny_tokenizer.decode(ids)


# special tokens -------------------------------------------------------------------------------
def test_control_tokens(tiny_tokenizer: TextTokenizer) -> None:
    ids = tiny_tokenizer.encode("<|im_start|>the<|im_end|>")
    assert (ids[0], ids[-1]) == (1, 2)
    assert tiny_tokenizer.decode(ids) == "the"
    assert tiny_tokenizer.decode(ids, skip_special=False) == "<|im_start|>the<|im_end|>"


def test_bos_only_if_the_file_says_so(write_tiny: WriteTiny, tiny_tokenizer: TextTokenizer) -> None:
    path = write_tiny(metadata={"tokenizer.ggml.add_bos_token": True})
    with_bos = TextTokenizer(GGUFFile(path))
    plain = tiny_tokenizer.encode("the")
    assert plain[0] != 1
    assert with_bos.encode("the") == [1, *plain]
    assert with_bos.encode("the", add_bos=False) == plain


@pytest.mark.parametrize(
    ("metadata", "ends"),
    [
        ({}, {2}),
        ({"tokenizer.ggml.eos_token_id": 0}, {0, 2}),
        ({"tokenizer.ggml.eot_token_id": 0}, {0, 2}),
        ({"tokenizer.ggml.eos_token_id": 0, "tokenizer.chat_template": None}, {0}),
        ({"tokenizer.ggml.eos_token_id": None, "tokenizer.chat_template": None}, set()),
    ],
)
def test_end_tokens(write_tiny: WriteTiny, metadata: dict[str, object], ends: set[int]) -> None:
    assert TextTokenizer(GGUFFile(write_tiny(metadata=metadata))).end_ids == ends


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_every_pre_tokenizer_round_trips(write_tiny: WriteTiny, pre: str) -> None:
    tokenizer = TextTokenizer(GGUFFile(write_tiny(metadata={"tokenizer.ggml.pre": pre})))
    text = "I'm the 1st of 12345; naïve\r\n\n  code:\tx=½+😀 "
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("gpt-2", ["I", "'m", " 123456", " x", "\n\n  ", " y"]),
        ("smollm", ["I", "'m", " ", "1", "2", "3", "4", "5", "6", " x", "\n\n  ", " y"]),
        ("llama-bpe", ["I", "'m", " ", "123", "456", " x", "\n\n", "  ", " y"]),
        ("qwen2", ["I", "'m", " ", "1", "2", "3", "4", "5", "6", " x", "\n\n", "  ", " y"]),
    ],
)
def test_where_text_is_cut(pre: str, words: list[str]) -> None:
    from tokenizers import pre_tokenizers

    cut = pre_tokenizers.Sequence(PRE_TOKENIZERS[pre]()).pre_tokenize_str("I'm 123456 x\n\n   y")
    assert [word.replace("Ġ", " ").replace("Ċ", "\n") for word, _ in cut] == words


def test_lone_surrogates_are_refused(tiny_tokenizer: TextTokenizer) -> None:
    with pytest.raises(ValueError, match="not valid Unicode"):
        tiny_tokenizer.encode("a\ud800")


def test_broken_vocabulary(write_tiny: WriteTiny) -> None:
    tokens, _ = tiny_model.vocabulary()
    path = write_tiny(metadata={"tokenizer.ggml.tokens": [tokens[4], *tokens[1:]]})
    with pytest.raises(ModelFileError, match="duplicates"):
        TextTokenizer(GGUFFile(path))
    with pytest.raises(UnsupportedModelError, match="bert"):
        TextTokenizer(GGUFFile(write_tiny(metadata={"tokenizer.ggml.model": "bert"})))


# chat templates -------------------------------------------------------------------------------
def render(source: str, **special: str) -> str:
    return ChatTemplate(source, special).render(USER)


def test_template_environment() -> None:
    assert render("{{ bos_token }}{{ messages[0].content }}", bos_token="<s>") == "<s>Hi"
    assert (
        render("{% for i in [1, 2] %}\n{% if i == 2 %}{% break %}{% endif %}\n{{ i }}{% endfor %}")
        == "1"
    )
    assert render("{{ {'a': '<é>'} | tojson }}") == '{"a": "<é>"}'
    assert render("{% generation %}x{% endgeneration %}") == "x"
    assert render("{{ strftime_now('%Y') }}").isdecimal()
    assert render("{{ tools is none and not custom }}") == "True"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% if %}", "chat template"),
        ("{{ messages[5].content }}", "no element 5"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "chat template"),
        ("{{ messages.append(1) }}", "unsafe|not safely"),
    ],
)
def test_template_failures_are_value_errors(source: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        render(source)


@pytest.mark.parametrize(
    "messages", [[], [{}], [{"role": "user"}], [{"role": "user", "content": 1}], ["Hi"]]
)
def test_malformed_messages(messages: list[dict[str, str]]) -> None:
    with pytest.raises(ValueError, match="messages"):
        ChatTemplate("x", {}).render(messages)
