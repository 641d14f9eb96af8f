"""A decoder forward from the oracle's operators; the whole prompt at once, no cache."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.attention import attention
from reference.float_kernels import plain_frequencies, rmsnorm, rope, rope_tables, swiglu
from reference.linear import Weights, dequantize, linear, random_weights

f32 = np.float32


class Config(NamedTuple):
    """The keyword arguments of DecoderConfig."""

    vocab_size: int = 128
    hidden_size: int = 64
    intermediate_size: int = 96
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 16
    max_position_embeddings: int = 4096
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    rope_inverse_frequency: NDArray[np.float64] | None = None
    rope_attention_factor: float = 1.0

    @property
    def frequencies(self) -> NDArray[np.float64]:
        if self.rope_inverse_frequency is None:
            return plain_frequencies(self.head_dim, self.rope_theta)
        return self.rope_inverse_frequency


class Options(NamedTuple):
    """What a layer may have besides, all optional."""

    qkv_bias: NDArray[f32] | None = None
    o_bias: NDArray[f32] | None = None
    gate_up_bias: NDArray[f32] | None = None
    down_bias: NDArray[f32] | None = None
    q_norm: NDArray[f32] | None = None
    k_norm: NDArray[f32] | None = None
    sliding_window: int = 0
    qk_scale: NDArray[f32] | None = None
    k_center: NDArray[f32] | None = None


class Layer(NamedTuple):
    input_layernorm: NDArray[f32]
    qkv_proj: list[Weights]
    o_proj: Weights
    post_attention_layernorm: NDArray[f32]
    gate_up_proj: list[Weights]
    down_proj: Weights
    options: Options = Options()


class Model(NamedTuple):
    config: Config
    embed_tokens: Weights
    layers: list[Layer]
    norm: NDArray[f32]
    lm_head: Weights | None


def forward(model: Model, ids: NDArray[np.int32]) -> NDArray[f32]:
    """ids [T] -> logits [T, vocab]."""
    c = model.config
    cos, sin = rope_tables(np.arange(len(ids)), c.frequencies, c.rope_attention_factor)
    x = dequantize(model.embed_tokens)[ids]
    for layer in model.layers:
        h = rmsnorm(x, layer.input_layernorm, c.rms_norm_eps)
        q, k, v = _qkv(layer, h, c)
        window = layer.options.sliding_window
        k = rope(k, cos, sin)
        if layer.options.k_center is not None:
            k = k - layer.options.k_center.reshape(c.num_key_value_heads, 1, c.head_dim)
        o = attention(rope(q, cos, sin), k, v, window=window)
        biases = layer.options
        o = linear(o.transpose(1, 0, 2).reshape(len(ids), -1), layer.o_proj)
        x = x + _biased(o, biases.o_bias)
        h = rmsnorm(x, layer.post_attention_layernorm, c.rms_norm_eps)
        gate_up = np.concatenate([linear(h, w) for w in layer.gate_up_proj], axis=1)
        gate, up = np.split(_biased(gate_up, biases.gate_up_bias), 2, axis=1)
        x = x + _biased(linear(swiglu(gate, up), layer.down_proj), biases.down_bias)
    return linear(rmsnorm(x, model.norm, c.rms_norm_eps), model.lm_head or model.embed_tokens)


def _qkv(layer: Layer, h: NDArray[f32], c: Config) -> list[NDArray[f32]]:
    """q, k, v [heads, T, d] before RoPE."""
    options = layer.options
    qkv = np.concatenate([linear(h, w) for w in layer.qkv_proj], axis=1)
    qkv = _biased(qkv, options.qkv_bias)
    q_size, kv_size = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    q, k, v = (_heads(x, c.head_dim) for x in np.split(qkv, [q_size, q_size + kv_size], axis=1))
    if options.q_norm is not None:
        q = rmsnorm(q, options.q_norm, c.rms_norm_eps)
    if options.k_norm is not None:
        k = rmsnorm(k, options.k_norm, c.rms_norm_eps)
    if options.qk_scale is not None:
        scale = options.qk_scale.reshape(c.num_key_value_heads, 1, c.head_dim)
        group = c.num_attention_heads // c.num_key_value_heads
        q, k = q * np.repeat(scale, group, axis=0), k / scale
    return [q, k, v]


def _biased(x: NDArray[f32], bias: NDArray[f32] | None) -> NDArray[f32]:
    return x if bias is None else x + bias


def _heads(x: NDArray[f32], head_dim: int) -> NDArray[f32]:
    """[T, heads * d] -> [heads, T, d]"""
    return np.ascontiguousarray(x.reshape(len(x), -1, head_dim).transpose(1, 0, 2))


def random_model(
    config: Config,
    formats: tuple[str, ...] = ("w4g32", "w4g32a", "w8g32"),
    tied: bool = True,
    seed: int = 0,
) -> Model:
    """Random weights; the formats take turns, so a mixed qkv_proj is covered too."""
    rng = np.random.default_rng(seed)
    c = config
    turn = iter(range(1 << 30))

    def weights(n: int, k: int, std: float | None = None) -> Weights:
        return random_weights(rng, formats[next(turn) % len(formats)], n, k, std or k**-0.5)

    def norm() -> NDArray[f32]:
        return rng.uniform(0.5, 1.5, c.hidden_size).astype(f32)

    q_size, kv_size = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    layers = [
        Layer(
            input_layernorm=norm(),
            qkv_proj=[weights(n, c.hidden_size) for n in (q_size, kv_size, kv_size)],
            o_proj=weights(c.hidden_size, q_size),
            post_attention_layernorm=norm(),
            gate_up_proj=[weights(c.intermediate_size, c.hidden_size) for _ in range(2)],
            down_proj=weights(c.hidden_size, c.intermediate_size),
        )
        for _ in range(c.num_hidden_layers)
    ]
    head = None if tied else weights(c.vocab_size, c.hidden_size)
    return Model(c, weights(c.vocab_size, c.hidden_size, 1.0), layers, norm(), head)


def with_options(
    model: Model, seed: int, bias: bool, norm: bool, windows: list[int], balance: bool = False
) -> Model:
    """The model with random biases, and norms, scales and centres of q and k in every layer, and a
    window of its own for each."""
    rng = np.random.default_rng(seed)
    c = model.config
    size = (c.num_attention_heads + 2 * c.num_key_value_heads) * c.head_dim

    def biases(size: int) -> NDArray[f32] | None:
        return rng.standard_normal(size).astype(f32) if bias else None

    def scale() -> NDArray[f32]:
        pairs = 2.0 ** rng.integers(-3, 4, (c.num_key_value_heads, len(c.frequencies)))
        rest = np.ones((c.num_key_value_heads, c.head_dim - 2 * len(c.frequencies)))
        return np.concatenate([pairs, pairs, rest], axis=1).reshape(-1).astype(f32)

    def options(window: int) -> Options:
        return Options(
            biases(size),
            biases(c.hidden_size),
            biases(2 * c.intermediate_size),
            biases(c.hidden_size),
            rng.uniform(0.5, 1.5, c.head_dim).astype(f32) if norm else None,
            rng.uniform(0.5, 1.5, c.head_dim).astype(f32) if norm else None,
            window,
            scale() if balance else None,
            rng.standard_normal(c.num_key_value_heads * c.head_dim).astype(f32)
            if balance
            else None,
        )

    layers = zip(model.layers, windows, strict=True)
    return model._replace(layers=[x._replace(options=options(window)) for x, window in layers])
