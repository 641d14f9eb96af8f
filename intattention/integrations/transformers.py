"""``attn_implementation="intattention"`` for models of transformers.

>>> from intattention.integrations.transformers import register
>>> register()
>>> model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="intattention")
"""

import sys
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from intattention.integrations.torch_attention import (
    METHODS,
    Method,
    attend,
    find_method,
    refuse,
    visible_in_mask,
)
from intattention.integrations.visible_keys import Visible, visible_all, visible_causal

UNSUPPORTED = {
    "softcap": "a cap of the logits (softcap)",
    "s_aux": "attention sinks that are no keys (s_aux)",
    "head_mask": "a head mask",
    "position_bias": "a position bias",
    "output_attentions": 'output_attentions; use attn_implementation="eager" for that',
}


def register() -> None:
    """Makes the names in ``torch_attention.METHODS`` values of ``attn_implementation``.

    - ``intattention``: this library's integer attention (docs/numerics.md, sections 2 to 5).
    - ``intattention-paper``, ``intattention-paper-floor``: as published, section 7; one scale per
      sequence and tensor, over what a call sees: while generating, the scales of the cache's keys
      follow the longest so far.
    - ``quant_only``: INT8 around a float softmax, section 8.
    - ``index_softmax_only``, ``exaq-int2``, ``exaq-int3``: softmax_studies.py; slow.

    For float32, bfloat16 and float16 models on the CPU. What integer attention cannot do
    (dropout, biases on logits, output_attentions, ...) raises ValueError when it is asked for, and
    so do models with an attention of their own, which would take no notice of the name.
    """
    for name in METHODS:
        AttentionInterface.register(name, forward_of(find_method(name)))
        AttentionMaskInterface.register(name, _mask)


def forward_of(method: Method) -> Any:
    """An attention function as transformers calls it."""

    def forward(
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        sliding_window: int | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        refuse(f"dropout (here {dropout}); call model.eval()", dropout)
        for name, what in UNSUPPORTED.items():
            refuse(what, kwargs.get(name))
        if attention_mask is None and sliding_window and key.shape[2] > sliding_window:
            raise ValueError(f"a sliding window of {sliding_window} keys came without its mask")
        if is_causal is None:
            is_causal = getattr(module, "is_causal", True)
        visible = _visible(query, key, attention_mask, is_causal)
        out = attend(method, query, key, value, visible, scaling)
        return out.transpose(1, 2).contiguous(), None

    return forward


def _mask(*args: Any, config: Any = None, **kwargs: Any) -> torch.Tensor | None:
    """Boolean masks, or None where ``is_causal`` says all. Called once per forward."""
    if _has_its_own_attention(type(config)):
        raise ValueError(
            f"models of {type(config).__name__} do not let attention be replaced (their code does "
            "not use transformers' AttentionInterface)"
        )
    mask: torch.Tensor | None = sdpa_mask(*args, config=config, **kwargs)
    return mask


def _has_its_own_attention(config_class: type) -> bool:
    """Whether the model's file defines attention, but does not look it up by name."""
    name = config_class.__module__.replace(".configuration_", ".modeling_")
    if name == config_class.__module__ or name not in sys.modules:
        return False  # a config from elsewhere
    contents = vars(sys.modules[name])
    defined = (key for key, x in contents.items() if getattr(x, "__module__", "") == name)
    return "ALL_ATTENTION_FUNCTIONS" not in contents and any("Attention" in key for key in defined)


def _visible(
    query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None, causal: bool
) -> list[Visible]:
    """transformers leaves the mask out if queries and keys begin at the same position, or for one
    query that sees all keys; then ``is_causal`` says what it would have been."""
    batch, q_len, kv_len = query.shape[0], query.shape[2], key.shape[2]
    if mask is not None:
        return visible_in_mask(mask, batch, q_len, kv_len)
    one = visible_causal(q_len, kv_len) if causal and q_len > 1 else visible_all(q_len, kv_len)
    return [one] * batch
