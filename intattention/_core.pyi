"""The compiled core. Private: the public names are in ``intattention`` and ``intattention.ops``.

Arrays must be C-contiguous and of exactly the dtype named; nothing is converted silently.
Errors: ValueError (shape, dtype, value; the offending numbers are in the message), RuntimeError
(ISA), ContextOverflowError, NumericError, MemoryError.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
S8 = NDArray[np.int8]
S16 = NDArray[np.int16]
U8 = NDArray[np.uint8]
S32 = NDArray[np.int32]

__version__: str
compiler: str
KEY_BLOCK: int
KEY_RANGE: int
GROUP: int

class ContextOverflowError(ValueError): ...
class NumericError(ArithmeticError): ...

# isa ------------------------------------------------------------------------------------------
def built_isas() -> list[str]:
    """Kernel tables in this build, best first."""

def available_isas() -> list[str]:
    """Built tables that this CPU can run, best first; never empty ("portable" is last)."""

def active_isa() -> str: ...
def use_isa(name: str) -> None:
    """Force a table. RuntimeError if the name is unknown, not built, or not runnable here."""

def cpu_features() -> list[str]: ...
def kernel_names() -> dict[str, str]:
    """Op -> its kernel in the active table, e.g. "gemm_w4a8_avx2"; "none" if it has none."""

# threads --------------------------------------------------------------------------------------
class ThreadPool:
    def __init__(self, threads: int = 0, cpus: Sequence[int] | None = None) -> None:
        """threads = 0: one per CPU of ``cpus``, or per performance core. cpus: pin to these."""
    @property
    def threads(self) -> int: ...
    @property
    def cpus(self) -> list[int]:
        """CPUs the threads are pinned to; empty if they are not pinned."""

def performance_cpus() -> list[int]:
    """The fastest cluster's CPUs among those this process may run on."""

# ops ------------------------------------------------------------------------------------------
def gemm_s8s8s32(a: S8, b: S8) -> S32:
    """a [m, k] x b [n, k] transposed -> [m, n]."""

def gemm_u8s8s32(a: U8, b: S8) -> S32: ...
def index_softmax_s32u8(
    logits: S32,
    key_ratio: NDArray[np.int16],
    log_scale: NDArray[np.int16],
    sum_weight: NDArray[np.uint16],
    begin: S32,
    end: S32,
    narrow: int,
    factor: NDArray[np.int16],
    lshift: S32,
    running_max: S32,
) -> tuple[U8, S32, NDArray[np.uint32]]:
    """logits [m, n], n <= KEY_BLOCK -> (E' [m, n], max [m], sum [m]).

    begin, end, factor, lshift, running_max have one entry per row; running_max of a row that has
    seen no key is -2**30.
    """

def quantize_f32s8(x: F32, group: int) -> tuple[S8, F32, S32]:
    """x [..., k] -> (q like x, scale [..., k/group], sum of q likewise)."""

def rmsnorm_f32(x: F32, weight: F32, eps: float) -> F32: ...
def rope_f32(x: F32, cos: F32, sin: F32) -> F32:
    """x [rows, d], cos and sin [rows, d/2] -> rotated copy."""

def swiglu_f32(gate: F32, up: F32) -> F32: ...
def accumulate_s32f32(sum: S32, out: F32, decay: float, scale: float) -> F32:
    """out [m, n] * decay + float32(sum [m, n]) * scale, a new array; n a multiple of 8."""

def attention(
    q: F32,
    k: F32,
    v: F32,
    causal: bool,
    scale: float,
    window: int,
    pool: ThreadPool | None = None,
    prefix: int = 0,
) -> F32:
    """q [n_heads, q_len, d], k, v [n_kv_heads, kv_len, d] -> [n_heads, q_len, d].

    Causal: query i sits at position kv_len - q_len + i. window 0 means none, else each query sees
    at most its last ``window`` keys. prefix: keys below it are seen by every query (causal only).
    """

def attention_stages(
    q: F32, k: F32, v: F32, causal: bool, scale: float, pool: ThreadPool | None = None
) -> dict[str, float]:
    """Runs ``attention`` and returns thread-seconds: "qk", "softmax", "pv" and the "total" of the
    call; the rest of the total is quantising, packing and merging."""

def attention_float(
    q: F32,
    k: F32,
    v: F32,
    causal: bool,
    scale: float,
    window: int,
    prefix: int,
    precision: Literal["fp32", "fp16"],
    pool: ThreadPool | None = None,
) -> F32:
    """The float rivals, tiled as attention() is; same shapes and masks. Bits differ between ISAs.

    fp16: q * scale, k and v rounded to float16; float16 arithmetic on ARM with FEAT_FP16, float32
    arithmetic on x86-64. RuntimeError if the active ISA has no float16.
    """

# comparison pipelines (docs/numerics.md sections 7 and 8) -------------------------------------
Rounding = Literal["nearest", "floor"]

