"""Integer attention for torch models that call ``F.scaled_dot_product_attention``, as timm's do."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F

from intattention.integrations.torch_attention import (
    Method,
    attend,
    find_method,
    refuse,
    visible_in_mask,
)
from intattention.integrations.visible_keys import visible_all, visible_causal


@contextmanager
def use_intattention(attention: str = "intattention") -> Iterator[None]:
    """Every ``torch.nn.functional.scaled_dot_product_attention`` in here is integer attention.

    attention: a name of ``torch_attention.METHODS``. Also reached are ``nn.MultiheadAttention``,
    whose fused path is off meanwhile, and transformers models with "sdpa". Not reached are models
    that took the function with ``from torch.nn.functional import ...`` before, and compiled ones.
    For all threads. What integer attention cannot do (dropout, a bias, another device) raises
    ValueError.
    """
    method = find_method(attention)
    original, fused = F.scaled_dot_product_attention, torch.backends.mha.get_fastpath_enabled()
    F.scaled_dot_product_attention = _replacement(method)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        F.scaled_dot_product_attention = original
        torch.backends.mha.set_fastpath_enabled(fused)


def _replacement(method: Method) -> Any:
    def scaled_dot_product_attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        refuse(f"dropout (here {dropout_p}); call model.eval()", dropout_p)
        if attn_mask is not None and is_causal:
            raise ValueError("attn_mask and is_causal exclude each other")
        if query.ndim == 3:  # [heads or batch, length, d]
            query, key, value = query[None], key[None], value[None]
            mask = attn_mask[None] if attn_mask is not None and attn_mask.ndim == 3 else attn_mask
            out = scaled_dot_product_attention(
                query, key, value, mask, 0.0, is_causal, scale, enable_gqa
            )
            return out[0]
        if not enable_gqa and query.shape[1:2] != key.shape[1:2]:
            raise ValueError(
                f"{query.shape[1]} query heads and {key.shape[1]} KV heads need enable_gqa=True"
            )
        batch, q_len, kv_len = query.shape[0], query.shape[-2], key.shape[-2]
        if attn_mask is not None:
            visible = visible_in_mask(attn_mask, batch, q_len, kv_len)
        else:
            one = (visible_causal if is_causal else visible_all)(q_len, kv_len)
            visible = [one] * batch
        return attend(method, query, key, value, visible, scale)

    return scaled_dot_product_attention
