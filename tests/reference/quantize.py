"""Symmetric int8 quantisation of float32 groups (docs/numerics.md section 2)."""

import numpy as np
from numpy.typing import NDArray


def quantize(x: NDArray[np.float32], group: int) -> tuple[NDArray, NDArray, NDArray]:
    """x [..., k] -> (int8 like x, scale [..., k/group], sum of the group's int8)."""
    x = np.asarray(x, np.float32)
    groups = x.reshape(*x.shape[:-1], x.shape[-1] // group, group)
    scale = np.abs(groups).max(axis=-1) / np.float32(127)
    safe = np.where(scale == 0, np.float32(1), scale)
    q = np.clip(np.rint(groups / safe[..., None]), -127, 127)
    q = np.where(scale[..., None] == 0, np.float32(0), q)
    return q.astype(np.int8).reshape(x.shape), scale, q.sum(axis=-1).astype(np.int32)
