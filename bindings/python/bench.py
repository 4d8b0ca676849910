#!/usr/bin/env python3
"""Compares the speeds of the Python client and the Rust client.

Both clients ask the same cloud for an eighth of the readings of a thousand devices (a million
readings in all), verify the response, and put it into an Arrow table in memory. The two clients
take turns within one run. Then both clients verify a proof from a file, without a cloud. The
benchmark fails if the Python client reaches less than 70 % of the Rust client's speed.

    bindings/python/bench.py [--devices 1000] [--readings 1000] [--rounds 15] [--rate 1/8] [--data FOLDER]

It builds what it needs in the release profile. To seal and serve with another `moteseal` program,
set MOTESEAL to its path. The cloud runs on the same machine, and its work is part of both times.
The results are in docs/performance.md, section "Python".
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
LEAST = 0.7


def build(folder: Path) -> None:
    """Builds `moteseal`, the timed Rust client and the extension module, and copies the Python
    package to a folder."""
    cargo = ["cargo", "build", "--release", "--locked", "--quiet"]
    packages = ["-p", "moteseal", "-p", "moteseal-python"]
    if "MOTESEAL" not in os.environ:
        subprocess.run([*cargo, *packages], cwd=ROOT, check=True)
    # The Rust client and the extension module are needed even if MOTESEAL names a program.
    subprocess.run([*cargo, *packages, "--example", "get"], cwd=ROOT, check=True)
    library = "lib_moteseal.dylib" if sys.platform == "darwin" else "lib_moteseal.so"
    shutil.copytree(HERE / "python/moteseal", folder / "moteseal")
    shutil.copy(TARGET / "release/deps" / library, folder / "moteseal/_moteseal.abi3.so")


def fill(folder: Path, devices: int, readings: int) -> tuple[Path, Path, Path]:
    """Creates keys, a roster and sealed readings. Each device seals a different section of the
    recording."""
    from home import COLUMNS, run

    names = [f"mote{number:04}" for number in range(devices)]
    roster, operator, bundles = folder / "roster.cbor", folder / "op.pub.pem", folder / "bundles"
    if (folder / "sealed").exists():
        return roster, operator, bundles
    header, *recorded = (ROOT / "data/examples/dev1.csv").read_text().splitlines()
    if readings > len(recorded):
        raise SystemExit(f"--readings: at most {len(recorded)}")
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda name: run("key", "new", "--out", folder / name), ["op", *names]))
    listed: list[str | Path] = [part for name in names for part in ("--device", f"{name}={folder / name}.pub.pem")]
    group = ["--group", "bench", "--epoch", "1h", "--levels", "16"]
    run("roster", "new", "--operator", folder / "op.key.pem", *group, *listed, "--out", roster)

    def seal(numbered: tuple[int, str]) -> None:
        number, name = numbered
        start = number * 37 % (len(recorded) - readings + 1)
        data = folder / f"{name}.csv"
        data.write_text("\n".join([header, *recorded[start : start + readings]]) + "\n")
        columns = [part for column in COLUMNS for part in ("--column", column)]
        keys: list[str | Path] = ["--device", name, "--key", folder / f"{name}.key.pem", "--roster", roster, "--operator", operator]
        run("seal", data, "--time", "ts", *columns, *keys, "--out", bundles)

    # Seal one device after another: only one program at a time may write to a folder of bundles.
    for numbered in enumerate(names):
        seal(numbered)
    (folder / "sealed").touch()
    return roster, operator, bundles


class Rust:
    """The Rust client as a process. For each line on its stdin, it runs the query once and prints
    the time in seconds and the number of rows."""

    def __init__(self, *arguments: str | Path) -> None:
        command = [TARGET / "release/examples/get", *arguments]
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def once(self) -> tuple[float, int]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        seconds, rows = self.process.stdout.readline().split()
        return float(seconds), int(rows)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def compare(what: str, rust: Rust, python: Callable[[], pyarrow.Table], events: int, rounds: int) -> float:
    """Times the two clients in turns, prints the results, and returns Python's speed divided by
    Rust's."""
    times: dict[str, list[float]] = {"Rust": [], "Python": []}
    number = 0
    # The first two rounds are a warm-up and do not count.
    for turn in range(-2, rounds):
        seconds, number = rust.once()
        start = time.perf_counter()
        table = python()
        taken = time.perf_counter() - start
        if table.num_rows != number:
            raise SystemExit(f"Python returned {table.num_rows} rows, but Rust returned {number}")
        if turn >= 0:
            times["Rust"].append(seconds)
            times["Python"].append(taken)
    print(f"{what}: {number:,} rows, medians of {rounds} interleaved runs")
    for who, seconds_of in times.items():
        median = statistics.median(seconds_of)
        span = f"{min(seconds_of) * 1000:.1f} to {max(seconds_of) * 1000:.1f}"
        print(f"  {who:<7} {median * 1000:8.1f} ms  ({span})  {events / median / 1e6:6.1f} million events/s")
    ratios = sorted(one / other for one, other in zip(times["Rust"], times["Python"], strict=True))
    factor = statistics.median(ratios)
    verdict = "PASS" if factor >= LEAST else "MISS"
    print(f"  Python's speed / Rust's, median of the ratios ({ratios[0]:.2f} to {ratios[-1]:.2f})  {factor:.2f}  >= {LEAST}  {verdict}")
    return factor


def main() -> None:
    parser = argparse.ArgumentParser(description="compares the speeds of the Python client and the Rust client")
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--readings", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rate", default="1/8")
    parser.add_argument("--data", type=Path, help="folder in which to save the keys and sealed readings for later runs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="moteseal-bench-") as name:
        folder = Path(name)
        build(folder)
        os.environ.setdefault("MOTESEAL", str(TARGET / "release/moteseal"))
        sys.path[:0] = [str(folder), str(HERE / "examples")]
        import pyarrow

        moteseal = importlib.import_module("moteseal")
        from home import moteseal as command
        from home import run

        data = arguments.data or folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        path, operator, bundles = fill(data, arguments.devices, arguments.readings)
        events = arguments.devices * arguments.readings
        print(f"{events:,} events of {arguments.devices:,} devices, a response at rate {arguments.rate}, verified into an Arrow table in memory")
        serve = [command(), "cloud", "run", "--store", folder / "e.redb", "--roster", path, "--operator", operator]
        processes: list[Rust] = []
        with open(folder / "cloud.log", "wb") as log:
            cloud = subprocess.Popen([*map(str, serve), "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert cloud.stdout is not None
            url = cloud.stdout.readline().strip()
            run("push", bundles, "--to", url)
            roster = moteseal.Roster(path, operator)
            client, proof = moteseal.Client(url, roster=roster, pinned_seals=False), folder / "answer.mproof"
            client.get(rate=arguments.rate, proof=proof)
            processes = [Rust(path, operator, url, arguments.rate), Rust(path, operator, proof)]
            work: list[tuple[str, Callable[[], Any]]] = [
                ("from a cloud on this machine", lambda: client.get(rate=arguments.rate)),
                ("from a proof in a file", lambda: moteseal.verify_proof(proof, roster, pinned_seals=False)),
            ]
            factors = [
                compare(what, rust, lambda each=each: pyarrow.table(each()), events, arguments.rounds)  # type: ignore[misc]
                for (what, each), rust in zip(work, processes, strict=True)
            ]
        finally:
            for process in processes:
                process.end()
            cloud.terminate()
            cloud.wait()
    if min(factors) < LEAST:
        raise SystemExit(f"Python's speed divided by Rust's is below {LEAST}")


if __name__ == "__main__":
    main()
