"""Private sums: runs a query over a group in each epoch. The querier learns only the exact result
and which devices took part, never a single device's value.

    querier = moteseal.sums.Querier.from_toml("querier.toml")
    with querier.ask("SELECT AVG(temperature), COUNT(*) FROM sensors EPOCH DURATION 30s", epochs=10) as rows:
        for row in rows:
            print(row.start, row["AVG(temperature)"], row.participants, "of", row.sources)

Devices encrypt their readings, and gateways aggregate them but cannot read or change them
(docs/sums.md). If the querier accepted no result for an epoch, the row has no numbers, and indexing
it raises an exception with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from moteseal import errors
from moteseal._moteseal import Following, QuerierConfig, Roster, follow_sums, setup_sums

_Path: TypeAlias = str | os.PathLike[str]
_LINK = ("url", "version", "ca", "user", "password_file", "certificate", "certificate_key")


@dataclass(frozen=True)
class Noisy:
    """A result with noise."""

    value: Decimal
    """The result with noise."""
    within: Decimal
    """The distance within which the exact result is, with a probability of about 95 %."""


@dataclass(frozen=True)
class Bin:
    """A range of values. MIN, MAX, MEDIAN and QUANTILE have the bin of the exact value as result."""

    low: Decimal | None
    """The lower bound, which is in the bin; None if there is none."""
    high: Decimal | None
    """The upper bound, which is not in the bin; None if there is none."""


@dataclass(frozen=True)
class Histogram:
    """The number of readings in each bin."""

    bins: list[tuple[Bin, int]]
    """The bins in ascending order, with the number of readings in each."""
    within: int
    """The distance within which each exact number is, with a probability of about 95 %; 0 for exact
    numbers."""


Value: TypeAlias = Decimal | Noisy | Bin | Histogram


@dataclass(frozen=True)
class GroupResult:
    """The results of one value of the column of a GROUP BY."""

    name: str
    """The value of the column."""
    values: dict[str, Value | None] | None
    """The result of each selected item. The dict is None if the results are withheld, because they are
    over few readings."""
    readings: int | None
    """The number of readings in the results; None if the results are withheld."""
    outside: int | None
    """The number of readings outside the declared ranges; None if the results are withheld."""


@dataclass(frozen=True)
class Privacy:
    """The differential privacy of an answer with noise."""

    epsilon: Decimal
    """The epsilon, as the query states it."""
    delta: float
    """The upper bound of delta."""


def _number(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)


def _value(found: Any) -> Value | None:
    if found is None or isinstance(found, str):
        return _number(found)
    if "bins" in found:
        bins = [(Bin(_number(bin["low"]), _number(bin["high"])), bin["count"]) for bin in found["bins"]]
        return Histogram(bins, found.get("within", 0))
    if "within" in found:
        return Noisy(Decimal(found["value"]), Decimal(found["within"]))
    return Bin(_number(found["low"]), _number(found["high"]))


def _values(found: dict[str, Any] | None) -> dict[str, Value | None] | None:
    return None if found is None else {name: _value(value) for name, value in found.items()}


@dataclass(frozen=True)
class Row:
    """The result of one epoch of a query."""

    query: str
    """The query's id."""
    epoch: int
    """The number of the epoch."""
    start: datetime
    """The start of the epoch, UTC."""
    duration_ms: int
    """The length of the epoch, in milliseconds."""
    participants: int
    """The number of participants. If no result was accepted, it is the number that the gateways
    reported."""
    sources: int
    """The number of devices in the group."""
    silent: list[str]
    """The devices that a gateway reported as silent. If such a report is false, the device's seals
    prove it."""
    unheard: list[str]
    """The devices that no gateway reported, neither as participating nor as silent."""
    values: dict[str, Value | None] | None
    """The result of each selected item; a key is, for example, "AVG(temperature)". It is an exact
    Decimal, a Noisy, a Bin or a Histogram, and None if there were no readings. The dict is None if no
    result was accepted, and for a query with GROUP BY."""
    groups: list[GroupResult] | None
    """The results of a query with GROUP BY; otherwise None, and None if no result was accepted."""
    privacy: Privacy | None
    """The differential privacy of the answers; None for exact answers."""
    error: errors.MotesealError | None
    """Why there is no result: BelowFloor (too few devices took part in time), TooFewReadings (the
    result is withheld, because it is over few readings) or Refused (a sum was falsified). Otherwise
    None."""
    masked: list[str]
    """The devices that answered, but are not in the result, because another device of their key group
    has not answered."""
    readings: int | None
    """The number of readings in the result; None without a result."""
    outside: int | None
    """The number of readings that the query selects, but that are not in the result because a value
    is outside the range that is declared for its column; None without a result."""
    reasons: dict[str, str]
    """The reasons that devices have stated in the last minute for not answering, by name: for example
    "BudgetSpent" (spec/errors.md)."""
    edges: list[str]
    """The edges of the aggregation tree at which a fault was located, for example "gw-a ->
    root"."""

    @property
    def accepted(self) -> bool:
        """True if there is a result. The result is proven to be exact over the participants."""
        return self.values is not None or self.groups is not None

    def __getitem__(self, item: str) -> Value | None:
        """Returns the result of a selected item. If no result was accepted, raises an exception
        with the reason."""
        if self.values is not None:
            return self.values[item]
        if self.groups is not None:
            raise KeyError("the query has GROUP BY: the results are in `groups`")
        raise errors.Failed("no result was accepted") if self.error is None else self.error

    @classmethod
    def _of(cls, found: dict[str, Any]) -> Row:
        failed, groups, privacy = found["error"], found["groups"], found["privacy"]
        results = None
        if groups is not None:
            results = [GroupResult(group["group"], _values(group["results"]), group["readings"], group["outside"]) for group in groups]
        error = None
        if failed is not None:
            kind: errors.Kind = "incomplete" if failed["name"] in ("BelowFloor", "TooFewReadings") else "refused"
            error = errors._of(kind, failed["name"], failed["message"], epoch=found["epoch"])
        return cls(
            query=found["query"],
            epoch=found["epoch"],
            start=datetime.fromisoformat(found["start"]),
            duration_ms=found["duration_ms"],
            participants=found["participants"],
            sources=found["sources"],
            silent=found["silent"],
            unheard=found["unheard"],
            values=_values(found["results"]),
            groups=results,
            privacy=None if privacy is None else Privacy(Decimal(privacy["epsilon"]), privacy["delta"]),
            error=error,
            masked=found["masked"],
            readings=found["readings"],
            outside=found["outside"],
            reasons=found["reasons"],
            edges=[] if failed is None else failed["edges"],
        )


