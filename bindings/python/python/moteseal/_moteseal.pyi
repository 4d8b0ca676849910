"""The compiled part of the package `moteseal`. Import `moteseal` instead of this module."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, final

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

_Path: TypeAlias = str | PathLike[str]
_Time: TypeAlias = datetime | date | int | str
_Rate: TypeAlias = str | float | Fraction

@final
class Roster:
    """A group's roster: its devices and its epochs. The operator's signature has been verified."""

    def __new__(cls, path: _Path, operator: _Path) -> Roster: ...
    @property
    def group(self) -> str:
        """The group's name."""
    @property
    def version(self) -> int:
        """The roster's version. Each version contains all earlier versions."""
    @property
    def digest(self) -> str:
        """The roster's digest, 64 hexadecimal digits."""
    @property
    def epoch_ms(self) -> int:
        """The length of an epoch, in milliseconds."""
    @property
    def budget(self) -> int | None:
        """The maximum number of events that the group keeps per epoch; None if it keeps all
        events."""
    @property
    def devices(self) -> list[str]:
        """The names of the devices."""
    def epoch_start_ms(self, epoch: int) -> int | None:
        """The start of an epoch, in Unix milliseconds; None if it is 2^64 or more."""
    def epoch_of(self, unix_ms: int) -> int:
        """The number of the epoch that contains a Unix time, in milliseconds."""
    def __len__(self) -> int: ...

@final
class Client:
    """Fetches sealed readings from one cloud and verifies every response: the readings are
    authentic, complete, and not chosen by the cloud. Otherwise the method raises an exception."""

    def __new__(
        cls,
        url: str,
        *,
        roster: Roster | _Path,
        operator: _Path | None = None,
        token: _Path | None = None,
        ca: _Path | None = None,
        pinned_seals: bool | _Path = True,
        patience: float = 2.0,
        user: str | None = None,
        password_file: _Path | None = None,
        client_cert: _Path | None = None,
        client_key: _Path | None = None,
    ) -> Client: ...
    @property
    def url(self) -> str:
        """The cloud's address."""
    @property
    def roster(self) -> Roster:
        """The roster with which responses are verified."""
    def get(
        self,
        devices: str | Iterable[str] | None = None,
        since: _Time | None = None,
        until: _Time | None = None,
        rate: _Rate | None = None,
        *,
        at_most: int | None = None,
        sample: int | None = None,
        seed: bytes | str | None = None,
        readings: Iterable[tuple[int, int] | tuple[int, int, int]] | None = None,
        columns: str | Iterable[str] | None = None,
        proof: _Path | None = None,
        allow_incomplete: bool = False,
        grants: _Path | Iterable[_Path] | None = None,
        identity: _Path | None = None,
        passphrase: str | None = None,
        stream_secrets: Mapping[str, _Path] | None = None,
    ) -> Answer:
        """Fetches readings, verifies them and returns them. Raises an exception if they are not
        authentic or not complete. Encrypted columns are null unless a key opens them. With columns,
        only these columns are fetched, verified and decrypted."""
    def estimate(
        self,
        what: str,
        devices: str | Iterable[str] | None = None,
        since: _Time | None = None,
        until: _Time | None = None,
        rate: _Rate | None = None,
        *,
        at_most: int | None = None,
        each: bool = False,
        proof: _Path | None = None,
        allow_incomplete: bool = False,
        grants: _Path | Iterable[_Path] | None = None,
        identity: _Path | None = None,
        passphrase: str | None = None,
        stream_secrets: Mapping[str, _Path] | None = None,
    ) -> Estimates:
        """Fetches and verifies a sample, from which you can estimate a field, or a condition such
        as "temperature>=25"."""

