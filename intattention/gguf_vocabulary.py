"""``tokenizer.ggml.*`` -> Vocabulary: byte-level BPE ("gpt2") and SentencePiece BPE ("llama")."""

from collections.abc import Callable, Sequence

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers.models import BPE

from intattention.checkpoint import Checkpoint
from intattention.errors import ModelFileError, UnsupportedModelError
from intattention.metadata import Metadata
from intattention.vocabulary import SPACE, Vocabulary, turn_ends

UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4
MODELS = ("gpt2", "llama")
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
SPECIAL_KEYS = {"bos_token": "bos_token_id", "eos_token": "eos_token_id",
                "unk_token": "unknown_token_id", "pad_token": "padding_token_id"}  # fmt: skip

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
    "deepseek-r1-qwen": lambda: _split(QWEN2_SPLIT),
}


def read_vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    """ModelFileError if the metadata is damaged, UnsupportedModelError if of another kind."""
    return _Reader(checkpoint).read()


class _Reader:
    def __init__(self, checkpoint: Checkpoint) -> None:
        self.meta = Metadata(checkpoint.path, checkpoint.metadata)
        self.model = self.meta.text("tokenizer.ggml.model")
        if self.model not in MODELS:
            raise UnsupportedModelError(
                f"{checkpoint.path}: the tokenizer model {self.model!r} is not supported; "
                f"supported: {', '.join(MODELS)}"
            )
        self.tokens = self.meta.texts("tokenizer.ggml.tokens")
        self.types = self.meta.integers("tokenizer.ggml.token_type")
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        if len(self.types) != len(self.tokens):
            self.fail(f"{len(self.types)} token types for {len(self.tokens)} tokens")

    def read(self) -> Vocabulary:
        byte_level = self.model == "gpt2"
        tokenizer = self.byte_level() if byte_level else self.sentencepiece()
        self.check_vocabulary()
        tokenizer.add_special_tokens(self.added_tokens(CONTROL))
        tokenizer.add_tokens(self.added_tokens(USER_DEFINED))
        control = self.of_type(CONTROL)
        special = {name: self.optional_id(key) for name, key in SPECIAL_KEYS.items()}
        add_bos = self.meta.flag("tokenizer.ggml.add_bos_token", default=self.bos_by_default())
        if add_bos:
            self.begin_with(tokenizer, special["bos_token"])
        template = self.meta.text("tokenizer.chat_template", default="")
        named = {self.optional_id(key) for key in END_KEYS} - {None}
        written = turn_ends(template, {self.tokens[i]: i for i in control})
        return Vocabulary(
            tokenizer=tokenizer,
            tokens=self.tokens,
            spelling="byte-level" if byte_level else "sentencepiece",
            control=control,
            literal=self.of_type(USER_DEFINED),
            special={name: i for name, i in special.items() if i is not None},
            add_bos=add_bos,
            end_ids=frozenset(i for i in named | written if i is not None),
            chat_template=template,
        )

    def bos_by_default(self) -> bool:
        """As llama.cpp has it for files without the key."""
        return self.model == "llama" or self.meta.text("tokenizer.ggml.pre") == "llama-bpe"

    def byte_level(self) -> Tokenizer:
        pre = self.meta.text("tokenizer.ggml.pre")
        if pre not in PRE_TOKENIZERS:
            raise UnsupportedModelError(
                f"{self.meta.path}: tokenizer.ggml.pre {pre!r} is not supported; "
                f"supported: {', '.join(PRE_TOKENIZERS)}"
            )
        merges = [merge.partition(" ") for merge in self.meta.texts("tokenizer.ggml.merges")]
        pairs = [(left, right) for left, _, right in merges]
        tokenizer = self.bpe(pairs, ignore_merges=pre == "llama-bpe")
        if "qwen" in pre:
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(PRE_TOKENIZERS[pre]())
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer

    def sentencepiece(self) -> Tokenizer:
        scores = self.meta.numbers("tokenizer.ggml.scores")
        if len(scores) != len(self.tokens):
            self.fail(f"{len(scores)} scores for {len(self.tokens)} tokens")
        unknown = self.meta.integer("tokenizer.ggml.unknown_token_id", 0, len(self.tokens) - 1, 0)
        tokenizer = self.bpe(
            score_merges(self.tokens, scores),
            unk_token=self.tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
        steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", SPACE)]
        spelling = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
        if self.meta.flag("tokenizer.ggml.add_space_prefix", default=True):
            steps.insert(0, normalizers.Prepend(SPACE))
            spelling.append(decoders.Strip(" ", 1, 0))
        tokenizer.normalizer = normalizers.Sequence(steps)
        tokenizer.decoder = decoders.Sequence(spelling)
        return tokenizer

    def begin_with(self, tokenizer: Tokenizer, bos_id: int | None) -> None:
        """For others who read the tokenizer.json that ``pack`` makes of it."""
        if bos_id is not None:
            bos = {"id": "bos", "ids": [bos_id], "tokens": [self.tokens[bos_id]]}
            tokenizer.post_processor = processors.TemplateProcessing(
                single="bos $A", pair="bos $A bos $B", special_tokens=[bos]
            )

    def bpe(self, pairs: Sequence[tuple[str, str]], **options: object) -> Tokenizer:
        try:
            return Tokenizer(BPE(self.ids, pairs, **options))
        except Exception as error:  # the Rust side raises plain Exception
            self.check_vocabulary()
            raise ModelFileError(f"{self.meta.path}: tokenizer.ggml.merges: {error}") from error

    def check_vocabulary(self) -> None:
        if not self.ids or len(self.ids) != len(self.tokens):
            self.fail("tokenizer.ggml.tokens is empty or has duplicates")

    def added_tokens(self, type_: int) -> list[AddedToken]:
        return [
            AddedToken(self.tokens[i], special=type_ == CONTROL, normalized=False)
            for i in sorted(self.of_type(type_))
            if self.tokens[i]
        ]

    def of_type(self, wanted: int) -> frozenset[int]:
        return frozenset(i for i, type_ in enumerate(self.types) if type_ == wanted)

    def optional_id(self, name: str) -> int | None:
        key = f"tokenizer.ggml.{name}"
        if key not in self.meta.values:
            return None
        return self.meta.integer(key, 0, len(self.tokens) - 1)

    def fail(self, problem: str) -> None:
        raise ModelFileError(f"{self.meta.path}: {problem}")


def score_merges(tokens: Sequence[str], scores: Sequence[float]) -> list[tuple[str, str]]:
    """BPE merges that do what SentencePiece does with scores: the best piece first.

    Ties go to the pair with the longer left part, then the longer right one, as transformers'
    converter has it.
    """
    ids = {token: i for i, token in enumerate(tokens)}
    merges: list[tuple[float, int, int, str, str]] = []
    for token, score in zip(tokens, scores, strict=True):
        cuts = ((token[:i], token[i:]) for i in range(1, len(token)))
        pairs = [(left, right) for left, right in cuts if left in ids and right in ids]
        pairs.sort(key=lambda pair: (ids[pair[0]], ids[pair[1]]))
        merges += [(score, len(left), len(right), left, right) for left, right in pairs]
    merges.sort(key=lambda merge: merge[:3], reverse=True)
    return [merge[3:] for merge in merges]
