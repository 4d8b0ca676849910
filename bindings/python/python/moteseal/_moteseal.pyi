"""The compiled part of `moteseal`; use it by that name."""

from collections.abc import Iterable, Sequence
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
    """A group's roster: who belongs to it, and how its epochs run. Signed by the group's operator, and checked."""

    def __new__(cls, path: _Path, operator: _Path) -> Roster: ...
    @property
    def group(self) -> str:
        """The group's name."""
    @property
    def version(self) -> int:
        """Its version: each later one knows the ones before it."""
    @property
    def digest(self) -> str:
        """Its digest, 64 hexadecimal digits."""
    @property
    def epoch_ms(self) -> int:
        """How long an epoch is, in milliseconds."""
    @property
    def budget(self) -> int | None:
        """The most events that the group keeps an epoch; None where everything is kept."""
    @property
    def devices(self) -> list[str]:
        """The names of the devices."""
    def epoch_start_ms(self, epoch: int) -> int | None:
        """When an epoch starts, in Unix milliseconds; None past 2^64."""
    def epoch_of(self, unix_ms: int) -> int:
        """The epoch that a Unix time in milliseconds lies in."""
    def __len__(self) -> int: ...

@final
class Client:
    """Asks one cloud for what devices sealed, and verifies every answer: authentic, complete, and chosen by nobody. Or it raises."""

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
    ) -> Client: ...
    @property
    def url(self) -> str:
        """The cloud's address."""
    @property
    def roster(self) -> Roster:
        """By whose word answers are judged."""
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
        proof: _Path | None = None,
        allow_incomplete: bool = False,
    ) -> Answer:
        """Gets a part of what devices sealed, verified; or raises, and there are no rows."""
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
    ) -> Estimates:
        """Takes a verified sample to estimate from: of a field, or of a condition on one such as "temperature>=25"."""

@final
class Answer:
    """Verified rows, and what was verified of them. Any data frame takes it without a copy (the Arrow PyCapsule interface)."""

    @property
    def report(self) -> Report:
        """What was verified, device by device."""
    @property
    def complete(self) -> bool:
        """Whether every device is as complete as it was asked for."""
    @property
    def query(self) -> dict[str, Any]:
        """What was asked, as the cloud was asked: devices by their ids, epochs by their numbers; a sample's seed is in it."""
    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
    def require_complete(self) -> None:
        """Raises TailUnknown or ManifestMissing if something is not there of what was asked for."""
    def to_pyarrow(self) -> pyarrow.Table:
        """The rows as a pyarrow.Table, which shares them. Needs pyarrow."""
    def to_polars(self) -> polars.DataFrame:
        """The rows as a polars.DataFrame, which shares them. Needs polars."""
    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a pandas.DataFrame. Needs pandas and pyarrow."""
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __len__(self) -> int: ...

@final
class Report:
    """A verified answer in numbers."""

    @property
    def complete(self) -> bool:
        """Whether every device is as complete as it was asked for."""
    @property
    def devices(self) -> list[DeviceReport]:
        """The devices, by the order of the query."""
    @property
    def rows(self) -> int:
        """Rows handed out."""
    @property
    def events(self) -> int:
        """Events that the seals count."""
    @property
    def seals(self) -> int:
        """Seals that were judged."""
    @property
    def signatures(self) -> int:
        """Signatures that were checked."""
    @property
    def bytes(self) -> int:
        """Bytes of the answer."""
    @property
    def budget(self) -> int | None:
        """The most events that the group may keep an epoch; None where everything is kept."""
    @property
    def rounds(self) -> list[tuple[int, int]]:
        """Of a group with a budget: each epoch whose manifest is there, with the round that it ended at."""
    def to_dict(self) -> dict[str, Any]:
        """The same object as `moteseal get --json`."""

@final
class DeviceReport:
    """One device's part of an answer."""

    @property
    def name(self) -> str:
        """The device's name in the roster."""
    @property
    def id(self) -> str:
        """The device's id, 16 hexadecimal digits."""
    @property
    def since(self) -> int:
        """The first epoch that was asked for."""
    @property
    def until(self) -> int | None:
        """The epoch behind the last; None where everything so far was asked for."""
    @property
    def complete(self) -> bool:
        """Whether everything is there that was asked for; without an end, everything up to the newest seal."""
    @property
    def standing(self) -> str:
        """"Complete", "TailUnknown" (nothing shows what was sealed from `complete_until` on) or "ManifestMissing"."""
    @property
    def complete_until(self) -> int | None:
        """The epoch before which nothing is missing; None where nothing at all is."""
    @property
    def seals(self) -> int:
        """Seals of the range that were judged."""
    @property
    def epochs(self) -> int:
        """Epochs of these."""
    @property
    def events(self) -> int:
        """Events that those seals count."""
    @property
    def rows(self) -> int:
        """Rows handed out."""
    @property
    def lost(self) -> int:
        """Events that the device admits to have lost."""
    @property
    def late(self) -> int:
        """Seals that came after the coordinator had closed their epoch."""
    @property
    def outages(self) -> list[Outage]:
        """Where the device admits to have been off; the first 256 of them."""
    @property
    def newer(self) -> tuple[int, int] | None:
        """Of a proof: index and epoch of a newer seal of the range that an earlier answer held."""

@final
class Outage:
    """A device restarted: what it may have sensed before was not sealed."""

    @property
    def from_epoch(self) -> int | None:
        """The epoch of the seal before; None before the first."""
    @property
    def to_epoch(self) -> int:
        """The epoch of the first seal after."""
    @property
    def index(self) -> int:
        """The index of that seal."""

