"""The result of a run as JSON: what is in it (schema.json), writing it, reading it back."""

import importlib.util
import json
from importlib import resources
from pathlib import Path
from typing import Any

from intattention.errors import IntAttentionError

SCHEMA_NAME = "intattention-bench/1"
SECTIONS = ("attention", "llm", "linear")


class ResultError(IntAttentionError, ValueError):
    """A file that is not a result of this version."""


def schema() -> dict[str, Any]:
    """The JSON Schema of a result."""
    text = resources.files("intattention.bench").joinpath("schema.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def write_result(result: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def read_result(path: Path) -> dict[str, Any]:
    """ResultError: not JSON, another schema, or (where jsonschema is installed) not valid."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ResultError(f"{path} is not JSON: {error}") from error
    name = result.get("schema") if isinstance(result, dict) else None
    if name != SCHEMA_NAME:
        raise ResultError(f"{path} has the schema {name!r}, not {SCHEMA_NAME!r}")
    missing = [key for key in schema()["required"] if key not in result]
    if missing:
        raise ResultError(f"{path} lacks {', '.join(missing)}")
    if importlib.util.find_spec("jsonschema"):
        import jsonschema

        try:
            jsonschema.validate(result, schema())
        except jsonschema.ValidationError as error:
            raise ResultError(f"{path}, {error.json_path}: {error.message}") from error
    checked: dict[str, Any] = result
    return checked
