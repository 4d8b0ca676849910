"""Checks that private sums in Python are exact, with three motes, two gateways and Mosquitto as
separate processes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from home import moteseal as command
from home import run

import moteseal

MOTES = ["mote0", "mote1", "mote2"]
QUERY = "SELECT SUM(reading), COUNT(*), AVG(reading) FROM sensors WHERE reading > 0 EPOCH DURATION 1s"
# Time limit of one step, in seconds. A step that works takes much less.
LONG = 180.0


@contextlib.contextmanager
def broker(folder: Path) -> Iterator[int]:
    """Runs Mosquitto on a free port, and yields the port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    config = folder / "mosquitto.conf"
    config.write_text(f"user root\nmax_queued_messages 0\nset_tcp_nodelay true\nlistener {port} 127.0.0.1\nallow_anonymous true\n")
    program = "/usr/sbin/mosquitto" if Path("/usr/sbin/mosquitto").exists() else "mosquitto"
    process = subprocess.Popen([program, "-c", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + LONG
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert time.monotonic() < deadline, "mosquitto did not start"
            time.sleep(0.01)
        yield port
    finally:
        process.kill()
        process.wait()


class Group:
    """The files of an aggregation tree: three motes are the children of gw-a, and gw-a is a child
    of root. The querier's file is querier.toml."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[str]] = {}
        keys = folder / "keys"
        for name in ("op", "coordinator", "q", *MOTES):
            run("key", "new", "--out", keys / name)
        self.trust_options: list[str | Path] = ["--roster", folder / "roster.cbor", "--operator", keys / "op.pub.pem"]
        budget: list[str | Path] = ["--budget", "1000", "--coordinator", keys / "coordinator.pub.pem"]
        devices: list[str | Path] = [part for name in MOTES for part in ("--device", f"{name}={keys / name}.pub.pem")]
        group = ["--group", "sums", "--epoch", "1h", "--levels", "16"]
        run("roster", "new", "--operator", keys / "op.key.pem", *group, *budget, *devices, "--out", folder / "roster.cbor")
        (folder / "tree.toml").write_text(
            '[gateways]\nroot = "querier"\ngw-a = "root"\n\n[devices]\n' + "".join(f'{name} = "gw-a"\n' for name in MOTES)
        )
        for name in ("link.key", "querier.children.key", "root.children.key", "gw-a.children.key"):
            run("key", "link", "--out", keys / name)
        self.made = moteseal.sums.setup(
            folder / "roster.cbor", keys / "op.pub.pem", querier=keys / "q.pub.pem", out=folder / "sumkeys"
        )
        link = f'[link]\nurl = "mqtt://127.0.0.1:{port}"\n'
        common = 'roster = "roster.cbor"\noperator = "keys/op.pub.pem"\n'

        def secret(aggregator: str, kind: str, name: str, out: str) -> str:
            run("key", "link", "--group-secret", keys / f"{aggregator}.key", f"--{kind}", name, *self.trust_options, "--out", keys / f"{out}.key")
            return f'"keys/{out}.key"'

        for gateway, parent in (("root", "querier"), ("gw-a", "root")):
            (folder / f"{gateway}.toml").write_text(
                f'name = "{gateway}"\n{common}querier = "keys/q.pub.pem"\ntree = "tree.toml"\nstate = "{gateway}"\ngrace = "1s"\n'
                f'link_secret = "keys/{gateway}.children.key"\nup_secret = {secret(f"{parent}.children", "gateway", gateway, f"{gateway}.up")}\n{link}'
            )
        for name in MOTES:
            (folder / f"{name}.toml").write_text(
                f'device = "{name}"\nkey = "keys/{name}.key.pem"\n{common}state = "{name}"\n'
                f'link_secret = {secret("link", "device", name, f"{name}.link")}\n{link}[source]\ncolumns = ["reading::u32"]\n'
                f'[sum]\nkey = "sumkeys/{name}.sum.key"\nparent = "gw-a"\n'
                f'link_secret = {secret("gw-a.children", "device", name, f"{name}.sum-link")}\n'
            )
        (folder / "querier.toml").write_text(
            f'{common}key = "keys/q.key.pem"\nkeys = "sumkeys/querier.sum.key"\ntree = "tree.toml"\nstate = "querier.state"\n'
            f'link_secret = "keys/querier.children.key"\ncolumns = ["reading::u32"]\ngrace = "1s"\n{link}[ranges]\nreading = "0..1000"\n'
        )

    def start(self) -> None:
        for name in ("root", "gw-a"):
            self.process(name, "gateway", "sum")
        for name in MOTES:
            self.process(name, "device", "run")

    def process(self, name: str, *words: str) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [command(), *words, "--config", self.folder / f"{name}.toml"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                text=True,
                cwd=self.folder,
            )

    def feed(self, over: threading.Event) -> None:
        """Makes mote i report the reading 2^i several times per epoch, so that a sum shows which
        motes took part in it."""
        while not over.wait(0.15):
            for number, name in enumerate(MOTES):
                stdin = self.processes[name].stdin
                assert stdin is not None
                with contextlib.suppress(OSError):
                    stdin.write(f"{1 << number}\n")
                    stdin.flush()

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()

    def logs(self) -> str:
        return "\n".join(f"== {path.name}\n{path.read_text()[-2000:]}" for path in sorted(self.folder.glob("*.log")))


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    folder = tmp_path_factory.mktemp("sums")
    over = threading.Event()
    with broker(folder) as port:
        group = Group(folder, port)
        feeder = threading.Thread(target=group.feed, args=(over,), daemon=True)
        try:
            group.start()
            feeder.start()
            yield group
        finally:
            over.set()
            if feeder.is_alive():
                feeder.join()
            group.end()


def test_sums_are_exact_over_the_named_sources(group: Group) -> None:
    querier = moteseal.sums.Querier.from_toml(group.folder / "querier.toml")
    deadline = time.monotonic() + LONG
    whole = 0
    with querier.ask(QUERY, floor=2, min_count=1) as rows:
        assert (rows.floor, rows.sources, rows.missed, len(rows.query)) == (2, 3, None, 32)
        for row in rows:
            assert time.monotonic() < deadline, group.logs()
            assert row.sources == 3 and row.duration_ms == 1000 and row.query == rows.query
            if not row.accepted:
                # All nodes are honest: the only reason for a missing result is that too few devices
                # answered in time, because they do not know the query yet or because the machine is
                # busy.
                assert isinstance(row.error, moteseal.BelowFloor), row
                with pytest.raises(moteseal.Incomplete):
                    row["COUNT(*)"]
                continue
            total, count = row["SUM(reading)"], row["COUNT(*)"]
            assert isinstance(total, Decimal) and isinstance(count, Decimal)
            named = 7 & ~sum(1 << MOTES.index(name) for name in (*row.silent, *row.unheard))
            assert row.participants == named.bit_count() >= 2
            assert int(total).bit_count() == count and int(total) & ~named == 0
            if count:
                assert row["AVG(reading)"] == (total / count).quantize(Decimal("0.0001"))
            whole += int(total) == 7
            if whole == 2:
                break
    assert rows.missed is not None and whole == 2
    # The query was withdrawn, so that there are no more rows.
    assert list(rows) == []


def test_bins_and_groups_have_types_of_their_own(group: Group) -> None:
    querier = moteseal.sums.Querier.from_toml(group.folder / "querier.toml")
    deadline = time.monotonic() + LONG
    query = "SELECT MAX(reading), HISTOGRAM(reading) FROM sensors EPOCH DURATION 1s"
    with querier.ask(query, floor=3, min_count=1) as rows:
        for row in rows:
            assert time.monotonic() < deadline, group.logs()
            if row.accepted and row.readings == 3:
                break
    # The readings are 1, 2 and 4, in the first of eight bins from 0 to 1000.
    greatest, histogram = row["MAX(reading)"], row["HISTOGRAM(reading)"]
    assert isinstance(greatest, moteseal.sums.Bin) and isinstance(histogram, moteseal.sums.Histogram)
    # MAX states only where the greatest reading is at most, if it is in the first bin.
    assert greatest == moteseal.sums.Bin(None, Decimal(125))
    assert [count for _, count in histogram.bins] == [3, 0, 0, 0, 0, 0, 0, 0] and histogram.within == 0
    assert row.privacy is None and row.groups is None
    query = "SELECT SUM(reading) FROM sensors GROUP BY reading (1, 2) EPOCH DURATION 1s"
    with querier.ask(query, floor=3, min_count=1) as rows:
        for row in rows:
            assert time.monotonic() < deadline, group.logs()
            if row.groups is not None and sum(one.readings or 0 for one in row.groups) == 2:
                break
    assert row.groups is not None
    found = {one.name: one.values and one.values["SUM(reading)"] for one in row.groups}
    assert found == {"1": 1, "2": 2}
    with pytest.raises(KeyError, match="GROUP BY"):
        row["SUM(reading)"]


def test_answers_with_noise_state_their_epsilon() -> None:
    found = {
        "query": "00" * 16, "epoch": 1, "start": "2027-01-15T08:00:00Z", "duration_ms": 1000, "participants": 9, "sources": 9,
        "silent": [], "unheard": [], "not_authentic": [], "masked": [], "readings": 9, "outside": 0,
        "results": {"COUNT(*)": {"value": "8", "within": "3"}, "MEDIAN(reading)": {"low": "1", "high": None}},
        "groups": None, "reasons": {"mote1": "BudgetSpent"}, "privacy": {"epsilon": "0.5", "delta": 1e-11}, "error": None,
    }  # fmt: skip
    row = moteseal.sums.Row._of(found)
    assert row["COUNT(*)"] == moteseal.sums.Noisy(Decimal(8), Decimal(3))
    assert row["MEDIAN(reading)"] == moteseal.sums.Bin(Decimal(1), None)
    assert row.privacy == moteseal.sums.Privacy(Decimal("0.5"), 1e-11) and row.reasons == {"mote1": "BudgetSpent"}


def test_too_few_participants_give_no_result(group: Group) -> None:
    group.processes["mote2"].send_signal(signal.SIGSTOP)
    try:
        querier = moteseal.sums.Querier.from_toml(group.folder / "querier.toml")
        rows = list(querier.ask(QUERY, epochs=2, floor=3, min_count=1))
    finally:
        group.processes["mote2"].send_signal(signal.SIGCONT)
    assert len(rows) == 2
    for row in rows:
        assert row.values is None and not row.accepted and row.participants < 3
        with pytest.raises(moteseal.Incomplete, match="BelowFloor"):
            row["SUM(reading)"]


def test_results_of_few_readings_are_withheld(group: Group) -> None:
    querier = moteseal.sums.Querier.from_toml(group.folder / "querier.toml")
    deadline = time.monotonic() + LONG
    with querier.ask(QUERY, floor=2) as rows:
        for row in rows:
            assert time.monotonic() < deadline, group.logs()
            # The group has three devices, and the default minimum is five readings.
            if isinstance(row.error, moteseal.BelowFloor):
                continue
            if not row.accepted:
                break
            assert row.readings == 0
    assert row.error is not None and row.error.name == "TooFewReadings" and row.readings is None
    with pytest.raises(moteseal.Incomplete, match="fewer than 5 readings"):
        row["COUNT(*)"]


def test_other_threads_continue_during_a_query(group: Group) -> None:
    querier = moteseal.sums.Querier.from_toml(group.folder / "querier.toml")
    beats: list[float] = []
    over = threading.Event()

    def beat() -> None:
        while not over.wait(0.01):
            beats.append(time.monotonic())

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        asked = querier.ask(QUERY, epochs=5, min_count=1)
        # Several queries can run at a time.
        other = querier.ask(QUERY, epochs=1, min_count=1)
        row = next(asked)
        other.close()
        asked.close()
    finally:
        over.set()
        thread.join()
    assert row.sources == 3 and len(beats) > 5 and asked.missed is not None
    querier.ask(QUERY, epochs=1).close()


def test_key_files_are_private_and_never_replaced(group: Group) -> None:
    assert group.made[0].name == "querier.sum.key" and {path.name for path in group.made[1:]} == {f"{name}.sum.key" for name in MOTES}
    for path in group.made:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    before = [path.read_bytes() for path in group.made]
    roster, operator = group.folder / "roster.cbor", group.folder / "keys/op.pub.pem"
    key = group.folder / "keys/q.key.pem"
    with pytest.raises(moteseal.BadFile, match="never replaced"):
        moteseal.sums.setup(roster, operator, querier=key, out=group.folder / "sumkeys")
    assert [path.read_bytes() for path in group.made] == before
    with pytest.raises(moteseal.UsageError, match="4 key groups"):
        moteseal.sums.setup(roster, operator, querier=key, out=group.folder / "more", key_groups=4)
    with pytest.raises(moteseal.UsageError, match="not a valid name of a querier"):
        moteseal.sums.setup(roster, operator, querier=key, out=group.folder / "more", name="a b")
    assert not (group.folder / "more").exists()
    # A further querier has a set-up of its own, and a tree with its name.
    made = moteseal.sums.setup(roster, operator, querier=key, out=group.folder / "more", name="alerts")
    assert len(made) == len(group.made) and made[0].read_bytes() != before[0]


def test_invalid_queries_raise(group: Group) -> None:
    querier = moteseal.sums.Querier.from_toml(group.folder / "querier.toml")
    for query, name in (
        ("SELECT AVG(pressure) FROM sensors EPOCH DURATION 1s", "UnknownColumn"),
        ("SELECT MODE(reading) FROM sensors EPOCH DURATION 1s", "UnknownAggregate"),
        ("SELECT AVG(reading) FROM sensors", "DurationMissing"),
        ("", "UnexpectedToken"),
    ):
        with pytest.raises(moteseal.UsageError) as caught:
            querier.ask(query)
        assert caught.value.name == name and isinstance(caught.value, ValueError)
    with pytest.raises(moteseal.UsageError, match="FloorOutOfRange"):
        querier.ask(QUERY, floor=1)
    with pytest.raises(ValueError, match="epochs"):
        querier.ask(QUERY, epochs=0)


def test_invalid_configurations_raise(group: Group, tmp_path: Path) -> None:
    text = (group.folder / "querier.toml").read_text()
    for old, new, kind, expected in (
        ("[link]", "[lnk]", moteseal.BadFile, "unknown field `lnk`"),
        ('grace = "1s"', 'grace = "soon"', moteseal.BadFile, "soon"),
        ("columns =", "colums =", moteseal.BadFile, "colums"),
        ("url =", "uri =", moteseal.BadFile, "uri"),
        ('key = "keys/q.key.pem"', 'key = "keys/op.key.pem"', moteseal.UsageError, "WrongQuerier"),
        ("0..1000", "0-1000", moteseal.UsageError, r'ranges\.reading: "0-1000": UsageError: a range is two numbers'),
        ("querier.children.key", "q.pub.pem", moteseal.BadFile, "64 hexadecimal digits"),
        ('reading = "0', 'pressure = "0', moteseal.UsageError, "pressure"),
    ):
        changed = group.folder / "changed.toml"
        changed.write_text(text.replace(old, new, 1))
        with pytest.raises(kind, match=expected):
            moteseal.sums.Querier.from_toml(changed).ask(QUERY)
    with pytest.raises(moteseal.BadFile, match="gone.toml"):
        moteseal.sums.Querier.from_toml(tmp_path / "gone.toml")


def test_a_dead_broker_is_unreachable(group: Group) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        text = (group.folder / "querier.toml").read_text()
        start = text.index("mqtt://")
        text = text[:start] + f"mqtt://127.0.0.1:{taken.getsockname()[1]}" + text[text.index('"', start) :]
        changed = group.folder / "dead.toml"
        changed.write_text(text.replace("querier.state", "other.state"))
        rows = moteseal.sums.Querier.from_toml(changed).ask(QUERY)
        with pytest.raises(moteseal.Unreachable):
            next(rows)
        assert list(rows) == []
