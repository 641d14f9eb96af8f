"""GGUF metadata -> Model. ``FAMILIES`` is what an architecture of that name is."""

from dataclasses import dataclass, replace

from intattention.checkpoint import Checkpoint
from intattention.errors import ModelFileError, UnsupportedModelError
from intattention.metadata import Metadata
from intattention.models.limits import MAX_CONTEXT, MAX_DIM, MAX_HEADS, MAX_LAYERS, MAX_VOCAB
from intattention.models.model import Model
from intattention.models.rope import Rope
from intattention.models.weights import GGUF_NAMES

SCALINGS = ("none", "linear", "yarn", "longrope")
FREQUENCY_FACTORS = "rope_freqs.weight"
LONGROPE_FACTORS = ("rope_factors_short.weight", "rope_factors_long.weight")


@dataclass(frozen=True)
class Family:
    """``rotary_interleaved``: q and k have their rows in llama.cpp's order of rotary pairs."""

    qkv_bias: bool = False
    qk_norm: bool = False
    rotary_interleaved: bool = False


FAMILIES = {
    "llama": Family(rotary_interleaved=True),  # Llama, SmolLM, TinyLlama, Mistral
    "qwen2": Family(qkv_bias=True),
    "qwen3": Family(qk_norm=True),
}
# Keys whose other values ask for something that the decoder does not do.
NEUTRAL = {
    "expert_count": 0,
    "expert_used_count": 0,
    "attention.sliding_window": 0,
    "logit_scale": 0.0,
}


def read_model(checkpoint: Checkpoint) -> Model:
    """ModelFileError: keys missing or absurd; UnsupportedModelError: not built."""
    meta = Metadata(checkpoint.path, checkpoint.metadata)
    name = meta.text("general.architecture")
    if name not in FAMILIES:
        raise UnsupportedModelError(
            f"{checkpoint.path}: the architecture {name!r} is not supported; "
            f"supported: {', '.join(sorted(FAMILIES))}"
        )
    family, keys = FAMILIES[name], _Keys(name, meta)
    keys.refuse_unsupported()
    heads = keys.integer("attention.head_count", MAX_HEADS)
    hidden = keys.integer("embedding_length", MAX_DIM)
    layers = keys.integer("block_count", MAX_LAYERS)
    head_dim = _head_dim(checkpoint, keys, hidden, heads)
    rope = keys.rope(head_dim)
    rope, factors = _rope_tensors(checkpoint, rope)
    trained = keys.integer("context_length", MAX_CONTEXT)
    model = Model(
        family=name,
        vocab_size=_vocab_size(checkpoint, keys),
        hidden_size=hidden,
        intermediate_size=keys.integer("feed_forward_length", MAX_DIM),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=keys.integer("attention.head_count_kv", MAX_HEADS, default=heads),
        head_dim=head_dim,
        context=trained,
        max_context=trained,  # llama.cpp's converter writes the extended length
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon", 1e-12, 0.1),
        rope=rope,
        tied=GGUF_NAMES.lm_head not in checkpoint.tensors,
        qkv_bias=family.qkv_bias,
        qk_norm=family.qk_norm,
        windows=(0,) * layers,
        names=replace(GGUF_NAMES, rope_factors=factors),
        rotary_interleaved=family.rotary_interleaved,
    )
    model.check(checkpoint)
    return model