class Asked(Iterator[Row]):
    """A running query: an iterator over its rows, one for each epoch. `close()` withdraws the
    query, and so does the end of a `with` block."""

    def __init__(self, following: Following) -> None:
        self._following = following

    @property
    def query(self) -> str:
        """The query's id."""
        return self._following.query

    @property
    def floor(self) -> int:
        """The minimum number of participants for which a result is opened."""
        return self._following.floor

    @property
    def sources(self) -> int:
        """The number of devices that the query asks."""
        return self._following.sources

    @property
    def missed(self) -> int | None:
        """The number of epochs without a row, because the querier was paused or its clock was set;
        None while the query runs."""
        return self._following.missed

    def __next__(self) -> Row:
        return Row._of(next(self._following))

    def close(self) -> None:
        """Withdraws the query, so that devices stop answering it. Discards the rows that were not read."""
        self._following.close()

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Querier:
    """Runs queries. It is configured with keys, an aggregation tree and a broker (docs/sums.md).

    tree is the path of a tree.toml, or its content: {"gateways": {...}, "devices": {...}}, and
    {"querier": NAME} if the querier's name is not "querier". ranges has the smallest and the
    largest possible value of each column, {"temperature": (-40, 125)}: the narrower a range, the
    more devices a sum may have. grace is the time to wait for each level of
    the tree, in seconds. link describes how to reach the broker: {"url":
    "mqtts://broker.example:8883"}, and optionally ca, user, password_file, certificate,
    certificate_key and version.
    """

    def __init__(
        self,
        *,
        roster: Roster | _Path,
        operator: _Path | None = None,
        key: _Path,
        keys: _Path,
        tree: _Path | Mapping[str, Mapping[str, str] | str],
        link_secret: _Path,
        policy: _Path | None = None,
        state: _Path,
        columns: Sequence[str],
        ranges: Mapping[str, tuple[float | Decimal | str, float | Decimal | str]] | None = None,
        grace: float = 2.0,
        link: Mapping[str, str | os.PathLike[str]],
    ) -> None:
        if isinstance(roster, Roster):
            if operator is not None:
                raise TypeError("operator: a moteseal.Roster is already verified; omit the operator's key")
        elif operator is None:
            raise TypeError("operator: the roster is given as a path; also pass the path of the operator's public key")
        else:
            roster = Roster(roster, operator)
        if isinstance(columns, str):
            raise TypeError("columns: expected a list of columns, got one str")
        unknown = sorted(set(link) - set(_LINK))
        if unknown or "url" not in link:
            raise ValueError(f"link: {unknown[0]!r} is unknown; use {', '.join(_LINK)}" if unknown else "link: url is missing")
        values: dict[str, Any] = {
            "key": key,
            "keys": keys,
            "tree": _tables(tree) if isinstance(tree, Mapping) else tree,
            "link_secret": link_secret,
            "policy": policy,
            "state": state,
            "columns": list(columns),
            "ranges": {name: f"{_decimal(least)}..{_decimal(most)}" for name, (least, most) in (ranges or {}).items()},
            "grace": grace,
            "link": {name: link.get(name) for name in _LINK},
        }
        self._config = QuerierConfig(roster, values)

    @classmethod
    def from_toml(cls, path: _Path) -> Querier:
        """Creates a querier from a `querier.toml`, the file that `moteseal sum run` also reads."""
        querier = cls.__new__(cls)
        querier._config = QuerierConfig.read(path)
        return querier

    @property
    def roster(self) -> Roster:
        """The group's roster."""
        return self._config.roster

    def ask(
        self,
        query: str,
        *,
        epochs: int | None = None,
        floor: int | None = None,
        min_count: int | None = None,
    ) -> Asked:
        """Starts a query: SELECT SUM|COUNT|AVG|VARIANCE|STDDEV(column), ... FROM sensors [WHERE ...] EPOCH DURATION 30s.

        The query ends after this many epochs, or when it is closed. floor is the minimum number of
        participants for which a result is opened; default: more than half of the sources. Results of
        fewer readings than min_count are withheld (the error TooFewReadings); default: 5, or 8 with
        VARIANCE or STDDEV.
        """
        return Asked(follow_sums(query, self._config, epochs, floor, min_count))


