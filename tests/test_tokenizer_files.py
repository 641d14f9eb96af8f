"""Tokenizers of every kind of file against SentencePiece and transformers; BOS, ends, templates."""

import json
from pathlib import Path

import pytest
import tiny_hf
import tokenizer_files as files
from tokenizers import Tokenizer, pre_tokenizers, processors

from intattention import LLM
from intattention.chat_template import ChatTemplate
from intattention.errors import UnsupportedModelError
from intattention.gguf_file import GGUFFile
from intattention.hf_folder import HFFolder
from intattention.tokenizer import TextTokenizer

CONFIG = tiny_hf.config("llama")
SETTINGS = {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.fixture(scope="module")
def sentencepiece_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return files.write_sentencepiece_gguf(tmp_path_factory.mktemp("sp") / "model.gguf")


def folder_tokenizer(
    folder: Path, tokenizer: Tokenizer | None = None, **texts: dict[str, object] | str
) -> TextTokenizer:
    """Of a folder with these files, ``tokenizer_config`` etc. by the name of the file."""
    written = {f"{name}.json": json.dumps(value) for name, value in texts.items()}
    if tokenizer is not None:
        written["tokenizer.json"] = tokenizer.to_str()
    return TextTokenizer(HFFolder(tiny_hf.write(folder, CONFIG, texts=written)))


# ids and text ---------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["gguf", "tokenizer.json"])
def test_ids_of_sentencepiece(sentencepiece_gguf: Path, tmp_path: Path, kind: str) -> None:
    if kind == "gguf":
        tokenizer = TextTokenizer(GGUFFile(sentencepiece_gguf))
    else:
        content = files.tokenizer_json(sentencepiece_gguf)
        tokenizer = folder_tokenizer(tmp_path, content, tokenizer_config=SETTINGS)
    for case in files.SENTENCEPIECE["texts"]:
        ids = tokenizer.encode(case["text"], add_bos=False)
        assert ids == case["ids"]
        assert tokenizer.decode(ids) == case["text"]


def test_ids_of_smollm2_from_tokenizer_json(smollm2_path: Path, tmp_path: Path) -> None:
    content = files.tokenizer_json(smollm2_path)
    settings = {"eos_token": "<|im_end|>"}
    tokenizer = folder_tokenizer(tmp_path, content, tokenizer_config=settings)
    for case in files.SMOLLM2["texts"]:
        assert tokenizer.encode(case["text"]) == case["ids"]
        assert tokenizer.decode(case["ids"], skip_special=False) == case["decoded"]


def test_a_continuation_keeps_its_space(sentencepiece_gguf: Path) -> None:
    tokenizer = TextTokenizer(GGUFFile(sentencepiece_gguf))
    ids = tokenizer.encode("the", add_bos=False)
    continued, begun = tokenizer.stream(), tokenizer.stream(at_start=True)
    assert "".join(map(continued.push, ids)) == " the"
    assert "".join(map(begun.push, ids)) == "the"


def test_bytes_wait_for_their_character(sentencepiece_gguf: Path) -> None:
    """An emoji that is not in the vocabulary is four byte tokens."""
    tokenizer = TextTokenizer(GGUFFile(sentencepiece_gguf))
    stream = tokenizer.stream(at_start=True)
    pieces = [stream.push(i) for i in tokenizer.encode("\U0001f600", add_bos=False)]
    assert len(pieces) >= 4
    assert pieces[-1] == "\U0001f600"
    assert not any(pieces[:-1])
    assert stream.flush() == ""


# BOS ------------------------------------------------------------------------------------------
def test_bos_of_gguf_files_without_the_key(
    sentencepiece_gguf: Path, write_tiny, tmp_path: Path
) -> None:
    assert TextTokenizer(GGUFFile(sentencepiece_gguf)).encode("the")[0] == 1
    for pre, expected in (("llama-bpe", True), ("qwen2", False), ("smollm", False)):
        keys = {"tokenizer.ggml.pre": pre, "tokenizer.ggml.add_bos_token": None}
        assert TextTokenizer(GGUFFile(write_tiny(metadata=keys))).add_bos == expected


def test_bos_of_folders(tmp_path: Path) -> None:
    plain = tiny_hf.tokenizer()
    with_bos = tiny_hf.tokenizer()
    with_bos.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
    )
    for i, (tokenizer, settings, expected) in enumerate(
        [
            (plain, SETTINGS, False),
            (with_bos, SETTINGS, True),
            (with_bos, {**SETTINGS, "add_bos_token": False}, True),
            (plain, {**SETTINGS, "add_bos_token": True}, False),
            (with_bos, {"eos_token": "</s>", "bos_token": None}, False),
        ]
    ):
        loaded = folder_tokenizer(tmp_path / str(i), tokenizer, tokenizer_config=settings)
        assert loaded.add_bos == expected
        assert (loaded.encode("the")[:1] == [1]) == expected
        assert loaded.encode("the", add_bos=False)[:1] != [1]