@final
class Answer:
    """Verified rows, and the report about their verification. Data frame libraries import the rows
    without copying them (by the Arrow PyCapsule interface)."""

    @property
    def report(self) -> Report:
        """The report about the verification, with an entry for each device."""
    @property
    def complete(self) -> bool:
        """True if the data of every device is complete over the requested range."""
    @property
    def query(self) -> dict[str, Any]:
        """The query that was sent to the cloud. It has ids of devices, numbers of epochs, and the
        seed of a sample."""
    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
    def require_complete(self) -> None:
        """Raises TailUnknown, ManifestMissing, Redacted or ReadingsNamed if the answer is not complete."""
    def to_pyarrow(self) -> pyarrow.Table:
        """Returns the rows as a pyarrow.Table that shares their memory. Requires pyarrow."""
    def to_polars(self) -> polars.DataFrame:
        """Returns the rows as a polars.DataFrame that shares their memory. Requires polars."""
    def to_pandas(self) -> pandas.DataFrame:
        """Returns the rows as a pandas.DataFrame. Requires pandas and pyarrow."""
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __len__(self) -> int: ...

@final
class Report:
    """The result of verifying a response: counts of rows, events, seals and signatures."""

    @property
    def complete(self) -> bool:
        """True if the data of every device is complete over the requested range."""
    @property
    def named(self) -> bool:
        """True if this is a report about a proof whose query names readings. The maker of the proof
        chose them, so it is never complete."""
    @property
    def devices(self) -> list[DeviceReport]:
        """A report for each device, in the order of the query."""
    @property
    def rows(self) -> int:
        """The number of verified rows."""
    @property
    def events(self) -> int:
        """The number of events that the seals state."""
    @property
    def seals(self) -> int:
        """The number of verified seals."""
    @property
    def signatures(self) -> int:
        """The number of verified signatures."""
    @property
    def bytes(self) -> int:
        """The size of the response, in bytes."""
    @property
    def budget(self) -> int | None:
        """The maximum number of events that the group keeps per epoch; None if it keeps all
        events."""
    @property
    def rounds(self) -> list[tuple[int, int]]:
        """For a group with a budget: the epochs whose manifest is in the response, each with its
        final sampling round."""
    @property
    def cloud_roster(self) -> int | None:
        """The version of the roster that the cloud states, if it is not the client's; otherwise
        None. The statement is not verified. If it is a later version, get it from the operator."""
    def to_dict(self) -> dict[str, Any]:
        """Returns the report as a dict, the same object that `moteseal get --json` prints."""

@final
class DeviceReport:
    """The result of verifying one device's part of a response."""

    @property
    def name(self) -> str:
        """The device's name in the roster."""
    @property
    def id(self) -> str:
        """The device's id, 16 hexadecimal digits."""
    @property
    def since(self) -> int:
        """The first epoch of the requested range."""
    @property
    def until(self) -> int | None:
        """The epoch that follows the requested range; None if the range has no end."""
    @property
    def complete(self) -> bool:
        """True if the device's data is complete over the requested range. If the range has no end:
        up to the newest seal."""
    @property
    def standing(self) -> str:
        """"Complete", "TailUnknown" (no seal shows what the device sealed from `complete_until` on),
        "ManifestMissing", or "Redacted" (a redactor chose what the proof shows)."""
    @property
    def complete_until(self) -> int | None:
        """The data before this epoch is complete; None if all requested data is complete."""
    @property
    def seals(self) -> int:
        """The number of verified seals of the range."""
    @property
    def epochs(self) -> int:
        """The number of different epochs of these seals."""
    @property
    def events(self) -> int:
        """The number of events that these seals state."""
    @property
    def rows(self) -> int:
        """The number of verified rows."""
    @property
    def lost(self) -> int:
        """The number of events that the device reports as lost."""
    @property
    def late(self) -> int:
        """The number of seals that arrived after the coordinator had closed their epoch."""
    @property
    def outages(self) -> list[Outage]:
        """The restarts that the device reports; at most the first 256."""
    @property
    def newer(self) -> tuple[int, int] | None:
        """In the report of a proof: the index and epoch of a pinned seal in the range that is newer
        than the proof's seals; otherwise None."""

