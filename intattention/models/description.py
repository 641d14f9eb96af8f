"""What a packed file says of its decoder, for hosts without Python.

``src_core/iatt_model.cpp`` builds the decoder from it and knows no architecture. JSON::

    sizes     vocab_size ... max_position_embeddings, rms_norm_eps, rope_theta, as DecoderConfig
    rotary    rope_attention_factor, and "rotations": [{"context", "inverse_frequency"}, ...]; the
              first whose context is long enough holds
    context   tokens that the model is used with unless a host says otherwise
    tokens    token_count (ids behind it are padding), end_ids (those that end a turn)
    tensors   embed_tokens, norm, lm_head (null: tied), "layers": names of tensors by Hugging Face's
              words, null or [] where the model has none; sliding_window, qk_scale, k_center
"""

import json
from collections.abc import Collection
from dataclasses import asdict

from intattention.dtypes import F32
from intattention.models.model import Model, Parts

DECODER_TEXT = "intattention.decoder.json"


def describe(model: Model, parts: Parts, token_count: int, end_ids: Collection[int]) -> str:
    """The description of a decoder with the weights ``parts``; the rest is its tokenizer's."""
    names = asdict(model.names)
    shapes = model.expected_shapes()

    def layer(index: int) -> dict[str, object]:
        def one(key: str) -> str | None:
            name = model.names.in_layer(index, names[key])
            return name if name in shapes else None

        def several(*keys: str) -> list[str]:
            return [name for key in keys if (name := one(key)) is not None]

        return {
            "input_layernorm": one("input_layernorm"),
            "qkv_proj": several("q_proj", "k_proj", "v_proj"),
            "o_proj": one("o_proj"),
            "post_attention_layernorm": one("post_attention_layernorm"),
            "gate_up_proj": several("gate_proj", "up_proj"),
            "down_proj": one("down_proj"),
            "qkv_bias": several("q_bias", "k_bias", "v_bias"),
            "o_bias": several("o_bias"),
            "gate_up_bias": several("gate_bias", "up_bias"),
            "down_bias": several("down_bias"),
            "q_norm": one("q_norm"),
            "k_norm": one("k_norm"),
            "sliding_window": model.windows[index],
            "qk_scale": _numbers(parts.layers[index].qk_scale),
            "k_center": _numbers(parts.layers[index].k_center),
        }

    description = {
        "vocab_size": model.vocab_size,
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "num_hidden_layers": model.num_hidden_layers,
        "num_attention_heads": model.num_attention_heads,
        "num_key_value_heads": model.num_key_value_heads,
        "head_dim": model.head_dim,
        "max_position_embeddings": model.max_context,
        "rms_norm_eps": model.rms_norm_eps,
        "rope_theta": parts.rope.theta,
        "rope_attention_factor": parts.rope.scale(),
        "context": model.context,
        "rotations": [
            {"context": context, "inverse_frequency": parts.rope.frequencies(context).tolist()}
            for context in _rotation_contexts(model, parts)
        ],
        "token_count": token_count,
        "end_ids": sorted(end_ids),
        "embed_tokens": model.names.embed_tokens,
        "norm": model.names.norm,
        "lm_head": None if model.tied else model.names.lm_head,
        "layers": [layer(i) for i in range(model.num_hidden_layers)],
    }
    return json.dumps(description, allow_nan=False, separators=(",", ":"))


def _numbers(vector: F32 | None) -> list[float]:
    return [] if vector is None else vector.tolist()


def _rotation_contexts(model: Model, parts: Parts) -> list[int]:
    """Contexts at which the rotation changes, ascending.

    Dynamic NTK changes with every token beyond the training length: such a file serves the
    model's own context.
    """
    if parts.rope.kind == "longrope" and parts.rope.original_context < model.max_context:
        return [parts.rope.original_context, model.max_context]
    return [model.context if parts.rope.kind == "dynamic" else model.max_context]
