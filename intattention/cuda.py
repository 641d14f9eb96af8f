"""The optional CUDA back end: ``LLM.load(..., device="cuda")`` (docs/cuda.md).

>>> from intattention import cuda
>>> cuda.available()
(False, 'this build has no CUDA back end (build with -DINTATTENTION_CUDA=ON)')
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intattention import _core
from intattention.models import Model

if TYPE_CHECKING:
    from intattention import _cuda

CACHE_SHARE = 0.75  # of the device's memory that is left once the weights are there


def available() -> tuple[bool, str]:
    """Whether models can run on the GPU, and if not, why.

    Found out by running a kernel of this build: a driver, a device and machine code for it are all
    needed. Never raises.
    """
    try:
        from intattention import _cuda
    except ImportError as error:
        if error.name == "intattention._cuda" or "_cuda" in str(error):
            return False, "this build has no CUDA back end (build with -DINTATTENTION_CUDA=ON)"
        return False, f"the CUDA back end does not load: {error}"
    reason = _cuda.why_unavailable()
    return reason == "", reason


def check_available() -> None:
    """RuntimeError with the reason if ``available()`` says no."""
    usable, reason = available()
    if not usable:
        raise RuntimeError(f'device="cuda": {reason}')


def decoder(model: _core.Decoder) -> _cuda.Decoder:
    """``model`` with its weights on the GPU; after ``check_available()``."""
    from intattention import _cuda

    return _cuda.Decoder(model)


def fitting_context(model: Model) -> int:
    """The model's context, or as many tokens less as the device's memory asks for."""
    from intattention import _cuda

    room = CACHE_SHARE * _cuda.device_facts()["free_bytes"]
    row = 2 * model.head_dim + 6  # k and v, a float32 and an int16 scale
    tokens = int(room // (model.num_hidden_layers * model.num_key_value_heads * row))
    block = _core.KEY_BLOCK
    return min(model.context, max(1, tokens // block) * block)
