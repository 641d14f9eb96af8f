"""Integer matrix products, exact."""

import numpy as np
from numpy.typing import NDArray


def gemm(a: NDArray, b: NDArray[np.int8]) -> NDArray[np.int32]:
    """a [m, k] (s8 or u8) x b [n, k] transposed -> s32 [m, n].

    float64 holds every partial sum of 8-bit products exactly (k < 2^37), and its matmul is fast.
    """
    return (a.astype(np.float64) @ b.astype(np.float64).T).astype(np.int32)
