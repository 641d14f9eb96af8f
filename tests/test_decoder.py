"""The decoder: the NumPy oracle's bits, whatever the chunks, threads or table."""

from dataclasses import dataclass

import numpy as np
import pytest
from isa_fixture import isa  # noqa: F401
from reference.decoder import Config, Model, forward, random_model, with_options
from reference.float_kernels import plain_frequencies
from reference.linear import FORMATS
from small_decoder import build, pack

from intattention import _core

pytestmark = pytest.mark.usefixtures("isa")

PARTIAL = plain_frequencies(16, 5e5) / 4
# name -> (config, formats in turn, tied embedding)
MODELS: dict[str, tuple[Config, tuple[str, ...], bool]] = {
    "mixed": (Config(), FORMATS, True),
    "w4g32": (Config(num_hidden_layers=3), ("w4g32",), False),
    "w4g32a": (Config(head_dim=32, vocab_size=131), ("w4g32a",), True),
    "w8g32": (Config(head_dim=64, num_key_value_heads=4, rope_theta=1e5), ("w8g32",), False),
    "one kv head": (
        Config(num_attention_heads=6, num_key_value_heads=1),
        ("w4g32a", "w8g32"),
        True,
    ),
    "bias": (Config(), FORMATS, True),
    "norms": (Config(head_dim=32, num_attention_heads=8), ("w8g32",), False),
    "windows": (Config(), ("w4g32a",), False),
    "balance": (Config(num_attention_heads=6), ("w4g32a",), False),
    "all options": (
        Config(head_dim=32, rope_inverse_frequency=PARTIAL, rope_attention_factor=1.2),
        ("w4g32a", "w8g32"),
        True,
    ),
}
# name -> arguments of with_options
OPTIONS: dict[str, tuple[bool, bool, list[int], bool]] = {
    "bias": (True, False, [0, 0], False),
    "norms": (False, True, [0, 0], False),
    "windows": (False, False, [0, 33], False),
    "balance": (True, False, [0, 0], True),
    "all options": (True, True, [290, 5], True),
}


@dataclass
class Case:
    model: Model
    ids: np.ndarray
    logits: np.ndarray


_cases: dict[tuple[str, int], Case] = {}


def case(name: str, length: int) -> Case:
    """The oracle's logits, computed once for all tables."""
    if (name, length) not in _cases:
        config, formats, tied = MODELS[name]
        model = random_model(config, formats, tied, seed=len(name))
        if name in OPTIONS:
            model = with_options(model, 3, *OPTIONS[name])
        ids = np.random.default_rng(length).integers(0, config.vocab_size, length, dtype=np.int32)
        _cases[name, length] = Case(model, ids, forward(model, ids))
    return _cases[name, length]


def run(decoder: _core.Decoder, ids: np.ndarray, chunk: int) -> np.ndarray:
    cache = decoder.new_cache(len(ids))
    parts = [decoder.forward(ids[i : i + chunk], cache, "all") for i in range(0, len(ids), chunk)]
    assert len(cache) == len(ids)
    return np.concatenate(parts)


@pytest.mark.parametrize("name", MODELS)
def test_equals_the_oracle(name: str) -> None:
    c = case(name, 320)
    logits = run(build(c.model), c.ids, 320)
    assert logits.dtype == np.float32
    np.testing.assert_array_equal(logits, c.logits)


@pytest.mark.parametrize("chunk", [1, 7, 64, 100, 256, 257])
@pytest.mark.parametrize("name", ["mixed", "all options"])
def test_chunks_do_not_matter(name: str, chunk: int) -> None:
    c = case(name, 320)
    np.testing.assert_array_equal(run(build(c.model), c.ids, chunk), c.logits)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("chunk", [1, 100, 1130])
def test_across_a_key_range(threads: int, chunk: int) -> None:
    c = case("mixed", 1130)
    np.testing.assert_array_equal(run(build(c.model, threads), c.ids, chunk), c.logits)


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_threads_do_not_matter(name: str, threads: int) -> None:
    c = case(name, 320)
    np.testing.assert_array_equal(run(build(c.model, threads), c.ids, 77), c.logits)


@pytest.mark.parametrize("chunk", [40, 300])
def test_which_logits(chunk: int) -> None:
    c = case("mixed", 320)
    decoder = build(c.model, 2)
    cache = decoder.new_cache(320)
    assert decoder.forward(c.ids[:chunk], cache, "none").shape == (0, 128)
    assert len(cache) == chunk
    last = decoder.forward(c.ids[chunk:], cache)
    assert last.shape == (1, 128)
    np.testing.assert_array_equal(last, c.logits[-1:])
    with pytest.raises(ValueError, match="some"):
        decoder.forward(c.ids[:1], decoder.new_cache(8), "some")


