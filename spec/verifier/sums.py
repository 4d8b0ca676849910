"""The keys and the encryption of private sums (sums.md, sections 1 and 2)."""

import struct

from .encoding import Refused
from .hashes import be
from .link import hmac256


P = 2**256 - 189
SHARE = 1 << 160


def chacha20_block(key, counter, nonce):
    """One block of ChaCha20 (RFC 8439, section 2.3)."""
    start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), counter, *struct.unpack("<3I", nonce)]
    state = start[:]
    quarters = [(i, 4 + i, 8 + i, 12 + i) for i in range(4)]
    quarters += [(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4) for i in range(4)]
    for _ in range(10):
        for a, b, c, d in quarters:
            for x, y, z, shift in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                state[x] = (state[x] + state[y]) & 0xFFFFFFFF
                state[z] ^= state[x]
                state[z] = (state[z] << shift | state[z] >> 32 - shift) & 0xFFFFFFFF
    return struct.pack("<16I", *((word + first) & 0xFFFFFFFF for word, first in zip(state, start)))


def slot_block(secret, query, slot, epoch):
    key = hmac256(secret, b"moteseal/1/sum/query", query)
    return chacha20_block(key, slot, bytes(4) + struct.pack("<Q", epoch))


def source_secret(master, group, device):
    return hmac256(master, b"moteseal/1/sum/device", group, device)


def key_group_secret(master, group, number):
    return hmac256(master, b"moteseal/1/sum/keygroup", group, be(number, 4))


def source_key(secret, query, slot, epoch):
    """The source's key `k` and its share `s`."""
    block = slot_block(secret, query, slot, epoch)
    return int.from_bytes(block[:32], "little") % P, int.from_bytes(block[32:52], "little")


def group_factor(secret, query, slot, epoch):
    """The key group's factor `K`."""
    return int.from_bytes(slot_block(secret, query, slot, epoch)[:32], "little") % P or 1


def mask(root, group, query, slot, epoch, position, first, end):
    """Section 2.3: the number that a source adds to its record."""

    def number(place):
        secret = hmac256(root, b"moteseal/1/sum/mask", group, be(place, 4))
        return int.from_bytes(slot_block(secret, query, slot, epoch)[:32], "little")

    return (number(position) - number(position - 1 if position > first else end - 1)) % P


def refusal_tag(master, group, device, query, epoch, reason):
    """Section 4.1: the tag of a refusal."""
    secret = source_secret(master, group, device)
    return hmac256(secret, b"moteseal/1/sum/refusal", query, be(epoch, 8), reason.encode())[:8]


def psr_read(data):
    if len(data) != 32:
        raise Refused("TruncatedPsr")
    if int.from_bytes(data, "big") >= P:
        raise Refused("NotCanonical")
    return int.from_bytes(data, "big")


def sum_open(total, factor, keys, vmax):
    """Opens the sum in a record of one key group, with the `(k, s)` of its participants."""
    m = (total - sum(k for k, _ in keys)) * pow(factor, -1, P) % P
    rest = m - sum(share for _, share in keys)
    if rest < 0 or rest % SHARE:
        raise Refused("SharesMismatch")
    if rest // SHARE > len(keys) * vmax:
        raise Refused("SumOutOfRange")
    return rest // SHARE
