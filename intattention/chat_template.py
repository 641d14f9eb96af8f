"""Chat templates: the Jinja text of a model file, rendered in a sandbox as transformers does."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

Message = Mapping[str, Any]
"""{"role": "system" | "user" | "assistant" | "tool", "content": text}

An assistant's message may hold "tool_calls" and then no content.
"""
Tool = Mapping[str, Any]
"""A function's description as JSON schema, in the form the template expects."""


class ChatTemplate:
    """A template; ``special_tokens``: its "bos_token", "eos_token" ..., if the model has them."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self.source = source
        self._special_tokens = dict(special_tokens)
        self._template: jinja2.Template | None = None

    def render(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        tools: Sequence[Tool] | None = None,
        **variables: Any,
    ) -> str:
        """The text the model sees. ``variables``: what else the template understands, such as
        Qwen3's ``enable_thinking``.

        ValueError if the messages are malformed or the template refuses them, or is itself broken.
        """
        check_messages(messages)
        try:
            if self._template is None:
                self._template = _environment().from_string(self.source)
            return self._template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                tools=[dict(tool) for tool in tools] if tools else None,
                documents=None,
                **self._special_tokens,
                **variables,
            )
        except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise ValueError(f"the chat template fails: {error}") from error


def check_messages(messages: Sequence[Message]) -> None:
    """ValueError unless there is at least one message, each with a role and a text; the text may
    be missing where there are tool calls."""
    if not messages:
        raise ValueError("messages is empty")
    for i, message in enumerate(messages):
        for key in ("role", "content"):
            value = message.get(key) if isinstance(message, Mapping) else None
            if key == "content" and value is None and message.get("tool_calls"):
                continue
            if not isinstance(value, str):
                raise ValueError(f"messages[{i}] is {message!r}: {key!r} must be a string")


class _Generation(Extension):
    """``{% generation %}`` marks what the assistant says; for rendering it is transparent."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance attribute

    def parse(self, parser: Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own tojson escapes HTML, which a prompt must not
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)
