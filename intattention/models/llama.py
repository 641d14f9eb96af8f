"""Llama (and SmolLM, TinyLlama, ...): pre-norm decoder, rotary positions, GQA, SwiGLU."""

from collections.abc import Callable

from intattention._core import Decoder, DecoderConfig, DecoderLayer, PackedWeights, ThreadPool
from intattention.checkpoint import Checkpoint, FloatFormat
from intattention.dtypes import F32
from intattention.errors import ModelFileError, UnsupportedModelError
from intattention.metadata import Metadata

MAX_DIM = 1 << 20
MAX_HEAD_DIM = 1024
MAX_LAYERS = 1024
MAX_CONTEXT = 1 << 24
IGNORED_KEYS_WITH = {"expert_count": 0, "expert_used_count": 0, "attention.sliding_window": 0}


def read_config(checkpoint: Checkpoint) -> DecoderConfig:
    """Reads ``llama.*``. ModelFileError: missing or absurd; UnsupportedModelError: not built."""
    meta = Metadata(checkpoint)
    _refuse_unsupported(checkpoint, meta)
    heads = meta.integer("llama.attention.head_count", 1, 4096)
    kv_heads = meta.integer("llama.attention.head_count_kv", 1, 4096, default=heads)
    hidden = meta.integer("llama.embedding_length", 1, MAX_DIM)
    head_dim = meta.integer("llama.attention.key_length", 1, MAX_DIM, default=hidden // heads)
    if heads % kv_heads != 0:
        raise ModelFileError(
            f"{checkpoint.path}: {heads} attention heads do not divide into {kv_heads} kv heads"
        )
    if "llama.attention.key_length" not in checkpoint.metadata and hidden % heads != 0:
        raise ModelFileError(
            f"{checkpoint.path}: embedding_length {hidden} does not divide into {heads} heads"
        )
    config = DecoderConfig(
        vocab_size=_vocab_size(checkpoint, meta),
        hidden_size=hidden,
        intermediate_size=meta.integer("llama.feed_forward_length", 1, MAX_DIM),
        num_hidden_layers=meta.integer("llama.block_count", 1, MAX_LAYERS),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        max_position_embeddings=meta.integer("llama.context_length", 1, MAX_CONTEXT),
        rms_norm_eps=meta.real("llama.attention.layer_norm_rms_epsilon", 1e-12, 0.1),
        rope_theta=meta.real("llama.rope.freq_base", 1, 1e12, default=10000.0),
    )
    _refuse_shapes(checkpoint, meta, config)
    return config


def build(
    checkpoint: Checkpoint,
    pool: ThreadPool,
    progress: Callable[[int, int, str], None] | None = None,
) -> Decoder:
    """Reads, checks and packs all weights. ``progress(done, total, name)`` after each tensor."""
    config = read_config(checkpoint)
    weights = _Weights(checkpoint, config, progress)
    embed = weights.matrix("token_embd.weight", "w8g32")
    layers = [_layer(weights, f"blk.{i}.", config) for i in range(config.num_hidden_layers)]
    norm = weights.vector("output_norm.weight")
    tied = "output.weight" not in checkpoint.tensors
    lm_head = None if tied else weights.matrix("output.weight", "w8g32")
    weights.refuse_leftovers()
    try:
        return Decoder(config, embed, layers, norm, lm_head, pool)
    except ValueError as error:
        raise ModelFileError(f"{checkpoint.path}: {error}") from error


def _layer(weights: "_Weights", prefix: str, config: DecoderConfig) -> DecoderLayer:
    q, k, v = (prefix + f"attn_{part}.weight" for part in "qkv")
    return DecoderLayer(
        input_layernorm=weights.vector(prefix + "attn_norm.weight"),
        qkv_proj=[
            weights.rotary_matrix(q, config.num_attention_heads),
            weights.rotary_matrix(k, config.num_key_value_heads),
            weights.matrix(v),
        ],
        o_proj=weights.matrix(prefix + "attn_output.weight"),
        post_attention_layernorm=weights.vector(prefix + "ffn_norm.weight"),
        gate_up_proj=[
            weights.matrix(prefix + "ffn_gate.weight"),
            weights.matrix(prefix + "ffn_up.weight"),
        ],
        down_proj=weights.matrix(prefix + "ffn_down.weight"),
    )


class _Weights:
    """Reads tensors, keeps count of them for the progress and for what is left over."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        config: DecoderConfig,
        progress: Callable[[int, int, str], None] | None,
    ) -> None:
        self.checkpoint = checkpoint
        self.shapes = expected_shapes(config)
        self.progress = progress
        self.used: set[str] = set()

    def matrix(self, name: str, float_format: FloatFormat = "w4g32a") -> PackedWeights:
        self._check_shape(name)
        packed = self.checkpoint.packed(name, float_format)
        self._done(name)
        return packed

    def rotary_matrix(self, name: str, heads: int) -> PackedWeights:
        self._check_shape(name)
        packed = self.checkpoint.packed(name, "w4g32a", heads)
        self._done(name)
        return packed

    def vector(self, name: str) -> F32:
        self._check_shape(name)
        values = self.checkpoint.vector(name)
        self._done(name)
        return values

    def refuse_leftovers(self) -> None:
        left = sorted(set(self.checkpoint.tensors) - self.used)
        if left:
            raise UnsupportedModelError(
                f"{self.checkpoint.path}: {len(left)} tensors have no place in a llama decoder: "
                + ", ".join(left[:4])
            )

    def _check_shape(self, name: str) -> None:
        info = self.checkpoint.tensors.get(name)
        expected = self.shapes[name.split(".", 2)[2] if name.startswith("blk.") else name]
        if info is None:
            raise ModelFileError(f"{self.checkpoint.path}: tensor {name} is missing")
        if info.shape != expected:
            raise ModelFileError(
                f"{self.checkpoint.path}: tensor {name} has the shape {info.shape}, "
                f"expected {expected}"
            )

    def _done(self, name: str) -> None:
        self.used.add(name)
        if self.progress is not None:
            self.progress(len(self.used), len(self.checkpoint.tensors), name)


def expected_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Tensor name (without ``blk.N.``) -> row-major shape."""
    hidden, inner = config.hidden_size, config.intermediate_size
    q = config.num_attention_heads * config.head_dim
    kv = config.num_key_value_heads * config.head_dim
    return {
        "token_embd.weight": (config.vocab_size, hidden),
        "output.weight": (config.vocab_size, hidden),
        "output_norm.weight": (hidden,),
        "attn_norm.weight": (hidden,),
        "attn_q.weight": (q, hidden),
        "attn_k.weight": (kv, hidden),
        "attn_v.weight": (kv, hidden),
        "attn_output.weight": (hidden, q),
        "ffn_norm.weight": (hidden,),
        "ffn_gate.weight": (inner, hidden),
        "ffn_up.weight": (inner, hidden),
        "ffn_down.weight": (hidden, inner),
    }


def _vocab_size(checkpoint: Checkpoint, meta: Metadata) -> int:
    """The rows of the embedding matrix; ``llama.vocab_size``, if there, must agree."""
    embedding = checkpoint.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelFileError(f"{checkpoint.path}: tensor token_embd.weight is missing")
    rows = embedding.shape[0]
    stated = meta.integer("llama.vocab_size", 1, 1 << 24, default=rows)
    if stated != rows:
        raise ModelFileError(
            f"{checkpoint.path}: llama.vocab_size is {stated}, token_embd.weight has {rows} rows"
        )
    return stated


def _refuse_unsupported(checkpoint: Checkpoint, meta: Metadata) -> None:
    for key, neutral in IGNORED_KEYS_WITH.items():
        value = meta.values.get("llama." + key, neutral)
        if not isinstance(value, int) or value != neutral:
            raise UnsupportedModelError(f"{checkpoint.path}: llama.{key} {value} is not supported")
    scaling = meta.text("llama.rope.scaling.type", default="none")
    factors = [meta.real("llama.rope.scaling.factor", 0, 1e6, default=1.0),
               meta.real("llama.rope.scale_linear", 0, 1e6, default=1.0)]  # fmt: skip
    if scaling != "none" or any(factor not in (0.0, 1.0) for factor in factors):
        raise UnsupportedModelError(
            f"{checkpoint.path}: rope scaling {scaling!r} with the factor {max(factors):g} "
            "is not supported"
        )
    if "rope_freqs.weight" in checkpoint.tensors:
        raise UnsupportedModelError(
            f"{checkpoint.path}: rope scaling by rope_freqs.weight (Llama 3.1) is not supported"
        )


def _refuse_shapes(checkpoint: Checkpoint, meta: Metadata, config: DecoderConfig) -> None:
    rotary = meta.integer("llama.rope.dimension_count", 1, MAX_DIM, default=config.head_dim)
    value = meta.integer("llama.attention.value_length", 1, MAX_DIM, default=config.head_dim)
    if rotary != config.head_dim or value != config.head_dim:
        raise UnsupportedModelError(
            f"{checkpoint.path}: rope.dimension_count {rotary} and value_length {value} "
            f"must equal the head dimension {config.head_dim}"
        )
    if config.head_dim > MAX_HEAD_DIM:
        raise UnsupportedModelError(
            f"{checkpoint.path}: the head dimension is {config.head_dim}, at most {MAX_HEAD_DIM}"
        )
    q = config.num_attention_heads * config.head_dim
    for what, size, step in (
        ("the head dimension", config.head_dim, 16),
        ("embedding_length", config.hidden_size, 32),
        ("feed_forward_length", config.intermediate_size, 32),
        ("heads times the head dimension", q, 32),
    ):
        if size % step != 0:
            raise UnsupportedModelError(
                f"{checkpoint.path}: {what} is {size}, expected a multiple of {step}"
            )
