#!/usr/bin/env python3
"""Cycles of the ARM kernels' inner loops, by llvm-mca. A model, not a measurement.

    cmake --preset aarch64 && cmake --build build/aarch64
    python bench/mca/mca.py --object-dir build/aarch64

Disassembles the cross-built objects, takes the innermost loop of each kernel and runs llvm-mca on
it. Neoverse N1 is the core of Cortex-A76; -mcpu=cortex-a76 is a Cortex-A57 in LLVM and must not be
used. llvm-mca ignores the four-instruction decode limit, so the larger of its figure and the number
of instructions / 4 counts. "In a row" is the loop run for one key block of 256 keys, filling and
draining the pipeline. Caches, branches and everything outside the loops are not modelled, except
where the whole-attention estimate says so. Needs llvm-mca-19 and llvm-objdump-19 (apt-get install
llvm-19).
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from loops import Loop, LoopNotFound, find_loop

NOTE = "A model (llvm-mca), not a measurement: no caches, no memory, no code outside the loops."
CPUS = ("neoverse-n1", "apple-m1", "cortex-a55")
I8MM_CPUS = ("neoverse-n2",)  # the others have no SMMLA
DECODE_WIDTH = {"neoverse-n1": 4, "apple-m1": 8, "cortex-a55": 2, "neoverse-n2": 5}
ITERATIONS = 200
KEY_BLOCK = 256  # keys per block of the cache format
FEATURES = "+dotprod,+i8mm,+fullfp16,+rdm"

# MAC per cycle at the issue limit of SDOT. SMMLA's is twice that on neoverse-n2.
SDOT_PEAK = {"neoverse-n1": 32, "apple-m1": 64, "cortex-a55": 16, "neoverse-n2": 32}


@dataclass(frozen=True)
class Kernel:
    label: str
    source: str  # the object is <source>.cpp.o
    markers: tuple[str, ...]
    unit: str
    units_per_marker: int
    cpus: tuple[str, ...] = CPUS
    one_row: bool = False  # the loop of the smallest tile
    longest: bool = False  # of the loops for one tile: that of weights with minima


SHIFTED = "softmax pass 1, e > 0"
PACK = "PV: scan and pack E'"
W4A1 = "w4a8 with minima, m = 1"
KERNELS = (
    Kernel("QK", "gemm_s8s8s32_dotprod", ("sdot",), "MAC", 16),
    Kernel("softmax pass 1", "index_softmax_s32u8_dotprod", ("sqrshrn",), "logit", 4),
    Kernel(SHIFTED, "index_softmax_s32u8_dotprod", ("sqshl",), "logit", 8),
    Kernel("softmax pass 2", "index_softmax_s32u8_dotprod", ("tbl",), "logit", 16),
    Kernel("PV", "gemm_u8s8s32_dotprod", ("sdot",), "MAC", 16),
    Kernel(PACK, "gemm_u8s8s32_dotprod", ("eor",), "logit", 16),
    Kernel("rescale O", "accumulate_s32f32_neon", ("scvtf",), "float", 4),
    Kernel("QK, i8mm", "gemm_s8s8s32_i8mm", ("smmla",), "MAC", 32, I8MM_CPUS),
    Kernel("PV, i8mm", "gemm_u8s8s32_i8mm", ("usmmla",), "MAC", 32, I8MM_CPUS),
    Kernel("w4a8", "gemm_w4a8_dotprod", ("sdot",), "MAC", 16),
    Kernel("w4a8, m = 1", "gemm_w4a8_dotprod", ("sdot",), "MAC", 16, one_row=True),
    Kernel("w4a8 with minima", "gemm_w4a8_dotprod", ("sdot",), "MAC", 16, longest=True),
    Kernel(W4A1, "gemm_w4a8_dotprod", ("sdot",), "MAC", 16, one_row=True, longest=True),
    Kernel("w8a8", "gemm_w8a8_dotprod", ("sdot",), "MAC", 16),
    Kernel("w4a8, i8mm", "gemm_w4a8_i8mm", ("smmla",), "MAC", 32, I8MM_CPUS),
    Kernel(
        "w4a8 with minima, i8mm", "gemm_w4a8_i8mm", ("smmla",), "MAC", 32, I8MM_CPUS, longest=True
    ),
    Kernel("w8a8, i8mm", "gemm_w8a8_i8mm", ("smmla",), "MAC", 32, I8MM_CPUS),
    Kernel("w8a8, m = 1", "gemm_w8a8_dotprod", ("sdot",), "MAC", 16, one_row=True),
)


@dataclass(frozen=True)
class Figure:
    kernel: Kernel
    cpu: str
    instructions: int
    mca_cycles: float  # per iteration, of many
    row_cycles: float  # of the KEY_BLOCK / units iterations of one row of logits; 0 for other units
    units: int

    @property
    def cycles(self) -> float:
        """Per iteration: what llvm-mca says, or the decoder's limit."""
        return max(self.mca_cycles, self.instructions / DECODE_WIDTH[self.cpu])

    @property
    def cycles_per_unit(self) -> float:
        return self.cycles / self.units

    @property
    def row_cycles_per_logit(self) -> float:
        return max(self.row_cycles / KEY_BLOCK, self.cycles_per_unit)

    @property
    def peak_fraction(self) -> float | None:
        if self.kernel.unit != "MAC":
            return None
        return self.units / self.cycles / SDOT_PEAK[self.cpu]


