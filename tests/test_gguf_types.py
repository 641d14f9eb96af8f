"""Every tensor type of GGUF files, and the families that come in them."""

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Type

from intattention import LLM, _core, models
from intattention.errors import ModelFileError
from intattention.gguf_file import GGUFFile
from intattention.reports import model_report

WriteTiny = Callable[..., Path]
NAME = "blk.0.ffn_down.weight"
# Where a block keeps its float16 scales and minimums.
HALVES = {
    Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0],
    Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208],
    Type.IQ4_NL: [0], Type.IQ4_XS: [0],
}  # fmt: skip
# Error added by a new quantisation, relative: at most; measured on these random blocks.
LOSSES = {Type.Q5_1: 0.006, Type.Q5_K: 0.006, Type.Q6_K: 0.006,
          Type.Q2_K: 0.12, Type.Q3_K: 0.12, Type.IQ4_XS: 0.12}  # fmt: skip
LOSSLESS = {
    Type.Q4_0: "w4g32", Type.Q4_1: "w4g32a", Type.Q8_0: "w8g32", Type.Q5_0: "w8g32",
    Type.IQ4_NL: "w8g32",
}  # fmt: skip


def random_blocks(type_: Type, rows: int, columns: int, seed: int = 0) -> np.ndarray:
    """uint8 [rows, bytes]: random bits, and scales that give values of about 1 / sqrt(columns)."""
    random = np.random.RandomState(seed)
    block, nbytes = GGML_QUANT_SIZES[type_]
    blocks = random.randint(0, 256, (rows, columns // block, nbytes)).astype(np.uint8)

    def scaled(size: float) -> np.ndarray:
        for at in HALVES[type_]:
            half = random.uniform(0.5, 1.5, blocks.shape[:2]) * size
            half *= random.choice([-1, 1], half.shape)
            blocks[:, :, at : at + 2] = half.astype("<f2")[..., None].view(np.uint8)
        return gguf.quants.dequantize(blocks.reshape(rows, -1), type_)

    scaled(1e-2 / scaled(1e-2).std() / np.sqrt(columns))
    return blocks.reshape(rows, -1)


def file_with(write_tiny: WriteTiny, blocks: np.ndarray, type_: Type) -> GGUFFile:
    return GGUFFile(write_tiny(hidden=256, inner=256, raw={NAME: (type_, blocks)}))


@pytest.mark.parametrize("type_", LOSSLESS)
def test_lossless_types(write_tiny: WriteTiny, type_: Type) -> None:
    blocks = random_blocks(type_, 256, 256)
    file = file_with(write_tiny, blocks, type_)
    tensor = file.matrix(NAME, "w4g32a")
    assert tensor.format == LOSSLESS[type_]
    np.testing.assert_array_equal(tensor.dequantize(), gguf.quants.dequantize(blocks, type_))
    assert file.losses == {}


def test_q4_k_keeps_its_integers(write_tiny: WriteTiny) -> None:
    blocks = random_blocks(Type.Q4_K, 256, 256)
    exact = gguf.quants.dequantize(blocks, Type.Q4_K)
    tensor = file_with(write_tiny, blocks, Type.Q4_K).matrix(NAME, "w4g32a")
    assert tensor.format == "w4g32a"
    # float16 rounds scale and minimum by 2^-11, at most, of themselves
    size = 15 * np.abs(tensor.scale.astype(np.float32)) + np.abs(tensor.min.astype(np.float32))
    limit = np.repeat(size, 32, axis=1) * 2.0**-11 + 1e-7
    assert (np.abs(tensor.dequantize() - exact) <= limit).all()


@pytest.mark.parametrize("type_", LOSSES)
def test_requantised_types_report_their_loss(write_tiny: WriteTiny, type_: Type) -> None:
    blocks = random_blocks(type_, 256, 256)
    exact = gguf.quants.dequantize(blocks, type_)
    file = file_with(write_tiny, blocks, type_)
    tensor = file.matrix(NAME, "w4g32a")
    loss = np.linalg.norm(tensor.dequantize() - exact) / np.linalg.norm(exact)
    assert file.losses == {NAME: pytest.approx(loss, rel=1e-4)}
    assert loss <= LOSSES[type_]
    fine = type_ in (Type.Q5_1, Type.Q5_K, Type.Q6_K)
    assert tensor.format == ("w8g32" if fine else "w4g32a")
    assert file.matrix(NAME, "w8g32").format == "w8g32"
    assert file.losses[NAME] <= 0.006


@pytest.mark.parametrize("type_", [Type.Q4_K, Type.Q6_K, Type.Q5_0])
def test_scales_that_are_not_finite(write_tiny: WriteTiny, type_: Type) -> None:
    blocks = random_blocks(type_, 256, 256)
    at = HALVES[type_][0]
    blocks[3, at : at + 2] = np.array([np.inf], "<f2").view(np.uint8)
    with pytest.raises(ModelFileError, match=f"{NAME}.*(scale|NaN)"):
        file_with(write_tiny, blocks, type_).matrix(NAME, "w4g32a")


def logits(path: Path) -> np.ndarray:
    checkpoint = GGUFFile(path)
    decoder = models.find(checkpoint).build(checkpoint, _core.ThreadPool(1), linears="w8g32")
    return decoder.forward(np.arange(3, 60, dtype=np.int32), decoder.new_cache(64), "all")


def test_model_of_mixed_types(write_tiny: WriteTiny) -> None:
    """A file like Q4_K_M against the same weights as float32."""
    mix = {"attn_q": Type.Q4_K, "attn_k": Type.Q4_K, "attn_v": Type.Q6_K, "attn_output": Type.Q5_K,
           "ffn_gate": Type.Q3_K, "ffn_up": Type.Q2_K, "ffn_down": Type.Q6_K}  # fmt: skip
    sizes = {"hidden": 256, "inner": 256, "heads": 16, "kv_heads": 16, "layers": 1}
    raw = {
        f"blk.0.{name}.weight": (type_, random_blocks(type_, 256, 256, seed))
        for seed, (name, type_) in enumerate(mix.items())
    }
    floats = {name: gguf.quants.dequantize(blocks, type_) for name, (type_, blocks) in raw.items()}
    expected = logits(write_tiny(**sizes, type=Type.F32, tensors=floats))
    got = logits(write_tiny(**sizes, raw=raw))
    assert np.abs(got - expected).mean() <= 0.05 * expected.std()


# families ---------------------------------------------------------------------------------------
def test_qwen2_and_qwen3(write_tiny: WriteTiny) -> None:
    """Biases and norms are read, rows of q and k are in Hugging Face order, all keys are found."""
    random = np.random.RandomState(0)
    shapes = {
        "qwen2": {"attn_q.bias": 64, "attn_k.bias": 32, "attn_v.bias": 32},
        "qwen3": {"attn_q_norm.weight": 16, "attn_k_norm.weight": 16},
    }
    for architecture, vectors in shapes.items():
        extra = {
            f"blk.{i}.{name}": random.uniform(0.5, 1.5, size).astype(np.float32)
            for i in range(2)
            for name, size in vectors.items()
        }
        pre = {"tokenizer.ggml.pre": "qwen2"}
        path = write_tiny(architecture=architecture, tensors=extra, metadata=pre)
        model = models.find(GGUFFile(path))
        assert model.family == architecture
        assert not model.rotary_interleaved
        assert (model.qkv_bias, model.qk_norm) == (architecture == "qwen2", architecture == "qwen3")
        assert LLM.load(path, threads=1).generate("the", max_new_tokens=4)
        changed = {name: values * 2 for name, values in extra.items()}
        expected = logits(path)
        other = write_tiny(architecture=architecture, tensors=changed, metadata=pre)
        assert np.abs(logits(other) - expected).max() > 0.1
        missing = {k: v for k, v in extra.items() if not k.startswith("blk.1.")}
        with pytest.raises(ModelFileError, match=r"blk\.1\.attn_.*missing"):
            LLM.load(write_tiny(architecture=architecture, tensors=missing, metadata=pre))


def test_frequency_factors(write_tiny: WriteTiny) -> None:
    """Llama 3.1's rope_freqs.weight divides the frequencies; a packed file keeps it."""
    factors = np.array([1, 1, 1, 2, 4, 8, 8, 8], np.float32)
    path = write_tiny(tensors={"rope_freqs.weight": factors})
    checkpoint = GGUFFile(path)
    decoder = models.find(checkpoint).build(checkpoint, _core.ThreadPool(1))
    plain = 10000.0 ** (-np.arange(8) / 8)
    np.testing.assert_allclose(decoder.config.rope_inverse_frequency, plain / factors, rtol=1e-12)
    with pytest.raises(ModelFileError, match=r"rope_freqs\.weight is not positive"):
        LLM.load(write_tiny(tensors={"rope_freqs.weight": factors - 1}))


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}, "linear"),
        ({"llama.rope.scale_linear": 2.0}, "linear"),
        ({"llama.rope.scaling.type": "none"}, "default"),
        (
            {
                "llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0,
                "llama.rope.scaling.original_context_length": 32,
            },
            "yarn",
        ),
    ],
)  # fmt: skip
def test_rope_scaling_keys(write_tiny: WriteTiny, keys: dict[str, object], kind: str) -> None:
    rope = models.find(GGUFFile(write_tiny(metadata=keys))).rope
    assert rope.kind == kind
    if kind == "linear":
        np.testing.assert_allclose(rope.frequencies(128), 10000.0 ** (-np.arange(8) / 8) / 2)
    if kind == "yarn":
        assert (rope.factor, rope.original_context) == (4.0, 32)
        assert rope.scale() == pytest.approx(0.1 * np.log(4) + 1)


