"""bench/mca: the loop finder on stored disassembly; the whole tool where LLVM 19 is installed."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

MCA = Path(__file__).parents[1] / "bench" / "mca"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, MCA / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


loops = load("loops")
load("mca")  # row imports it
row = load("row")

# llvm-objdump -d --no-show-raw-insn: an outer loop (4 to 28) around a tile with 2 SDOT, a loop with
# one, and a block behind the return that jumps back: its branch encloses both.
LLVM = """
gemm.cpp.o:\tfile format elf64-littleaarch64

Disassembly of section .text:

0000000000000000 <_Z4gemmv>:
       0:      \tmovi\tv0.2d, #0000000000000000
       4:      \tcbz\tx1, 0x2c <_Z4gemmv+0x2c>
       8:      \tldr\tq1, [x0], #16
       c:      \tldp\tq2, q3, [x2], #32
      10:      \tsdot\tv0.4s, v2.16b, v1.4b[0]
      14:      \tsdot\tv4.4s, v3.16b, v1.4b[0]
      18:      \tsubs\tx3, x3, #16
      1c:      \tb.ne\t0x8 <_Z4gemmv+0x8>
      20:      \tadd\tx5, x5, #1
      24:      \tcmp\tx5, x6
      28:      \tb.lo\t0x4 <_Z4gemmv+0x4>
      2c:      \tldr\tq1, [x0], #16
      30:      \tsdot\tv0.4s, v2.16b, v1.4b[0]
      34:      \tcbnz\tx3, 0x2c <_Z4gemmv+0x2c>
      38:      \tret
      3c:      \tmov\tx5, x7
      40:      \tb\t0x4 <_Z4gemmv+0x4>
"""

# binutils: other spacing, targets without 0x, comments behind //.
BINUTILS = """
0000000000000040 <softmax(int)>:
  40:\tldr\tq0, [x1, x2]
  44:\tsqrshrn\tv0.4h, v0.4s, #3
  48:\tsqrshrn2\tv0.8h, v1.4s, #3
  4c:\tadd\tx2, x2, #0x10
  50:\tb.hi\t40 <softmax(int)>  // b.pmore
  54:\tret
"""


def test_parse_drops_symbols_and_comments() -> None:
    code = loops.parse(BINUTILS)["softmax(int)"]
    assert [instruction.mnemonic for instruction in code][-2:] == ["b.hi", "ret"]
    assert code[4].operands == "40"
    assert code[4].target == 0x40
    assert code[0].target is None


def test_innermost_loops_leave_out_what_encloses_them() -> None:
    found = loops.innermost_loops(LLVM)
    assert [(loop.body[0].address, loop.body[-1].address) for loop in found] == [
        (0x08, 0x1C),
        (0x2C, 0x34),
    ]


def test_the_main_tile_is_the_loop_with_most_markers() -> None:
    loop = loops.find_loop(LLVM, ("sdot",), "gemm")
    assert loop.count("sdot") == 2
    assert loop.straight


def test_the_single_row_tile_is_the_loop_with_fewest_markers() -> None:
    assert loops.find_loop(LLVM, ("sdot",), "gemm", fewest=True).count("sdot") == 1


def test_a_straight_loop_is_preferred_to_a_region_closed_from_behind() -> None:
    text = """
0000000000000000 <f>:
   0: tbl v0.16b, { v1.16b, v2.16b }, v3.16b
   4: cbz x1, 0xc
   8: tbl v0.16b, { v1.16b, v2.16b }, v3.16b
   c: b 0x0
  10: tbl v0.16b, { v1.16b, v2.16b }, v3.16b
  14: b.ne 0x10
"""
    assert loops.find_loop(text, ("tbl",), "f").body[0].address == 0x10


def test_the_first_marker_found_wins() -> None:
    loop = loops.find_loop(BINUTILS, ("sdot", "sqrshrn"), "softmax")
    assert loop.count("sqrshrn", "sqrshrn2") == 2


def test_assembly_branches_to_its_own_label() -> None:
    text = loops.find_loop(BINUTILS, ("sqrshrn",), "softmax").assembly()
    assert text.splitlines()[0] == "loop:"
    assert text.splitlines()[-1] == "  b.hi loop"
    assert "<" not in text
    assert "//" not in text


@pytest.mark.parametrize("text", [LLVM, "", "0000000000000000 <f>:\n   0: ret\n"])
def test_a_missing_loop_is_an_error_that_names_it(text: str) -> None:
    with pytest.raises(loops.LoopNotFound, match=r"gemm_x: .* holds smmla or usmmla"):
        loops.find_loop(text, ("smmla", "usmmla"), "gemm_x")


def test_jumps_and_returns_of_a_recorded_call_lead_nowhere_else() -> None:
    text = """
0000000000000000 <f>:
   0: str q1, [sp, #16]
   4: b.ne 0x0
   8: ldr q2, [sp, #16]
   c: ret
"""
    lines = row.assembly(loops.parse(text)["f"]).split("\n")
    assert [line.strip() for line in lines[1:-1]] == [
        "str q1, [sp, #16]",
        "b row",
        "ldr q2, [sp, #16]",
        "b row",
    ]


def test_objects_that_were_not_built_are_named(tmp_path: Path) -> None:
    result = run_tool(tmp_path)
    assert result.returncode == 1
    assert "no gemm_s8s8s32_dotprod.cpp.o" in result.stderr
    assert result.stdout.startswith("A model (llvm-mca), not a measurement")


@pytest.mark.skipif(
    not (shutil.which("llvm-mca-19") and shutil.which("aarch64-linux-gnu-as")),
    reason="needs llvm-mca-19 and aarch64-linux-gnu-as",
)
def test_the_sdot_limit_of_neoverse_n1(tmp_path: Path) -> None:
    """8 independent SDOT and 2 loads: 4 cycles for 128 MAC, the issue limit."""
    dots = "".join(f"  sdot v{i}.4s, v30.16b, v31.4b[0]\n" for i in range(8))
    source = tmp_path / "gemm_s8s8s32_dotprod.s"
    source.write_text(
        ".arch armv8.2-a+dotprod\nf:\n1:\n  ldp q30, q31, [x0], #32\n"
        f"{dots}  subs x1, x1, #1\n  b.ne 1b\n  ret\n"
    )
    assembler = ["aarch64-linux-gnu-as", source, "-o", source.with_suffix(".cpp.o")]
    subprocess.run(assembler, check=True)
    result = run_tool(tmp_path)
    row = next(line for line in result.stdout.splitlines() if line.startswith("| QK "))
    assert row.split("|")[5].strip() == "128 MAC"
    assert float(row.split("|")[3]) == pytest.approx(4.0, abs=0.2)


def run_tool(object_dir: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(MCA / "mca.py"), "--object-dir", str(object_dir)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
