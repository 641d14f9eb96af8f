"""OpenAI's requests: parsed, checked, and turned into texts to generate."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from intattention.constraints import Constraint
from intattention.errors import UnsupportedModelError
from intattention.llm import LLM
from intattention.sampling import SamplingParams
from intattention.serve.settings import MAX_LOGPROBS, MAX_STOPS, Settings

COMPLETION_TOKENS = 16  # OpenAI's default for /v1/completions
MAX_SEED = 2**63 - 1

Stop = StrictStr | Annotated[list[StrictStr], Field(max_length=MAX_STOPS)] | None
Ids = list[StrictInt]


@dataclass(frozen=True)
class Text:
    """One text to generate. ``logprobs``: alternatives per token, None: no log-probabilities.

    ``echo``: the prompt's log-probabilities are wanted as well. ``at_start``: a text begins.
    ``constraint``: what the text must fit; its own, since it changes with every token.
    """

    ids: Sequence[int]
    params: SamplingParams
    max_tokens: int
    stop: str | Sequence[str] | None
    logprobs: int | None
    echo: bool
    at_start: bool
    constraint: Constraint | None = None


class JsonSchema(BaseModel):
    """OpenAI's name and description are for its own models; the schema always holds."""

    model_config = ConfigDict(extra="ignore")

    json_schema: dict[str, Any] = Field(alias="schema")


class ResponseFormat(BaseModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    def schema_asked(self) -> dict[str, Any] | None:
        """ValueError: a schema was announced and did not come."""
        if self.type == "json_object":
            return {"type": "object"}
        if self.type == "text":
            return None
        if self.json_schema is None:
            raise ValueError("response_format: json_schema is missing")
        return self.json_schema.json_schema


class StreamOptions(BaseModel):
    include_usage: StrictBool = False


class Request(BaseModel):
    """What both kinds of request have. Fields that are not named here are ignored, as OpenAI's
    clients send a lot of bookkeeping; those that would change the answer are refused."""

    model_config = ConfigDict(extra="ignore")

    model: StrictStr
    temperature: Annotated[float, Field(ge=0, le=2)] | None = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] | None = 1.0
    top_k: Annotated[StrictInt, Field(ge=0)] = 0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    repetition_penalty: Annotated[float, Field(ge=1e-6, le=100)] = 1.0
    n: Annotated[StrictInt, Field(ge=1)] | None = 1
    seed: Annotated[StrictInt, Field(ge=0, le=MAX_SEED)] | None = None
    stop: Stop = None
    stream: StrictBool | None = False
    stream_options: StreamOptions | None = None
    presence_penalty: Literal[0] | None = None
    frequency_penalty: Literal[0] | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None
    response_format: ResponseFormat | None = None
    regex: StrictStr | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a piece that holds the usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    def sampling(self, choice: int) -> SamplingParams:
        """For the choice of that number: seeds count up, so that choices differ."""
        return SamplingParams(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            seed=None if self.seed is None else self.seed + choice,
        )

    def texts(self, llm: LLM, settings: Settings) -> list[Text]:
        """``n`` texts per prompt. ValueError for what fits neither model nor settings."""
        prompts, n = self.prompts(llm), self.n or 1
        if len(prompts) * n > settings.max_choices:
            raise ValueError(
                f"{len(prompts)} prompts times n = {n} exceed the limit of {settings.max_choices}"
            )
        for ids in prompts:
            check_prompt(ids, llm, settings)
        limit = self.token_limit(settings)
        if limit > settings.max_tokens:
            raise ValueError(f"max_tokens is {limit}, the server's limit {settings.max_tokens}")
        texts = [self.text(ids, choice, limit) for ids in prompts for choice in range(n)]
        return [replace(text, constraint=self.constraint(llm)) for text in texts]

    def constraint(self, llm: LLM) -> Constraint | None:
        """A fresh one. ValueError: not valid, or not to be had in this installation."""
        asked = self.response_format
        schema = None if asked is None else asked.schema_asked()
        try:
            return llm.constraints.make(schema, self.regex)
        except RuntimeError as error:
            raise ValueError(str(error)) from error

    @abstractmethod
    def prompts(self, llm: LLM) -> list[list[int]]: ...

    @abstractmethod
    def token_limit(self, settings: Settings) -> int: ...

    @abstractmethod
    def text(self, ids: list[int], choice: int, limit: int) -> Text: ...


