"""Private sums: ask a group a question every epoch, and learn only the exact answer, over the participants that it names.

    querier = moteseal.sums.Querier.from_toml("querier.toml")
    with querier.ask("SELECT AVG(temperature), COUNT(*) FROM sensors EPOCH DURATION 30s", epochs=10) as rows:
        for row in rows:
            print(row.start, row["AVG(temperature)"], row.participants, "of", row.sources)

Devices encrypt what they say, and gateways add it up without being able to read or bend it (docs/sums.md). A row whose answer was not
accepted has no number: asking it for one raises what was wrong.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from moteseal import errors
from moteseal._moteseal import Following, Roster, follow_sums, setup_sums

_Path: TypeAlias = str | os.PathLike[str]
_LINK = ("url", "version", "ca", "user", "password_file", "certificate", "certificate_key")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Row:
    """What came of one epoch of a query."""

    query: str
    """The query's id."""
    epoch: int
    """The number of the epoch."""
    start: datetime
    """When it began, UTC."""
    duration_ms: int
    """How long it lasted."""
    participants: int
    """How many took part; of an answer that was not accepted, as far as that was said."""
    sources: int
    """How many devices the group has."""
    silent: list[str]
    """Whom a gateway left out of what it said: its word on their silence, which a device's seals contradict if it is a lie."""
    unheard: list[str]
    """Of whom nobody has said anything."""
    values: dict[str, Decimal | None] | None
    """The exact answers by what was selected, "AVG(temperature)"; one over no readings is None. None where nothing was accepted."""
    error: errors.MotesealError | None
    """Why nothing was accepted: Incomplete (BelowFloor: too few took part in time) or Refused (somebody lied)."""
    edges: list[str]
    """Where it went wrong, as far as that was found: "gw-a -> root"."""

    @property
    def accepted(self) -> bool:
        """Whether there is an answer, proven to be the exact sum over the participants."""
        return self.values is not None

    def __getitem__(self, item: str) -> Decimal | None:
        """The answer to one of the selected items. Raises what was wrong where nothing was accepted."""
        if self.values is not None:
            return self.values[item]
        raise errors.Failed("nothing was accepted") if self.error is None else self.error

    @classmethod
    def _of(cls, found: dict[str, Any]) -> Row:
        results, said = found["results"], found["error"]
        values = None if results is None else {name: None if value is None else Decimal(value) for name, value in results.items()}
        error = None
        if said is not None:
            base = "Incomplete" if said["name"] == "BelowFloor" else "Refused"
            error = errors._of(base, said["name"], said["message"], epoch=found["epoch"])
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
            edges=[] if said is None else said["edges"],
        )


