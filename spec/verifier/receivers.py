"""Receivers that share a key with the sender of a broadcast (broadcast.md, section 7)."""

from .encoding import Refused
from .hashes import be
from .link import hmac256
from .schedules import participation_decode


def receiver_key(secret, network, sender, position, name):
    return hmac256(secret, b"moteseal/1/receiver\0", network, sender, be(position, 4), name.encode())


def receiver_tag(key, what, *parts):
    return hmac256(key, b"moteseal/1/receiver/" + what + b"\0", *parts)[:16]


def check_receipts(keys, head, receivers, tag):
    """Checks combined receipts of the receivers whose keys are `keys`, by position. Returns how many they are."""
    runs = participation_decode(receivers, 1 << 15)
    if not runs:
        raise Refused("MalformedParticipation")
    expected, count = 0, 0
    for position in (position for start, end in runs for position in range(start, end)):
        if position >= len(keys):
            raise Refused("UnknownPosition")
        expected ^= int.from_bytes(receiver_tag(keys[position], b"receipt", head))
        count += 1
    if expected.to_bytes(16) != tag:
        raise Refused("NotAuthentic")
    return count
