"""Fuzzes one parser with atheris: python fuzz/run.py TARGET [libFuzzer options].

    nice python fuzz/run.py gguf -max_total_time=600

New inputs go to fuzz/found/TARGET, which git ignores; fuzz/corpus/TARGET is read. A crash is
written as ./crash-*; put it into the corpus together with the fix.
"""

import gc
import sys
from pathlib import Path
from types import FunctionType

import atheris
from targets import TARGETS

HERE = Path(__file__).parent


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"{__doc__}\nTARGET is one of {', '.join(TARGETS)}")
    name, target = sys.argv[1], TARGETS[sys.argv[1]]
    target(b"")  # what is imported late is imported now
    # atheris instruments imports too, but not those of an editable install
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and _ours(function):
            atheris.instrument_func(function)
    found, corpus = HERE / "found" / name, HERE / "corpus" / name
    found.mkdir(parents=True, exist_ok=True)
    arguments = [sys.argv[0], *sys.argv[2:], str(found), str(corpus)]

    def once(data: bytes) -> None:
        target(data)

    atheris.Setup(arguments, once)
    atheris.Fuzz()


def _ours(function: FunctionType) -> bool:
    return (function.__module__ or "").startswith("intattention")


if __name__ == "__main__":
    main()
