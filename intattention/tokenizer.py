"""Text <-> token ids, from a checkpoint's metadata."""

import codecs
import copy
from collections.abc import Callable, Sequence
from typing import Any

from intattention import gguf_vocabulary, hf_vocabulary
from intattention.chat_template import ChatTemplate, Message, Tool
from intattention.checkpoint import Checkpoint
from intattention.control_guard import ControlGuard
from intattention.errors import UnsupportedModelError
from intattention.hf_texts import CONFIG, TOKENIZER
from intattention.vocabulary import Vocabulary


class TextTokenizer:
    """The tokenizer of one model. ``bos_id`` is None if the model has none."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        """ModelFileError if the metadata is damaged, UnsupportedModelError if of another kind."""
        vocabulary = read_vocabulary(checkpoint)
        self._vocabulary = vocabulary
        self.bos_id = vocabulary.special.get("bos_token")
        self.eos_id = vocabulary.special.get("eos_token")
        self.add_bos = vocabulary.add_bos
        self.end_ids = vocabulary.end_ids
        special = {name: vocabulary.tokens[i] for name, i in vocabulary.special.items()}
        template = vocabulary.chat_template
        self.chat_template = ChatTemplate(template, special) if template else None
        self._guard = ControlGuard(vocabulary.tokens[i] for i in vocabulary.control)

    @property
    def vocab_size(self) -> int:
        """Number of tokens, special ones included."""
        return len(self._vocabulary.tokens)

    def encode(self, text: str, add_bos: bool | None = None) -> list[int]:
        """Token ids of ``text``, in which control tokens are recognised.

        Bytes for which the vocabulary has no token are left out, as the model's authors do.
        ``add_bos``: whether to begin with the BOS token; None does what the model's files say.
        ValueError if the text holds lone surrogates, which UTF-8 cannot express.
        """
        text = self._checked(text)
        ids: list[int] = self._vocabulary.tokenizer.encode(text, add_special_tokens=False).ids
        wanted = self.add_bos if add_bos is None else add_bos
        return [self.bos_id, *ids] if wanted and self.bos_id is not None else ids

    def encode_chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] | None = None,
        **variables: Any,
    ) -> list[int]:
        """Token ids of the prompt that the chat template makes of ``messages``.

        Control tokens are the template's alone: where a message, a tool or a variable spells one
        out, it is text like any other. ``variables``: see ``ChatTemplate.render``.
        UnsupportedModelError if the model has no chat template, ValueError if it fails.
        """
        if self.chat_template is None:
            raise UnsupportedModelError("the model has no chat template; use generate()")
        asked: dict[str, Any] = {"messages": list(messages), "tools": tools and list(tools)}
        text = self.chat_template.render(**self._guard.protect({**variables, **asked}))
        if self._guard.guarded(text):
            return self._encode_guarded(text)
        return self.encode(text, add_bos=False)

    def _encode_guarded(self, text: str) -> list[int]:
        """As ``encode``, cut at the control tokens; between them there are none."""
        tokenizer, control = self._vocabulary.tokenizer, self._vocabulary.control
        marked = tokenizer.encode(self._checked(text), add_special_tokens=False)
        ids: list[int] = []
        done = 0
        tokenizer.encode_special_tokens = True  # special ones in the text are not recognised
        try:
            for token, (start, end) in zip(marked.ids, marked.offsets, strict=True):
                if token in control:
                    ids += self._plain_ids(text[done:start])
                    ids.append(token)
                    done = end
            return ids + self._plain_ids(text[done:])
        finally:
            tokenizer.encode_special_tokens = False

    def _plain_ids(self, text: str) -> list[int]:
        tokenizer, plain = self._vocabulary.tokenizer, self._guard.plain(text)
        return list(tokenizer.encode(plain, add_special_tokens=False).ids) if plain else []

    def plain_encoder(self) -> Callable[[str], list[int]]:
        """An encoder without BOS to which control tokens are text like any other; of its own, so
        that it may be used in another thread."""
        tokenizer = copy.deepcopy(self._vocabulary.tokenizer)
        tokenizer.encode_special_tokens = True
        return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of ``ids``; bytes that are not UTF-8 become U+FFFD."""
        stream = self.stream(skip_special, at_start=True)
        return "".join(map(stream.push, ids)) + stream.flush()

    def stream(self, skip_special: bool = True, at_start: bool = False) -> "TextStream":
        """A new streaming detokeniser. ``at_start``: a text begins, so that the space which
        SentencePiece puts before a first word is left out."""
        return TextStream(self, skip_special, at_start)

    def token_bytes(self, token_id: int, skip_special: bool = True) -> bytes:
        """The bytes that a token stands for. IndexError if there is no such token."""
        if skip_special and token_id in self._vocabulary.control:
            return b""
        return self._vocabulary.token_bytes(token_id)

    @staticmethod
    def _checked(text: str) -> str:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(f"the text is not valid Unicode: {error}") from error
        return text

    @property
    def spaces_first_word(self) -> bool:
        """Whether a text's first word is written with a space before it."""
        return self._vocabulary.spelling == "sentencepiece"


def read_vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    """Of a Hugging Face folder, a GGUF file or either packed. Errors as ``TextTokenizer``."""
    if CONFIG in checkpoint.metadata or TOKENIZER in checkpoint.metadata:
        return hf_vocabulary.read_vocabulary(checkpoint)
    return gguf_vocabulary.read_vocabulary(checkpoint)


class TextStream:
    """Turns tokens into text piece by piece and never emits half a character."""

    def __init__(self, tokenizer: TextTokenizer, skip_special: bool, at_start: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._drop_space = at_start and tokenizer.spaces_first_word

    def push(self, token_id: int) -> str:
        """The text that is complete after this token; may be empty."""
        text = self._decoder.decode(self._tokenizer.token_bytes(token_id, self._skip_special))
        if text and self._drop_space:
            self._drop_space = False
            return text.removeprefix(" ")
        return text

    def flush(self) -> str:
        """The end: U+FFFD if a character was left incomplete, else empty."""
        return self._decoder.decode(b"", final=True)
