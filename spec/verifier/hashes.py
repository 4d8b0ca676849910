"""Hashes, ids, and the levels of events (objects.md, sections 1.4 and 6.2)."""

import hashlib
import hmac
import struct

from .encoding import M64


def H(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def be(value, length):
    return value.to_bytes(length, "big")


def group_id(name):
    return H(b"moteseal/1/group\0", name.encode())[:8]


def device_id(group, name):
    return H(b"moteseal/1/device\0", group.encode(), b"\0", name.encode())[:8]


def sanitiser_id(group, name):
    return H(b"moteseal/1/sanitiser\0" + group.encode() + b"\0" + name.encode())[:8]


def owner_id(group, name):
    return H(b"moteseal/1/owner\0", group.encode(), b"\0", name.encode())[:8]


def salt_of(key, device, index):
    return hmac.new(key, b"moteseal/1/salt" + device + be(index, 4), hashlib.sha256).digest()[:16]


def siphash24(key, message):
    """SipHash-2-4 (Aumasson and Bernstein) with a 64-bit result."""
    k0, k1 = struct.unpack("<QQ", key)
    v0, v1 = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D
    v2, v3 = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573

    def rounds(count, v0, v1, v2, v3):
        for _ in range(count):
            v0 = (v0 + v1) & M64
            v1 = ((v1 << 13 | v1 >> 51) & M64) ^ v0
            v0 = (v0 << 32 | v0 >> 32) & M64
            v2 = (v2 + v3) & M64
            v3 = ((v3 << 16 | v3 >> 48) & M64) ^ v2
            v0 = (v0 + v3) & M64
            v3 = ((v3 << 21 | v3 >> 43) & M64) ^ v0
            v2 = (v2 + v1) & M64
            v1 = ((v1 << 17 | v1 >> 47) & M64) ^ v2
            v2 = (v2 << 32 | v2 >> 32) & M64
        return v0, v1, v2, v3

    whole = len(message) // 8 * 8
    words = list(struct.unpack(f"<{whole // 8}Q", message[:whole]))
    words.append(int.from_bytes(message[whole:], "little") | (len(message) & 0xFF) << 56)
    for word in words:
        v0, v1, v2, v3 = rounds(2, v0, v1, v2, v3 ^ word)
        v0 ^= word
    v0, v1, v2, v3 = rounds(4, v0, v1, v2 ^ 0xFF, v3)
    return v0 ^ v1 ^ v2 ^ v3


def level_of(salt, seq, levels):
    return min(64 - siphash24(salt, struct.pack("<Q", seq)).bit_length(), levels - 1)


def levels_of(salt, levels, n):
    return [level_of(salt, seq, levels) for seq in range(n)]


def chacha_block(key, tail, rounds):
    """A block of ChaCha. `tail` is the last row of the state, four words: the counter and the nonce."""

    def quarter(s, a, b, c, d):
        for x, y, z, shift in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            s[x] = (s[x] + s[y]) & 0xFFFFFFFF
            s[z] ^= s[x]
            s[z] = (s[z] << shift | s[z] >> 32 - shift) & 0xFFFFFFFF

    start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), *tail]
    state = start[:]
    for _ in range(rounds // 2):
        for column in range(4):
            quarter(state, column, 4 + column, 8 + column, 12 + column)
        for i in range(4):
            quarter(state, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(state, start)))


def chacha12_words(key):
    """The key stream of ChaCha with 12 rounds, nonce 0, 64-bit block counter from 0, as 64-bit little-endian words."""
    counter = 0
    while True:
        yield from struct.unpack("<8Q", chacha_block(key, [counter & 0xFFFFFFFF, counter >> 32, 0, 0], 12))
        counter += 1
