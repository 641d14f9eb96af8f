#!/usr/bin/env python3
"""Which instructions stand where, and what a shared library needs of the system.

    python scripts/check_binaries.py --objects build/release --library LIBRARY.so
    python scripts/check_binaries.py --prefix aarch64-linux-gnu- --objects build/aarch64

Objects: an instruction of a CPU feature may stand in the kernel files of that feature alone. No
kernel file may define a weak symbol: that is inline code of a header, of which the linker keeps one
copy, and it could be the one that old CPUs cannot run. Library: its stripped size, its exports, and
the newest versions of glibc and libstdc++ symbols that it asks for.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

MAX_STRIPPED_BYTES = 1_500_000
MAX_VERSIONS = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (14,)}

AVX = ("avx2", "avx512", "avxvnni", "avx512vnni")
# architecture -> pattern of instructions (mnemonic, operands) -> the kernels that may have them
RULES = {
    "x86-64": {
        r"\bzmm": ("avx512", "avx512vnni"),
        r"\bymm": AVX,
        r"^(?!verr|verw|vmcall|vmmcall)v": AVX,  # every VEX and EVEX instruction, on xmm too
        r"^vpdp": ("avxvnni", "avx512vnni"),
    },
    "aarch64": {
        r"^[us]dot\b": ("dotprod", "i8mm"),
        r"^(usdot|sudot|[us]mmla|usmmla|bfmmla|bfdot)\b": ("i8mm",),
        r"^(fmla|fmls|fmul|fadd|fsub|fmax|fmin|fmaxnm|fmaxv|fcmg[et]|fneg|fabs|frint\w|fcvtn?[su])\s.*"
        r"(\.[48]h\b|\bh\d)": ("fp16",),
    },
}


def suffix(object_file: Path) -> str:
    """What a kernel file is named after, "" for files of the baseline."""
    match = re.fullmatch(
        r".*src_(?:avx2|neon)/\w+?_(avx\w+|dotprod|i8mm|fp16|neon)\.cpp\.o", str(object_file)
    )
    return match[1] if match else ""


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def objects_of(folder: Path) -> list[Path]:
    """Of the targets that are installed."""
    targets = ("intattention_core.dir", "intattention_capi.dir")
    return sorted(p for p in folder.rglob("*.o") if any(name in p.parts for name in targets))


def check_objects(folder: Path, prefix: str) -> None:
    objects = objects_of(folder)
    kinds = {suffix(path) for path in objects}
    if not objects or len(kinds) < 4:
        sys.exit(
            f"{folder}: {len(objects)} objects of the kinds {sorted(kinds)}: not a build folder?"
        )
    is_arm = "elf64-littleaarch64" in run(f"{prefix}objdump", "-f", str(objects[0]))
    rules = RULES["aarch64" if is_arm else "x86-64"]
    found = dict.fromkeys(rules, 0)
    problems = []
    for path in objects:
        listing = run(f"{prefix}objdump", "-d", "--no-show-raw-insn", str(path))
        instructions = [line.split("\t", 1)[1] for line in listing.splitlines() if "\t" in line]
        for pattern, suffixes in rules.items():
            hits = [text for text in instructions if re.search(pattern, text)]
            if suffix(path) in suffixes:
                found[pattern] += len(hits)
            elif hits:
                problems.append(f"{path}: {len(hits)} of {pattern!r}, such as {hits[0]!r}")
        if suffix(path):
            symbols = [line.split() for line in run(f"{prefix}nm", str(path)).splitlines()]
            weak = [s[-1] for s in symbols if len(s) == 3 and s[1] in "WVu"]
            if weak:
                problems.append(f"{path}: defines the weak symbols {', '.join(weak[:3])}")
    problems += [f"{pattern!r} occurs nowhere: does the check see anything?"
                 for pattern, count in found.items() if count == 0]  # fmt: skip
    if problems:
        sys.exit("\n".join(problems))
    counts = ", ".join(f"{count} of {pattern!r}" for pattern, count in found.items())
    print(f"{len(objects)} objects; only in their kernels: {counts}")


def check_library(library: Path, prefix: str) -> None:
    with tempfile.NamedTemporaryFile() as stripped:
        run(f"{prefix}strip", "-o", stripped.name, str(library))
        size = Path(stripped.name).stat().st_size
    print(f"{library.name}: {size:,} bytes stripped, limit {MAX_STRIPPED_BYTES:,}")
    if size > MAX_STRIPPED_BYTES:
        sys.exit("too large")
    symbols = run(f"{prefix}nm", "-D", str(library)).splitlines()
    exported = [s.split()[-1].split("@")[0] for s in symbols if re.match(r"[0-9a-f]+ [^U]", s)]
    strangers = [name for name in exported if not name.startswith("ia_")]
    if strangers or not exported:
        sys.exit(f"exported beside ia_*: {strangers}")
    newest: dict[str, tuple[int, ...]] = {}
    for name, version in re.findall(r"@(\w+)_(\d[\d.]*)", "\n".join(symbols)):
        newest[name] = max(newest.get(name, (0,)), tuple(map(int, version.split("."))))
    versions = (f"{name} {'.'.join(map(str, v))}" for name, v in sorted(newest.items()))
    print(f"{len(exported)} exports; needs at most {', '.join(versions)}")
    needed = re.findall(r"NEEDED.*\[(.*)\]", run(f"{prefix}readelf", "-d", str(library)))
    print("needs", ", ".join(needed))
    allowed = r"(libstdc\+\+|libm|libgcc_s|libc|libpthread|ld-linux[\w-]*)\.so\.\d+"
    unknown = [name for name in needed if not re.fullmatch(allowed, name)]
    late = [name for name, version in newest.items() if version > MAX_VERSIONS.get(name, (0,))]
    if unknown or late:
        sys.exit(f"needs other libraries {unknown} or too new versions of {late}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=Path, help="a build folder")
    parser.add_argument("--library", type=Path, help="a shared library")
    parser.add_argument("--prefix", default="", help="of binutils' names")
    arguments = parser.parse_args()
    if arguments.objects:
        check_objects(arguments.objects, arguments.prefix)
    if arguments.library:
        check_library(arguments.library, arguments.prefix)


if __name__ == "__main__":
    main()