def test_two_caches_do_not_mix() -> None:
    c = case("mixed", 320)
    decoder = build(c.model)
    first, second = decoder.new_cache(64), decoder.new_cache(64)
    other = c.ids[200:230].copy()
    expected = forward(c.model, other)
    for i in range(30):
        a = decoder.forward(c.ids[i : i + 1], first)
        b = decoder.forward(other[i : i + 1], second)
        np.testing.assert_array_equal(a[0], c.logits[i])
        np.testing.assert_array_equal(b[0], expected[i])


def test_batches_equal_single_runs() -> None:
    """Parts of five sequences in one call, more tokens than a pass takes."""
    decoder = build(case("all options", 1).model, threads=2)
    random = np.random.default_rng(4)
    parts = [(40, 1, "last"), (0, 20, "all"), (100, 1, "last"), (3, 30, "none"), (5, 300, "last")]
    ids, single, batch, expected = [], [], [], []
    for before, count, logits in parts:
        text = random.integers(0, decoder.config.vocab_size, before + count).astype(np.int32)
        cache = decoder.new_cache(512)
        if before:
            decoder.forward(text[:before], cache, "none")
        batch.append(cache.fork())
        ids.append(text[before:])
        expected.append(decoder.forward(ids[-1], cache, logits))
        single.append(cache)
    got = decoder.forward_batch(ids, batch, [logits for _, _, logits in parts])
    assert np.array_equal(got, np.concatenate(expected))
    last = np.array([1], np.int32)
    for one, other in zip(single, batch, strict=True):
        assert len(one) == len(other)
        assert np.array_equal(decoder.forward(last, one), decoder.forward(last, other))


def test_wrong_batches_raise_and_change_nothing() -> None:
    decoder = build(case("mixed", 1).model)
    ids = np.array([1, 2], np.int32)
    one, other = decoder.new_cache(8), decoder.new_cache(2)
    decoder.forward(ids[:1], other, "none")
    for arguments, words in (
        (([], [], []), "no sequences"),
        (([ids], [one], []), "1 arrays of ids, 1 caches and 0 choices"),
        (([ids, ids], [one, one], ["last"] * 2), "sequences 0 and 1 have the same cache"),
        (([ids, ids], [one, None], ["last"] * 2), "cache 1 is None"),
        (([ids, ids], [one, other], ["last"] * 2), "context overflow"),
        (([ids, ids], [one, decoder.new_cache(8)], ["last", "some"]), "'some'"),
    ):
        with pytest.raises(ValueError, match=words):
            decoder.forward_batch(*arguments)
        assert (len(one), len(other)) == (0, 1)


def test_config_and_nbytes() -> None:
    c = case("mixed", 320)
    decoder = build(c.model)
    expected = c.model.config._asdict()
    expected["rope_inverse_frequency"] = c.model.config.frequencies
    for name, value in expected.items():
        assert getattr(decoder.config, name) == pytest.approx(value)
    assert decoder.nbytes > c.model.embed_tokens.q.nbytes


@pytest.mark.parametrize("bad", [-1, 128, 2**31 - 1, -(2**31)])
def test_bad_ids_raise_and_change_nothing(bad: int) -> None:
    c = case("mixed", 320)
    decoder = build(c.model)
    cache = decoder.new_cache(320)
    decoder.forward(c.ids[:10], cache)
    with pytest.raises(ValueError, match=str(bad)):
        decoder.forward(np.array([1, 2, bad, 3], np.int32), cache)
    assert len(cache) == 10
    np.testing.assert_array_equal(decoder.forward(c.ids[10:50], cache, "all"), c.logits[10:50])


def test_wrong_calls_raise_and_change_nothing() -> None:
    c = case("mixed", 320)
    decoder = build(c.model)
    cache = decoder.new_cache(20)
    decoder.forward(c.ids[:10], cache)
    with pytest.raises(ValueError, match="no token"):
        decoder.forward(np.zeros(0, np.int32), cache)
    with pytest.raises((ValueError, TypeError), match="int64"):
        decoder.forward(c.ids[:3].astype(np.int64), cache)
    with pytest.raises(ValueError, match="contiguous"):
        decoder.forward(c.ids[:20:2], cache)
    with pytest.raises(ValueError, match="dimension"):
        decoder.forward(c.ids[:4].reshape(2, 2), cache)
    with pytest.raises(_core.ContextOverflowError, match="20"):
        decoder.forward(c.ids[10:21], cache)
    assert len(cache) == 10
    np.testing.assert_array_equal(decoder.forward(c.ids[10:20], cache, "all"), c.logits[10:20])
    with pytest.raises(_core.ContextOverflowError):
        decoder.forward(c.ids[20:21], cache)
    cache.truncate(19)
    np.testing.assert_array_equal(decoder.forward(c.ids[19:20], cache), c.logits[19:20])


