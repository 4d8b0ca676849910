"""What goes wrong, by the names that it has everywhere (spec/errors.md).

Five bases say what a failure asks of you; the class below one says which property failed:

    MotesealError
        UsageError   (also a ValueError)       another call would do
        Refused                                a proof or an answer does not hold: believe nothing of it
        Incomplete                             something is withheld, not yet sealed, or not sampled
        Unreachable  (also a ConnectionError)  the cloud does not answer
        Failed                                 something on this machine

A failure whose name has no class here is raised as its base; `name` says what it is. Arguments of a wrong type or out of range are
Python's own TypeError and ValueError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from moteseal._moteseal import Answer, Estimates


class MotesealError(Exception):
    """The base of all that Moteseal raises of its own. `str()` of it says what was wrong and what to do."""

    exit_code: ClassVar[int] = 1
    """What the command line exits with for such a failure."""

    name: str
    """The name of what failed, as in spec/errors.md: "NotAuthentic"."""
    device: str | None
    """The device in question, by its name; its id where the roster has none for it."""
    index: int | None
    """The index of the seal in question."""
    epoch: int | None
    """The number of the epoch in question."""
    refusal: str | None
    """What the answer was refused for as a whole, where the store's own explanation has led to something more precise."""
    url: str | None
    """The address, where the network failed."""

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
    """Another call would do: a device that the roster does not have, an address that is none, a file that is another."""

    exit_code = 2


class Refused(MotesealError):
    """A proof or an answer does not hold. None of it was handed out, and none of it is to be believed."""

    exit_code = 3


class Incomplete(MotesealError):
    """What there is holds, but something is withheld, not yet sealed, or not sampled."""

    exit_code = 4

    answer: Answer | Estimates | None = None
    """What there is, verified, where only its end is not known (TailUnknown, ManifestMissing)."""


class Unreachable(MotesealError, ConnectionError):
    """The cloud does not answer, or what answers is none. That says nothing of what it holds."""

    exit_code = 6


class Failed(MotesealError):
    """Something on this machine: a disk, a file, a thread."""

    exit_code = 1


# UsageError: by name.


class BadAddress(UsageError):
    """An address that is none."""


class TokenInClear(UsageError):
    """A token would go unencrypted to another machine."""


class BadFile(UsageError):
    """A file cannot be used."""


class BadQuery(UsageError):
    """The query, or a parameter of the path, is malformed."""


class Unauthorized(UsageError):
    """No token, or an unknown one."""


class Forbidden(UsageError):
    """The token is not for that."""


class NotFound(UsageError):
    """No such path, device or seal."""


class UnknownDevice(UsageError):
    """The roster has no such device; of an urgent event also: no key for its index."""


class SchemeMismatch(UsageError):
    """A sample by count and seed of a star."""


# UsageError: of a query of private sums, and of who asks it.

class UnexpectedToken(UsageError):
    """Another word, number or sign than can stand here, or the end."""


class UnknownCharacter(UsageError):
    """A character that no token has."""


class Unterminated(UsageError):
    """A quote that is not closed."""


class UnknownAggregate(UsageError):
    """No aggregate of this name."""


class UnknownColumn(UsageError):
    """The schema has no column of this name; also of a source's own schema, when it is asked."""


class NotExact(UsageError):
    """A column of floats; of a source's own schema, any that is no integer."""


class NotNumeric(UsageError):
    """A column of times, an opaque stream, or a text where a number should be."""


class NumberOutOfRange(UsageError):
    """A number that 64 bits do not hold on the column's scale, or of more than 38 digits."""


class DurationMissing(UsageError):
    """No EPOCH DURATION."""


class DurationOutOfRange(UsageError):
    """Less than a second or more than a week."""


class DuplicateItem(UsageError):
    """The same is selected twice."""


class QueryTooLong(UsageError):
    """More than a query may have."""


class TooManyItems(UsageError):
    """More than a query may have."""


class TooManyColumns(UsageError):
    """More than a query may have."""


class TooManySteps(UsageError):
    """More than a query may have."""


class TooDeep(UsageError):
    """More than a query may have."""


class RangeEmpty(UsageError):
    """Declaring a column's range: none of its values lies in it."""


class Overflow(UsageError):
    """Set-up: a sum over so many sources may not fit."""


class FloorOutOfRange(UsageError):
    """Before anything is asked: a floor below two or above the number of sources."""


