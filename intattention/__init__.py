"""intattention: LLM inference whose attention stays in integers, on ARM and x86-64 CPUs.

>>> from intattention import LLM
>>> llm = LLM.load("smollm2-135m-instruct")
>>> llm.chat([{"role": "user", "content": "Name the capital of France."}])

Kernels as NumPy functions are in ``intattention.ops``.
"""

try:
    from intattention import _core
except ImportError as error:
    raise ImportError(
        "the compiled core of intattention (intattention._core) is missing or does not load; run "
        f"`pip install .` (or `pip install -e .`) in the source tree. The cause: {error}"
    ) from error

from intattention._core import active_isa, available_isas, built_isas, use_isa
from intattention.attention import attention
from intattention.errors import (
    ContextOverflowError,
    IntAttentionError,
    ModelFileError,
    ModelNotFoundError,
    NumericError,
    SessionFileError,
    UnsupportedModelError,
)
from intattention.llm import LLM
from intattention.stats import GenerationStats

__version__: str = _core.__version__

__all__ = [
    "LLM",
    "ContextOverflowError",
    "GenerationStats",
    "IntAttentionError",
    "ModelFileError",
    "ModelNotFoundError",
    "NumericError",
    "SessionFileError",
    "UnsupportedModelError",
    "__version__",
    "active_isa",
    "attention",
    "available_isas",
    "built_isas",
    "use_isa",
]
