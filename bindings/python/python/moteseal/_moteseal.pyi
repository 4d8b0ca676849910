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
    """A group's roster: its devices and its epochs. The operator's signature has been verified."""

    def __new__(cls, path: _Path, operator: _Path) -> Roster: ...
    @property
    def group(self) -> str:
        """The group's name."""
    @property
    def version(self) -> int:
        """Its version. Each version contains the previous ones."""
    @property
    def digest(self) -> str:
        """Its digest, 64 hexadecimal digits."""
    @property
    def epoch_ms(self) -> int:
        """How long an epoch is, in milliseconds."""
    @property
    def budget(self) -> int | None:
        """The maximum number of events that the group keeps of each epoch; None if it keeps all."""
    @property
    def devices(self) -> list[str]:
        """The names of the devices."""
    def epoch_start_ms(self, epoch: int) -> int | None:
        """When an epoch starts, in Unix milliseconds; None if that is 2^64 or more."""
    def epoch_of(self, unix_ms: int) -> int:
        """The epoch that contains a Unix time in milliseconds."""
    def __len__(self) -> int: ...

@final
class Client:
    """Asks one cloud for sealed readings and verifies every response: it is authentic, complete and not
    chosen by the cloud. Otherwise a method raises."""

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
        """The roster under which responses are verified."""
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
        """Returns verified readings; raises if they are not authentic or not complete."""
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
        """Gets a verified sample to estimate from, of a field or of a condition such as "temperature>=25"."""