class CompletionRequest(Request):
    """POST /v1/completions"""

    prompt: (
        StrictStr
        | Annotated[Ids, Field(min_length=1)]
        | Annotated[list[StrictStr], Field(min_length=1)]
        | Annotated[list[Ids], Field(min_length=1)]
    )
    max_tokens: Annotated[StrictInt, Field(ge=0)] | None = COMPLETION_TOKENS
    echo: StrictBool | None = False
    logprobs: Annotated[StrictInt, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    best_of: Literal[1] | None = None
    suffix: Literal[""] | None = None

    def prompts(self, llm: LLM) -> list[list[int]]:
        prompt = self.prompt
        if isinstance(prompt, str):
            return [llm.tokenizer.encode(prompt)]
        if isinstance(prompt[0], int):
            return [prompt]
        return [llm.tokenizer.encode(p) if isinstance(p, str) else p for p in prompt]

    def token_limit(self, settings: Settings) -> int:
        return COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens

    def text(self, ids: list[int], choice: int, limit: int) -> Text:
        echo = bool(self.echo) and self.logprobs is not None
        params = self.sampling(choice)
        return Text(ids, params, limit, self.stop, self.logprobs, echo, at_start=False)


class ChatMessage(BaseModel):
    """Further fields ("tool_calls", "name", "reasoning_content" ...) go to the chat template."""

    model_config = ConfigDict(extra="allow")

    role: StrictStr
    content: StrictStr | list["TextPart"] | None = None

    def for_template(self) -> dict[str, Any]:
        message = self.model_dump(exclude_none=True)
        if isinstance(self.content, list):
            message["content"] = "".join(part.text for part in self.content)
        return message


class TextPart(BaseModel):
    """Images and sound are not understood."""

    type: Literal["text"]
    text: StrictStr


class ChatRequest(Request):
    """POST /v1/chat/completions"""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_tokens: Annotated[StrictInt, Field(ge=0)] | None = None
    max_completion_tokens: Annotated[StrictInt, Field(ge=0)] | None = None
    logprobs: StrictBool | None = False
    top_logprobs: Annotated[StrictInt, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["auto", "none"] | None = None
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)

    def prompts(self, llm: LLM) -> list[list[int]]:
        if llm.tokenizer.chat_template is None:
            raise UnsupportedModelError("the model has no chat template; use /v1/completions")
        tools = None if self.tool_choice == "none" else self.tools
        messages = [message.for_template() for message in self.messages]
        for name in ("messages", "tools"):
            if name in self.chat_template_kwargs:
                raise ValueError(
                    f"chat_template_kwargs holds {name!r}, which is a field of its own"
                )
        return [llm.tokenizer.encode_chat(messages, tools, **self.chat_template_kwargs)]

    def token_limit(self, settings: Settings) -> int:
        asked = self.max_completion_tokens if self.max_tokens is None else self.max_tokens
        return settings.max_tokens if asked is None else asked

    def text(self, ids: list[int], choice: int, limit: int) -> Text:
        logprobs = (self.top_logprobs or 0) if self.logprobs else None
        params = self.sampling(choice)
        return Text(ids, params, limit, self.stop, logprobs, echo=False, at_start=True)


def check_prompt(ids: Sequence[int], llm: LLM, settings: Settings) -> None:
    """ValueError with the offending number."""
    if not ids:
        raise ValueError("the prompt has no tokens")
    if len(ids) >= settings.context:
        raise ValueError(
            f"the prompt has {len(ids)} tokens, the context {settings.context}: "
            "at least one must be left for the answer"
        )
    vocab = llm.config.vocab_size
    for i, token in enumerate(ids):
        if not 0 <= token < vocab:
            raise ValueError(f"token {token} at index {i} is outside the vocabulary of {vocab}")
