"""Checks that `get` fetches only the columns that are asked for, and that `redact` and `merge` leave columns,
devices and readings out of proofs and put them together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from home import Home, run
from owned import OwnedHome

import moteseal

# Group 0 has the humidity. The temperature is in a group of its own.
SPECS = ["humidity:%RH:u16/100", "temperature:Cel:i16/100!@1"]
COMMON = ["epoch", "epoch_start", "device", "index", "seq"]


@dataclass
class Grouped:
    """A home with column groups, and a cloud with its readings."""

    home: OwnedHome
    url: str

    @property
    def client(self) -> moteseal.Client:
        return moteseal.Client(self.url, roster=self.home.roster, operator=self.home.operator, pinned_seals=False)

    @property
    def secrets(self) -> dict[str, Path]:
        return {name: self.home.folder / f"{name}.stream.key" for name in ("dev1", "dev2")}

    @property
    def trust(self) -> tuple[Path, Path]:
        return (self.home.roster, self.home.operator)

    def rows(self, proof: Path) -> Any:
        """Returns the rows of a redacted proof."""
        secrets = self.secrets
        return pyarrow.table(
            moteseal.verify_proof(
                proof, *self.trust, pinned_seals=False, allow_incomplete=True, stream_secrets=secrets
            )
        )


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grouped]:
    home = OwnedHome(tmp_path_factory.mktemp("grouped"), SPECS)
    with home.cloud() as url:
        yield Grouped(home, url)


def without_encryption(table: Any) -> Any:
    return table.select([*COMMON, "humidity"])


@pytest.mark.parametrize("columns", ["humidity", ["temperature"], ("temperature", "humidity")])
def test_the_query_names_the_asked_columns(grouped: Grouped, columns: str | Iterable[str]) -> None:
    names = [columns] if isinstance(columns, str) else list(columns)
    answer = grouped.client.get("dev1", rate="1/8", columns=columns)
    assert answer.query["columns"] == names
    assert grouped.client.get("dev1", rate="1/8", columns=iter(names)).column_names == answer.column_names


def test_rows_equal_those_of_all_columns(grouped: Grouped, client: moteseal.Client, tmp_path: Path) -> None:
    plain = pyarrow.table(client.get(rate=1))
    whole = grouped.client.get(rate=1, stream_secrets=grouped.secrets, proof=tmp_path / "whole.mproof")
    size = (tmp_path / "whole.mproof").stat().st_size
    assert whole.column_names == [*COMMON, "humidity", "temperature"]
    for names in (["humidity"], ["temperature"], ["temperature", "humidity"]):
        proof = tmp_path / "some.mproof"
        answer = grouped.client.get(rate=1, columns=names, stream_secrets=grouped.secrets, proof=proof)
        assert answer.complete and answer.column_names == [*COMMON, *sorted(names)]
        table = pyarrow.table(answer)
        for name in (*COMMON, *names):
            if name != "index":
                assert table[name].to_pylist() == plain[name].to_pylist(), name
        # Group 0 is always sent. Without the temperature, a quarter of the bytes is enough.
        assert (proof.stat().st_size < 0.8 * size) == (names == ["humidity"])
        again = moteseal.verify(proof, *grouped.trust, pinned_seals=False, stream_secrets=grouped.secrets)
        assert again.answer is not None and pyarrow.table(again.answer).equals(table)


def test_asked_columns_need_no_keys_of_others(grouped: Grouped) -> None:
    table = pyarrow.table(grouped.client.get("dev1", rate=1, columns="humidity"))
    assert table["humidity"].null_count == 0 and "temperature" not in table.column_names
    table = pyarrow.table(grouped.client.get("dev1", rate=1, columns="temperature"))
    assert table["temperature"].null_count == table.num_rows > 0
    assert table.schema.field("temperature").metadata[b"moteseal.withheld"] == b"Encrypted"


def test_wrong_columns_raise(grouped: Grouped) -> None:
    cases: list[tuple[Any, type[Exception], str]] = [
        ("attic", moteseal.UsageError, "UnknownColumn"),
        (["humidity", "humidity"], moteseal.UsageError, "BadQuery"),
        ([], moteseal.UsageError, "no column is given"),
        (b"humidity", TypeError, "columns: expected a column's name"),
        (5, TypeError, "columns: expected a column's name"),
        ([5], TypeError, "columns: expected a column's name"),
    ]
    for columns, kind, text in cases:
        with pytest.raises(kind, match=text):
            grouped.client.get("dev1", rate=1, columns=columns)


def test_a_redacted_proof_has_nulls_for_the_columns_that_it_hides(grouped: Grouped, tmp_path: Path) -> None:
    whole, part, some, both = (tmp_path / f"{name}.mproof" for name in ("whole", "part", "some", "both"))
    table = pyarrow.table(grouped.client.get(rate=1, proof=whole, stream_secrets=grouped.secrets))
    report = moteseal.redact(whole, part, *grouped.trust, columns="humidity")
    assert report.rows == table.num_rows and not report.complete
    shown = grouped.rows(part)
    assert without_encryption(shown).equals(without_encryption(table))
    assert shown["temperature"].null_count == shown.num_rows
    assert shown.schema.field("temperature").metadata[b"moteseal.withheld"] == b"ColumnHidden"
    with pytest.raises(moteseal.Incomplete) as caught:
        moteseal.verify_proof(part, *grouped.trust, pinned_seals=False)
    assert caught.value.name == "Redacted"

    # A proof of some hours and one of few columns together have the rows of both.
    moteseal.redact(whole, some, *grouped.trust, devices="dev1", until="2010-05-09T12:00:00Z")
    fewer = grouped.rows(some)
    assert 0 < fewer.num_rows < table.num_rows and set(fewer["device"].to_pylist()) == {"dev1"}
    moteseal.merge([part, some], both, *grouped.trust)
    merged = grouped.rows(both)
    assert merged.num_rows == table.num_rows
    assert merged["temperature"].null_count == table.num_rows - fewer.num_rows


def test_single_readings_of_a_tree_are_kept(client: moteseal.Client, home: Home, tmp_path: Path) -> None:
    whole, few = tmp_path / "whole.mproof", tmp_path / "few.mproof"
    trust = (home.roster, home.operator)
    rows = pyarrow.table(client.get("dev2", rate=1, proof=whole)).to_pylist()
    index = rows[5]["index"]
    report = moteseal.redact(whole, few, *trust, devices=["dev2"], readings=[(index, 5), (index, 7, 2)])
    assert report.rows == 3
    left = moteseal.verify_proof(few, *trust, pinned_seals=False, allow_incomplete=True)
    assert pyarrow.table(left).to_pylist() == [rows[5], rows[7], rows[8]]
    moteseal.redact(whole, few, *trust, readings=[(None, 5)])
    left = moteseal.verify_proof(few, *trust, pinned_seals=False, allow_incomplete=True)
    assert pyarrow.table(left).to_pylist() == [row for row in rows if row["seq"] == 5]


def test_wrong_redactions_raise_and_write_nothing(grouped: Grouped, tmp_path: Path) -> None:
    whole, out, broken = (tmp_path / f"{name}.mproof" for name in ("whole", "out", "broken"))
    grouped.client.get(rate=1, proof=whole)
    before = whole.read_bytes()
    broken.write_bytes(before[:-40] + bytes([before[-40] ^ 1]) + before[-39:])
    cases: list[tuple[Path, dict[str, Any], type[Exception], str]] = [
        (whole, {"columns": ["humidity", "attic"]}, moteseal.UsageError, "UnknownColumn"),
        (whole, {"columns": []}, moteseal.UsageError, "no column is given"),
        (whole, {"devices": "dev9"}, moteseal.UnknownDevice, "dev9"),
        (whole, {"readings": []}, ValueError, "no reading is given"),
        (whole, {"readings": [(0, 1, 0)]}, ValueError, "at least one reading"),
        (whole, {"readings": [5]}, TypeError, "readings: expected a list"),
        (whole, {"since": "2011-01-01"}, moteseal.UsageError, "NothingLeft|nothing"),
        (tmp_path / "none", {}, moteseal.UsageError, "BadFile"),
        (broken, {}, moteseal.Refused, "broken.mproof"),
    ]
    for proof, keep, kind, text in cases:
        with pytest.raises(kind, match=text):
            moteseal.redact(proof, out, *grouped.trust, **keep)
    with pytest.raises(moteseal.BadFile, match="would replace"):
        moteseal.redact(whole, whole, *grouped.trust)
    with pytest.raises(moteseal.BadFile, match="would replace"):
        moteseal.merge([whole, broken], broken, *grouped.trust)
    with pytest.raises(ValueError, match="at least two proofs"):
        moteseal.merge([whole], out, *grouped.trust)
    assert not out.exists() and whole.read_bytes() == before


def test_the_program_and_the_package_write_the_same_proof(grouped: Grouped, tmp_path: Path) -> None:
    whole, one, other = (tmp_path / f"{name}.mproof" for name in ("whole", "one", "other"))
    grouped.client.get(rate="1/2", proof=whole)
    moteseal.redact(whole, one, *grouped.trust, columns=["humidity"], devices="dev2")
    keep = ["--columns", "humidity", "--drop", "--devices", "dev2"]
    run("redact", whole, *keep, "-o", other, *grouped.home.trust_options)
    assert one.read_bytes() == other.read_bytes()


def test_values_of_a_sanitiser_are_rejected_unless_they_are_accepted(grouped: Grouped, tmp_path: Path) -> None:
    whole, coarse = tmp_path / "whole.mproof", tmp_path / "coarse.mproof"
    own = pyarrow.table(grouped.client.get("dev1", rate=1, proof=whole, stream_secrets=grouped.secrets))
    run("key", "new", "--out", tmp_path / "gw")
    # The roster of the other tests stays without sanitisers.
    roster = tmp_path / "roster.cbor"
    roster.write_bytes(grouped.home.roster.read_bytes())
    signed: list[str | Path] = ["--roster", roster, "--operator", grouped.home.folder / "op.key.pem"]
    run("roster", "sanitiser", "gw", "--key", tmp_path / "gw.pub.pem", "--groups", "1", *signed)
    secret = f"dev1={grouped.secrets['dev1']}"
    trusted: list[str | Path] = ["--roster", roster, "--operator", grouped.home.operator]
    how: list[str | Path] = ["--to", "temperature:Cel:i8", "--key", tmp_path / "gw.key.pem", "--stream-secret", secret]
    run("sanitise", whole, *how, "--out", coarse, *trusted)

    trust: Any = (roster, grouped.home.operator)
    accepted = moteseal.verify(coarse, *trust, pinned_seals=False, accept_sanitised="gw").answer
    table = pyarrow.table(accepted)
    assert b"gw" in table.schema.field("temperature").metadata[b"moteseal.origin"]
    assert table["humidity"].to_pylist() == own["humidity"].to_pylist()
    pairs = zip(table["temperature"].to_pylist(), own["temperature"].to_pylist(), strict=True)
    assert table.num_rows > 0 and all(abs(coarse - exact) <= 0.5 for coarse, exact in pairs)

    with pytest.raises(moteseal.MotesealError) as caught:
        moteseal.verify(coarse, *trust, pinned_seals=False)
    assert caught.value.name == "ColumnSanitised" and "gw" in str(caught.value)
    with pytest.raises(ValueError, match="the roster names no sanitiser wg; its sanitisers are gw"):
        moteseal.verify(coarse, *trust, pinned_seals=False, accept_sanitised=["gw", "wg"])
    with pytest.raises(TypeError, match="accept_sanitised: expected a sanitiser's name"):
        moteseal.verify_proof(coarse, *trust, pinned_seals=False, accept_sanitised=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="bundles have no sanitised columns"):
        moteseal.verify(next(grouped.home.bundles.iterdir()), *trust, accept_sanitised="gw")
