"""What a figure was measured on."""

import subprocess
from pathlib import Path


def commit() -> str:
    """Of the source tree that the package is part of; "unknown" for an installed one."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return "unknown"
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"
