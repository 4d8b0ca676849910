"""Checks that `get` returns the requested rows, and that each data frame library imports them."""

from __future__ import annotations

import csv
import io
from datetime import date, datetime, timedelta, timezone
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars
import pyarrow
import pytest
from home import Home, run

import moteseal


def rows_of_the_command(url: str, home: Home, *arguments: str) -> list[dict[str, str]]:
    """Returns the output of `moteseal get --format csv`, with which the tests compare Python's
    rows."""
    text = run("get", "--from", url, *home.trust_options, "--no-pinned-seals", "--format", "csv", *arguments)
    return list(csv.DictReader(io.StringIO(text)))


def same_rows(answer: moteseal.Answer, expected: list[dict[str, str]]) -> None:
    found = pyarrow.table(answer).to_pylist()
    assert len(found) == len(expected) == len(answer) > 0
    for row, text in zip(found, expected, strict=True):
        assert list(row) == list(text)
        for name, value in row.items():
            if isinstance(value, datetime):
                assert value == datetime.fromisoformat(text[name])
            elif isinstance(value, float):
                assert value == float(text[name]), name
            else:
                assert str(value) == text[name], name


SEED = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"


@pytest.mark.parametrize(
    ("asked", "arguments"),
    [
        ({"rate": "1/8"}, ["--rate", "1/8"]),
        ({"rate": 1}, ["--rate", "1"]),
        ({"rate": "3/16", "devices": ["dev1"]}, ["dev1", "--rate", "3/16"]),
        ({"at_most": 40}, ["--at-most", "40"]),
        ({"sample": 25, "seed": SEED, "devices": "dev2"}, ["dev2", "--sample", "25", "--seed", SEED]),
        (
            {"rate": 0.25, "since": "2010-05-09T10:30:00Z", "until": "2010-05-09T13:00:00Z"},
            ["--rate", "0.25", "--since", "2010-05-09T10:30:00Z", "--until", "2010-05-09T13:00:00Z"],
        ),
    ],
)
def test_rows_equal_those_of_the_command_line(
    client: moteseal.Client, cloud: str, home: Home, asked: dict[str, Any], arguments: list[str]
) -> None:
    same_rows(client.get(**asked), rows_of_the_command(cloud, home, *arguments))


def test_every_kind_of_data_frame_imports_an_answer(client: moteseal.Client) -> None:
    answer = client.get(rate="1/8")
    columns = ["epoch", "epoch_start", "device", "index", "seq", "temperature", "humidity"]
    assert answer.column_names == columns
    table = pyarrow.table(answer)
    assert table.column_names == columns and table.num_rows == len(answer)
    assert table.schema.field("temperature").metadata == {b"unit": b"Cel", b"divisor": b"100", b"offset": b"0"}
    assert table.schema.field("epoch_start").type == pyarrow.timestamp("ms", "UTC")
    frame = polars.DataFrame(answer)
    assert frame.columns == columns and frame.height == len(answer)
    assert answer.to_polars().equals(frame)
    # Polars and pyarrow read the same values.
    assert frame.to_arrow()["temperature"].to_pylist() == table["temperature"].to_pylist()
    pandas = pytest.importorskip("pandas")
    again = answer.to_pandas()
    assert isinstance(again, pandas.DataFrame) and list(again["seq"]) == table["seq"].to_pylist()


def test_the_columns_are_shared_and_not_copied(client: moteseal.Client) -> None:
    answer = client.get(rate=1)
    one, other = pyarrow.table(answer), pyarrow.table(answer)

    def addresses(table: Any) -> list[int]:
        chunks = [chunk for column in table.columns for chunk in column.chunks]
        return [buffer.address for chunk in chunks for buffer in chunk.buffers() if buffer is not None]

    assert addresses(one) == addresses(other) and addresses(one)
    # The columns remain valid after the answer is deleted.
    temperatures = one["temperature"].to_pylist()
    del answer, other
    assert one["temperature"].to_pylist() == temperatures


def test_times_in_every_form_are_the_same_time(client: moteseal.Client) -> None:
    start = datetime(2010, 5, 9, 11, tzinfo=timezone.utc)
    expected = pyarrow.table(client.get(since=start, rate=1))
    assert expected.num_rows < len(client.get(rate=1))
    elsewhere = timezone(timedelta(hours=5, minutes=30))
    for since in (
        "2010-05-09T11:00:00Z",
        "2010-05-09T13:00:00+02:00",
        int(start.timestamp()) * 1000,
        start.astimezone(elsewhere),
        start + timedelta(minutes=59, seconds=59, microseconds=999_999),
    ):
        assert pyarrow.table(client.get(since=since, rate=1)).equals(expected), since
    # A date means the start of that day. The end of a range is rounded up to a whole epoch.
    assert len(client.get(since=date(2010, 5, 9), rate=1)) == len(client.get(since="2010-05-09", rate=1)) == len(client.get(rate=1))
    touched = client.get("dev1", until=start + timedelta(microseconds=1), rate=1)
    assert touched.report.devices[0].epochs == client.get("dev1", until=start, rate=1).report.devices[0].epochs + 1


