"""Sanitised column groups (sanitised.md)."""

import unicodedata
from dataclasses import dataclass

from .encoding import Refused, array, byte_string, decode, optional, out_of_range, text, uint, version_one
from .hashes import H, be
from .schema import schema_decode
from .signed import SANITISED, signed


@dataclass
class Statement:
    group: bytes
    roster: bytes
    sanitiser: bytes
    device: bytes
    index: int
    seal: bytes
    schema: bytes
    column_group: int
    mask: int
    fields: bytes
    policy: str
    digests: list


def statement_decode(payload):
    """Section 2."""
    fields = array(decode(payload), 15)
    version_one(fields[0])
    group, roster, sanitiser = byte_string(fields[1], 8), byte_string(fields[2], 32), byte_string(fields[3], 8)
    device, index = byte_string(fields[4], 8), uint(fields[5], 32)
    seal, schema = byte_string(fields[6], 32), byte_string(fields[7], 32)
    column_group, mask = uint(fields[8], 8), uint(fields[9], 32)
    nonce, commitment = optional(fields[10], byte_string, 12), optional(fields[11], byte_string, 16)
    new, policy = byte_string(fields[12]), text(fields[13])
    digests = [byte_string(digest, 32) for digest in array(fields[14])]
    out_of_range(nonce is not None or commitment is not None or column_group > 7 or mask == 0)
    return Statement(group, roster, sanitiser, device, index, seal, schema, column_group, mask, new, policy, digests)


class Waiting:
    """The items that are before their parts: section 4."""

    def __init__(self, roster):
        self.roster, self.items = roster, []

    def push(self, data, cells):
        """Steps 1 to 6."""
        object = signed(data, SANITISED)
        statement = statement_decode(object.payload)
        policy = statement.policy
        if not 1 <= len(policy.encode()) <= 256 or any(unicodedata.category(letter) == "Cc" for letter in policy):
            raise Refused("InvalidPolicy")
        if statement.group != self.roster.group:
            raise Refused("WrongGroup")
        if statement.roster not in [*self.roster.history, self.roster.digest]:
            raise Refused("UnknownRoster")
        sanitiser = next((one for one in self.roster.sanitisers if one.id == statement.sanitiser), None)
        if sanitiser is None:
            raise Refused("UnknownSanitiser")
        object.verify(sanitiser.key)
        self.items.append((statement, sanitiser, cells))

    def take(self, rebuilt):
        """Steps 7 to 16. Returns the statements of a part, with their sanitisers and the records of the new cells."""
        taken, seal = [], rebuilt.seal
        while self.items and (self.items[0][0].device, self.items[0][0].index) == (seal.device, seal.index):
            statement, sanitiser, cells = self.items.pop(0)
            records = check(statement, sanitiser, cells, rebuilt)
            for other, _, _ in taken:
                if other.column_group == statement.column_group:
                    scope, content = ([one(of) for of in (other, statement)] for one in (scope_of, content_of))
                    is_lie = scope[0] == scope[1] and content[0] != content[1]
                    raise Refused("SanitiserEquivocation" if is_lie else "DuplicateSanitised")
            taken.append((statement, sanitiser, records))
        if rebuilt.part.signature is not None and self.items:
            raise Refused("SealMismatch")
        return taken

    def finish(self):
        if self.items:
            raise Refused("SanitisedWithoutPart")


def scope_of(statement):
    return (statement.sanitiser, statement.seal, statement.mask)


def content_of(statement):
    return (statement.fields, statement.policy, statement.digests)


def check(statement, sanitiser, cells, rebuilt):
    seal, part, group = rebuilt.seal, rebuilt.part, statement.column_group
    if statement.seal != seal.digest:
        raise Refused("SealMismatch")
    if statement.schema != seal.schema:
        raise Refused("SchemaMismatch")
    if group == 0 or not rebuilt.whole.groups >> group & 1:
        raise Refused("GroupsOutOfRange")
    if part.groups >> group & 1:
        raise Refused("GroupShown")
    if part.select != statement.mask:
        raise Refused("MaskMismatch")
    if not any(right.covers(seal.device, group, seal.epoch) for right in sanitiser.rights):
        raise Refused("SanitiserNotPermitted")
    new = schema_decode(statement.fields)
    replaced = [(field.id, field.name, field.unit) for field in rebuilt.whole.fields if field.group == group]
    is_plain = all(field.suite == 0 and field.group == 0 for field in new.fields)
    if not is_plain or [(field.id, field.name, field.unit) for field in new.fields] != replaced:
        raise Refused("FieldMismatch")
    if len(statement.digests) != statement.mask.bit_count():
        raise Refused("DigestCount")
    split = new.split(cells, len(rebuilt.rows))
    if split is None or split[1]:
        raise Refused("EventsLength")
    records = split[0]
    if new.version == 2:
        for record in records:
            new.check_record(record)
    levels = [level for level in range(32) if statement.mask >> level & 1]
    for level, digest in zip(levels, statement.digests):
        of_level = [record for record, (_, at, _) in zip(records, rebuilt.rows) if at == level]
        header = b"moteseal/1/sanitised".ljust(32, b"\0") + seal.device + be(seal.index, 4) + be(level, 4) + be(group, 4)
        if H(header + bytes(12) + new.join(of_level)) != digest:
            raise Refused("CellsMismatch")
    return records