def _tables(tree: Mapping[str, Mapping[str, str] | str]) -> dict[str, dict[str, str] | str | None]:
    wrong = ValueError(
        "tree: expected two tables, [gateways] with NAME = \"PARENT\" and [devices] with NAME = \"GATEWAY\", and at most the name of the querier"
    )
    tables: dict[str, dict[str, str] | str | None] = {"querier": None}
    for name, value in tree.items():
        if name not in {"querier", "gateways", "devices"} or (name == "querier") != isinstance(value, str):
            raise wrong
        tables[name] = value if isinstance(value, str) else dict(value)
    if len(tables) != 3:
        raise wrong
    return tables


def _decimal(value: float | Decimal | str) -> str:
    """Converts a bound of a range to text without loss: a float to the shortest decimal number that
    represents it."""
    return format(Decimal(str(value)), "f") if not isinstance(value, str) else value.strip()


def setup(
    roster: Roster | _Path,
    operator: _Path | None = None,
    *,
    querier: _Path,
    out: _Path,
    name: str = "querier",
    key_groups: int | None = None,
    masks: bool = False,
) -> list[Path]:
    """Creates the key files of private sums, as `moteseal sum setup` does, and returns their paths.

    name is the querier's name: each further querier of a group needs a set-up of its own, with
    another name. The first path is querier.sum.key, which stays with the querier. Copy each
    NAME.sum.key only to the device NAME. querier is the path of a file with the key that signs
    queries: its public or its private key file. key_groups is the number of groups into which the devices are divided, by
    default at most 8, of at least 5 devices each. An attacker with a stolen device key can falsify
    only the sums of that device's group. Existing files are not replaced.
    """
    return setup_sums(roster, operator, querier=(name, querier), out=out, key_groups=key_groups, masks=masks)


__all__ = ["Asked", "Querier", "Row", "setup"]
