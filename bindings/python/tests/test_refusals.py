"""Checks that the client returns no rows from a hostile cloud, with a wrong roster or from an
altered file, and that the exception identifies the fault."""

from __future__ import annotations

import re
import shutil
import socket
from pathlib import Path

import pytest
from home import Home, dishonest_cloud, run, warmer

import moteseal


@pytest.mark.parametrize(
    ("device", "name", "text"),
    [
        ("dev1", "BlockDigestMismatch", r"the events of level \d+ are not the ones that were sealed"),
        ("dev2", "PathMismatch", r"event \d+ is not what was sealed"),
    ],
)
def test_rejects_a_changed_reading_and_locates_it(cloud: str, home: Home, device: str, name: str, text: str) -> None:
    with dishonest_cloud(cloud, warmer) as url:
        client = moteseal.Client(url, roster=home.roster, operator=home.operator, pinned_seals=False)
        with pytest.raises(moteseal.Refused) as caught:
            client.get(device, rate=1)
    error = caught.value
    # The client then fetched the seals' explaining form, which the device has signed, and located
    # the epoch.
    assert error.kind == "refused" and error.name == name and error.refusal == "NotAuthentic"
    noon = client.roster.epoch_of(1273406400000)
    assert (error.device, error.index, error.epoch) == (device, 3, noon)
    located = rf"{name}: {text} \(device {device}, index 3, epoch {noon}\)"
    rejected = rf"NotAuthentic: .+ \(item \d+, device {device}, .+\)"
    assert re.fullmatch(f"{located}; {rejected}", str(error)), str(error)


def test_rejects_a_change_of_any_byte(cloud: str, home: Home) -> None:
    """Changes one bit of the response, at many places in turn, and checks that the client never
    returns wrong rows."""
    import pyarrow

    roster = moteseal.Roster(home.roster, home.operator)
    honest = pyarrow.table(moteseal.Client(cloud, roster=roster, pinned_seals=False).get("dev1", rate="1/8"))
    place = [0, 0]

    def alter(path: str, answer: bytes) -> bytes:
        if not path.endswith("/query"):
            return answer
        at = len(answer) * place[0] // 60
        return answer[:at] + bytes([answer[at] ^ (1 << place[1])]) + answer[at + 1 :]

    with dishonest_cloud(cloud, alter) as url:
        client = moteseal.Client(url, roster=roster, pinned_seals=False)
        for at in range(60):
            place[:] = [at, at % 8]
            try:
                rows = pyarrow.table(client.get("dev1", rate="1/8"))
            except (moteseal.Refused, moteseal.Incomplete):
                continue
            assert rows.equals(honest)
            pytest.fail(f"a changed bit at {at}/60 of the response was not detected")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_rejects_a_truncated_response(cloud: str, home: Home, share: float) -> None:
    def cut(path: str, honest: bytes) -> bytes:
        return honest[: int(len(honest) * share)] if path.endswith("/query") else honest

    with dishonest_cloud(cloud, cut) as url:
        client = moteseal.Client(url, roster=home.roster, operator=home.operator, pinned_seals=False)
        with pytest.raises(moteseal.Refused) as caught:
            client.get(rate="1/8")
        assert caught.value.name == "Truncated"


def test_rejects_bytes_after_the_response(cloud: str, home: Home) -> None:
    with dishonest_cloud(cloud, lambda path, honest: honest + b"\x00" if path.endswith("/query") else honest) as url:
        client = moteseal.Client(url, roster=home.roster, operator=home.operator, pinned_seals=False)
        with pytest.raises(moteseal.Refused):
            client.get(rate="1/8")


def test_refuses_an_earlier_version_of_the_roster_than_it_has_used(cloud: str, home: Home, tmp_path: Path) -> None:
    pins, later = tmp_path / "pinned.json", tmp_path / "later.cbor"
    operator = home.folder / "op.key.pem"
    run("roster", "set", "--roster", home.roster, "--operator", operator, "--levels", "12", "--from", "2030-01-01", "--out", later)
    proof = tmp_path / "early.mproof"
    first, second = (moteseal.Roster(roster, home.operator) for roster in (home.roster, later))
    report = moteseal.Client(cloud, roster=first, pinned_seals=pins).get("dev1", rate="1/8", proof=proof).report
    assert report.cloud_roster is None
    # A proof of an earlier version verifies with a later one, which is then the newest one.
    moteseal.verify_proof(proof, second, pinned_seals=pins, allow_incomplete=True)
    with pytest.raises(moteseal.UsageError, match="older than version 1") as caught:
        moteseal.Client(cloud, roster=first, pinned_seals=pins).get("dev1", rate="1/8")
    assert caught.value.name == "NotLater"
    with pytest.raises(moteseal.UsageError, match="older than version 1") as caught:
        moteseal.verify_proof(proof, first, pinned_seals=pins, allow_incomplete=True)
    assert caught.value.name == "NotLater"
    # The cloud still uses the first version.
    report = moteseal.Client(cloud, roster=second, pinned_seals=pins).get("dev1", rate="1/8").report
    assert report.cloud_roster == report.to_dict()["cloud_roster"] == 0


