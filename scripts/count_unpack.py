"""Counts what unpacking int4 weights costs in the machine code of the CUDA GEMV.

    python scripts/count_unpack.py [--arch sm_87]

Compiles the loop of a producer (tests/cuda/unpack_probe.cu: one token, w4g32) and counts the loop's
instructions that move bits or multiply integers, per 8 weights. Needs nvcc, and cuobjdump with
nvdisasm.
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
TOOLS = ("nvcc", "cuobjdump", "nvdisasm")
LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9_.]+)([^;]*);")


def missing_tool() -> str | None:
    """What is not there, or None."""
    return next((tool for tool in TOOLS if shutil.which(tool) is None), None)


def loop_opcodes(arch: str) -> list[str]:
    """Opcodes of the probe's loop for ``arch``, in order."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = str(Path(folder) / "probe.cubin")
        flags = ["-std=c++17", "-O3", "-fmad=false", "--expt-relaxed-constexpr"]
        includes = [f"-I{ROOT / 'src_cuda'}", f"-I{ROOT / 'src_core'}"]
        command = ["nvcc", "-cubin", f"-arch={arch}", *flags, *includes, "-o", cubin, str(PROBE)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        dump = ["cuobjdump", "-sass", cubin]
        text = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
    code = [(int(m[1], 16), m[2], m[3]) for m in LINE.finditer(text)]
    loops = []
    for address, opcode, operands in code:
        target = re.search(r"0x([0-9a-f]+)", operands) if opcode.startswith("BRA") else None
        if target and int(target[1], 16) < address:
            first = int(target[1], 16)
            loops.append([name for at, name, _ in code if first <= at <= address])
    with_dots = [loop for loop in loops if any(name.startswith("IDP") for name in loop)]
    if not with_dots:
        raise ValueError(f"no loop with a dp4a in the probe's machine code for {arch}")
    return min(with_dots, key=len)


def integers_per_8_weights(opcodes: list[str]) -> float:
    dots = sum(opcode.startswith("IDP") for opcode in opcodes)
    return 8 * sum(opcode.startswith(INTEGER) for opcode in opcodes) / (dots * WEIGHTS_PER_DP4A)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", default="sm_87")
    arch = parser.parse_args().arch
    missing = missing_tool()
    if missing:
        parser.error(f"{missing} is not on the PATH")
    count = integers_per_8_weights(loop_opcodes(arch))
    print(f"{arch}: {count:.2f} integer instructions per 8 weights")


if __name__ == "__main__":
    main()
