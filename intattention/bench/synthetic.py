"""A decoder of a named shape with random weights: speed and memory without a download.

Types as in a Q4_0 file: linears w4g32; the matrix of the logits w8g32, and if the embedding is
not that same matrix, it is w4g32. One tensor is generated and packed at a time, so memory is the
packed weights and one tensor more. The scales give each linear outputs of about the size of its
inputs, so activations stay finite at any depth. Half of the scales are negative: the integers of
w4g32 have the mean -1/2, and one sign would push every output the same way until all tokens have
the same logits.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from intattention._core import (
    GROUP,
    Decoder,
    DecoderConfig,
    DecoderLayer,
    PackedWeights,
    ThreadPool,
)
from intattention.bench.shapes import ModelShape
from intattention.dtypes import F32

Format = Literal["w4g32", "w4g32a", "w8g32"]

# Standard deviation of the integers drawn here, in steps.
SPREAD = {"w4g32": math.sqrt((16**2 - 1) / 12), "w8g32": math.sqrt((255**2 - 1) / 12)}
SPREAD["w4g32a"] = SPREAD["w4g32"]


def random_matrix(rng: np.random.Generator, format: Format, n: int, k: int) -> PackedWeights:
    """[n, k], mean about 0 and standard deviation about 1 / sqrt(k)."""
    groups = k // GROUP
    step = 1 / (SPREAD[format] * math.sqrt(k))
    sign = rng.integers(0, 2, (n, groups)) * 2 - 1
    scale = (step * sign * rng.uniform(0.5, 1.5, (n, groups))).astype(np.float16)
    if format == "w8g32":
        q = np.frombuffer(rng.bytes(n * k), np.int8).reshape(n, k)
        return PackedWeights(format, np.maximum(q, -127), scale)
    nibbles = np.frombuffer(rng.bytes(n * k // 2), np.uint8).reshape(n, groups, GROUP // 2)
    minimum = np.float16(-7.5) * scale if format == "w4g32a" else None
    return PackedWeights(format, nibbles, scale, minimum)


def build(shape: ModelShape, pool: ThreadPool, layers: int = 0) -> Decoder:
    """``layers``: build only so many; 0 means all."""
    rng = np.random.default_rng(1)
    config = DecoderConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=layers or shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.context,
        rms_norm_eps=shape.eps,
        rope_theta=shape.rope_theta,
    )
    ones = np.ones(shape.hidden, np.float32)
    embed_format: Format = "w8g32" if shape.tied else "w4g32"
    embed = random_matrix(rng, embed_format, shape.vocab, shape.hidden)
    stack = [random_layer(rng, shape, ones) for _ in range(config.num_hidden_layers)]
    head = None if shape.tied else random_matrix(rng, "w8g32", shape.vocab, shape.hidden)
    return Decoder(config, embed, stack, ones, head, pool)


def embed_bytes(shape: ModelShape) -> int:
    """Packed bytes of the embedding; 0 if it is the matrix of the logits too."""
    group_bytes = GROUP // 2 + 2  # nibbles and a float16 scale
    return 0 if shape.tied else shape.vocab * shape.hidden // GROUP * group_bytes


def random_layer(rng: np.random.Generator, shape: ModelShape, norm: F32) -> DecoderLayer:
    linears = shape.linears()

    def parts(name: str) -> Sequence[PackedWeights]:
        outs, k = linears[name]
        return [random_matrix(rng, "w4g32", n, k) for n in outs]

    return DecoderLayer(
        input_layernorm=norm,
        qkv_proj=parts("qkv"),
        o_proj=parts("o")[0],
        post_attention_layernorm=norm,
        gate_up_proj=parts("gate_up"),
        down_proj=parts("down")[0],
    )
