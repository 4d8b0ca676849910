#!/usr/bin/env python3
"""Recomputes the worked example of example.md: one bundle, byte by byte, from the vector "a star" of stream/mutations.json.

usage: example.py            print the listing
       example.py --check    compare it with the listing in example.md; exit 1 if they differ
       example.py --write    replace the listing in example.md

It is independent of verify.py. It checks one valid bundle of a star and reports no error names. Needs Python 3.11,
cbor2 and cryptography.
"""

import hashlib
import json
import pathlib
import struct
import sys

import cbor2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

HERE = pathlib.Path(__file__).resolve().parent
VECTORS = HERE / "vectors/v1/stream/mutations.json"
PAGE = HERE / "example.md"
BEGIN, END = "```text\n", "```\n"
KINDS = {0: "schema", 1: "open", 2: "part"}
FIELDS = {
    0: ["schema"],
    1: ["version", "device id", "roster version", "prev", "prev_index", "prev_epoch"],
    2: ["flags", "skipped", "advance", "salt", "n", "round", "own_round", "lost", "answered", "select", "digests", "events"]
    + ["signature"],
}
SCHEMA_FIELDS = ["name", "unit", "type", "divisor", "offset"]
STATEMENT = ["version", "scheme", "group id", "roster digest", "device id", "index", "prev", "prev_index", "epoch", "prev_epoch"]
STATEMENT += ["last_in_epoch", "restart", "schema digest", "salt", "round", "own_round", "counters", "lost", "answered"]
M64 = 2**64 - 1


def sha256(data):
    return hashlib.sha256(data).digest()


def encode(value):
    return cbor2.dumps(value, canonical=True)


def head_length(data, at):
    """The length of the head of a CBOR item."""
    return {24: 2, 25: 3, 26: 5, 27: 9}.get(data[at] & 31, 1)


def item_end(data, at):
    """The end of the CBOR item that begins at a place. Only the types that a bundle has."""
    size = head_length(data, at)
    major, low = data[at] >> 5, data[at] & 31
    count = low if low < 24 else int.from_bytes(data[at + 1 : at + size], "big")
    at += size
    if major in (2, 3):
        at += count
    elif major == 4:
        for _ in range(count):
            at = item_end(data, at)
    return at


class Listing:
    def __init__(self):
        self.lines = []

    def title(self, text):
        self.lines += ["", text] if self.lines else [text]

    def row(self, left, data, meaning):
        """Bytes with their meaning, 16 bytes a line."""
        for at in range(0, max(len(data), 1), 16):
            place = f"{left + at:04x}" if isinstance(left, int) else (left if at == 0 else "")
            text = data[at : at + 16].hex(" ")
            self.lines.append(f"{place:<14}  {text:<47}  {meaning if at == 0 else ''}".rstrip())

    def value(self, name, data, note=""):
        self.row(name, data, note)


