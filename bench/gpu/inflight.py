#!/usr/bin/env python3
"""Accesses to a sum of tensor cores before the wait for its products, in the machine
code of kernels for sm_90a; no GPU is used.

    bench/gpu/inflight.py ARTIFACT

ptxas takes a sum for complete at the first wait after its last product, however many
products that wait leaves in flight, and may move reads of the sum up to there. Such a
kernel gives other results on a GPU, and right ones on the emulated GPU. The exit code
is 1 if there is one. Needs nvdisasm: TESSERA_NVDISASM, or on the PATH.
"""
import argparse
import pathlib
import re
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
INSTRUCTION = re.compile(r"/\*([0-9a-f]+)\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)(.*?);")
LABEL = re.compile(r"\s*(\.L_x_\d+):")
TARGET = re.compile(r"\(?`?\(?(\.L_x_\d+)")
REGISTER = re.compile(r"(?<![U\w])R(\d+)(\.64|\.128)?")
OPEN = "open"  # a group of products that is not committed yet


class Instruction:
    def __init__(self, address, predicate, op, operands):
        self.address, self.op, self.operands = address, op, operands.strip()
        # BRA.DIV and BRA.CONV fall through where threads agree.
        self.isConditional = bool(predicate) or bool(re.search(r"\bU?P\d", operands)) or \
            op.endswith((".DIV", ".CONV"))

    def registers(self):
        """All that it reads or writes; of wide accesses to memory all words."""
        wide = 4 if ".128" in self.op or self.op.endswith(".4") else 2 if ".64" in self.op or self.op.endswith(".2") else 1
        for number, width in REGISTER.findall(self.operands):
            count = {"": wide if self.op.startswith(("ST", "LD")) else 1, ".64": 2, ".128": 4}[width]
            yield from range(int(number), int(number) + count)


def parse(text):
    """(instructions, {label: number of the instruction})"""
    instructions, labels = [], {}
    for line in text.splitlines():
        if label := LABEL.match(line):
            labels[label[1]] = len(instructions)
        elif found := INSTRUCTION.search(line):
            instructions.append(Instruction(*found.groups()))
    return instructions, labels


def after_product(groups, product):
    """The groups in flight after an HGMMA. The accumulators are consecutive."""
    columns = re.search(r"64x(\d+)x", product.op)
    first = re.match(r"R(\d+)", product.operands)
    added = set(range(int(first[1]), int(first[1]) + int(columns[1]) // 2)) if first else set()
    *others, last = groups if groups and OPEN in groups[-1] else (*groups, frozenset({OPEN}))
    last = last | added
    return (*others, last - {OPEN} if "gsb0" in product.operands else last)


def after_wait(groups, wait):
    pending = int(re.search(r"gsb0, 0x([0-9a-f]+)", wait.operands)[1], 16)
    return groups[len(groups) - pending:] if pending < len(groups) else groups


def early_accesses(text):
    """Instructions that access an accumulator in flight, on any path; what is called is not
    followed."""
    instructions, labels = parse(text)
    early, seen, work = {}, set(), [(0, ())]
    while work:
        at, groups = work.pop()
        while at < len(instructions) and (at, groups) not in seen:
            seen.add((at, groups))
            here = instructions[at]
            if here.op.startswith("HGMMA"):
                left = re.match(r"\w+, R(\d+)", here.operands)  # fragments of A in registers
                if left and any(int(left[1]) + i in group for i in range(4) for group in groups):
                    early[here.address] = f"{here.op} {here.operands}"
                groups = after_product(groups, here)
            elif here.op.startswith("WARPGROUP.DEPBAR"):
                groups = after_wait(groups, here)
            elif groups and any(r in group for r in here.registers() for group in groups):
                early[here.address] = f"{here.op} {here.operands}"
            if here.op == "EXIT" and not here.isConditional:
                break
            if here.op.startswith("BRA"):
                if target := TARGET.search(here.operands):
                    work.append((labels.get(target[1], len(instructions)), groups))
                if not here.isConditional:
                    break
            at += 1
    return early


def inspect(tessera, artifact, *arguments):
    done = subprocess.run([tessera, "inspect", artifact, *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)  # it has said why
    return done.stdout


def kernels_of(tessera, artifact):
    """{kernel: a program that calls it} of those whose products overlap."""
    programs = re.findall(r"^  (\w+): arena", inspect(tessera, artifact), re.MULTILINE)
    device = ("--device", "cuda:sm_90a")
    found = {}
    for program in dict.fromkeys(programs):
        table = inspect(tessera, artifact, "--kernels", "--program", program, *device)
        for name in re.findall(r"^ *(?:\d+|or) .*?  (\w+): ", table, re.MULTILINE):
            source = ("" if name in found else
                      inspect(tessera, artifact, f"--show={name}", "--program", program, *device))
            if "multiplyAsync" in source:
                found[name] = program
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("artifact", type=pathlib.Path, metavar="ARTIFACT")
    parser.add_argument("--bin", type=pathlib.Path, default=SOURCE / "build/bin")
    arguments = parser.parse_args()
    tessera = (arguments.bin / "tessera").resolve()
    kernels, wrong = kernels_of(tessera, arguments.artifact), 0
    for name, program in kernels.items():
        early = early_accesses(inspect(tessera, arguments.artifact, f"--show={name}", "--sass", "--program", program,
                                       "--device", "cuda:sm_90a"))
        for address, instruction in early.items():
            print(f"{name}: {address}: {instruction}: accesses a sum before the wait for it")
        wrong += bool(early)
    print(f"inflight: {wrong} of {len(kernels)} kernels access a sum in flight")
    if wrong or not kernels:
        sys.exit(1)


if __name__ == "__main__":
    main()
