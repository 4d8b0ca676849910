"""The stream of seals and events (answers.md, sections 1 and 2)."""

from dataclasses import dataclass

from .confidential import check_keys, keys_decode
from .encoding import (
    Form,
    M64,
    Refused,
    answered,
    array,
    byte_string,
    counts,
    groups_decode,
    optional,
    out_of_range,
    text,
    uint,
    version_one,
    wrong_type,
)
from .hashes import H, levels_of
from .rounds import manifest_open
from .schema import Schema, schema_decode
from .seal import FIELDS, Seal
from .suites import SIGNATURE_LENGTH
from .trees import (
    CHAIN_START,
    NULL,
    block_digest,
    group_digest,
    groups_root,
    leaf_hash,
    level_digest,
    multiproof_count,
    multiproof_root,
    star_chain,
)


MAX_RUN_PARTS = 256
MAX_RUN_BYTES = 64 << 20
MAX_ITEM = MAX_RUN_BYTES + (4 << 20)
MAX_RUN_ITEMS = 2 * MAX_ITEM
MAX_RUN_EVENTS = 1 << 24
MAX_EVENTS = 1 << 24


@dataclass
class Part:
    scheme: int
    last_in_epoch: bool
    restart: bool
    skipped: int
    advance: int
    salt: bytes
    n: int
    round: int
    own_round: int
    lost: list
    answered: list
    keys: bytes | None
    groups: int  # the shown ones; 0 without groups
    blinds: bytes
    select: object  # a mask, or a list of sequence numbers
    digests: bytes
    events: bytes
    signature: object


def part_decode(fields):
    flags = uint(fields[1], 8)
    out_of_range(flags > 7)
    skipped, advance, salt = uint(fields[2], 32), uint(fields[3]), byte_string(fields[4], 16)
    n, round, own_round = uint(fields[5], 32), uint(fields[6], 8), uint(fields[7], 8)
    lost, replies = counts(fields[8]), answered(fields[9])
    keys, groups, blinds = None, 0, b""
    if len(fields) == 17:
        keys, groups, blinds = optional(fields[10], keys_decode), groups_decode(fields[11]), byte_string(fields[12])
    elif len(fields) == 15:
        keys = keys_decode(fields[10])
    select, digests, events, signature = fields[-4:]
    if type(select) is list:
        out_of_range(not select)
        gaps, select, last = select, [], -1
        for gap in gaps:
            last += uint(gap) + 1
            select.append(last)
    else:
        uint(select, 32)
    digests, events = byte_string(digests), byte_string(events)
    signature = optional(signature, byte_string)
    return Part(
        flags & 1, flags & 2 > 0, flags & 4 > 0, skipped, advance, salt, n, round, own_round,
        lost, replies, keys, groups, blinds, select, digests, events, signature,
    )  # fmt: skip


ITEMS = {0: 2, 1: 7, 2: 14, 3: 1, 4: 3, 5: 3, 6: 3, 7: 2, 9: 3}


def items(data):
    """The items of a stream: kind, decoded fields, and length in bytes."""
    at = 0
    while at < len(data):
        form = Form(data, at)
        value = form.item()
        length, at = form.at - at, form.at
        if length > MAX_ITEM:
            raise Refused("RunTooLong")
        yield *item_decode(value), length


def item_decode(value):
    wrong_type(type(value) is not list or not value)
    kind = uint(value[0])
    if kind not in ITEMS:
        raise Refused("UnknownItem", str(kind))
    if kind != 2 or len(value) not in (15, 17):
        array(value, ITEMS[kind])
    if kind == 0:
        return "schema", byte_string(value[1])
    if kind == 1:
        version_one(value[1])
        device, version = byte_string(value[2], 8), uint(value[3], 32)
        prev = optional(value[4], byte_string, 32)
        index, epoch = optional(value[5], uint, 32), optional(value[6], uint)
        out_of_range((index is None) != (epoch is None))
        return "open", (device, version, prev, index, epoch)
    if kind == 2:
        return "part", part_decode(value)
    if kind == 3:
        return "end", None
    if kind == 4:
        return "problem", (text(value[1]), text(value[2]))
    if kind == 5:
        version_one(value[1])
        return "proof", text(value[2])
    if kind == 7:
        return "manifest", byte_string(value[1])
    return "explain" if kind == 6 else "sanitised", (byte_string(value[1]), byte_string(value[2]))


