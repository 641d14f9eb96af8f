"""Hugging Face folders: what is read, packed and generated, and what is refused with its name."""

import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_hf
from hypothesis import given, settings
from hypothesis import strategies as st

from intattention import LLM, _core, models
from intattention.errors import ModelFileError, ModelNotFoundError, UnsupportedModelError
from intattention.hf_folder import HFFolder
from intattention.model_file import open_model_file
from intattention.pack import pack_model

LLAMA, QWEN2, QWEN3 = (tiny_hf.config(name) for name in ("llama", "qwen2", "qwen3"))
MATRIX = "model.layers.1.mlp.down_proj.weight"


def logits(path: Path) -> np.ndarray:
    checkpoint = open_model_file(path)
    decoder = models.find(checkpoint).build(checkpoint, _core.ThreadPool(1))
    return decoder.forward(tiny_hf.IDS, decoder.new_cache(256), "all")


# reading ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_types_and_shards_do_not_matter(tmp_path: Path, dtype: str) -> None:
    exact = {name: tiny_hf.as_bf16(w) for name, w in tiny_hf.weights(LLAMA).items()}
    if dtype == "F16":
        exact = {name: w.astype(np.float16).astype(np.float32) for name, w in exact.items()}
    one = tiny_hf.write(tmp_path / "one", LLAMA, exact)
    many = tiny_hf.write(tmp_path / "many", LLAMA, exact, dtype, shards=3)
    assert len(list(many.glob("*.safetensors"))) == 3
    np.testing.assert_array_equal(logits(many), logits(one))
    assert HFFolder(many).format == "safetensors, 3 files"


def test_bf16_rounding_of_this_test_is_right() -> None:
    values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, -3.14159265], np.float32)
    assert tiny_hf.as_bf16(values).tolist() == [1.0, 1.0, 1 + 2**-6, -3.140625]


@pytest.mark.parametrize("case", ["llama gqa 4 llama3", "qwen2 mixed layers", "qwen3"])
def test_packed_folder_gives_the_same_bits(tmp_path: Path, case: str) -> None:
    folder = tiny_hf.write(tmp_path / "folder", tiny_hf.config(case))
    pack_model(folder, tmp_path / "packed.iatt")
    np.testing.assert_array_equal(logits(tmp_path / "packed.iatt"), logits(folder))
    texts = [LLM.load(p, threads=1).generate("the", max_new_tokens=8)
             for p in (folder, tmp_path / "packed.iatt")]  # fmt: skip
    assert texts[0] == texts[1]


def test_tied_head_and_old_frequencies_in_the_file_are_not_read(tmp_path: Path) -> None:
    tensors = tiny_hf.weights(LLAMA)
    expected = logits(tiny_hf.write(tmp_path / "plain", LLAMA, tensors))
    extra = {
        "lm_head.weight": np.zeros((tiny_hf.VOCAB, 64), np.float32),
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(8, np.float32),
    }
    folder = tiny_hf.write(tmp_path / "extra", LLAMA, tensors | extra)
    np.testing.assert_array_equal(logits(folder), expected)


def test_generation_ends_at_every_named_end(tmp_path: Path) -> None:
    plain = LLM.load(tiny_hf.write(tmp_path / "a", LLAMA), threads=1)
    assert plain.tokenizer.end_ids == {2, 3}  # </s>, and <|im_end|> by the template
    plain.generate("the", max_new_tokens=5)
    ids = plain.tokenizer.encode("the")
    cache = plain._decoder.new_cache(8)
    first = int(plain._decoder.forward(np.array(ids, np.int32), cache).argmax())
    texts = {"generation_config.json": json.dumps({"eos_token_id": [2, first]})}
    ended = LLM.load(tiny_hf.write(tmp_path / "b", LLAMA, texts=texts), threads=1)
    assert ended.generate("the", max_new_tokens=5) == ""
    assert ended.last_stats.finish_reason == "eos"


