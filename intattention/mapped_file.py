"""A whole file as memory."""

import mmap
import os
from pathlib import Path

from intattention.errors import IntAttentionError, ModelFileError


def map_file(path: Path, damaged: type[IntAttentionError] = ModelFileError) -> memoryview:
    """The file's bytes, read-only; unmapped when the last view of them is gone.

    ``damaged`` is raised if it is empty. A file that is shortened while it is mapped kills the
    process.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise damaged(f"{path}: the file is empty")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
