"""Tools, calls of them and their results reach the chat template as the client sent them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import tiny_model
from live_server import MODEL, Live, live

from intattention import LLM

TEMPLATE = (
    "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}"
    "{% for m in messages %}{{ m.role }}:{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}({{ c.function.name }}{{ c.function.arguments }}){% endfor %}"
    "{% if m.tool_call_id %}#{{ m.tool_call_id }}{% endif %};{% endfor %}"
)
TOOLS: list[Any] = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
USER: Any = {"role": "user", "content": "2+2"}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
ROUND: list[Any] = [
    USER,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "4"},
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    path: Path = tmp_path_factory.mktemp("tools") / "tools.gguf"
    tiny_model.write(path, tiny_model.TinyModel(metadata={"tokenizer.chat_template": TEMPLATE}))
    with live(LLM.load(path, threads=1)) as server:
        yield server


@pytest.mark.parametrize(
    ("messages", "options", "prompt"),
    [
        ([USER], {}, "user:2+2;"),
        ([USER], {"tools": TOOLS}, "[add]user:2+2;"),
        ([USER], {"tools": TOOLS, "tool_choice": "none"}, "user:2+2;"),
        (
            ROUND,
            {"tools": TOOLS},
            '[add]user:2+2;assistant:(add{"a": 2});tool:4#c1;',
        ),
    ],
)
def test_the_template_sees_tools(
    served: Live, messages: list[Any], options: dict[str, Any], prompt: str
) -> None:
    """The answer and its token count are those of the text that the template should give."""
    same = {"model": MODEL, "max_tokens": 12, "temperature": 0}
    with openai.OpenAI(base_url=served.url, api_key="none", max_retries=0) as client:
        chat = client.chat.completions.create(messages=messages, **options, **same)
        plain = client.completions.create(prompt=prompt, **same)
    assert chat.usage is not None
    assert plain.usage is not None
    assert chat.usage.prompt_tokens == plain.usage.prompt_tokens
    assert (chat.choices[0].message.content or "").strip() == plain.choices[0].text.strip()


def test_a_choice_of_tool_that_is_not_built_is_refused(served: Live) -> None:
    status, answer = served.post(
        "/v1/chat/completions", messages=[USER], tools=TOOLS, tool_choice="required"
    )
    assert status == 400
    assert "tool_choice" in answer["error"]["message"]