class Asked(Iterator[Row]):
    """A query that runs: iterate it for a row an epoch, and close it, or leave its `with`, to take the query back."""

    def __init__(self, following: Following) -> None:
        self._following = following

    @property
    def query(self) -> str:
        """The query's id."""
        return self._following.query

    @property
    def floor(self) -> int:
        """Nothing of fewer participants is shown."""
        return self._following.floor

    @property
    def sources(self) -> int:
        """How many devices are asked."""
        return self._following.sources

    @property
    def missed(self) -> int | None:
        """How many epochs have no row, for the querier was paused or its clock was set; None while the query runs."""
        return self._following.missed

    def __next__(self) -> Row:
        return Row._of(next(self._following))

    def close(self) -> None:
        """Takes the query back: nobody answers it any more. Rows that were not taken are gone."""
        self._following.close()

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Querier:
    """Who asks: its keys, the tree of gateways, and the broker between them. The keys are those of querier.toml (docs/sums.md).

    tree is the path of a tree.toml, or what is in one: {"gateways": {...}, "devices": {...}}. ranges says of a column which values it can
    have, {"temperature": (-40, 125)}: narrower ranges fit more devices. grace is how many seconds an edge of the tree may take. link says
    how the broker is reached: {"url": "mqtts://broker.example:8883"}, and ca, user, password_file, certificate, certificate_key, version.
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
                raise TypeError("operator: a Roster has been checked already; give the operator's key to it")
            self.roster = roster
        elif operator is None:
            raise TypeError("operator: the path of the operator's public key belongs to a roster's")
        else:
            self.roster = Roster(roster, operator)
        if isinstance(columns, str):
            raise TypeError("columns: expected a list of columns, got one str")
        unknown = sorted(set(link) - set(_LINK))
        if unknown or "url" not in link:
            raise ValueError(f"link: {unknown[0]!r} is none of {', '.join(_LINK)}" if unknown else "link: it has no url")
        tables = _tables(tree)
        self._parts: dict[str, Any] = {
            "key": key,
            "keys": keys,
            "gateways": list(tables["gateways"].items()),
            "devices": list(tables["devices"].items()),
            "link_secret": link_secret,
            "state": state,
            "columns": list(columns),
            "ranges": [(name, _decimal(least), _decimal(most)) for name, (least, most) in (ranges or {}).items()],
            "grace": grace,
            "link": {name: link.get(name) for name in _LINK},
        }

    @classmethod
    def from_toml(cls, path: _Path) -> Querier:
        """The querier of a `querier.toml`, as `moteseal sum run` reads it. Paths in it are relative to its folder."""
        config = _toml(path)
        folder = Path(path).parent
        link = config.get("link")
        if not isinstance(link, dict):
            raise errors.BadFile(f"BadFile: {os.fspath(path)}: it has no [link]; docs/sums.md has all keys")
        files = ("roster", "operator", "key", "keys", "tree", "link_secret", "state")
        for table, names in ((config, files), (link, ("ca", "password_file", "certificate", "certificate_key"))):
            for name in names:
                if name in table:
                    table[name] = folder / table[name]
        if "ranges" in config:
            config["ranges"] = {name: _range(name, text) for name, text in config["ranges"].items()}
        if "grace" in config:
            config["grace"] = _seconds(config["grace"])
        try:
            return cls(**config)
        except TypeError as error:
            raise errors.BadFile(f"BadFile: {os.fspath(path)}: {error}; docs/sums.md has all keys") from error

    def ask(self, query: str, *, epochs: int | None = None, floor: int | None = None) -> Asked:
        """Asks: SELECT SUM|COUNT|AVG|VARIANCE|STDDEV(column), ... FROM sensors [WHERE ...] EPOCH DURATION 30s.

        It ends after so many epochs, or when it is closed. Nothing of fewer participants than the floor is shown; that is more than half of
        the sources unless given.
        """
        return Asked(follow_sums(query, self.roster, self._parts, epochs, floor))


def _toml(path: _Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise errors.BadFile(f"BadFile: cannot read {os.fspath(path)}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise errors.BadFile(f"BadFile: {os.fspath(path)}: {error}") from error


def _tables(tree: _Path | Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    found = tree if isinstance(tree, Mapping) else _toml(tree)
    if set(found) != {"gateways", "devices"}:
        raise ValueError("tree: it has [gateways], NAME = \"PARENT\", and [devices], NAME = \"GATEWAY\", and nothing else")
    return {name: dict(table) for name, table in found.items()}


def _decimal(value: float | Decimal | str) -> str:
    """A bound of a range, as exact as it was given: a float by the digits that it shows."""
    return format(Decimal(str(value)), "f") if not isinstance(value, str) else value.strip()


def _range(name: str, text: str) -> tuple[str, str]:
    least, dots, most = text.partition("..")
    if not dots:
        raise errors.BadFile(f"BadFile: ranges.{name}: {text!r}: two numbers, for example \"-40..125\"")
    return least, most


def _seconds(text: str) -> float:
    number = text.rstrip("dhms")
    unit = text[len(number) :]
    if not number.isdecimal() or unit not in _UNITS:
        raise errors.BadFile(f"BadFile: grace: {text!r}: a number and a unit: 500ms, 2s or 1m")
    return int(number) * _UNITS[unit]


def setup(
    roster: Roster | _Path,
    operator: _Path | None = None,
    *,
    querier: _Path,
    out: _Path,
    key_groups: int = 1,
) -> list[Path]:
    """Makes the keys of private sums, as `moteseal sum setup` does: a file a device, and the querier's, whose paths it gives.

    NAME.sum.key goes to that device only; from querier.sum.key, which comes first and stays with the querier, all others follow. querier is the
    key that queries are signed with, either half. Devices are divided into key_groups: whoever breaks into a device can bend the sums of its
    group only. No file is ever replaced.
    """
    return setup_sums(roster, operator, querier=querier, out=out, key_groups=key_groups)


__all__ = ["Asked", "Querier", "Row", "setup"]