@final
class Interval:
    """An estimate between two bounds that hold 95 times in 100. A bound is None where the sample is too small for one."""

    @property
    def value(self) -> float:
        """The estimate."""
    @property
    def low(self) -> float | None:
        """The lower bound."""
    @property
    def high(self) -> float | None:
        """The upper bound."""
    @property
    def sampled(self) -> int:
        """Readings in the sample."""
    @property
    def population(self) -> int:
        """Readings that the devices have signed for."""
    @property
    def half_width(self) -> float | None:
        """How far the further bound is from the estimate; None where a bound is."""
    def __contains__(self, value: float) -> bool: ...
    def __float__(self) -> float: ...

@final
class Bin:
    """One bin of a histogram: from low to below high, of the last one to high itself."""

    @property
    def low(self) -> float:
        """Where it starts."""
    @property
    def high(self) -> float:
        """Where it ends."""
    @property
    def events(self) -> Interval:
        """How many of all readings lie in it."""

@final
class Estimates:
    """A verified sample to estimate from: each estimate is of all readings that the devices have signed for."""

    @property
    def sampled(self) -> int:
        """Readings in the sample."""
    @property
    def population(self) -> int:
        """Readings that the devices have signed for."""
    @property
    def rate(self) -> str | None:
        """The rate of the sample; None where a number an epoch was asked for."""
    @property
    def query(self) -> dict[str, Any]:
        """What was asked, as the cloud was asked."""
    @property
    def report(self) -> Report:
        """What was verified, device by device."""
    @property
    def complete(self) -> bool:
        """Whether every device is as complete as it was asked for."""
    @property
    def unsampled(self) -> list[str]:
        """The devices of which nothing was sampled."""
    @property
    def devices(self) -> dict[str, Estimates]:
        """Each device's own estimates, by its name: those of which something was sealed in the range. Needs each=True."""
    def mean(self, *, bootstrap: int | None = None, seed: bytes | str | None = None) -> Interval:
        """The mean of the field: Student's t with finite-population correction."""
    def sum(self, *, bootstrap: int | None = None, seed: bytes | str | None = None) -> Interval:
        """The sum of the field."""
    def count(self, *, bootstrap: int | None = None, seed: bytes | str | None = None) -> Interval:
        """How many readings there are, which is no estimate: the devices have signed it. Of a condition, how many meet it."""
    def proportion(self, *, bootstrap: int | None = None, seed: bytes | str | None = None) -> Interval:
        """The share of readings that meet the condition: exact bounds."""
    def quantile(self, q: float = 0.5, *, bootstrap: int | None = None, seed: bytes | str | None = None) -> Interval:
        """The value that a share q of all readings is at or below, 0.5 for the median: bounds of order statistics."""
    def quantiles(
        self, at: Sequence[float], *, bootstrap: int | None = None, seed: bytes | str | None = None
    ) -> list[Interval]:
        """Several of them."""
    def histogram(self, bins: int = 10, *, edges: Sequence[float] | None = None) -> list[Bin]:
        """How many of all readings lie in each of so many bins of one width, or between each two of these edges."""

@final
class BundleReport:
    """What bundles hold of one device: an unbroken run of its seals, with every reading under them."""

    @property
    def name(self) -> str:
        """The device's name."""
    @property
    def id(self) -> str:
        """Its id, 16 hexadecimal digits."""
    @property
    def seals(self) -> int:
        """How many seals there are."""
    @property
    def first_index(self) -> int:
        """The index of the first of them."""
    @property
    def last_index(self) -> int:
        """The index of the last."""
    @property
    def first_epoch(self) -> int:
        """The first epoch."""
    @property
    def last_epoch(self) -> int:
        """The last epoch."""
    @property
    def events(self) -> int:
        """The readings that are there."""
    @property
    def restarts(self) -> int:
        """How often the device admits to have restarted."""

@final
class QuerierConfig:
    """The configuration of a querier, as in `querier.toml`."""

    def __new__(cls, roster: Roster, values: dict[str, Any]) -> Self: ...
    @staticmethod
    def read(path: _Path) -> QuerierConfig:
        """Reads a `querier.toml`, and the roster that it names."""
    @property
    def roster(self) -> Roster:
        """The roster."""

@final
class Following:
    """A query that runs: its rows, an epoch each, in order. `moteseal.sums.Asked` is what people use."""

    @property
    def query(self) -> str:
        """The query's id."""
    @property
    def floor(self) -> int:
        """Nothing of fewer participants is shown."""
    @property
    def sources(self) -> int:
        """How many devices are asked."""
    @property
    def missed(self) -> int | None:
        """How many epochs have no row; None while the query runs."""
    def close(self) -> None:
        """Withdraws the query, and waits until that is announced. Rows that were not taken are discarded."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> dict[str, Any]: ...

def follow_sums(query: str, config: QuerierConfig, epochs: int | None, floor: int | None) -> Following:
    """Starts a query in the background."""

def setup_sums(
    roster: Roster | _Path,
    operator: _Path | None = None,
    *,
    querier: _Path,
    out: _Path,
    key_groups: int = 1,
) -> list[Path]:
    """Makes the keys of private sums, as `moteseal sum setup` does."""

def verify_proof(
    path: _Path,
    roster: Roster | _Path,
    operator: _Path | None = None,
    *,
    pinned_seals: bool | _Path = True,
    allow_incomplete: bool = False,
) -> Answer:
    """Verifies a proof (.mproof) and gives its rows. Needs no network."""

def verify_bundles(paths: Sequence[_Path], roster: Roster | _Path, operator: _Path | None = None) -> list[BundleReport]:
    """Verifies bundles (.mseal): every signature and every reading, and that no seal is missing. Needs no network."""

def is_proof(path: _Path) -> bool:
    """Whether a file is a proof (.mproof) by its first bytes; else it is taken for a bundle."""
