"""Text <-> token ids, from a checkpoint's ``tokenizer.*`` metadata (byte-level BPE)."""

import codecs
from collections.abc import Callable, Sequence

from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE

from intattention.chat_template import ChatTemplate
from intattention.checkpoint import Checkpoint
from intattention.errors import ModelFileError, UnsupportedModelError
from intattention.metadata import Metadata

CONTROL, USER_DEFINED = 3, 4
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
# Control tokens that end a turn if the chat template writes them.
TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>",
             "<|end_of_text|>", "<end_of_turn>", "</s>")  # fmt: skip

LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")


def _split(pattern: str) -> list[pre_tokenizers.PreTokenizer]:
    return [
        pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]


# tokenizer.ggml.pre -> how text is cut before BPE
PRE_TOKENIZERS: dict[str, Callable[[], list[pre_tokenizers.PreTokenizer]]] = {
    "gpt-2": lambda: [pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "smollm": lambda: [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ],
    "llama-bpe": lambda: _split(LLAMA3_SPLIT),
    "qwen2": lambda: _split(QWEN2_SPLIT),
}


class TextTokenizer:
    """The tokenizer of one model. ``bos_id`` is None if the model has none."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        """ModelFileError if the metadata is damaged, UnsupportedModelError if of another kind."""
        meta = Metadata(checkpoint.path, checkpoint.metadata)
        kind = meta.text("tokenizer.ggml.model")
        if kind != "gpt2":
            raise UnsupportedModelError(
                f"{checkpoint.path}: the tokenizer model {kind!r} is not supported; supported: gpt2"
            )
        self._path = checkpoint.path
        self._tokens = meta.texts("tokenizer.ggml.tokens")
        self._types = meta.integers("tokenizer.ggml.token_type")
        if len(self._types) != len(self._tokens):
            raise ModelFileError(
                f"{self._path}: {len(self._types)} token types for {len(self._tokens)} tokens"
            )
        pre = meta.text("tokenizer.ggml.pre")
        self._tokenizer = self._build(pre, meta.texts("tokenizer.ggml.merges"))
        self.bos_id = self._optional_id(meta, "bos_token_id")
        self.eos_id = self._optional_id(meta, "eos_token_id")
        self.add_bos = meta.flag("tokenizer.ggml.add_bos_token", default=False)
        template = meta.text("tokenizer.chat_template", default="")
        self.chat_template = ChatTemplate(template, self._special_tokens()) if template else None
        self.end_ids = self._end_ids(meta, template)

    @property
    def vocab_size(self) -> int:
        """Number of tokens, special ones included."""
        return len(self._tokens)

    def encode(self, text: str, add_bos: bool | None = None) -> list[int]:
        """Token ids of ``text``, in which control tokens are recognised.

        Bytes for which the vocabulary has no token are left out, as the model's authors do.
        ``add_bos``: whether to begin with the BOS token; None does what the model file says.
        ValueError if the text holds lone surrogates, which UTF-8 cannot express.
        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(f"the text is not valid Unicode: {error}") from error
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        wanted = self.add_bos if add_bos is None else add_bos
        return [self.bos_id, *ids] if wanted and self.bos_id is not None else ids

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of ``ids``; bytes that are not UTF-8 become U+FFFD."""
        stream = self.stream(skip_special)
        return "".join(map(stream.push, ids)) + stream.flush()

    def stream(self, skip_special: bool = True) -> "TextStream":
        """A new streaming detokeniser."""
        return TextStream(self, skip_special)

    def token_bytes(self, token_id: int, skip_special: bool = True) -> bytes:
        """The bytes that a token stands for. IndexError if there is no such token."""
        token = self._tokens[token_id]
        if self._types[token_id] in (CONTROL, USER_DEFINED):
            control = self._types[token_id] == CONTROL
            return b"" if control and skip_special else token.encode("utf-8")
        return b"".join(BYTES.get(char) or char.encode("utf-8") for char in token)

    def _build(self, pre: str, merges: list[str]) -> Tokenizer:
        if pre not in PRE_TOKENIZERS:
            raise UnsupportedModelError(
                f"{self._path}: tokenizer.ggml.pre {pre!r} is not supported; "
                f"supported: {', '.join(PRE_TOKENIZERS)}"
            )
        vocab = {token: i for i, token in enumerate(self._tokens)}
        if not vocab or len(vocab) != len(self._tokens):
            raise ModelFileError(f"{self._path}: tokenizer.ggml.tokens is empty or has duplicates")
        pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
        try:
            model = BPE(vocab, pairs, ignore_merges=pre == "llama-bpe")
        except Exception as error:  # the Rust side raises plain Exception
            raise ModelFileError(f"{self._path}: tokenizer.ggml.merges: {error}") from error
        tokenizer = Tokenizer(model)
        if pre == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(PRE_TOKENIZERS[pre]())
        tokenizer.add_special_tokens(self._added_tokens())
        return tokenizer

    def _added_tokens(self) -> list[AddedToken]:
        return [
            AddedToken(token, special=True, normalized=False)
            for token, type_ in zip(self._tokens, self._types, strict=True)
            if type_ in (CONTROL, USER_DEFINED) and token
        ]

    def _optional_id(self, meta: Metadata, name: str) -> int | None:
        key = f"tokenizer.ggml.{name}"
        if key not in meta.values:
            return None
        return meta.integer(key, 0, len(self._tokens) - 1)

    def _special_tokens(self) -> dict[str, str]:
        ids = {"bos_token": self.bos_id, "eos_token": self.eos_id}
        return {name: self._tokens[i] for name, i in ids.items() if i is not None}

    def _end_ids(self, meta: Metadata, template: str) -> frozenset[int]:
        """What the metadata names as ends, and the turn ends that the template writes."""
        named = {self._optional_id(meta, key) for key in END_KEYS}
        written = {
            i
            for i, (token, type_) in enumerate(zip(self._tokens, self._types, strict=True))
            if type_ == CONTROL and token in TURN_ENDS and token in template
        }
        return frozenset(i for i in named | written if i is not None)


class TextStream:
    """Turns tokens into text piece by piece and never emits half a character."""

    def __init__(self, tokenizer: TextTokenizer, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that is complete after this token; may be empty."""
        return self._decoder.decode(self._tokenizer.token_bytes(token_id, self._skip_special))

    def flush(self) -> str:
        """The end: U+FFFD if a character was left incomplete, else empty."""
        return self._decoder.decode(b"", final=True)


def _byte_alphabet() -> dict[str, bytes]:
    """GPT-2's alphabet: printable bytes stand for themselves, the others for U+0100 onwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): bytes([byte]) for byte in printable}
    return alphabet | {chr(256 + i): bytes([byte]) for i, byte in enumerate(others)}


BYTES = _byte_alphabet()
