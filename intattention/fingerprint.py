"""Which model is it? Told by what it computes, not by where its file lies."""

import hashlib

import numpy as np

from intattention._core import Decoder

PROBE_TOKENS = 16


def fingerprint(decoder: Decoder) -> str:
    """SHA-256 (hex) of sizes, rotation, and keys, values and logits of a few tokens.

    Equal where keys and values can be exchanged: for the same weights whatever the file, the ISA
    and the machine. Costs one forward of 16 tokens. It does not see rows of the embedding that
    the probe does not use, nor sliding windows of 16 tokens and more.
    """
    config = decoder.config
    digest = hashlib.sha256()
    sizes = (
        config.vocab_size, config.hidden_size, config.intermediate_size, config.num_hidden_layers,
        config.num_attention_heads, config.num_key_value_heads, config.head_dim,
    )  # fmt: skip
    digest.update(np.array(sizes, "<u8").tobytes())
    rotation = (config.rope_attention_factor, *config.rope_inverse_frequency)
    # not all bits: the last ones are those of a machine's pow()
    digest.update(" ".join(f"{value:.6g}" for value in rotation).encode())
    cache = decoder.new_cache(PROBE_TOKENS)
    ids = np.linspace(0, config.vocab_size - 1, PROBE_TOKENS).astype(np.int32)
    digest.update(decoder.forward(ids, cache).tobytes())
    for layer in range(config.num_hidden_layers):
        for part in cache.rows(layer, PROBE_TOKENS):
            digest.update(part.tobytes())
    return digest.hexdigest()
