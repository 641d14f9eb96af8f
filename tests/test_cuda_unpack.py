"""Machine code of the CUDA GEMV for Jetson Orin: what unpacking costs."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "count_unpack.py"
LIMIT = 6  # docs/cuda.md


def test_unpacking_8_weights_takes_few_instructions():
    spec = importlib.util.spec_from_file_location("count_unpack", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    count_unpack = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(count_unpack)
    missing = count_unpack.missing_tool()
    if missing:
        pytest.skip(f"{missing} is not on the PATH")
    assert count_unpack.integers_per_8_weights(count_unpack.loop_opcodes("sm_87")) <= LIMIT