def attention_paper(
    q: F32,
    k: F32,
    v: F32,
    causal: bool,
    scale: float,
    window: int = 0,
    prefix: int = 0,
    rounding: Rounding = "nearest",
    pool: ThreadPool | None = None,
) -> F32:
    """As published: shapes and masks as in attention(); one scale per tensor."""

def attention_paper_int8(
    q: S8,
    k: S8,
    v: S8,
    q_scale: float,
    k_scale: float,
    v_scale: float,
    causal: bool,
    scale: float,
    window: int = 0,
    prefix: int = 0,
    rounding: Rounding = "nearest",
    pool: ThreadPool | None = None,
    return_probs: bool = False,
) -> tuple[F32, U8 | None]:
    """On quantised arrays -> (out, P [n_heads, q_len, kv_len] or None)."""

def attention_quant_only(
    q: F32,
    k: F32,
    v: F32,
    causal: bool,
    scale: float,
    window: int = 0,
    prefix: int = 0,
    pool: ThreadPool | None = None,
) -> F32:
    """INT8 QK and PV around a float32 softmax; shapes and masks as in attention()."""

def softmax_s32s8(
    logits: S32, begin: S32, end: S32, factor: float, running_max: S32
) -> tuple[S8, S32, S32]:
    """logits [m, n] -> (P [m, n], max [m], sum of P [m]); begin, end, running_max [m]."""

def paper_softmax_s32u8(
    logits: S32, begin: S32, end: S32, c_int: int, rounding: Rounding
) -> tuple[U8, NDArray[np.uint32]]:
    """logits [m, n] -> (P [m, n], sum of E [m]); begin, end [m]; max - logit at most 2**25."""

# linear ---------------------------------------------------------------------------------------
WeightFormat = Literal["w4g32", "w4g32a", "w8g32"]
WEIGHT_LAYOUT: str
"""Names how packed weights lie in memory; see src_core/packing.h."""

class PackedWeights:
    def __init__(
        self,
        format: WeightFormat,
        q: U8 | S8,
        scale: NDArray[np.float16],
        min: NDArray[np.float16] | None = None,
    ) -> None:
        """q: w4 uint8 [n, k/32, 16] (byte j = element j low nibble, j + 16 high), w8 int8 [n, k];
        scale, min [n, k/32]. Scales and minimums must be finite."""
    @staticmethod
    def from_packed(
        format: WeightFormat, out_features: int, in_features: int, data: bytes | memoryview
    ) -> PackedWeights:
        """Weights that lie in ``data`` (any contiguous buffer of bytes) as WEIGHT_LAYOUT.

        Nothing is copied: the buffer stays exported as long as the weights live. ValueError unless
        it begins at a multiple of 64 and has ``packed_bytes`` bytes. Scales are not checked.
        """
    @staticmethod
    def packed_bytes(format: WeightFormat, out_features: int, in_features: int) -> int:
        """Size of the packed matrix. ValueError if there is no such shape."""
    def __buffer__(self, flags: int, /) -> memoryview:
        """The packed bytes, read-only: ``memoryview(weights)``."""
    @property
    def format(self) -> WeightFormat: ...
    @property
    def shape(self) -> tuple[int, int]:
        """(out_features, in_features)"""
    @property
    def nbytes(self) -> int: ...
    def dequantize_rows(self, rows: S32) -> F32: ...

def linear(x: F32, parts: Sequence[PackedWeights], pool: ThreadPool | None = None) -> F32:
    """x [m, k] -> [m, sum of out_features]."""

def quantize_weights(
    w: F32, format: WeightFormat, importance: F32 | None = None
) -> tuple[U8 | S8, NDArray[np.float16], NDArray[np.float16] | None]:
    """w [out, in] -> (q, scale, min or None) of a LogicalTensor; importance [in]."""

