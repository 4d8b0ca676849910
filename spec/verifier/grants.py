"""Grants, owners' files and shares (grants.md)."""

import hashlib

import cbor2

from .confidential import DEPTH, child, column_root, commitment, next_secret, seal_key
from .encoding import Refused, array, byte_string, decode, optional, out_of_range, text, uint, unhex, version_one, wrong_type
from .hashes import H, be
from .signed import GRANT, signed

LAST = (1 << DEPTH) - 1
M64 = (1 << 64) - 1


def offsets(node):
    """The first and the last offset below a node."""
    depth, prefix, _ = node
    return prefix << DEPTH - depth, (prefix + 1 << DEPTH - depth) - 1


def below(node, depth, prefix):
    """The node at a depth and prefix that is below `node`, or `node` itself."""
    at, _, key = node
    while at < depth:
        at += 1
        key = child(key, prefix >> depth - at & 1)
    return depth, prefix, key


def cover(nodes, first, last):
    """The fewest nodes that open the offsets `first` to `last` that `nodes` open."""
    out = []
    for node in nodes:
        start, end = offsets(node)
        start, end = max(start, first), min(end, last)
        while start <= end:
            height = 0
            while height < DEPTH and start >> height & 1 == 0 and start + (2 << height) - 1 <= end:
                height += 1
            out.append(below(node, DEPTH - height, start >> height))
            start += 1 << height
    return out


def nodes_decode(value):
    """Section 1.2, a list of nodes."""
    out_of_range(len(array(value)) > 64)
    nodes, free = [], 0
    for node in value:
        depth, prefix, key = array(node, 3)
        node = uint(depth, 8), uint(prefix, 32), byte_string(key, 32)
        out_of_range(depth > DEPTH or prefix >> depth)
        start, end = offsets(node)
        out_of_range(start < free)
        free = end + 1
        nodes.append(node)
    return nodes


def is_plain(value, longest):
    return len(value.encode()) <= longest and not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in value)


def is_name(value):
    return value != "" and is_plain(value, 64)


def ascends(values):
    return all(one < other for one, other in zip(values, values[1:]))


def grant_decode(payload):
    """Section 3.1, the payload."""
    fields = array(decode(payload))
    wrong_type(not fields)
    version_one(fields[0])
    _, group, roster, owner, since, until, end, purpose, audience, streams = array(fields, 10)
    byte_string(group, 8), byte_string(roster, 32), byte_string(owner, 8)
    uint(since), optional(until, uint), optional(end, uint), text(purpose)
    if type(audience) is list:
        for recipient in audience:
            text(recipient)
    else:
        byte_string(audience, 32)
    read = []
    for stream in array(streams):
        device, generation, base, columns = array(stream, 4)
        key = byte_string(device, 8), uint(generation, 32)
        uint(base)
        read.append((*key, base, [(byte_string(id, 16), nodes_decode(nodes)) for id, nodes in (array(c, 2) for c in array(columns))]))
    if type(audience) is list:
        sizes = [len(recipient.encode()) for recipient in audience]
        out_of_range(not 1 <= len(audience) <= 64 or not ascends([r.encode() for r in audience]))
        out_of_range(any(not 1 <= size <= 128 for size in sizes))
    out_of_range(until is not None and since >= until)
    out_of_range(not is_plain(purpose, 256) or not read or not ascends([stream[:2] for stream in read]))
    for _, _, base, columns in read:
        out_of_range(not 1 <= len(columns) <= 256 or not ascends([id for id, _ in columns]))
        out_of_range(any(not nodes for _, nodes in columns) or base > M64 - LAST)
    devices = [device for device, *_ in read]
    if any(devices.count(device) > 64 for device in set(devices)):
        raise Refused("TooManyGenerations")
    return group, roster, owner, (since, until), end, purpose, audience, read


def is_within(time, roster, epoch):
    """Section 4.2, step 2: the epoch is in the granted time."""
    since, until = time
    start = roster.epoch_start(epoch)
    end = start + roster.period(epoch).epoch_ms
    return since <= start <= M64 and (until is None or end <= until)


def epochs_within(time, roster):
    """The first epoch in the granted time, and the one after the last."""
    since, until = time
    first = roster.epoch_of(since)
    return first + (roster.epoch_start(first) < since), M64 if until is None else roster.epoch_of(until)


def grant_verify(data, roster):
    """Section 4.1, steps 2 to 6: the payload, and the owner."""
    object = signed(data, GRANT)
    payload = grant_decode(object.payload)
    group, digest, id, *_ = payload
    if group != roster.group:
        raise Refused("WrongGroup")
    if digest not in [*roster.history, roster.digest]:
        raise Refused("UnknownRoster")
    owner = next((owner for owner in roster.owners if owner.id == id), None)
    if owner is None:
        raise Refused("UnknownOwner")
    try:
        object.verify(owner.key)
    except Refused:
        if digest != roster.digest:
            raise Refused("OwnerKeyChanged") from None
        raise
    return payload, owner


