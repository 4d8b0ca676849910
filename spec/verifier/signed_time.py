"""Signed time (time.md)."""

from .encoding import M64, Refused, array, byte_string, decode, out_of_range, uint, version_one
from .hashes import H
from .signed import TIME, signed


def time_challenge(secret, starts, count):
    """Section 1."""
    label = b"moteseal/1/time/challenge\0"
    return H(label + secret + starts.to_bytes(4, "big") + count.to_bytes(4, "big"))[:16]


def time_open(data, group, device, challenge, keys):
    """Section 2.2, steps 1 to 7. `keys` are those of the operator and of the querier, or None."""
    object = signed(data, TIME)
    out_of_range(len(object.payload) > 48)
    fields = array(decode(object.payload), 6)
    version_one(fields[0])
    to_group, to_device = byte_string(fields[1], 8), byte_string(fields[2], 8)
    answered, time, signer = byte_string(fields[3], 16), uint(fields[4]), uint(fields[5])
    out_of_range(signer > 1)
    if to_group != group:
        raise Refused("WrongGroup")
    if to_device != device:
        raise Refused("OtherDevice")
    if answered != challenge:
        raise Refused("WrongChallenge")
    if keys[signer] is None:
        raise Refused("UnknownSigner")
    object.verify(keys[signer])
    return time


def time_range(time, sent, received, now):
    """Section 2.2, step 8, and section 3, rule 2."""
    if received - sent > 5000:
        raise Refused("TimeLate")
    a, b = now - received, now - sent
    return min(time + a - -(-a // 2048), M64), min(time + b + -(-b // 2048), M64)
