"""Authenticated broadcasts (broadcast.md)."""

import unicodedata
from dataclasses import dataclass

from .encoding import (
    Form,
    M64,
    Refused,
    array,
    byte_string,
    decode,
    out_of_range,
    sint,
    text,
    uint,
    version_one,
    wrong_type,
)
from .hashes import H, be
from .signed import signed
from .suites import ALGORITHMS, Key


# ---------------------------------------------------------------- broadcast.md, section 1: senders and base stations

MAX_REVOKED = 8
CHAIN, SENDER_REQUEST = "moteseal-chain+cose", "moteseal-request+cose"
SENDER_CERTIFICATE, REVOCATION = "moteseal-sender+cose", "moteseal-revocation+cose"


def sender_named(name):
    return H(b"moteseal/1/sender\0", name.encode())[:8]


def key_id(key):
    return H(b"moteseal/1/key\0", key.raw)[:8]


def network_of(key):
    return H(b"moteseal/1/network\0", key.raw)[:8]


def suite(value):
    number = sint(value)
    if number not in ALGORITHMS:
        raise Refused("UnknownAlgorithm", str(number))
    return ALGORITHMS[number]


def sender_request(data):
    object = signed(data, SENDER_REQUEST)
    fields = array(decode(object.payload), 4)
    version_one(fields[0])
    sender, number, raw = byte_string(fields[1], 8), sint(fields[2]), byte_string(fields[3])
    key = Key(suite(number), raw)
    object.verify(key)
    return sender, key


def of_base(object, network, base, expected_network, bases):
    """Checks that the named base station signed a certificate or revocation. Returns the base station's place."""
    if network != expected_network:
        raise Refused("WrongNetwork")
    for place, key in enumerate(bases):
        if key_id(key) == base:
            object.verify(key)
            return place
    raise Refused("UnknownBaseStation")


@dataclass
class SenderCertificate:
    base: int
    serial: int
    sender: bytes
    key: Key
    not_before: int
    not_after: int

    def check(self, now, revoked):
        if self.serial in revoked:
            raise Refused("Revoked")
        if now is not None and now < self.not_before:
            raise Refused("NotYetValid")
        if now is not None and self.not_after != M64 and now >= self.not_after:
            raise Refused("Expired")


def sender_certificate(data, network, bases):
    object = signed(data, SENDER_CERTIFICATE)
    fields = array(decode(object.payload), 9)
    version_one(fields[0])
    of, base = byte_string(fields[1], 8), byte_string(fields[2], 8)
    serial, sender = uint(fields[3]), byte_string(fields[4], 8)
    number, raw = sint(fields[5]), byte_string(fields[6])
    not_before, not_after = uint(fields[7]), uint(fields[8])
    alg = suite(number)
    out_of_range(not_before >= not_after or serial == M64)
    place = of_base(object, of, base, network, bases)
    return SenderCertificate(place, serial, sender, Key(alg, raw), not_before, not_after)


@dataclass
class Revoked:
    """What a base station has revoked."""

    minimum: int
    serials: list

    def __contains__(self, serial):
        return serial < self.minimum or serial in self.serials

    def check_covers(self, known):
        if self.minimum < known.minimum or any(serial not in self for serial in known.serials):
            raise Refused("Superseded")


def revocation(data, network, bases):
    object = signed(data, REVOCATION)
    fields = array(decode(object.payload), 5)
    version_one(fields[0])
    of, base, minimum = byte_string(fields[1], 8), byte_string(fields[2], 8), uint(fields[3])
    listed, serials = array(fields[4]), []
    out_of_range(len(listed) > MAX_REVOKED)
    for item in listed:
        serial = uint(item)
        out_of_range(serial <= (serials[-1] if serials else minimum) or serial == M64)
        serials.append(serial)
    return of_base(object, of, base, network, bases), Revoked(minimum, serials)


# ---------------------------------------------------------------- broadcast.md, sections 2 and 3: chains

SHA_256 = -16
LEAF, BLOCK = 0, 1
MAX_CHAIN, MAX_BLOCK, MAX_CHAIN_MESSAGE, MAX_LABEL = 1 << 24, 64, 8192, 64
COMMAND, LONGEST_COMMAND, NEVER_ENDS = 3, 604_800, M64
ADDRESSED, KINDS = 8, (0, 1, 2, 3, 8, 9, 11)


def not_plain(label):
    return any(unicodedata.category(letter) == "Cc" for letter in label)