def passphrase_tag(passphrase, salt):
    """Section 3.2."""
    salted = b"moteseal/1/passphrase\0" + salt
    return salt + hashlib.scrypt(passphrase.encode(), salt=salted, n=1 << 15, r=8, p=1, maxmem=64 << 20, dklen=16)


def grant_open(data, roster, recipient, passphrase, now):
    """Section 4.1, steps 2 to 8."""
    payload, owner = grant_verify(data, roster)
    *_, end, _, audience, _ = payload
    if type(audience) is list:
        listed = recipient in audience
    else:
        listed = passphrase is not None and audience == passphrase_tag(passphrase, audience[:16])
    if not listed:
        raise Refused("NotForYou")
    if end is not None and now > end:
        raise Refused("GrantExpired")
    return payload, owner


def grant_open_vector(roster, given):
    payload, owner = grant_open(
        unhex(given["bytes"]), roster, given.get("recipient"), given.get("passphrase"), given["now"]
    )
    *_, time, end, purpose, audience, streams = payload
    begin, stop = epochs_within(time, roster)
    columns = []
    for device, generation, base, granted in streams:
        for id, nodes in granted:
            ranges = []
            for first, last in map(offsets, nodes):
                first, last = max(base + first, begin), min(base + last, stop - 1)
                if first > last:
                    continue
                if ranges and ranges[-1][1] + 1 == first:
                    ranges[-1][1] = last
                else:
                    ranges.append([first, last])
            columns.append([device.hex(), generation, id.hex(), ranges])
    return {
        "owner": owner.name,
        "since": time[0],
        "until": time[1],
        "purpose": purpose,
        "not_after": end,
        "recipients": audience if type(audience) is list else None,
        "columns": columns,
    }


def grant_key_vector(roster, given):
    """Section 4.2."""
    payload, _ = grant_verify(unhex(given["bytes"]), roster)
    device, column, epoch = unhex(given["device"]), unhex(given["column"]), given["epoch"]
    failure = "NotCovered"
    for owned, _, base, columns in reversed(payload[-1]):
        for id, nodes in columns:
            if (owned, id) != (device, column) or not 0 <= epoch - base <= LAST:
                continue
            for _, _, leaf in cover(nodes, epoch - base, epoch - base):
                if not is_within(payload[3], roster, epoch):
                    raise Refused("GrantOutdated")
                key = seal_key(leaf, device, epoch, given["index"], column, given["suite"], unhex(given["nonce"]))
                if commitment(key).hex() == given["commitment"]:
                    return {"key": key.hex()}
                failure = "WrongKey"
    raise Refused(failure)


# ---------------------------------------------------------------- owners' files

ED25519_PKCS8 = bytes.fromhex("302e020100300506032b657004220420")


def checksum(content):
    return H(b"moteseal/1/owner-file\0", content)


def owner_decode(data):
    """Section 2.1."""
    fields = array(decode(data))
    wrong_type(not fields)
    version_one(fields[0])
    _, content, check = array(fields, 3)
    byte_string(content), byte_string(check, 32)
    if checksum(content) != check:
        raise Refused("Damaged")
    group, name, key, streams = array(decode(content), 4)
    text(group), text(name), byte_string(key)
    last = None
    for stream in array(streams):
        device, generation, base, step, secret, forgotten, columns = array(stream, 7)
        place = byte_string(device, 8), uint(generation, 32)
        uint(base), uint(step, 32), byte_string(secret, 32), optional(forgotten, uint)
        for column in array(columns):
            id, label, batch, nodes = array(column, 4)
            byte_string(id, 16), text(label), uint(batch, 32), optional(nodes, nodes_decode)
        first = 0 if forgotten is None else forgotten - base
        out_of_range(forgotten is not None and not 0 < first <= LAST)
        out_of_range(step > 256 or (step > 0) != (forgotten is not None))
        out_of_range(len(columns) > 256 or not ascends([column[0] for column in columns]))
        for _, label, batch, nodes in columns:
            out_of_range(not is_name(label) or batch > 255 or (nodes is not None) != (batch < step))
            out_of_range(bool(nodes) and offsets(nodes[0])[0] < first)
        if last == place:
            raise Refused("DuplicateStream")
        out_of_range(last is not None and last > place)
        last = place
    out_of_range(not is_name(group) or not is_name(name))
    if not key.startswith(ED25519_PKCS8) or len(key) != len(ED25519_PKCS8) + 32:
        raise Refused("MalformedDer")
    return group, name, key, streams


