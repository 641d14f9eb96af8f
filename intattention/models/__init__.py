"""Architectures: how a checkpoint's metadata and tensor names become a decoder."""

from collections.abc import Callable
from typing import Protocol

from intattention._core import Decoder, DecoderConfig, ThreadPool
from intattention.checkpoint import Checkpoint
from intattention.errors import ModelFileError, UnsupportedModelError
from intattention.models import llama

Progress = Callable[[int, int, str], None]
"""Called after each tensor with (done, total, name)."""


class Architecture(Protocol):
    """A module of this package."""

    def read_config(self, checkpoint: Checkpoint) -> DecoderConfig:
        """The checked configuration; does not touch the weights."""

    def build(self, checkpoint: Checkpoint, pool: ThreadPool, progress: Progress | None) -> Decoder:
        """Reads, checks and packs all weights."""


ARCHITECTURES: dict[str, Architecture] = {"llama": llama}


def find(checkpoint: Checkpoint) -> Architecture:
    """The architecture that ``general.architecture`` names.

    ModelFileError if the key is missing, UnsupportedModelError if the name is unknown.
    """
    name = checkpoint.metadata.get("general.architecture")
    if not isinstance(name, str):
        raise ModelFileError(f"{checkpoint.path}: general.architecture is {name!r}, not a name")
    if name not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"{checkpoint.path}: the architecture {name!r} is not supported; "
            f"supported: {', '.join(sorted(ARCHITECTURES))}"
        )
    return ARCHITECTURES[name]
