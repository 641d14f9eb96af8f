"""Counts what unpacking int4 weights costs in the machine code of the CUDA GEMV.

    python scripts/count_unpack.py [--arch sm_87]

Compiles the loop of a producer (tests/cuda/unpack_probe.cu: one token, w4g32) and counts, between its first and its
last dp4a, the instructions that move bits or multiply integers, per 8 weights. Needs nvcc, and cuobjdump or nvdisasm.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROBE = ROOT / "tests" / "cuda" / "unpack_probe.cu"
# Not counted: loads, floats, addresses (IADD3, IMAD), branches.
INTEGER = ("IDP", "LOP3", "SHF", "SHL", "SHR", "PRMT", "SGXT", "BFE", "I2I", "IMAD.SHL")
WEIGHTS_PER_DP4A = 4


def missing_tool() -> str | None:
    """What is not there, or None."""
    if shutil.which("nvcc") is None:
        return "nvcc"
    if shutil.which("cuobjdump") is None and shutil.which("nvdisasm") is None:
        return "cuobjdump or nvdisasm"
    return None


def disassemble(arch: str) -> list[str]:
    """Opcodes of the probe for ``arch``, in order."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "probe.cubin"
        compile_ = ["nvcc", "-cubin", f"-arch={arch}", "-std=c++17", "-O3", "-fmad=false"]
        includes = [f"-I{ROOT / 'src_cuda'}", f"-I{ROOT / 'src_core'}"]
        flags = ["--expt-relaxed-constexpr", "-o", str(cubin), str(PROBE)]
        subprocess.run([*compile_, *includes, *flags], check=True, capture_output=True, text=True)
        tool = shutil.which("cuobjdump")
        dump = [tool, "-sass"] if tool else [shutil.which("nvdisasm") or "nvdisasm"]
        text = subprocess.run([*dump, cubin], check=True, capture_output=True, text=True).stdout
    pattern = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9_.]+)")
    return [m[1] for m in map(pattern.search, text.splitlines()) if m]


def integers_per_8_weights(opcodes: list[str]) -> float:
    dots = [i for i, opcode in enumerate(opcodes) if opcode.startswith("IDP")]
    if not dots:
        raise ValueError("no dp4a in the probe's machine code")
    inner = opcodes[dots[0] : dots[-1] + 1]
    # What unpacks the first word stands before its dp4a: as much as two instructions per dp4a.
    before = opcodes[max(0, dots[0] - 4) : dots[0]]
    count = sum(opcode.startswith(INTEGER) for opcode in before + inner)
    return count * 8 / (len(dots) * WEIGHTS_PER_DP4A)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", default="sm_87")
    arch = parser.parse_args().arch
    missing = missing_tool()
    if missing:
        parser.error(f"{missing} is not on the PATH")
    print(f"{arch}: {integers_per_8_weights(disassemble(arch)):.2f} integer instructions per 8 weights")


if __name__ == "__main__":
    main()
