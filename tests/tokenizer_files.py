"""tokenizer.json files made from known vocabularies, and the texts that torture them."""

import json
from pathlib import Path
from typing import Any

import tiny_model
from tokenizers import Tokenizer

from intattention.gguf_file import GGUFFile
from intattention.gguf_vocabulary import read_vocabulary

DATA = Path(__file__).parent / "data"
SMOLLM2 = json.loads((DATA / "smollm2_tokens.json").read_text("utf-8"))
SENTENCEPIECE = json.loads((DATA / "sentencepiece_tokens.json").read_text("utf-8"))
TORTURE = [case["text"] for case in SMOLLM2["texts"]]


def sentencepiece_metadata() -> dict[str, Any]:
    """The keys of a GGUF file with the SentencePiece vocabulary."""
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": None,
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.tokens": SENTENCEPIECE["pieces"],
        "tokenizer.ggml.scores": SENTENCEPIECE["scores"],
        "tokenizer.ggml.token_type": SENTENCEPIECE["types"],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": None,
        "tokenizer.chat_template": None,
    }


def write_sentencepiece_gguf(path: Path) -> Path:
    model = tiny_model.TinyModel(metadata=sentencepiece_metadata())
    return tiny_model.write(path, model)


def tokenizer_json(gguf: Path) -> Tokenizer:
    """What a Hugging Face folder of the same model would hold as tokenizer.json."""
    return read_vocabulary(GGUFFile(gguf)).tokenizer
