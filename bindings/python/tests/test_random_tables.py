"""Seals random tables under random schemas with encrypted columns, as stars and as trees, and checks that a
reader with a grant sees exactly the cells that it was granted, the owner every cell, and nobody else any."""

from __future__ import annotations

import csv
import random
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from home import Home, run

import moteseal

# An identity of a reader, made with age-keygen for this test.
READER = (
    "AGE-SECRET-KEY-1PDZTJFU4V4DUS5RDH4AT46ERR2QWHNVZ98FP85XCSTK2A58MDV5SNEW8WE",
    "age1dcdjy4mse4tegkvakxgt4tnxznyyct63wec5tvlg9n5xtmv2g5rqzp402p",
)
DEVICES = [f"dev{number}" for number in range(6)]
INTEGERS = ["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"]
LETTERS = "abcxyz0189 ,;\"'äß€語🌡"
LABELS = ["off", "on", "half way", "ä"]
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
UNIX = datetime(1970, 1, 1, tzinfo=UTC)
# The readings of a table; the shortest and the longest epoch in ms.
READINGS, EPOCHS_MS = 250, (1_000, 100_000_000)

Cell = tuple[str, Any]
"""A cell as the table has it, and as the client returns it."""


def milliseconds(time: datetime) -> int:
    return (time - UNIX) // timedelta(milliseconds=1)


def text_of(ms: int) -> str:
    time = UNIX + timedelta(milliseconds=ms)
    return f"{time.year:04}-{time:%m-%dT%H:%M:%S}.{ms % 1000:03}Z"


@dataclass
class Column:
    """A random column."""

    name: str
    kind: str
    nullable: bool
    # "!" or "!aes" for an encrypted column, or "".
    suite: str
    group: int
    cell: Callable[[random.Random], Cell]

    @property
    def spec(self) -> str:
        null, group = "?" * self.nullable, f"@{self.group}" if self.group else ""
        return f"{self.name}::{self.kind}{null}{self.suite}{group}"

    def draw(self, chance: random.Random) -> Cell:
        return ("", None) if self.nullable and chance.random() < 0.2 else self.cell(chance)


def integer(chance: random.Random, nullable: bool) -> tuple[str, Callable[[random.Random], Cell]]:
    kind = chance.choice(INTEGERS)
    bits, is_signed = int(kind[1:]), kind[0] == "i"
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    # The raw value that means null is the smallest signed number, or the largest unsigned one.
    if nullable:
        low, high = (low + 1, high) if is_signed else (low, high - 1)
    divisor = chance.choice([1, 1, 10, 100, 8, 1_000_000_000])
    offset = chance.choice([0, 0, 7, -40, chance.randint(-(10**9), 10**9)])
    scale = f"/{divisor}" * (divisor != 1) + f"{offset:+}" * (offset != 0)

    def cell(chance: random.Random) -> Cell:
        raw = chance.choice([low, high, chance.randint(low, high), chance.randint(max(low, -9), min(high, 9))])
        number = raw + offset
        with localcontext() as context:
            context.prec = 60
            text = format(Decimal(number) / divisor, "f")
        return text, number if not scale else float(number) / divisor

    return kind + scale, cell


