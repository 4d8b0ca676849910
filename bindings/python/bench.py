"""How fast verified rows come through Python, beside the Rust client: both ask one cloud for an eighth of a million readings of a thousand
devices and verify them into an Arrow table in memory, alternately, in one run. Fails where Python is slower than 0.7 of Rust.

    bindings/python/bench.py [--devices 1000] [--readings 1000] [--rounds 15]

It builds what it needs in the release profile. The cloud runs on the same machine, and its work is in both times. docs/performance.md,
"Python", has the figures.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
LEAST = 0.7


def build(folder: Path) -> None:
    """Builds the command, the Rust client's timing and the extension module, and puts the package into a folder."""
    cargo = ["cargo", "build", "--release", "--locked", "--quiet"]
    subprocess.run([*cargo, "-p", "moteseal", "-p", "moteseal-python"], cwd=ROOT, check=True)
    subprocess.run([*cargo, "-p", "moteseal", "-p", "moteseal-python", "--example", "get"], cwd=ROOT, check=True)
    library = "lib_moteseal.dylib" if sys.platform == "darwin" else "lib_moteseal.so"
    shutil.copytree(HERE / "python/moteseal", folder / "moteseal")
    shutil.copy(TARGET / "release" / library, folder / "moteseal/_moteseal.abi3.so")


def fill(folder: Path, devices: int, readings: int) -> tuple[Path, Path, Path]:
    """Keys, a roster and sealed readings of so many devices: each has another stretch of recorded ones."""
    from home import COLUMNS, run

    names = [f"mote{number:04}" for number in range(devices)]
    roster, operator, bundles = folder / "roster.cbor", folder / "op.pub.pem", folder / "bundles"
    header, *recorded = (ROOT / "data/examples/dev1.csv").read_text().splitlines()
    if readings > len(recorded):
        raise SystemExit(f"--readings: at most {len(recorded)}")
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda name: run("key", "new", "--out", folder / name), ["op", *names]))
    listed = [part for name in names for part in ("--device", f"{name}={folder / name}.pub.pem")]
    group = ["--group", "bench", "--epoch", "1h", "--levels", "16"]
    run("roster", "new", "--operator", folder / "op.key.pem", *group, *listed, "--out", roster)

    def seal(numbered: tuple[int, str]) -> None:
        number, name = numbered
        start = number * 37 % (len(recorded) - readings + 1)
        data = folder / f"{name}.csv"
        data.write_text("\n".join([header, *recorded[start : start + readings]]) + "\n")
        columns = [part for column in COLUMNS for part in ("--column", column)]
        keys = ["--device", name, "--key", folder / f"{name}.key.pem", "--roster", roster, "--operator", operator]
        run("seal", data, "--time", "ts", *columns, *keys, "--out", bundles)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(seal, enumerate(names)))
    return roster, operator, bundles


def spread(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1000:7.1f} ms  ({min(seconds) * 1000:.1f} to {max(seconds) * 1000:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description="Python beside the Rust client")
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--readings", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rate", default="1/8")
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

        roster, operator, bundles = fill(folder, arguments.devices, arguments.readings)
        serve = [command(), "cloud", "run", "--store", folder / "e.redb", "--roster", roster, "--operator", operator]
        with open(folder / "cloud.log", "wb") as log:
            cloud = subprocess.Popen([*map(str, serve), "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=log, text=True)
        rust = None
        try:
            assert cloud.stdout is not None
            url = cloud.stdout.readline().strip()
            run("push", bundles, "--to", url)
            ask = [TARGET / "release/examples/get", url, roster, operator, arguments.rate]
            rust = subprocess.Popen(list(map(str, ask)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert rust.stdin is not None and rust.stdout is not None
            client = moteseal.Client(url, roster=roster, operator=operator, memory=False)
            times: dict[str, list[float]] = {"Rust": [], "Python": []}
            for turn in range(arguments.rounds + 2):
                rust.stdin.write("\n")
                rust.stdin.flush()
                seconds, rows = rust.stdout.readline().split()
                start = time.perf_counter()
                table = pyarrow.table(client.get(rate=arguments.rate))
                taken = time.perf_counter() - start
                if table.num_rows != int(rows):
                    raise SystemExit(f"Python has {table.num_rows} rows, Rust {rows}")
                # The first two warm both up.
                if turn >= 2:
                    times["Rust"].append(float(seconds))
                    times["Python"].append(taken)
        finally:
            for process in (rust, cloud):
                if process is not None:
                    process.terminate()
                    process.wait()
        events = arguments.devices * arguments.readings
        print(f"{events:,} events of {arguments.devices:,} devices at rate {arguments.rate}: {table.num_rows:,} rows, {arguments.rounds} rounds")
        for who, seconds_of in times.items():
            rate = events / statistics.median(seconds_of) / 1e6
            print(f"{who:<7} {spread(seconds_of)}   {rate:.2f} million events/s")
        ratios = [one / other for one, other in zip(times["Rust"], times["Python"], strict=True)]
        factor = statistics.median(times["Rust"]) / statistics.median(times["Python"])
        print(f"Python at {factor:.2f} of the Rust client's speed (round by round {min(ratios):.2f} to {max(ratios):.2f}); the bar is {LEAST}")
        if factor < LEAST:
            raise SystemExit("the bar is missed")


if __name__ == "__main__":
    main()
