"""Text <-> token ids, from a checkpoint's metadata."""

import codecs
from collections.abc import Sequence

from intattention import gguf_vocabulary, hf_vocabulary
from intattention.chat_template import ChatTemplate
from intattention.checkpoint import Checkpoint
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
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(f"the text is not valid Unicode: {error}") from error
        ids: list[int] = self._vocabulary.tokenizer.encode(text, add_special_tokens=False).ids
        wanted = self.add_bos if add_bos is None else add_bos
        return [self.bos_id, *ids] if wanted and self.bos_id is not None else ids

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
