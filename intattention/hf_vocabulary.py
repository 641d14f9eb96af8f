"""tokenizer.json, tokenizer_config.json and generation_config.json -> Vocabulary."""

from typing import Any, NoReturn

from tokenizers import Tokenizer

from intattention.checkpoint import Checkpoint
from intattention.errors import ModelFileError, UnsupportedModelError
from intattention.hf_texts import CONFIG, parse_json
from intattention.vocabulary import Spelling, Vocabulary, turn_ends

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")


def read_vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    """ModelFileError if a file is damaged, UnsupportedModelError if of another kind."""
    return _Reader(checkpoint).read()


class _Reader:
    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        text = checkpoint.metadata.get(TOKENIZER)
        if not isinstance(text, str):
            self.fail(f"{TOKENIZER} is missing")
        try:
            self.tokenizer = Tokenizer.from_str(text)
        except Exception as error:  # the Rust side raises plain Exception
            self.fail(f"{TOKENIZER}: {error}")
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.description = parse_json(checkpoint, TOKENIZER)
        self.config = parse_json(checkpoint, TOKENIZER_CONFIG)
        self.ids: dict[str, int] = self.tokenizer.get_vocab(with_added_tokens=True)
        if not self.ids:
            self.fail(f"{TOKENIZER} has no tokens")

    def read(self) -> Vocabulary:
        tokens = [""] * (max(self.ids.values()) + 1)
        for token, i in self.ids.items():
            tokens[i] = token
        added = self.tokenizer.get_added_tokens_decoder()
        control = frozenset(i for i, token in added.items() if token.special)
        special = self.special()
        template = self.chat_template()
        ends = self.end_ids(special, len(tokens))
        return Vocabulary(
            tokenizer=self.tokenizer,
            tokens=tokens,
            spelling=self.spelling(),
            control=control,
            literal=frozenset(added),
            special=special,
            add_bos=self.add_bos(special.get("bos_token")),
            end_ids=frozenset(ends | turn_ends(template, {tokens[i]: i for i in control})),
            chat_template=template,
        )

    def spelling(self) -> Spelling:
        decoder = self.description.get("decoder") or {}
        steps = [decoder, *decoder.get("decoders", [])] if isinstance(decoder, dict) else []
        kinds = [step.get("type") for step in steps if isinstance(step, dict)]
        if "ByteLevel" in kinds:
            return "byte-level"
        if "ByteFallback" in kinds or "Metaspace" in kinds:
            return "sentencepiece"
        raise UnsupportedModelError(
            f"{self.checkpoint.path}: {TOKENIZER}: the decoder is {kinds}, "
            "supported: ByteLevel, ByteFallback, Metaspace"
        )

    def special(self) -> dict[str, int]:
        stated = {**parse_json(self.checkpoint, "special_tokens_map.json"), **self.config}
        found = {}
        for name in SPECIAL_NAMES:
            token = stated.get(name)
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str) and token in self.ids:
                found[name] = self.ids[token]
        return found

    def add_bos(self, bos_id: int | None) -> bool:
        """What tokenizer.json does; it counts, as in transformers 5, and not add_bos_token."""
        return bos_id is not None and self.tokenizer.encode("a").ids[:1] == [bos_id]

    def chat_template(self) -> str:
        file = self.checkpoint.metadata.get("chat_template.jinja")
        if isinstance(file, str):
            return file
        stated: Any = parse_json(self.checkpoint, "chat_template.json").get("chat_template")
        stated = stated or self.config.get("chat_template") or ""
        if isinstance(stated, list):  # several, by name
            named = {t.get("name"): t.get("template") for t in stated if isinstance(t, dict)}
            stated = named.get("default")
        if not isinstance(stated, str):
            self.fail(f"{TOKENIZER_CONFIG}: chat_template is no text and has no default")
        return stated

    def end_ids(self, special: dict[str, int], count: int) -> set[int]:
        """What config, generation_config and the tokenizer name as ends."""
        ends = {special["eos_token"]} if "eos_token" in special else set()
        for name in (CONFIG, "generation_config.json"):
            stated = parse_json(self.checkpoint, name).get("eos_token_id")
            for i in stated if isinstance(stated, list) else [stated]:
                if i is None:
                    continue
                if type(i) is not int or not 0 <= i < count:
                    self.fail(f"{name}: eos_token_id is {stated}, the tokenizer has {count} tokens")
                ends.add(i)
        return ends

    def fail(self, problem: str) -> NoReturn:
        raise ModelFileError(f"{self.checkpoint.path}: {problem}")
