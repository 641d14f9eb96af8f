#!/usr/bin/env python3
"""Cycles of whole calls of the ARM index softmax, by llvm-mca. A model, not a measurement.

    cmake --preset aarch64 && cmake --build build/aarch64
    python bench/mca/row.py --object-dir build/aarch64

mca.py runs loops apart from each other, each filling and draining the pipeline, and leaves out the
code around them. Here qemu runs one call on a row of 256 visible keys and records what it executes;
llvm-mca gets those instructions, once and back to back, where the end of a row overlaps the start
of the next. llvm-mca knows no dependence through memory and no mispredicted branch; the 16-bit
values between the passes were stored long before they are read.
Needs g++-aarch64-linux-gnu, qemu-user-static and llvm-19.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from loops import Instruction, parse
from mca import FEATURES, KEY_BLOCK, NOTE, tool

SOURCE = Path(__file__).parents[2] / "src_core"
KERNEL = "index_softmax_s32u8_dotprod"
CPU = "neoverse-n1"
REPEATS = 20

DRIVER = """
#include <cstdlib>
#include "kernel_table.h"
namespace intattention {
void KERNEL(size_t, const int32_t*, const IndexSoftmaxKeys*, IndexSoftmaxRow*, int16_t*, uint8_t*);
}
using namespace intattention;
int32_t logits[256];
int16_t key_ratio[256], log_scale[256], scratch[256];
uint8_t weight_low[256], weight_high[256], probs[256];
int main(int, char** arguments) {
  for (int i = 0; i < 256; ++i) {
    logits[i] = i * 37 % 1000 * 20;
    key_ratio[i] = 32000;
    weight_high[i] = 100;
  }
  const IndexSoftmaxKeys keys{key_ratio, log_scale, weight_low, weight_high};
  IndexSoftmaxRow row{0, 256, 3, std::atoi(arguments[1]), 20000, kNoMax, 0};
  KERNEL(256, logits, &keys, &row, scratch, probs);
  return row.sum == 0;
}
""".replace("KERNEL", KERNEL)


def executed(program: Path, lshift: int) -> list[Instruction]:
    """The kernel's instructions in the order of execution."""
    text = subprocess.run(
        [tool("llvm-objdump-19"), "-d", "--no-show-raw-insn", f"--mattr={FEATURES}", program],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    kernel = {
        instruction.address: instruction
        for symbol, code in parse(text).items()
        if KERNEL in symbol or ("index_softmax" in symbol and "Isa" in symbol)
        for instruction in code
    }
    log = program.with_suffix(".log")
    qemu = [tool("qemu-aarch64-static"), "-cpu", "cortex-a76", "-singlestep", "-d", "exec,nochain"]
    subprocess.run([*qemu, "-D", log, program, str(lshift)], check=True)
    addresses = re.findall(r"^Trace \d+: \S+ \[[0-9a-f]+/([0-9a-f]+)/", log.read_text(), re.M)
    return [kernel[int(a, 16)] for a in addresses if int(a, 16) in kernel]


def assembly(instructions: list[Instruction]) -> str:
    lines = ["row:"]
    for instruction in instructions:
        name, operands = instruction.mnemonic, instruction.operands
        if name == "ret" or instruction.target is not None:
            name, operands = "b", "row"
        elif name in ("adr", "adrp"):
            name, operands = "movz", operands.split(",")[0] + ", #1"
        lines.append(f"  {name} {operands}".rstrip())
    return "\n".join(lines) + "\n"


def cycles(text: str, iterations: int) -> int:
    command = [tool("llvm-mca-19"), "-mtriple=aarch64-linux-gnu", f"-mcpu={CPU}"]
    command += [f"-mattr={FEATURES}", f"-iterations={iterations}"]
    result = subprocess.run(command, input=text, capture_output=True, text=True)
    found = re.search(r"^Total Cycles:\s+(\d+)", result.stdout, re.MULTILINE)
    if result.returncode or not found:
        raise SystemExit(f"row.py: llvm-mca failed:\n{result.stderr}")
    return int(found.group(1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--object-dir", type=Path, default=Path("build/aarch64"))
    library = parser.parse_args().object_dir / "libintattention_core.a"

    print(f"{NOTE}\n\n| {CPU} | instructions | one call | back to back | per logit |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "row"
        program.with_suffix(".cpp").write_text(DRIVER)
        compiler = [tool("aarch64-linux-gnu-g++"), "-O1", "-static", f"-I{SOURCE}"]
        subprocess.run([*compiler, program.with_suffix(".cpp"), library, "-o", program], check=True)
        for lshift in (0, 1):
            trace = executed(program, lshift)
            text = assembly(trace)
            steady = (cycles(text, REPEATS + 4) - cycles(text, 4)) / REPEATS
            print(
                f"| e = {lshift} | {len(trace)} | {cycles(text, 1)} | {steady:.0f} "
                f"| {steady / KEY_BLOCK:.2f} |"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
