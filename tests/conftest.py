"""Fixtures for all tests: a tiny model, SmolLM2, the command line."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_model
from server_process import Process, Start

from intattention import LLM, cli
from intattention.errors import ModelNotFoundError
from intattention.model_registry import find_model
from intattention.pack import pack_model

SMOLLM2 = "smollm2-135m-instruct"


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Q4_1 model with a Q8_0 embedding; read-only."""
    return tiny_model.write(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="session")
def packed_path(tiny_path: Path) -> Path:
    """``tiny_path`` as .iatt; read-only."""
    path = tiny_path.with_name("packed.iatt")
    pack_model(tiny_path, path)
    return path


@pytest.fixture
def write_tiny(tmp_path: Path) -> Callable[..., Path]:
    """write_tiny(**fields of TinyModel) -> path."""

    def write(**fields: object) -> Path:
        return tiny_model.write(tmp_path / "model.gguf", tiny_model.TinyModel(**fields))

    return write


@pytest.fixture
def tiny(tiny_path: Path) -> LLM:
    return LLM.load(tiny_path, threads=1)


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    try:
        return find_model(SMOLLM2)
    except ModelNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> LLM:
    return LLM.load(smollm2_path)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """run(*arguments) -> exit status, stdout, stderr; in this process."""

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            cli.main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return call


@pytest.fixture
def start() -> Iterator[Start]:
    """start(*options, command=...) -> a process that does not outlive the test."""
    started: list[Process] = []

    def make(*arguments: object, **options: Any) -> Process:
        started.append(Process(*arguments, **options))
        return started[-1]

    yield make
    for server in started:
        server.process.kill()
        server.process.communicate()