@final
class Outage:
    """A restart of a device. The device may have lost readings that it had not sealed before the
    restart."""

    @property
    def from_epoch(self) -> int | None:
        """The epoch of the last seal before the restart; None if there is none."""
    @property
    def to_epoch(self) -> int:
        """The epoch of the first seal after the restart."""
    @property
    def index(self) -> int:
        """The index of the first seal after the restart."""

@final
class Interval:
    """An estimate with a 95 % confidence interval. A bound is None if the sample is too small for it."""

    @property
    def value(self) -> float:
        """The estimate."""
    @property
    def low(self) -> float | None:
        """The lower bound of the interval."""
    @property
    def high(self) -> float | None:
        """The upper bound of the interval."""
    @property
    def sampled(self) -> int:
        """The number of readings in the sample."""
    @property
    def population(self) -> int:
        """The number of all readings in the range, as the devices' signed seals state it."""
    @property
    def half_width(self) -> float | None:
        """The distance from the estimate to the bound that is farther away; None if a bound is
        None."""
    def __contains__(self, value: float) -> bool: ...
    def __float__(self) -> float: ...

@final
class Bin:
    """One bin of a histogram: the values from low (inclusive) to high (exclusive). The last bin
    also includes high."""

    @property
    def low(self) -> float:
        """The lower edge."""
    @property
    def high(self) -> float:
        """The upper edge."""
    @property
    def events(self) -> Interval:
        """An estimate of how many of all readings are in the bin."""

@final
class Estimates:
    """Estimates about all readings of a range, computed from a verified sample. Each estimate has a
    95 % confidence interval."""

    @property
    def sampled(self) -> int:
        """The number of readings in the sample."""
    @property
    def nulls(self) -> int:
        """The number of readings in the sample whose value is null. Means, sums and quantiles do not
        use them."""
    @property
    def population(self) -> int:
        """The number of all readings in the range, as the devices' signed seals state it."""
    @property
    def rate(self) -> str | None:
        """The sampling rate; None if the query asked for a number of readings per epoch instead."""
    @property
    def query(self) -> dict[str, Any]:
        """The query that was sent to the cloud. It has ids of devices and numbers of epochs."""
    @property
    def report(self) -> Report:
        """The report about the verification, with an entry for each device."""
    @property
    def complete(self) -> bool:
        """True if the data of every device is complete over the requested range."""
    @property
    def unsampled(self) -> list[str]:
        """The names of the devices that have no reading in the sample. Devices that sealed nothing
        are included."""
    @property
    def devices(self) -> dict[str, Estimates]:
        """The estimates for each single device that sealed something in the range; the key is the
        device's name. Requires estimate(..., each=True)."""
    def mean(self, *, bootstrap: int | None = None, seed: bytes | str | None = None) -> Interval:
        """Estimates the mean of the field. The interval follows Student's t-distribution with
        finite-population correction."""
    def sum(self, *, bootstrap: int | None = None, seed: bytes | str | None = None) -> Interval:
        """Estimates the sum of the field."""
    def count(self, *, bootstrap: int | None = None, seed: bytes | str | None = None) -> Interval:
        """For a field: the number of readings, which is exact because the devices have signed it.
        For a condition: an estimate of how many readings meet it."""
    def proportion(self, *, bootstrap: int | None = None, seed: bytes | str | None = None) -> Interval:
        """Estimates the share of readings that meet the condition, with an exact confidence
        interval."""
    def quantile(self, q: float = 0.5, *, bootstrap: int | None = None, seed: bytes | str | None = None) -> Interval:
        """Estimates the q-quantile of the field; q=0.5 is the median. The bounds are order
        statistics of the sample."""
    def quantiles(
        self, at: Sequence[float], *, bootstrap: int | None = None, seed: bytes | str | None = None
    ) -> list[Interval]:
        """Estimates several quantiles of the field."""
    def histogram(self, bins: int = 10, *, edges: Sequence[float] | None = None) -> list[Bin]:
        """Estimates how many of all readings are in each bin. The bins have equal width, unless
        edges are given."""

