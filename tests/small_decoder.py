"""Builds the core's Decoder from the oracle's random model."""

from reference.decoder import Model
from reference.linear import Weights

from intattention import _core


def pack(w: Weights) -> _core.PackedWeights:
    return _core.PackedWeights(*w)


def build(model: Model, threads: int = 1) -> _core.Decoder:
    layers = [
        _core.DecoderLayer(
            input_layernorm=layer.input_layernorm,
            qkv_proj=[pack(w) for w in layer.qkv_proj],
            o_proj=pack(layer.o_proj),
            post_attention_layernorm=layer.post_attention_layernorm,
            gate_up_proj=[pack(w) for w in layer.gate_up_proj],
            down_proj=pack(layer.down_proj),
            **layer.options._asdict(),
        )
        for layer in model.layers
    ]
    head = None if model.lm_head is None else pack(model.lm_head)
    config = _core.DecoderConfig(**model.config._asdict())
    pool = _core.ThreadPool(threads)
    return _core.Decoder(config, pack(model.embed_tokens), layers, model.norm, head, pool)
