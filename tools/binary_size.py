#!/usr/bin/env python3
"""Prints how many bytes of a program each crate takes, as a Markdown table.

usage: tools/binary_size.py [PROGRAM]     default: target/release/moteseal

A function counts towards the crate in its name. An instance of a generic function of the standard
library counts towards the first crate among its types. Needs nm and strip (binutils), and a program
with symbols.
"""

import collections
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROWS = 16
STANDARD = {"core", "alloc", "std", "hashbrown", "compiler_builtins"}


def packages():
    """Returns the crates of the lock file, with the names that they have in code."""
    with open(os.path.join(ROOT, "Cargo.lock"), encoding="utf-8") as lock:
        names = re.findall(r'^name = "(.*)"$', lock.read(), re.MULTILINE)
    return {name.replace("-", "_") for name in names} | STANDARD


def owner(name, known):
    """Returns the crate towards which a symbol counts."""
    found = [crate for crate in re.findall(r"\b([a-z_][a-z0-9_]*)(?:\[[0-9a-f]+\])?::", name) if crate in known]
    others = [crate for crate in found if crate not in STANDARD]
    if others:
        return others[0]
    return "the standard library" if found else "C and assembly (AWS-LC), and symbols without a crate"


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "target/release/moteseal")
    if not os.path.isfile(program):
        sys.exit(f"binary_size: {program} does not exist; build it with cargo build --release -p moteseal")
    symbols = subprocess.run(
        ["nm", "--print-size", "--demangle", program], capture_output=True, text=True, check=True
    ).stdout
    known, sizes = packages(), collections.Counter()
    for line in symbols.splitlines():
        parts = re.match(r"\S+ (\S+) ([A-Za-z]) (.*)", line)
        if parts and parts.group(2) not in "bB":
            sizes[owner(parts.group(3), known)] += int(parts.group(1), 16)
    with tempfile.TemporaryDirectory() as folder:
        stripped = os.path.join(folder, "stripped")
        subprocess.run(["strip", "-o", stripped, program], check=True)
        total = os.path.getsize(stripped)
    rows = sizes.most_common(ROWS)
    rest = sum(sizes.values()) - sum(size for _, size in rows)
    tables = total - sum(sizes.values())
    print("| part | MB |\n|---|--:|")
    for name, size in rows:
        label = f"`{name.replace('_', '-')}`" if name in known else name
        print(f"| {label} | {size / 1e6:.2f} |")
    print(f"| {len(sizes) - len(rows)} other crates | {rest / 1e6:.2f} |")
    print(f"| unwinding tables, relocations, strings | {tables / 1e6:.2f} |")
    print(f"| **the stripped program** | **{total / 1e6:.2f}** |")


if __name__ == "__main__":
    main()