def test_longrope_tensors(write_tiny: WriteTiny) -> None:
    keys = {"llama.rope.scaling.type": "longrope",
            "llama.rope.scaling.original_context_length": 32}  # fmt: skip
    short, long = np.full(8, 1.5, np.float32), np.full(8, 3.0, np.float32)
    tensors = {"rope_factors_short.weight": short, "rope_factors_long.weight": long}
    checkpoint = GGUFFile(write_tiny(metadata=keys, tensors=tensors))
    plain = 10000.0 ** (-np.arange(8) / 8)
    for context, factor in ((32, 1.5), (128, 3.0)):
        model = models.find(checkpoint)
        decoder = model.build(checkpoint, _core.ThreadPool(1), context=context)
        np.testing.assert_allclose(decoder.config.rope_inverse_frequency, plain / factor)
        scale = np.sqrt(1 + np.log(4) / np.log(32))
        assert decoder.config.rope_attention_factor == pytest.approx(scale)


def test_info_of_longrope(write_tiny: WriteTiny) -> None:
    """Without the tensors that hold the factors."""
    keys = {"llama.rope.scaling.type": "longrope",
            "llama.rope.scaling.original_context_length": 32}  # fmt: skip
    factors = np.full(8, 1.5, np.float32)
    tensors = {f"rope_factors_{kind}.weight": factors for kind in ("short", "long")}
    lines = dict(model_report(write_tiny(metadata=keys, tensors=tensors)))
    assert lines["supported"] == "yes"
    assert lines["context"].startswith("128 tokens")