def owner_encode(owner):
    content = cbor2.dumps(list(owner), canonical=True)
    return cbor2.dumps([1, content, checksum(content)], canonical=True)


def owner_forget(owner, epoch):
    """Section 2.3."""
    group, name, key, streams = owner
    if any(epoch > base + LAST for _, _, base, *_ in streams):
        raise Refused("EpochOutOfKeyRange")
    out = []
    for device, generation, base, step, secret, forgotten, columns in streams:
        start = base if forgotten is None else forgotten
        first = max(epoch, start)
        is_added = forgotten is not None and any(nodes is None for *_, nodes in columns)
        if columns and (first > start or is_added):
            left, kept = [], secret
            batches = {}
            for batch in range(step, max(step, *(column[2] + 1 for column in columns))):
                batches[batch], kept = kept, next_secret(kept)
            for id, label, batch, nodes in columns:
                before = [(0, 0, column_root(batches[batch], id))] if nodes is None else nodes
                left.append([id, label, batch, [list(node) for node in cover(before, first - base, LAST)]])
            step, secret, forgotten, columns = step + len(batches), kept, first, left
        out.append([device, generation, base, step, secret, forgotten, columns])
    return group, name, key, out


def owner_open_vector(given):
    from cryptography.hazmat.primitives.asymmetric import ed25519

    group, name, key, streams = owner_decode(unhex(given["bytes"]))
    public = ed25519.Ed25519PrivateKey.from_private_bytes(key[-32:]).public_key().public_bytes_raw()
    return {
        "group": group,
        "name": name,
        "key": public.hex(),
        "streams": [
            [device.hex(), generation, base, forgotten, [[id.hex(), label] for id, label, *_ in columns]]
            for device, generation, base, _, _, forgotten, columns in streams
        ],
    }


def owner_forget_vector(given):
    return {"bytes": owner_encode(owner_forget(owner_decode(unhex(given["bytes"])), given["epoch"])).hex()}


# ---------------------------------------------------------------- shares

DIGITS = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
BECH32M = 0x2BC830A3


def polymod(values):
    """BIP 173."""
    check = 1
    for value in values:
        top = check >> 25
        check = (check & 0x1FFFFFF) << 5 ^ value
        for place, generator in enumerate((0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)):
            if top >> place & 1:
                check ^= generator
    return check


def share_decode(value):
    """Section 5.2."""
    malformed = Refused("MalformedShare")
    if value.lower() != value and value.upper() != value:
        raise malformed
    prefix, _, data = value.strip().lower().rpartition("1")
    if prefix != "moteseal-share-" or any(letter not in DIGITS for letter in data) or len(data) < 6:
        raise malformed
    values = [DIGITS.index(letter) for letter in data]
    expanded = [ord(letter) >> 5 for letter in prefix] + [0] + [ord(letter) & 31 for letter in prefix]
    if polymod(expanded + values) != BECH32M:
        raise malformed
    bits, rest = 5 * (len(values) - 6), 0
    for digit in values[:-6]:
        rest = rest << 5 | digit
    if bits % 8 >= 5 or rest & (1 << bits % 8) - 1:
        raise malformed
    encoded = be(rest >> bits % 8, bits // 8)
    if encoded and encoded[0] > 1:
        raise Refused("UnsupportedShare")
    if len(encoded) != 38 or encoded[0] != 1 or not 1 <= encoded[5] <= 3:
        raise malformed
    return encoded[1:5], encoded[5], encoded[6:]


def times(a, b):
    product = 0
    while b:
        product ^= a if b & 1 else 0
        a = a << 1 ^ (0x11B if a & 0x80 else 0)
        b >>= 1
    return product


def shares_join(shares):
    """Section 5.2: interpolation at 0."""
    if not shares:
        raise Refused("TooFewShares")
    if len({set for set, _, _ in shares}) > 1:
        raise Refused("OtherBackup")
    one = shares[0]
    other = next((share for share in shares if share[1] != one[1]), None)
    if other is None:
        raise Refused("TooFewShares")
    inverse = next(a for a in range(256) if times(a, one[1] ^ other[1]) == 1)
    slope = bytes(times(a ^ b, inverse) for a, b in zip(one[2], other[2]))
    secret = bytes(a ^ times(m, one[1]) for a, m in zip(one[2], slope))
    for _, position, value in shares:
        if bytes(s ^ times(m, position) for s, m in zip(secret, slope)) != value:
            raise Refused("ShareMismatch")
    return secret


def owner_share_vector(given):
    return {"secret": shares_join([share_decode(share) for share in given["shares"]]).hex()}