@dataclass
class Chain:
    """The fields of a chain's head."""

    network: bytes
    sender: bytes
    key: bytes
    number: int
    messages: int
    per_block: int
    longest: int
    kind: int
    label: str
    first: bytes = b""
    tags: bytes = b""
    not_before: int = 0
    not_after: int = NEVER_ENDS
    step: int = 0

    @property
    def previous(self):
        return self.number - self.step if self.step else None

    def timely(self, now, offset):
        """Section 3.5: whether the chain may be delivered at a time."""
        if self.not_before == 0 and self.not_after == NEVER_ENDS:
            return
        if now is None:
            raise Refused("NoTrustedTime")
        if now + offset < self.not_before:
            raise Refused("Early")
        if now >= self.not_after != NEVER_ENDS:
            raise Refused("Late")

    def hash(self, role, *data):
        id = self.network + self.sender + self.key + be(self.number, 8)
        return H(b"moteseal/cast/1".ljust(24, b"\0"), id, bytes([role]).ljust(8, b"\0"), *data)

    @property
    def reference(self):
        return self.hash(LEAF)[:8]

    @property
    def blocks(self):
        return -(-self.messages // self.per_block)

    def in_block(self, block):
        if not 1 <= block <= self.blocks:
            return 0
        return min(self.per_block, self.messages - (block - 1) * self.per_block)

    def tags_of(self, block):
        return 8 * self.in_block(block) if self.in_block(block) > 1 else 0

    def trailer(self, block):
        return 32 + self.tags_of(block + 1) if block < self.blocks else 0


def chain_of(chain, messages):
    """The chain that a sender makes of messages, with its first digest and tags, and its leaves."""
    if not messages:
        raise Refused("NoMessages")
    if len(messages) > MAX_CHAIN:
        raise Refused("TooManyMessages")
    if not 1 <= chain.per_block <= MAX_BLOCK:
        raise Refused("BlockTooLarge")
    if len(chain.label.encode()) > MAX_LABEL:
        raise Refused("LabelTooLong")
    if not_plain(chain.label):
        raise Refused("LabelNotPlain")
    if max(map(len, messages)) > MAX_CHAIN_MESSAGE:
        raise Refused("MessageTooLong")
    chain.longest = max(map(len, messages))
    leaves, trailer = [], b""
    for start in reversed(range(0, len(messages), chain.per_block)):
        block = list(messages[start : start + chain.per_block])
        block[-1] = trailer + block[-1]
        hashes = [chain.hash(LEAF, leaf) for leaf in block]
        chain.first = chain.hash(BLOCK, block[-1], *hashes[:-1])
        chain.tags = b"".join(one[:8] for one in hashes) if len(block) > 1 else b""
        trailer = chain.first + chain.tags
        leaves = block + leaves
    return leaves


def chain_head(data, network, sender, key, single=False):
    object = signed(data, CHAIN)
    fields = array(decode(object.payload), 16)
    version_one(fields[0])
    of, by, under = (byte_string(field, 8) for field in fields[1:4])
    number, messages, per_block = uint(fields[4]), uint(fields[5], 32), uint(fields[6], 8)
    longest, kind = uint(fields[7], 16), uint(fields[8], 8)
    out_of_range(kind not in KINDS)
    out_of_range(not 1 <= messages <= MAX_CHAIN or not 1 <= per_block <= MAX_BLOCK or longest > MAX_CHAIN_MESSAGE)
    label, not_before, not_after, step = text(fields[9]), *map(uint, fields[10:13])
    hash_number, first, tags = sint(fields[13]), byte_string(fields[14], 32), byte_string(fields[15])
    head = Chain(of, by, under, number, messages, per_block, longest, kind, label, first, tags, not_before, not_after, step)
    if hash_number != SHA_256:
        raise Refused("UnknownAlgorithm")
    out_of_range(len(label.encode()) > MAX_LABEL or not_plain(label) or (kind >= ADDRESSED and label != ""))
    out_of_range(not_before >= not_after or step > number)
    out_of_range(kind % ADDRESSED == COMMAND and (not_after == NEVER_ENDS or not_after - not_before > LONGEST_COMMAND))
    out_of_range(len(tags) != head.tags_of(1))
    if single and messages != 1:
        raise Refused("NotSingle")
    if of != network:
        raise Refused("WrongNetwork")
    if by != sender:
        raise Refused("WrongSender")
    if under != key_id(key):
        raise Refused("WrongKey")
    object.verify(key)
    return head


class ChainReceiver:
    """A receiver of one chain. It keeps all leaves of the current block."""

    def __init__(self, head):
        self.chain, self.block, self.digest, self.tags, self.held = head, 1, head.first, head.tags, {}

    @property
    def missing(self):
        return [index for index in range(self.chain.in_block(self.block)) if index not in self.held]

    def take(self, block, index, leaf):
        chain = self.chain
        leaves = chain.in_block(self.block)
        if block != self.block or self.block > chain.blocks:
            raise Refused("NotThisBlock")
        if index >= leaves:
            raise Refused("IndexOutOfRange")
        before = chain.trailer(block) if index == leaves - 1 else 0
        if len(leaf) < before:
            raise Refused("LeafTooShort")
        if len(leaf) - before > chain.longest:
            raise Refused("LeafTooLong")
        message = leaf[before:].hex()
        if leaves > 1 and chain.hash(LEAF, leaf)[:8] != self.tags[8 * index : 8 * index + 8]:
            raise Refused("ForgedLeaf")
        if index in self.held:
            return "repeated"
        self.held[index] = leaf
        if self.missing:
            return ["pending", message]
        last = self.held[leaves - 1]
        others = [chain.hash(LEAF, self.held[other]) for other in range(leaves - 1)]
        if chain.hash(BLOCK, last, *others) != self.digest:
            self.held = {}
            raise Refused("BlockMismatch" if leaves > 1 else "ForgedLeaf")
        trailer = last[: chain.trailer(block)]
        self.digest, self.tags, self.held = trailer[:32], trailer[32:], {}
        self.block += 1
        return ["verified", message, block, block == chain.blocks]


# ---------------------------------------------------------------- broadcast.md, sections 4 to 6: one message, frames, evidence


def broadcast_frame(data):
    frame = array(decode(data))
    wrong_type(not frame)
    kind = uint(frame[0])
    lengths = {32: 2, 33: 2, 34: 2, 35: 5, 36: 4, 37: 4, 38: 3, 39: 6} | RECEIVER_FRAMES
    if kind not in lengths:
        raise Refused("UnknownItem")
    array(frame, lengths[kind])
    if kind in (32, 33, 34):
        name = {32: "certificate", 33: "revocation", 34: "head"}[kind]
        return {"frame": name, "bytes": byte_string(frame[1])}
    if kind == 38:
        return {"frame": "single", "head": byte_string(frame[1]), "leaf": byte_string(frame[2])}
    if kind in RECEIVER_FRAMES:
        return receiver_frame(kind, frame)
    read = {"chain": byte_string(frame[1], 8), "block": uint(frame[2], 32)}
    if kind == 36:
        return {"frame": "wanted"} | read | {"wanted": uint(frame[3])}
    if kind == 39:
        mask, lengths, data = uint(frame[3]), uint(frame[4], 16), byte_string(frame[5])
        out_of_range(mask == 0)
        return {"frame": "repair"} | read | {"mask": mask, "lengths": lengths, "bytes": data}
    index = uint(frame[3], 8)
    out_of_range(index >= MAX_BLOCK)
    if kind == 37:
        return {"frame": "holds"} | read | {"index": index}
    return {"frame": "fragment"} | read | {"index": index, "leaf": byte_string(frame[4])}


RECEIVER_FRAMES = {42: 4, 43: 4, 44: 5, 45: 4, 46: 7}


def receiver_frame(kind, frame):
    """A frame of section 7, whose kind and number of fields are checked."""

    def receiver(item):
        position = uint(item)
        out_of_range(position > 32767)
        return position

    if kind == 42:
        chain, receivers, tag = byte_string(frame[1], 8), byte_string(frame[2]), byte_string(frame[3], 16)
        return {"frame": "receipts", "chain": chain, "receivers": receivers, "tag": tag}
    if kind == 43:
        chain, most = byte_string(frame[1], 8), uint(frame[2], 32)
        out_of_range(most == 0)
        return {"frame": "receipts wanted", "chain": chain, "most": most, "receivers": byte_string(frame[3])}
    if kind == 44:
        read = {"key": byte_string(frame[1], 8), "above": uint(frame[2])}
        return {"frame": "head wanted"} | read | {"receiver": receiver(frame[3]), "tag": byte_string(frame[4], 16)}
    if kind == 45:
        read = {"receiver": receiver(frame[1]), "tag": byte_string(frame[2], 16)}
        return {"frame": "head for"} | read | {"head": byte_string(frame[3])}
    read = {"chain": byte_string(frame[1], 8), "block": uint(frame[2], 32), "wanted": uint(frame[3])}
    read |= {"attempt": uint(frame[4], 32), "receiver": receiver(frame[5]), "tag": byte_string(frame[6], 16)}
    return {"frame": "receiver wanted"} | read


def chain_of_one(data, network, sender, key):
    """Opens a chain of one message. Returns the head and the message."""
    frame = broadcast_frame(data)
    if frame["frame"] != "single":
        raise Refused("NotSingle")
    head = chain_head(frame["head"], network, sender, key, single=True)
    ChainReceiver(head).take(1, 0, frame["leaf"])
    return head, frame["leaf"]


def broadcast_evidence(data, network, bases):
    """The sender, the proven messages, and the number of messages in the chain."""
    certificate = hearing = None
    proven, pending, at = [], [], 0
    while at < len(data):
        form = Form(data, at)
        form.item()
        frame, at = broadcast_frame(data[at : form.at]), form.at
        kind = frame["frame"]
        if certificate is None and kind == "certificate":
            certificate = sender_certificate(frame["bytes"], network, bases)
        elif certificate and hearing is None and kind == "head":
            hearing = ChainReceiver(chain_head(frame["bytes"], network, certificate.sender, certificate.key))
        elif hearing and kind == "fragment" and frame["chain"] == hearing.chain.reference:
            if frame["block"] != hearing.block or frame["index"] not in hearing.missing[:1]:
                raise Refused("OutOfOrder")
            verdict = hearing.take(frame["block"], frame["index"], frame["leaf"])
            pending.append(verdict[1])
            if verdict[0] == "verified":
                proven, pending = proven + pending, []
        else:
            raise Refused("OutOfOrder")
    return certificate, hearing, proven