class QuerierBusy(UsageError):
    """A querier's state file: another process runs queries with it."""


class NotAState(UsageError):
    """It holds something else than the number of an query schedule."""


# Incomplete: by name.


class Missing(Incomplete):
    """A seal that the chain names is not there."""


class TailUnknown(Incomplete):
    """Nothing shows whether the device sealed anything from an epoch on."""


class ManifestMissing(Incomplete):
    """No manifest of an epoch, in a group with a budget, where what is served depends on its round; its rows are not
    handed out."""


class NoSample(Incomplete):
    """An estimate of events of which none, or too few, were sampled."""


class StoreFailed(Incomplete):
    """The store could not be read or written."""


class StoreDamaged(Incomplete):
    """What was stored is damaged."""


class BelowFloor(Incomplete):
    """Fewer participants than the floor; nothing is opened."""


# Unreachable: by name.


class NotACloud(Unreachable):
    """Somebody else does."""


class Interrupted(Unreachable):
    """An answer broke off."""


class Busy(Unreachable):
    """The service asks to come back later."""


# Failed: by name.


class OutputFailed(Failed):
    """What was asked for could not be written."""


# Refused: by name.


class Truncated(Refused):
    """The input ends within an item."""


class TrailingBytes(Refused):
    """Bytes are left after the one item that is expected."""


class NonCanonical(Refused):
    """Not deterministic CBOR of the types that the formats use."""


class UnexpectedType(Refused):
    """Another type, number of elements or fixed byte length than this place has."""


class UnsupportedVersion(Refused):
    """A version other than 1."""


class FieldOutOfRange(Refused):
    """A value outside its field's range, or fields that exclude each other."""


class UnknownItem(Refused):
    """A stream item of a kind other than 0 to 7."""


class WrongType(Refused):
    """No typ, or that of another kind of object."""


class UnknownCritical(Refused):
    """A crit header."""


class UnexpectedHeader(Refused):
    """A header that does not belong here, or one that is missing."""


class UnknownAlgorithm(Refused):
    """No alg, or one that the formats do not have or this verifier was built without."""


class AlgorithmMismatch(Refused):
    """Signed with another suite than the key's."""


class MalformedSignature(Refused):
    """The signature has another length than its suite's."""


class NotAuthentic(Refused):
    """The signature is not of that key over these bytes; of a run: nothing in it is proven."""


class HighS(Refused):
    """An ECDSA signature that holds, but with s in the upper half: anyone can make it from the other one."""


class KeyLength(Refused):
    """A public key of another length than its suite's."""


class InvalidPublicKey(Refused):
    """No point of its curve, not its canonical encoding, or one that verifies forgeries."""


class InvalidName(Refused):
    """A group's or device's name that is empty, longer than 64 bytes, or has control characters."""


class GroupMismatch(Refused):
    """The group id is not that of the group's name."""


class DeviceMismatch(Refused):
    """A device id is not that of the device's name."""


class HistoryLength(Refused):
    """Not as many past digests as there were versions."""


class NotLater(Refused):
    """A roster that is no later version of the one at hand."""


class EpochLengthChanged(Refused):
    """A later version of a roster with epochs of another length."""


class LevelsChanged(Refused):
    """A later version of a roster with another number of levels."""


class BudgetChanged(Refused):
    """A later version of a roster with another budget, or none, or one where there was none."""


class EpochLengthOutOfRange(Refused):
    """An epoch of 0 ms, or more than 2^53."""


class LevelsOutOfRange(Refused):
    """Not 1 to 32 levels."""


class BudgetOutOfRange(Refused):
    """A budget of 0."""


class EpochRangeEmpty(Refused):
    """The last epoch is before the first."""


class CertificateMismatch(Refused):
    """A certificate of another group or device than the one it stands under."""


class CertificateMissing(Refused):
    """A device without a certificate."""


class UnsortedCertificates(Refused):
    """Certificates that are not by ascending first index."""


class CertificateNotAuthentic(Refused):
    """A certificate that this operator did not sign."""


class DuplicateDevice(Refused):
    """Two devices, or a device and the coordinator, with one id."""


class UnsortedDevices(Refused):
    """Devices that are not by ascending id."""


class TooManyFields(Refused):
    """More than 64 fields."""


class InvalidFieldName(Refused):
    """A name that is empty, longer than 64 bytes, or has control characters."""


class UnknownUnit(Refused):
    """A unit that is not in the list."""


