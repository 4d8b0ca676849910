#!/usr/bin/env python3
"""Checks docs/claims.md: every document has a table of claims, and every heading, test and command exists.

usage: tools/claims.py [DIR]    (a checkout)

A row is `| claim | DOCUMENT: HEADING | tests |`. The tests are separated by `<br>`. A test is `FILE: NAME` for a function
of Rust or Python or the title of a test in another language; a command starts with `make`, `cargo`, `moteseal-lab` or the
path of a file. The rows of the section "Not tested" have a reason in place of the tests.

Prints one line for each finding, and exits with 1 if there is any.
"""

import pathlib
import re
import sys

PAGE = "docs/claims.md"
NOT_TESTED = "Not tested"


def documents(root: pathlib.Path) -> list[str]:
    """Returns the documents that need a table."""
    pages = sorted(page.relative_to(root).as_posix() for page in (root / "docs").glob("*.md"))
    return ["README.md", "SECURITY.md"] + [page for page in pages if page != PAGE]


def headings(text: str) -> set[str]:
    """Returns the headings of a Markdown text, without those inside code blocks."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return set(re.findall(r"^#+ (.+?)\s*$", text, re.MULTILINE))


def missing_test(root: pathlib.Path, file: str, name: str) -> str | None:
    """Returns what is wrong with a test, or None."""
    path = root / file
    if not path.is_file():
        return f"{file} does not exist"
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".rs", ".py"):
        keyword = "fn" if path.suffix == ".rs" else "def"
        found = re.search(rf"\b{keyword} {re.escape(name)}\b", text)
    else:
        found = name in text
    return None if found else f"{file} has no test `{name}`"


def missing_command(root: pathlib.Path, command: str) -> str | None:
    """Returns what is wrong with a command, or None."""
    words = command.split()
    if words[0] == "make":
        makefile = (root / "Makefile").read_text(encoding="utf-8")
        found = len(words) > 1 and re.search(rf"^{re.escape(words[1])}:", makefile, re.MULTILINE)
        return None if found else f"the Makefile has no target for `{command}`"
    if words[0] in ("cargo", "moteseal-lab") or (root / words[0]).is_file():
        return None
    return f"`{command}` is neither a test (FILE: NAME) nor a command"


def findings(root: pathlib.Path) -> tuple[list[str], int, int]:
    """Returns one line for each finding, the number of claims, and the number of different tests and commands."""
    found, claims, shown, tabled, section = [], 0, set(), set(), None
    wanted = documents(root)
    known = {document: headings((root / document).read_text(encoding="utf-8")) for document in wanted}
    for number, line in enumerate((root / PAGE).read_text(encoding="utf-8").splitlines(), 1):
        place = f"{PAGE}:{number}"
        if line.startswith("## "):
            section = line[3:].strip()
            if section != NOT_TESTED and section not in known:
                found.append(f"{place}: the document {section} does not exist")
        if not line.startswith("|") or line.startswith(("| claim |", "|---")):
            continue
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) != 3 or not all(cells):
            found.append(f"{place}: a row needs three cells")
            continue
        document, _, heading = cells[1].partition(": ")
        if heading not in known.get(document, ()):
            found.append(f"{place}: {document} has no heading \"{heading}\"")
        if section == NOT_TESTED:
            continue
        if document != section:
            found.append(f"{place}: a claim of {document} is in the table of {section}")
        tabled.add(section)
        claims += 1
        for item in cells[2].split("<br>"):
            match = re.fullmatch(r"`([^`]+)`", item.strip())
            if not match:
                found.append(f"{place}: {item!r} is not a test or command in backticks")
                continue
            shown.add(match[1])
            file, colon, name = match[1].partition(": ")
            problem = missing_test(root, file, name) if colon else missing_command(root, match[1])
            if problem:
                found.append(f"{place}: {problem}")
    found += [f"{PAGE}: {document} has no table of claims" for document in wanted if document not in tabled]
    return found, claims, len(shown)


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    found, claims, shown = findings(root)
    print("\n".join(found) if found else f"claims: {claims} claims, shown by {shown} tests and commands; all exist")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
