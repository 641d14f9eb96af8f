"""Opens a model file of any format."""

from pathlib import Path

from intattention.checkpoint import Checkpoint
from intattention.iatt_file import IattFile
from intattention.iatt_header import MAGIC


def open_model_file(path: Path) -> Checkpoint:
    """A Hugging Face folder, an ``.iatt`` file if its name or its first bytes say so, else GGUF.

    Raises what ``HFFolder``, ``IattFile`` and ``GGUFFile`` raise.
    """
    if path.is_dir():
        from intattention.hf_folder import HFFolder

        return HFFolder(path)
    with path.open("rb") as file:
        packed = path.suffix == ".iatt" or file.read(len(MAGIC)) == MAGIC
    if packed:
        return IattFile(path)
    from intattention.gguf_file import GGUFFile  # slow to import, and a packed model needs none

    return GGUFFile(path)
