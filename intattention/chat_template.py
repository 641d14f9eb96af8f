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
"""{"role": "system" | "user" | "assistant" | ..., "content": text}"""


class ChatTemplate:
    """A template; ``special_tokens`` are its "bos_token" and "eos_token", if the model has them."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self.source = source
        self._special_tokens = dict(special_tokens)
        self._template: jinja2.Template | None = None

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """The text the model sees.

        ValueError if the messages are malformed or the template refuses them, or is itself broken.
        """
        check_messages(messages)
        try:
            if self._template is None:
                self._template = _environment().from_string(self.source)
            return self._template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                tools=None,
                documents=None,
                **self._special_tokens,
            )
        except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise ValueError(f"the chat template fails: {error}") from error


def check_messages(messages: Sequence[Message]) -> None:
    """ValueError unless there is at least one message, each with a role and a text."""
    if not messages:
        raise ValueError("messages is empty")
    for i, message in enumerate(messages):
        for key in ("role", "content"):
            value = message.get(key) if isinstance(message, Mapping) else None
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