def show(value):
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def siphash24(key, message):
    """SipHash-2-4 of 8 bytes, as an integer."""
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def left(x, by):
        return (x << by | x >> (64 - by)) & M64

    def sip_round():
        v[0] = (v[0] + v[1]) & M64
        v[1] = left(v[1], 13) ^ v[0]
        v[0] = left(v[0], 32)
        v[2] = (v[2] + v[3]) & M64
        v[3] = left(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & M64
        v[3] = left(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & M64
        v[1] = left(v[1], 17) ^ v[2]
        v[2] = left(v[2], 32)

    for word in (struct.unpack("<Q", message)[0], len(message) << 56):
        v[3] ^= word
        sip_round()
        sip_round()
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(4):
        sip_round()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def list_items(out, data):
    """Lists the bundle byte by byte. Returns its items by kind."""
    found, at = {}, 0
    while at < len(data):
        end, item = item_end(data, at), cbor2.loads(data[at : item_end(data, at)])
        kind = item[0]
        out.title(f"{KINDS[kind]} item: {end - at} bytes")
        out.row(at, data[at : at + 1], f"array of {len(item)} elements")
        out.row(at + 1, data[at + 1 : at + 2], f"kind {kind}: {KINDS[kind]}")
        at += 2
        for name, value in zip(FIELDS[kind], item[1:]):
            size, stop = head_length(data, at), item_end(data, at)
            if kind == 0:
                out.row(at, data[at : at + size], f"schema: byte string of {len(value)} bytes")
                list_schema(out, at + size, value)
            elif isinstance(value, bytes) and len(value) > 8:
                out.row(at, data[at : at + size], f"{name}: byte string of {len(value)} bytes")
                out.row(at + size, value, name)
            else:
                shown = value.hex() if isinstance(value, bytes) else f"0b{value:b}" if name == "select" else show(value)
                out.row(at, data[at:stop], f"{name}: {shown}")
            at = stop
        found[kind] = item
    return found


def list_schema(out, base, schema):
    at = 3
    out.row(base, schema[:1], "array of 2 elements")
    out.row(base + 1, schema[1:2], "version 1")
    out.row(base + 2, schema[2:3], f"array of {schema[2] & 31} fields")
    for field in cbor2.loads(schema)[1]:
        out.row(base + at, schema[at : at + 1], "field: array of 5 elements")
        at += 1
        for name, value in zip(SCHEMA_FIELDS, field):
            end = item_end(schema, at)
            out.row(base + at, schema[at:end], f"{name}: {value}")
            at = end


def main_key(roster_bytes, device):
    """The values that a verifier takes from its roster: digest, group id, levels and the device's public key."""
    roster = cbor2.loads(roster_bytes).value
    digest = sha256(encode(["Signature1", roster[0], b"", roster[2]]))
    payload = cbor2.loads(roster[2])
    entry = next(entry for entry in payload[8] if entry[0] == device)
    certificate = cbor2.loads(entry[3][0][0]).value
    return digest, payload[2], payload[5][0][4], certificate


def listing():
    vectors = json.loads(VECTORS.read_text())
    case = next(case for case in vectors["valid"] if case["name"] == "a star")
    data = bytes.fromhex(case["input"]["bytes"])
    out = Listing()
    items = list_items(out, data)
    device, part = items[1][2], items[2]
    _, flags, skipped, advance, salt, n, round_, own_round, lost, answered, select, digests, events, signature = part
    roster_digest, group, levels, certificate = main_key(bytes.fromhex(vectors["roster"]), device)

    out.title("From the roster")
    out.value("roster digest", roster_digest)
    out.value("group id", group)
    first = sha256(encode(["Signature1", certificate[0], b"", certificate[2]]))
    public_key = cbor2.loads(certificate[2])[5]
    out.value("public key", public_key, "of the device's first certificate")
    out.value("certificate", first, "digest of the first certificate: prev")
    assert first == items[1][4]

    out.title(f"Levels: L = {levels}, SipHash-2-4(salt, seq)")
    level_of = []
    for seq in range(n):
        word = siphash24(salt, struct.pack("<Q", seq))
        level_of.append(min(64 - word.bit_length(), levels - 1))
        out.value(f"seq {seq}", word.to_bytes(8, "big"), f"level {level_of[-1]}")
    counters = [level_of.count(level) for level in range(levels)]
    out.lines.append(f"counters: {counters}")

    index, epoch = skipped, advance
    schema = items[0][1]
    schema_digest = sha256(b"moteseal/1/schema\0" + schema)
    out.title("The statement, with the values that the part does not contain")
    statement = [1, flags & 1, group, roster_digest, device, index, items[1][4], None, epoch, None, bool(flags & 2), bool(flags & 4)]
    statement += [schema_digest, salt, round_, own_round, counters, lost, answered]
    out.row("", encode(statement)[:1], f"array of {len(statement)} elements")
    for name, value in zip(STATEMENT, statement):
        out.value(name, encode(value), "" if isinstance(value, bytes) else show(value))

    out.title("Blocks and the chain of the star")
    size = sum({0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 8, 7: 8, 8: 4, 9: 8, 10: 4}[field[2]] for field in cbor2.loads(schema)[1])
    blocks, at = {}, 0
    for level in reversed(range(levels)):
        if select >> level & 1:
            blocks[level] = events[at : at + size * counters[level]]
            at += size * counters[level]
    assert at == len(events)
    lowest, given = min(blocks), [digests[at : at + 32] for at in range(0, len(digests), 32)]
    null = [not counters[level] or level < own_round or bool(lost and lost[level]) for level in range(levels)]
    chain = given.pop(0)
    out.value(f"A_{lowest - 1}", chain, "the first of the part's digests: a level below is not null")
    for level in range(lowest, levels):
        if level in blocks:
            header = b"moteseal/1/star".ljust(32, b"\0") + device + struct.pack(">II", index, level) + bytes(16)
            out.value(f"header_{level}", header)
            out.value(f"block_{level}", blocks[level], f"{counters[level]} records of {size} bytes")
            digest, why = sha256(header + blocks[level]), "SHA-256(header || block)"
        elif null[level]:
            digest, why = bytes(32), "level is null"
        else:
            digest, why = given.pop(0), "from the part's digests"
        out.value(f"D_{level}", digest, why)
        chain = sha256(chain + struct.pack(">I", counters[level]) + digest)
        out.value(f"A_{level}", chain, "the root" if level == levels - 1 else f"SHA-256(A_{level - 1} || {counters[level]} || D_{level})")
    assert not given and chain.hex() == case["output"]["parts"][0]["root"]

    out.title("The signature")
    header = b"\xa3" + encode(1) + encode(-19) + encode(16) + encode("moteseal-seal+cose") + encode(-70001) + encode(statement)
    out.row("protected", header[:3], "map of 3 entries; 1 (alg): -19, Ed25519")
    out.row("", header[3:23], "16 (typ): moteseal-seal+cose")
    out.row("", header[23:28], "-70001 (statement)")
    out.row("", header[28:], f"the statement, {len(header) - 28} bytes")
    message = encode(["Signature1", header, b"", chain])
    out.row("Sig_structure", message, f"the signed bytes, {len(message)} bytes")
    out.value("digest", sha256(message), "SHA-256(Sig_structure): prev of the next seal")
    Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    out.lines.append("Ed25519 verify(public key, Sig_structure, signature): valid")
    assert sha256(message).hex() == case["output"]["parts"][0]["digest"]

    out.title("The events")
    cursors = {level: 0 for level in blocks}
    for seq, level in enumerate(level_of):
        if level in blocks:
            out.value(f"seq {seq}", blocks[level][cursors[level] : cursors[level] + size], f"level {level}")
            cursors[level] += size
    return "\n".join(out.lines) + "\n"


def main():
    text = listing()
    if sys.argv[1:] == []:
        print(text, end="")
        return 0
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    written, _, after = rest.partition(END)
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(before + BEGIN + text + END + after)
        return 0
    if sys.argv[1:] != ["--check"]:
        print(__doc__, file=sys.stderr)
        return 2
    if written != text:
        print("example.md has another listing than example.py computes; run spec/example.py --write", file=sys.stderr)
        return 1
    print("example.md: the listing is correct")
    return 0


if __name__ == "__main__":
    sys.exit(main())
