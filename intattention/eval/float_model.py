"""The same GGUF in transformers, in float32: what our runtime is compared with."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from intattention.dtypes import F32, S32
from intattention.errors import UnsupportedModelError
from intattention.eval.perplexity import CHUNK

NEEDED = "torch, transformers, gguf and accelerate"


class FloatModel:
    """A GGUF's dequantised weights, everything computed in float32; a ``Predictor``.

    UnsupportedModelError: not a .gguf file. RuntimeError: a package is missing.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix != ".gguf":
            raise UnsupportedModelError(f"{path}: only .gguf files can be compared with float")
        try:
            import accelerate  # noqa: F401 - transformers needs it to read GGUF
            import torch
            from transformers import AutoModelForCausalLM
        except ImportError as error:
            raise RuntimeError(f"--against float needs {NEEDED} installed: {error}") from error
        self._torch = torch
        # from_pretrained() wants a folder, and takes what lies beside the file into account
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "model.gguf").symlink_to(path.resolve())
            self._model: Any = AutoModelForCausalLM.from_pretrained(
                folder, gguf_file="model.gguf", dtype=torch.float32, attn_implementation="sdpa"
            ).eval()

    def logits(self, ids: S32) -> Iterator[F32]:
        with self._torch.inference_mode():
            inputs = self._torch.from_numpy(ids).long()[None]
            hidden = self._model.base_model(inputs, use_cache=False).last_hidden_state[0]
        for rows in hidden.split(CHUNK):
            with self._torch.inference_mode():
                logits: F32 = self._model.get_output_embeddings()(rows).numpy()
            yield logits