class UnknownFieldType(Refused):
    """A type other than 0 to 10."""


class ScaleOutOfRange(Refused):
    """A divisor of 0 or above 2^32-1, or a scale on a float or time."""


class DuplicateField(Refused):
    """Two fields of one name."""


class RecordTooShort(Refused):
    """Reading a value: the record ends before the field."""


class UnknownRoster(Refused):
    """The roster's history has no such version."""


class PrevMismatch(Refused):
    """The first seal of a device must name its first certificate; or a seal is not the one that its successor names."""


class PrevUnknown(Refused):
    """The digest of the seal before is neither given nor known to the receiver."""


class NoOpen(Refused):
    """A part before any open item."""


class SchemaUnknown(Refused):
    """A part before any schema item."""


class IndexOutOfRange(Refused):
    """An index above 2^32-1, or one that no key of the device covers."""


class EpochOutOfRange(Refused):
    """An epoch above 2^64-1, or outside those of the roster."""


class GapWithoutRestart(Refused):
    """Indices are skipped, but the device did not restart."""


class EpochClosed(Refused):
    """The seal before was the last of this epoch."""


class RoundOutOfRange(Refused):
    """Rounds that fit neither each other nor the group's levels."""


class TooManyEvents(Refused):
    """More events than this verifier is willing to compute levels for; its limit is at least 2^24."""


class LostOutOfRange(Refused):
    """Lost events that do not fit the counted ones, or any in a tree."""


class SelectOutOfRange(Refused):
    """A level or event is selected that does not exist or is null."""


class DigestCount(Refused):
    """More or fewer digests than the root needs."""


class EventsLength(Refused):
    """The events are not as many as the salt and the count say."""


class RunTooLong(Refused):
    """More parts, events or bytes than may come under one signature."""


class Unsigned(Refused):
    """The stream ends, or goes elsewhere, before a signature proves its parts."""


class WrongGroup(Refused):
    """An urgent event of another group."""


class NotAsAsked(Refused):
    """Other levels, events or seals than the ones asked for."""


class RateUnavailable(Refused):
    """The rate rounds to 0 with the group's levels, or needs a level that the device no longer had; or a level that
    was chosen was not kept of a late seal."""


class Equivocation(Refused):
    """The device signed two histories: two seals under one index, or a chain that leads around one of its seals."""


class StatementMismatch(Refused):
    """The device stated something else; with the field."""


class RootMismatch(Refused):
    """The digests of the explaining form do not lead to the signed root."""


class BlockDigestMismatch(Refused):
    """The events of a level are not the ones that were sealed; with the level."""


class PathMismatch(Refused):
    """An event of a tree is not the one that was sealed; with the event, where the leaf hashes show it."""


class EvidenceMismatch(Refused):
    """The events are right, but the digests beside them are not."""


class ExplanationWithheld(Refused):
    """The store does not give the explaining form."""


class NoCoordinator(Refused):
    """A manifest, in a group whose roster names no coordinator to sign one."""


class TwoManifests(Refused):
    """A finding: the coordinator signed different manifests of one epoch; an answer to a query that shows them is
    refused."""


class NotWhole(Refused):
    """A part of an upload, or of a bundle that is verified as a file, lacks a surviving level; or one of an upload
    its signature."""


class NotAProof(Refused):
    """It is no proof."""


# Refused: an answer of private sums.

class Overlap(Refused):
    """Two children name the same participant."""


class SharesMismatch(Refused):
    """The shares in a sum are not those of the named participants, in this query, slot and epoch: something was
    dropped, added, altered, replayed or exchanged."""


class SumOutOfRange(Refused):
    """A sum is more than its participants can have said."""


class Inconsistent(Refused):
    """Every sum can be, and together no readings have them."""


class AlreadyAccepted(Refused):
    """The epoch has a result; the difference of two would show single readings."""


class WrongQuery(Refused):
    """No query that runs is named so."""


class WrongEpoch(Refused):
    """An epoch that was not asked for, or that has not come yet."""


class MalformedParticipation(Refused):
    """Not the one encoding of a set of positions."""


class UnknownPosition(Refused):
    """A position that the roster does not have."""


class NotBeneath(Refused):
    """A position, or an answer of somebody, who is not beneath that child."""


class WrongPsrCount(Refused):
    """Not a record for each slot of the query and key group of the participants."""


class TruncatedPsr(Refused):
    """A record of other than 32 bytes."""


