"""tokenizer.json, tokenizer_config.json and generation_config.json <-> Vocabulary."""

import json
from typing import Any, NoReturn

from tokenizers import Tokenizer

from intattention.checkpoint import Checkpoint
from intattention.errors import ModelFileError, UnsupportedModelError
from intattention.hf_texts import (
    CHAT_TEMPLATE,
    CONFIG,
    GENERATION_CONFIG,
    OLD_CHAT_TEMPLATE,
    SPECIAL_TOKENS,
    TEXTS,
    TOKENIZER,
    TOKENIZER_CONFIG,
    parse_json,
)
from intattention.vocabulary import Spelling, Vocabulary, turn_ends

SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")


def read_vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    """ModelFileError if a file is damaged, UnsupportedModelError if of another kind."""
    return _Reader(checkpoint).read()


def folder_texts(vocabulary: Vocabulary, checkpoint: Checkpoint) -> dict[str, str]:
    """The files of a Hugging Face folder, name -> text, that ``read_vocabulary`` makes
    ``vocabulary`` of.

    Those that the checkpoint has stay as they are, but that generation_config.json names every
    end and that the template in force is chat_template.jinja, wherever they came from.
    """
    own = {name: str(checkpoint.metadata[name]) for name in TEXTS if name in checkpoint.metadata}
    special, template = vocabulary.special, vocabulary.chat_template
    spelled = {name: vocabulary.tokens[i] for name, i in special.items()}
    ids = {f"{name}_id": i for name, i in special.items() if name != "unk_token"}
    generation = {**ids, **parse_json(checkpoint, GENERATION_CONFIG)}
    generation["eos_token_id"] = sorted(vocabulary.end_ids)
    texts = {
        TOKENIZER: vocabulary.tokenizer.to_str(),
        TOKENIZER_CONFIG: json.dumps(spelled, ensure_ascii=False, indent=2),
        **own,
        GENERATION_CONFIG: json.dumps(generation, ensure_ascii=False, indent=2),
        **({CHAT_TEMPLATE: template} if template else {}),
    }
    return {name: texts[name] for name in TEXTS if name in texts}


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
        state = None if self.tokenizer.decoder is None else self.tokenizer.decoder.__getstate__()
        decoder = json.loads(state or b"{}")
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
        stated = {**parse_json(self.checkpoint, SPECIAL_TOKENS), **self.config}
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
        file = self.checkpoint.metadata.get(CHAT_TEMPLATE)
        if isinstance(file, str):
            return file
        stated: Any = parse_json(self.checkpoint, OLD_CHAT_TEMPLATE).get("chat_template")
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
        for name in (CONFIG, GENERATION_CONFIG):
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
