"""Private sums: run a query over a group every epoch, and learn only the exact result over named participants.

    querier = moteseal.sums.Querier.from_toml("querier.toml")
    with querier.ask("SELECT AVG(temperature), COUNT(*) FROM sensors EPOCH DURATION 30s", epochs=10) as rows:
        for row in rows:
            print(row.start, row["AVG(temperature)"], row.participants, "of", row.sources)

Devices encrypt their readings, and gateways aggregate them without being able to read or change them
(docs/sums.md). A row without an accepted result has no numbers; indexing it raises the reason.
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
    """The number of participants. If no result was accepted, the reported number."""
    sources: int
    """The number of devices in the group."""
    silent: list[str]
    """Devices that a gateway reported as silent. The seals of a device contradict a false report."""
    unheard: list[str]
    """Devices that no gateway reported as participating or silent."""
    values: dict[str, Decimal | None] | None
    """The exact results by selected item, "AVG(temperature)"; None for an item without readings. None if no result was accepted."""
    error: errors.MotesealError | None
    """Why no result was accepted: BelowFloor (too few took part in time) or Refused (a sum was falsified)."""
    edges: list[str]
    """The edges of the tree where the fault was located: "gw-a -> root"."""

    @property
    def accepted(self) -> bool:
        """Whether there is a result, proven to be exact over the participants."""
        return self.values is not None

    def __getitem__(self, item: str) -> Decimal | None:
        """The result of a selected item. Raises the reason if no result was accepted."""
        if self.values is not None:
            return self.values[item]
        raise errors.Failed("no result was accepted") if self.error is None else self.error

    @classmethod
    def _of(cls, found: dict[str, Any]) -> Row:
        results, failed = found["results"], found["error"]
        values = None if results is None else {name: None if value is None else Decimal(value) for name, value in results.items()}
        error = None
        if failed is not None:
            kind: errors.Kind = "incomplete" if failed["name"] == "BelowFloor" else "refused"
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
            values=values,
            error=error,
            edges=[] if failed is None else failed["edges"],
        )


class Asked(Iterator[Row]):
    """A running query: an iterator of rows, one for each epoch. Closing it, or leaving its `with`, withdraws the query."""

    def __init__(self, following: Following) -> None:
        self._following = following

    @property
    def query(self) -> str:
        """The query's id."""
        return self._following.query

    @property
    def floor(self) -> int:
        """The least number of participants of a result."""
        return self._following.floor

    @property
    def sources(self) -> int:
        """The number of devices that are asked."""
        return self._following.sources

    @property
    def missed(self) -> int | None:
        """How many epochs have no row, because the querier was paused or its clock was set; None while the query runs."""
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
    """Runs queries with the keys, the aggregation tree and the broker of a configuration (docs/sums.md).

    tree is the path of a tree.toml, or its content: {"gateways": {...}, "devices": {...}}. ranges are the
    possible values of a column, {"temperature": (-40, 125)}: sums over a narrower range fit more devices.
    grace is how long to wait for each level of the tree, in seconds. link is the broker:
    {"url": "mqtts://broker.example:8883"} and ca, user, password_file, certificate, certificate_key,
    version.
    """

    def __init__(
        self,
        *,
        roster: Roster | _Path,
        operator: _Path | None = None,
        key: _Path,
        keys: _Path,
        tree: _Path | Mapping[str, Mapping[str, str]],
        link_secret: _Path,
        state: _Path,
        columns: Sequence[str],
        ranges: Mapping[str, tuple[float | Decimal | str, float | Decimal | str]] | None = None,
        grace: float = 2.0,
        link: Mapping[str, str | os.PathLike[str]],
    ) -> None:
        if isinstance(roster, Roster):
            if operator is not None:
                raise TypeError("operator: a moteseal.Roster is already verified; leave the operator's key out")
        elif operator is None:
            raise TypeError("operator: a path of a roster needs the path of the operator's public key")
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
            "state": state,
            "columns": list(columns),
            "ranges": {name: f"{_decimal(least)}..{_decimal(most)}" for name, (least, most) in (ranges or {}).items()},
            "grace": grace,
            "link": {name: link.get(name) for name in _LINK},
        }
        self._config = QuerierConfig(roster, values)

    @classmethod
    def from_toml(cls, path: _Path) -> Querier:
        """The querier of a `querier.toml`, as `moteseal sum run` reads it."""
        querier = cls.__new__(cls)
        querier._config = QuerierConfig.read(path)
        return querier

    @property
    def roster(self) -> Roster:
        """The group's roster."""
        return self._config.roster

    def ask(self, query: str, *, epochs: int | None = None, floor: int | None = None) -> Asked:
        """Starts a query: SELECT SUM|COUNT|AVG|VARIANCE|STDDEV(column), ... FROM sensors [WHERE ...] EPOCH DURATION 30s.

        It ends after this many epochs, or when it is closed. floor is the least number of participants of
        a result; default: more than half of the sources.
        """
        return Asked(follow_sums(query, self._config, epochs, floor))


def _tables(tree: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    if set(tree) != {"gateways", "devices"}:
        raise ValueError("tree: expected exactly two tables, [gateways] with NAME = \"PARENT\" and [devices] with NAME = \"GATEWAY\"")
    return {name: dict(table) for name, table in tree.items()}


def _decimal(value: float | Decimal | str) -> str:
    """A bound of a range without loss: a float by its shortest decimal digits."""
    return format(Decimal(str(value)), "f") if not isinstance(value, str) else value.strip()


def setup(
    roster: Roster | _Path,
    operator: _Path | None = None,
    *,
    querier: _Path,
    out: _Path,
    key_groups: int = 1,
) -> list[Path]:
    """Makes the key files of private sums, as `moteseal sum setup` does, and returns their paths.

    querier.sum.key comes first and stays with the querier; NAME.sum.key goes to that device only. querier is
    the key that signs queries, either half. Devices are divided into key_groups: a device whose key is stolen
    can falsify the sums of its group only. No file is replaced.
    """
    return setup_sums(roster, operator, querier=querier, out=out, key_groups=key_groups)


__all__ = ["Asked", "Querier", "Row", "setup"]