# refused ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("config", "change", "error", "words"),
    [
        (LLAMA, {"model_type": "mamba"}, UnsupportedModelError, "'mamba', supported: llama, mis"),
        (LLAMA, {"model_type": None}, ModelFileError, "model_type is missing"),
        (LLAMA, {"hidden_act": "gelu"}, UnsupportedModelError, "hidden_act is 'gelu'.*'silu'"),
        (LLAMA, {"attention_bias": True}, ModelFileError, "q_proj.bias is missing"),
        (LLAMA, {"mlp_bias": True}, ModelFileError, "gate_proj.bias is missing"),
        (QWEN3, {"attention_bias": "yes"}, ModelFileError, "attention_bias.*yes"),
        (LLAMA, {"hidden_size": 0}, ModelFileError, "hidden_size is 0, expected an integer"),
        (LLAMA, {"hidden_size": "64"}, ModelFileError, "hidden_size is '64'"),
        (LLAMA, {"num_hidden_layers": None}, ModelFileError, "num_hidden_layers is missing"),
        (LLAMA, {"num_hidden_layers": 3}, ModelFileError, r"layers\.2\..*is missing"),
        (LLAMA, {"num_hidden_layers": 1}, UnsupportedModelError, r"9 tensors.*layers\.1\."),
        (LLAMA, {"num_key_value_heads": 3}, ModelFileError, "8 attention heads.*3 kv"),
        (LLAMA, {"head_dim": 24}, UnsupportedModelError, "head dimension is 24.*multiple of 16"),
        (LLAMA, {"intermediate_size": 128}, ModelFileError, r"shape \(96, 64\), exp.*\(128, 64\)"),
        (LLAMA, {"rms_norm_eps": -1}, ModelFileError, "rms_norm_eps is -1"),
        (LLAMA, {"tie_word_embeddings": 1}, ModelFileError, "tie_word_embeddings is 1"),
        (LLAMA, {"tie_word_embeddings": False}, ModelFileError, "lm_head.weight is missing"),
        (LLAMA, {"rope_theta": 0}, ModelFileError, "rope_theta is 0"),
        (LLAMA, {"rope_scaling": 2.0}, ModelFileError, "rope_scaling is 2.0"),
        (
            LLAMA, {"rope_scaling": {"type": "su", "factor": 2}}, UnsupportedModelError,
            "rope_scaling.rope_type is 'su', supported: default, linear, dynamic, yarn",
        ),
        (
            LLAMA, {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}},
            UnsupportedModelError, "rope_parameters differs by layer type",
        ),
        (
            LLAMA, {"rope_scaling": {"rope_type": "linear", "factor": 0.5}}, ModelFileError,
            "factor is 0.5",
        ),
        (
            LLAMA, {"rope_scaling": {**tiny_hf.LLAMA3, "high_freq_factor": 1.0}}, ModelFileError,
            "low_freq_factor 1.0 >= high",
        ),
        (
            LLAMA, {"rope_scaling": {**tiny_hf.LONGROPE, "long_factor": [1.0]}}, ModelFileError,
            "long_factor has 1 numbers, expected 8",
        ),
        (
            LLAMA, {"rope_scaling": {**tiny_hf.LONGROPE, "short_factor": [0.0] * 8}},
            ModelFileError, r"short_factor\[0\] is 0.0",
        ),
        (
            QWEN2, {"use_sliding_window": True, "layer_types": ["full_attention", "chunked"]},
            UnsupportedModelError, "layer_types holds 'chunked', supported: full_attention",
        ),
        (
            QWEN2, {"use_sliding_window": True, "layer_types": ["full_attention"]},
            ModelFileError, "layer_types is no list of 2",
        ),
        (LLAMA, {"eos_token_id": 9999}, ModelFileError, "eos_token_id is 9999"),
        (LLAMA, {"vocab_size": 100}, ModelFileError, "260 tokens, but.*100"),
        (
            LLAMA, {"quantization_config": {"quant_method": "bitsandbytes"}},
            UnsupportedModelError, "quant_method is 'bitsandbytes', supported:",
        ),
    ],
)  # fmt: skip
def test_config_values(
    tmp_path: Path, config: dict[str, Any], change: dict[str, Any], error: type[Exception],
    words: str,
) -> None:  # fmt: skip
    merged = {k: v for k, v in {**config, **change}.items() if v is not None}
    folder = tiny_hf.write(tmp_path, merged, tiny_hf.weights(config))
    with pytest.raises(error, match=words):
        LLM.load(folder, threads=1)