def test_reports_a_withheld_epoch_that_was_pinned(cloud: str, home: Home, tmp_path: Path) -> None:
    pins = tmp_path / "pinned.json"
    roster = moteseal.Roster(home.roster, home.operator)
    moteseal.Client(cloud, roster=roster, pinned_seals=pins).get("dev1", rate="1/8")
    with home.cloud(without=["dev1-0000000006.mseal"]) as url:
        with pytest.raises(moteseal.Missing) as caught:
            moteseal.Client(url, roster=roster, pinned_seals=pins).get("dev1", rate="1/8")
        error = caught.value
        assert isinstance(error, moteseal.Incomplete) and error.kind == "incomplete"
        assert (error.device, error.index) == ("dev1", 6)
        # Without a pinned seal, the client cannot detect this, but its report states where the data
        # ends. If the query states an end, the client detects that the data does not reach it.
        unpinned = moteseal.Client(url, roster=roster, pinned_seals=False)
        assert unpinned.get("dev1", rate="1/8").report.devices[0].seals == 6
        with pytest.raises(moteseal.TailUnknown):
            unpinned.get("dev1", rate="1/8", until="2010-05-09T16:00:00Z")


def test_a_dead_cloud_is_unreachable_and_not_refused(home: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        client = moteseal.Client(url, roster=home.roster, operator=home.operator, pinned_seals=False, patience=0)
        with pytest.raises(moteseal.Unreachable) as caught:
            client.get(rate="1/8")
    error = caught.value
    assert issubclass(moteseal.Unreachable, ConnectionError) and not isinstance(error, moteseal.Refused)
    assert error.kind == "unreachable" and error.url is not None and error.url.startswith(url)


def test_a_server_that_is_not_a_cloud_is_unreachable(cloud: str, home: Home) -> None:
    client = moteseal.Client(cloud + "/elsewhere", roster=home.roster, operator=home.operator, pinned_seals=False)
    with pytest.raises(moteseal.Unreachable):
        client.get(rate="1/8")


def test_rejects_the_roster_of_another_operator(cloud: str, home: Home, tmp_path: Path) -> None:
    run("key", "new", "--out", tmp_path / "other")
    with pytest.raises(moteseal.NotAuthentic) as caught:
        moteseal.Client(cloud, roster=home.roster, operator=tmp_path / "other.pub.pem")
    assert "other.pub.pem" in str(caught.value)


def test_a_roster_with_other_keys_accepts_nothing(cloud: str, home: Home, tmp_path: Path) -> None:
    """Uses another operator's roster with the same names of devices and group: none of its devices
    signed the cloud's seals."""
    other = Home(tmp_path)
    client = moteseal.Client(cloud, roster=other.roster, operator=other.operator, pinned_seals=False)
    with pytest.raises(moteseal.Refused):
        client.get(rate="1/8")


def test_errors_name_the_wrong_file(home: Home, tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("dear diary")
    for roster, operator, name, text_of_error in (
        (text, home.operator, "BadFile", "is not a roster"),
        (home.roster, text, "MalformedPem", "notes.txt"),
        (home.roster, home.roster, "MalformedPem", "public key"),
        (tmp_path / "gone.cbor", home.operator, "BadFile", "gone.cbor"),
    ):
        with pytest.raises(moteseal.UsageError) as caught:
            moteseal.Roster(roster, operator)
        assert caught.value.name == name and (name != "BadFile" or type(caught.value) is moteseal.BadFile)
        assert text_of_error in str(caught.value)


def test_wrong_arguments_of_a_client_raise(cloud: str, home: Home) -> None:
    with pytest.raises(TypeError, match="roster: expected a path or a moteseal.Roster, got int"):
        moteseal.Client(cloud, roster=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="operator"):
        moteseal.Client(cloud, roster=home.roster)
    with pytest.raises(TypeError, match="operator"):
        moteseal.Client(cloud, roster=moteseal.Roster(home.roster, home.operator), operator=home.operator)
    with pytest.raises(moteseal.UsageError) as caught:
        moteseal.Client("nowhere", roster=home.roster, operator=home.operator)
    assert caught.value.name == "BadAddress"
    with pytest.raises(ValueError, match="patience"):
        moteseal.Client(cloud, roster=home.roster, operator=home.operator, patience=-1)


def test_a_proof_verifies_offline_and_an_altered_one_is_rejected(client: moteseal.Client, home: Home, tmp_path: Path) -> None:
    import pyarrow

    proof = tmp_path / "eighth.mproof"
    answer = client.get(rate="1/8", proof=proof)
    again = moteseal.verify(proof, home.roster, home.operator, pinned_seals=False).answer
    assert isinstance(again, moteseal.Answer)
    assert pyarrow.table(again).equals(pyarrow.table(answer)) and again.query == answer.query
    whole = proof.read_bytes()
    for at in range(len(whole) // 40, len(whole), len(whole) // 40):
        proof.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises((moteseal.Refused, moteseal.Incomplete)):
            moteseal.verify_proof(proof, home.roster, home.operator, pinned_seals=False)
    proof.write_bytes(whole[:-1])
    with pytest.raises(moteseal.Refused) as caught:
        moteseal.verify_proof(proof, home.roster, home.operator, pinned_seals=False)
    assert caught.value.name == "Truncated"


def test_a_proof_of_named_readings_is_not_complete_and_the_answer_is(client: moteseal.Client, home: Home, tmp_path: Path) -> None:
    proof = tmp_path / "named.mproof"
    answer = client.get("dev2", readings=[(1, 7), (0, 3, 2)], proof=proof)
    assert answer.complete and not answer.report.named and len(answer) == 3
    with pytest.raises(moteseal.Incomplete) as caught:
        moteseal.verify_proof(proof, home.roster, home.operator, pinned_seals=False)
    assert caught.value.name == "ReadingsNamed"
    assert type(caught.value).__name__ == "ReadingsNamed"
    kept = moteseal.verify_proof(proof, home.roster, home.operator, pinned_seals=False, allow_incomplete=True)
    assert len(kept) == 3 and kept.report.named and not kept.complete
    assert not kept.report.complete and not kept.report.devices[0].complete


def test_a_rejected_response_leaves_no_proof(cloud: str, home: Home, tmp_path: Path) -> None:
    with dishonest_cloud(cloud, warmer) as url:
        client = moteseal.Client(url, roster=home.roster, operator=home.operator, pinned_seals=tmp_path / "pinned.json")
        with pytest.raises(moteseal.Refused):
            client.get(rate=1, proof=tmp_path / "altered.mproof")
    assert list(tmp_path.iterdir()) == []


def test_a_proof_never_replaces_an_input_file(client: moteseal.Client, home: Home) -> None:
    before = home.roster.read_bytes()
    with pytest.raises(moteseal.BadFile, match="would replace"):
        client.get(rate="1/8", proof=home.roster)
    assert home.roster.read_bytes() == before


def test_bundles_verify_and_errors_identify_the_fault(home: Home, tmp_path: Path) -> None:
    roster = moteseal.Roster(home.roster, home.operator)
    bundles = sorted(home.bundles.iterdir())
    verified = moteseal.verify(bundles, roster)
    assert verified.answer is None
    reports = verified.bundles
    found = [(report.name, report.seals, report.first_index, report.last_index, report.events) for report in reports]
    assert found == [("dev1", 7, 0, 6, 4417), ("dev2", 7, 0, 6, 4417)]
    with pytest.raises(moteseal.Missing) as caught:
        moteseal.verify_bundles([path for path in bundles if path.name != "dev1-0000000003.mseal"], roster)
    assert (caught.value.device, caught.value.index) == ("dev1", 3)
    altered = tmp_path / "altered.mseal"
    whole = bundles[0].read_bytes()
    for at in range(0, len(whole), len(whole) // 25):
        altered.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(moteseal.Refused, match="altered.mseal"):
            moteseal.verify_bundles([altered], roster)
    shutil.copy(home.operator, altered)
    with pytest.raises(moteseal.Refused):
        moteseal.verify(altered, roster)
    with pytest.raises(ValueError):
        moteseal.verify([], roster)
    with pytest.raises(moteseal.BadFile):
        moteseal.verify(tmp_path / "gone.mseal", roster)


def test_refuses_credentials_that_cannot_be_used(home: Home, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("correct horse battery\n")

    def client(url: str, **credentials: str | Path) -> moteseal.Client:
        return moteseal.Client(url, roster=home.roster, operator=home.operator, pinned_seals=False, **credentials)  # type: ignore[arg-type]

    incomplete: list[dict[str, str | Path]] = [
        {"user": "ali"},
        {"password_file": password},
        {"token": password, "user": "ali", "password_file": password},
        {"client_cert": password},
        {"client_key": password},
    ]
    for credentials in incomplete:
        with pytest.raises(ValueError, match="give both"):
            client("https://cloud.example", **credentials)
    with pytest.raises(moteseal.UsageError) as caught:
        client("http://cloud.example", user="ali", password_file=password)
    assert caught.value.name == "PasswordInClear" and "correct horse" not in str(caught.value)
    assert client("https://cloud.example", user="ali", password_file=password).url == "https://cloud.example/"
