#!/usr/bin/env python3
"""Tests of tools/engines.sh: it installs the Java, Maven and Go that an engine needs. No package is installed: the folder of
programs has a fake `apt-get`, and a program that the fake installs exists from then on."""

import hashlib
import pathlib
import shutil
import subprocess
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).parent
# The programs of the system that the scripts call.
NEEDED = ["bash", "cat", "chmod", "cp", "dirname", "env", "mkdir", "mktemp", "rm", "sha256sum", "sort"]
# The fake programs: those of the system, and those that a package provides.
SYSTEM = {
    "id": "echo ${FAKE_USER:-0}",
    # Installs nothing before `apt-get update`, as on a new machine.
    "apt-get": """
echo "apt-get $1 ${*: -1}" >>"$FAKE/log"
case $1 in
update) : >"$FAKE/updated" ;;
install) [ -e "$FAKE/updated" ] && cp "$FAKE/packages/${*: -1}"/* "$FAKE/bin" ;;
esac""",
}
PACKAGES = {
    "default-jdk-headless": {"java": "", "javac": ""},
    "maven": {"mvn": 'mkdir -p "$FAKE/.venv/engines/cassandra" && printf jar >"$FAKE/.venv/engines/cassandra/a.jar"'},
    "golang-go": {"go": """
case $1 in
env) echo go9.9 ;;
install) mkdir -p "$GOBIN" && printf '#!/bin/sh\\n' >"$GOBIN/nats-server" ;;
esac"""},
}


class Engines(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        shutil.copytree(TOOLS, self.root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        checksum = hashlib.sha256(b"jar").hexdigest()
        (self.root / "tools/engines/cassandra/checksums").write_text(f"{checksum}  a.jar\n", encoding="utf-8")
        (self.root / "bin").mkdir()
        for name in NEEDED:
            (self.root / "bin" / name).symlink_to(shutil.which(name))
        self.programs(self.root / "bin", SYSTEM)
        for package, programs in PACKAGES.items():
            self.programs(self.root / "packages" / package, programs)

    @staticmethod
    def programs(folder: pathlib.Path, programs: dict[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, body in programs.items():
            path = folder / name
            path.write_text(f"#!{shutil.which('bash')}\n{body}\n", encoding="utf-8")
            path.chmod(0o755)

    def install(self, engine: str, user: int = 0) -> tuple[int, str, list[str]]:
        """Returns the exit code of the installation, its messages, and the packages that were asked for."""
        environment = {"PATH": str(self.root / "bin"), "FAKE": str(self.root), "FAKE_USER": str(user)}
        run = subprocess.run([self.root / "tools/engines.sh", "install", engine], env=environment, capture_output=True, text=True)
        log = self.root / "log"
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        return run.returncode, run.stderr, lines

    def test_java_is_installed_if_the_jars_of_cassandra_are_already_there(self):
        jars = self.root / ".venv/engines/cassandra"
        jars.mkdir(parents=True)
        (jars / "a.jar").write_bytes(b"jar")
        code, error, log = self.install("cassandra")
        self.assertEqual(code, 0, error)
        java = "apt-get install default-jdk-headless"
        self.assertEqual(log, [java, "apt-get update -qq", java])
        self.assertEqual(self.install("cassandra")[2], log, "a second run installs nothing")

    def test_java_and_maven_are_installed_for_cassandra(self):
        code, error, log = self.install("cassandra")
        self.assertEqual(code, 0, error)
        self.assertIn("apt-get install default-jdk-headless", log)
        self.assertIn("apt-get install maven", log)
        self.assertTrue((self.root / ".venv/engines/cassandra/a.jar").exists())

    def test_go_is_installed_after_an_update_of_the_lists(self):
        code, error, log = self.install("nats")
        self.assertEqual(code, 0, error)
        self.assertEqual(log, ["apt-get install golang-go", "apt-get update -qq", "apt-get install golang-go"])
        self.assertTrue((self.root / ".venv/engines/bin/nats-server").exists())

    def test_a_user_who_is_not_root_gets_the_name_of_the_package(self):
        for engine, package in [("cassandra", "default-jdk-headless"), ("nats", "golang-go")]:
            code, error, log = self.install(engine, user=1000)
            self.assertEqual((code, log), (1, []))
            self.assertIn(f"is missing; install it (Debian: apt-get install {package})", error)


if __name__ == "__main__":
    unittest.main()
