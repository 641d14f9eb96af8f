"""GPTQ and AWQ: the integers and scales of the file, in our groups; what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_hf

from intattention import LLM, _core, models
from intattention.checkpoint import LogicalTensor
from intattention.errors import ModelFileError, UnsupportedModelError
from intattention.hf_folder import HFFolder
from intattention.hf_quantized import Scheme
from intattention.safetensors_file import SafetensorsFile

CONFIG = {**tiny_hf.config("llama"), "hidden_size": 128, "intermediate_size": 256}
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def pack(values: np.ndarray) -> np.ndarray:
    """[..., 8] nibbles -> int32 [...], the first one lowest."""
    total = np.zeros(values.shape[:-1], np.int64)
    for i in range(8):
        total |= values[..., i].astype(np.int64) << 4 * i
    return total.astype(np.uint32).view(np.int32)


def stored(method: str, q: np.ndarray, zeros: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """q [out, in], zeros [groups, out] -> qweight, qzeros as the writers of the formats do."""
    groups, n = zeros.shape
    if method == "gptq":
        qweight = pack(q.T.reshape(-1, 8, n).swapaxes(1, 2))
        return qweight, pack((zeros - 1 & 15).reshape(groups, -1, 8))
    qweight = pack(q.T.reshape(-1, n // 8, 8)[..., AWQ_ORDER])
    return qweight, pack(zeros.reshape(groups, -1, 8)[..., AWQ_ORDER])


def integers(tensor: LogicalTensor) -> np.ndarray:
    return np.concatenate([tensor.q & 15, tensor.q >> 4], axis=2).reshape(tensor.shape)


def random_parts(
    method: str, n: int, k: int, group: int, symmetric: bool, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """(q, zeros, scales, the file's tensors)"""
    random = np.random.RandomState(seed)
    q = random.randint(0, 16, (n, k))
    zeros = np.full((k // group, n), 8) if symmetric else random.randint(1, 16, (k // group, n))
    scales = (random.uniform(0.5, 2, (k // group, n)) / (5 * np.sqrt(k))).astype(np.float16)
    qweight, qzeros = stored(method, q, zeros)
    parts = {"qweight": qweight, "qzeros": qzeros, "scales": scales}
    if method == "gptq":
        parts["g_idx"] = (np.arange(k) // group).astype(np.int32)
    return q, zeros, scales, parts


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_round_trip(method: str, group: int, symmetric: bool) -> None:
    q, zeros, scales, parts = random_parts(method, 48, 256, group, symmetric)
    scheme = Scheme(method, group, 1 if method == "gptq" else 0)  # type: ignore[arg-type]
    tensor = scheme.matrix(parts["qweight"], parts["scales"], parts["qzeros"])
    assert tensor.format == ("w4g32" if symmetric else "w4g32a")
    np.testing.assert_array_equal(integers(tensor), q)
    by_input = np.repeat(np.arange(256 // group), group)
    np.testing.assert_array_equal(np.repeat(tensor.scale, 32, axis=1), scales[by_input].T)
    exact = (scales.astype(np.float64) * -zeros)[by_input].T + scales[by_input].T * q.astype(float)
    limit = 0 if symmetric else 2.0**-11 * np.abs(scales.astype(float) * zeros)[by_input].T
    assert (np.abs(tensor.dequantize() - exact) <= limit + 1e-7).all()


def test_one_group_and_no_zeros() -> None:
    q, _, scales, parts = random_parts("gptq", 16, 96, 96, True)
    tensor = Scheme("gptq", -1, 1).matrix(parts["qweight"], scales, None)
    np.testing.assert_array_equal(integers(tensor), q)
    np.testing.assert_array_equal(tensor.scale, np.repeat(scales.T, 3, axis=1))


def test_zeros_of_the_second_gptq_format() -> None:
    _, zeros, scales, parts = random_parts("gptq", 16, 64, 32, False)
    old = Scheme("gptq", 32, 1).matrix(parts["qweight"], scales, parts["qzeros"])
    new = Scheme("gptq", 32, 0).matrix(parts["qweight"], scales, pack(zeros.reshape(2, -1, 8)))
    np.testing.assert_array_equal(old.min, new.min)


def write_quantized(
    folder: Path, method: str, quantization: dict[str, Any] | None = None,
    change: dict[str, np.ndarray] | None = None, symmetric: bool = False,
) -> tuple[Path, dict[str, np.ndarray]]:  # fmt: skip
    """A folder with int4 linears, and the float weights that they mean."""
    floats = {
        k: v.astype(np.float16).astype(np.float32) for k, v in tiny_hf.weights(CONFIG).items()
    }
    entries: dict[str, tuple[str, tuple[int, ...], bytes]] = {}
    for i, (name, tensor) in enumerate(floats.items()):
        if not name.endswith("proj.weight"):
            entries[name] = ("F16", tensor.shape, tiny_hf.stored(tensor, "F16"))
            continue
        q, zeros, scales, parts = random_parts(method, *tensor.shape, 64, symmetric, seed=i)
        group = np.repeat(np.arange(tensor.shape[1] // 64), 64)
        floats[name] = (scales[group].T * (q - zeros[group].T.astype(np.float32))).astype(
            np.float32
        )
        for part, values in {**parts, **(change or {})}.items():
            dtype = "F16" if part == "scales" else "I32"
            entries[name.removesuffix("weight") + part] = (dtype, values.shape, values.tobytes())
    config = {"quant_method": method, "bits": 4, "group_size": 64, "desc_act": False,
              "zero_point": True, **(quantization or {})}  # fmt: skip
    tiny_hf.write(folder, {**CONFIG, "quantization_config": config})
    tiny_hf.write_safetensors(folder / "model.safetensors", entries)
    return folder, floats


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_whole_model(tmp_path: Path, method: str, symmetric: bool) -> None:
    """Logits of an int4 folder against those of the same weights as float32 in w8g32."""
    folder, floats = write_quantized(tmp_path / "int4", method, symmetric=symmetric)
    results = []
    for path in (folder, tiny_hf.write(tmp_path / "float", CONFIG, floats)):
        checkpoint = HFFolder(path)
        pool = _core.ThreadPool(1)
        decoder = models.find(checkpoint).build(checkpoint, pool, linears="w8g32")
        results.append(decoder.forward(tiny_hf.IDS, decoder.new_cache(256), "all"))
    # 0.055 measured, the noise of both roundings; a wrong order of the integers gives more than 1
    assert np.abs(results[0] - results[1]).mean() <= 0.08 * results[1].std()
    assert LLM.load(folder, threads=1).generate("the", max_new_tokens=4)


def test_biases_of_zeros_are_let_pass(tmp_path: Path) -> None:
    bias = np.zeros(128, np.float16)
    for value in (0, 1):
        folder, _ = write_quantized(tmp_path / str(value), "gptq")
        file = SafetensorsFile(folder / "model.safetensors")
        entries = {
            t.name: (t.dtype, t.shape, file.raw(t.name).tobytes()) for t in file.tensors.values()
        }
        entries["model.layers.0.self_attn.o_proj.bias"] = ("F16", (128,), (bias + value).tobytes())
        tiny_hf.write_safetensors(folder / "model.safetensors", entries)
    assert LLM.load(tmp_path / "0", threads=1).generate("the", max_new_tokens=2)
    with pytest.raises(UnsupportedModelError, match=r"1 tensors have no place.*o_proj\.bias"):
        LLM.load(tmp_path / "1", threads=1)


@pytest.mark.parametrize(
    ("method", "quantization", "words"),
    [
        ("gptq", {"bits": 8}, "quantization_config.bits is 8, supported: 4"),
        ("gptq", {"desc_act": True}, "desc_act is True, supported: False"),
        ("gptq", {"group_size": 16}, "group_size is 16, supported: multiples of 32"),
        ("gptq", {"checkpoint_format": "marlin"}, "checkpoint_format is 'marlin'.*'gptq_v2'"),
        ("awq", {"version": "GEMV"}, "version is 'gemv', supported: 'gemm'"),
        ("awq", {"quant_method": "fp8"}, "quant_method is 'fp8', supported: 'gptq', 'awq'"),
    ],
)
def test_unsupported_schemes(
    tmp_path: Path, method: str, quantization: dict[str, Any], words: str
) -> None:
    folder, _ = write_quantized(tmp_path, method, quantization)
    with pytest.raises(UnsupportedModelError, match=words):
        LLM.load(folder, threads=1)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"g_idx": np.arange(128, dtype=np.int32) % 2}, UnsupportedModelError, "scatters"),
        ({"scales": np.ones((3, 128), np.float16)}, ModelFileError, r"scales are \(3, 128\), exp"),
        ({"scales": np.full((2, 128), np.inf, np.float16)}, ModelFileError, "scale is NaN or Inf"),
        ({"scales": np.full((2, 128), 6e4, np.float16)}, ModelFileError, "beyond float16"),
        ({"qzeros": np.ones((2, 8), np.int32)}, ModelFileError, r"qzeros are \(2, 8\)"),
        ({"qweight": np.ones(128, np.int32)}, ModelFileError, "qweight has the shape"),
    ],
)
def test_damaged_parts(
    tmp_path: Path, change: dict[str, np.ndarray], error: type[Exception], words: str
) -> None:
    folder, _ = write_quantized(tmp_path, "gptq", change=change)
    with pytest.raises(error, match=words):
        LLM.load(folder, threads=1)


def test_config_that_is_no_object(tmp_path: Path) -> None:
    folder, _ = write_quantized(tmp_path, "gptq")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": "gptq"}))
    with pytest.raises(ModelFileError, match="quantization_config is 'gptq'"):
        LLM.load(folder, threads=1)
