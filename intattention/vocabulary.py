"""What a tokenizer's files say, whatever their format: the common ground of GGUF and HF folders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tokenizers import Tokenizer

# Control tokens that end a turn if the chat template writes them.
TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>",
             "<|end_of_text|>", "<end_of_turn>", "</s>")  # fmt: skip
SPACE = "\u2581"  # SentencePiece writes a space as this

Spelling = Literal["byte-level", "sentencepiece"]


@dataclass(frozen=True)
class Vocabulary:
    """``tokenizer`` turns text into ids, without BOS. ``tokens``: by id, "" where there is none.

    ``control`` tokens leave no text; they and the other ``literal`` ones are spelled as they
    stand, the rest as ``spelling`` says. ``add_bos``: whether text begins with the BOS token.
    """

    tokenizer: Tokenizer
    tokens: Sequence[str]
    spelling: Spelling
    control: frozenset[int]
    literal: frozenset[int]
    special: Mapping[str, int]
    """ "bos_token", "eos_token", ... -> id, where the model has them."""
    add_bos: bool
    end_ids: frozenset[int]
    chat_template: str

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for. IndexError if there is no such token."""
        token = self.tokens[token_id]
        if token_id in self.literal or token_id in self.control:
            return token.encode("utf-8")
        if self.spelling == "byte-level":
            return b"".join(BYTES.get(char) or char.encode("utf-8") for char in token)
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            return bytes([int(token[3:5], 16)])
        return token.replace(SPACE, " ").encode("utf-8")


def turn_ends(template: str, tokens: Mapping[str, int]) -> set[int]:
    """Ids of the control tokens that end a turn in ``template``."""
    return {tokens[name] for name in TURN_ENDS if name in tokens and name in template}


def _byte_alphabet() -> dict[str, bytes]:
    """GPT-2's alphabet: printable bytes stand for themselves, the others for U+0100 onwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): bytes([byte]) for byte in printable}
    return alphabet | {chr(256 + i): bytes([byte]) for i, byte in enumerate(others)}


BYTES = _byte_alphabet()
