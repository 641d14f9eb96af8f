"""Tiny models as Hugging Face folders, without torch: every family, every option of the decoder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

F32 = NDArray[np.float32]
VOCAB = 260
BASE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "eos_token_id": 2,
    "bos_token_id": 1,
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}  # fmt: skip
LONGROPE = {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 128,
            "short_factor": [1.0 + i / 16 for i in range(8)],
            "long_factor": [1.0 + i for i in range(8)]}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
CASES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama"},
    "llama mha untied": {
        "model_type": "llama", "num_key_value_heads": 8, "tie_word_embeddings": False,
    },
    "llama gqa 4 llama3": {
        "model_type": "llama", "num_key_value_heads": 2, "rope_scaling": LLAMA3,
    },
    "llama gqa 8 linear": {
        "model_type": "llama", "num_key_value_heads": 1,
        "rope_scaling": {"rope_type": "linear", "factor": 4.0},
    },
    "llama dynamic": {
        "model_type": "llama", "max_position_embeddings": 64,
        "rope_scaling": {"rope_type": "dynamic", "factor": 4.0},
    },
    "llama biases": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "llama wide heads": {"model_type": "llama", "head_dim": 32, "num_attention_heads": 4},
    "mistral window": {"model_type": "mistral", "sliding_window": 24},
    "mistral": {"model_type": "mistral", "sliding_window": None, "tie_word_embeddings": False},
    "qwen2": {"model_type": "qwen2", "hidden_size": 128},
    "qwen2 yarn untied": {
        "model_type": "qwen2", "hidden_size": 128, "num_key_value_heads": 1,
        "tie_word_embeddings": False, "rope_scaling": YARN,
    },
    "qwen2 mixed layers": {
        "model_type": "qwen2", "hidden_size": 128, "use_sliding_window": True,
        "sliding_window": 16, "max_window_layers": 1,
    },
    "qwen3": {"model_type": "qwen3"},
    "qwen3 untied longrope": {
        "model_type": "qwen3", "tie_word_embeddings": False, "num_key_value_heads": 2,
        "rope_scaling": LONGROPE,
    },
    "qwen3 mixed layers": {
        "model_type": "qwen3", "use_sliding_window": True, "sliding_window": 20,
        "layer_types": ["sliding_attention", "full_attention"],
    },
}  # fmt: skip

IDS = np.random.RandomState(5).randint(4, VOCAB, 200).astype(np.int32)
POSITIONS = [0, 1, 15, 16, 23, 24, 63, 64, 100, 150, 198, 199]

# Models trained on x[t] = NEXT[x[t - LAG]] by scripts/make_family_golden.py.
TRAINED_VOCAB, LAG = 64, 7
NEXT = np.random.RandomState(3).permutation(TRAINED_VOCAB)
_TRAINED_BASE = {**BASE, "vocab_size": TRAINED_VOCAB, "num_key_value_heads": 2}
TRAINED: dict[str, dict[str, Any]] = {
    "llama": {**_TRAINED_BASE, "model_type": "llama", "rope_scaling": LLAMA3},
    "mistral": {**_TRAINED_BASE, "model_type": "mistral", "sliding_window": 24},
    "qwen2": {**_TRAINED_BASE, "model_type": "qwen2", "num_attention_heads": 4,
              "rope_scaling": YARN},
    "qwen3": {**_TRAINED_BASE, "model_type": "qwen3"},
}  # fmt: skip


def config(case: str) -> dict[str, Any]:
    """The config.json of a case."""
    merged = {**BASE, **CASES[case]}
    if merged["model_type"] == "qwen2":
        del merged["head_dim"]  # hidden_size / num_attention_heads
    return merged


def head_dim(config: Mapping[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def weights(config: Mapping[str, Any], seed: int = 1) -> dict[str, F32]:
    """Random weights; RandomState's stream is frozen, so golden results stay valid."""
    random = np.random.RandomState(seed)
    hidden, inner, d = config["hidden_size"], config["intermediate_size"], head_dim(config)
    q, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d

    def matrix(rows: int, columns: int) -> F32:
        return (random.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)

    def norm(size: int) -> F32:
        return (1 + 0.2 * random.standard_normal(size)).astype(np.float32)

    tensors = {
        "model.embed_tokens.weight": matrix(config["vocab_size"], hidden) * np.float32(2),
        "model.norm.weight": norm(hidden),
    }
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = matrix(config["vocab_size"], hidden) * np.float32(4)
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        tensors |= {
            at + "input_layernorm.weight": norm(hidden),
            at + "self_attn.q_proj.weight": matrix(q, hidden) * np.float32(2),
            at + "self_attn.k_proj.weight": matrix(kv, hidden),
            at + "self_attn.v_proj.weight": matrix(kv, hidden),
            at + "self_attn.o_proj.weight": matrix(hidden, q),
            at + "post_attention_layernorm.weight": norm(hidden),
            at + "mlp.gate_proj.weight": matrix(inner, hidden),
            at + "mlp.up_proj.weight": matrix(inner, hidden),
            at + "mlp.down_proj.weight": matrix(hidden, inner),
        }
        biases = {}
        if config["model_type"] == "qwen2" or config.get("attention_bias"):
            biases |= {"self_attn.q": q, "self_attn.k": kv, "self_attn.v": kv}
        if config.get("attention_bias"):
            biases |= {"self_attn.o": hidden}
        if config.get("mlp_bias"):
            biases |= {"mlp.gate": inner, "mlp.up": inner, "mlp.down": hidden}
        for name, size in biases.items():
            tensors[at + f"{name}_proj.bias"] = norm(size) - np.float32(1)
        if config["model_type"] == "qwen3":
            tensors[at + "self_attn.q_norm.weight"] = norm(d)
            tensors[at + "self_attn.k_norm.weight"] = norm(d)
    return tensors