def test_truncation_and_padding_of_the_file_are_not_ours(tmp_path: Path) -> None:
    tokenizer = tiny_hf.tokenizer()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=64)
    assert len(folder_tokenizer(tmp_path, tokenizer).encode("a" * 20)) == 20


def test_decoders_that_are_not_known(tmp_path: Path) -> None:
    tokenizer = tiny_hf.tokenizer()
    content = json.loads(tokenizer.to_str())
    content["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    with pytest.raises(UnsupportedModelError, match=r"decoder is .*'WordPiece'.*supported: Byte"):
        folder_tokenizer(tmp_path, Tokenizer.from_str(json.dumps(content)))


# ends and templates ---------------------------------------------------------------------------
def test_ends_of_all_files(tmp_path: Path) -> None:
    """config.json says 2, generation_config 5 and 6, the tokenizer 2, the template <|im_end|>."""
    tokenizer = folder_tokenizer(
        tmp_path,
        tokenizer_config={**SETTINGS, "chat_template": "{{ messages[0].content }}<|im_end|>"},
        generation_config={"eos_token_id": [5, 6]},
    )
    assert tokenizer.end_ids == {2, 3, 5, 6}


def test_special_tokens_as_objects(tmp_path: Path) -> None:
    settings = {"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": {"content": "</s>"}}
    tokenizer = folder_tokenizer(tmp_path, tokenizer_config=settings)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (1, 2)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({"tokenizer_config.json": json.dumps({"chat_template": "A"})}, "A"),
        (
            {"tokenizer_config.json": json.dumps({"chat_template": "A"}),
             "chat_template.jinja": "B"}, "B",
        ),
        (
            {"tokenizer_config.json": "{}",
             "chat_template.json": json.dumps({"chat_template": "C"})}, "C",
        ),
        (
            {"tokenizer_config.json": json.dumps(
                {"chat_template": [{"name": "tool_use", "template": "T"},
                                   {"name": "default", "template": "D"}]})}, "D",
        ),
    ],
)  # fmt: skip
def test_where_the_template_stands(tmp_path: Path, texts: dict[str, str], expected: str) -> None:
    tokenizer = TextTokenizer(HFFolder(tiny_hf.write(tmp_path, CONFIG, texts=texts)))
    assert tokenizer.chat_template is not None
    assert tokenizer.chat_template.render([{"role": "user", "content": "x"}]) == expected


def test_no_template(tmp_path: Path) -> None:
    assert folder_tokenizer(tmp_path, tokenizer_config=SETTINGS).chat_template is None


TOOLS = (
    "{% for tool in tools or [] %}<tool>{{ tool | tojson }}</tool>{% endfor %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content or '' }}"
    "{% for call in m.tool_calls or [] %}<call>{{ call.function.name }}</call>{% endfor %}"
    "{% endfor %}"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
)


def test_tools_and_roles() -> None:
    tools = [{"type": "function", "function": {"name": "clock", "parameters": {"é": "<&>"}}}]
    messages = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "time?"},
        {"role": "assistant", "tool_calls": [{"function": {"name": "clock", "arguments": {}}}]},
        {"role": "tool", "content": "12:00"},
    ]
    template = ChatTemplate(TOOLS, {})
    assert template.render(messages, tools=tools) == (
        '<tool>{"type": "function", "function": {"name": "clock", "parameters": {"é": "<&>"}}}'
        "</tool>[system]S[user]time?[assistant]<call>clock</call>[tool]12:00"
    )
    assert template.render(messages[:2]) == "[system]S[user]time?"
    assert template.render(messages[:2], enable_thinking=False).endswith("<think></think>")
    with pytest.raises(ValueError, match="'content' must be a string"):
        template.render([{"role": "assistant", "tool_calls": []}])


def test_chat_gets_the_tools(tmp_path: Path) -> None:
    settings = json.dumps({**SETTINGS, "chat_template": TOOLS})
    folder = tiny_hf.write(tmp_path, CONFIG, texts={"tokenizer_config.json": settings})
    llm = LLM.load(folder, threads=1)
    message = [{"role": "user", "content": "x"}]
    counts = []
    for tools in (None, [{"name": "clock"}]):
        llm.chat(message, tools=tools, max_new_tokens=1)
        counts.append(llm.last_stats.prompt_tokens)
    assert counts[1] > counts[0] + len('{"name": "clock"}') // 2


def test_byte_level_prefix_space(tmp_path: Path) -> None:
    """tokenizer.json is run as it stands: here it puts a space before a text."""
    tokenizer = tiny_hf.tokenizer()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    loaded = folder_tokenizer(tmp_path, tokenizer)
    assert loaded.decode(loaded.encode("a")) == " a"