def tool(*names: str) -> str:
    for name in names:
        if shutil.which(name):
            return name
    raise SystemExit(f"mca.py: needs one of {', '.join(names)} (apt-get install llvm-19)")


def disassemble(object_dir: Path, source: str) -> str:
    objects = sorted(object_dir.rglob(f"{source}.cpp.o"))
    if not objects:
        raise LoopNotFound(f"{source}: no {source}.cpp.o under {object_dir}; cross-build it first")
    objdump = tool("llvm-objdump-19", "aarch64-linux-gnu-objdump")
    command = [objdump, "-d", "--no-show-raw-insn"]
    if objdump.startswith("llvm"):
        command.append(f"--mattr={FEATURES}")
    text = subprocess.run([*command, objects[0]], check=True, capture_output=True, text=True).stdout
    if "<unknown>" in text:
        raise SystemExit(
            f"mca.py: {source}: {objdump} does not know an instruction; add to FEATURES"
        )
    return text


def simulate(loop: Loop, cpu: str, iterations: int) -> int:
    """Cycles of so many iterations, with filling and draining the pipeline."""
    command = [tool("llvm-mca-19"), "-mtriple=aarch64-linux-gnu", f"-mcpu={cpu}"]
    command += [f"-mattr={FEATURES}", f"-iterations={iterations}"]
    result = subprocess.run(command, input=loop.assembly(), capture_output=True, text=True)
    found = re.search(r"^Total Cycles:\s+(\d+)", result.stdout, re.MULTILINE)
    if result.returncode or not found:
        raise SystemExit(f"mca.py: llvm-mca failed on {loop.function}:\n{result.stderr}")
    return int(found.group(1))