class _Keys:
    """The keys of one architecture, without its prefix."""

    def __init__(self, architecture: str, meta: Metadata) -> None:
        self.prefix = architecture + "."
        self.meta = meta

    def integer(self, key: str, high: int, default: int | None = None) -> int:
        return self.meta.integer(self.prefix + key, 1, high, default)

    def real(self, key: str, low: float, high: float, default: float | None = None) -> float:
        return self.meta.real(self.prefix + key, low, high, default)

    def refuse_unsupported(self) -> None:
        for key, neutral in NEUTRAL.items():
            value = self.meta.values.get(self.prefix + key, neutral)
            if not isinstance(value, (int, float)) or value != neutral:
                raise UnsupportedModelError(
                    f"{self.meta.path}: {self.prefix}{key} is {value}, supported: {neutral}"
                )

    def rope(self, head_dim: int) -> Rope:
        kind = self.meta.text(self.prefix + "rope.scaling.type", default="none")
        if kind not in SCALINGS:
            raise UnsupportedModelError(
                f"{self.meta.path}: {self.prefix}rope.scaling.type is {kind!r}, "
                f"supported: {', '.join(SCALINGS)}"
            )
        factor = self.real("rope.scaling.factor", 0, 1e6, default=0.0)
        factor = factor or self.real("rope.scale_linear", 0, 1e6, default=0.0) or 1.0
        if kind == "none" and factor != 1.0:
            kind = "linear"  # the older key stands alone
        rope = Rope(
            theta=self.real("rope.freq_base", 1, 1e12, default=10000.0),
            dim=self.integer("rope.dimension_count", MAX_DIM, default=head_dim),
            factor=factor,
        )
        if kind == "none":
            return rope
        if kind == "linear":
            return replace(rope, kind="linear")
        context = self.integer("context_length", MAX_CONTEXT)
        original = self.integer("rope.scaling.original_context_length", MAX_CONTEXT, context)
        rope = replace(rope, original_context=original)
        if kind == "longrope":
            return self._longrope(replace(rope, factor=context / original))
        fast, slow = (
            self.real(f"rope.scaling.yarn_beta_{end}", 0.01, 1e4, default)
            for end, default in (("fast", 32.0), ("slow", 1.0))
        )
        return self._yarn(replace(rope, kind="yarn", beta_fast=fast, beta_slow=slow))

    def _longrope(self, rope: Rope) -> Rope:
        attention = self.real("rope.scaling.attn_factor", 0.01, 100, default=0.0)
        return replace(rope, kind="longrope", attention_factor=attention or None)

    def _yarn(self, rope: Rope) -> Rope:
        """``attn_factor`` comes on top of the temperature."""
        attention = self.real("rope.scaling.attn_factor", 0.01, 100, default=1.0)
        return replace(rope, attention_factor=attention * rope.scale())


def _rope_tensors(checkpoint: Checkpoint, rope: Rope) -> tuple[Rope, tuple[str, ...]]:
    """The rotation and the names of the tensors that hold its factors."""
    present = checkpoint.tensors
    if FREQUENCY_FACTORS in present:
        if rope.kind != "default":
            raise UnsupportedModelError(
                f"{checkpoint.path}: {FREQUENCY_FACTORS} beside rope scaling {rope.kind!r}"
            )
        return replace(rope, kind="factors"), (FREQUENCY_FACTORS,)
    if rope.kind == "longrope":
        for name in LONGROPE_FACTORS:
            if name not in present:
                raise ModelFileError(f"{checkpoint.path}: tensor {name} is missing")
        return rope, LONGROPE_FACTORS
    return rope, ()


def _head_dim(checkpoint: Checkpoint, keys: _Keys, hidden: int, heads: int) -> int:
    stated = keys.prefix + "attention.key_length" in checkpoint.metadata
    if not stated and hidden % heads != 0:
        raise ModelFileError(
            f"{checkpoint.path}: embedding_length {hidden} does not divide into {heads} heads"
        )
    head_dim = keys.integer("attention.key_length", MAX_DIM, default=hidden // heads)
    value = keys.integer("attention.value_length", MAX_DIM, default=head_dim)
    if value != head_dim:
        raise UnsupportedModelError(
            f"{checkpoint.path}: {keys.prefix}attention.value_length is {value}, "
            f"supported: the key length, {head_dim}"
        )
    return head_dim


def _vocab_size(checkpoint: Checkpoint, keys: _Keys) -> int:
    """The rows of the embedding matrix; ``vocab_size``, if there, must agree."""
    embedding = checkpoint.tensors.get(GGUF_NAMES.embed_tokens)
    if embedding is None:
        raise ModelFileError(f"{checkpoint.path}: tensor {GGUF_NAMES.embed_tokens} is missing")
    rows = embedding.shape[0]
    stated = keys.integer("vocab_size", MAX_VOCAB, default=rows)
    if stated != rows:
        raise ModelFileError(
            f"{checkpoint.path}: {keys.prefix}vocab_size is {stated}, "
            f"{GGUF_NAMES.embed_tokens} has {rows} rows"
        )
    return stated
