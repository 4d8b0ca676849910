"""uTESLA (tesla.md)."""

from dataclasses import dataclass

import cbor2

from .encoding import Refused, array, byte_string, decode, out_of_range, uint, version_one, wrong_type
from .hashes import H, be
from .link import hmac256


TESLA_PACKET, TESLA_KEY = 40, 41


@dataclass
class Tesla:
    """The schedule and the newest known key of a chain of keys."""

    network: bytes
    sender: bytes
    chain: int
    start: int
    interval: int
    delay: int
    last: int
    committed: int = 0
    key: bytes = b""

    def check(self):
        if self.interval == 0:
            raise Refused("IntervalOutOfRange")
        if self.delay == 0:
            raise Refused("DelayOutOfRange")
        if not 1 <= self.last <= 1 << 20:
            raise Refused("TooManyIntervals")
        if (self.start + (self.last + self.delay + 1) * self.interval) >> 64:
            raise Refused("EndsTooLate")

    def block(self, kind):
        names = self.network + self.sender + be(self.chain, 8)
        return b"moteseal/tesla/1" + bytes(8) + names + bytes([kind]) + bytes(15)

    @property
    def reference(self):
        return H(self.block(0))[:8]

    def before(self, interval, key):
        return H(self.block(0), be(interval, 4), key)[:16]

    def tag(self, interval, key, message):
        return hmac256(H(self.block(1), be(interval, 4), key), message)[:8]

    def interval_at(self, now):
        return None if now < self.start else (now - self.start) // self.interval

    def encode(self):
        fields = [1, self.network, self.sender, self.chain, self.start, self.interval, self.delay, self.last]
        return cbor2.dumps([*fields, self.committed, self.key])


def tesla_parameters(data, network, sender, chain):
    try:
        fields = array(decode(data), 10)
        version_one(fields[0])
        numbers = [uint(field, bits) for field, bits in zip(fields[3:9], (64, 64, 32, 8, 32, 32))]
        found = Tesla(byte_string(fields[1], 8), byte_string(fields[2], 8), *numbers, byte_string(fields[9], 16))
        found.check()
        out_of_range(found.committed > found.last)
    except Refused:
        raise Refused("Malformed") from None
    for one, other, name in (
        (found.network, network, "WrongNetwork"),
        (found.sender, sender, "WrongSender"),
    ):
        if one != other:
            raise Refused(name)
    if found.chain > chain:
        raise Refused("WrongChain")
    return found


def tesla_send(tesla, secret, says):
    """The parameters and frames of a sender. `secret` is the key of the smallest power of two that is at least `last`."""
    tesla.check()
    keys = {max(2, 1 << (tesla.last - 1).bit_length()): secret}
    for interval in range(max(keys), 0, -1):
        keys[interval - 1] = tesla.before(interval, keys[interval])
    tesla.key = keys[0]
    served, frames = 0, []
    for now, message in says:
        if message is not None and len(message) > 4096:
            raise Refused("MessageTooLong")
        interval = tesla.interval_at(now) or 0
        if min(interval, tesla.last) > min(served, tesla.last) + 1024:
            raise Refused("LeapTooLong")
        if interval < served:
            raise Refused("ClockWentBack")
        served = interval
        if message is None:
            disclosed = min(interval - tesla.delay, tesla.last)
            frame = [TESLA_KEY, tesla.reference, disclosed, keys[disclosed]] if disclosed > 0 else None
            frames.append(frame and cbor2.dumps(frame))
            continue
        if interval == 0:
            raise Refused("NotStarted")
        if interval > tesla.last:
            raise Refused("Ended")
        tag = tesla.tag(interval, keys[interval], message)
        frames.append(cbor2.dumps([TESLA_PACKET, tesla.reference, interval, message, tag]))
    return tesla.encode(), frames


class TeslaReceiver:
    """Section 5, with unlimited memory, except that messages have at most `longest` bytes."""

    def __init__(self, tesla, offset, steps, budget, longest=32):
        self.tesla, self.offset, self.steps, self.budget, self.longest = tesla, offset, steps, budget, longest
        self.kept, self.spent = [], (None, 0)

    def receive(self, now, data):
        """Processes a frame. Returns the messages that it proves."""
        fields = array(decode(data))
        wrong_type(not fields)
        kind = uint(fields[0])
        if kind not in (TESLA_PACKET, TESLA_KEY):
            raise Refused("UnknownItem")
        array(fields, 5 if kind == TESLA_PACKET else 4)
        reference, interval = byte_string(fields[1], 8), uint(fields[2], 32)
        if kind == TESLA_PACKET:
            message, tag = byte_string(fields[3]), byte_string(fields[4], 8)
        else:
            key = byte_string(fields[3], 16)
        tesla, highest = self.tesla, self.tesla.interval_at(now + self.offset)
        if reference != tesla.reference:
            raise Refused("WrongChain")
        if kind == TESLA_PACKET:
            self.packet(interval, highest, message, tag)
            return []
        return self.key(interval, highest, key)

    def packet(self, interval, highest, message, tag):
        if interval == 0:
            raise Refused("NoSuchInterval")
        if interval > self.tesla.last:
            raise Refused("BeyondEnd")
        if interval <= self.tesla.committed:
            raise Refused("NotSafe")
        if highest is None or highest < interval:
            raise Refused("FutureInterval")
        if highest >= interval + self.tesla.delay:
            raise Refused("NotSafe")
        if len(message) > self.longest:
            raise Refused("MessageTooLong")
        if (interval, message, tag) in self.kept:
            raise Refused("Repeated")
        self.kept.append((interval, message, tag))

    def key(self, interval, highest, key):
        tesla = self.tesla
        if interval > tesla.last:
            raise Refused("BeyondEnd")
        if interval <= tesla.committed:
            raise Refused("Repeated" if (interval, key) == (tesla.committed, tesla.key) else "OldKey")
        if interval - tesla.committed > self.steps:
            raise Refused("TooManySteps")
        if interval - tesla.committed > tesla.delay + 1:
            before = self.spent[1] if self.spent[0] == highest else 0
            self.spent = (highest, before)
            if before + interval - tesla.committed > self.budget:
                raise Refused("BudgetSpent")
            self.spent = (highest, before + interval - tesla.committed)
        keys = {interval: key}
        for at in range(interval, tesla.committed, -1):
            keys[at - 1] = tesla.before(at, keys[at])
        if keys[tesla.committed] != tesla.key:
            raise Refused("ForgedKey")
        tesla.committed, tesla.key = interval, key
        waited = sorted((packet for packet in self.kept if packet[0] <= interval), key=lambda packet: packet[0])
        self.kept = [packet for packet in self.kept if packet[0] > interval]
        if highest is None or highest < interval + tesla.delay:
            raise Refused("ClockTooFarOff")
        return [(of, message) for of, message, tag in waited if tesla.tag(of, keys[of], message) == tag]
