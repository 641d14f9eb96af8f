"""The JSON files of a Hugging Face folder, as a checkpoint's metadata keep them: name -> text."""

import json
from typing import Any

from intattention.checkpoint import Checkpoint
from intattention.errors import ModelFileError

CONFIG = "config.json"


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
