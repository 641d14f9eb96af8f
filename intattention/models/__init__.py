"""Models: how a checkpoint's metadata and tensor names become a decoder."""

from intattention.checkpoint import Checkpoint
from intattention.hf_texts import CONFIG
from intattention.models import gguf, hf
from intattention.models.model import Model, Progress

__all__ = ["Model", "Progress", "find"]


def find(checkpoint: Checkpoint) -> Model:
    """The model that a checkpoint's metadata describe, checked; does not touch the weights.

    ModelFileError if keys are missing or absurd, UnsupportedModelError if they ask for what is
    not built.
    """
    if CONFIG in checkpoint.metadata:
        return hf.read_model(checkpoint)
    return gguf.read_model(checkpoint)
