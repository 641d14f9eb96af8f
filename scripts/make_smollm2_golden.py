#!/usr/bin/env python3
"""Write tests/data/smollm2_golden.npz: what transformers computes in float32 from a GGUF.

Needs torch, transformers, gguf, accelerate. Usage:
    python scripts/make_smollm2_golden.py --gguf MODEL.gguf --text wikitext2_test.txt

The file holds
  prompt, ids, top_ids [64, 1024] u16, top_logprobs f32, rest_logprob [64], top1 [64]
      log-probabilities after each of the first 64 tokens of a fixed paragraph
  ppl, window_nll [8]   perplexity of the first 8 windows of 1,024 tokens of WikiText-2 test
      (text tokenised as one, no BOS, windows independent, positions 1..1023 predicted)
  short_ppl   perplexity of the first 256 tokens of them, 255 predicted
  chat_ids, chat_expected_id
      a question through the chat template, and the token that must be in the answer
  wikitext_ids, versions, gguf_sha256
and tests/data/wikitext2_test_prefix.txt the part of the text that those 8,192 tokens need.
"""

import argparse
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
PROMPT = (
    "The lighthouse at the end of the harbour was built in 1871, after a winter in which three "
    "fishing boats were lost on the rocks. For almost a century its keeper climbed the narrow "
    "stairs every evening, trimmed the lamp, and wrote a few lines about the weather in a heavy "
    "book. Most of the entries are short: wind from the north, sea rough, two ships seen. But now "
    "and then the keeper added something of his own."
)
# in float32 no token of the answer has a rival within 1 nat, so int8 activations cannot turn it
QUESTION = "Name the capital of France."
ANSWER = " Paris"
POSITIONS = 64
TOP = 1024
WINDOW = 1024
WINDOWS = 8
SHORT = 256
PREFIX_SLACK = 2000  # characters kept after the last needed token, so that its end cannot move


def load(gguf: Path) -> tuple[Any, Any]:
    """Tokenizer and float32 model; transformers wants a directory that holds the file."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "model.gguf").symlink_to(gguf.resolve())
        tokenizer = AutoTokenizer.from_pretrained(directory, gguf_file="model.gguf")
        model = AutoModelForCausalLM.from_pretrained(
            directory, gguf_file="model.gguf", dtype=torch.float32, attn_implementation="sdpa"
        )
    return tokenizer, model.eval()


def log_probs(model: Any, ids: list[int]) -> NDArray[np.float64]:
    """[len(ids), vocab], softmax in double."""
    import torch

    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0]
        return torch.log_softmax(logits.double(), -1).numpy()


def prompt_golden(tokenizer: Any, model: Any) -> dict[str, NDArray]:
    ids = tokenizer(PROMPT, add_special_tokens=False)["input_ids"][:POSITIONS]
    assert len(ids) == POSITIONS
    full = log_probs(model, ids)
    top = np.argsort(-full, axis=1)[:, :TOP]
    chosen = np.take_along_axis(full, top, 1)
    rest = full.copy()
    np.put_along_axis(rest, top, -np.inf, 1)
    return {
        "prompt": np.array(PROMPT),
        "ids": np.array(ids, np.int32),
        "top_ids": top.astype(np.uint16),
        "top_logprobs": chosen.astype(np.float32),
        "rest_logprob": np.log(np.exp(rest).sum(1)),
        "top1": top[:, 0].astype(np.int32),
    }


def chat_golden(tokenizer: Any) -> dict[str, NDArray]:
    messages = [{"role": "user", "content": QUESTION}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    (expected,) = tokenizer(ANSWER, add_special_tokens=False)["input_ids"]
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return {"chat_ids": np.array(ids, np.int32), "chat_expected_id": np.array(expected)}


def perplexity_golden(model: Any, ids: list[int]) -> dict[str, NDArray]:
    losses = []  # [window][position]
    for start in range(0, WINDOWS * WINDOW, WINDOW):
        window = np.array(ids[start : start + WINDOW])
        full = log_probs(model, window.tolist())
        losses.append(-full[np.arange(WINDOW - 1), window[1:]])
        print(f"window {len(losses)}: NLL {losses[-1].mean():.5f}", flush=True)
    nll = np.mean(losses, axis=1)
    short_ppl = np.exp(losses[0][: SHORT - 1].mean())
    return {"ppl": np.exp(nll.mean()), "window_nll": nll, "short_ppl": np.array(short_ppl)}


def text_prefix(tokenizer: Any, text: str) -> tuple[str, list[int]]:
    """The needed part of the text and its first 8,192 tokens, which are the whole text's."""
    count = WINDOW * WINDOWS
    ids = tokenizer(text, add_special_tokens=False)["input_ids"][:count]
    end = len(tokenizer.decode(ids, clean_up_tokenization_spaces=False)) + PREFIX_SLACK
    prefix = text[:end]
    assert tokenizer(prefix, add_special_tokens=False)["input_ids"][:count] == ids
    return prefix, ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    arguments = parser.parse_args()

    import torch
    import transformers

    tokenizer, model = load(arguments.gguf)
    prefix, ids = text_prefix(tokenizer, arguments.text.read_text(encoding="utf-8"))
    golden = (
        prompt_golden(tokenizer, model) | chat_golden(tokenizer) | perplexity_golden(model, ids)
    )
    versions = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
    }
    golden["versions"] = np.array(json.dumps(versions))
    golden["gguf_sha256"] = np.array(hashlib.sha256(arguments.gguf.read_bytes()).hexdigest())
    golden["wikitext_ids"] = np.array(ids, np.uint16)
    DATA.mkdir(exist_ok=True)
    np.savez_compressed(DATA / "smollm2_golden.npz", **golden)
    (DATA / "wikitext2_test_prefix.txt").write_text(prefix, encoding="utf-8")
    print(f"perplexity {golden['ppl']:.4f}, {versions}")


if __name__ == "__main__":
    main()
