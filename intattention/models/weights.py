"""Tensor names of a checkpoint format, and the reading of the tensors into layers."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from intattention._core import DecoderLayer, PackedWeights
from intattention.checkpoint import Checkpoint, FloatFormat
from intattention.dtypes import F32
from intattention.errors import ModelFileError, UnsupportedModelError
from intattention.models.qk_balance import QK, Balance


@dataclass(frozen=True)
class Names:
    """Hugging Face's name of a weight -> the name in the file; those of a layer after ``layer``.

    ``rope_factors``: tensors that divide the rotary frequencies (short before long).
    ``unused``: a pattern of names that carry nothing the decoder needs.
    """

    embed_tokens: str
    norm: str
    lm_head: str
    layer: str
    input_layernorm: str
    q_proj: str
    k_proj: str
    v_proj: str
    o_proj: str
    post_attention_layernorm: str
    gate_proj: str
    up_proj: str
    down_proj: str
    q_bias: str
    k_bias: str
    v_bias: str
    q_norm: str
    k_norm: str
    o_bias: str = ""
    gate_bias: str = ""
    up_bias: str = ""
    down_bias: str = ""
    rope_factors: tuple[str, ...] = ()
    unused: str = "(?!)"

    def in_layer(self, index: int, name: str) -> str:
        """The full name of a layer's tensor."""
        return self.layer.format(index) + name

    def ignored(self, tied: bool) -> re.Pattern[str]:
        """Names that may be in the file and are not read."""
        return re.compile(f"{self.unused}|{re.escape(self.lm_head)}" if tied else self.unused)


HF_NAMES = Names(
    embed_tokens="model.embed_tokens.weight",
    norm="model.norm.weight",
    lm_head="lm_head.weight",
    layer="model.layers.{}.",
    input_layernorm="input_layernorm.weight",
    q_proj="self_attn.q_proj.weight",
    k_proj="self_attn.k_proj.weight",
    v_proj="self_attn.v_proj.weight",
    o_proj="self_attn.o_proj.weight",
    post_attention_layernorm="post_attention_layernorm.weight",
    gate_proj="mlp.gate_proj.weight",
    up_proj="mlp.up_proj.weight",
    down_proj="mlp.down_proj.weight",
    q_bias="self_attn.q_proj.bias",
    k_bias="self_attn.k_proj.bias",
    v_bias="self_attn.v_proj.bias",
    q_norm="self_attn.q_norm.weight",
    k_norm="self_attn.k_norm.weight",
    o_bias="self_attn.o_proj.bias",
    gate_bias="mlp.gate_proj.bias",
    up_bias="mlp.up_proj.bias",
    down_bias="mlp.down_proj.bias",
    unused=r".*\.rotary_emb\.inv_freq",  # written by old versions of transformers
)
GGUF_NAMES = Names(
    embed_tokens="token_embd.weight",
    norm="output_norm.weight",
    lm_head="output.weight",
    layer="blk.{}.",
    input_layernorm="attn_norm.weight",
    q_proj="attn_q.weight",
    k_proj="attn_k.weight",
    v_proj="attn_v.weight",
    o_proj="attn_output.weight",
    post_attention_layernorm="ffn_norm.weight",
    gate_proj="ffn_gate.weight",
    up_proj="ffn_up.weight",
    down_proj="ffn_down.weight",
    q_bias="attn_q.bias",
    k_bias="attn_k.bias",
    v_bias="attn_v.bias",
    q_norm="attn_q_norm.weight",
    k_norm="attn_k_norm.weight",
)


@dataclass(frozen=True)
class LayerWeights:
    """The arguments of a ``DecoderLayer``, which tells what they are."""

    input_layernorm: F32
    qkv_proj: Sequence[PackedWeights]
    o_proj: PackedWeights
    post_attention_layernorm: F32
    gate_up_proj: Sequence[PackedWeights]
    down_proj: PackedWeights
    qkv_bias: F32 | None
    o_bias: F32 | None
    gate_up_bias: F32 | None
    down_bias: F32 | None
    q_norm: F32 | None
    k_norm: F32 | None
    sliding_window: int
    qk_scale: F32 | None
    k_center: F32 | None

    def build(self) -> DecoderLayer:
        """The core's layer; shares the matrices."""
        return DecoderLayer(**vars(self))


