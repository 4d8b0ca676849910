"""Confidential readings (confidential.md): keys, covers, commitments, key streams."""

import hashlib
import hmac
import struct

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from .encoding import Refused, byte_string, out_of_range
from .hashes import H, be, chacha_block
from .schema import TEXT


CHACHA20, AES_128_CTR = 1, 2
NONCE, COMMITMENT, MAX_ENCRYPTED = 12, 16, 16
DEPTH = 32


def kdf(key, label, *context):
    return hmac.new(key, label + b"\0" + b"".join(context), hashlib.sha256).digest()


def column_id(field):
    return H(b"moteseal/2/column\0", field)[:16]


def column_root(secret, column):
    return kdf(secret, b"moteseal/1/column", column)


def next_secret(secret):
    return kdf(secret, b"moteseal/2/next")


def child(node, bit):
    return kdf(node, b"moteseal/1/node", bytes([bit]))


def offset_of(base, epoch):
    """Section 1, rule 4."""
    if not base <= epoch <= base + 0xFFFFFFFF:
        raise Refused("EpochOutOfKeyRange")
    return epoch - base


def below(key, depth, offset, until=DEPTH):
    """The node of depth `until` on the way from a node of depth `depth` to an offset."""
    for level in range(depth, until):
        key = child(key, offset >> (DEPTH - 1 - level) & 1)
    return key


def cover(root, base, first, last):
    """Section 1, rule 8: depth, prefix and key of each node, top down."""
    wanted = offset_of(base, first), offset_of(base, last)
    found = []

    def descend(depth, prefix, key):
        start, size = prefix << (DEPTH - depth), 1 << (DEPTH - depth)
        if start > wanted[1] or start + size <= wanted[0]:
            return
        if wanted[0] <= start and start + size - 1 <= wanted[1]:
            found.append([depth, prefix, key])
            return
        for bit in (0, 1):
            descend(depth + 1, prefix << 1 | bit, child(key, bit))

    descend(0, 0, root)
    return found


def epoch_key(nodes, base, epoch):
    """Section 5, steps 2 and 3."""
    offset = offset_of(base, epoch)
    for depth, prefix, key in nodes:
        if offset >> (DEPTH - depth) == prefix:
            return below(key, depth, offset)
    raise Refused("NotCovered")


def seal_key(leaf, device, epoch, index, column, suite, nonce):
    return kdf(leaf, b"moteseal/1/seal", device, be(epoch, 8), be(index, 4), column, bytes([suite]), nonce)


def commitment(key):
    return H(b"moteseal/1/commit\0", key)[:COMMITMENT]


def check_key(key, stated):
    """Section 5, step 4."""
    if not hmac.compare_digest(commitment(key), stated):
        raise Refused("WrongKey")


def check_nodes(nodes):
    for depth, prefix, _ in nodes:
        if depth > DEPTH or prefix >> depth:
            raise Refused("MalformedKey")


def keys_decode(value):
    """Section 3, rule 4: the keys of a seal."""
    rest = len(byte_string(value)) - NONCE
    out_of_range(not COMMITMENT <= rest <= MAX_ENCRYPTED * COMMITMENT or rest % COMMITMENT)
    return value


def check_keys(keys, schema):
    """The number of commitments is that of the schema's encrypted columns."""
    count = 0 if keys is None else (len(keys) - NONCE) // COMMITMENT
    if count != len([field for field in schema.fields if field.suite]):
        raise Refused("KeyCommitmentCount")


def aes_blocks(key, first, length):
    """Section 4, rules 4 and 5."""
    if first + -(-length // 16) > 1 << 32:
        raise Refused("KeyStreamEnd")
    counter = key[16:28] + be(first & 0xFFFFFFFF, 4)
    return Cipher(algorithms.AES(key[:16]), modes.CTR(counter)).encryptor().update(bytes(length))


def fixed_stream(suite, key, start, length):
    """Section 4, rules 1, 3 and 4: the bytes `start` to `start + length - 1` of a column's key stream."""
    size = 64 if suite == CHACHA20 else 16
    first, last = start // size, (start + length - 1) // size
    if suite == CHACHA20:
        blocks = [
            chacha_block(key, [n & 0xFFFFFFFF, *struct.unpack("<3I", struct.pack("<IQ", n >> 32, 0))], 20)
            for n in range(first, last + 1)
        ]
        stream = b"".join(blocks)
    else:
        stream = aes_blocks(key, first, size * (last + 1 - first))
    return stream[start - first * size :][:length]


def text_stream(suite, key, seq, length):
    """Section 4, rules 2 to 4."""
    if suite == AES_128_CTR:
        return aes_blocks(key, 16 * seq, length)
    nonce = struct.unpack("<3I", struct.pack("<IQ", 1, seq))
    return b"".join(chacha_block(key, [n, *nonce], 20) for n in range(-(-length // 64)))[:length]


def decrypt(schema, keys, seq, record):
    """Decrypts the columns that have a key. Returns the record, and the names of the columns that have none."""
    keys = dict(zip([field.name for field in schema.fields if field.suite], keys))
    fixed, texts = [], []
    for field, cell in zip(schema.fields, schema.cells(record)):
        key = keys.get(field.name)
        if key is not None and cell:
            if field.kind == TEXT:
                stream = text_stream(field.suite, key, seq, len(cell))
            else:
                stream = fixed_stream(field.suite, key, seq * len(cell), len(cell))
            cell = bytes(a ^ b for a, b in zip(cell, stream))
        if field.kind == TEXT:
            texts.append(b"\xff" if cell is None else bytes([len(cell)]) + cell)
        else:
            fixed.append(cell)
    return b"".join(fixed + texts), {name for name, key in keys.items() if key is None}