LARGE_BIAS = {**BASE, "model_type": "qwen2", "num_attention_heads": 4, "head_dim": 16,
              "num_key_value_heads": 2}  # fmt: skip


def large_bias_weights() -> dict[str, F32]:
    """A bias of k of norm 300 in a slow and a fast pair of every head, and small q there."""
    tensors = weights(LARGE_BIAS)
    for name, tensor in tensors.items():
        if name.endswith("k_proj.bias"):
            tensor.reshape(2, 16)[:, [2, 7, 10, 15]] += np.float32(150)
        if name.endswith("q_proj.weight"):
            tensor.reshape(4, 16, -1)[:, [2, 10]] *= np.float32(0.02)
        if name.endswith("q_proj.bias"):
            tensor.reshape(4, 16)[:, [2, 10]] *= np.float32(0.02)
    return tensors


def tokenizer() -> Tokenizer:
    """Byte-level BPE with two merges and four special tokens; 260 tokens with some to spare."""
    specials = ["<unk>", "<s>", "</s>", "<|im_end|>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())[: VOCAB - len(specials)]
    vocab = {token: i for i, token in enumerate([*specials, *letters])}
    built = Tokenizer(BPE(vocab, []))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([AddedToken(token, special=True) for token in specials])
    return built


CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '<|im_end|>' }}"
    "{% endfor %}"
)


def stored(tensor: NDArray[Any], dtype: str) -> bytes:
    """A tensor's bytes as F32, F16 or BF16 (rounded to nearest even)."""
    if dtype == "BF16":
        bits = tensor.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()
    return tensor.astype("<f2" if dtype == "F16" else "<f4").tobytes()


def as_bf16(tensor: F32) -> F32:
    """The nearest values that BF16 holds."""
    bits = np.frombuffer(stored(tensor, "BF16"), "<u2").astype(np.uint32) << 16
    return bits.view(np.float32).reshape(tensor.shape)


def write_safetensors(
    path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]
) -> None:
    """tensors: name -> (dtype, shape, bytes)."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": offsets}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write(
    folder: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, F32] | None = None,
    dtype: str = "F32",
    shards: int = 1,
    texts: Mapping[str, str] | None = None,
) -> Path:
    """Writes config.json, weights and tokenizer; ``texts`` adds or replaces files."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = weights(config) if tensors is None else tensors
    entries = {name: (dtype, t.shape, stored(t, dtype)) for name, t in tensors.items()}
    if shards == 1:
        write_safetensors(folder / "model.safetensors", entries)
    else:
        places = {}
        for i in range(shards):
            part = dict(list(entries.items())[i::shards])
            file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
            write_safetensors(folder / file, part)
            places |= dict.fromkeys(part, file)
        index = json.dumps({"metadata": {}, "weight_map": places})
        (folder / "model.safetensors.index.json").write_text(index)
    files = {
        "config.json": json.dumps(dict(config)),
        "tokenizer.json": tokenizer().to_str(),
        "tokenizer_config.json": json.dumps(
            {"bos_token": "<s>", "eos_token": "</s>", "chat_template": CHAT_TEMPLATE}
        ),
        **(texts or {}),
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder
