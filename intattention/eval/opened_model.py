"""A model file, opened once to be seen as several predictors."""

from pathlib import Path

from intattention import models
from intattention._core import ThreadPool
from intattention.checkpoint import FloatFormat
from intattention.context import checked_context
from intattention.eval.float_decoder import FloatDecoder
from intattention.eval.perplexity import Runtime
from intattention.model_file import open_model_file
from intattention.tokenizer import TextTokenizer


class OpenedModel:
    """The packed weights of a model for windows of ``ctx`` tokens.

    Raises what ``LLM.load`` raises.
    """

    def __init__(
        self,
        path: Path,
        ctx: int,
        pool: ThreadPool,
        weights: FloatFormat = "w4g32a",
        progress: models.Progress | None = None,
    ) -> None:
        self._checkpoint = open_model_file(path)
        self._model = models.find(self._checkpoint)
        self._context = checked_context(ctx, self._model)
        self._pool = pool
        self.tokenizer = TextTokenizer(self._checkpoint)
        self._parts = self._model.read(self._checkpoint, progress, weights)

    def runtime(self) -> Runtime:
        """This library's decoder: int8 activations, int8 cache, the index softmax."""
        decoder = self._model.decoder(self._checkpoint, self._parts, self._pool, self._context)
        return Runtime(decoder)

    def float32(self, softmax: str) -> FloatDecoder:
        """All but attention in float32; ``softmax``: see ``FloatDecoder``."""
        config = self._model.config(self._context, self._parts.rope)
        return FloatDecoder(config, self._parts, softmax, self._pool)