def test_rates_in_every_form_are_the_same_rate(client: moteseal.Client) -> None:
    for rate in ("1/8", "0.125", 0.125, Fraction(1, 8)):
        assert client.get(rate=rate).query["rate"] == "1/8", rate


def test_a_sample_without_a_seed_draws_one_that_repeats_it(client: moteseal.Client) -> None:
    drawn = client.get("dev2", sample=10)
    seed = drawn.query["sample"]["seed"]
    assert pyarrow.table(client.get("dev2", sample=10, seed=seed)).equals(pyarrow.table(drawn))
    assert pyarrow.table(client.get("dev2", sample=10, seed=bytes.fromhex(seed))).equals(pyarrow.table(drawn))
    assert client.get("dev2", sample=10).query["sample"]["seed"] != seed


def test_single_readings_are_rows_by_their_seal_and_place(client: moteseal.Client) -> None:
    every = pyarrow.table(client.get("dev2", rate=1)).to_pylist()
    answer = client.get("dev2", readings=[(1, 7), (0, 3, 2)])
    assert answer.query["readings"] == [[0, 3, 2], [1, 7, 1]]
    wanted = {(0, 3), (0, 4), (1, 7)}
    found = pyarrow.table(answer).to_pylist()
    assert found == [row for row in every if (row["index"], row["seq"]) in wanted] and len(found) == 3


def test_a_reading_that_does_not_exist_raises(client: moteseal.Client) -> None:
    for readings in ([(0, 100_000)], [(4000, 0)]):
        with pytest.raises(moteseal.UsageError) as caught:
            client.get("dev2", readings=readings)
        assert caught.value.name == "ReadingUnavailable"


def test_a_report_equals_that_of_the_command_line(client: moteseal.Client, cloud: str, home: Home, tmp_path: Path) -> None:
    answer = client.get(["dev2", "dev1"], rate="1/8")
    report = answer.report
    assert answer.complete and report.complete and report.rows == len(answer)
    assert [device.name for device in report.devices] == ["dev2", "dev1"]
    for device in report.devices:
        assert (device.events, device.seals, device.epochs, device.lost, device.late) == (4417, 7, 7, 0, 0)
        assert device.standing == "TailUnknown" and device.complete and device.until is None
        assert device.complete_until == client.roster.epoch_of(1273420800000)
    import json

    output = run("get", "dev2", "dev1", "--from", cloud, *home.trust_options, "--no-pinned-seals", "--rate", "1/8", "--json", "-o", tmp_path / "x.csv")
    assert json.loads(output) == report.to_dict()


def test_an_unknown_end_raises(client: moteseal.Client) -> None:
    with pytest.raises(moteseal.TailUnknown) as caught:
        client.get(until="2030-01-01", rate="1/8")
    error = caught.value
    assert isinstance(error, moteseal.Incomplete) and error.kind == "incomplete" and error.device in ("dev1", "dev2")
    assert "2010-05-09T16:00:00Z" in str(error)
    # The readings up to the newest seal are verified, and the caller may accept them.
    allowed = client.get(until="2030-01-01", rate="1/8", allow_incomplete=True)
    assert isinstance(error.answer, moteseal.Answer)
    assert pyarrow.table(error.answer).equals(pyarrow.table(allowed)) and not allowed.complete
    with pytest.raises(moteseal.TailUnknown):
        allowed.require_complete()


def test_a_range_without_readings_is_an_empty_table(client: moteseal.Client) -> None:
    answer = client.get(since="2009-01-01", until="2009-01-02", rate=1, allow_incomplete=True)
    assert len(answer) == 0 and pyarrow.table(answer).num_rows == 0
    assert pyarrow.table(answer).column_names[:5] == ["epoch", "epoch_start", "device", "index", "seq"]


