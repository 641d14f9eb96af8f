"""How many tokens of context a model gets: what is asked for, or what memory holds."""

from intattention import _core, machine
from intattention.checkpoint import Checkpoint
from intattention.iatt_file import IattFile
from intattention.models import Model

CACHE_SHARE = 0.75  # of the memory that is left once the weights are there


def checked_context(asked: int, model: Model) -> int:
    """``asked``, if the model can have it. ValueError if not."""
    if not 1 <= asked <= model.max_context:
        raise ValueError(f"ctx is {asked}, expected 1 to {model.max_context} (the model's context)")
    return asked


def fitting_context(model: Model, checkpoint: Checkpoint) -> int:
    """The model's context, or as many tokens less as memory asks for; weights are loaded.

    At least one block of the cache; the model's own context where memory is unknown.
    """
    memory = machine.memory_bytes()
    if memory is None:
        return model.context
    room = CACHE_SHARE * max(0, memory[1] - _mapped_bytes(checkpoint))
    block = _core.KEY_BLOCK
    blocks = int(room // cache_bytes(model, block))
    return min(model.context, max(1, blocks) * block)


def cache_bytes(model: Model, tokens: int) -> int:
    """Of a cache that holds ``tokens``."""
    shape = model.num_hidden_layers, model.num_key_value_heads, model.head_dim
    return _core.KVCache(*shape, tokens).bytes_for(tokens)


def _mapped_bytes(checkpoint: Checkpoint) -> int:
    """Weights that take memory only when they are used, and still count as available."""
    if not isinstance(checkpoint, IattFile):
        return 0
    return sum(tensor.nbytes for tensor in checkpoint.tensors.values())
