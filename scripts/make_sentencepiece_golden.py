#!/usr/bin/env python3
"""Write tests/data/sentencepiece_tokens.json: a small SentencePiece BPE model and its ids.

Needs sentencepiece (pip install sentencepiece). Usage:
    python scripts/make_sentencepiece_golden.py

The model has byte fallback and a dummy prefix as Llama 2's, TinyLlama's and Mistral's have; it is
trained on tests/data/wikitext2_test_prefix.txt. The file holds pieces, scores and GGUF token types
(as llama.cpp's converter writes them) and texts [{text, ids}]. sentencepiece itself does not
recognise control tokens in text.
"""

import json
import sys
import tempfile
from pathlib import Path

import sentencepiece

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from make_tokenizer_golden import TEXTS  # noqa: E402

OUTPUT = ROOT / "tests" / "data" / "sentencepiece_tokens.json"
CORPUS = ROOT / "tests" / "data" / "wikitext2_test_prefix.txt"
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6


def train(directory: Path) -> sentencepiece.SentencePieceProcessor:
    sentencepiece.SentencePieceTrainer.train(
        input=str(CORPUS),
        model_prefix=str(directory / "small"),
        model_type="bpe",
        vocab_size=700,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        character_coverage=0.999,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_file=str(directory / "small.model"))


def token_type(model: sentencepiece.SentencePieceProcessor, i: int) -> int:
    if model.is_unknown(i):
        return UNKNOWN
    if model.is_control(i):
        return CONTROL
    return BYTE if model.is_byte(i) else NORMAL


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        model = train(Path(directory))
    ids = range(model.vocab_size())
    texts = [text for text in TEXTS if "<|" not in text]
    content = {
        "sentencepiece": sentencepiece.__version__,
        "pieces": [model.id_to_piece(i) for i in ids],
        "scores": [model.get_score(i) for i in ids],
        "types": [token_type(model, i) for i in ids],
        "texts": [{"text": text, "ids": model.encode(text)} for text in texts],
    }
    OUTPUT.write_text(json.dumps(content, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    print(f"{OUTPUT}: {len(texts)} texts, {len(content['pieces'])} pieces")


if __name__ == "__main__":
    main()
