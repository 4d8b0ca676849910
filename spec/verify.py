#!/usr/bin/env python3
"""A second verifier of Moteseal's formats, written only from the text of spec/: its pages, moteseal.cddl and errors.md.

usage: verify.py --vectors DIR                                  replay every test vector, compare verdicts and error names
       verify.py bundle FILE... --roster R --operator PUB.pem   verify files: bundles (.mseal), proofs (.mproof)
       verify.py merkle [DIR|TAR]                               check the tree against independent test data for RFC 9162

It shares no code with the implementation, and follows the order of the text instead of optimising for speed. Needs
Python 3.11, cbor2 and cryptography. Exit codes:
0 success, 1 a disagreement or a refusal, 2 a usage error.
"""

import argparse
import base64
import json
import os
import pathlib
import sys
import tarfile

from verifier.encoding import Refused, Skipped
from verifier.roster import roster_open
from verifier.served import check_proof
from verifier.stream import Reader, is_whole
from verifier.suites import key_from_pem
from verifier.trees import path_root
from verifier.vectors import run_vectors


def run_bundle(files, roster_path, operator_path):
    """Verifies streams. Prints a line for each seal, and the verdict on each file. Returns the exit code."""
    try:
        operator = key_from_pem(pathlib.Path(operator_path).read_bytes())
        roster = roster_open(pathlib.Path(roster_path).read_bytes(), operator)
    except (Refused, ValueError, OSError) as error:
        print(f"{roster_path}: {error}", file=sys.stderr)
        return 1
    worst = 0
    for file in files:
        try:
            data = pathlib.Path(file).read_bytes()
            rows = run_proof(file, roster, data) if data[:2] == b"\x83\x05" else run_stream(file, roster, data)
            print(f"{file}: verified, {rows} events")
        except Refused as refused:
            print(f"{file}: refused, {refused}")
            worst = 1
        except Skipped as reason:
            print(f"{file}: not checked: {reason}")
            worst = 1
        except OSError as error:
            print(f"{file}: {error.strerror}", file=sys.stderr)
            worst = 2
    return worst


def run_proof(file, roster, data):
    """Verifies a proof: the whole answer to its query. Returns the number of events."""
    checked, _ = check_proof(Reader(roster), data)
    for one in checked:
        device = roster.device(one.device)
        name, since = device.name if device else one.device.hex(), "" if one.since is None else f" from epoch {one.since} on"
        print(f"{file}: {name}: {one.seals} seals, {len(one.rows)} events, {one.standing}{since}")
    return sum(len(one.rows) for one in checked)


def run_stream(file, roster, data):
    """Verifies a file of bundles, each of which must be whole. Returns the number of events."""
    rows, seals, rounds = 0, 0, {}
    for kind, value in Reader(roster).read(data):
        if kind == "part":
            if not is_whole(value, rounds, roster):
                raise Refused("NotWhole", f"index {value.seal.index}")
            rows, seals = rows + len(value.rows), seals + 1
            seal, name = value.seal, roster.device(value.seal.device).name
            scheme = "tree" if seal.scheme else "star"
            count = f"{len(value.rows)} of {sum(seal.counters)} events"
            print(f"{file}: {name} index {seal.index} epoch {seal.epoch} {scheme}: {count}")
        elif kind == "manifest":
            rounds.setdefault(value.epoch, []).append(value.round)
        elif kind == "problem":
            print(f"{file}: the server reported {value[0]}: {value[1]}")
    if seals == 0:
        raise Refused("NotWhole", "the file has no seal")
    return rows


def merkle_probes(root):
    """The inclusion tests in a directory or archive, each with its name and content."""
    if root.is_dir():
        return [(str(path), path.read_bytes()) for path in sorted(root.rglob("inclusion/**/*.json"))]
    with tarfile.open(root) as archive:
        members = [m for m in archive if "/inclusion/" in m.name and m.name.endswith(".json")]
        return [(member.name, archive.extractfile(member).read()) for member in members]


def run_merkle(root):
    """Checks the RFC 9162 inclusion tests that transparency-dev publishes. Returns the exit code."""
    if root is None:
        data = os.environ.get("MOTESEAL_DATA") or pathlib.Path(__file__).parent.parent.parent / "shared" / "data"
        root = pathlib.Path(data) / "vectors_merkle" / "transparency_dev_merkle_testdata.tar.xz"
        if not root.exists():
            print("SKIPPED: RFC 9162 inclusion tests (vectors_merkle); set MOTESEAL_DATA to the folder with the data")
            return 1 if os.environ.get("MOTESEAL_DATA_REQUIRED") == "1" else 0
    passed = failed = 0
    for path, content in merkle_probes(pathlib.Path(root)):
        probe = json.loads(content)
        leaf, expected = base64.b64decode(probe["leafHash"] or ""), base64.b64decode(probe["root"] or "")
        path_digests = [base64.b64decode(digest) for digest in probe["proof"] or []]
        try:
            digests = [leaf, expected, *path_digests]
            good = all(len(digest) == 32 for digest in digests)
            good = good and path_root(leaf, probe["leafIdx"], probe["treeSize"], path_digests) == expected
        except Refused:
            good = False
        if good != probe["wantErr"]:
            passed += 1
        else:
            failed += 1
            print(f"{path}: {probe['desc']}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", metavar="DIR", help="replay the test vectors under DIR")
    commands = parser.add_subparsers(dest="command")
    bundle = commands.add_parser("bundle", help="verify bundles and proofs")
    bundle.add_argument("files", nargs="+", metavar="FILE")
    bundle.add_argument("--roster", required=True)
    bundle.add_argument("--operator", required=True, help="the operator's public key, PEM")
    merkle = commands.add_parser("merkle", help="check the tree against independent test data for RFC 9162")
    merkle.add_argument("dir", nargs="?", help="a directory or archive; default: the archive below MOTESEAL_DATA")
    arguments = parser.parse_args()
    if arguments.vectors:
        return run_vectors(arguments.vectors)
    if arguments.command == "bundle":
        return run_bundle(arguments.files, arguments.roster, arguments.operator)
    if arguments.command == "merkle":
        return run_merkle(arguments.dir)
    parser.print_usage(sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