def floating(chance: random.Random) -> tuple[str, Callable[[random.Random], Cell]]:
    kind, code, bits = chance.choice([("f32", ">f", 32), ("f64", ">d", 64)])
    largest, smallest = ((255 << 23) - 1, 1) if bits == 32 else ((2047 << 52) - 1, 1)

    def cell(chance: random.Random) -> Cell:
        magnitude = chance.choice([0, smallest, largest, chance.randint(0, largest)])
        raw = magnitude | chance.getrandbits(1) << bits - 1
        number: float = struct.unpack(code, raw.to_bytes(bits // 8, "big"))[0]
        return repr(number), number

    return kind, cell


def text(chance: random.Random) -> tuple[str, Callable[[random.Random], Cell]]:
    longest = chance.choice([1, 7, 40, 254])

    def cell(chance: random.Random) -> Cell:
        found = chance.choice("az09")
        length = chance.choice([1, longest, chance.randint(1, longest)])
        while len(found.encode()) < length:
            found += chance.choice(LETTERS if len(found.encode()) + 5 < length else "az09")
        return found, found

    return f"text{longest}", cell


def instant(_: random.Random) -> tuple[str, Callable[[random.Random], Cell]]:
    low = milliseconds(datetime(1, 1, 1, tzinfo=UTC))
    high = milliseconds(datetime(9999, 12, 31, tzinfo=UTC))

    def cell(chance: random.Random) -> Cell:
        ms = chance.choice([0, -1, high, low, chance.randint(low, high)])
        return text_of(ms), ms

    return "timestamp", cell


def point(_: random.Random) -> tuple[str, Callable[[random.Random], Cell]]:
    def degrees(chance: random.Random, most: int) -> tuple[str, float]:
        most *= 10_000_000
        raw = chance.choice([-most, most, 0, chance.randint(-most, most)])
        sign = "-" * (raw < 0)
        return f"{sign}{abs(raw) // 10_000_000}.{abs(raw) % 10_000_000:07}", raw / 10_000_000

    def cell(chance: random.Random) -> Cell:
        latitude, longitude = degrees(chance, 90), degrees(chance, 180)
        return f"{latitude[0]},{longitude[0]}", {"lat": latitude[1], "lon": longitude[1]}

    return "point", cell


def boolean(_: random.Random) -> tuple[str, Callable[[random.Random], Cell]]:
    return "bool", lambda chance: chance.choice([("true", True), ("false", False)])


def label(_: random.Random) -> tuple[str, Callable[[random.Random], Cell]]:
    def cell(chance: random.Random) -> Cell:
        found = chance.choice(LABELS)
        return found, found

    return f"enum({','.join(LABELS)})", cell


def columns(chance: random.Random) -> list[Column]:
    """Draws 1 to 8 columns, of which at least one is encrypted and at least one is in group 0."""
    drawn = []
    for place in range(chance.randint(1, 8)):
        nullable = chance.random() < 0.4
        of_kind = chance.choice([None, None, None, floating, text, instant, point, boolean, label])
        kind, cell = of_kind(chance) if of_kind else integer(chance, nullable)
        suite = chance.choice(["", "!", "!", "!aes"])
        group = chance.randint(0, 2) if suite and place > 0 else 0
        drawn.append(Column(f"c{place}", kind, nullable, suite, group, cell))
    if not any(column.suite for column in drawn):
        chance.choice(drawn).suite = chance.choice(["!", "!aes"])
    chance.shuffle(drawn)
    return drawn


@dataclass
class Table:
    """A random table of a device, and what a reader is granted of it."""

    device: str
    scheme: str
    columns: list[Column]
    # The time of each reading, in ms, and its cells.
    rows: list[tuple[int, list[Cell]]]
    granted: list[str]
    # The granted epochs.
    epochs: range

    def is_granted(self, column: str, epoch: int) -> bool:
        return column in self.granted and epoch in self.epochs


class RandomHome(Home):
    """A home whose devices seal random tables, with epochs of a random length."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.folder, self.bundles = folder, folder / "bundles"
        self.roster, self.operator = folder / "roster.cbor", folder / "op.pub.pem"
        self.epoch_ms = self.chance.randint(*EPOCHS_MS)
        for name in ("op", *DEVICES):
            run("key", "new", "--out", folder / name)
        devices: list[str | Path] = []
        for name in DEVICES:
            devices += ["--device", f"{name}={folder / name}.pub.pem"]
        group = ["--group", "home", "--epoch", f"{self.epoch_ms}ms", "--levels", str(self.chance.randint(2, 16))]
        run("roster", "new", "--operator", folder / "op.key.pem", *group, *devices, "--out", self.roster)
        run("owner", "new", "--group", "home", "--name", "alice", "--out", folder / "alice")
        listed = f"alice={folder / 'alice.pub.pem'}"
        run("roster", "set", "--roster", self.roster, "--operator", folder / "op.key.pem", "--owner", listed)
        (folder / "reader.txt").write_text(READER[0] + "\n")
        self.tables = [self.table(name, ("star", "tree")[place % 2]) for place, name in enumerate(DEVICES)]

    def table(self, device: str, scheme: str) -> Table:
        """Draws a table, seals it, and makes a grant of some of its columns and epochs."""
        drawn, time, rows = columns(self.chance), milliseconds(FIRST) + self.chance.randrange(10**9), []
        for _ in range(self.chance.randint(1, READINGS)):
            # Many readings share an epoch, and some epochs have none.
            time += self.chance.choice([1, self.epoch_ms // 40 + 1, self.chance.randrange(1, 3 * self.epoch_ms)])
            rows.append((time, [column.draw(self.chance) for column in drawn]))
        path = self.folder / f"{device}.csv"
        with open(path, "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["ts", *(column.name for column in drawn)])
            table.writerows([text_of(time), *(cell for cell, _ in cells)] for time, cells in rows)
        first, last = (row[0] // self.epoch_ms for row in (rows[0], rows[-1]))
        begin = self.chance.randint(first, last)
        epochs = range(begin, self.chance.randint(begin, last) + 1)
        encrypted = [column.name for column in drawn if column.suite]
        granted = self.chance.sample(encrypted, self.chance.randint(1, len(encrypted)))
        found = Table(device, scheme, drawn, rows, granted, epochs)
        self.seal_table(found, path)
        return found

    def seal_table(self, table: Table, path: Path) -> None:
        owner: list[str | Path] = ["--owner", self.folder / "alice.owner", "--device", table.device]
        specs = [part for column in table.columns for part in ("--column", column.spec)]
        run("owner", "add", *owner, *specs, "--keys", self.folder, *self.trust_options)
        keys = ("--key", self.folder / f"{table.device}.key.pem", "--stream-secret", self.secret(table.device))
        most = ("--max-events", str(self.chance.choice([7, 64, 1000])))
        where: list[str | Path] = [path, "--time", "ts", "--device", table.device, "--scheme", table.scheme]
        run("seal", *where, *specs, *keys, *most, *self.trust_options, "--out", self.bundles)
        times = [text_of(epoch * self.epoch_ms) for epoch in (table.epochs.start, table.epochs.stop)]
        what = ["--columns", ",".join(table.granted), "--since", times[0], "--until", times[1], "--to", READER[1]]
        run("grant", "make", *owner, *what, "--out", self.grant(table.device), *self.trust_options)

    def secret(self, device: str) -> Path:
        return self.folder / f"{device}.stream.key"

    def grant(self, device: str) -> Path:
        return self.folder / f"{device}.mgrant"


@pytest.fixture(scope="module", params=range(3))
def scene(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[tuple[RandomHome, str]]:
    home = RandomHome(tmp_path_factory.mktemp("random"), request.param)
    with home.cloud() as url:
        yield home, url


def values(answer: Any, name: str) -> list[Any]:
    """Returns the cells of a column. A timestamp is a number of ms."""
    column = pyarrow.table(answer)[name]
    if pyarrow.types.is_timestamp(column.type):
        column = column.cast(pyarrow.int64())
    found: list[Any] = column.to_pylist()
    return found


def places(answer: Any) -> list[tuple[int, int]]:
    """Returns the place of each row: the index of its seal, and its number there."""
    return list(zip(values(answer, "index"), values(answer, "seq"), strict=True))


def check(answer: Any, table: Table, epoch_ms: int, reason: str, is_open: Callable[[str, int], bool]) -> None:
    """Checks that a reader sees the rows of a table, and of the encrypted columns exactly the open cells."""
    epochs = [time // epoch_ms for time, _ in table.rows]
    assert values(answer, "epoch") == epochs, table
    schema = pyarrow.table(answer).schema
    for place, column in enumerate(table.columns):
        sealed = [cells[place][1] for _, cells in table.rows]
        is_seen = [not column.suite or is_open(column.name, epoch) for epoch in epochs]
        expected = [cell if seen else None for cell, seen in zip(sealed, is_seen, strict=True)]
        # A point that is null has no coordinates.
        found = [None if cell == {"lat": None, "lon": None} else cell for cell in values(answer, column.name)]
        assert found == expected, column.spec
        metadata = schema.field(column.name).metadata or {}
        assert metadata.get(b"moteseal.withheld") == (None if all(is_seen) else reason.encode()), column.spec


def of_scheme(home: RandomHome, scheme: str) -> Iterable[Table]:
    return (table for table in home.tables if table.scheme == scheme)


@pytest.mark.parametrize("scheme", ["star", "tree"])
def test_a_reader_sees_the_cells_that_it_was_granted_and_the_owner_sees_all(
    scene: tuple[RandomHome, str], scheme: str, tmp_path: Path
) -> None:
    home, url = scene
    trust: tuple[Path, Path] = (home.roster, home.operator)
    client = moteseal.Client(url, roster=home.roster, operator=home.operator, pinned_seals=False)
    for table in of_scheme(home, scheme):
        name, proof = table.device, tmp_path / f"{table.device}.mproof"
        of_owner: dict[str, Any] = {"stream_secrets": {name: home.secret(name)}}
        of_reader: dict[str, Any] = {"grants": home.grant(name), "identity": home.folder / "reader.txt"}
        whole = client.get(name, rate=1, proof=proof, **of_owner)
        check(whole, table, home.epoch_ms, "", lambda *_: True)
        online = client.get(name, rate=1, **of_reader)
        offline = moteseal.verify(proof, *trust, pinned_seals=False, **of_reader).answer
        for answer in (online, offline):
            check(answer, table, home.epoch_ms, "NotCovered", table.is_granted)
        check(client.get(name, rate=1), table, home.epoch_ms, "Encrypted", lambda *_: False)

        # A sample has rows of the table, with the same cells.
        sample = client.get(name, rate="1/2", **of_owner)
        rows = {place: row for row, place in enumerate(places(whole))}
        for column in table.columns:
            cells = values(whole, column.name)
            assert values(sample, column.name) == [cells[rows[place]] for place in places(sample)]


def test_bundles_verify_without_a_key_and_hold_no_plaintext(scene: tuple[RandomHome, str]) -> None:
    home, _ = scene
    bundles = sorted(home.bundles.iterdir())
    reports = moteseal.verify(bundles, home.roster, home.operator, pinned_seals=False).bundles
    found = {report.name: report.events for report in reports}
    assert found == {table.device: len(table.rows) for table in home.tables}
    stored = b"".join(path.read_bytes() for path in bundles)
    for table in home.tables:
        for place, column in enumerate(table.columns):
            texts = {cells[place][0] for _, cells in table.rows if len(cells[place][0].encode()) > 11}
            if column.kind.startswith("text"):
                hits = sum(text.encode() in stored for text in texts)
                assert hits == (0 if column.suite else len(texts)), column.spec