def chunks(digests):
    return [digests[at : at + 32] for at in range(0, len(digests), 32)]


@dataclass
class Rebuilt:
    """A part with the values that are not in the stream."""

    part: Part
    schema: Schema  # of the rows: with the columns of the shown groups
    seal: Seal
    levels: list  # of every event
    rows: list  # (seq, level, record), ascending
    blocks: dict  # of a star: the digest of each selected level
    whole: Schema  # of the stream: with the columns of all groups


class Reader:
    """Follows a stream; `run` holds the rebuilt parts that no signature has proven yet."""

    def __init__(self, roster, known=None, max_events=MAX_EVENTS):
        self.roster, self.known, self.max_events = roster, known or {}, max_events
        self.schema = self.device = None
        self.consumed = 0  # bytes of the items that were read
        self.next_run()

    def read(self, data):
        """Yields ("part", Rebuilt) for each proven part, and the other items in the order of the stream."""
        for kind, value, length in items(data):
            self.consumed += length
            if kind in ("schema", "open", "part", "sanitised") or self.run:
                self.run_items += length
            if kind != "part":
                self.bound()
            if kind == "schema":
                self.schema = schema_decode(value)
            elif kind == "open":
                self.open(*value)
            elif kind == "part":
                self.run.append(self.part(value))
                if value.signature is not None:
                    self.prove()
                    yield from (("part", rebuilt) for rebuilt in self.run)
                    self.next_run()
            else:
                if kind in ("end", "manifest") and self.run:
                    raise Refused("Unsigned")
                if kind == "manifest":
                    value = manifest_open(value, self.roster)
                yield kind, value
        if self.run:
            raise Refused("Unsigned")

    def next_run(self):
        self.run, self.run_bytes, self.run_items, self.run_events, self.latest = [], 0, 0, 0, 0

    def bound(self):
        """Limits what may precede a signature: the run's records, all its items, and the events claimed before its last part."""
        if self.run_bytes > MAX_RUN_BYTES or self.run_items > MAX_RUN_ITEMS or self.run_events > MAX_RUN_EVENTS:
            raise Refused("RunTooLong")

    def open(self, device, version, prev, index, epoch):
        if self.run:
            raise Refused("Unsigned")
        self.device = self.roster.device(device)
        if self.device is None:
            raise Refused("UnknownDevice", device.hex())
        self.roster_digest = self.roster.digest_of(version)
        if self.roster_digest is None:
            raise Refused("UnknownRoster", str(version))
        self.version = version
        first = self.device.terms[0].certificate.digest
        if index is None:
            if prev not in (None, first):
                raise Refused("PrevMismatch")
            prev = first
        elif prev is None:
            prev = self.known.get((device, index))
            if prev is None:
                raise Refused("PrevUnknown")
        self.prev, self.index, self.epoch, self.closed = prev, index, epoch, False

    def part(self, part):
        roster = self.roster
        if self.device is None:
            raise Refused("NoOpen")
        if self.schema is None:
            raise Refused("SchemaUnknown")
        index = part.skipped if self.index is None else self.index + 1 + part.skipped
        if index > 0xFFFFFFFF:
            raise Refused("IndexOutOfRange")
        epoch = part.advance if self.epoch is None else self.epoch + part.advance
        if epoch > M64 or not roster.contains(epoch):
            raise Refused("EpochOutOfRange")
        if part.skipped and not part.restart:
            raise Refused("GapWithoutRestart")
        if self.closed and part.advance == 0:
            raise Refused("EpochClosed")
        if self.version < roster.period(epoch).version:
            raise Refused("RosterOutdated")
        levels = roster.period(epoch).levels
        key = self.device.key(index, epoch)
        if key is None:
            raise Refused("IndexOutOfRange")
        if part.round > part.own_round or part.own_round >= levels:
            raise Refused("RoundOutOfRange")
        if part.n > self.max_events:
            raise Refused("TooManyEvents")
        of_events = levels_of(part.salt, levels, part.n)
        counters = [0] * levels
        for level in of_events:
            counters[level] += 1
        if part.lost and (
            part.scheme == 1
            or len(part.lost) != levels
            or not any(part.lost)
            or any(lost > count for lost, count in zip(part.lost, counters))
        ):
            raise Refused("LostOutOfRange")
        check_keys(part.keys, self.schema)
        groups = self.schema.groups
        if part.groups & ~groups or (groups and not part.groups):
            raise Refused("GroupsOutOfRange")
        if part.blinds:
            raise Refused("BlindCount")
        schema = self.schema.project(part.groups) if groups else self.schema
        version = 3 if groups else 1 if part.keys is None else 2
        fields = [version, part.scheme, roster.group, self.roster_digest, self.device.id, index, self.prev, self.index, epoch]
        fields += [self.epoch, part.last_in_epoch, part.restart, self.schema.digest, part.salt, part.round]
        fields += [part.own_round, counters, part.lost, part.answered, part.keys, groups]
        seal = Seal(dict(zip(FIELDS, fields)), None, key.alg)

        if len(part.digests) % 32:
            raise Refused("DigestCount")
        if type(part.select) is int:
            if part.select & ~seal.surviving:
                raise Refused("SelectOutOfRange")
            selected = [seq for seq, level in enumerate(of_events) if part.select >> level & 1]
        else:
            selected = part.select
            if part.scheme == 0 or selected[-1] >= part.n or any(of_events[seq] < part.own_round for seq in selected):
                raise Refused("SelectOutOfRange")
        hidden = (groups & ~part.groups).bit_count()
        if part.scheme == 0:
            expected = self.star_digests(seal, part.select) + part.select.bit_count() * hidden
        else:
            expected = multiproof_count(part.n, selected)
            if groups and selected:
                expected = expected * part.groups.bit_count() + hidden
        if len(part.digests) != 32 * expected:
            raise Refused("DigestCount")
        split = schema.split(part.events, len(selected))
        if split is None or split[1]:
            raise Refused("EventsLength")
        if self.schema.version == 2:
            for record in split[0]:
                schema.check_record(record)
        if part.signature is not None and len(part.signature) != SIGNATURE_LENGTH[key.alg]:
            raise Refused("MalformedSignature")
        self.run_bytes += len(part.events)
        self.run_events, self.latest = self.run_events + self.latest, part.n
        if len(self.run) + 1 > MAX_RUN_PARTS:
            raise Refused("RunTooLong")
        self.bound()

        records, blocks = split[0], {}
        if part.scheme == 0:
            blocks, of_level = {}, {}
            at = 0
            for level in reversed(range(levels)):
                if part.select >> level & 1:
                    of_level[level] = records[at : at + counters[level]]
                    at += counters[level]
            given = iter(chunks(part.digests)[self.star_digests(seal, part.select) :])
            for level in sorted(of_level):
                if groups:
                    blocks[level] = self.grouped(index, level, part.groups, schema, of_level[level], given)
                else:
                    blocks[level] = block_digest(self.device.id, index, level, schema.join(of_level[level]))
            seal.root = self.star_root(seal, part, blocks)
            cursors = {level: iter(block) for level, block in of_level.items()}
            rows = [(seq, of_events[seq], next(cursors[of_events[seq]])) for seq in selected]
        else:
            if groups and part.n and not selected:
                seal.root = part.digests
            elif groups:
                seal.root = self.grouped_root(part, schema, selected, records)
            else:
                leaves = [(seq, leaf_hash(record)) for seq, record in zip(selected, records)]
                seal.root = multiproof_root(part.n, leaves, chunks(part.digests))
            rows = [(seq, of_events[seq], record) for seq, record in zip(selected, records)]
        self.prev, self.index, self.epoch, self.closed = seal.digest, index, epoch, part.last_in_epoch
        return Rebuilt(part, schema, seal, of_events, rows, blocks, self.schema)

    def grouped(self, index, level, shown, schema, records, given):
        """D_i of a level, some of whose groups are hidden; `given` has the digests of these."""
        digests = []
        for group in range(8):
            if shown >> group & 1:
                cells = [schema.projected(record, 1 << group) for record in records]
                joined = schema.project(1 << group).join(cells)
                digests.append(group_digest(self.device.id, index, level, group, joined))
            elif self.schema.groups >> group & 1:
                digests.append(next(given))
        return level_digest(digests)

    def grouped_root(self, part, schema, selected, records):
        """The root of a tree (groups.md, sections 4 and 5)."""
        given, roots = chunks(part.digests), []
        siblings = multiproof_count(part.n, selected)
        for group in range(8):
            if part.groups >> group & 1:
                leaves = [(seq, leaf_hash(schema.projected(record, 1 << group))) for seq, record in zip(selected, records)]
                proof, given = given[:siblings], given[siblings:]
                roots.append(multiproof_root(part.n, leaves, proof))
            elif self.schema.groups >> group & 1:
                roots.append(given.pop(0) if part.n else H())
        return groups_root(roots)

    @staticmethod
    def lowest(seal, mask):
        return next((level for level in range(len(seal.counters)) if mask >> level & 1), len(seal.counters))

    @classmethod
    def star_digests(cls, seal, mask):
        """The number of digests that a star's part contains."""
        b, surviving = cls.lowest(seal, mask), seal.surviving
        under = any(surviving >> level & 1 for level in range(b))
        above = sum(surviving >> level & 1 and not mask >> level & 1 for level in range(b + 1, len(seal.counters)))
        return under + above

    @classmethod
    def star_evidence(cls, seal, mask, digests, start=0, above=CHAIN_START):
        """The digests that a star's part contains, given every D_i from `start` on, and A_{start-1}."""
        b, surviving = cls.lowest(seal, mask), seal.surviving
        found = []
        if any(surviving >> level & 1 for level in range(b)):
            found.append(star_chain(seal.counters[start:b], digests[start:b], above))
        found += [digests[i] for i in range(b + 1, len(seal.counters)) if surviving >> i & 1 and not mask >> i & 1]
        return b"".join(found)

    @classmethod
    def star_root(cls, seal, part, blocks):
        b, surviving = cls.lowest(seal, part.select), seal.surviving
        given = iter(chunks(part.digests))
        if any(surviving >> level & 1 for level in range(b)):
            above = next(given)
        else:
            above = star_chain(seal.counters[:b], [NULL] * b)
        digests = []
        for level in range(b, len(seal.counters)):
            if level in blocks:
                digests.append(blocks[level])
            else:
                digests.append(next(given) if surviving >> level & 1 else NULL)
        return star_chain(seal.counters[b:], digests, above)

    def prove(self):
        """Proves the newest seal by its signature. This proves the others, which were rebuilt with each other's digests."""
        newest = self.run[-1]
        key = self.device.key(newest.seal.index, newest.seal.epoch)
        key.verify(newest.seal.message, newest.part.signature)


def whole_from(rebuilt):
    """The lowest round from which on a part has exactly the surviving levels: 0 if it is whole, None if there is none."""
    select, surviving = rebuilt.part.select, rebuilt.seal.surviving
    if type(select) is not int or rebuilt.part.groups != rebuilt.seal.groups:
        return None
    lowest = (surviving & ~select).bit_length()
    return lowest if select == surviving >> lowest << lowest else None


def is_whole(rebuilt, rounds, roster):
    """Whether a part is whole; within a budget, from a round of its epoch's manifests on. `rounds` are by epoch."""
    lowest = whole_from(rebuilt)
    budget = roster.period(rebuilt.seal.epoch).budget
    enough = [0] if budget is None else [0, *rounds.get(rebuilt.seal.epoch, [])]
    return lowest is not None and lowest <= max(enough)
