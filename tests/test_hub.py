"""Names on the Hugging Face hub, with its cache but without a connection."""

from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_hf
import tiny_model
from huggingface_hub import constants

from intattention import LLM
from intattention.errors import ModelNotFoundError
from intattention.hub import is_hub_name

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """cached("owner/name") -> the snapshot folder to fill; the hub itself is out of reach."""
    cache = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))

    def snapshot(name: str) -> Path:
        repo = cache / f"models--{name.replace('/', '--')}"
        (repo / "refs").mkdir(parents=True)
        (repo / "refs" / "main").write_text(COMMIT)
        folder = repo / "snapshots" / COMMIT
        folder.mkdir(parents=True)
        return folder

    return snapshot


def test_cached_folder(cached: Callable[[str], Path]) -> None:
    tiny_hf.write(cached("owner/Model-1.5B"), tiny_hf.config("qwen2"))
    llm = LLM.load("owner/Model-1.5B", threads=1)
    assert llm.config.hidden_size == 128


def test_cached_gguf_file(cached: Callable[[str], Path]) -> None:
    tiny_model.write(cached("owner/model-GGUF") / "model-q4.gguf")
    assert LLM.load("owner/model-GGUF/model-q4.gguf", threads=1).generate("the", max_new_tokens=2)


def test_offline_says_what_to_do(cached: Callable[[str], Path]) -> None:
    for name in ("owner/absent", "owner/absent/file.gguf"):
        with pytest.raises(ModelNotFoundError, match=rf"'{name}'.*hf download owner/absent.*path"):
            LLM.load(name)


@pytest.mark.parametrize(
    ("text", "is_name"),
    [
        ("Qwen/Qwen2.5-0.5B-Instruct", True),
        ("owner/name/file.Q4_K_M.gguf", True),
        ("owner/name/folder/file.gguf", True),
        ("owner/name/file.bin", False),
        ("smollm2-135m-instruct", False),
        ("/models/llama", False),
        ("./llama/model", False),
        ("../llama", False),
        ("owner/../../etc/x.gguf", False),
    ],
)
def test_what_is_a_name(text: str, is_name: bool) -> None:
    assert is_hub_name(text) == is_name
