#!/usr/bin/env python3
"""Tests of tools/manifests.py, tools/small_yaml.py and docs/scale/certificates.sh: a change that breaks a manifest is found, and
the manifests have no finding."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import manifests
import small_yaml

ROOT = pathlib.Path(__file__).parent.parent
READ = [manifests.FOLDER, *(f"{manifests.CLI}/{file}" for file, _ in manifests.COMMANDS.values()),
        *(f"{manifests.CLI}/{file}" for file in manifests.FLATTENED),
        manifests.PAGE, "tools/engines/nats.sh", "tools/engines/cassandra/pom.xml", "Cargo.toml", "rust-toolchain.toml"]


class Manifests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        for path in READ:
            (cls.root / path).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (ROOT / path).is_dir() else shutil.copy
            copy(ROOT / path, cls.root / path)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def findings(self, file: str = "compose.yaml", old: str = "", new: str = "") -> list[str]:
        """Returns the findings after the first `old` in a file of the folder was replaced by `new`."""
        path = self.root / manifests.FOLDER / file
        text = path.read_text(encoding="utf-8")
        self.assertIn(old, text)
        path.write_text(text.replace(old, new, 1) if old else text, encoding="utf-8")
        try:
            return manifests.findings(self.root)[0]
        finally:
            path.write_text(text, encoding="utf-8")

    def test_the_manifests_have_no_findings(self):
        self.assertEqual(self.findings(), [])

    def test_reports_each_kind_of_finding(self):
        cases = [
            ("compose.yaml", "--stream-replicas=3", "--replica=3", "no option --replica"),
            ("compose.yaml", "--stream-replicas=3", "--stream-replicas", "needs a value"),
            ("compose.yaml", "image: cassandra:5.0.9", "image: cassandra:5.0", "is not pinned"),
            ("compose.yaml", "image: nats:2.15.3-alpine", "image: nats:2.14.0-alpine", "is not version"),
            ("compose.yaml", "127.0.0.1:8080/readyz", "127.0.0.1:8080/ready", "does not read"),
            ("compose.yaml", "127.0.0.1:8080/healthz", "127.0.0.1:8081/healthz", "does not read"),
            ("compose.yaml", "source: op.pub.pem", "source: other.crt", "other.crt is used but not declared"),
            ("compose.yaml", "ca.crt: { file: config/ca.crt }", "ca.crt: { environment: EDGE }", "is not a file"),
            ("compose.yaml", "--tokens=/run/live/tokens", "--tokens=/run/secrets/tokens", "/run/secrets/tokens, which is not in a mounted"),
            ("compose.yaml", "./secrets/worker:/run/live:ro", "./secrets/worker:/run/live", "is not mounted read-only"),
            ("compose.yaml", '"./secrets/worker:/run/live:ro"', '"live:/run/live"', "the volume live is not declared"),
            ("compose.yaml", "MOTESEAL_CASSANDRA_PASSWORD_FILE: /run", "MOTESEAL_CASSANDRA_PASSWORD: /run", "has a secret"),
            ("compose.yaml", "tls://nats-0.nats:4222", "tls://intake:pw@nats-0.nats:4222", "a password in a URL"),
            ("compose.yaml", "--store=cassandra://", "--store=cassandra://moteseal_worker@", "a renewed user has another name"),
            ("compose.yaml", "MOTESEAL_CASSANDRA_USER_FILE: /run/live", "MOTESEAL_CASSANDRA_USER_FILE: /etc", "is not in a mounted folder"),
            ("compose.yaml", "depends_on: { cassandra-0:", "depends_on: { cassandra-9:", "cassandra-9, which does not exist"),
            ("compose.yaml", "name: moteseal", "name: 'moteseal'", "line "),
            ("kubernetes.yaml", "--role=worker", "--roles=worker", "no option --roles"),
            ("kubernetes.yaml", "path: /readyz, port: http }", "path: /ready, port: http }", "does not read"),
            ("kubernetes.yaml", "path: /readyz, port: http }", "path: /readyz, port: https }", "port https, which is not declared"),
            ("kubernetes.yaml", "path: /healthz, port: http, scheme: HTTPS", "path: /healthz, port: http", "by HTTPS"),
            ("kubernetes.yaml", "values: [intake, worker, serve, stream-init]", "values: [intakes]", "label app: intakes"),
            ("kubernetes.yaml", "- { name: state, mountPath", "- { name: states, mountPath", "state, states are not both"),
            ("kubernetes.yaml", "name: access, mountPath: /etc/moteseal/access", "name: access, mountPath: /etc/moteseal/access, subPath: a",
             "--tokens names /etc/moteseal/access/tokens, which is not in a mounted folder"),
            ("kubernetes.yaml", "kind: Namespace", "kind: Secret", "made by the operator"),
            ("kubernetes.yaml", "name: MOTESEAL_CASSANDRA_PASSWORD_FILE", "name: MOTESEAL_CASSANDRA_PASSWORD", "has a secret"),
            ("kubernetes.yaml", "secretName: stream-admin", "secretName: stream-root", "makes the Secret stream-root"),
            ("kubernetes.yaml", "configMap: { name: group }", "configMap: { name: groups }", "makes the ConfigMap groups"),
            ("kubernetes.yaml", "value: /etc/moteseal/table/user }", "value: /etc/moteseal/table/name }", "puts name into the Secret table-admin"),
            ("kubernetes.yaml", "subPath: roster.cbor", "subPath: roster.json", "puts roster.json into the ConfigMap group"),
            ("../scale.md", "create secret generic edge-tls", "create secret generic edge", "makes the Secret edge-tls"),
            ("operator.yaml", "image: moteseal-operator:0.1.0", "image: moteseal-operator:0.0.1", "is not version"),
            ("operator.yaml", "labels: { app: operator }", "labels: { app: operators }", "no pod has the label app: operator"),
            ("operator.yaml", "value: /operator/root.password", "value: /root.password", "is not in a mounted folder"),
            ("Dockerfile", "FROM rust:1.95.0-slim", "FROM rust:slim", "is not pinned"),
            ("nats.conf", "include accounts.conf", "seed: SU" + "A" * 56, "a seed of an nkey"),
        ]
        for file, old, new, what in cases:
            found = self.findings(file, old, new)
            self.assertTrue(any(what in line for line in found), f"{old} -> {new}: {found}")

    def test_the_options_are_those_of_the_program(self):
        options = manifests.options_of(ROOT)
        self.assertEqual(options["store", "init"], {"store": True, "replicas": True})
        # One from each structure of `cloud run`.
        for name in ("roster", "stream-monitor", "follow", "log"):
            self.assertIs(options["cloud", "run"].get(name), True, name)
        self.assertNotIn("stream-init", options["cloud", "run"])


class Certificates(unittest.TestCase):
    def test_the_script_makes_the_files_of_the_manifests_and_keeps_the_authorities(self):
        made = re.findall(r"--from-file=(?:[\w.]+=)?(certificates/\S+)", (ROOT / manifests.PAGE).read_text(encoding="utf-8"))
        self.assertGreater(len(made), 5)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            script = [ROOT / manifests.FOLDER / "certificates.sh", "10.1.0.1,10.1.0.2,10.1.0.3", "cloud.example", "192.0.2.7"]

            def verified() -> list[str]:
                """Runs the script. Returns what differs each time: the authorities do not."""
                subprocess.run(script, cwd=folder, check=True, capture_output=True)
                for file in made:
                    self.assertTrue((folder / file).is_file(), file)
                    self.assertEqual((folder / file).stat().st_mode & 0o77, 0, file)
                certificates = folder / "certificates"
                for ca, certificate, options in [
                    ("nats/ca.crt", "nats/tls.crt", ["-purpose", "sslclient"]),
                    ("ca.crt", "nats/tls.crt", ["-verify_hostname", "nats-2.nats"]),
                    ("cassandra/ca.crt", "cassandra/node.pem", ["-purpose", "sslclient"]),
                    ("ca.crt", "cassandra/node.pem", ["-verify_ip", "10.1.0.3"]),
                    ("edge-ca.crt", "edge/tls.crt", ["-verify_hostname", "cloud.example"]),
                    ("edge-ca.crt", "edge/tls.crt", ["-verify_ip", "192.0.2.7"]),
                    ("edge-ca.crt", "edge/tls.crt", ["-verify_hostname", "intake-0"]),
                ]:
                    verify = ["openssl", "verify", "-x509_strict", *options, "-CAfile", ca, certificate]
                    done = subprocess.run(verify, cwd=certificates, capture_output=True, text=True)
                    self.assertEqual(done.returncode, 0, done.stderr)
                return [(certificates / file).read_text(encoding="utf-8") for file in ("ca.crt", "nats/tls.crt", "nats/tls.key")]

            first, second = verified(), verified()
            self.assertEqual(first[0], second[0])
            self.assertNotEqual(first[1:], second[1:])


class SmallYaml(unittest.TestCase):
    def test_reads_each_construct(self):
        text = """
# a comment
base: &base { a: 1, b: [x, "y, z", {}] } # another
derived:
  <<: *base
  a: 2
list:
- one: "a # b"
  two: http://host:1/x#y
- plain text
text: |
  first
    second

  third
empty:
---
second: true
"""
        first, second = small_yaml.documents(text)
        self.assertEqual(first["derived"], {"a": 2, "b": ["x", "y, z", {}]})
        self.assertEqual(first["list"][0], {"one": "a # b", "two": "http://host:1/x#y"})
        self.assertEqual(first["list"][1], "plain text")
        self.assertEqual(first["text"], "first\n  second\n\nthird\n")
        self.assertEqual((first["empty"], second), (None, {"second": True}))

    def test_refuses_anything_else_with_its_line(self):
        for text in ["a: 1\na: 2", "a: 'x'", "a: >\n  x", "a: {b: 1", "a: *b", "a:\n\t- b", "a: {b: 1} c", "a: 1\n  b: 2",
                     "a: \"x", "just text", "- - a", "a: 0440", "a: yes", "a: 1.0", "a: b: c"]:
            with self.assertRaisesRegex(small_yaml.YamlError, r"line \d+: ", msg=text):
                small_yaml.documents(text)


if __name__ == "__main__":
    unittest.main()