def figures(object_dir: Path) -> tuple[list[Figure], list[str]]:
    done, missing = [], []
    for kernel in KERNELS:
        try:
            code = disassemble(object_dir, kernel.source)
            loop = find_loop(code, kernel.markers, kernel.source, kernel.one_row, kernel.longest)
        except LoopNotFound as error:
            missing.append(f"{kernel.label}: {error}")
            continue
        marker = next(name for name in kernel.markers if loop.count(name))
        units = loop.count(marker, f"{marker}2") * kernel.units_per_marker
        for cpu in kernel.cpus:
            cycles = simulate(loop, cpu, ITERATIONS) / ITERATIONS
            row = simulate(loop, cpu, KEY_BLOCK // units) if kernel.unit == "logit" else 0
            done.append(Figure(kernel, cpu, len(loop.body), cycles, row, units))
    return done, missing


def attention_estimate(
    by_label: dict[str, Figure], head_dim: int, shifted: bool
) -> dict[str, float]:
    """Cycles per logit (one query row, one key) of a full prefill tile, nothing masked or zero.

    shifted: every row has e > 0 (docs/numerics.md section 3); otherwise none has.

    Beside the inner loops, and pessimistic (nothing overlaps):
    - zeroing and storing each s32 tile, 0.5 and 1 cycle per register of 4
    - both softmax passes fill and drain the pipeline for every row of a block
    - packing E', and the column sums of V as if every chunk held an E' of 128 or more: 4.5 cycles
      per chunk and tile for 32 rows, 0.5 for each 8 rows, where SDOT takes 32 for each 8 rows
    - rescaling O, once per row and block
    """
    tile_edge = 1.5 / 4
    column_sums = (4.5 / 4 + 0.5) / 1024
    qk = by_label["QK"].cycles_per_unit * head_dim + tile_edge
    passes = (SHIFTED if shifted else "softmax pass 1", "softmax pass 2")
    softmax = sum(by_label[label].row_cycles_per_logit for label in passes)
    pv = (by_label["PV"].cycles_per_unit + column_sums + tile_edge / KEY_BLOCK) * head_dim
    pv += by_label[PACK].cycles_per_unit
    rescale = by_label["rescale O"].cycles_per_unit * head_dim / KEY_BLOCK
    total = qk + pv + softmax + rescale
    ideal = 2 * head_dim / SDOT_PEAK[by_label["QK"].cpu]
    return {
        "head_dim": head_dim,
        "shifted": shifted,
        "qk": qk,
        "softmax": softmax,
        "pv": pv,
        "rescale": rescale,
        "total": total,
        "sdot_peak_fraction": ideal / total,
        "softmax_share": softmax / total,
    }


def print_loops(cpu: str, rows: list[Figure]) -> None:
    print(f"\n{cpu}: inner loops (SDOT peak {SDOT_PEAK[cpu]} MAC/cycle)\n")
    print("| loop | instructions | mca | decode | work | per 16 logits | in a row | peak |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        decode = row.instructions / DECODE_WIDTH[cpu]
        per16 = in_row = ""
        if row.kernel.unit == "logit":
            per16 = f"{16 * row.cycles_per_unit:.1f}"
            in_row = f"{16 * row.row_cycles_per_logit:.1f}"
        peak = f"{row.peak_fraction:.0%}" if row.peak_fraction is not None else ""
        print(
            f"| {row.kernel.label} (`{row.kernel.source}`) | {row.instructions} "
            f"| {row.mca_cycles:.1f} | {decode:.1f} | {row.units} {row.kernel.unit} "
            f"| {per16} | {in_row} | {peak} |"
        )


def print_attention(cpu: str, estimates: list[dict[str, float]]) -> None:
    print(f"\n{cpu}: whole attention, cycles per logit (nothing masked, nothing zero)\n")
    print("| d | e | QK | softmax | PV | rescale O | total | of SDOT peak | softmax share |")
    print("|---|---|---|---|---|---|---|---|---|")
    for e in estimates:
        shift = "> 0" if e["shifted"] else "0"
        print(
            f"| {e['head_dim']:.0f} | {shift} "
            f"| {e['qk']:.2f} | {e['softmax']:.2f} | {e['pv']:.2f} "
            f"| {e['rescale']:.2f} | {e['total']:.2f} | {e['sdot_peak_fraction']:.0%} "
            f"| {e['softmax_share']:.0%} |"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--object-dir", type=Path, default=Path("build/aarch64"))
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()

    done, missing = figures(arguments.object_dir)
    report: dict[str, object] = {"note": NOTE, "loops": [], "attention": {}}
    print(NOTE)
    for cpu in CPUS + I8MM_CPUS:
        rows = [figure for figure in done if figure.cpu == cpu]
        by_label = {row.kernel.label: row for row in rows}
        print_loops(cpu, rows)
        needed = {"QK", "PV", PACK, "softmax pass 1", "softmax pass 2", SHIFTED, "rescale O"}
        if needed <= by_label.keys():
            estimates = [
                attention_estimate(by_label, d, shifted)
                for d in (64, 128)
                for shifted in (False, True)
            ]
            print_attention(cpu, estimates)
            report["attention"][cpu] = estimates
        for row in rows:
            report["loops"].append(
                {
                    "loop": row.kernel.label,
                    "kernel": row.kernel.source,
                    "cpu": cpu,
                    "instructions": row.instructions,
                    "mca_cycles": row.mca_cycles,
                    "cycles": row.cycles,
                    "row_cycles": row.row_cycles,
                    "units": row.units,
                    "unit": row.kernel.unit,
                    "sdot_peak_fraction": row.peak_fraction,
                }
            )
    print(f"\n{NOTE}")
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    for line in missing:
        print(f"mca.py: not found: {line}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