@final
class Answer:
    """Verified rows and the report about them. Data frames import them without a copy (the Arrow
    PyCapsule interface)."""

    @property
    def report(self) -> Report:
        """The report about the verification, device by device."""
    @property
    def complete(self) -> bool:
        """Whether every device is complete over the requested range."""
    @property
    def query(self) -> dict[str, Any]:
        """The query as sent to the cloud: ids of devices, numbers of epochs, and the seed of a sample."""
    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
    def require_complete(self) -> None:
        """Raises TailUnknown or ManifestMissing if the answer is incomplete."""
    def to_pyarrow(self) -> pyarrow.Table:
        """The rows as a pyarrow.Table that shares their memory. Needs pyarrow."""
    def to_polars(self) -> polars.DataFrame:
        """The rows as a polars.DataFrame that shares their memory. Needs polars."""
    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a pandas.DataFrame. Needs pandas and pyarrow."""
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __len__(self) -> int: ...

@final
class Report:
    """The numbers of a verified response."""

    @property
    def complete(self) -> bool:
        """Whether every device is complete over the requested range."""
    @property
    def devices(self) -> list[DeviceReport]:
        """The devices, in the order of the query."""
    @property
    def rows(self) -> int:
        """The number of verified rows."""
    @property
    def events(self) -> int:
        """The number of events that the seals count."""
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
        """The maximum number of events that the group keeps of each epoch; None if it keeps all."""
    @property
    def rounds(self) -> list[tuple[int, int]]:
        """If the group has a budget: the epochs whose manifest is in the response, each with its final round."""
    def to_dict(self) -> dict[str, Any]:
        """The report as a dict: the same object as `moteseal get --json`."""

@final
class DeviceReport:
    """The numbers of one device."""

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
        """The epoch after the last one of the requested range; None if the range has no end."""
    @property
    def complete(self) -> bool:
        """Whether the requested range is complete; if it has no end, up to the newest seal."""
    @property
    def standing(self) -> str:
        """"Complete", "TailUnknown" (nothing shows what was sealed from `complete_until` on) or "ManifestMissing"."""
    @property
    def complete_until(self) -> int | None:
        """The epoch before which nothing is missing; None if nothing is missing at all."""
    @property
    def seals(self) -> int:
        """The number of verified seals of the range."""
    @property
    def epochs(self) -> int:
        """The number of epochs of these seals."""
    @property
    def events(self) -> int:
        """The number of events that these seals count."""
    @property
    def rows(self) -> int:
        """The number of verified rows."""
    @property
    def lost(self) -> int:
        """The number of events that the device states as lost."""
    @property
    def late(self) -> int:
        """The number of seals that arrived after the coordinator had closed their epoch."""
    @property
    def outages(self) -> list[Outage]:
        """The restarts that the device states; at most the first 256."""
    @property
    def newer(self) -> tuple[int, int] | None:
        """In the report of a proof: index and epoch of a newer pinned seal of the range."""

@final
class Outage:
    """A restart of a device: readings before it may not have been sealed."""

    @property
    def from_epoch(self) -> int | None:
        """The epoch of the last seal before; None before the first seal."""
    @property
    def to_epoch(self) -> int:
        """The epoch of the first seal after."""
    @property
    def index(self) -> int:
        """The index of that seal."""

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
        """The number of readings in the range, which the devices have signed."""
    @property
    def half_width(self) -> float | None:
        """The distance from the estimate to the farther bound; None if a bound is None."""
    def __contains__(self, value: float) -> bool: ...
    def __float__(self) -> float: ...

@final
class Bin:
    """One bin of a histogram: from low inclusive to high exclusive. The last bin includes high."""

    @property
    def low(self) -> float:
        """The lower edge."""
    @property
    def high(self) -> float:
        """The upper edge."""
    @property
    def events(self) -> Interval:
        """The number of all readings in the bin."""

@final
class Estimates:
    """Estimates over all readings of a range, from a verified sample; each has a 95 % confidence interval."""

    @property
    def sampled(self) -> int:
        """The number of readings in the sample."""
    @property
    def population(self) -> int:
        """The number of readings in the range, which the devices have signed."""
    @property
    def rate(self) -> str | None:
        """The rate of the sample; None if the query asked for a number of readings of each epoch."""
    @property
    def query(self) -> dict[str, Any]:
        """The query as sent to the cloud: ids of devices, and numbers of epochs."""
    @property
    def report(self) -> Report:
        """The report about the verification, device by device."""
    @property
    def complete(self) -> bool:
        """Whether every device is complete over the requested range."""
    @property
    def unsampled(self) -> list[str]:
        """The names of the devices without a reading in the sample, including devices that sealed nothing."""
    @property
    def devices(self) -> dict[str, Estimates]:
        """The estimates of each device by its name, for the devices that sealed something in the range.
        Needs each=True."""
    def mean(self, *, bootstrap: int | None = None, seed: bytes | str | None = None) -> Interval:
        """The mean of the field: Student's t with finite-population correction."""
    def sum(self, *, bootstrap: int | None = None, seed: bytes | str | None = None) -> Interval:
        """The sum of the field."""
    def count(self, *, bootstrap: int | None = None, seed: bytes | str | None = None) -> Interval:
        """The number of readings, which is exact because the devices have signed it; of a condition, an
        estimate of how many readings meet it."""
    def proportion(self, *, bootstrap: int | None = None, seed: bytes | str | None = None) -> Interval:
        """The share of readings that meet the condition, with an exact interval."""
    def quantile(self, q: float = 0.5, *, bootstrap: int | None = None, seed: bytes | str | None = None) -> Interval:
        """The q-quantile of the field, 0.5 for the median; the bounds are order statistics."""
    def quantiles(
        self, at: Sequence[float], *, bootstrap: int | None = None, seed: bytes | str | None = None
    ) -> list[Interval]:
        """Several quantiles."""
    def histogram(self, bins: int = 10, *, edges: Sequence[float] | None = None) -> list[Bin]:
        """The number of all readings in each bin: in bins of equal width, or between consecutive edges."""

@final
class BundleReport:
    """What the bundles contain of one device: consecutive seals with every reading."""

    @property
    def name(self) -> str:
        """The device's name."""
    @property
    def id(self) -> str:
        """Its id, 16 hexadecimal digits."""
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
        """How often the device states that it restarted."""

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
    """The rows of a running query, one for each epoch, in order. Use `moteseal.sums.Asked` instead."""

    @property
    def query(self) -> str:
        """The query's id."""
    @property
    def floor(self) -> int:
        """The minimum number of participants of a result."""
    @property
    def sources(self) -> int:
        """The number of devices that are asked."""
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
    """Makes the key files of private sums, as `moteseal sum setup` does, and returns their paths."""

def verify_proof(
    path: _Path,
    roster: Roster | _Path,
    operator: _Path | None = None,
    *,
    pinned_seals: bool | _Path = True,
    allow_incomplete: bool = False,
) -> Answer:
    """Verifies a proof (.mproof) and returns its rows. Needs no network."""

def verify_bundles(paths: Sequence[_Path], roster: Roster | _Path, operator: _Path | None = None) -> list[BundleReport]:
    """Verifies bundles (.mseal): every signature and every reading, and that no seal is missing between
    the first and the last of each device. Needs no network."""

def is_proof(path: _Path) -> bool:
    """Whether a file is a proof (.mproof), by its first bytes; otherwise treat it as a bundle."""
