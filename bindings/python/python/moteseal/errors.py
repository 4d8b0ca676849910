"""Exceptions. The base class tells the caller what to do; `error.name` is the stable name in spec/errors.md.

    MotesealError
        UsageError   (also a ValueError)       the arguments or a file are wrong: fix them
        Refused                                a check failed: discard the data
        Incomplete                             something is withheld, not yet sealed, or not sampled
        Unreachable  (also a ConnectionError)  the service does not respond: retry later
        Failed                                 this machine failed

`error.kind` is the same as text: "usage", "refused", "incomplete", "unreachable" or "internal".

Failures that programs often handle have a class of their own below one of these. Any other failure is
raised as its base class; test `error.name`. Arguments of a wrong type or out of range raise Python's own
TypeError and ValueError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from moteseal._moteseal import Answer, Estimates

Kind = Literal["usage", "refused", "incomplete", "unreachable", "internal"]


class MotesealError(Exception):
    """The base of all exceptions of this package. `str()` describes the error and what to do about it."""

    kind: ClassVar[Kind] = "internal"
    """What the caller does next: the same for every exception of a base class."""

    name: str
    """The name of the failure in spec/errors.md: "NotAuthentic"."""
    device: str | None
    """The name of the device; its id if the roster has no name for it."""
    index: int | None
    """The index of the seal."""
    epoch: int | None
    """The number of the epoch."""
    refusal: str | None
    """Why the response as a whole was rejected, if the store's explanation located the fault."""
    url: str | None
    """The address, if the network failed."""

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
    """The arguments or a file are wrong: an unknown device, an invalid address, the wrong file."""

    kind = "usage"


class Refused(MotesealError):
    """A check failed. None of the data was returned, and none of it can be trusted."""

    kind = "refused"


class Incomplete(MotesealError):
    """All data is authentic, but something is withheld, not yet sealed, or not sampled."""

    kind = "incomplete"

    answer: Answer | Estimates | None = None
    """The verified data, if only its end is unknown (TailUnknown, ManifestMissing)."""


class Unreachable(MotesealError, ConnectionError):
    """The service does not respond, or is not a cloud. Its data was not checked."""

    kind = "unreachable"


class Failed(MotesealError):
    """This machine failed: a disk, a file, a thread."""

    kind = "internal"


class BadFile(UsageError):
    """A file cannot be used."""


class BadQuery(UsageError):
    """The query is invalid."""


class UnknownDevice(UsageError):
    """The roster has no such device."""


class NotAuthentic(Refused):
    """A signature is not that of the key over these bytes."""


class Equivocation(Refused):
    """A device signed two different histories."""


class Missing(Incomplete):
    """A seal is missing that another seal, or a pinned seal, refers to."""


class TailUnknown(Incomplete):
    """Nothing shows whether the device sealed anything from an epoch on."""


class ManifestMissing(Incomplete):
    """The manifest of an epoch is missing, so that it is unknown which events were kept."""


class NoSample(Incomplete):
    """Too few events were sampled for an estimate."""


class BelowFloor(Incomplete):
    """Fewer participants than the floor; the sum is not opened."""


class Interrupted(Unreachable):
    """A response was cut short."""


class Busy(Unreachable):
    """The service asks to retry later."""


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
    """The exception for an error: of the class with its name if that is of the same kind, otherwise of the kind's base class."""
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
    "NoSample",
    "BelowFloor",
    "Interrupted",
    "Busy",
]
