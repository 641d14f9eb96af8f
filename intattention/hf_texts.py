"""The JSON files of a Hugging Face folder, as a checkpoint's metadata keep them: name -> text."""

import json
from typing import Any

from intattention.checkpoint import Checkpoint
from intattention.errors import ModelFileError

CONFIG, GENERATION_CONFIG = "config.json", "generation_config.json"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
SPECIAL_TOKENS, CHAT_TEMPLATE = "special_tokens_map.json", "chat_template.jinja"
OLD_CHAT_TEMPLATE = "chat_template.json"
# What the model and the tokenizer read; a packed file keeps them.
TEXTS = (CONFIG, GENERATION_CONFIG, TOKENIZER, TOKENIZER_CONFIG, SPECIAL_TOKENS, CHAT_TEMPLATE,
         OLD_CHAT_TEMPLATE)  # fmt: skip


def parse_json(checkpoint: Checkpoint, name: str) -> dict[str, Any]:
    """The JSON object that a checkpoint's metadata hold as text; empty if there is none."""
    text = checkpoint.metadata.get(name)
    if text is None:
        return {}
    try:
        parsed = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{checkpoint.path / name} is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise ModelFileError(f"{checkpoint.path / name} is not a JSON object")
    return parsed