class Weights:
    """Reads tensors, keeps count of them for the progress and for what is left over."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        shapes: Mapping[str, tuple[int, ...]],
        progress: Callable[[int, int, str], None] | None,
    ) -> None:
        self.checkpoint = checkpoint
        self.shapes = shapes
        self.progress = progress
        self.used: set[str] = set()

    def matrix(self, name: str, format: FloatFormat, rotary_heads: int = 0) -> PackedWeights:
        """See ``Checkpoint.packed``; the shape is checked."""
        self._check_shape(name)
        packed = self.checkpoint.packed(name, format, rotary_heads)
        self._done(name)
        return packed

    def vector(self, name: str) -> F32:
        """See ``Checkpoint.vector``; the length is checked."""
        self._check_shape(name)
        values = self.checkpoint.vector(name)
        self._done(name)
        return values

    def layer(
        self, names: Names, index: int, rotary_heads: tuple[int, int], format: FloatFormat,
        window: int, balanced: Callable[[QK], Balance],
    ) -> LayerWeights:  # fmt: skip
        """All tensors of a layer; those that the shapes do not list, it does not have."""

        def matrix(name: str, heads: int = 0) -> PackedWeights:
            return self.matrix(names.in_layer(index, name), format, heads)

        def optional(*parts: str) -> F32 | None:
            full = [names.in_layer(index, name) for name in parts]
            present = full[0] in self.shapes
            return np.concatenate([self.vector(name) for name in full]) if present else None

        input_layernorm = self.vector(names.in_layer(index, names.input_layernorm))
        q_proj = matrix(names.q_proj, rotary_heads[0])
        k_proj = matrix(names.k_proj, rotary_heads[1])
        qkv_bias = optional(names.q_bias, names.k_bias, names.v_bias)
        q_norm, k_norm = optional(names.q_norm), optional(names.k_norm)
        balance = balanced(QK(q_proj, k_proj, input_layernorm, qkv_bias, q_norm, k_norm))
        return LayerWeights(
            input_layernorm=input_layernorm,
            qkv_proj=[q_proj, k_proj, matrix(names.v_proj)],
            o_proj=matrix(names.o_proj),
            post_attention_layernorm=self.vector(
                names.in_layer(index, names.post_attention_layernorm)
            ),
            gate_up_proj=[matrix(names.gate_proj), matrix(names.up_proj)],
            down_proj=matrix(names.down_proj),
            qkv_bias=qkv_bias,
            o_bias=optional(names.o_bias),
            gate_up_bias=optional(names.gate_bias, names.up_bias),
            down_bias=optional(names.down_bias),
            q_norm=q_norm,
            k_norm=k_norm,
            sliding_window=window,
            qk_scale=balance.scale,
            k_center=balance.center,
        )

    def refuse_leftovers(self, family: str, ignored: re.Pattern[str]) -> None:
        """UnsupportedModelError if the file has tensors that nothing read."""
        left = sorted(set(self.checkpoint.tensors) - self.used)
        left = [n for n in left if not ignored.fullmatch(n) and not self._adds_nothing(n)]
        if left:
            raise UnsupportedModelError(
                f"{self.checkpoint.path}: {len(left)} tensors have no place in a {family} decoder: "
                + ", ".join(left[:4])
            )

    def _adds_nothing(self, name: str) -> bool:
        """A bias of zeros: some GPTQ files have one for every linear."""
        shape = self.checkpoint.tensors[name].shape
        return name.endswith(".bias") and len(shape) == 1 and not self.checkpoint.vector(name).any()

    def _check_shape(self, name: str) -> None:
        info = self.checkpoint.tensors.get(name)
        expected = self.shapes[name]
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
