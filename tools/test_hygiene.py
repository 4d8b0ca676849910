#!/usr/bin/env python3
"""Tests of tools/hygiene.py: it reports each kind of finding, and reports no finding in a clean file."""

import pathlib
import subprocess
import tempfile
import unittest

import hygiene


class Hygiene(unittest.TestCase):
    def findings(self, name: str, text: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            subprocess.run(["git", "init", "--quiet", folder], check=True)
            (root / name).write_text(text)
            return hygiene.findings(root)

    def test_reports_each_kind_of_finding_with_its_line(self):
        # The texts are joined at run time, so that this file itself has no finding.
        cases = [
            ("a.md", "see /ro" + "ot/x for it", "a path of one machine"),
            ("a.md", "see /wor" + "k/shared", "a path of one machine"),
            ("a.toml", 'host = "https://pyp' + 'i.org/simple"', "a package registry's host"),
            ("a.lock", 'url = "https://static.crate' + 's.io/x"', "a package registry's host"),
            ("a.pem", "-----BEGIN PRIVATE KE" + "Y-----\nMC4CAQAwBQYDK2VwBCIEIA", "a private key"),
            ("a.rs", "fn f() { to" + "do!() }", "unfinished code"),
            ("a.rs", "// TO" + "DO later", "an unresolved note"),
        ]
        for name, text, what in cases:
            self.assertEqual(self.findings(name, "first\n" + text + "\n"), [f"{name}:2: {what}"], text)

    def test_reports_a_dead_link(self):
        text = "[here](a.md) [there](b.md#part) [far](https://example.org/c)\n"
        self.assertEqual(self.findings("a.md", text), ["a.md:1: a link to b.md, which does not exist"])

    def test_reports_a_long_source_file(self):
        self.assertEqual(len(self.findings("a.rs", "//\n" * 701)), 1)
        self.assertEqual(self.findings("a.rs", "//\n" * 700), [])

    def test_reports_nothing_in_a_clean_file(self):
        text = "use crates.io, docs.rs and -----BEGIN PUBLIC KEY-----; curl localhost:8080/home/; a/work/b; .venv/bin"
        self.assertEqual(self.findings("a.md", text), [])


if __name__ == "__main__":
    unittest.main()
