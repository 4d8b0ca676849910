"""The package's exceptions. An exception's base class tells the caller what to do; `error.name` is
the stable name in spec/errors.md.

    MotesealError
        UsageError   (also a ValueError)       the arguments or a file are wrong: fix them
        Refused                                a check failed: discard the data
        Incomplete                             something is withheld, not yet sealed, or not sampled
        Unreachable  (also a ConnectionError)  the service does not respond: retry later
        Failed                                 this machine failed

`error.kind` is the base class as a string: "usage", "refused", "incomplete", "unreachable" or
"internal".

Errors that programs often handle have their own subclasses. Any other error is raised as one of
these base classes; to identify it, compare `error.name`. An argument of the wrong type raises
TypeError, and an argument out of range raises ValueError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from moteseal._moteseal import Answer, Estimates

Kind = Literal["usage", "refused", "incomplete", "unreachable", "internal"]


class MotesealError(Exception):
    """The base of all exceptions of this package. `str()` describes the error and what to do about it."""

    kind: ClassVar[Kind] = "internal"
    """The category, which tells the caller what to do. It is the same for all exceptions of a base
    class."""

    name: str
    """The error's name in spec/errors.md, for example "NotAuthentic"."""
    device: str | None
    """The device's name, or its id if the roster does not list it. None if the error is not about a
    device."""
    index: int | None
    """The seal's index, if the error is about a seal."""
    epoch: int | None
    """The epoch's number, if the error is about an epoch."""
    refusal: str | None
    """The error for which the whole response was rejected at first, if the cloud's explaining form
    then located the fault; `name` is then the name of that fault. Otherwise None."""
    url: str | None
    """The address that was requested, if the network failed."""

    def __init__(
        self,
        message: str,
        *,
        name: str | None = None,
        device: str | None = None,
        index: int | None = None,
        epoch: int | None = None,
        refusal: str | None = None,
        url: str | None = None,
    ) -> None:
        super().__init__(message)
        self.name = type(self).__name__ if name is None else name
        self.device = device
        self.index = index
        self.epoch = epoch
        self.refusal = refusal
        self.url = url


class UsageError(MotesealError, ValueError):
    """An argument or a file is wrong: for example an unknown device, an invalid address or the
    wrong file."""

    kind = "usage"


class Refused(MotesealError):
    """A check failed. None of the data was returned, and none of it can be trusted."""

    kind = "refused"


class Incomplete(MotesealError):
    """All returned data is authentic, but some of the requested data is withheld, not yet sealed,
    or not sampled."""

    kind = "incomplete"

    answer: Answer | Estimates | None = None
    """The verified data, if the only problem is that its end is unknown (TailUnknown,
    ManifestMissing), or that the proof is redacted. Otherwise None."""


class Unreachable(MotesealError, ConnectionError):
    """The service does not respond, or is not a cloud. No data was checked."""

    kind = "unreachable"


class Failed(MotesealError):
    """Something on this machine failed: a disk, a file or a thread."""

    kind = "internal"


class BadFile(UsageError):
    """A file cannot be used."""


class BadQuery(UsageError):
    """The query is invalid."""


class UnknownDevice(UsageError):
    """The roster has no such device."""


class NotAuthentic(Refused):
    """A signature is not valid for its key and the signed bytes."""


class Equivocation(Refused):
    """A device signed two different histories."""


class Missing(Incomplete):
    """A seal is missing, although another seal refers to it or it is pinned."""


class TailUnknown(Incomplete):
    """It is unknown whether the device sealed anything from an epoch on."""


class ManifestMissing(Incomplete):
    """The manifest of an epoch is missing: it is unknown which events the coordinator kept."""


class Redacted(Incomplete):
    """The proof is redacted: what it shows is authentic, and a redactor chose it."""


class ReadingsNamed(Incomplete):
    """The query of the proof names readings: they are authentic, and the maker of the proof chose them."""


class NoSample(Incomplete):
    """Too few events were sampled for an estimate."""


class BelowFloor(Incomplete):
    """Fewer devices took part than the query's floor requires. The sum was not opened."""


class TooFewReadings(Incomplete):
    """The result is over fewer readings than the query's minimum. It is withheld."""


class Interrupted(Unreachable):
    """A response was cut short."""


class Busy(Unreachable):
    """The service is busy and asks the client to retry later."""


_BASES: dict[Kind, type[MotesealError]] = {base.kind: base for base in (UsageError, Refused, Incomplete, Unreachable, Failed)}


def _of(
    kind: Kind,
    name: str,
    message: str,
    *,
    device: str | None = None,
    index: int | None = None,
    epoch: int | None = None,
    refusal: str | None = None,
    url: str | None = None,
) -> MotesealError:
    """Creates the exception for an error. Its class is the one with the error's name, if that class
    has this kind, and otherwise the kind's base class."""
    base = _BASES[kind]
    named = globals().get(name)
    if isinstance(named, type) and issubclass(named, base):
        base = named
    return base(message, name=name, device=device, index=index, epoch=epoch, refusal=refusal, url=url)


__all__ = [
    "MotesealError",
    "UsageError",
    "Refused",
    "Incomplete",
    "Unreachable",
    "Failed",
    "BadFile",
    "BadQuery",
    "UnknownDevice",
    "NotAuthentic",
    "Equivocation",
    "Missing",
    "TailUnknown",
    "ManifestMissing",
    "Redacted",
    "ReadingsNamed",
    "NoSample",
    "BelowFloor",
    "TooFewReadings",
    "Interrupted",
    "Busy",
]