@pytest.mark.parametrize(
    ("asked", "kind", "text"),
    [
        ({}, ValueError, "amount is missing"),
        ({"rate": 1, "at_most": 3}, ValueError, "exclude each other"),
        ({"rate": 2}, ValueError, "rate: 2/1"),
        ({"rate": "fast"}, ValueError, "rate: fast"),
        ({"rate": True}, TypeError, "rate: expected"),
        ({"rate": None, "at_most": 0}, ValueError, "at_most"),
        ({"at_most": "x"}, TypeError, "at_most"),
        ({"rate": 1, "readings": [(0, 1)]}, ValueError, "exclude each other"),
        ({"readings": [1]}, TypeError, "readings: expected a list of (index, seq)"),
        ({"readings": [(0, 1, 2), (0, 2)], "devices": "dev2"}, ValueError, "name every reading once"),
        ({"sample": 5, "seed": "abc"}, ValueError, "seed: expected 32 bytes"),
        ({"sample": 5, "seed": 7}, TypeError, "seed: expected"),
        ({"rate": 1, "seed": SEED}, ValueError, "seed"),
        ({"rate": 1, "devices": 5}, TypeError, "devices: expected a device's name or an iterable of names, got int"),
        ({"rate": 1, "devices": [b"dev1"]}, TypeError, "devices: expected"),
        ({"rate": 1, "devices": b"dev1"}, TypeError, "devices: expected"),
        ({"rate": 1, "since": datetime(2010, 5, 9)}, ValueError, "since: the datetime has no time zone"),
        ({"rate": 1, "until": "yesterday"}, ValueError, "until: \"yesterday\" is not a time"),
        ({"rate": 1, "since": "2010-05-09T10:00:00"}, ValueError, "since"),
        ({"rate": 1, "since": -1}, ValueError, "since: times before 1970"),
        ({"rate": 1, "since": 1.5}, TypeError, "since: expected"),
        ({"rate": 1, "since": True}, TypeError, "since: expected"),
        ({"rate": 1, "since": "2010-05-10", "until": "2010-05-09"}, moteseal.BadQuery, "until must be after since"),
        ({"rate": 1, "devices": ["dev1", "dev1"]}, moteseal.BadQuery, "device dev1 is named twice"),
        ({"rate": 1, "devices": []}, moteseal.BadQuery, "no device is given"),
        ({"rate": 1, "devices": "dev9"}, moteseal.UnknownDevice, "\"dev9\"; it has dev1, dev2"),
    ],
)
def test_invalid_arguments_raise(client: moteseal.Client, asked: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as caught:
        client.get(**asked)
    assert text in str(caught.value)


def test_a_sample_of_a_star_raises(client: moteseal.Client) -> None:
    with pytest.raises(moteseal.UsageError) as caught:
        client.get("dev1", sample=10)
    assert caught.value.kind == "usage" and caught.value.name == "SchemeMismatch" and isinstance(caught.value, ValueError)


def test_nulls_and_typed_values_are_those_of_python(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    table = tmp_path / "typed.csv"
    table.write_text(
        "ts,temperature,door,mode,note,seen,place\n"
        '2026-01-01T00:00:00Z,21.5,true,on,"a, b",2026-01-01T00:00:00.25Z,"59.33,18.07"\n'
        "2026-01-01T00:01:00Z,,,,,,\n"
    )
    specs = [
        "temperature:Cel:i16/100?",
        "door::bool?",
        "mode::enum(off,on)?",
        "note::text20?",
        "seen::timestamp?",
        "place::point?#9",
    ]
    columns = [part for spec in specs for part in ("--column", spec)]
    keys: list[str | Path] = ["--device", "dev1", "--key", home.folder / "dev1.key.pem"]
    run("seal", table, "--time", "ts", *columns, *keys, *home.trust_options, "--out", home.bundles)
    with home.cloud() as url:
        client = moteseal.Client(url, roster=home.roster, operator=home.operator, pinned_seals=False)
        answer = client.get("dev1", since="2026-01-01", rate=1)
        mean = client.estimate("temperature", devices="dev1", since="2026-01-01", rate=1)
        assert (mean.mean().value, mean.sampled, mean.nulls) == (21.5, 2, 1)
    found = pyarrow.table(answer)
    assert found.schema.field("place").metadata[b"id"] == b"9"
    first, second = (list(row.values())[5:] for row in found.to_pylist())
    seen = datetime(2026, 1, 1, 0, 0, 0, 250_000, tzinfo=timezone.utc)
    assert first == [21.5, True, "on", "a, b", seen, {"lat": 59.33, "lon": 18.07}]
    assert second == [None] * 6
    frame = polars.DataFrame(answer)
    assert frame["door"].to_list() == [True, None] and frame["mode"].to_list() == ["on", None]
