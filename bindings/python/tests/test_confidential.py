"""Checks which encrypted columns a reader sees with which keys, and that the others are null with a reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from home import run
from owned import OwnedHome

import moteseal

# Identities of readers, made with age-keygen for this test.
READER = (
    "AGE-SECRET-KEY-1PDZTJFU4V4DUS5RDH4AT46ERR2QWHNVZ98FP85XCSTK2A58MDV5SNEW8WE",
    "age1dcdjy4mse4tegkvakxgt4tnxznyyct63wec5tvlg9n5xtmv2g5rqzp402p",
)
OTHER = (
    "AGE-SECRET-KEY-1YH9CFE5NK6XX66KZGW5UX70G75FSYFJ9JMKR7XQLPCP0AAJQYDUQZ6XL4V",
    "age1fpelxdexthr8a2z9wxk5u8gnfqazs3dlwp2g2pvtjucfxemlcdeqn3zydz",
)
SPECS = ["temperature:Cel:i16/100!", "humidity:%RH:u16/100!aes"]
COLUMNS = ["temperature", "humidity"]


@dataclass
class Owned:
    """A home with an owner, and a cloud with its readings."""

    home: OwnedHome
    url: str

    @property
    def client(self) -> moteseal.Client:
        return moteseal.Client(self.url, roster=self.home.roster, operator=self.home.operator, pinned_seals=False)

    def grant(self, name: str, columns: str, until: str = "2010-05-10") -> Path:
        """Makes a grant of columns of dev1 for READER."""
        path = self.home.folder / f"{name}.mgrant"
        if not path.exists():
            what = ["--device", "dev1", "--columns", columns, "--since", "2010-05-09", "--until", until]
            owner = self.home.folder / "alice.owner"
            run("grant", "make", "--owner", owner, *what, "--to", READER[1], "--out", path, *self.home.trust_options)
        return path

    def grant_of_words(self) -> Path:
        """Makes a grant of the temperature of dev1 for the passphrase "open sesame"."""
        path = self.home.folder / "words.mgrant"
        if not path.exists():
            (self.home.folder / "words.txt").write_text("open sesame\n")
            what = ["--device", "dev1", "--columns", "temperature", "--since", "2010-05-09", "--until", "2010-05-10"]
            owner = self.home.folder / "alice.owner"
            to: list[str | Path] = ["--passphrase-file", self.home.folder / "words.txt"]
            run("grant", "make", "--owner", owner, *what, *to, "--out", path, *self.home.trust_options)
        return path

    @property
    def identity(self) -> Path:
        return self.home.folder / "reader.txt"

    @property
    def secrets(self) -> dict[str, Path]:
        return {name: self.home.folder / f"{name}.stream.key" for name in ("dev1", "dev2")}


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owned]:
    home = OwnedHome(tmp_path_factory.mktemp("owned"), SPECS)
    (home.folder / "reader.txt").write_text(READER[0] + "\n")
    (home.folder / "other.txt").write_text(OTHER[0] + "\n")
    with home.cloud() as url:
        yield Owned(home, url)


@pytest.fixture
def plain(client: moteseal.Client) -> Any:
    """The same readings as a table, sealed without encryption."""
    return pyarrow.table(client.get(rate=1))


def withheld(table: Any, column: str) -> bytes | None:
    found = table.schema.field(column).metadata.get(b"moteseal.withheld")
    assert found is None or isinstance(found, bytes)
    return found


def test_an_owner_reads_the_rows_that_were_sealed(owned: Owned, plain: Any) -> None:
    table = pyarrow.table(owned.client.get(rate=1, stream_secrets=owned.secrets))
    assert table.num_rows == plain.num_rows > 0
    for column in ("epoch", "device", "seq", *COLUMNS):
        assert table[column].to_pylist() == plain[column].to_pylist(), column
    assert [withheld(table, column) for column in COLUMNS] == [None, None]


def test_columns_without_a_key_are_null_with_the_reason(owned: Owned, plain: Any) -> None:
    answer = owned.client.get(rate=1)
    table = pyarrow.table(answer)
    assert table.num_rows == plain.num_rows and answer.complete
    for column in COLUMNS:
        assert table[column].null_count == table.num_rows and withheld(table, column) == b"Encrypted"
    for device in answer.report.to_dict()["devices"]:
        found = [(entry["column"], entry["reason"]) for entry in device["withheld"]]
        assert found == [(column, "Encrypted") for column in COLUMNS]


def test_a_grant_opens_its_column_and_range_only(owned: Owned, plain: Any) -> None:
    grant = owned.grant("warm", "temperature", "2010-05-09T12:00:00Z")
    answer = owned.client.get("dev1", rate=1, grants=grant, identity=owned.identity)
    table = pyarrow.table(answer)
    last = owned.client.roster.epoch_of(1273406400000)
    expected = [row for row in plain.to_pylist() if row["device"] == "dev1"]
    for row, sealed in zip(table.to_pylist(), expected, strict=True):
        assert row["temperature"] == (sealed["temperature"] if row["epoch"] < last else None)
        assert row["humidity"] is None
    assert 0 < table["temperature"].null_count < table.num_rows
    assert [withheld(table, column) for column in COLUMNS] == [b"NotCovered", b"NotCovered"]


def test_several_grants_open_several_columns(owned: Owned, plain: Any) -> None:
    grants: list[str | Path] = [owned.grant("warm-day", "temperature"), str(owned.grant("damp", "humidity"))]
    table = pyarrow.table(owned.client.get("dev1", rate="1/8", grants=grants, identity=str(owned.identity)))
    sealed = {(row["epoch"], row["seq"]): row for row in plain.to_pylist() if row["device"] == "dev1"}
    assert table.num_rows > 0
    for row in table.to_pylist():
        expected = sealed[(row["epoch"], row["seq"])]
        assert all(row[column] == expected[column] for column in COLUMNS)


def test_grants_for_an_identity_and_for_a_passphrase_open_together(owned: Owned, plain: Any) -> None:
    keys: dict[str, Any] = {"grants": [owned.grant_of_words(), owned.grant("damp", "humidity")]}
    keys |= {"identity": owned.identity, "passphrase": "open sesame"}
    table = pyarrow.table(owned.client.get("dev1", rate=1, **keys))
    sealed = [row for row in plain.to_pylist() if row["device"] == "dev1"]
    assert len(sealed) == table.num_rows > 0
    for column in COLUMNS:
        assert table[column].to_pylist() == [row[column] for row in sealed]


def test_a_proof_is_decrypted_offline(owned: Owned, tmp_path: Path) -> None:
    proof = tmp_path / "p.mproof"
    owned.client.get("dev1", rate=1, proof=proof)
    trust = (owned.home.roster, owned.home.operator)
    grant = owned.grant("warm-day", "temperature")
    keys: dict[str, Any] = {"grants": [grant], "identity": owned.identity}
    opened = moteseal.verify(proof, *trust, pinned_seals=False, **keys).answer
    closed = moteseal.verify(proof, *trust, pinned_seals=False).answer
    assert pyarrow.table(opened)["temperature"].null_count == 0
    assert withheld(pyarrow.table(closed), "temperature") == b"Encrypted"
    with pytest.raises(ValueError, match="bundles are verified without keys"):
        moteseal.verify(next(owned.home.bundles.iterdir()), *trust, **keys)


def test_an_estimate_needs_the_keys_of_its_column(owned: Owned, client: moteseal.Client) -> None:
    keys: dict[str, Any] = {"grants": owned.grant("warm-day", "temperature"), "identity": owned.identity}
    mean = owned.client.estimate("temperature", "dev1", rate=1, **keys).mean()
    assert mean.value == client.estimate("temperature", "dev1", rate=1).mean().value
    for column, given in (("temperature", {}), ("humidity", keys)):
        with pytest.raises(moteseal.UsageError) as caught:
            owned.client.estimate(column, "dev1", rate=1, **given)
        assert caught.value.name == "ColumnEncrypted" and column in str(caught.value)


def test_a_proof_does_not_replace_a_grant(owned: Owned) -> None:
    grant = owned.grant("warm-day", "temperature")
    before = grant.read_bytes()
    with pytest.raises(moteseal.BadFile, match="would replace"):
        owned.client.get("dev1", rate=1, grants=grant, identity=owned.identity, proof=grant)
    assert grant.read_bytes() == before


def test_keys_that_cannot_be_used_raise(owned: Owned, tmp_path: Path) -> None:
    grant, identity = owned.grant("warm-day", "temperature"), owned.identity
    grant_of_words = owned.grant_of_words()
    broken, missing = tmp_path / "broken.mgrant", tmp_path / "missing"
    broken.write_bytes(grant.read_bytes()[:-1])
    cases: list[tuple[dict[str, Any], type[Exception], str, str]] = [
        ({"grants": grant}, ValueError, "", "give grants with the identity or the passphrase"),
        ({"identity": identity}, ValueError, "", "give grants with the identity or the passphrase"),
        ({"passphrase": "open sesame"}, ValueError, "", "give grants with the identity or the passphrase"),
        ({"grants": grant, "passphrase": ""}, ValueError, "", "passphrase: the passphrase is empty"),
        ({"grants": grant, "passphrase": 5}, TypeError, "", "passphrase: expected a str"),
        ({"grants": grant, "passphrase": "open sesame"}, moteseal.UsageError, "OtherKeyKind", "for an identity"),
        ({"grants": grant_of_words, "identity": identity}, moteseal.UsageError, "OtherKeyKind", "with a passphrase"),
        ({"grants": grant_of_words, "passphrase": "other"}, moteseal.UsageError, "NoMatchingKey", "words.mgrant"),
        ({"grants": 5, "identity": identity}, TypeError, "", "grants: expected a path"),
        ({"grants": b"x", "identity": identity}, TypeError, "", "grants: expected a path"),
        ({"stream_secrets": "x"}, TypeError, "", "stream_secrets: expected a dict"),
        ({"stream_secrets": {"dev1": 5}}, TypeError, "", "stream_secrets: expected a dict"),
        ({"stream_secrets": {"dev9": identity}}, moteseal.UnknownDevice, "UnknownDevice", "dev9"),
        ({"stream_secrets": {"dev1": identity}}, moteseal.UsageError, "MalformedKey", "reader.txt"),
        ({"grants": grant, "identity": grant}, moteseal.UsageError, "BadFile", "not UTF-8"),
        ({"grants": grant, "identity": missing}, moteseal.UsageError, "BadFile", "missing"),
        ({"grants": broken, "identity": identity}, moteseal.UsageError, "Damaged", "broken.mgrant"),
        (
            {"grants": grant, "identity": owned.home.folder / "other.txt"},
            moteseal.UsageError,
            "NoMatchingKey",
            "warm-day.mgrant",
        ),
    ]
    for keys, kind, name, text in cases:
        with pytest.raises(kind) as caught:
            owned.client.get("dev1", rate=1, **keys)
        assert text in str(caught.value), str(caught.value)
        assert getattr(caught.value, "name", "") == name
