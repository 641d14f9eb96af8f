"""What a checkpoint is, weights aside: sizes, options, tensor names; and how it is built."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from intattention._core import Decoder, DecoderConfig, PackedWeights, ThreadPool
from intattention.checkpoint import Checkpoint, FloatFormat
from intattention.dtypes import F32
from intattention.errors import ModelFileError, UnsupportedModelError
from intattention.models.qk_balance import QK, Balance, balance
from intattention.models.rope import Rope
from intattention.models.weights import LayerWeights, Names, Weights

Progress = Callable[[int, int, str], None]
"""Called after each tensor with (done, total, name)."""

MAX_HEAD_DIM = 1024


@dataclass(frozen=True)
class Parts:
    """The weights of a model, packed, and the rotation with the factors that the file holds."""

    embed_tokens: PackedWeights
    layers: Sequence[LayerWeights]
    norm: F32
    lm_head: PackedWeights | None
    rope: Rope


@dataclass(frozen=True)
class Model:
    """The checked description of one checkpoint, in Hugging Face words.

    ``context``: tokens the model is used with unless the user says otherwise; ``max_context``:
    tokens it can be used with, by training or by the extension its own configuration states.
    ``windows``: per layer, keys a token sees at most, 0: all. ``rotary_interleaved``: the rows of
    q and k are stored as GGUF files of the llama architecture do.
    """

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    context: int
    max_context: int
    rms_norm_eps: float
    rope: Rope
    tied: bool
    qkv_bias: bool
    qk_norm: bool
    windows: tuple[int, ...]
    names: Names
    o_bias: bool = False
    mlp_bias: bool = False
    rotary_interleaved: bool = False

    def check(self, checkpoint: Checkpoint) -> None:
        """UnsupportedModelError or ModelFileError for sizes that the kernels cannot have."""
        heads, kv_heads = self.num_attention_heads, self.num_key_value_heads
        if heads % kv_heads != 0:
            raise ModelFileError(
                f"{checkpoint.path}: {heads} attention heads do not divide into {kv_heads} kv heads"
            )
        if self.head_dim > MAX_HEAD_DIM:
            raise UnsupportedModelError(
                f"{checkpoint.path}: the head dimension is {self.head_dim}, at most {MAX_HEAD_DIM}"
            )
        for what, size, step in (
            ("the head dimension", self.head_dim, 16),
            ("the rotary dimension", self.rope.dim, 16),
            ("the width", self.hidden_size, 32),
            ("the width of the feed-forward layer", self.intermediate_size, 32),
            ("heads times the head dimension", heads * self.head_dim, 32),
        ):
            if size % step != 0:
                raise UnsupportedModelError(
                    f"{checkpoint.path}: {what} is {size}, expected a multiple of {step}"
                )
        if self.rope.dim > self.head_dim:
            raise ModelFileError(
                f"{checkpoint.path}: {self.rope.dim} elements of a head rotate, "
                f"it has {self.head_dim}"
            )

    def config(self, context: int | None = None, rope: Rope | None = None) -> DecoderConfig:
        """Sizes and rotations for a use up to ``context`` tokens (None: ``self.context``)."""
        rope = rope or self.rope
        return DecoderConfig(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            num_hidden_layers=self.num_hidden_layers,
            num_attention_heads=self.num_attention_heads,
            num_key_value_heads=self.num_key_value_heads,
            head_dim=self.head_dim,
            max_position_embeddings=self.max_context,
            rms_norm_eps=self.rms_norm_eps,
            rope_theta=rope.theta,
            rope_inverse_frequency=rope.frequencies(context or self.context),
            rope_attention_factor=rope.scale(),
        )

    def build(
        self,
        checkpoint: Checkpoint,
        pool: ThreadPool,
        progress: Progress | None = None,
        context: int | None = None,
        linears: FloatFormat = "w4g32a",
    ) -> Decoder:
        """``read`` and ``decoder`` in one."""
        return self.decoder(checkpoint, self.read(checkpoint, progress, linears), pool, context)

    def read(
        self,
        checkpoint: Checkpoint,
        progress: Progress | None = None,
        linears: FloatFormat = "w4g32a",
    ) -> Parts:
        """Reads, checks and packs all weights.

        ``linears``: what float matrices are quantised to, except the embedding and the matrix of
        the logits, which become w8g32. Raises what the checkpoint raises; ModelFileError for
        tensors that are missing or of another shape, UnsupportedModelError for tensors that have
        no place in this family.
        """
        weights = Weights(checkpoint, self.expected_shapes(), progress)
        rope = self._rope_with_factors(weights)
        frequencies, factor = rope.frequencies(self.max_context), rope.scale()

        def balanced(qk: QK) -> Balance:
            if not self.qkv_bias and not self.qk_norm:
                return Balance(None, None)
            return balance(qk, self.head_dim, frequencies, factor, self.max_context)

        embed = weights.matrix(self.names.embed_tokens, "w8g32")
        layers = [
            weights.layer(self.names, i, self._rotary_heads(), linears, window, balanced)
            for i, window in enumerate(self.windows)
        ]
        norm = weights.vector(self.names.norm)
        head = None if self.tied else weights.matrix(self.names.lm_head, "w8g32")
        weights.refuse_leftovers(self.family, self.names.ignored(self.tied))
        return Parts(embed, layers, norm, head, rope)

    def decoder(
        self, checkpoint: Checkpoint, parts: Parts, pool: ThreadPool, context: int | None = None
    ) -> Decoder:
        """The decoder of ``parts``; ``context``: see ``config``."""
        config = self.config(context, parts.rope)
        layers = [layer.build() for layer in parts.layers]
        try:
            return Decoder(config, parts.embed_tokens, layers, parts.norm, parts.lm_head, pool)
        except ValueError as error:
            raise ModelFileError(f"{checkpoint.path}: {error}") from error

    def expected_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name of every tensor the model must have -> row-major shape."""
        hidden, inner, d = self.hidden_size, self.intermediate_size, self.head_dim
        q, kv = self.num_attention_heads * d, self.num_key_value_heads * d
        n, half = self.names, self.rope.dim // 2
        shapes: dict[str, tuple[int, ...]] = {
            n.embed_tokens: (self.vocab_size, hidden),
            n.norm: (hidden,),
        }
        if not self.tied:
            shapes[n.lm_head] = (self.vocab_size, hidden)
        shapes |= dict.fromkeys(n.rope_factors, (half,))
        per_layer: dict[str, tuple[int, ...]] = {
            n.input_layernorm: (hidden,),
            n.q_proj: (q, hidden),
            n.k_proj: (kv, hidden),
            n.v_proj: (kv, hidden),
            n.o_proj: (hidden, q),
            n.post_attention_layernorm: (hidden,),
            n.gate_proj: (inner, hidden),
            n.up_proj: (inner, hidden),
            n.down_proj: (hidden, inner),
        }
        if self.qkv_bias:
            per_layer |= {n.q_bias: (q,), n.k_bias: (kv,), n.v_bias: (kv,)}
        if self.o_bias:
            per_layer |= {n.o_bias: (hidden,)}
        if self.mlp_bias:
            per_layer |= {n.gate_bias: (inner,), n.up_bias: (inner,), n.down_bias: (hidden,)}
        if self.qk_norm:
            per_layer |= {n.q_norm: (d,), n.k_norm: (d,)}
        for i in range(self.num_hidden_layers):
            shapes |= {n.in_layer(i, name): shape for name, shape in per_layer.items()}
        return shapes

    def _rotary_heads(self) -> tuple[int, int]:
        if not self.rotary_interleaved:
            return 0, 0
        return self.num_attention_heads, self.num_key_value_heads

    def _rope_with_factors(self, weights: Weights) -> Rope:
        """GGUF keeps the factors of longrope and llama3 as tensors."""
        factors = [weights.vector(name) for name in self.names.rope_factors]
        for name, values in zip(self.names.rope_factors, factors, strict=True):
            if not (values > 0).all():
                raise ModelFileError(f"{weights.checkpoint.path}: tensor {name} is not positive")
        if not factors:
            return self.rope
        short, long = (tuple(f.astype(np.float64).tolist()) for f in (factors[0], factors[-1]))
        return replace(self.rope, short_factors=short, long_factors=long)
