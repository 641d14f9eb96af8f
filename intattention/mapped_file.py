"""A whole file as memory."""

import mmap
import os
from pathlib import Path

from intattention.errors import ModelFileError


def map_file(path: Path) -> memoryview:
    """The file's bytes, read-only; unmapped when the last view of them is gone.

    ModelFileError if it is empty. A file that is shortened while it is mapped kills the process.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise ModelFileError(f"{path}: the file is empty")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