def header(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def damage(content: bytes) -> bytes:
        size = int.from_bytes(content[:8], "little")
        entries = json.loads(content[8 : 8 + size])
        change(entries)
        text = json.dumps(entries).encode()
        return len(text).to_bytes(8, "little") + text + content[8 + size :]

    return damage


def field(key: str, value: object) -> Callable[[bytes], bytes]:
    return header(lambda entries: entries[MATRIX].update({key: value}))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda c: b"", "file is empty"),
        (lambda c: c[:7], "the header has .* bytes, the file 7"),
        (lambda c: c[:100], "the header has .* bytes, the file 100"),
        (lambda c: b"\xff" * 8 + c[8:], "the header has"),
        (lambda c: c[:8] + b"\xff" + c[9:], "not JSON"),
        (lambda c: c[:-1], "tensors end at byte"),
        (lambda c: c + b"x", "tensors end at byte"),
        (lambda c: (2).to_bytes(8, "little") + b"[]" + c[10:], "not a JSON object"),
        (header(lambda e: e.update({MATRIX: 5})), "is described by 5"),
        (field("dtype", "F7"), "the type 'F7'"),
        (field("dtype", ["F32"]), "the type"),
        (field("shape", [64, -96]), "the shape"),
        (field("shape", [64, 95]), "expected 24320 bytes"),
        (field("shape", [1 << 47, 1 << 47]), "expected"),
        (field("data_offsets", [0]), "lies at"),
        (field("data_offsets", [8, 8 + 64 * 96 * 4]), "starts at byte"),
        (header(lambda e: e.pop(MATRIX)), "tensors end at byte"),
    ],
)
def test_damaged_safetensors(tmp_path: Path, damage: Callable[[bytes], bytes], words: str) -> None:
    folder = tiny_hf.write(tmp_path, LLAMA)
    file = folder / "model.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ModelFileError, match=words):
        LLM.load(folder, threads=1)


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("config.json", "{", "config.json is not JSON"),
        ("config.json", "[]", "config.json is not a JSON object"),
        ("tokenizer.json", "{}", "tokenizer.json"),
        ("tokenizer_config.json", '{"chat_template": 5}', "chat_template is no text"),
        ("generation_config.json", '{"eos_token_id": "x"}', "eos_token_id is x"),
        ("model.safetensors.index.json", "{}", "no weight_map"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "../b"}}', "lies in '../b'"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "b"}}', "b is missing"),
        (
            "model.safetensors.index.json", '{"weight_map": {"a": "model.safetensors"}}',
            "has no tensor a",
        ),
    ],
)  # fmt: skip
def test_damaged_texts(tmp_path: Path, file: str, text: str, words: str) -> None:
    folder = tiny_hf.write(tmp_path, LLAMA, texts={file: text})
    with pytest.raises(ModelFileError, match=words):
        LLM.load(folder, threads=1)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"without a config\.json"):
        LLM.load(tmp_path)
    folder = tiny_hf.write(tmp_path / "model", LLAMA)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelFileError, match=r"tokenizer\.json is missing"):
        LLM.load(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelFileError, match=r"neither model\.safetensors nor"):
        LLM.load(folder)
    (folder / "config.json").write_bytes(b"\xff")
    with pytest.raises(ModelFileError, match="not UTF-8"):
        LLM.load(folder)


@pytest.mark.parametrize("name", ["model.norm.weight", MATRIX])
def test_nan_is_refused(tmp_path: Path, name: str) -> None:
    tensors = tiny_hf.weights(LLAMA)
    tensors[name].reshape(-1)[7] = np.nan
    with pytest.raises(ModelFileError, match=f"{name}.*NaN"):
        LLM.load(tiny_hf.write(tmp_path, LLAMA, tensors), threads=1)


def test_integer_weights_are_refused(tmp_path: Path) -> None:
    folder = tiny_hf.write(tmp_path, LLAMA)
    file = folder / "model.safetensors"
    file.write_bytes(field("dtype", "I32")(file.read_bytes()))
    with pytest.raises(UnsupportedModelError, match="the type I32; supported here: F32, F16, BF16"):
        LLM.load(folder, threads=1)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_mutated_headers_never_crash(data: st.DataObject) -> None:
    """Bytes of the header changed at random: one of our errors, or a model."""
    with tempfile.TemporaryDirectory() as directory:
        folder = tiny_hf.write(Path(directory), LLAMA)
        file = folder / "model.safetensors"
        content = bytearray(file.read_bytes())
        header_bytes = 8 + int.from_bytes(content[:8], "little")
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, header_bytes - 1))
            content[at] = data.draw(st.integers(0, 255))
        file.write_bytes(content)
        with suppress(ModelFileError, UnsupportedModelError):
            LLM.load(folder, threads=1)
