"""Receivers that share a key with the sender of a broadcast (broadcast.md, section 7)."""

from .broadcast import MAX_LABEL, not_plain
from .encoding import Refused, array, byte_string, decode, out_of_range, uint, version_one
from .hashes import H, be
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


# ---------------------------------------------------------------- broadcast.md, section 8: chains for named receivers

MAX_ADDRESSED, ENTRY, LABEL_NUMBER = 32_768, 24, 2**32 - 1


def expand(key, label, *info):
    return hmac256(key, label, *info, b"\1")


def commitment_of(id, content_key):
    return H(b"moteseal/1/content-key\0", id, content_key)


def encrypted(id, content_key, number, data):
    """Encrypts or decrypts a message."""
    key = expand(content_key, b"moteseal/1/content\0", id)
    blocks = range(-(-len(data) // 32))
    stream = b"".join(hmac256(key, be(number, 4), be(block, 4)) for block in blocks)
    return bytes(one ^ other for one, other in zip(data, stream))


def addressed_content(id, total, receiver, messages):
    """The label and the content of a chain of `total` messages, of which `messages` were received, for a receiver."""
    fields = decode(messages[0])
    fields = array(fields, 6 if total == 1 else 5)
    version_one(fields[0])
    commitment, left, label, entries = byte_string(fields[1], 32), uint(fields[2], 32), byte_string(fields[3]), byte_string(fields[4])
    inline = byte_string(fields[5]) if total == 1 else None
    out_of_range(not 1 <= left <= MAX_ADDRESSED or len(label) > MAX_LABEL)
    count = len(entries) // ENTRY
    out_of_range(len(entries) % ENTRY or not 1 <= count <= left or (total == 1 and count < left))
    own = expand(receiver, b"moteseal/1/receiver/address\0", id, commitment) if receiver else None
    last, content_key, read = None, None, 0
    while True:
        out_of_range(not entries or len(entries) % ENTRY or len(entries) // ENTRY > left)
        for at in range(0, len(entries), ENTRY):
            mark, masked = entries[at : at + 8], entries[at + 8 : at + ENTRY]
            out_of_range(last is not None and mark <= last)
            last = mark
            if own and mark == own[:8]:
                content_key = bytes(one ^ other for one, other in zip(masked, own[8:]))
        read, left = read + 1, left - len(entries) // ENTRY
        if read + (total > 1) + (left > 0) > total:
            raise Refused("AddressIncomplete")
        if left == 0:
            break
        if read == len(messages):
            raise Refused("AddressIncomplete")
        entries = messages[read]
    if receiver is None:
        raise Refused("NoReceiverKey")
    if content_key is None:
        raise Refused("NotAddressed")
    if commitment_of(id, content_key) != commitment:
        raise Refused("WrongContentKey")
    try:
        label = encrypted(id, content_key, LABEL_NUMBER, label).decode()
    except UnicodeDecodeError:
        out_of_range(True)
    out_of_range(not_plain(label))
    content = [inline] if total == 1 else messages[read:]
    return label, [encrypted(id, content_key, number, one) for number, one in enumerate(content)]
