"""The same model in transformers, in float32: what our runtime is compared with."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from intattention.dtypes import F32, S32
from intattention.errors import UnsupportedModelError
from intattention.eval.perplexity import CHUNK

NEEDED = "torch, transformers, gguf and accelerate"


class FloatModel:
    """A model's (dequantised) weights, everything computed in float32; a ``Predictor``.

    path: a .gguf file or a Hugging Face folder. UnsupportedModelError: another file. RuntimeError:
    a package is missing.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_dir() and path.suffix != ".gguf":
            raise UnsupportedModelError(
                f"{path}: only .gguf files and Hugging Face folders can be compared with float"
            )
        if path.is_dir():
            self._model = _load(path)
            return
        # transformers wants a folder, and takes what else lies in it into account
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "model.gguf").symlink_to(path.resolve())
            self._model = _load(Path(folder), gguf_file="model.gguf")

    def logits(self, ids: S32) -> Iterator[F32]:
        import torch

        with torch.inference_mode():
            inputs = torch.from_numpy(ids).long()[None]
            hidden = self._model.base_model(inputs, use_cache=False).last_hidden_state[0]
        for rows in hidden.split(CHUNK):
            with torch.inference_mode():
                logits: F32 = self._model.get_output_embeddings()(rows).numpy()
            yield logits


def _load(folder: Path, **options: str) -> Any:
    try:
        import accelerate  # noqa: F401 - transformers needs it to read GGUF
        import torch
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        raise RuntimeError(f"--against float needs {NEEDED} installed: {error}") from error
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa", **options
    ).eval()