class NotCanonical(Refused):
    """A record that is not below 2^256 - 189."""


_BASES: dict[str, type[MotesealError]] = {
    base.__name__: base for base in (UsageError, Refused, Incomplete, Unreachable, Failed)
}


def _of(
    base: str,
    name: str,
    message: str,
    *,
    device: str | None = None,
    index: int | None = None,
    epoch: int | None = None,
    refusal: str | None = None,
    url: str | None = None,
) -> MotesealError:
    """The exception for a failure: of the class of its name below that base, else of the base itself."""
    kind = _BASES[base]
    named = globals().get(name)
    if isinstance(named, type) and issubclass(named, kind):
        kind = named
    return kind(message, name=name, device=device, index=index, epoch=epoch, refusal=refusal, url=url)


__all__ = [
    "MotesealError",
    "UsageError",
    "Refused",
    "Incomplete",
    "Unreachable",
    "Failed",
    "BadAddress",
    "TokenInClear",
    "BadFile",
    "BadQuery",
    "Unauthorized",
    "Forbidden",
    "NotFound",
    "UnknownDevice",
    "SchemeMismatch",
    "UnexpectedToken",
    "UnknownCharacter",
    "Unterminated",
    "UnknownAggregate",
    "UnknownColumn",
    "NotExact",
    "NotNumeric",
    "NumberOutOfRange",
    "DurationMissing",
    "DurationOutOfRange",
    "DuplicateItem",
    "QueryTooLong",
    "TooManyItems",
    "TooManyColumns",
    "TooManySteps",
    "TooDeep",
    "RangeEmpty",
    "Overflow",
    "FloorOutOfRange",
    "QuerierBusy",
    "NotAState",
    "Missing",
    "TailUnknown",
    "ManifestMissing",
    "NoSample",
    "StoreFailed",
    "StoreDamaged",
    "BelowFloor",
    "NotACloud",
    "Interrupted",
    "Busy",
    "OutputFailed",
    "Truncated",
    "TrailingBytes",
    "NonCanonical",
    "UnexpectedType",
    "UnsupportedVersion",
    "FieldOutOfRange",
    "UnknownItem",
    "WrongType",
    "UnknownCritical",
    "UnexpectedHeader",
    "UnknownAlgorithm",
    "AlgorithmMismatch",
    "MalformedSignature",
    "NotAuthentic",
    "HighS",
    "KeyLength",
    "InvalidPublicKey",
    "InvalidName",
    "GroupMismatch",
    "DeviceMismatch",
    "HistoryLength",
    "NotLater",
    "EpochLengthChanged",
    "LevelsChanged",
    "BudgetChanged",
    "EpochLengthOutOfRange",
    "LevelsOutOfRange",
    "BudgetOutOfRange",
    "EpochRangeEmpty",
    "CertificateMismatch",
    "CertificateMissing",
    "UnsortedCertificates",
    "CertificateNotAuthentic",
    "DuplicateDevice",
    "UnsortedDevices",
    "TooManyFields",
    "InvalidFieldName",
    "UnknownUnit",
    "UnknownFieldType",
    "ScaleOutOfRange",
    "DuplicateField",
    "RecordTooShort",
    "UnknownRoster",
    "PrevMismatch",
    "PrevUnknown",
    "NoOpen",
    "SchemaUnknown",
    "IndexOutOfRange",
    "EpochOutOfRange",
    "GapWithoutRestart",
    "EpochClosed",
    "RoundOutOfRange",
    "TooManyEvents",
    "LostOutOfRange",
    "SelectOutOfRange",
    "DigestCount",
    "EventsLength",
    "RunTooLong",
    "Unsigned",
    "WrongGroup",
    "NotAsAsked",
    "RateUnavailable",
    "Equivocation",
    "StatementMismatch",
    "RootMismatch",
    "BlockDigestMismatch",
    "PathMismatch",
    "EvidenceMismatch",
    "ExplanationWithheld",
    "NoCoordinator",
    "TwoManifests",
    "NotWhole",
    "NotAProof",
    "Overlap",
    "SharesMismatch",
    "SumOutOfRange",
    "Inconsistent",
    "AlreadyAccepted",
    "WrongQuery",
    "WrongEpoch",
    "MalformedParticipation",
    "UnknownPosition",
    "NotBeneath",
    "WrongPsrCount",
    "TruncatedPsr",
    "NotCanonical",
]
