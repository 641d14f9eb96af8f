"""GGUF import: lossless where it can be, a scale search where not, and what is refused."""

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny_model
from gguf.constants import GGMLQuantizationType as Type

from intattention import LLM
from intattention.errors import ModelFileError, UnsupportedModelError
from intattention.gguf_file import GGUFFile, unpermuted_rows
from intattention.quantize import quantize, quantize_w8g32

WriteTiny = Callable[..., Path]


# import ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("type_", "format", "block_bytes"),
    [(Type.Q4_0, "w4g32", 18), (Type.Q4_1, "w4g32a", 20), (Type.Q8_0, "w8g32", 34)],
)
def test_quantised_types_keep_their_bits(
    write_tiny: WriteTiny, type_: Type, format: str, block_bytes: int
) -> None:
    path = write_tiny(type=type_)
    tensor = GGUFFile(path).matrix("blk.0.ffn_down.weight", "w4g32a")
    stored = next(t for t in gguf.GGUFReader(path).tensors if t.name == "blk.0.ffn_down.weight")
    blocks = np.array(stored.data).reshape(64, 3, block_bytes)
    parts = [tensor.scale] if tensor.min is None else [tensor.scale, tensor.min]
    parts = [part[:, :, None].view(np.uint8) for part in parts]
    rebuilt = np.concatenate([*parts, tensor.q.view(np.uint8).reshape(64, 3, -1)], axis=2)
    assert tensor.format == format
    np.testing.assert_array_equal(rebuilt, blocks)
    np.testing.assert_array_equal(
        tensor.dequantize(), gguf.quants.dequantize(np.array(stored.data), type_)
    )


def test_packed_weights_mean_the_same(write_tiny: WriteTiny) -> None:
    for type_ in (Type.Q4_0, Type.Q4_1, Type.Q8_0):
        tensor = GGUFFile(write_tiny(type=type_)).matrix("blk.1.attn_q.weight", "w4g32a")
        rows = np.arange(tensor.shape[0], dtype=np.int32)
        np.testing.assert_array_equal(tensor.pack().dequantize_rows(rows), tensor.dequantize())


def test_header_equals_gguf_reader(tiny_path: Path) -> None:
    ours, reader = GGUFFile(tiny_path), gguf.GGUFReader(tiny_path)
    fields = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    assert set(fields) == set(ours.metadata)
    for key, value in ours.metadata.items():
        np.testing.assert_array_equal(np.asarray(value), np.asarray(fields[key]))
    shapes = {t.name: tuple(int(n) for n in t.shape[::-1]) for t in reader.tensors}
    assert shapes == {t.name: t.shape for t in ours.tensors.values()}


@pytest.mark.parametrize("type_", [Type.F32, Type.F16, Type.BF16])
def test_float_matrices_are_quantised(write_tiny: WriteTiny, type_: Type) -> None:
    path = write_tiny(type=type_, types={"token_embd.weight": type_, "norm.weight": type_})
    file, floats = GGUFFile(path), tiny_model.float_tensors(tiny_model.TinyModel())
    w8 = file.matrix("token_embd.weight", "w8g32")
    w4 = file.matrix("blk.0.ffn_up.weight", "w4g32a")
    assert (w8.format, w4.format) == ("w8g32", "w4g32a")
    for tensor, name, limit in ((w8, "token_embd", 0.01), (w4, "blk.0.ffn_up", 0.1)):
        exact = floats[f"{name}.weight"]
        assert np.linalg.norm(tensor.dequantize() - exact) < limit * np.linalg.norm(exact)
    np.testing.assert_allclose(
        file.vector("output_norm.weight"), floats["output_norm.weight"], rtol=2**-8
    )
    assert LLM.load(path, threads=1).generate("the", max_new_tokens=4)


