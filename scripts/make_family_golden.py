#!/usr/bin/env python3
"""Write tests/data/families.npz: what transformers computes with the tiny models of tests/tiny_hf.

Needs torch, transformers and this checkout's tests/ folder. Usage:
    python scripts/make_family_golden.py [--retrain]    # four minutes with --retrain

- "logits/<case>": float16 [len(POSITIONS), vocab] of every case at POSITIONS of IDS, weights of
  tiny_hf.weights in float32.
- "rope/<case>": the inverse frequencies [dim / 2] and, last, the factor on cos and sin.
- "trained/<family>/<tensor>": bfloat16 bits (uint16) of a model trained until it continues
  x[t] = NEXT[x[t - LAG]] with margins of nats, which takes attention at a distance;
  "greedy/<family>": int16 [10, 128], 10 prompts of 64 tokens and 64 greedy tokens each.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import tiny_hf  # noqa: E402

OUTPUT = ROOT / "tests" / "data" / "families.npz"
PROMPTS, PROMPT_LENGTH, NEW_TOKENS, BATCH = 10, 64, 64, 32


def load(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def logits(model: Any, ids: np.ndarray) -> np.ndarray:
    """ids [T] -> float32 [T, vocab]"""
    with torch.no_grad():
        return model(torch.tensor(ids[None].astype(np.int64))).logits[0].numpy()


def rope(model: Any, length: int) -> np.ndarray:
    """Inverse frequencies once a text has ``length`` tokens, and the factor on cos and sin."""
    embedding = model.model.rotary_emb
    with torch.no_grad():
        embedding(torch.zeros(1, 1, 4), torch.arange(length)[None])
    factor = np.float64(embedding.attention_scaling)
    return np.append(embedding.inv_freq.numpy().astype(np.float64), factor)


def sequences(random: np.random.RandomState, count: int, length: int) -> np.ndarray:
    """[count, length]: LAG random tokens, then the rule."""
    x = np.empty((count, length), np.int64)
    x[:, : tiny_hf.LAG] = random.randint(0, tiny_hf.TRAINED_VOCAB, (count, tiny_hf.LAG))
    for t in range(tiny_hf.LAG, length):
        x[:, t] = tiny_hf.NEXT[x[:, t - tiny_hf.LAG]]
    return x


def stored(family: str, config: dict[str, Any]) -> dict[str, np.ndarray]:
    """The trained weights that the file holds already."""
    with np.load(OUTPUT) as data:
        bits = {name: data[f"trained/{family}/{name}"] for name in tiny_hf.weights(config)}
    return {name: (b.astype(np.uint32) << 16).view(np.float32) for name, b in bits.items()}


def train(config: dict[str, Any], steps: int = 500) -> dict[str, np.ndarray]:
    """Weights that bfloat16 holds."""
    torch.manual_seed(0)
    random = np.random.RandomState(0)
    kind = transformers.AutoConfig.for_model(**config)
    model = transformers.AutoModelForCausalLM.from_config(kind, dtype=torch.float32)
    tensors = {k: torch.tensor(v) for k, v in tiny_hf.weights(config).items()}
    model.load_state_dict(tensors, strict=False)
    model.tie_weights()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for step in range(steps):
        x = torch.tensor(sequences(random, BATCH, PROMPT_LENGTH + NEW_TOKENS))
        out = model(x).logits[:, tiny_hf.LAG - 1 : -1]
        loss = torch.nn.functional.cross_entropy(
            out.reshape(-1, out.shape[-1]), x[:, tiny_hf.LAG :].reshape(-1)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 99:
            print(config["model_type"], step + 1, f"loss {loss.item():.4f}", flush=True)
    state = model.state_dict()
    return {name: tiny_hf.as_bf16(state[name].numpy()) for name in tensors}


def greedy(model: Any) -> tuple[np.ndarray, float]:
    """[PROMPTS, PROMPT_LENGTH + NEW_TOKENS], and the smallest margin between the best two."""
    x = torch.tensor(sequences(np.random.RandomState(99), PROMPTS, PROMPT_LENGTH))
    margin = np.inf
    with torch.no_grad():
        for _ in range(NEW_TOKENS):
            top = model(x).logits[:, -1].topk(2, dim=1)
            margin = min(margin, float((top.values[:, 0] - top.values[:, 1]).min()))
            x = torch.cat([x, top.indices[:, :1]], dim=1)
    return x.numpy().astype(np.int16), margin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--retrain", action="store_true")
    retrain: bool = parser.parse_args().retrain
    transformers.logging.set_verbosity_error()
    data: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as directory:
        for case in tiny_hf.CASES:
            folder = tiny_hf.write(Path(directory) / case, tiny_hf.config(case))
            model = load(folder)
            rows = logits(model, tiny_hf.IDS)[tiny_hf.POSITIONS]
            data[f"logits/{case}"] = rows.astype(np.float16)
            data[f"rope/{case}"] = rope(load(folder), len(tiny_hf.IDS))
        folder = tiny_hf.write(
            Path(directory) / "bias", tiny_hf.LARGE_BIAS, tiny_hf.large_bias_weights()
        )
        rows = logits(load(folder), tiny_hf.IDS)[tiny_hf.POSITIONS]
        data["logits/large bias"] = rows.astype(np.float16)
        for family, config in tiny_hf.TRAINED.items():
            tensors = train(config) if retrain else stored(family, config)
            folder = tiny_hf.write(Path(directory) / family, config, tensors, "BF16")
            data[f"greedy/{family}"], margin = greedy(load(folder))
            print(f"{family}: smallest margin {margin:.2f}")
            for name, tensor in tensors.items():
                bits = np.frombuffer(tiny_hf.stored(tensor, "BF16"), "<u2").reshape(tensor.shape)
                data[f"trained/{family}/{name}"] = bits
    np.savez_compressed(OUTPUT, **data)
    print(f"{OUTPUT}: {OUTPUT.stat().st_size} bytes, transformers {transformers.__version__}")


if __name__ == "__main__":
    main()
