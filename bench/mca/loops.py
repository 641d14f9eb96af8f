"""Inner loops of a disassembled AArch64 object: found by their backward branches."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

# "  1c: sdot v0.4s, ..." (llvm-objdump), "  1c:\tsdot\tv0.4s, ..." (binutils); no raw bytes.
_INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+([a-z][a-z0-9.]*)\s*(.*)$")
_SYMBOL = re.compile(r"^[0-9a-f]+ <(.+)>:$")
_BRANCH = re.compile(r"^(b|b\.[a-z]+|cbn?z|tbn?z)$")
_TARGET = re.compile(r"(?:0x)?([0-9a-f]+)$")


class LoopNotFound(Exception):
    """No loop of the object holds what was looked for."""


@dataclass(frozen=True)
class Instruction:
    address: int
    mnemonic: str
    operands: str

    @property
    def target(self) -> int | None:
        """Address a direct branch goes to; None for everything else."""
        if not _BRANCH.match(self.mnemonic):
            return None
        found = _TARGET.search(self.operands)
        return int(found.group(1), 16) if found else None


@dataclass(frozen=True)
class Loop:
    function: str
    body: tuple[Instruction, ...]

    @property
    def straight(self) -> bool:
        """No branch but the one that closes it."""
        return not any(_BRANCH.match(instruction.mnemonic) for instruction in self.body[:-1])

    def count(self, *mnemonics: str) -> int:
        return sum(instruction.mnemonic in mnemonics for instruction in self.body)

    def assembly(self) -> str:
        """Text for an assembler: branches go to the label of the loop's first instruction."""
        lines = ["loop:"]
        for instruction in self.body:
            operands = instruction.operands
            if instruction.target is not None:
                operands = _TARGET.sub("loop", operands)
            lines.append(f"  {instruction.mnemonic} {operands}".rstrip())
        return "\n".join(lines) + "\n"


def parse(disassembly: str) -> dict[str, list[Instruction]]:
    """Instructions by symbol, without comments and <symbol+offset> notes."""
    functions: dict[str, list[Instruction]] = {}
    current: list[Instruction] = []
    for line in disassembly.splitlines():
        symbol = _SYMBOL.match(line)
        if symbol:
            current = functions.setdefault(symbol.group(1), [])
            continue
        line = re.sub(r"\s*(<[^>]*>|//.*|;.*)\s*$", "", line.rstrip())
        line = re.sub(r"\s*<[^>]*>\s*$", "", line)
        found = _INSTRUCTION.match(line)
        if found:
            address, mnemonic, operands = found.groups()
            current.append(Instruction(int(address, 16), mnemonic, " ".join(operands.split())))
    return functions


def innermost_loops(disassembly: str) -> list[Loop]:
    """Backward-branch regions that hold no other such region."""
    loops = []
    for function, code in parse(disassembly).items():
        index = {instruction.address: i for i, instruction in enumerate(code)}
        regions = set()
        for end, instruction in enumerate(code):
            target = instruction.target
            if target is not None and target <= instruction.address and target in index:
                regions.add((index[target], end))
        for first, last in sorted(regions):
            inside = [r for r in regions if r != (first, last) and first <= r[0] and r[1] <= last]
            if not inside:
                loops.append(Loop(function, tuple(code[first : last + 1])))
    return loops


def find_loop(
    disassembly: str,
    markers: tuple[str, ...],
    what: str,
    fewest: bool = False,
    longest: bool = False,
) -> Loop:
    """The innermost loop with the most instructions of the first marker that any loop has.

    A kernel has one loop per tile height and the main tile has the most multiplications, the tile
    of a single row the ``fewest``; among equals the shortest is taken, or the ``longest``.
    Straight-line loops go first: a block that the compiler put behind the function and that jumps
    back looks like a loop around everything in between.
    """
    every = innermost_loops(disassembly)
    for marker, loops in itertools.product(markers, ([x for x in every if x.straight], every)):
        holding = [loop for loop in loops if loop.count(marker)]
        if holding:
            few, long = -1 if fewest else 1, 1 if longest else -1
            return max(holding, key=lambda x: (few * x.count(marker), long * len(x.body)))
    raise LoopNotFound(
        f"{what}: none of its {len(every)} innermost loops holds {' or '.join(markers)}; "
        "was the object built for another ISA, or the loop unrolled away?"
    )
