"""OpenAI's response objects, whole and in pieces."""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from intattention.serve.events import Event, TokenLogprob
from intattention.serve.protocol import ChatRequest, CompletionRequest, Text
from intattention.tokenizer import TextTokenizer

Json = dict[str, Any]
FINISH = {"eos": "stop", "stop": "stop", "length": "length", "context": "length"}


class Usage:
    """Tokens of a request's texts, added up from their last events."""

    def __init__(self, texts: Sequence[Text], n: int) -> None:
        self._prompt = sum(len(text.ids) for text in texts[::n])
        self._generated = self._reused = 0

    def add(self, event: Event) -> None:
        if event.last:
            self._generated += event.tokens
            self._reused += event.reused_tokens

    def json(self) -> Json:
        return {
            "prompt_tokens": self._prompt,
            "completion_tokens": self._generated,
            "total_tokens": self._prompt + self._generated,
            "prompt_tokens_details": {"cached_tokens": min(self._reused, self._prompt)},
        }


class Reply(ABC):
    """What the two kinds of reply share. ``piece`` gives a stream's JSON for an event, ``whole``
    the JSON for all of them."""

    object: str
    piece_object: str

    def __init__(self, prefix: str, model: str, tokenizer: TextTokenizer) -> None:
        self._head = {
            "id": f"{prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": None,
        }
        self._tokenizer = tokenizer

    def opening(self, choice: int) -> Json | None:
        """What a stream sends for a choice before its first event."""
        return None

    def piece(self, choice: int, event: Event) -> Json:
        return self._piece([self._choice(choice, [event], piece=True)])

    def usage(self, usage: Usage) -> Json:
        return {**self._piece([]), "usage": usage.json()}

    def whole(self, events: Sequence[Sequence[Event]], usage: Usage) -> Json:
        choices = [self._choice(i, all_, piece=False) for i, all_ in enumerate(events)]
        return {**self._head, "object": self.object, "choices": choices, "usage": usage.json()}

    def _piece(self, choices: list[Json]) -> Json:
        return {**self._head, "object": self.piece_object, "choices": choices}

    @abstractmethod
    def _choice(self, choice: int, events: Sequence[Event], piece: bool) -> Json: ...

    def _spelled(self, token: int) -> tuple[str, list[int]]:
        spelled = self._tokenizer.token_bytes(token, skip_special=False)
        return spelled.decode("utf-8", errors="replace"), list(spelled)


class CompletionReply(Reply):
    object = piece_object = "text_completion"

    def __init__(
        self,
        request: CompletionRequest,
        texts: Sequence[Text],
        model: str,
        tokenizer: TextTokenizer,
    ) -> None:
        super().__init__("cmpl", model, tokenizer)
        self._logprobs = request.logprobs is not None
        self._echoed = [
            tokenizer.decode(text.ids, skip_special=False) if request.echo else "" for text in texts
        ]
        self._offsets = [0] * len(texts)  # characters of the tokens so far

    def opening(self, choice: int) -> Json | None:
        if not self._echoed[choice]:
            return None
        return self._piece([self._json(choice, self._echoed[choice], None, "")])

    def _choice(self, choice: int, events: Sequence[Event], piece: bool) -> Json:
        text = "" if piece else self._echoed[choice]
        text += "".join(event.text for event in events)
        tokens = [t for e in events for t in (*e.prompt_logprobs, *e.logprobs)]
        logprobs = self._logprobs_json(choice, tokens) if self._logprobs else None
        return self._json(choice, text, logprobs, events[-1].finish_reason)

    def _json(self, choice: int, text: str, logprobs: Json | None, reason: str) -> Json:
        finish = FINISH.get(reason)
        return {"index": choice, "text": text, "logprobs": logprobs, "finish_reason": finish}

    def _logprobs_json(self, choice: int, tokens: Sequence[TokenLogprob]) -> Json:
        texts, offsets = [], []
        for token in tokens:
            texts.append(self._spelled(token.token)[0])
            offsets.append(self._offsets[choice])
            self._offsets[choice] += len(texts[-1])
        return {
            "tokens": texts,
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [self._top(token) for token in tokens],
            "text_offset": offsets,
        }

    def _top(self, token: TokenLogprob) -> dict[str, float] | None:
        if token.logprob is None:
            return None
        top: dict[str, float] = {}
        for other, logprob in (*token.top, (token.token, token.logprob)):
            top.setdefault(self._spelled(other)[0], logprob)  # pieces of characters look alike
        return top


class ChatReply(Reply):
    object, piece_object = "chat.completion", "chat.completion.chunk"

    def __init__(self, request: ChatRequest, model: str, tokenizer: TextTokenizer) -> None:
        super().__init__("chatcmpl", model, tokenizer)
        self._logprobs = bool(request.logprobs)

    def opening(self, choice: int) -> Json | None:
        delta = {"role": "assistant", "content": ""}
        return self._piece(
            [{"index": choice, "delta": delta, "logprobs": None, "finish_reason": None}]
        )

    def _choice(self, choice: int, events: Sequence[Event], piece: bool) -> Json:
        text = "".join(event.text for event in events)
        tokens = [self._token(token) for event in events for token in event.logprobs]
        content: Json = {"content": text} if text or not piece else {}
        said = content if piece else {"role": "assistant", **content, "refusal": None}
        return {
            "index": choice,
            "delta" if piece else "message": said,
            "logprobs": {"content": tokens, "refusal": None} if self._logprobs else None,
            "finish_reason": FINISH.get(events[-1].finish_reason),
        }

    def _token(self, token: TokenLogprob) -> Json:
        top = [self._entry(other, logprob) for other, logprob in token.top]
        return {**self._entry(token.token, token.logprob), "top_logprobs": top}

    def _entry(self, token: int, logprob: float | None) -> Json:
        text, spelled = self._spelled(token)
        return {"token": text, "bytes": spelled, "logprob": logprob}