@final
class BundleReport:
    """A summary of one device's bundles, which contain consecutive seals with all their
    readings."""

    @property
    def name(self) -> str:
        """The device's name."""
    @property
    def id(self) -> str:
        """The device's id, 16 hexadecimal digits."""
    @property
    def seals(self) -> int:
        """The number of seals."""
    @property
    def first_index(self) -> int:
        """The index of the first seal."""
    @property
    def last_index(self) -> int:
        """The index of the last seal."""
    @property
    def first_epoch(self) -> int:
        """The first epoch."""
    @property
    def last_epoch(self) -> int:
        """The last epoch."""
    @property
    def events(self) -> int:
        """The number of readings."""
    @property
    def restarts(self) -> int:
        """The number of restarts that the device reports."""

@final
class QuerierConfig:
    """The configuration of a querier; it has the settings of `querier.toml`."""

    def __new__(cls, roster: Roster, values: dict[str, Any]) -> Self: ...
    @staticmethod
    def read(path: _Path) -> QuerierConfig:
        """Reads a `querier.toml` and the roster whose path it contains."""
    @property
    def roster(self) -> Roster:
        """The roster."""

@final
class Following:
    """An iterator over the rows of a running query, one for each epoch, in order. Use
    `moteseal.sums.Asked` instead of this class."""

    @property
    def query(self) -> str:
        """The query's id."""
    @property
    def floor(self) -> int:
        """The minimum number of participants for which a result is opened."""
    @property
    def sources(self) -> int:
        """The number of devices that the query asks."""
    @property
    def missed(self) -> int | None:
        """The number of epochs without a row; None while the query runs."""
    def close(self) -> None:
        """Withdraws the query, and waits until the withdrawal is announced to the devices. Discards
        the rows that were not read."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> dict[str, Any]: ...

def follow_sums(
    query: str, config: QuerierConfig, epochs: int | None, floor: int | None, min_count: int | None
) -> Following:
    """Starts a query in the background."""

def setup_sums(
    roster: Roster | _Path,
    operator: _Path | None = None,
    *,
    querier: tuple[str, _Path],
    out: _Path,
    key_groups: int | None = None,
    masks: bool = False,
) -> list[Path]:
    """Creates the key files of private sums, as `moteseal sum setup` does, and returns their
    paths."""

def verify_proof(
    path: _Path,
    roster: Roster | _Path,
    operator: _Path | None = None,
    *,
    pinned_seals: bool | _Path = True,
    allow_incomplete: bool = False,
    grants: _Path | Iterable[_Path] | None = None,
    identity: _Path | None = None,
    passphrase: str | None = None,
    stream_secrets: Mapping[str, _Path] | None = None,
    accept_sanitised: str | Iterable[str] | None = None,
) -> Answer:
    """Verifies a proof (.mproof) and returns its rows. Needs no network. Values of sanitisers are
    rejected unless accept_sanitised names them."""

def redact(
    proof: _Path,
    out: _Path,
    roster: Roster | _Path,
    operator: _Path | None = None,
    *,
    devices: str | Iterable[str] | None = None,
    since: _Time | None = None,
    until: _Time | None = None,
    readings: Iterable[tuple[int | None, int] | tuple[int | None, int, int]] | None = None,
    columns: str | Iterable[str] | None = None,
) -> Report:
    """Writes a proof that shows less of a proof to the file out, and returns its report. Needs no
    key and no network. The arguments state what to keep."""

def merge(
    proofs: Sequence[_Path],
    out: _Path,
    roster: Roster | _Path,
    operator: _Path | None = None,
) -> Report:
    """Writes a proof that shows what several proofs show to the file out, and returns its report.
    Needs no key and no network."""

def verify_bundles(paths: Sequence[_Path], roster: Roster | _Path, operator: _Path | None = None) -> list[BundleReport]:
    """Verifies bundles (.mseal): checks every signature and every reading, and that no seal is
    missing between the first and the last seal of each device. Needs no network."""

def is_proof(path: _Path) -> bool:
    """True if the file's first bytes identify a proof (.mproof). Otherwise, the file may be a
    bundle."""