def test_cache_of_another_shape_raises() -> None:
    decoder = build(case("mixed", 320).model)
    for shape in ((3, 2, 16), (2, 1, 16), (2, 2, 32)):
        with pytest.raises(ValueError, match=".*".join(map(str, shape))):
            decoder.forward(np.zeros(1, np.int32), _core.KVCache(*shape, 8))


@pytest.mark.parametrize("where", ["input_layernorm", "post_attention_layernorm", "norm"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_norms_raise(where: str, bad: float) -> None:
    model = random_model(Config())
    target = model.norm if where == "norm" else getattr(model.layers[1], where)
    target[5] = bad
    with pytest.raises((ValueError, _core.NumericError)):
        build(model).forward(np.zeros(1, np.int32), build(model).new_cache(4))


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("norm", ["input_layernorm", "post_attention_layernorm"])
def test_overflow_in_a_layer_is_a_numeric_error(layer: int, norm: str) -> None:
    """Finite weights whose product leaves the float range: found, and the cache stays as it was."""
    model = random_model(Config(), ("w8g32",))
    decoder_norm = getattr(model.layers[layer], norm)
    decoder_norm[:] = 3e38
    decoder = build(model)
    cache = decoder.new_cache(8)
    for _ in range(2):
        with pytest.raises(_core.NumericError):
            decoder.forward(np.array([1, 2, 3], np.int32), cache)
        assert len(cache) == 0


@pytest.mark.parametrize(
    "name",
    [
        "qkv_bias", "o_bias", "gate_up_bias", "down_bias", "q_norm", "k_norm", "qk_scale",
        "k_center",
    ],
)  # fmt: skip
def test_wrong_options_raise(name: str) -> None:
    model = random_model(Config())
    for values in (np.ones(24, np.float32), np.full(16, np.nan, np.float32)):
        options = model.layers[0].options._replace(**{name: values})
        layers = [model.layers[0]._replace(options=options), model.layers[1]]
        with pytest.raises(ValueError, match=name):
            build(model._replace(layers=layers))


@pytest.mark.parametrize(("at", "value"), [(3, 2.0), (0, 3.0), (0, -1.0), (0, 0.0)])
def test_scales_that_change_the_result_raise(at: int, value: float) -> None:
    model = random_model(Config())
    scale = np.ones(32, np.float32)
    scale[at] = value
    options = model.layers[0].options._replace(qk_scale=scale)
    layers = [model.layers[0]._replace(options=options), model.layers[1]]
    with pytest.raises(ValueError, match=rf"qk_scale\[{at}\] is {value:g}.*(power|partner)"):
        build(model._replace(layers=layers))


def test_wrong_weights_raise() -> None:
    model = random_model(Config())
    with pytest.raises(ValueError, match=r"2.*1|1.*2"):
        build(model._replace(layers=model.layers[:1]))
    with pytest.raises(ValueError, match=r"64.*56|56.*64"):
        build(model._replace(norm=model.norm[:56].copy()))
    layer = model.layers[0]
    with pytest.raises(ValueError, match="qkv_proj"):
        build(model._replace(layers=[layer._replace(qkv_proj=layer.qkv_proj[:2]), layer]))
    with pytest.raises(ValueError, match="o_proj"):
        build(model._replace(layers=[layer, layer._replace(o_proj=layer.down_proj)]))
    with pytest.raises(ValueError, match="embed_tokens"):
        build(model._replace(embed_tokens=layer.down_proj))
    for change in (
        {"head_dim": 24},
        {"hidden_size": 40},
        {"num_key_value_heads": 3},
        {"rope_theta": 0.5},
        {"rms_norm_eps": -1.0},
        {"vocab_size": 0},
        {"rope_inverse_frequency": np.ones(12)},
        {"rope_inverse_frequency": np.ones(16)},
        {"rope_inverse_frequency": np.full(8, np.nan)},
        {"rope_attention_factor": 0.0},
    ):
        with pytest.raises(ValueError, match=r"\d"):
            build(model._replace(config=model.config._replace(**change)))
    with pytest.raises(TypeError):
        _core.Decoder(
            _core.DecoderConfig(**model.config._asdict()),
            pack(model.embed_tokens),
            [],
            model.norm,
            None,
            None,
        )
