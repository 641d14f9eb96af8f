"""Every input of fuzz/corpus goes through its target: seeds are taken, old crashes stay fixed."""

import importlib.util
import random
from pathlib import Path

import pytest

from intattention.iatt_file import IattFile
from intattention.models.description import DECODER_TEXT

FUZZ = Path(__file__).parents[1] / "fuzz"
_spec = importlib.util.spec_from_file_location("fuzz_targets", FUZZ / "targets.py")
assert _spec
assert _spec.loader
targets = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(targets)


@pytest.mark.parametrize("name", targets.TARGETS)
def test_corpus(name: str) -> None:
    files = sorted((FUZZ / "corpus" / name).iterdir())
    assert files
    taken = [path.name for path in files if targets.TARGETS[name](path.read_bytes()) is None]
    assert taken, "no seed is valid any more: run fuzz/make_corpus.py"


def test_packed_seed_has_what_the_native_target_needs() -> None:
    """fuzz/native/fuzz_iatt.cpp stops at the header of a file without it."""
    files = (FUZZ / "corpus" / "iatt").iterdir()
    assert any(DECODER_TEXT in IattFile(path).metadata for path in files), "run fuzz/make_corpus.py"


@pytest.mark.parametrize("name", targets.TARGETS)
def test_mutations(name: str) -> None:
    """A few, so that the targets themselves are known to work; fuzz/run.py does the rest."""
    rng = random.Random(0)
    [seed, *_] = [p.read_bytes() for p in (FUZZ / "corpus" / name).iterdir() if p.stat().st_size]
    refused = 0
    for _ in range(60):
        data = bytearray(seed)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        refused += targets.TARGETS[name](bytes(data)) is not None
    assert refused > 0