# model ----------------------------------------------------------------------------------------
class KVCache:
    def __init__(
        self, num_layers: int, num_key_value_heads: int, head_dim: int, max_len: int
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def max_len(self) -> int: ...
    @property
    def nbytes(self) -> int:
        """Bytes held now (blocks are taken as the cache grows; shared blocks count here too)."""
    def bytes_for(self, length: int) -> int: ...
    def truncate(self, length: int) -> None: ...
    def fork(self) -> KVCache:
        """The same content; full blocks are shared, nothing is copied until written."""
    def rows(self, layer: int, count: int) -> tuple[S8, F32, S8, S16]:
        """Rows [0, count) of a layer, in an order that is the same on every ISA.

        k [kv_heads, count, head_dim], its scales [kv_heads, count], v like k, and the logarithms
        of its scales [kv_heads, count] in counts of 6.6 / 1024.
        """
    def append_rows(self, layers: Sequence[tuple[S8, F32, S8, S16]]) -> None:
        """Appends what ``rows`` gives for every layer. Releases the GIL.

        ValueError for other shapes, and for values that no cache holds; ContextOverflowError. The
        cache is then as it was.
        """

class DecoderConfig:
    def __init__(
        self,
        *,
        vocab_size: int,
        hidden_size: int,
        intermediate_size: int,
        num_hidden_layers: int,
        num_attention_heads: int,
        num_key_value_heads: int,
        head_dim: int,
        max_position_embeddings: int,
        rms_norm_eps: float,
        rope_theta: float,
        rope_inverse_frequency: F64 | None = None,
        rope_attention_factor: float = 1.0,
    ) -> None:
        """rope_inverse_frequency [rotary_dim / 2]: radians per token of pair (i, i + rotary_dim/2);
        what lies beyond rotary_dim is not rotated. None: rope_theta ** (-2i / head_dim).
        rope_attention_factor multiplies cos and sin."""
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    rope_inverse_frequency: F64
    """Empty in a configuration that asks for the plain ones, filled in that of a Decoder."""
    rope_attention_factor: float

class Sampler:
    """Chooses tokens; ``intattention.sampling.SamplingParams`` says how."""

    def __init__(
        self,
        *,
        temperature: float,
        top_p: float,
        top_k: int,
        min_p: float,
        repetition_penalty: float,
        seed: int,
    ) -> None: ...
    def see(self, token: int) -> None:
        """Counts ``token`` for the repetition penalty."""

    def choose(self, logits: F32) -> int:
        """The next token, which has then been seen. ValueError if a logit is not finite."""

    def candidates(self, logits: F32) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Ids that may be chosen and their probabilities; temperature > 0."""

class DecoderLayer:
    def __init__(
        self,
        *,
        input_layernorm: F32,
        qkv_proj: Sequence[PackedWeights],
        o_proj: PackedWeights,
        post_attention_layernorm: F32,
        gate_up_proj: Sequence[PackedWeights],
        down_proj: PackedWeights,
        qkv_bias: F32 | None = None,
        o_bias: F32 | None = None,
        gate_up_bias: F32 | None = None,
        down_bias: F32 | None = None,
        q_norm: F32 | None = None,
        k_norm: F32 | None = None,
        sliding_window: int = 0,
        qk_scale: F32 | None = None,
        k_center: F32 | None = None,
    ) -> None:
        """qkv_proj: q, k, v in that order (each part may have its own format); rows of q and k in
        Hugging Face order (rotary pairs are i and i + head_dim/2). qkv_bias: of q, k, v side by
        side; o_bias [hidden], gate_up_bias [2 * intermediate], down_bias [hidden]. q_norm, k_norm
        [head_dim]: RMSNorm weights of every head, before RoPE. sliding_window: keys a token sees
        at most, itself included; 0: all. qk_scale, k_center [kv_heads * head_dim]: q is multiplied
        and k divided by qk_scale (powers of two, equal in a rotary pair), and k_center is
        subtracted from k after RoPE; exact attention would not notice either."""

class Decoder:
    def __init__(
        self,
        config: DecoderConfig,
        embed_tokens: PackedWeights,
        layers: Sequence[DecoderLayer],
        norm: F32,
        lm_head: PackedWeights | None,
        pool: ThreadPool,
    ) -> None:
        """lm_head None: tied to embed_tokens."""
    @property
    def config(self) -> DecoderConfig: ...
    @property
    def nbytes(self) -> int: ...
    def new_cache(self, max_len: int) -> KVCache: ...
    def forward(
        self, ids: S32, cache: KVCache, logits: Literal["last", "all", "none"] = "last"
    ) -> F32:
        """Runs ids [T] at positions len(cache) .. len(cache)+T-1 and appends them to the cache.

        Returns float32 [1, vocab] ("last"), [T, vocab] ("all") or [0, vocab] ("none"). On any
        exception the cache is as it was. Releases the GIL.
        """
    def forward_batch(
        self,
        ids: Sequence[S32],
        caches: Sequence[KVCache],
        logits: Sequence[Literal["last", "all", "none"]],
    ) -> F32:
        """``forward`` for several sequences at once, each with a cache of its own: the weights are
        read once for all. The rows of each sequence follow those of the one before; their bits
        are those of ``forward``. On any exception all caches are as they were."""
    def capture_qkv(self, ids: S32, cache: KVCache, layer: int) -> tuple[F32, F32, F32]:
        """What attention of ``layer`` sees for ``ids`` appended to the cache, for studies.

        q [heads, T, head_dim], k [kv_heads, T, head_dim] after RoPE, scale and centre, v like k,
        before they are quantised. The cache ends as it was.
        """

def decoder_from_iatt(
    path: str, context: int, pool: ThreadPool
) -> tuple[Decoder, int, int, list[int]]:
    """(decoder, context, tokens, ids that end a turn) as the C API reads a packed file; for tests.

    context 0: the model's own. RuntimeError if the file is damaged or not described.
    """
