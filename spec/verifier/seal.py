"""Seals (objects.md, section 6)."""

from dataclasses import dataclass

import cbor2

from .confidential import check_keys, keys_decode
from .encoding import (
    Refused,
    answered,
    boolean,
    byte_string,
    counts,
    groups_decode,
    optional,
    out_of_range,
    uint,
    versioned,
    with_groups,
)
from .hashes import H
from .signed import EVENT, SEAL, sig_structure, signed
from .suites import ALGORITHMS


FIELDS = """version scheme group roster device index prev prev_index epoch prev_epoch last_in_epoch restart schema salt round
own_round counters lost answered keys groups""".split()


@dataclass
class Seal:
    """A statement with its root. `fields` are those of objects.md, section 6, in order."""

    fields: dict
    root: bytes
    alg: str

    def __getattr__(self, name):
        try:
            return self.__dict__["fields"][name]
        except KeyError:
            raise AttributeError(name) from None

    def null(self, level):
        lost = self.lost[level] if self.lost else 0
        return self.counters[level] == 0 or level < self.own_round or lost > 0

    @property
    def surviving(self):
        return sum(1 << level for level in range(len(self.counters)) if not self.null(level))

    @property
    def statement(self):
        fields = list(self.fields.values())
        if self.groups:
            return fields
        return fields[:-2] if self.keys is None else fields[:-1]

    @property
    def protected(self):
        alg = next(number for number, name in ALGORITHMS.items() if name == self.alg)
        entries = [cbor2.dumps(1) + cbor2.dumps(alg), cbor2.dumps(16) + cbor2.dumps(SEAL)]
        if self.scheme == 1 and not self.groups:
            entries.append(cbor2.dumps(395) + cbor2.dumps(1))
        entries.append(cbor2.dumps(-70001) + cbor2.dumps(self.statement))
        return bytes([0xA0 + len(entries)]) + b"".join(entries)

    @property
    def message(self):
        return sig_structure(self.protected, self.root)

    @property
    def digest(self):
        return H(self.message)


def seal_decode(data):
    """Steps 1 to 4 for a seal's COSE_Sign1. Returns the object and the seal."""
    object = signed(data, SEAL)
    fields = with_groups(object.statement, 19)
    scheme = uint(fields[1])
    out_of_range(scheme > 1)
    read = [fields[0], scheme, byte_string(fields[2], 8), byte_string(fields[3], 32), byte_string(fields[4], 8)]
    read += [uint(fields[5], 32), byte_string(fields[6], 32), optional(fields[7], uint, 32), uint(fields[8])]
    read += [optional(fields[9], uint)]
    out_of_range((read[7] is None) != (read[9] is None))
    read += [boolean(fields[10]), boolean(fields[11]), byte_string(fields[12], 32), byte_string(fields[13], 16)]
    read += [uint(fields[14], 8), uint(fields[15], 8), counts(fields[16])]
    out_of_range(not read[16])
    read += [counts(fields[17]), answered(fields[18])]
    read.append(optional(fields[19], keys_decode) if len(fields) == 21 else keys_decode(fields[19]) if len(fields) == 20 else None)
    read.append(groups_decode(fields[20]) if len(fields) == 21 else 0)
    seal = Seal(dict(zip(FIELDS, read)), object.payload, object.alg)
    levels = len(seal.counters)
    if seal.lost:
        out_of_range(len(seal.lost) != levels or not any(seal.lost))
        out_of_range(any(lost > count for lost, count in zip(seal.lost, seal.counters)))
    if seal.prev_index is not None:
        out_of_range(seal.prev_index >= seal.index or seal.prev_epoch > seal.epoch)
    out_of_range(not seal.round <= seal.own_round < levels)
    out_of_range(scheme == 1 and seal.lost)
    out_of_range(seal.groups == 1)
    out_of_range(sum(seal.counters) > 0xFFFFFFFF)
    byte_string(object.payload, 32)
    if object.vds != (scheme == 1 and not seal.groups):
        raise Refused("UnexpectedHeader", "vds")
    return object, seal


@dataclass
class Urgent:
    group: bytes
    roster: bytes
    device: bytes
    index: int
    epoch: int
    seq: int
    schema: bytes
    keys: bytes | None
    record: bytes


def urgent_open(data, roster, schema=None):
    """Section 7. `schema` is the stream schema, if the receiver has it."""
    object = signed(data, EVENT)
    fields, has_keys = versioned(object.statement, 8)
    out_of_range(len(object.payload) > 0xFFFF)
    event = Urgent(
        byte_string(fields[1], 8),
        byte_string(fields[2], 32),
        byte_string(fields[3], 8),
        uint(fields[4], 32),
        uint(fields[5]),
        uint(fields[6]),
        byte_string(fields[7], 32),
        keys_decode(fields[8]) if has_keys else None,
        object.payload,
    )
    if event.group != roster.group:
        raise Refused("WrongGroup")
    device = roster.device(event.device)
    key = device.key(event.index, event.epoch) if device else None
    if key is None:
        raise Refused("UnknownDevice")
    object.verify(key)
    if schema is not None:
        if event.schema != schema.digest:
            raise Refused("SchemaUnknown")
        if not roster.contains(event.epoch):
            raise Refused("EpochOutOfRange")
        check_keys(event.keys, schema)
        schema.check_record(event.record)
    return event
