"""config.json -> Model. ``FAMILIES`` is what transformers' class of that model_type does."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from intattention.checkpoint import Checkpoint
from intattention.errors import ModelFileError, UnsupportedModelError
from intattention.hf_texts import CONFIG, parse_json
from intattention.metadata import Metadata
from intattention.models.hf_rope import read_rope
from intattention.models.limits import MAX_CONTEXT, MAX_DIM, MAX_HEADS, MAX_LAYERS, MAX_VOCAB
from intattention.models.model import Model
from intattention.models.weights import HF_NAMES


@dataclass(frozen=True)
class Family:
    """One model class. ``bias_keys``: config keys that give it biases. ``window``: which layers
    have ``sliding_window``. ``supported``: config keys and the values that are built; absent, a key
    has the first. ``head_dim``: if absent."""

    qkv_bias: bool = False
    qk_norm: bool = False
    bias_keys: tuple[Literal["attention_bias", "mlp_bias"], ...] = ()
    window: Literal["none", "all", "by type"] = "none"
    supported: tuple[tuple[str, tuple[object, ...]], ...] = (("hidden_act", ("silu",)),)
    head_dim: int | None = None  # None: hidden_size / num_attention_heads


FAMILIES = {
    "llama": Family(bias_keys=("attention_bias", "mlp_bias")),
    "mistral": Family(window="all"),
    "qwen2": Family(qkv_bias=True, window="by type"),
    "qwen3": Family(qk_norm=True, window="by type", head_dim=128, bias_keys=("attention_bias",)),
}
LAYER_TYPES = ("full_attention", "sliding_attention")


def read_model(checkpoint: Checkpoint) -> Model:
    """ModelFileError: keys missing or absurd; UnsupportedModelError: values that are not built,
    with what is supported."""
    config = parse_json(checkpoint, CONFIG)
    meta = Metadata(checkpoint.path / CONFIG, config)
    name = meta.text("model_type")
    if name not in FAMILIES:
        raise UnsupportedModelError(
            f"{meta.path}: model_type is {name!r}, supported: {', '.join(sorted(FAMILIES))}"
        )
    family = FAMILIES[name]
    for key, values in family.supported:
        refuse_other(meta, key, values)
    biases = {key for key in family.bias_keys if meta.flag(key, default=False)}
    heads = meta.integer("num_attention_heads", 1, MAX_HEADS)
    hidden = meta.integer("hidden_size", 1, MAX_DIM)
    layers = meta.integer("num_hidden_layers", 1, MAX_LAYERS)
    head_dim = meta.integer("head_dim", 1, MAX_DIM, family.head_dim or hidden // heads)
    rope, context, max_context = read_rope(meta, head_dim)
    model = Model(
        family=name,
        vocab_size=meta.integer("vocab_size", 1, MAX_VOCAB),
        hidden_size=hidden,
        intermediate_size=meta.integer("intermediate_size", 1, MAX_DIM),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=meta.integer("num_key_value_heads", 1, MAX_HEADS, heads),
        head_dim=head_dim,
        context=context,
        max_context=max_context,
        rms_norm_eps=meta.real("rms_norm_eps", 1e-12, 0.1, 1e-6),
        rope=rope,
        tied=meta.flag("tie_word_embeddings", default=False),
        qkv_bias=family.qkv_bias or "attention_bias" in biases,
        o_bias="attention_bias" in biases,
        mlp_bias="mlp_bias" in biases,
        qk_norm=family.qk_norm,
        windows=_windows(family, meta, layers),
        names=HF_NAMES,
    )
    model.check(checkpoint)
    return model


def refuse_other(meta: Metadata, key: str, supported: tuple[object, ...]) -> None:
    """UnsupportedModelError unless ``key`` is absent or has one of the values."""
    value = meta.values.get(key)
    if value is not None and value not in supported:
        raise UnsupportedModelError(
            f"{meta.path}: {key} is {value!r}, supported: {', '.join(map(repr, supported))}"
        )


def _windows(family: Family, meta: Metadata, layers: int) -> tuple[int, ...]:
    if family.window == "none":
        return (0,) * layers
    if family.window == "by type" and not meta.flag("use_sliding_window", default=False):
        return (0,) * layers
    # an explicit null means no window, an absent key the class's 4096
    if "sliding_window" in meta.values and meta.values["sliding_window"] is None:
        return (0,) * layers
    window = meta.integer("sliding_window", 1, MAX_CONTEXT, 4096)
    if family.window == "all":
        return (window,) * layers
    types = _layer_types(meta, layers)
    return tuple(window if type_ == LAYER_TYPES[1] else 0 for type_ in types)


def _layer_types(meta: Metadata, layers: int) -> list[str]:
    stated: Mapping[str, object] = meta.values
    types = stated.get("layer_types")
    if types is None:
        full = meta.integer("max_window_layers", 0, MAX_LAYERS, 28)
        return [LAYER_TYPES[i >= full] for i in range(layers)]
    if not isinstance(types, list) or len(types) != layers:
        raise ModelFileError(f"{meta.path}: layer_types is no list of {layers} names")
    for type_ in types:
        if type_ not in LAYER_TYPES:
            raise UnsupportedModelError(
                f"{meta.path}: layer_types holds {type_!r}, supported: {', '.join(LAYER_TYPES)}"
            )
    return types
