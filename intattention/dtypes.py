"""Array types in signatures."""

import numpy as np
from numpy.typing import NDArray

F16 = NDArray[np.float16]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
S8 = NDArray[np.int8]
S32 = NDArray[np.int32]
S64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
