"""Opens a model file of either format."""

from pathlib import Path

from intattention.checkpoint import Checkpoint
from intattention.iatt_file import IattFile
from intattention.iatt_header import MAGIC


def open_model_file(path: Path) -> Checkpoint:
    """An ``.iatt`` file if its name or its first bytes say so, else GGUF.

    Raises what ``IattFile`` and ``GGUFFile`` raise.
    """
    with path.open("rb") as file:
        packed = path.suffix == ".iatt" or file.read(len(MAGIC)) == MAGIC
    if packed:
        return IattFile(path)
    from intattention.gguf_file import GGUFFile  # slow to import, and a packed model needs none

    return GGUFFile(path)