def test_rows_of_q_and_k_are_unpermuted() -> None:
    heads, d = 3, 8
    hf = np.arange(heads * d * 2).reshape(heads * d, 2)
    # LlamaModel.permute in llama.cpp's convert_hf_to_gguf.py
    stored = hf.reshape(heads, 2, d // 2, 2).swapaxes(1, 2).reshape(hf.shape)
    np.testing.assert_array_equal(stored[unpermuted_rows(heads, d)], hf)


# quantise -------------------------------------------------------------------------------------
def test_w8_error_is_half_a_step() -> None:
    w = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    tensor = quantize_w8g32(w)
    step = np.repeat(tensor.scale.astype(np.float32), 32, axis=1)
    assert (np.abs(tensor.dequantize() - w) <= 0.5 * step + np.abs(w) * 2**-10).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("format", ["w8g32", "w4g32a"])
def test_quantise_refuses_what_float16_cannot_hold(value: float, format: str) -> None:
    w = np.ones((2, 64), np.float32)
    w[1, 40] = value
    with pytest.raises(ValueError, match="a weight"):
        quantize(w.view(np.uint8), lambda raw: raw.view(np.float32), format)  # type: ignore[arg-type]


# models that are valid but not for us -----------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"architecture": "mamba"}, UnsupportedModelError, "mamba.*supported: llama, qwen2"),
        ({"llama.rope.scaling.type": "su"}, UnsupportedModelError, "'su'.*supported: none, lin"),
        ({"llama.rope.scaling.type": "longrope"}, ModelFileError, "rope_factors_short.*missing"),
        ({"llama.rope.scaling.factor": -4.0}, ModelFileError, "factor is -4"),
        ({"llama.rope.dimension_count": 8}, UnsupportedModelError, "rotary dimension is 8"),
        ({"llama.rope.dimension_count": 32}, ModelFileError, "32 elements of a head rotate"),
        ({"llama.expert_count": 8}, UnsupportedModelError, "expert_count is 8, supported: 0"),
        ({"llama.attention.sliding_window": 64}, UnsupportedModelError, "sliding_window is 64"),
        ({"llama.attention.value_length": 32}, UnsupportedModelError, "value_length is 32"),
        ({"llama.block_count": 10**9}, ModelFileError, "block_count is 1000000000"),
        ({"llama.block_count": 3}, ModelFileError, "blk.2.*missing"),
        ({"llama.block_count": 1}, UnsupportedModelError, "9 tensors"),
        ({"llama.attention.head_count": 0}, ModelFileError, "head_count is 0"),
        ({"llama.attention.head_count_kv": 3}, ModelFileError, "4 attention heads"),
        ({"llama.embedding_length": 96}, UnsupportedModelError, "head dimension is 24"),
        ({"llama.feed_forward_length": 128}, ModelFileError, r"ffn_.*shape \(96, 64\)"),
        ({"llama.context_length": None}, ModelFileError, "context_length is missing"),
        ({"llama.context_length": 0}, ModelFileError, "context_length is 0"),
        ({"llama.context_length": "8"}, ModelFileError, "context_length is '8'"),
        ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, ModelFileError, "nan"),
        ({"llama.rope.freq_base": 0.0}, ModelFileError, "freq_base is 0"),
        ({"llama.vocab_size": 301}, ModelFileError, "301.*300"),
        ({"tokenizer.ggml.model": "t5"}, UnsupportedModelError, "'t5'.*supported: gpt2, llama"),
        ({"tokenizer.ggml.model": "llama"}, ModelFileError, "scores is missing"),
        ({"tokenizer.ggml.pre": "tekken"}, UnsupportedModelError, "'tekken'.*smollm"),
        ({"tokenizer.ggml.merges": ["t h e"]}, ModelFileError, "merges"),
        ({"tokenizer.ggml.tokens": ["a", "a"]}, ModelFileError, "300 token types for 2"),
        ({"tokenizer.ggml.eos_token_id": 300}, ModelFileError, "eos_token_id is 300"),
    ],
)
def test_unsupported_and_absurd_models(
    write_tiny: WriteTiny, change: dict[str, object], error: type[Exception], words: str
) -> None:
    change = dict(change)
    architecture = change.pop("architecture", "llama")
    path = write_tiny(metadata=change, architecture=architecture)
    with pytest.raises(error, match=words):
        LLM.load(path, threads=1)


def test_unsupported_tensor_type_is_named(write_tiny: WriteTiny) -> None:
    path = write_tiny(hidden=256, heads=16, types={"blk.1.ffn_up.weight": Type.TQ1_0})
    words = r"blk\.1\.ffn_up\.weight has the type TQ1_0; supported here: Q4_0, .*Q6_K.*BF16"
    with pytest.raises(UnsupportedModelError, match=words):
        LLM.load(path, threads=1)


def test_extra_tensor_is_refused(write_tiny: WriteTiny) -> None:
    bias = {"blk.0.attn_q.bias": np.ones(64, np.float32)}
    with pytest.raises(UnsupportedModelError, match=r"blk\.0\.attn_q\.bias"):
        LLM.load(write_tiny(tensors=bias), threads=1)


@pytest.mark.parametrize("name", ["output_norm.weight", "blk.0.attn_v.weight"])
def test_nan_weights_are_refused(write_tiny: WriteTiny, name: str) -> None:
    model = tiny_model.TinyModel()
    weights = tiny_model.float_tensors(model)[name]
    weights.reshape(-1)[5] = np.nan
    path = write_tiny(type=Type.F32, tensors={name: weights})
    with pytest.raises(ModelFileError, match=f"{name}.*NaN"):
        LLM.load(path, threads=1)


def test_nan_scale_is_refused(tiny_path: Path, tmp_path: Path) -> None:
    offset = next(t.data_offset for t in gguf.GGUFReader(tiny_path).tensors if "ffn_gate" in t.name)
    data = bytearray(tiny_path.read_bytes())
    data[offset : offset + 2] = np.float16(np.inf).tobytes()
    (tmp_path / "bad.gguf").write_bytes(data)
    with pytest.raises(ModelFileError, match=r"ffn_gate\.weight: the scale of row 0, group 0 is"):
        LLM.load(tmp_path / "bad.gguf", threads=1)
