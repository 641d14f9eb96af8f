"""The context that a model gets: asked for, its own, or what memory holds."""

from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_hf

from intattention import LLM, cli, machine, models
from intattention.context import CACHE_SHARE, cache_bytes
from intattention.hf_folder import HFFolder
from intattention.pack import pack_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_hf.write(tmp_path / "folder", tiny_hf.config("llama"))


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    def available(count: float) -> None:
        monkeypatch.setattr(machine, "memory_bytes", lambda: (1 << 34, int(count)))

    return available


def room_for(folder: Path, tokens: int) -> float:
    return cache_bytes(models.find(HFFolder(folder)), tokens) / CACHE_SHARE


def test_memory_is_plenty(folder: Path) -> None:
    llm = LLM.load(folder, threads=1)
    assert llm.context == 512
    assert llm.notes == []


def test_memory_is_short(folder: Path, memory: Callable[[float], None]) -> None:
    memory(room_for(folder, 256) + 1)
    llm = LLM.load(folder, threads=1)
    assert llm.context == 256
    assert llm.notes == ["the context is 256 of 512 tokens, what fits into memory"]
    memory(0)
    assert LLM.load(folder, threads=1).context == 256
    assert LLM.load(folder, threads=1, ctx=500).context == 500


def test_mapped_weights_need_memory_too(
    folder: Path, tmp_path: Path, memory: Callable[[float], None]
) -> None:
    pack_model(folder, tmp_path / "packed.iatt")
    memory(room_for(folder, 512) + 1)
    assert LLM.load(folder, threads=1).context == 512
    assert LLM.load(tmp_path / "packed.iatt", threads=1).context == 256


def test_unknown_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_bytes", lambda: None)
    assert LLM.load(folder, threads=1).context == 512


def test_the_command_line_says_so(
    folder: Path, memory: Callable[[float], None], capsys: pytest.CaptureFixture[str]
) -> None:
    memory(0)
    with pytest.raises(SystemExit):
        cli.main(["generate", "-m", str(folder), "-n", "1", "--raw", "the"])
    assert "note: the context is 256 of 512 tokens" in capsys.readouterr().err


def test_a_stated_extension_is_allowed_and_no_more(tmp_path: Path) -> None:
    folder = tiny_hf.write(tmp_path, tiny_hf.config("llama dynamic"))
    assert LLM.load(folder, threads=1).context == 64
    assert LLM.load(folder, threads=1, ctx=256).context == 256
    with pytest.raises(ValueError, match="ctx is 257, expected 1 to 256"):
        LLM.load(folder, threads=1, ctx=257)
