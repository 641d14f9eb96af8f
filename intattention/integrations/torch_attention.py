"""Attention of torch tensors by name; what the adapters to torch libraries have in common."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch

from intattention.attention import attention
from intattention.dtypes import F32
from intattention.integrations.softmax_studies import exaq, index_softmax_only
from intattention.integrations.visible_keys import Visible, runs, visible_in

HEAD_DIM_STEP = 16
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class Method(Protocol):
    """q ``[n_heads, q_len, d]``, k, v ``[n_kv_heads, kv_len, d]`` -> ``[n_heads, q_len, d]``."""

    def __call__(
        self, q: F32, k: F32, v: F32, *, causal: bool, scale: float, window: int
    ) -> F32: ...


METHODS: dict[str, Method] = {
    "intattention": partial(attention, softmax="index"),
    "intattention-paper": partial(attention, softmax="paper"),
    "intattention-paper-floor": partial(attention, softmax="paper", rounding="floor"),
    "quant_only": partial(attention, softmax="quant_only"),
    "index_softmax_only": index_softmax_only,
    "exaq-int2": partial(exaq, bits=2),
    "exaq-int3": partial(exaq, bits=3),
}
"""What each name computes. The first four run the compiled kernels, the rest NumPy."""


def find_method(name: str) -> Method:
    if name not in METHODS:
        raise ValueError(f"attention is {name!r}, known: {', '.join(map(repr, METHODS))}")
    return METHODS[name]


def attend(
    method: Method,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    visible: Sequence[Visible],
    scale: float | None,
) -> torch.Tensor:
    """query ``[batch, n_heads, q_len, d]``, key ``[batch, n_kv_heads, kv_len, d]``, value likewise
    with a d of its own -> ``[batch, n_heads, q_len, value's d]`` in query's dtype.

    visible: one per sequence. Each sequence is computed by itself, from the keys that it sees, so
    it cannot depend on its neighbours or on padding; for the methods with one scale per tensor,
    the tensor is what one call sees. A query without a key gives zeros.

    ValueError: shapes, dtypes or values that integer attention does not take. A tensor that needs
    gradients gets an output that raises NotImplementedError in backward.
    """
    _check(query, key, value)
    scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    d, value_dim = query.shape[-1], value.shape[-1]
    width = math.ceil(max(d, value_dim) / HEAD_DIM_STEP) * HEAD_DIM_STEP
    q, k, v = (_array(x, width) for x in (query, key, value))
    out = np.zeros((*query.shape[:3], width), np.float32)
    for i, seen in enumerate(visible):
        for run in runs(seen):
            out[i, :, run.rows] = method(
                q[i, :, run.rows], k[i, :, run.keys], v[i, :, run.keys],
                causal=run.causal, scale=scale, window=run.window,
            )  # fmt: skip
    result = torch.from_numpy(out[..., :value_dim]).to(query.dtype)
    if torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value)):
        result.requires_grad_().register_hook(_no_gradient)
    return result


def visible_in_mask(mask: torch.Tensor, batch: int, q_len: int, kv_len: int) -> list[Visible]:
    """One per sequence, from a mask that broadcasts to ``[batch, heads, q_len, kv_len]``.

    Boolean (True: visible) or float of nothing but 0 and -inf or the dtype's minimum. ValueError
    for other floats (a bias), for masks that differ between heads, and for gaps.
    """
    if mask.device.type != "cpu":
        raise ValueError(f"the attention mask is on {mask.device}, expected the CPU")
    mask = mask.reshape((1,) * (4 - mask.ndim) + tuple(mask.shape))
    for size, wanted in zip(mask.shape, (batch, mask.shape[1], q_len, kv_len), strict=True):
        if size not in (1, wanted):
            raise ValueError(
                f"the attention mask has the shape {tuple(mask.shape)}, which does not fit "
                f"{batch} sequences, {q_len} queries and {kv_len} keys"
            )
    if mask.dtype != torch.bool:
        if not mask.dtype.is_floating_point:
            raise ValueError(f"the attention mask is {mask.dtype}, expected bool or float")
        hidden = mask <= torch.finfo(mask.dtype).min
        if not (hidden | (mask == 0)).all():
            raise ValueError(
                "the attention mask adds a bias to the logits: integer attention only takes masks "
                "that hide keys (0 and -inf)"
            )
        mask = ~hidden
    if mask.shape[1] > 1 and not bool((mask == mask[:, :1]).all()):
        raise ValueError("the attention mask differs between heads, which is not supported")
    rows = mask[:, 0].expand(-1, q_len, kv_len).numpy()
    if len(rows) == 1:
        return [visible_in(rows[0])] * batch
    return [visible_in(sequence) for sequence in rows]


def refuse(what: str, value: Any) -> None:
    """ValueError if a caller asks for something that integer attention cannot do."""
    if value is not None and not (isinstance(value, (bool, int, float)) and value == 0):
        raise ValueError(f"integer attention does not support {what}")


def _check(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.device.type != "cpu":
            raise ValueError(f"{name} is on {x.device}: integer attention runs on the CPU")
        if x.dtype not in DTYPES:
            raise ValueError(f"{name} is {x.dtype}, accepted: {', '.join(map(str, DTYPES))}")
        if x.ndim != 4:
            raise ValueError(
                f"{name} has the shape {tuple(x.shape)}, expected [batch, heads, length, d]"
            )
    shapes = " and ".join(str(tuple(x.shape)) for x in (query, key, value))
    if not query.shape[0] == key.shape[0] == value.shape[0]:
        raise ValueError(f"query, key and value differ in batch: {shapes}")
    if query.shape[-1] != key.shape[-1] or key.shape[1:3] != value.shape[1:3]:
        raise ValueError(f"query, key and value do not fit each other: {shapes}")
    if query.shape[1] % key.shape[1]:
        raise ValueError(f"{query.shape[1]} query heads are no multiple of {key.shape[1]} KV heads")


def _array(x: torch.Tensor, width: int) -> F32:
    """Float32, filled up with zeros, which change no logit; shares x's memory if it can."""
    x = x.detach().float()
    if x.shape[-1] < width:
        x = torch.nn.functional.pad(x, (0, width - x.shape[-1]))
    array: F32 = x.numpy()
    return array


def _no_gradient(_: torch.Tensor) -> None:
    raise NotImplementedError("integer attention has no gradient; use another one for training")
