#!/usr/bin/env python3
"""Write tests/data/smollm2_tokens.json: texts and the token ids that transformers gives them.

Needs transformers, gguf and torch. Usage:
    python scripts/make_tokenizer_golden.py --gguf SmolLM2-135M-Instruct.Q4_1.gguf

transformers' GGUF path forgets SmolLM2's Digits pre-tokenizer. With ASCII digits that makes no
difference (no merge has one), so TEXTS has no others; tests/test_tokenizer.py covers those.

The file holds versions, the GGUF's SHA-256, texts [{text, ids, decoded}] and chats
[{messages, text, ids}] (the chat template with a generation prompt).
"""

import argparse
import hashlib
import json
import tempfile
from pathlib import Path

OUTPUT = Path(__file__).resolve().parents[1] / "tests" / "data" / "smollm2_tokens.json"
TEXTS = [
    "Hello, world!",
    " leading space",
    "trailing space ",
    "  two  spaces   three    four",
    "\n\nnew\nlines\r\n\ttabs\t\t",
    "   \n   \n",
    "In 1984, 1234567890 + 0.5e-3 = ?",
    "3.14159 2,000,000 1st 2nd v1.2.3",
    "I'm we'll they'd it's DON'T can't've",
    "naïve café Größe ñandú œuvre",
    "Καλημέρα κόσμε",
    "Привет, мир",
    "مرحبا بالعالم",
    "你好,世界。今天天气很好!",
    "こんにちは世界",
    "안녕하세요",
    "नमस्ते दुनिया",
    "😀👨‍👩‍👧‍👦🇫🇷 emoji ❤️",
    "e\u0301 (combining) \u00e9 (composed)",
    "\u200bzero\u200bwidth\u00a0nbsp\u3000ideographic",
    "def f(x):\n    return x**2  # square\n\n\nclass A:\n\tpass\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] << 2; }",
    "https://example.org/path?query=1&b=2#frag user@example.com",
    "<|im_start|>user\nHi<|im_end|>\n",
    "a<|endoftext|>b <|im_end|> c<|im_start|>",
    "<|im_start |> <|im_end <repo_name>x<file_sep>y<empty_output>",
    "|<|im_end|>|",
    "$$ \\int_0^1 x^2 dx = \\frac{1}{3} $$",
    '{"key": [1, 2.5, null, true], "s": "\\u00e9"}',
    "\x00\x01\x7f control",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 \U0010ffff",  # noqa: RUF001
    "ends with half an emoji 👩‍",
]
CHATS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [
        {"role": "system", "content": "You are terse."},
        {"role": "user", "content": "  Hi  "},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "2+2?\n"},
    ],
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gguf", type=Path, required=True)
    gguf: Path = parser.parse_args().gguf.resolve()

    import tokenizers
    import transformers

    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "model.gguf").symlink_to(gguf)
        tokenizer = transformers.AutoTokenizer.from_pretrained(directory, gguf_file="model.gguf")
    texts = []
    for text in TEXTS:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        decoded = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        texts.append({"text": text, "ids": ids, "decoded": decoded})
    chats = []
    for messages in CHATS:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        chats.append({"messages": messages, "text": text, "ids": ids})
    versions = {"transformers": transformers.__version__, "tokenizers": tokenizers.__version__}
    golden = {
        "versions": versions,
        "gguf_sha256": hashlib.sha256(gguf.read_bytes()).hexdigest(),
        "texts": texts,
        "chats": chats,
    }
    OUTPUT.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
