#!/usr/bin/env python3
"""Finds content that must not be in the repository's files: paths of one machine, hosts of package registries,
secrets, unfinished code, source files that are too long, and dead links between pages.

usage: tools/hygiene.py [DIR]    (a git work tree; reads the files that are tracked or not ignored)

Prints one line for each finding, `file:line: what`, and exits with 1 if there is any.
"""

import pathlib
import re
import subprocess
import sys

# Brackets around a letter prevent a pattern from matching its own text in this file.
ANYWHERE = [
    ("a path of one machine", r"(?<![\w.])/(?:ro[o]t|hom[e]/\w+|Use[r]s/\w+|wor[k]|op[t]/wheels)/\w|/tm[p]/(?:wt|land|brief)\b"),
    ("a package registry's host", r"(?:index|static)\.crate[s]\.io|pyp[i]\.org|files\.pythonhoste[d]\.org|registry\.npmj[s]\.org"
     r"|proxy\.golan[g]\.org|repo1?\.mave[n]\.|deb\.debia[n]\.org|static\.rust-lan[g]\.org"),
    ("a private key", r"-----BEGI[N] (?:[A-Z]+ )*PRIVATE KE[Y]-----\s*[A-Za-z0-9+/]{16}"),
    ("a token", r"gh[pousr]_[A-Za-z0-9]{36}|github_pa[t]_\w{22}|AKI[A][0-9A-Z]{16}|xox[baprs]-\d{8}"),
]
IN_RUST = [
    ("unfinished code", r"\b(?:todo|unimplemented)!\s*\("),
    ("an unresolved note", r"\b(?:FIXM[E]|XX[X]|TOD[O])\b"),
]
LONGEST_RUST_FILE = 700


def files(root: pathlib.Path) -> list[pathlib.Path]:
    """Returns the tracked files, and the untracked files that git does not ignore."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True).stdout.split(b"\0")
    return sorted({root / name.decode() for name in names if name and (root / name.decode()).is_file()})


def findings(root: pathlib.Path) -> list[str]:
    """Returns one line for each finding."""
    found = []
    for path in files(root):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        rust = path.suffix == ".rs"
        for what, pattern in ANYWHERE + (IN_RUST if rust else []):
            for match in re.finditer(pattern, text):
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{path.relative_to(root)}:{line}: {what}")
        if path.suffix == ".md":
            # Only links inside the repository; links to other hosts are not checked.
            for match in re.finditer(r"\]\((?!\w+:)([^)\s#]+)[^)]*\)", text):
                if not (path.parent / match.group(1)).exists():
                    line = text.count("\n", 0, match.start()) + 1
                    found.append(f"{path.relative_to(root)}:{line}: a link to {match.group(1)}, which does not exist")
        lines = text.count("\n")
        if rust and lines > LONGEST_RUST_FILE:
            found.append(f"{path.relative_to(root)}:{lines}: longer than {LONGEST_RUST_FILE} lines; split it by concept")
    return found


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    found = findings(root)
    print("\n".join(found) if found else f"hygiene: {len(files(root))} files, no findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
