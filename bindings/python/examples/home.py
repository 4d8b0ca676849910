"""A home with two sensors, for the example and the tests: recorded readings that are sealed with
real keys and stored in a real cloud on this machine.

The module also has a dishonest cloud: a proxy that forwards requests to an honest cloud and alters
the responses.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
COLUMNS = ["temperature:Cel:i16/100", "humidity:%RH:u16/100"]
DEVICES = ["dev1", "dev2"]


def moteseal() -> str:
    """Returns the path of the `moteseal` program: $MOTESEAL, or the newest one in this repository's
    target folder, or the one on the PATH."""
    named = os.environ.get("MOTESEAL")
    if named:
        return named
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [path for path in (target / "debug/moteseal", target / "release/moteseal") if path.exists()]
    found = str(max(built, key=lambda path: path.stat().st_mtime)) if built else shutil.which("moteseal")
    if found is None:
        raise SystemExit("moteseal was not found; build it with `cargo build -p moteseal`, or set MOTESEAL to its path")
    return found


def run(*arguments: str | Path) -> str:
    """Runs `moteseal` and returns its stdout. Raises an exception if it fails."""
    done = subprocess.run([moteseal(), *map(str, arguments)], capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"moteseal {' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout


class Home:
    """A folder with keys, a roster and six hours of sealed readings of two devices. dev1 seals
    stars, dev2 seals trees."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.roster = folder / "roster.cbor"
        self.operator = folder / "op.pub.pem"
        self.bundles = folder / "bundles"
        for name in ("op", *DEVICES):
            run("key", "new", "--out", folder / name)
        devices: list[str | Path] = [part for name in DEVICES for part in ("--device", f"{name}={folder / name}.pub.pem")]
        group = ["--group", "home", "--epoch", "1h", "--levels", "16"]
        run("roster", "new", "--operator", folder / "op.key.pem", *group, *devices, "--out", self.roster)
        for name, scheme in zip(DEVICES, ("star", "tree"), strict=True):
            self.seal(name, scheme, COLUMNS)

    def seal(self, name: str, scheme: str, specs: Iterable[str], *more: str | Path) -> None:
        """Seals the readings of a device. `more` are further options of `moteseal seal`."""
        columns = [part for spec in specs for part in ("--column", spec)]
        data = ROOT / f"data/examples/{name}.csv"
        keys: list[str | Path] = ["--device", name, "--key", self.folder / f"{name}.key.pem", "--scheme", scheme]
        run("seal", data, "--time", "ts", *columns, *keys, *self.trust_options, "--out", self.bundles, *more)

    @property
    def trust_options(self) -> list[str | Path]:
        """The options that every verifying command needs: the roster and the operator's public key."""
        return ["--roster", self.roster, "--operator", self.operator]

    @contextlib.contextmanager
    def cloud(self, without: Iterable[str] = ()) -> Iterator[str]:
        """Runs a cloud that has all bundles except those in `without`, and yields its address. The
        cloud stops at the end of the `with` block."""
        place = Path(tempfile.mkdtemp(dir=self.folder))
        bundles, store = place / "bundles", place / "epochs.redb"
        shutil.copytree(self.bundles, bundles, ignore=shutil.ignore_patterns(*without))
        command = [moteseal(), "cloud", "run", "--store", store, *self.trust_options, "--listen", "127.0.0.1:0"]
        with open(self.folder / "cloud.log", "ab") as log:
            process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            # The cloud prints its address once it accepts connections. If it fails, its stdout ends
            # instead.
            url = process.stdout.readline().strip()
            if not url.startswith("http://"):
                raise RuntimeError(f"the cloud did not start: {(self.folder / 'cloud.log').read_text()[-2000:]}")
            run("push", bundles, "--to", url)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


Alter = Callable[[str, bytes], bytes]


def warmer(path: str, honest: bytes) -> bytes:
    """Makes one reading in the response to a query one degree warmer: dev1's reading at 12:02:15 or
    dev2's at 12:01:30. The bytes of each of these readings occur only once."""
    for temperature, humidity in ((2778, 4339), (2746, 4537)):
        reading, altered = struct.pack(">hH", temperature, humidity), struct.pack(">hH", temperature + 100, humidity)
        if path.endswith("/query") and reading in honest:
            return honest.replace(reading, altered, 1)
    return honest


@contextlib.contextmanager
def dishonest_cloud(honest: str, alter: Alter) -> Iterator[str]:
    """Runs a dishonest cloud and yields its address. `alter` gets the path of a request and the
    honest response, and returns the response to send."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self.answer(None)

        def do_POST(self) -> None:
            self.answer(self.rfile.read(int(self.headers.get("Content-Length", "0"))))

        def answer(self, body: bytes | None) -> None:
            kind = {"Content-Type": self.headers["Content-Type"]} if body is not None else {}
            request = urllib.request.Request(honest + self.path, data=body, headers=kind)
            try:
                with urllib.request.urlopen(request, timeout=60) as found:
                    status, media, text = found.status, found.headers["Content-Type"], found.read()
            except urllib.error.HTTPError as error:
                status, media, text = error.code, error.headers["Content-Type"], error.read()
            text = alter(self.path, text)
            self.send_response(status)
            self.send_header("Content-Type", media)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
