"""Llama, Mistral, Qwen2 and Qwen3 from Hugging Face folders, against what transformers computes.

The expected values come from scripts/make_family_golden.py; test_families_torch.py recomputes them.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_hf

from intattention import _core, models
from intattention.hf_folder import HFFolder
from intattention.models.rope import Rope

GOLDEN = Path(__file__).parent / "data" / "families.npz"
# Mean |logit - transformers' logit| in units of the logits' standard deviation, w8g32 weights:
# int8 activations and integer attention on models that were not trained. 0.042 at most measured.
W8_TOLERANCE = 0.06
W8_LARGEST = 0.6  # of any logit; 0.33 measured
W4_TOLERANCE = 0.28  # w4g32a; 0.23 measured
WRONG = 0.25  # an option that is ignored must show: 0.30 at least measured


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(GOLDEN) as data:
        return dict(data)


def logits(folder: Path, model: models.Model | None = None, format: str = "w8g32") -> np.ndarray:
    """[len(IDS), vocab] of a folder, or of another description of it."""
    checkpoint = HFFolder(folder)
    model = model or models.find(checkpoint)
    context = max(len(tiny_hf.IDS), model.context)
    decoder = model.build(checkpoint, _core.ThreadPool(1), None, context, format)  # type: ignore[arg-type]
    return decoder.forward(tiny_hf.IDS, decoder.new_cache(len(tiny_hf.IDS)), "all")


def error(got: np.ndarray, expected: np.ndarray) -> tuple[float, float]:
    """Mean and largest error at POSITIONS, in standard deviations of the expected logits."""
    expected = expected.astype(np.float32)
    difference = np.abs(got[tiny_hf.POSITIONS] - expected) / expected.std()
    return float(difference.mean()), float(difference.max())


# logits -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", tiny_hf.CASES)
def test_logits_of_transformers(tmp_path: Path, golden: dict[str, np.ndarray], case: str) -> None:
    folder = tiny_hf.write(tmp_path, tiny_hf.config(case))
    mean, largest = error(logits(folder), golden[f"logits/{case}"])
    assert mean <= W8_TOLERANCE
    assert largest <= W8_LARGEST
    mean, _ = error(logits(folder, format="w4g32a"), golden[f"logits/{case}"])
    assert mean <= W4_TOLERANCE


@pytest.mark.parametrize("case", [c for c in tiny_hf.CASES if c not in ("llama", "mistral")])
def test_an_ignored_option_would_show(
    tmp_path: Path, golden: dict[str, np.ndarray], case: str
) -> None:
    folder = tiny_hf.write(tmp_path, tiny_hf.config(case))
    model = models.find(HFFolder(folder))
    for wrong in without_options(model, folder):
        mean, _ = error(logits(folder, wrong), golden[f"logits/{case}"])
        assert mean > WRONG


def without_options(model: models.Model, folder: Path) -> list[models.Model]:
    """The model with one of its options left out, for each that it has."""
    wrong = []
    if model.rope.kind != "default":
        wrong.append(replace(model, rope=Rope(model.rope.theta, model.rope.dim)))
    if any(model.windows):
        wrong.append(replace(model, windows=(0,) * len(model.windows)))
    if not wrong:
        wrong.append(replace(model, rope=Rope(100.0, model.rope.dim)))
    return wrong


@pytest.mark.parametrize(
    ("case", "tensor"),
    [
        ("qwen2", "self_attn.k_proj.bias"), ("qwen2", "self_attn.v_proj.bias"),
        ("llama biases", "self_attn.o_proj.bias"), ("llama biases", "mlp.gate_proj.bias"),
        ("llama biases", "mlp.up_proj.bias"), ("llama biases", "mlp.down_proj.bias"),
    ],
)  # fmt: skip
def test_biases_count(
    tmp_path: Path, golden: dict[str, np.ndarray], case: str, tensor: str
) -> None:
    config = tiny_hf.config(case)
    weights = tiny_hf.weights(config)
    for name in weights:
        if name.endswith(tensor):
            weights[name] = weights[name] * 0 + np.float32(0.5)
    mean, _ = error(logits(tiny_hf.write(tmp_path, config, weights)), golden[f"logits/{case}"])
    assert mean > W8_TOLERANCE


@pytest.mark.parametrize("tensor", ["q_norm", "k_norm"])
def test_norms_of_heads_count(tmp_path: Path, golden: dict[str, np.ndarray], tensor: str) -> None:
    config = tiny_hf.config("qwen3")
    weights = tiny_hf.weights(config)
    for name in weights:
        if tensor in name:
            weights[name] = weights[name][::-1].copy()
    mean, _ = error(logits(tiny_hf.write(tmp_path, config, weights)), golden["logits/qwen3"])
    assert mean > W8_TOLERANCE


# greedy -----------------------------------------------------------------------------------------
def trained_folder(tmp_path: Path, golden: dict[str, np.ndarray], family: str) -> Path:
    prefix = f"trained/{family}/"
    stored = {k.removeprefix(prefix): v for k, v in golden.items() if k.startswith(prefix)}
    floats = {
        name: (bits.astype(np.uint32) << 16).view(np.float32) for name, bits in stored.items()
    }
    return tiny_hf.write(tmp_path, tiny_hf.TRAINED[family], floats, "BF16", shards=2)


@pytest.mark.parametrize("format", ["w8g32", "w4g32a"])
@pytest.mark.parametrize("family", tiny_hf.TRAINED)
def test_greedy_tokens_of_transformers(
    tmp_path: Path, golden: dict[str, np.ndarray], family: str, format: str
) -> None:
    checkpoint = HFFolder(trained_folder(tmp_path, golden, family))
    model = models.find(checkpoint)
    decoder = model.build(checkpoint, _core.ThreadPool(1), None, None, format)  # type: ignore[arg-type]
    expected = golden[f"greedy/{family}"].astype(np.int32)
    for row in expected:
        cache = decoder.new_cache(128)
        last = decoder.forward(row[:64].copy(), cache)
        for token in row[64:]:
            assert last.argmax() == token
            last = decoder.forward(np.array([token], np.int32), cache)


# rotation ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", tiny_hf.CASES)
def test_frequencies_of_transformers(
    tmp_path: Path, golden: dict[str, np.ndarray], case: str
) -> None:
    model = models.find(HFFolder(tiny_hf.write(tmp_path, tiny_hf.config(case))))
    config = model.config(max(len(tiny_hf.IDS), model.context))
    expected = golden[f"rope/{case}"]
    np.testing.assert_allclose(config.rope_inverse_frequency, expected[:-1], rtol=1e-6)
    assert config.rope_attention_factor == pytest.approx(expected[-1], rel=1e-6)


def test_the_context_chooses_the_rotation(tmp_path: Path) -> None:
    """Dynamic NTK and longrope: plain up to the trained length, stretched beyond it."""
    dynamic = models.find(HFFolder(tiny_hf.write(tmp_path / "a", tiny_hf.config("llama dynamic"))))
    assert (dynamic.context, dynamic.max_context) == (64, 256)
    plain = Rope(10000.0, 16).frequencies(64)
    np.testing.assert_array_equal(dynamic.rope.frequencies(64), plain)
    assert (dynamic.rope.frequencies(256)[1:] < 0.9 * plain[1:]).all()
    case = tiny_hf.config("qwen3 untied longrope")
    long = models.find(HFFolder(tiny_hf.write(tmp_path / "b", case)))
    short_factors, long_factors = (
        np.array(tiny_hf.LONGROPE[f"{kind}_factor"]) for kind in ("short", "long")
    )
    np.testing.assert_allclose(long.rope.frequencies(128), plain / short_factors)
    np.testing.assert_allclose(long.rope.frequencies(129), plain / long_factors)


def test_yarn_states_a_longer_context(tmp_path: Path) -> None:
    config = tiny_hf.config("qwen2 yarn untied") | {"max_position_embeddings": 128}
    model = models.find(HFFolder(tiny_hf.write(tmp_path, config)))
    assert model.max_context == 512


def test_a_part_of_the_head_rotates(tmp_path: Path) -> None:
    config = tiny_hf.config("llama wide heads") | {"partial_rotary_factor": 0.5}
    folder = tiny_hf.write(tmp_path, config)
    model = models.find(HFFolder(folder))
    assert model.rope.dim == 16
    frequencies = model.config().rope_inverse_frequency
    np.testing.assert_allclose(frequencies, 10000.0 ** (-np.arange(8) / 8), rtol=1e-12)
    whole = logits(tiny_hf.write(tmp_path / "whole", tiny_hf.config("llama wide heads")))
    assert np.abs(logits(folder) - whole).mean() > WRONG * whole.std()


def test_original_length_beside_the_dictionary(tmp_path: Path) -> None:
    """Phi writes it there, and it counts."""
    config = tiny_hf.config("qwen3 untied longrope") | {"original_max_position_embeddings": 96}
    rope = models.find(HFFolder(tiny_hf.write(tmp_path, config))).rope
    assert rope.original_context == 96
