"""Checks the package's public names and types, and runs the example."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import moteseal
from moteseal import errors

HERE = Path(__file__).resolve().parents[1]
ROOT = HERE.parents[1]
BASES = {"MotesealError", "UsageError", "Refused", "Incomplete", "Unreachable", "Failed"}


def test_every_exception_is_in_the_specification() -> None:
    named = set(re.findall(r"`([A-Z]\w+)`", (ROOT / "spec/errors.md").read_text()))
    ours = set(errors.__all__) - BASES
    assert len(ours) == 15 and ours <= named, ours - named
    for name in ours:
        kind = getattr(moteseal, name)
        assert issubclass(kind, moteseal.MotesealError) and kind.__doc__, name


def test_every_error_of_a_stream_or_answer_has_a_base_class() -> None:
    text = (ROOT / "spec/errors.md").read_text()
    headings = [heading for heading in re.findall(r"(?m)^## (.*)$", text)]
    checked = 0
    for heading in headings:
        if not heading.startswith(("Decoding", "Signed objects", "Reading a stream", "Checking")):
            continue
        section = re.search(rf"(?ms)^## {re.escape(heading)}$.*?(?=^## |\Z)", text)
        assert section is not None
        for name in re.findall(r"(?m)^\| `(\w+)`", section[0]):
            error = errors._of("refused", name, f"{name}: x")
            assert isinstance(error, moteseal.Refused) and error.name == name
            checked += 1
    assert checked > 40


def test_an_error_without_its_own_class_is_raised_as_its_base() -> None:
    error = errors._of("refused", "SomethingNew", "SomethingNew: what it is", device="dev1", index=3)
    assert type(error) is moteseal.Refused and (error.name, error.device, error.index) == ("SomethingNew", "dev1", 3)
    assert str(error) == "SomethingNew: what it is"
    # If the caller's argument has an unknown device, this is a usage error; if a response has one,
    # it is not.
    assert type(errors._of("refused", "UnknownDevice", "x")) is moteseal.Refused
    assert type(errors._of("usage", "UnknownDevice", "x")) is moteseal.UnknownDevice
    unreachable = errors._of("unreachable", "Busy", "Busy: x", url="http://a")
    assert type(unreachable) is moteseal.Busy and unreachable.url == "http://a" and str(unreachable) == "Busy: x"
    assert isinstance(unreachable, OSError)


def test_every_base_class_has_the_kind_of_its_errors() -> None:
    kinds = {"UsageError": "usage", "Refused": "refused", "Incomplete": "incomplete", "Unreachable": "unreachable", "Failed": "internal"}
    assert {base.__name__: kind for kind, base in errors._BASES.items()} == kinds
    for name in errors.__all__[1:]:
        (kind,) = {kind for kind, base in errors._BASES.items() if issubclass(getattr(errors, name), base)}
        assert getattr(errors, name).kind == kind, name


def test_the_stubs_match_the_extension() -> None:
    from moteseal import _moteseal

    stubs = (HERE / "python/moteseal/_moteseal.pyi").read_text()
    classes = {name: value for name, value in vars(_moteseal).items() if inspect.isclass(value)}
    functions = {name for name, value in vars(_moteseal).items() if callable(value) and name not in classes}
    assert functions == set(re.findall(r"(?m)^def (\w+)\(", stubs))
    assert set(classes) == set(re.findall(r"(?m)^class (\w+):", stubs))
    for name, value in classes.items():
        body = re.search(rf"(?ms)^class {name}:.*?(?=^@final|^def |\Z)", stubs)
        assert body is not None
        public = {member for member in vars(value) if not member.startswith("_")}
        assert public == {member for member in re.findall(r"(?m)^    def (\w+)\(", body[0]) if not member.startswith("_")}, name
        assert value.__doc__ and value.__module__.startswith("moteseal"), name
        for member in public:
            assert getattr(value, member).__doc__, f"{name}.{member}"


@pytest.mark.parametrize("files", [["examples/quickstart.py", "examples/home.py"], ["python/moteseal"], ["tests"], ["bench.py"]])
def test_types_check(files: list[str]) -> None:
    pytest.importorskip("mypy")
    done = subprocess.run([sys.executable, "-m", "mypy", *files], cwd=HERE, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_runs_and_detects_both_attacks() -> None:
    done = subprocess.run([sys.executable, "examples/quickstart.py"], cwd=HERE, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    output = done.stdout
    assert re.search(r"dev1: \d+ of 4417 readings", output) and re.search(r"mean temperature [\d.]+ ± 0\.\d+ °C", output)
    assert "BlockDigestMismatch: " in output and "Missing: seal 6 of dev1" in output
