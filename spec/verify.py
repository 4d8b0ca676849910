#!/usr/bin/env python3
"""A second verifier of Moteseal's formats, written only from the text of spec/: its pages, moteseal.cddl and errors.md.

usage: verify.py --vectors DIR                                  replay every test vector, compare verdicts and error names
       verify.py bundle FILE... --roster R --operator PUB.pem   verify files: bundles (.mseal), proofs (.mproof)
       verify.py merkle [DIR|TAR]                               check the tree against independent test data for RFC 9162

It shares no code with the implementation, and follows the order of the text instead of optimising for speed. Needs
Python 3.11, cbor2 and cryptography. Exit codes:
0 success, 1 a disagreement or a refusal, 2 a usage error.
"""

import argparse
import base64
import hashlib
import hmac
import json
import math
import os
import pathlib
import re
import struct
import sys
import tarfile
import unicodedata
from dataclasses import dataclass, field
from fractions import Fraction

import cbor2
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

try:
    from cryptography.hazmat.primitives.asymmetric import mldsa
except ImportError:
    mldsa = None


class Refused(Exception):
    """A refusal, with its name in errors.md."""

    def __init__(self, name, detail=""):
        super().__init__(f"{name}: {detail}" if detail else name)
        self.name = name


class Skipped(Exception):
    """Something that this installation cannot check."""


unhex = bytes.fromhex

# ---------------------------------------------------------------- objects.md, section 1: encoding

MAX_DEPTH = 12


@dataclass
class Tag:
    number: int
    value: object


@dataclass
class Map:
    pairs: list


class Form:
    """Step 1: the form of one item, and its value."""

    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def take(self, length):
        if self.at + length > len(self.data):
            raise Refused("Truncated")
        self.at += length
        return self.data[self.at - length : self.at]

    def item(self, depth=0):
        if depth > MAX_DEPTH:
            raise Refused("NonCanonical", "nested too deeply")
        first = self.take(1)[0]
        major, info = first >> 5, first & 31
        if info < 24:
            argument = info
        elif info > 27:
            raise Refused("NonCanonical", "an indefinite length or a reserved head")
        else:
            width = 1 << info - 24
            argument = int.from_bytes(self.take(width), "big")
            least = 24 if width == 1 else 1 << 4 * width
            if argument < least or major == 7:
                raise Refused("NonCanonical", "a longer head than needed")
        if major == 0:
            return argument
        if major == 1:
            return -1 - argument
        if major == 2:
            return bytes(self.take(argument))
        if major == 3:
            try:
                return bytes(self.take(argument)).decode("utf-8", "strict")
            except UnicodeDecodeError:
                raise Refused("NonCanonical", "text that is not UTF-8") from None
        if major == 4:
            values = []
            for _ in range(argument):
                values.append(self.item(depth + 1))
            return values
        if major == 5:
            pairs, last = [], None
            for _ in range(argument):
                start = self.at
                key = self.item(depth + 1)
                encoded = bytes(self.data[start : self.at])
                if last is not None and last >= encoded:
                    raise Refused("NonCanonical", "keys out of order")
                last = encoded
                pairs.append((key, self.item(depth + 1)))
            return Map(pairs)
        if major == 6:
            return Tag(argument, self.item(depth + 1))
        if argument not in (20, 21, 22):
            raise Refused("NonCanonical", "a simple value other than false, true and null")
        return {20: False, 21: True, 22: None}[argument]


def decode(data):
    """Step 1 for a single item. Returns its value."""
    form = Form(data)
    value = form.item()
    if form.at != len(data):
        raise Refused("TrailingBytes")
    return value


# Step 2: the types and ranges of fields.


def wrong_type(condition):
    if condition:
        raise Refused("UnexpectedType")


def out_of_range(condition):
    if condition:
        raise Refused("FieldOutOfRange")


def array(value, length=None):
    wrong_type(type(value) is not list or (length is not None and len(value) != length))
    return value


def uint(value, bits=64):
    wrong_type(type(value) is not int or value < 0)
    out_of_range(value >> bits)
    return value


def sint(value):
    wrong_type(type(value) is not int)
    out_of_range(not -(1 << 63) <= value < 1 << 63)
    return value


def byte_string(value, length=None):
    wrong_type(type(value) is not bytes or (length is not None and len(value) != length))
    return value


def text(value):
    wrong_type(type(value) is not str)
    return value


def boolean(value):
    wrong_type(type(value) is not bool)
    return value


def optional(value, read, *arguments):
    return None if value is None else read(value, *arguments)


def version_one(value):
    if uint(value) != 1:
        raise Refused("UnsupportedVersion")


def counts(value):
    out_of_range(len(array(value)) > 32)
    return [uint(count, 32) for count in value]


def answered(value):
    out_of_range(len(array(value)) > 8)
    read = []
    for entry in value:
        query, first, count = array(entry, 3)
        query, first, count = byte_string(query, 16), uint(first), uint(count, 32)
        out_of_range(count == 0 or first + count > M64)
        out_of_range(any(query == other and first <= begin + length for other, begin, length in read))
        read.append([query, first, count])
    return read


# ---------------------------------------------------------------- objects.md, sections 1.4 and 6.2: hashes, ids, levels


def H(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def be(value, length):
    return value.to_bytes(length, "big")


def group_id(name):
    return H(b"moteseal/1/group\0", name.encode())[:8]


def device_id(group, name):
    return H(b"moteseal/1/device\0", group.encode(), b"\0", name.encode())[:8]


def salt_of(key, device, index):
    return hmac.new(key, b"moteseal/1/salt" + device + be(index, 4), hashlib.sha256).digest()[:16]


M64 = (1 << 64) - 1


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


def chacha12_words(key):
    """The key stream of ChaCha with 12 rounds, nonce 0, 64-bit block counter from 0, as 64-bit little-endian words."""

    def quarter(s, a, b, c, d):
        for x, y, z, shift in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            s[x] = (s[x] + s[y]) & 0xFFFFFFFF
            s[z] ^= s[x]
            s[z] = (s[z] << shift | s[z] >> 32 - shift) & 0xFFFFFFFF

    counter = 0
    while True:
        start = list(struct.unpack("<4I", b"expand 32-byte k")) + list(struct.unpack("<8I", key))
        start += [counter & 0xFFFFFFFF, counter >> 32, 0, 0]
        state = start[:]
        for _ in range(6):
            for column in range(4):
                quarter(state, column, 4 + column, 8 + column, 12 + column)
            for i in range(4):
                quarter(state, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
        block = struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(state, start)))
        yield from struct.unpack("<8Q", block)
        counter += 1


def known_answers():
    """Tests the primitives of this file against published test vectors."""
    key = bytes(range(16))
    assert siphash24(key, bytes(range(15))) == 0xA129CA6149BE45E5  # the paper's appendix A
    assert siphash24(key, b"") == 0x726FDB47DD0E0E31
    assert siphash24(key, bytes(range(8))) == 0x93F5F5799A932462
    words = chacha12_words(bytes(32))  # draft-strombergson-chacha-test-vectors, TC1
    start = b"".join(struct.pack("<Q", next(words)) for _ in range(8))
    assert start.hex().startswith("9bf49a6a0755f953811fce125f2683d50429c3bb49e074147e0089a52eae155f")
    block = chacha20_block(bytes(range(32)), 1, unhex("000000090000004a00000000"))  # RFC 8439, section 2.3.2
    assert block[:16].hex() == "10f1e7e4d13b5915500fdd1fa32071c4" and block[48:].hex() == "b5129cd1de164eb9cbd083e8a2503c4e"
    assert tree_root([]) == hashlib.sha256(b"").digest()  # RFC 9162, section 2.1.1
    assert ed25519_point(bytes.fromhex("01" + "00" * 31)) == (0, 1)
    for thing in (0, 23, 24, -70001, b"x" * 300, "temperature", [1, None, True], 1 << 63):
        assert decode(cbor2.dumps(thing, canonical=True)) == thing


# ---------------------------------------------------------------- objects.md, section 2.2: signature suites

P25519 = 2**255 - 19
D25519 = -121665 * pow(121666, -1, P25519) % P25519


def ed25519_point(encoded):
    """The point of a canonical encoding (RFC 8032, section 5.1.3), or None."""
    y = int.from_bytes(encoded, "little")
    sign, y = y >> 255, y & (1 << 255) - 1
    if y >= P25519:
        return None
    u, v = (y * y - 1) % P25519, (D25519 * y * y + 1) % P25519
    x2 = u * pow(v, -1, P25519) % P25519
    x = pow(x2, (P25519 + 3) // 8, P25519)
    if (x * x - x2) % P25519:
        x = x * pow(2, (P25519 - 1) // 4, P25519) % P25519
    if (x * x - x2) % P25519 or (x == 0 and sign):
        return None
    return (P25519 - x if x & 1 != sign else x, y)


def ed25519_small(point):
    """Whether the point's order divides 8."""
    for _ in range(3):
        x, y = point
        xy, xx, yy = x * y, x * x, y * y
        product = D25519 * xx * yy % P25519
        point = (
            2 * xy * pow(1 + product, -1, P25519) % P25519,
            (yy + xx) * pow(1 - product, -1, P25519) % P25519,
        )
    return point == (0, 1)


P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551

ALGORITHMS = {-19: "ed25519", -9: "esp256", -48: "ml-dsa-44"}
KEY_LENGTH = {"ed25519": 32, "esp256": 65, "ml-dsa-44": 1312}
SIGNATURE_LENGTH = {"ed25519": 64, "esp256": 64, "ml-dsa-44": 2420}


@dataclass
class Key:
    alg: str
    raw: bytes
    prepared: object = None

    def __post_init__(self):
        if self.alg not in KEY_LENGTH:
            raise Refused("UnknownAlgorithm")
        if len(self.raw) != KEY_LENGTH[self.alg]:
            raise Refused("KeyLength")
        if self.alg == "ed25519":
            point = ed25519_point(self.raw)
            if point is None or ed25519_small(point):
                raise Refused("InvalidPublicKey")
            self.prepared = ed25519.Ed25519PublicKey.from_public_bytes(self.raw)
        elif self.alg == "esp256":
            try:
                if self.raw[0] != 4:
                    raise ValueError
                self.prepared = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), self.raw)
            except ValueError:
                raise Refused("InvalidPublicKey") from None

    def verify(self, message, signature):
        if len(signature) != SIGNATURE_LENGTH[self.alg]:
            raise Refused("MalformedSignature")
        try:
            if self.alg == "ed25519":
                r = ed25519_point(signature[:32])
                if r is None or ed25519_small(r):
                    raise InvalidSignature
                self.prepared.verify(signature, message)
            elif self.alg == "esp256":
                r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
                if not (0 < r < P256_ORDER and 0 < s < P256_ORDER):
                    raise InvalidSignature
                self.prepared.verify(encode_dss_signature(r, s), message, ec.ECDSA(hashes.SHA256()))
                if s > P256_ORDER // 2:
                    raise Refused("HighS")
            else:
                if mldsa is None:
                    raise Skipped("ML-DSA-44: this installation of cryptography does not have it")
                try:
                    mldsa.MLDSA44PublicKey.from_public_bytes(self.raw).verify(signature, message)
                except UnsupportedAlgorithm:
                    raise Skipped("ML-DSA-44: the OpenSSL of this installation does not have it") from None
        except InvalidSignature:
            raise Refused("NotAuthentic") from None


def key_from_pem(data):
    key = serialization.load_pem_public_key(data)
    if isinstance(key, ed25519.Ed25519PublicKey):
        return Key("ed25519", key.public_bytes_raw())
    if isinstance(key, ec.EllipticCurvePublicKey):
        form = serialization.PublicFormat.UncompressedPoint
        return Key("esp256", key.public_bytes(serialization.Encoding.X962, form))
    if mldsa is not None and isinstance(key, mldsa.MLDSA44PublicKey):
        return Key("ml-dsa-44", key.public_bytes_raw())
    raise Refused("UnknownAlgorithm", "the operator's key is not Ed25519, P-256 or ML-DSA-44")


# ---------------------------------------------------------------- objects.md, section 2: signed objects

SEAL, EVENT = "moteseal-seal+cose", "moteseal-event+cose"
CERTIFICATE, ROSTER = "moteseal-cert+cose", "moteseal-roster+cose"
ROUND, MANIFEST = "moteseal-round+cose", "moteseal-manifest+cose"
TIME = "moteseal-time+cose"


def sig_structure(protected, payload):
    return cbor2.dumps(["Signature1", protected, b"", payload])


@dataclass
class Signed:
    protected: bytes
    payload: bytes
    signature: bytes
    alg: str
    vds: bool
    statement: object

    @property
    def message(self):
        return sig_structure(self.protected, self.payload)

    @property
    def digest(self):
        return H(self.message)

    def verify(self, key):
        """Step 5."""
        if self.alg != key.alg:
            raise Refused("AlgorithmMismatch")
        key.verify(self.message, self.signature)


def signed(data, typ):
    """Steps 1 to 3."""
    value = decode(data)
    wrong_type(type(value) is not Tag or value.number != 18)
    protected, unprotected, payload, signature = array(value.value, 4)
    byte_string(protected)
    wrong_type(type(unprotected) is not Map)
    if unprotected.pairs:
        raise Refused("UnexpectedHeader", "unprotected")
    byte_string(payload)
    byte_string(signature)
    header = decode(protected)
    wrong_type(type(header) is not Map)
    alg = found_typ = statement = None
    vds = has_statement = False
    for label, entry in header.pairs:
        if type(label) is not int:
            raise Refused("UnexpectedHeader", str(label))
        if label == 1:
            alg = sint(entry)
        elif label == 2:
            raise Refused("UnknownCritical")
        elif label == 16:
            found_typ = text(entry)
        elif label == 395:
            if uint(entry) != 1:
                raise Refused("UnexpectedHeader", "vds")
            vds = True
        elif label == -70001:
            statement, has_statement = entry, True
        else:
            raise Refused("UnexpectedHeader", str(label))
    if found_typ != typ:
        raise Refused("WrongType", str(found_typ))
    if alg not in ALGORITHMS:
        raise Refused("UnknownAlgorithm", str(alg))
    if has_statement != (typ in (SEAL, EVENT)) or (vds and typ != SEAL):
        raise Refused("UnexpectedHeader")
    return Signed(protected, payload, signature, ALGORITHMS[alg], vds, statement)


# ---------------------------------------------------------------- objects.md, sections 3 and 4: certificate, roster


@dataclass
class Certificate:
    object: Signed
    group: bytes
    device: bytes
    serial: int
    alg: str
    key_bytes: bytes
    first_index: int

    @property
    def digest(self):
        return self.object.digest


def certificate_decode(data):
    object = signed(data, CERTIFICATE)
    fields = array(decode(object.payload), 7)
    version_one(fields[0])
    group, device, serial = byte_string(fields[1], 8), byte_string(fields[2], 8), uint(fields[3])
    alg, key_bytes, first_index = sint(fields[4]), byte_string(fields[5]), uint(fields[6], 32)
    if alg not in ALGORITHMS:
        raise Refused("UnknownAlgorithm", str(alg))
    return Certificate(object, group, device, serial, ALGORITHMS[alg], key_bytes, first_index)


def certificate_prove(certificate, operator):
    """The checks after decoding. Returns the certified key."""
    if len(certificate.key_bytes) != KEY_LENGTH[certificate.alg]:
        raise Refused("KeyLength")
    certificate.object.verify(operator)
    return Key(certificate.alg, certificate.key_bytes)


def certificate_open(data, operator):
    certificate = certificate_decode(data)
    certificate_prove(certificate, operator)
    return certificate


@dataclass
class Term:
    """The seals for which a certified key is valid."""

    certificate: Certificate
    first_epoch: int
    end_index: object
    end_epoch: object
    key: object = None

    def ended(self, index, epoch):
        by_index = self.end_index is not None and index >= self.end_index
        return by_index or (self.end_epoch is not None and epoch >= self.end_epoch)


@dataclass
class Device:
    id: bytes
    name: str
    since: int
    terms: list

    def key(self, index, epoch):
        """The key of the seal with this index in this epoch: that of the last term whose first index and first epoch are not
        above them. None if there is no such term; refused if it has ended."""
        begun = [term for term in self.terms if term.certificate.first_index <= index and term.first_epoch <= epoch]
        if not begun:
            return None
        if begun[-1].ended(index, epoch):
            raise Refused("KeyEnded", self.name)
        return begun[-1].key

    def is_void(self, index, epoch):
        """Whether the roster has ended the key of this seal."""
        try:
            self.key(index, epoch)
            return False
        except Refused:
            return True

    def is_member(self, epoch):
        ends = ((term.first_epoch, term.end_epoch) for term in self.terms)
        return any(first <= epoch and (end is None or epoch < end) for first, end in ends)

    def can_seal(self, after, since, until):
        """Whether a key is valid for any seal behind the index `after` (None: any) in the epochs since .. until-1."""
        for term in self.terms:
            first = max(term.first_epoch, since)
            in_time = first < until and (term.end_epoch is None or first < term.end_epoch)
            if in_time and (term.end_index is None or after is None or term.end_index > after + 1):
                return True
        return False


@dataclass
class Period:
    """Epochs with the same length, number of levels, budget and coordinator."""

    version: int
    first_epoch: int
    start_ms: object
    epoch_ms: int
    levels: int
    budget: object
    coordinator: object
    coordinator_key: object = None


@dataclass
class Roster:
    digest: bytes
    group_name: str
    group: bytes
    version: int
    history: list
    periods: list
    last_epoch: object
    querier: object
    devices: list

    def device(self, id):
        return next((device for device in self.devices if device.id == id), None)

    def digest_of(self, version):
        return (self.history + [self.digest])[version] if version <= self.version else None

    def period(self, epoch):
        """The period of an epoch. The first period counts for the epochs before it."""
        begun = [period for period in self.periods if period.first_epoch <= epoch]
        return begun[-1] if begun else self.periods[0]

    def contains(self, epoch):
        return self.periods[0].first_epoch <= epoch and (self.last_epoch is None or epoch <= self.last_epoch)

    @property
    def has_budget(self):
        return any(period.budget is not None for period in self.periods)


def check_name(name):
    if not 1 <= len(name.encode()) <= 64 or any(unicodedata.category(letter) == "Cc" for letter in name):
        raise Refused("InvalidName", name)


def roster_open(data, operator):
    object = signed(data, ROSTER)
    object.verify(operator)
    roster = roster_read(object.digest, decode(object.payload))

    def prove(certificate):
        try:
            return certificate_prove(certificate, operator)
        except Refused as refused:
            if refused.name in ("AlgorithmMismatch", "MalformedSignature", "NotAuthentic", "HighS"):
                raise Refused("CertificateNotAuthentic") from None
            raise

    for period in roster.periods:
        if period.coordinator is not None:
            period.coordinator_key = prove(period.coordinator)
    if roster.querier is not None:
        prove(roster.querier)
    for device in roster.devices:
        for term in device.terms:
            term.key = prove(term.certificate)
    return roster


def roster_read(digest, payload):
    """Reads the payload of a roster and checks all but the signatures of the certificates."""
    fields = [*array(payload), None, None, None, None]  # a field that is not there has another type
    version_one(fields[0])
    group_name, group, version = text(fields[1]), byte_string(fields[2], 8), uint(fields[3], 32)
    fields = array(payload, 9 if version else 12)
    history = [byte_string(digest, 32) for digest in array(fields[4])]
    if version == 0:
        epoch_ms, levels, budget = uint(fields[5]), uint(fields[6]), optional(fields[7], uint)
        first_epoch, last_epoch = uint(fields[8]), optional(fields[9], uint)
        coordinator = optional(fields[10], byte_string)
        start_ms = first_epoch * epoch_ms
        periods = [Period(0, first_epoch, start_ms, epoch_ms, levels, budget, coordinator)]
        querier = None
    else:
        periods = [
            Period(uint(version, 32), uint(first), uint(start), uint(length), uint(levels), optional(budget, uint), optional(key, byte_string))
            for version, first, start, length, levels, budget, key in (array(period, 7) for period in array(fields[5]))
        ]
        last_epoch, querier = optional(fields[6], uint), optional(fields[7], byte_string)
    listed = []
    for entry in array(fields[-1]):
        if version == 0:
            id, name, certificates = array(entry, 3)
            id, name, since = byte_string(id, 8), text(name), 0
            terms = [(byte_string(certificate), 0, None, None) for certificate in array(certificates)]
        else:
            id, name, since, of_device = array(entry, 4)
            id, name, since, terms = byte_string(id, 8), text(name), uint(since, 32), []
            for term in array(of_device):
                certificate, first, end_index, end_epoch = array(term, 4)
                term = byte_string(certificate), uint(first), optional(end_index, lambda end: uint(end, 32)), optional(end_epoch, uint)
                terms.append(term)
        listed.append((id, name, since, terms))

    check_name(group_name)
    if group != group_id(group_name):
        raise Refused("GroupMismatch")
    if len(history) != version:
        raise Refused("HistoryLength")
    before = None
    for period in periods:
        check_period(period, before, group)
        before = period
    if not periods or before.version > version:
        raise Refused("UnsortedPeriods")
    if last_epoch is not None and last_epoch < before.first_epoch:
        raise Refused("EpochRangeEmpty")
    if querier is not None:
        querier = certificate_decode(querier)
        if (querier.group, querier.device) != (group, device_id(group_name, "querier")):
            raise Refused("CertificateMismatch", "of the querier")
    coordinators = [period.coordinator.device for period in periods if period.coordinator is not None]
    devices = []
    for id, name, since, terms in listed:
        device = Device(id, name, since, [])
        check_name(name)
        if id != device_id(group_name, name):
            raise Refused("DeviceMismatch", name)
        if since > version:
            raise Refused("SinceOutOfRange", name)
        for encoded, first_epoch, end_index, end_epoch in terms:
            certificate = certificate_decode(encoded)
            if (certificate.group, certificate.device) != (group, id):
                raise Refused("CertificateMismatch", name)
            first = certificate.first_index, first_epoch
            if device.terms:
                last = device.terms[-1].certificate.first_index, device.terms[-1].first_epoch
                if first == last or first[0] < last[0] or first[1] < last[1]:
                    raise Refused("UnsortedCertificates", name)
            if (end_index is not None and end_index < first[0]) or (end_epoch is not None and end_epoch < first[1]):
                raise Refused("TermRangeEmpty", name)
            device.terms.append(Term(certificate, first_epoch, end_index, end_epoch))
        if not device.terms:
            raise Refused("CertificateMissing", name)
        last = devices[-1].id if devices else None
        if id == last or id in coordinators:
            raise Refused("DuplicateDevice", name)
        if last is not None and last > id:
            raise Refused("UnsortedDevices", name)
        devices.append(device)
    return Roster(digest, group_name, group, version, history, periods, last_epoch, querier, devices)


def check_period(period, before, group):
    """Checks a period that follows `before`, or the first one. Decodes its coordinator's certificate."""
    if not 1 <= period.epoch_ms <= 1 << 53:
        raise Refused("EpochLengthOutOfRange")
    if not 1 <= period.levels <= 32:
        raise Refused("LevelsOutOfRange")
    if period.budget == 0:
        raise Refused("BudgetOutOfRange")
    if before is None:
        ascends, start_ms = period.version == 0, period.first_epoch * period.epoch_ms
    else:
        ascends = period.version > before.version and period.first_epoch > before.first_epoch
        start_ms = before.start_ms + (period.first_epoch - before.first_epoch) * before.epoch_ms
    if not ascends:
        raise Refused("UnsortedPeriods")
    if period.start_ms != start_ms:
        raise Refused("EpochStartMismatch")
    if period.coordinator is not None:
        period.coordinator = certificate_decode(period.coordinator)
        if period.coordinator.group != group:
            raise Refused("CertificateMismatch", "of the coordinator")


def check_succession(later, before):
    """Checks that a roster is a later version of another."""
    if later.group != before.group:
        raise Refused("WrongGroup")
    if later.version <= before.version or later.digest_of(before.version) != before.digest:
        raise Refused("NotLater")
    known = len(before.periods)

    def of_period(period):
        key = period.coordinator_key
        of_key = key and (key.alg, key.raw)
        return period.version, period.first_epoch, period.epoch_ms, period.levels, period.budget, of_key

    if [of_period(period) for period in later.periods[:known]] != [of_period(period) for period in before.periods]:
        raise Refused("PeriodsChanged")
    if any(period.version <= before.version for period in later.periods[known:]):
        raise Refused("PeriodsChanged")

    def tightens(new, old):
        return old is None or (new is not None and new <= old)

    for earlier in before.devices:
        device = later.device(earlier.id)
        if device is None or device.since != earlier.since or len(device.terms) < len(earlier.terms):
            raise Refused("DeviceChanged", earlier.name)
        for new, old in zip(device.terms, earlier.terms):
            same = new.certificate.digest == old.certificate.digest and new.first_epoch == old.first_epoch
            if not same or not tightens(new.end_index, old.end_index) or not tightens(new.end_epoch, old.end_epoch):
                raise Refused("DeviceChanged", earlier.name)
    for device in later.devices:
        if before.device(device.id) is None and device.since <= before.version:
            raise Refused("DeviceChanged", device.name)


# ---------------------------------------------------------------- coordinator.md, sections 1 to 3: rounds, manifests


class Coordinator:
    """The counts of the events that a coordinator keeps of one epoch."""

    def __init__(self, levels, budget):
        self.levels, self.budget, self.round = levels, budget, 0
        self.counts = [0] * levels

    @property
    def kept(self):
        return sum(self.counts)

    def forget(self):
        self.counts[self.round] = 0
        self.round += 1

    def offer(self, level):
        if not self.round <= level < self.levels:
            return "declined"
        self.counts[level] += 1
        before = self.round
        while self.kept > self.budget and self.round < self.levels:
            self.forget()
        return "kept" if self.round == before else "raised"

    def withdraw(self, level, events):
        if level < self.levels:
            self.counts[level] -= min(events, self.counts[level])
        return "withdrawn"

    def settle(self, due):
        while self.round < min(due, self.levels):
            self.forget()
        return "settled"


def announcement_open(data, roster):
    """The epoch and the round of a coordinator's announcement."""
    object = signed(data, ROUND)
    out_of_range(len(object.payload) > 32)
    object.verify(roster.periods[-1].coordinator_key)
    fields = array(decode(object.payload), 4)
    version_one(fields[0])
    group, epoch, announced = byte_string(fields[1], 8), uint(fields[2]), uint(fields[3], 8)
    out_of_range(announced > 31)
    if group != roster.group:
        raise Refused("WrongGroup")
    return epoch, announced


@dataclass
class Manifest:
    digest: bytes
    roster: bytes
    epoch: int
    round: int
    devices: list  # (device id, seal digests)


def manifest_epoch(data):
    """The epoch that a manifest states, read before its signature is checked; None if there is none."""
    try:
        fields = array(decode(signed(data, MANIFEST).payload), 6)
        version_one(fields[0])
        byte_string(fields[1], 8), byte_string(fields[2], 32)
        return uint(fields[3])
    except Refused:
        return None


def manifest_open(data, roster):
    stated = manifest_epoch(data)
    coordinator = roster.period(M64 if stated is None else stated).coordinator_key
    if coordinator is None:
        raise Refused("NoCoordinator")
    object = signed(data, MANIFEST)
    object.verify(coordinator)
    fields = array(decode(object.payload), 6)
    version_one(fields[0])
    group, under = byte_string(fields[1], 8), byte_string(fields[2], 32)
    epoch, final = uint(fields[3]), uint(fields[4], 8)
    devices = []
    for entry in array(fields[5]):
        device, seals = array(entry, 2)
        devices.append((byte_string(device, 8), [byte_string(digest, 32) for digest in array(seals)]))
    out_of_range(final > 32)
    if group != roster.group:
        raise Refused("WrongGroup")
    ids = [device for device, _ in devices]
    if ids != sorted(set(ids)) or any(not seals for _, seals in devices):
        raise Refused("UnsortedDevices")
    if under not in roster.history + [roster.digest]:
        raise Refused("UnknownRoster")
    if not roster.contains(epoch):
        raise Refused("EpochOutOfRange")
    if (roster.history + [roster.digest]).index(under) < roster.period(epoch).version:
        raise Refused("RosterOutdated")
    if final > roster.period(epoch).levels:
        raise Refused("RoundOutOfRange")
    return Manifest(object.digest, under, epoch, final, devices)


# ---------------------------------------------------------------- objects.md, section 5: stream schema

TYPES = ["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f32", "f64", "time"]
FORMATS = [">B", ">b", ">H", ">h", ">I", ">i", ">Q", ">q", ">f", ">d", ">I"]

UNITS = set(
    """m kg g s A K cd mol Hz rad sr N Pa J W C V F Ohm S Wb T H Cel lm lx Bq Gy Sv kat m2 m3 l m/s m/s2 m3/s l/s W/m2 cd/m2 bit
    bit/s lat lon pH dB dBW Bspl count / % %RH %EL EL 1/s 1/min beat/min beats S/m
    B VA VAs var vars J/m kg/m3 deg
    ms min h MHz kW kVA kvar Ah Wh kWh varh kvarh kVAh Wh/km KiB GB Mbit/s B/s MB/s mV mA dBm ug/m3 mm/h m/h ppm /100 /1000
    hPa mm cm km km/h""".split()
)


@dataclass
class Schema:
    digest: bytes
    fields: list

    @property
    def record_size(self):
        """Bytes of a record, or None if records are opaque."""
        return sum(struct.calcsize(FORMATS[kind]) for _, _, kind, _, _ in self.fields) if self.fields else None

    def field(self, name):
        """Name, unit, type, divisor and offset of a field, or None."""
        return next((field for field in self.fields if field[0] == name), None)

    def values(self, record):
        """The values of a record's fields: exact for the integer types."""
        read, at = [], 0
        for _, _, kind, divisor, offset in self.fields:
            form = FORMATS[kind]
            if at + struct.calcsize(form) > len(record):
                raise Refused("RecordTooShort")
            (raw,) = struct.unpack_from(form, record, at)
            at += struct.calcsize(form)
            read.append((raw + offset, divisor) if kind < 8 else raw)
        return read

    def split(self, data, count):
        """Splits `count` records off joined records. Returns them and the rest, or None if there are fewer."""
        records, at, size = [], 0, self.record_size
        for _ in range(count):
            length = size
            if size is None:
                if at + 2 > len(data):
                    return None
                length = int.from_bytes(data[at : at + 2], "big")
                at += 2
            if at + length > len(data):
                return None
            records.append(data[at : at + length])
            at += length
        return records, data[at:]

    def join(self, records):
        if self.record_size is not None:
            return b"".join(records)
        return b"".join(be(len(record), 2) + record for record in records)


def schema_decode(data):
    version, fields = array(decode(data), 2)
    version_one(version)
    shapes = []
    for entry in array(fields):
        name, unit, kind, divisor, offset = array(entry, 5)
        shapes.append((text(name), text(unit), uint(kind), uint(divisor), sint(offset)))
    if len(shapes) > 64:
        raise Refused("TooManyFields")
    read = []
    for name, unit, kind, divisor, offset in shapes:
        if not 1 <= len(name.encode()) <= 64 or any(unicodedata.category(letter) == "Cc" for letter in name):
            raise Refused("InvalidFieldName")
        if unit and unit not in UNITS:
            raise Refused("UnknownUnit", unit)
        if kind >= len(TYPES):
            raise Refused("UnknownFieldType", str(kind))
        if not 1 <= divisor < 1 << 32 or (kind >= 8 and (divisor, offset) != (1, 0)):
            raise Refused("ScaleOutOfRange")
        if any(name == other[0] for other in read):
            raise Refused("DuplicateField", name)
        read.append((name, unit, kind, divisor, offset))
    return Schema(H(b"moteseal/1/schema\0", data), read)


# ---------------------------------------------------------------- objects.md, section 6: star and tree

NULL = bytes(32)
CHAIN_START = b"moteseal/1/star/root".ljust(32, b"\0")


def block_digest(device, index, level, block):
    header = b"moteseal/1/star".ljust(32, b"\0") + device + be(index, 4) + be(level, 4)
    return H(header.ljust(64, b"\0"), block)


def star_chain(counters, digests, above=CHAIN_START):
    for count, digest in zip(counters, digests):
        above = H(above, be(count, 4), digest)
    return above


def leaf_hash(record):
    return H(b"\0", record)


def node_hash(left, right):
    return H(b"\1", left, right)


def split_point(size):
    """The largest power of two below `size`, which is at least 2."""
    return 1 << (size - 1).bit_length() - 1


def tree_root(leaves):
    """RFC 9162, section 2.1.1, over leaf hashes."""
    if not leaves:
        return H()
    if len(leaves) == 1:
        return leaves[0]
    k = split_point(len(leaves))
    return node_hash(tree_root(leaves[:k]), tree_root(leaves[k:]))


def inclusion_path(leaves, seq):
    """RFC 9162, section 2.1.3.1."""
    if len(leaves) <= 1:
        return []
    k = split_point(len(leaves))
    if seq < k:
        return inclusion_path(leaves[:k], seq) + [tree_root(leaves[k:])]
    return inclusion_path(leaves[k:], seq - k) + [tree_root(leaves[:k])]


def path_root(leaf, seq, size, path):
    """RFC 9162, section 2.1.3.2: the root that follows from a leaf hash and its path."""
    if seq >= size:
        raise Refused("OutOfRange")
    fn, sn, r = seq, size - 1, leaf
    for p in path:
        if sn == 0:
            raise Refused("DigestCount")
        if fn & 1 or fn == sn:
            r = node_hash(p, r)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            r = node_hash(r, p)
        fn, sn = fn >> 1, sn >> 1
    if sn:
        raise Refused("DigestCount")
    return r


def multiproof(leaves, selected):
    """The roots of the maximal subtrees without a selected leaf, left to right."""

    def walk(start, end, chosen):
        if not chosen:
            return [tree_root(leaves[start:end])]
        if end - start == 1:
            return []
        middle = start + split_point(end - start)
        left = [seq for seq in chosen if seq < middle]
        return walk(start, middle, left) + walk(middle, end, chosen[len(left) :])

    return walk(0, len(leaves), sorted(selected)) if leaves else []


def multiproof_count(size, selected):
    def walk(start, end, chosen):
        if not chosen:
            return 1
        if len(chosen) == end - start:
            return 0
        middle = start + split_point(end - start)
        left = [seq for seq in chosen if seq < middle]
        return walk(start, middle, left) + walk(middle, end, chosen[len(left) :])

    return walk(0, size, selected) if size else 0


def multiproof_root(size, selected, digests):
    """The root from the selected leaf hashes, `(seq, hash)` ascending, and the proof's digests."""
    if size == 0:
        return H()
    given = iter(digests)

    def walk(start, end, chosen):
        if not chosen:
            return next(given)
        if end - start == 1:
            return chosen[0][1]
        middle = start + split_point(end - start)
        left = [entry for entry in chosen if entry[0] < middle]
        above = walk(start, middle, left)
        return node_hash(above, walk(middle, end, chosen[len(left) :]))

    return walk(0, size, selected)


# ---------------------------------------------------------------- objects.md, section 6: the seal

FIELDS = """version scheme group roster device index prev prev_index epoch prev_epoch last_in_epoch restart schema salt round
own_round counters lost answered""".split()


@dataclass
class Seal:
    """A statement with its root. `fields` are those of objects.md, section 6, in order."""

    fields: dict
    root: bytes
    alg: str

    def __getattr__(self, name):
        try:
            return self.__dict__["fields"][name]
        except KeyError:
            raise AttributeError(name) from None

    def null(self, level):
        lost = self.lost[level] if self.lost else 0
        return self.counters[level] == 0 or level < self.own_round or lost > 0

    @property
    def surviving(self):
        return sum(1 << level for level in range(len(self.counters)) if not self.null(level))

    @property
    def protected(self):
        alg = next(number for number, name in ALGORITHMS.items() if name == self.alg)
        entries = [cbor2.dumps(1) + cbor2.dumps(alg), cbor2.dumps(16) + cbor2.dumps(SEAL)]
        if self.scheme == 1:
            entries.append(cbor2.dumps(395) + cbor2.dumps(1))
        entries.append(cbor2.dumps(-70001) + cbor2.dumps(list(self.fields.values())))
        return bytes([0xA0 + len(entries)]) + b"".join(entries)

    @property
    def message(self):
        return sig_structure(self.protected, self.root)

    @property
    def digest(self):
        return H(self.message)


def seal_decode(data):
    """Steps 1 to 4 for a seal's COSE_Sign1. Returns the object and the seal."""
    object = signed(data, SEAL)
    fields = array(object.statement, 19)
    version_one(fields[0])
    scheme = uint(fields[1])
    out_of_range(scheme > 1)
    read = [1, scheme, byte_string(fields[2], 8), byte_string(fields[3], 32), byte_string(fields[4], 8)]
    read += [uint(fields[5], 32), byte_string(fields[6], 32), optional(fields[7], uint, 32), uint(fields[8])]
    read += [optional(fields[9], uint)]
    out_of_range((read[7] is None) != (read[9] is None))
    read += [boolean(fields[10]), boolean(fields[11]), byte_string(fields[12], 32), byte_string(fields[13], 16)]
    read += [uint(fields[14], 8), uint(fields[15], 8), counts(fields[16])]
    out_of_range(not read[16])
    read += [counts(fields[17]), answered(fields[18])]
    seal = Seal(dict(zip(FIELDS, read)), object.payload, object.alg)
    levels = len(seal.counters)
    if seal.lost:
        out_of_range(len(seal.lost) != levels or not any(seal.lost))
        out_of_range(any(lost > count for lost, count in zip(seal.lost, seal.counters)))
    if seal.prev_index is not None:
        out_of_range(seal.prev_index >= seal.index or seal.prev_epoch > seal.epoch)
    out_of_range(not seal.round <= seal.own_round < levels)
    out_of_range(scheme == 1 and seal.lost)
    out_of_range(sum(seal.counters) > 0xFFFFFFFF)
    byte_string(object.payload, 32)
    if object.vds != (scheme == 1):
        raise Refused("UnexpectedHeader", "vds")
    return object, seal


@dataclass
class Urgent:
    group: bytes
    roster: bytes
    device: bytes
    index: int
    epoch: int
    seq: int
    schema: bytes
    record: bytes


def urgent_open(data, roster):
    object = signed(data, EVENT)
    fields = array(object.statement, 8)
    version_one(fields[0])
    out_of_range(len(object.payload) > 0xFFFF)
    event = Urgent(
        byte_string(fields[1], 8),
        byte_string(fields[2], 32),
        byte_string(fields[3], 8),
        uint(fields[4], 32),
        uint(fields[5]),
        uint(fields[6]),
        byte_string(fields[7], 32),
        object.payload,
    )
    if event.group != roster.group:
        raise Refused("WrongGroup")
    device = roster.device(event.device)
    key = device.key(event.index, event.epoch) if device else None
    if key is None:
        raise Refused("UnknownDevice")
    object.verify(key)
    return event


# ---------------------------------------------------------------- answers.md, sections 1 and 2: the stream

MAX_RUN_PARTS = 256
MAX_RUN_BYTES = 64 << 20
MAX_ITEM = MAX_RUN_BYTES + (4 << 20)
MAX_RUN_ITEMS = 2 * MAX_ITEM
MAX_RUN_EVENTS = 1 << 24
MAX_EVENTS = 1 << 24


@dataclass
class Part:
    scheme: int
    last_in_epoch: bool
    restart: bool
    skipped: int
    advance: int
    salt: bytes
    n: int
    round: int
    own_round: int
    lost: list
    answered: list
    select: object  # a mask, or a list of sequence numbers
    digests: bytes
    events: bytes
    signature: object


def part_decode(fields):
    flags = uint(fields[1], 8)
    out_of_range(flags > 7)
    skipped, advance, salt = uint(fields[2], 32), uint(fields[3]), byte_string(fields[4], 16)
    n, round, own_round = uint(fields[5], 32), uint(fields[6], 8), uint(fields[7], 8)
    lost, replies, select = counts(fields[8]), answered(fields[9]), fields[10]
    if type(select) is list:
        out_of_range(not select)
        gaps, select, last = select, [], -1
        for gap in gaps:
            last += uint(gap) + 1
            select.append(last)
    else:
        uint(select, 32)
    digests, events = byte_string(fields[11]), byte_string(fields[12])
    signature = optional(fields[13], byte_string)
    return Part(
        flags & 1, flags & 2 > 0, flags & 4 > 0, skipped, advance, salt, n, round, own_round,
        lost, replies, select, digests, events, signature,
    )  # fmt: skip


ITEMS = {0: 2, 1: 7, 2: 14, 3: 1, 4: 3, 5: 3, 6: 3, 7: 2}


def items(data):
    """The items of a stream: kind, decoded fields, and length in bytes."""
    at = 0
    while at < len(data):
        form = Form(data, at)
        value = form.item()
        length, at = form.at - at, form.at
        if length > MAX_ITEM:
            raise Refused("RunTooLong")
        yield *item_decode(value), length


def item_decode(value):
    wrong_type(type(value) is not list or not value)
    kind = uint(value[0])
    if kind not in ITEMS:
        raise Refused("UnknownItem", str(kind))
    array(value, ITEMS[kind])
    if kind == 0:
        return "schema", byte_string(value[1])
    if kind == 1:
        version_one(value[1])
        device, version = byte_string(value[2], 8), uint(value[3], 32)
        prev = optional(value[4], byte_string, 32)
        index, epoch = optional(value[5], uint, 32), optional(value[6], uint)
        out_of_range((index is None) != (epoch is None))
        return "open", (device, version, prev, index, epoch)
    if kind == 2:
        return "part", part_decode(value)
    if kind == 3:
        return "end", None
    if kind == 4:
        return "problem", (text(value[1]), text(value[2]))
    if kind == 5:
        version_one(value[1])
        return "proof", text(value[2])
    if kind == 7:
        return "manifest", byte_string(value[1])
    return "explain", (byte_string(value[1]), byte_string(value[2]))


def chunks(digests):
    return [digests[at : at + 32] for at in range(0, len(digests), 32)]


@dataclass
class Rebuilt:
    """A part with the values that are not in the stream."""

    part: Part
    schema: Schema
    seal: Seal
    levels: list  # of every event
    rows: list  # (seq, level, record), ascending
    blocks: dict  # of a star: the digest of each selected level


class Reader:
    """Follows a stream; `run` holds the rebuilt parts that no signature has proven yet."""

    def __init__(self, roster, known=None, max_events=MAX_EVENTS):
        self.roster, self.known, self.max_events = roster, known or {}, max_events
        self.schema = self.device = None
        self.consumed = 0  # bytes of the items that were read
        self.next_run()

    def read(self, data):
        """Yields ("part", Rebuilt) for each proven part, and the other items in the order of the stream."""
        for kind, value, length in items(data):
            self.consumed += length
            if kind in ("schema", "open", "part") or self.run:
                self.run_items += length
            if kind != "part":
                self.bound()
            if kind == "schema":
                self.schema = schema_decode(value)
            elif kind == "open":
                self.open(*value)
            elif kind == "part":
                self.run.append(self.part(value))
                if value.signature is not None:
                    self.prove()
                    yield from (("part", rebuilt) for rebuilt in self.run)
                    self.next_run()
            else:
                if kind in ("end", "manifest") and self.run:
                    raise Refused("Unsigned")
                if kind == "manifest":
                    value = manifest_open(value, self.roster)
                yield kind, value
        if self.run:
            raise Refused("Unsigned")

    def next_run(self):
        self.run, self.run_bytes, self.run_items, self.run_events, self.latest = [], 0, 0, 0, 0

    def bound(self):
        """Limits what may precede a signature: the run's records, all its items, and the events claimed before its last part."""
        if self.run_bytes > MAX_RUN_BYTES or self.run_items > MAX_RUN_ITEMS or self.run_events > MAX_RUN_EVENTS:
            raise Refused("RunTooLong")

    def open(self, device, version, prev, index, epoch):
        if self.run:
            raise Refused("Unsigned")
        self.device = self.roster.device(device)
        if self.device is None:
            raise Refused("UnknownDevice", device.hex())
        self.roster_digest = self.roster.digest_of(version)
        if self.roster_digest is None:
            raise Refused("UnknownRoster", str(version))
        self.version = version
        first = self.device.terms[0].certificate.digest
        if index is None:
            if prev not in (None, first):
                raise Refused("PrevMismatch")
            prev = first
        elif prev is None:
            prev = self.known.get((device, index))
            if prev is None:
                raise Refused("PrevUnknown")
        self.prev, self.index, self.epoch, self.closed = prev, index, epoch, False

    def part(self, part):
        roster = self.roster
        if self.device is None:
            raise Refused("NoOpen")
        if self.schema is None:
            raise Refused("SchemaUnknown")
        index = part.skipped if self.index is None else self.index + 1 + part.skipped
        if index > 0xFFFFFFFF:
            raise Refused("IndexOutOfRange")
        epoch = part.advance if self.epoch is None else self.epoch + part.advance
        if epoch > M64 or not roster.contains(epoch):
            raise Refused("EpochOutOfRange")
        if part.skipped and not part.restart:
            raise Refused("GapWithoutRestart")
        if self.closed and part.advance == 0:
            raise Refused("EpochClosed")
        if self.version < roster.period(epoch).version:
            raise Refused("RosterOutdated")
        levels = roster.period(epoch).levels
        key = self.device.key(index, epoch)
        if key is None:
            raise Refused("IndexOutOfRange")
        if part.round > part.own_round or part.own_round >= levels:
            raise Refused("RoundOutOfRange")
        if part.n > self.max_events:
            raise Refused("TooManyEvents")
        of_events = levels_of(part.salt, levels, part.n)
        counters = [0] * levels
        for level in of_events:
            counters[level] += 1
        if part.lost and (
            part.scheme == 1
            or len(part.lost) != levels
            or not any(part.lost)
            or any(lost > count for lost, count in zip(part.lost, counters))
        ):
            raise Refused("LostOutOfRange")
        fields = [1, part.scheme, roster.group, self.roster_digest, self.device.id, index, self.prev, self.index, epoch]
        fields += [self.epoch, part.last_in_epoch, part.restart, self.schema.digest, part.salt, part.round]
        fields += [part.own_round, counters, part.lost, part.answered]
        seal = Seal(dict(zip(FIELDS, fields)), None, key.alg)

        if len(part.digests) % 32:
            raise Refused("DigestCount")
        if type(part.select) is int:
            if part.select & ~seal.surviving:
                raise Refused("SelectOutOfRange")
            selected = [seq for seq, level in enumerate(of_events) if part.select >> level & 1]
        else:
            selected = part.select
            if part.scheme == 0 or selected[-1] >= part.n or any(of_events[seq] < part.own_round for seq in selected):
                raise Refused("SelectOutOfRange")
        expected = multiproof_count(part.n, selected) if part.scheme else self.star_digests(seal, part.select)
        if len(part.digests) != 32 * expected:
            raise Refused("DigestCount")
        split = self.schema.split(part.events, len(selected))
        if split is None or split[1]:
            raise Refused("EventsLength")
        if part.signature is not None and len(part.signature) != SIGNATURE_LENGTH[key.alg]:
            raise Refused("MalformedSignature")
        self.run_bytes += len(part.events)
        self.run_events, self.latest = self.run_events + self.latest, part.n
        if len(self.run) + 1 > MAX_RUN_PARTS:
            raise Refused("RunTooLong")
        self.bound()

        records, blocks = split[0], {}
        if part.scheme == 0:
            blocks, of_level = {}, {}
            at = 0
            for level in reversed(range(levels)):
                if part.select >> level & 1:
                    of_level[level] = records[at : at + counters[level]]
                    at += counters[level]
                    blocks[level] = block_digest(self.device.id, index, level, self.schema.join(of_level[level]))
            seal.root = self.star_root(seal, part, blocks)
            cursors = {level: iter(block) for level, block in of_level.items()}
            rows = [(seq, of_events[seq], next(cursors[of_events[seq]])) for seq in selected]
        else:
            leaves = [(seq, leaf_hash(record)) for seq, record in zip(selected, records)]
            seal.root = multiproof_root(part.n, leaves, chunks(part.digests))
            rows = [(seq, of_events[seq], record) for seq, record in zip(selected, records)]
        self.prev, self.index, self.epoch, self.closed = seal.digest, index, epoch, part.last_in_epoch
        return Rebuilt(part, self.schema, seal, of_events, rows, blocks)

    @staticmethod
    def lowest(seal, mask):
        return next((level for level in range(len(seal.counters)) if mask >> level & 1), len(seal.counters))

    @classmethod
    def star_digests(cls, seal, mask):
        """The number of digests that a star's part contains."""
        b, surviving = cls.lowest(seal, mask), seal.surviving
        under = any(surviving >> level & 1 for level in range(b))
        above = sum(surviving >> level & 1 and not mask >> level & 1 for level in range(b + 1, len(seal.counters)))
        return under + above

    @classmethod
    def star_evidence(cls, seal, mask, digests, start=0, above=CHAIN_START):
        """The digests that a star's part contains, given every D_i from `start` on, and A_{start-1}."""
        b, surviving = cls.lowest(seal, mask), seal.surviving
        found = []
        if any(surviving >> level & 1 for level in range(b)):
            found.append(star_chain(seal.counters[start:b], digests[start:b], above))
        found += [digests[i] for i in range(b + 1, len(seal.counters)) if surviving >> i & 1 and not mask >> i & 1]
        return b"".join(found)

    @classmethod
    def star_root(cls, seal, part, blocks):
        b, surviving = cls.lowest(seal, part.select), seal.surviving
        given = iter(chunks(part.digests))
        if any(surviving >> level & 1 for level in range(b)):
            above = next(given)
        else:
            above = star_chain(seal.counters[:b], [NULL] * b)
        digests = []
        for level in range(b, len(seal.counters)):
            if level in blocks:
                digests.append(blocks[level])
            else:
                digests.append(next(given) if surviving >> level & 1 else NULL)
        return star_chain(seal.counters[b:], digests, above)

    def prove(self):
        """Proves the newest seal by its signature. This proves the others, which were rebuilt with each other's digests."""
        newest = self.run[-1]
        key = self.device.key(newest.seal.index, newest.seal.epoch)
        key.verify(newest.seal.message, newest.part.signature)


def whole_from(rebuilt):
    """The lowest round from which on a part has exactly the surviving levels: 0 if it is whole, None if there is none."""
    select, surviving = rebuilt.part.select, rebuilt.seal.surviving
    if type(select) is not int:
        return None
    lowest = (surviving & ~select).bit_length()
    return lowest if select == surviving >> lowest << lowest else None


def is_whole(rebuilt, rounds, roster):
    """Whether a part is whole; within a budget, from a round of its epoch's manifests on. `rounds` are by epoch."""
    lowest = whole_from(rebuilt)
    budget = roster.period(rebuilt.seal.epoch).budget
    enough = [0] if budget is None else [0, *rounds.get(rebuilt.seal.epoch, [])]
    return lowest is not None and lowest <= max(enough)


# ---------------------------------------------------------------- answers.md, sections 3 to 7: what must be served


def rate_mask(rate, levels):
    """The levels of a rate, a Fraction."""
    everything = (1 << levels) - 1
    if rate == 1:
        return everything
    if not 0 < rate < 1:
        raise Refused("RateUnavailable")
    digits = levels - 1
    k = int(rate * 2**digits)
    if k == 0:
        raise Refused("RateUnavailable")
    while k % 2 == 0:
        k, digits = k // 2, digits - 1
    mask = everything & ~((1 << digits) - 1)
    for b in range(1, digits):
        if k >> digits - b & 1:
            mask |= 1 << b - 1
    return mask


def seal_rate_mask(rate, seal):
    mask = rate_mask(rate, len(seal.counters))
    for level, count in enumerate(seal.counters):
        if mask >> level & 1 and count and seal.null(level):
            raise Refused("RateUnavailable")
    return mask & seal.surviving


def surviving_levels(seals, final=0):
    """The levels that exist in all parts of one epoch, which ended at the round `final`."""
    dropped = lambda level: any(seal.counters[level] and seal.null(level) for seal in seals)
    return [level for level in range(final, len(seals[0].counters)) if not dropped(level)]


def at_most_mask(seals, m, final=0):
    """The levels that `at most m` selects of the parts of one epoch, which ended at the round `final`."""
    mask, left = 0, m
    for level in surviving_levels(seals, final):
        count = sum(seal.counters[level] for seal in seals)
        if count <= left:
            left -= count
            mask |= 1 << level
    return mask


def permutation(seed, device, epoch, total, m):
    """The first m positions of a Fisher-Yates shuffle, in the order they are drawn."""
    words = chacha12_words(H(b"moteseal/1/perm", seed, device, be(epoch, 8)))
    moved, chosen = {}, []
    for i in range(min(m, total)):
        span = total - i
        limit = (1 << 64) - (1 << 64) % span
        w = next(word for word in words if word < limit)
        j = i + w % span
        here, there = moved.get(i, i), moved.get(j, j)
        moved[i], moved[j] = there, here
        chosen.append(there)
    return chosen


def check_choice(parts, choice, final=0):
    """Checks that the parts of one epoch of one device are as requested. `final` is the round of the epoch's manifest."""
    seals = [rebuilt.seal for rebuilt in parts]
    if not {"rate", "readings"} & set(choice) and any(seal.last_in_epoch for seal in seals[:-1]):
        raise Refused("EpochClosed")
    if "rate" in choice:
        forced = [seal_rate_mask(choice["rate"], seal) for seal in seals]
    elif "at_most" in choice:
        mask = at_most_mask(seals, choice["at_most"], final)
        forced = [mask & seal.surviving for seal in seals]
    elif "readings" in choice:
        named = [[seq for index, first, count in choice["readings"] if index == seal.index for seq in range(first, first + count)]
                 for seal in seals]
        if any(seqs and seal.scheme == 0 for seqs, seal in zip(named, seals)):
            raise Refused("SchemeMismatch")
        forced = [seqs or 0 for seqs in named]
    else:
        if any(seal.scheme == 0 for seal in seals):
            raise Refused("SchemeMismatch")
        there, existing = set(surviving_levels(seals, final)), []
        for part, rebuilt in enumerate(parts):
            existing += [(part, seq) for seq, level in enumerate(rebuilt.levels) if level in there]
        drawn = permutation(choice["seed"], seals[0].device, seals[0].epoch, len(existing), choice["count"])
        chosen = sorted(existing[position] for position in drawn)
        forced = [[seq for of, seq in chosen if of == part] or 0 for part in range(len(parts))]
    for rebuilt, expected in zip(parts, forced):
        if rebuilt.part.select != expected:
            raise Refused("NotAsAsked", f"index {rebuilt.seal.index}")


class History:
    """Follows the seals of one device in the epochs since .. until-1; up to its newest seal if until is None."""

    def __init__(self, device, since, until):
        self.device, self.since = device, since
        self.end = M64 if until is None else until
        self.ended, self.last, self.unknown = since >= self.end, None, since

    def broken(self, seal, roster=None):
        """The error of the next seal, with the index and epoch of the seal that it concerns; None if there is none."""
        last = self.last
        device = roster and roster.device(self.device)
        void = bool(device) and seal.prev_index is not None and device.is_void(seal.prev_index, seal.prev_epoch)
        if seal.device != self.device or seal.epoch < self.since or self.ended:
            return "NotAsAsked", seal.index, seal.epoch
        if last is None:
            inside = seal.prev_epoch is not None and seal.prev_epoch >= self.since
            return ("Missing", seal.prev_index, seal.prev_epoch) if inside and not void else None
        if void and seal.prev_index > last.index:
            return None
        if seal.index == last.index and seal.digest != last.digest:
            return "Equivocation", seal.index, seal.epoch
        if seal.index <= last.index:
            return "NotAsAsked", seal.index, seal.epoch
        if seal.prev_index is not None and seal.prev_index > last.index:
            return "Missing", seal.prev_index, seal.prev_epoch
        if seal.prev_index != last.index or seal.prev != last.digest:
            return "Equivocation", last.index, seal.epoch
        return None

    def take(self, seal):
        """Takes a seal, even one with an error. Returns whether it is in the range."""
        self.last, self.unknown = seal, seal.epoch + seal.last_in_epoch
        inside = seal.epoch < self.end
        self.ended = not inside or (seal.last_in_epoch and seal.epoch + 1 == self.end)
        return inside

    @property
    def tail(self):
        """The first epoch about which nothing is known, or None if the range is complete."""
        return None if self.ended else self.unknown


def check_history(seals, device, since, until):
    """Checks that no seal of the range is missing. Returns the number of seals in the range, and the epoch from which on nothing
    is known."""
    history, inside = History(device, since, until), 0
    for seal in seals:
        broken = history.broken(seal)
        if broken:
            raise Refused(broken[0], f"index {broken[1]}")
        inside += history.take(seal)
    return inside, history.tail


@dataclass
class CheckedDevice:
    """The content of an answer about one device."""

    device: bytes
    standing: str
    since: object  # the epoch from which on nothing is known or returned
    seals: int
    late: int
    rows: list


def answer_items(reader, data):
    """The manifests and parts of an answer, and its end item, after which there must be nothing."""
    for kind, value in reader.read(data):
        if kind == "problem":
            is_name = re.fullmatch("[0-9A-Za-z]{1,64}", value[0])
            raise Refused(value[0] if is_name else "Problem", value[1])
        if kind not in ("manifest", "part", "end"):
            raise Refused("NotAsAsked", kind)
        yield kind, value
        if kind == "end":
            if reader.consumed < len(data):
                raise Refused("TrailingBytes")
            return
    raise Refused("Truncated")


class AnswerCheck:
    """Checks the items of an answer to a query in their order."""

    def __init__(self, roster, query):
        self.roster, self.since, self.until = roster, query["since"], query["until"]
        self.devices = [unhex(device) for device in query["devices"]]
        choice = query.get("sample") or query
        self.choice = {key: choice[key] for key in ("rate", "at_most", "count", "seed", "readings") if choice.get(key) is not None}
        if "rate" in self.choice:
            self.choice["rate"] = rate_of(self.choice["rate"])
        if "seed" in self.choice:
            self.choice["seed"] = unhex(self.choice["seed"])
        self.named = {index for index, _first, _count in self.choice.get("readings", [])}
        self.manifests = {}
        self.checked = []
        self.at = None  # the current device
        self.begun = False

    def manifest(self, manifest):
        epoch, newest = manifest.epoch, max(self.manifests, default=-1)
        if newest == epoch and self.manifests[newest].digest != manifest.digest:
            raise Refused("TwoManifests", f"epoch {epoch}")
        inside = self.since <= epoch < (M64 if self.until is None else self.until)
        if self.roster.period(epoch).budget is None or self.begun or not inside or epoch <= newest:
            raise Refused("NotAsAsked", f"the manifest of epoch {epoch}")
        self.manifests[epoch] = manifest

    def part(self, rebuilt):
        seal, self.begun = rebuilt.seal, True
        if self.at != seal.device:
            self.leave()
            if seal.device not in self.devices[len(self.checked) :]:
                raise Refused("NotAsAsked", seal.device.hex())
            self.close_before(self.devices.index(seal.device))
            self.enter(seal.device)
        broken = self.history.broken(seal, self.roster)
        if broken:
            raise Refused(broken[0], f"index {broken[1]}")
        inside = self.history.take(seal)
        if self.held and self.held[0].seal.epoch != seal.epoch:
            self.release(seal)
        if not inside:
            if rebuilt.part.select != 0:
                raise Refused("NotAsAsked", "events after the range")
            return
        if (seal.epoch, seal.digest) in self.unseen:
            self.unseen.remove((seal.epoch, seal.digest))
        elif seal.epoch in self.manifests:
            self.late += 1
        if "readings" in self.choice:
            self.named -= {seal.index}
        if "rate" in self.choice or "readings" in self.choice:
            check_choice([rebuilt], self.choice)
            self.hand_out([rebuilt])
        else:
            self.held.append(rebuilt)

    def end(self):
        self.leave()
        self.close_before(len(self.devices))

    def enter(self, device):
        self.at, self.history = device, History(device, self.since, self.until)
        self.held, self.rows, self.seals, self.late, self.unmanifested = [], [], 0, 0, None
        listed = ((epoch, dict(manifest.devices).get(device, [])) for epoch, manifest in self.manifests.items())
        self.unseen = {(epoch, digest) for epoch, digests in listed for digest in digests}

    def leave(self):
        """Ends the checks of the current device."""
        if self.at is None:
            return
        self.release(None)
        if self.unseen:
            raise Refused("Missing", "a seal that a manifest lists")
        if self.named:
            raise Refused("NotAsAsked", "a seal of which the query names readings")
        tail, device = self.history.tail, self.roster.device(self.at)
        newest = self.history.last and self.history.last.index
        if tail is not None and self.until is not None and device and not device.can_seal(newest, tail, self.until):
            tail = None
        standing, since = ("Complete", None) if tail is None else ("TailUnknown", tail)
        if self.unmanifested is not None:
            standing, since = "ManifestMissing", self.unmanifested
        self.checked.append(CheckedDevice(self.at, standing, since, self.seals, self.late, self.rows))
        self.at = None

    def close_before(self, place):
        """Ends the checks of the devices before a place, of which the answer has no seal."""
        while len(self.checked) < place:
            self.enter(self.devices[len(self.checked)])
            self.leave()

    def release(self, following):
        """Checks the parts of an epoch together. `following` is the device's next seal in the answer."""
        parts, self.held = self.held, []
        if not parts:
            return
        seals, epoch = [rebuilt.seal for rebuilt in parts], parts[0].seal.epoch
        if seals[0].prev_epoch is not None and seals[0].prev_epoch >= epoch:
            raise Refused("Missing", f"index {seals[0].prev_index}")
        if any(seal.last_in_epoch for seal in seals[:-1]):
            raise Refused("EpochClosed")
        follows = following is not None and following.epoch > epoch and following.prev == seals[-1].digest
        whole = seals[-1].last_in_epoch or follows
        if self.roster.period(epoch).budget is not None and epoch not in self.manifests:
            if any(rebuilt.part.select != 0 for rebuilt in parts):
                raise Refused("NotAsAsked", f"epoch {epoch} has no manifest")
            if whole and self.unmanifested is None:
                self.unmanifested = epoch
        elif whole:
            check_choice(parts, self.choice, self.manifests[epoch].round if epoch in self.manifests else 0)
            self.hand_out(parts)

    def hand_out(self, parts):
        self.seals += len(parts)
        self.rows += [[rebuilt.seal.index, seq, record.hex()] for rebuilt in parts for seq, _, record in rebuilt.rows]


def check_answer(reader, data, query):
    """Checks an answer to a query. Returns the content for each device, and the manifests by epoch."""
    check = AnswerCheck(reader.roster, query)
    for kind, value in answer_items(reader, data):
        if kind == "end":
            check.end()
        else:
            {"manifest": check.manifest, "part": check.part}[kind](value)
    return check.checked, check.manifests


def rate_of(text):
    """The rate that a query states."""
    found = re.fullmatch(r"([0-9]{1,18})(?:/([0-9]{1,18})|\.([0-9]{1,18}))?", text)
    if not found:
        raise Refused("BadQuery", "not a rate")
    whole, divisor, digits = found.groups()
    if divisor is not None and int(divisor) == 0:
        raise Refused("BadQuery", "a rate over 0")
    rate = Fraction(int(whole), int(divisor or 1)) + Fraction(int(digits or 0), 10 ** len(digits or ""))
    if rate > 1 or int(rate * 2**31) == 0:
        raise Refused("BadQuery", "a rate of 0, or above 1")
    return rate


def query_check(query):
    """Checks the members of a query. Returns it with all of them."""

    def refuse(condition, why):
        if condition:
            raise Refused("BadQuery", why)

    def number(value, most, why):
        refuse(type(value) is not int or not 0 <= value <= most, why)
        return value

    def digits(value, length, why):
        refuse(type(value) is not str or not re.fullmatch(f"[0-9a-fA-F]{{{length}}}", value), why)
        return value

    refuse(type(query) is not dict, "not an object")
    known = {"devices", "since", "until", "rate", "at_most", "sample", "readings"}
    refuse(not {"devices", "since"} <= set(query) <= known, "a name that is unknown or missing")
    query = dict.fromkeys(known) | query
    refuse(type(query["devices"]) is not list or not query["devices"], "no devices")
    devices = [digits(device, 16, "not a device id").lower() for device in query["devices"]]
    refuse(len(set(devices)) < len(devices), "a device twice")
    number(query["since"], M64, "since")
    if query["until"] is not None:
        refuse(number(query["until"], M64, "until") <= query["since"], "an empty range")
    refuse(sum(query[name] is not None for name in ("rate", "at_most", "sample", "readings")) != 1, "not exactly one choice")
    if query["rate"] is not None:
        refuse(type(query["rate"]) is not str, "a rate is a text")
        rate_of(query["rate"])
    if query["at_most"] is not None:
        number(query["at_most"], M64, "at_most")
    if query["sample"] is not None:
        sample = query["sample"]
        refuse(type(sample) is not dict or set(sample) != {"count", "seed"}, "a sample has a count and a seed")
        refuse(number(sample["count"], 0xFFFFFFFF, "count") == 0, "a sample of nothing")
        digits(sample["seed"], 64, "a seed")
    if query["readings"] is not None:
        runs, end = query["readings"], (-1, 0)
        refuse(type(runs) is not list or not 1 <= len(runs) <= 8, "readings are 1 to 8 runs")
        refuse(len(devices) > 1, "readings of several devices")
        for run in runs:
            refuse(type(run) is not list or len(run) != 3, "a run is an index, a first reading and a count")
            index, first, count = (number(value, 0xFFFFFFFF, "a number of a run") for value in run)
            refuse(count == 0 or first + count > 0xFFFFFFFF, "an empty run, or a long one")
            refuse(index < end[0] or (index == end[0] and first < end[1]), "runs that descend or overlap")
            end = (index, first + count)
    return query


def proof_query(text, roster):
    """The query of a proof's first item, which was answered under a version of this roster."""

    def whole(digits):
        if digits.startswith("-"):
            raise ValueError("a negative number")
        return int(digits)

    def refuse(number):
        raise ValueError(f"{number} is not a whole number")

    def unique(pairs):
        if len({name for name, _value in pairs}) < len(pairs):
            raise ValueError("a name twice")
        return dict(pairs)

    try:
        hooks = {"parse_int": whole, "parse_float": refuse, "parse_constant": refuse}
        query = json.loads(text, object_pairs_hook=unique, **hooks)
        named = type(query) is dict and "roster" in query
        digest = query.pop("roster") if named else ""
        if named and (type(digest) is not str or not re.fullmatch("[0-9a-fA-F]{64}", digest)):
            raise ValueError("its roster is not a digest")
        query = query_check(query)
    except (ValueError, RecursionError, Refused) as error:
        raise Refused("NotAProof", str(error)) from None
    if named and unhex(digest) not in [*roster.history, roster.digest]:
        raise Refused("UnknownRoster", digest)
    return query


def check_proof(reader, data):
    """Checks a proof: its query, and the answer to it. Returns what `check_answer` returns."""
    kind, text, length = next(items(data), (None, None, 0))
    if kind != "proof":
        raise Refused("NotAProof")
    return check_answer(reader, data[length:], proof_query(text, reader.roster))


# ---------------------------------------------------------------- coordinator.md, section 4: the link


def hmac256(key, *parts):
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


def link_secret(group_secret, group, device):
    return hmac256(group_secret, b"moteseal/1/link", group, device)


def frame_item(frame, secret, direction):
    """Checks the tag of a frame. Returns its item."""
    if len(frame) < 16 or len(frame) > 65536:
        raise Refused("Malformed")
    item, tag = frame[:-16], frame[-16:]
    key = hmac256(secret, b"moteseal/1/link/" + direction)
    if not hmac.compare_digest(hmac256(key, item)[:16], tag):
        raise Refused("NotAuthentic")
    return decode(item)


def frame_events(data, start, until, size):
    """The events of a forward frame."""
    form, events, least = Form(data), [], start
    while form.at < len(data):
        place = uint(form.item())
        seq = least + (place >> 5)
        out_of_range(seq >= until)
        record = form.take(size or int.from_bytes(form.take(2), "big"))
        events.append([seq, place & 31, record.hex()])
        least = seq + 1
    return events


def perfect_subtrees(start, until, present):
    """The maximal perfect subtrees of a range of leaves that contain no present leaf."""
    found, at = [], start
    for end in [*present, until]:
        while at < end:
            width = 1 << (end - at).bit_length() - 1
            while at % width:
                width >>= 1
            found.append((at, at + width))
            at += width
        at = max(at, end + 1)
    return found


def frame_up(frame, group_secret, group):
    """Opens a frame of a device. The frame contains the device's id, from which its key follows."""
    if len(frame) < 11 or frame[0] >> 5 != 4 or frame[0] & 31 > 23 or frame[1] > 23 or frame[2] != 0x48:
        raise Refused("Malformed")
    device = bytes(frame[3:11])
    try:
        fields = array(frame_item(frame, link_secret(group_secret, group, device), b"up"))
        kinds = {(1, 9): "forward", (1, 10): "forward", (2, 5): "close", (3, 3): "schema", (6, 3): "challenge"}
        kind = kinds.get((uint(fields[0]), len(fields)))
        wrong_type(kind is None)
        read = {"frame": kind, "device": byte_string(fields[1], 8).hex()}
        if kind == "schema":
            return read | {"schema": byte_string(fields[2]).hex()}
        if kind == "challenge":
            return read | {"challenge": uint(fields[2])}
        if kind == "close":
            schema, opening, part = byte_string(fields[2], 32), byte_string(fields[3]), byte_string(fields[4])
            return read | {"schema": schema.hex(), "open": opening.hex(), "part": part.hex()}
        index, epoch, own_round = uint(fields[2], 32), uint(fields[3]), uint(fields[4], 8)
        start, until, size = uint(fields[5], 32), uint(fields[6], 32), uint(fields[7], 16)
        out_of_range(own_round > 31 or start > until)
        events = frame_events(byte_string(fields[8]), start, until, size)
        read |= {
            "index": index, "epoch": epoch, "own_round": own_round, "from": start, "until": until, "size": size,
            "events": events,
        }  # fmt: skip
        if len(fields) == 10:
            digests = byte_string(fields[9])
            places = perfect_subtrees(start, until, [seq for seq, _, _ in events])
            out_of_range(len(digests) != 32 * len(places))
            read["subtrees"] = [[*place, digests[32 * at : 32 * at + 32].hex()] for at, place in enumerate(places)]
        return read
    except Refused as refused:
        raise refused if refused.name == "NotAuthentic" else Refused("Malformed", str(refused)) from None


@dataclass
class Followed:
    """The position up to which a device's open seal has been followed."""

    index: int
    epoch: int
    next: int = 0
    round: int = 0

    def follow(self, index, epoch, own_round, start, until):
        """The kind of a forward frame, and its first new event."""
        what = "news"
        if index > self.index:
            if start or not until:
                return "gap", None
            self.index, self.epoch, self.next, self.round = index, epoch, 0, 0
            what = "next"
        elif (index, epoch) != (self.index, self.epoch):
            return "old", None
        if start > self.next:
            return "gap", None
        if until <= self.next:
            return "old", None
        first, self.next, self.round = self.next, until, max(self.round, own_round)
        return what, first


def stored_seal(item):
    """The newest seal that a coordinator has stored of a device."""
    index, epoch, last, digest = array(item, 4)
    index, epoch, last, digest = uint(index, 32), uint(epoch), uint(last), byte_string(digest, 32)
    out_of_range(last > 1)
    return {"index": index, "epoch": epoch, "last": last, "digest": digest.hex()}


def frame_down(frame, group_secret, group, device):
    """Opens an acknowledgement, as the device does."""
    try:
        fields = array(frame_item(frame, link_secret(group_secret, group, device), b"down"), 7)
        kind, to = uint(fields[0]), byte_string(fields[1], 8)
        index, next_seq, sealed = uint(fields[2], 32), uint(fields[3], 32), optional(fields[4], stored_seal)
        wants, challenge = uint(fields[5]), optional(fields[6], uint)
        out_of_range(kind != 16 or to != device or wants > 1)
        return {"index": index, "next": next_seq, "sealed": sealed, "wants": wants, "challenge": challenge}
    except Refused as refused:
        raise refused if refused.name == "NotAuthentic" else Refused("Malformed", str(refused)) from None


def frame_refusal(frame, group_secret, group, device):
    """Opens the refusal of a seal, as the device does."""
    try:
        fields = array(frame_item(frame, link_secret(group_secret, group, device), b"down"), 5)
        kind, to = uint(fields[0]), byte_string(fields[1], 8)
        index, final, name = uint(fields[2], 32), uint(fields[3]), text(fields[4])
        is_name = 1 <= len(name) <= 48 and name.isascii() and name.isalnum()
        out_of_range(kind != 17 or to != device or final > 1 or not is_name)
        return {"index": index, "final": final, "name": name}
    except Refused as refused:
        raise refused if refused.name == "NotAuthentic" else Refused("Malformed", str(refused)) from None


# ---------------------------------------------------------------- sums.md, sections 1 and 2: keys, encryption, opening

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


# ---------------------------------------------------------------- broadcast.md, section 1: senders and base stations

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

    def check(self, now, minimum):
        if self.serial < minimum:
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


def revocation(data, network, bases):
    object = signed(data, REVOCATION)
    fields = array(decode(object.payload), 4)
    version_one(fields[0])
    of, base, minimum = byte_string(fields[1], 8), byte_string(fields[2], 8), uint(fields[3])
    return of_base(object, of, base, network, bases), minimum


# ---------------------------------------------------------------- broadcast.md, sections 2 and 3: chains

SHA_256 = -16
LEAF, BLOCK = 0, 1
MAX_CHAIN, MAX_BLOCK, MAX_CHAIN_MESSAGE, MAX_LABEL = 1 << 24, 64, 8192, 64
COMMAND, LONGEST_COMMAND, NEVER_ENDS = 3, 604_800, M64


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
    out_of_range(kind > COMMAND)
    out_of_range(not 1 <= messages <= MAX_CHAIN or not 1 <= per_block <= MAX_BLOCK or longest > MAX_CHAIN_MESSAGE)
    label, not_before, not_after, step = text(fields[9]), *map(uint, fields[10:13])
    hash_number, first, tags = sint(fields[13]), byte_string(fields[14], 32), byte_string(fields[15])
    head = Chain(of, by, under, number, messages, per_block, longest, kind, label, first, tags, not_before, not_after, step)
    if hash_number != SHA_256:
        raise Refused("UnknownAlgorithm")
    out_of_range(len(label.encode()) > MAX_LABEL or not_plain(label))
    out_of_range(not_before >= not_after or step > number)
    out_of_range(kind == COMMAND and (not_after == NEVER_ENDS or not_after - not_before > LONGEST_COMMAND))
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
    lengths = {32: 2, 33: 2, 34: 2, 35: 5, 36: 4, 37: 4, 38: 3, 39: 6}
    if kind not in lengths:
        raise Refused("UnknownItem")
    array(frame, lengths[kind])
    if kind in (32, 33, 34):
        name = {32: "certificate", 33: "revocation", 34: "head"}[kind]
        return {"frame": name, "bytes": byte_string(frame[1])}
    if kind == 38:
        return {"frame": "single", "head": byte_string(frame[1]), "leaf": byte_string(frame[2])}
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


# ---------------------------------------------------------------- tesla.md

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


# ---------------------------------------------------------------- sums.md, section 3: the query schedule

QUERY_SCHEDULE = 2


def query_id(roster, nonce, plan):
    return H(b"moteseal/1/query", roster, nonce, plan)[:16]


def schedule_open(data, group, roster, querier):
    head, message = chain_of_one(data, group, sender_named("querier"), querier)
    if head.kind != QUERY_SCHEDULE:
        raise Refused("WrongKind")
    version, of_roster, sources, size, queries = array(decode(message), 5)
    version_one(version)
    of_roster = byte_string(of_roster, 32)
    sources, size = uint(sources, 32), uint(size, 32)
    posed = []
    for query in array(queries):
        nonce, first, until, plan = array(query, 4)
        posed.append((byte_string(nonce, 16), uint(first), uint(until), byte_string(plan)))
    if of_roster != roster:
        raise Refused("WrongRoster")
    out_of_range(len(posed) > 4 or sources == 0 or size == 0)
    out_of_range(any(first >= until or len(plan) > 1616 for _, first, until, plan in posed))
    ids = [query_id(roster, nonce, plan) for nonce, _, _, plan in posed]
    if len({id[:4] for id in ids}) < len(ids):
        raise Refused("AmbiguousQuery")
    return {
        "digest": head.first.hex(),
        "number": head.number,
        "sources": sources,
        "key_group": size,
        "queries": [
            {"id": id.hex(), "first": first, "until": until, "plan": plan.hex()}
            for id, (_, first, until, plan) in zip(ids, posed)
        ],
    }


# ---------------------------------------------------------------- sums.md, section 4: frames


def child_frame(frame, hub_secret, group, child):
    """A frame of a child, and the records in it."""
    try:
        fields = array(frame_item(frame, link_secret(hub_secret, group, child), b"up"))
        kind = {(4, 5): "share", (5, 7): "children"}.get((uint(fields[0]) if fields else None, len(fields)))
        wrong_type(kind is None)
        read = {"frame": kind, "query": byte_string(fields[1], 4).hex(), "epoch": uint(fields[2])}
        if kind == "share":
            shares = [[byte_string(fields[3]), [byte_string(record) for record in array(fields[4])]]]
        else:
            read |= {"node": byte_string(fields[3], 8).hex(), "first": uint(fields[4], 32), "total": uint(fields[5], 32)}
            shares = []
            for entry in array(fields[6]):
                of, participation, records = array(entry, 3)
                records = [byte_string(record) for record in array(records)]
                shares.append([byte_string(of, 8).hex(), byte_string(participation).hex(), records])
    except Refused as refused:
        raise refused if refused.name == "NotAuthentic" else Refused("Malformed", str(refused)) from None
    for share in shares:
        share[-1] = [be(psr_read(record), 32).hex() for record in share[-1]]
    if kind == "share":
        return read | {"participation": shares[0][0].hex(), "psrs": shares[0][1]}
    return read | {"children": shares}


def explain_frame(frame, hub_secret, group, child):
    """Opens a query message of a hub to its child."""
    try:
        kind, query, epoch, node, first = array(frame_item(frame, link_secret(hub_secret, group, child), b"down"), 5)
        out_of_range(uint(kind) != 18)
        query, epoch, node = byte_string(query, 4).hex(), uint(epoch), byte_string(node, 8).hex()
        return {"query": query, "epoch": epoch, "node": node, "first": uint(first, 32)}
    except Refused as refused:
        raise refused if refused.name == "NotAuthentic" else Refused("Malformed", str(refused)) from None


# ---------------------------------------------------------------- sums.md, section 5: participation


def leb128(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def participation_encode(runs):
    """The only encoding of a set, which is given as ascending runs `[start, end)` that do not touch."""
    if not runs:
        return b""
    by_runs, before = b"", None
    for start, end in runs:
        by_runs += leb128(start << 1 if before is None else start - before - 1) + leb128(end - start - 1)
        before = end
    base = runs[0][0] // 8
    last = (runs[-1][1] - 1) // 8
    if last - base + 2 >= len(by_runs):
        return by_runs
    bits = sum((1 << end - 8 * base) - (1 << start - 8 * base) for start, end in runs)
    bitmap = leb128(base << 1 | 1) + bits.to_bytes(last - base + 1, "little")
    return bitmap if len(bitmap) < len(by_runs) else by_runs


def participation_decode(data, sources):
    """The runs of a set of positions below `sources`."""
    at = 0

    def integer():
        nonlocal at
        value = shift = 0
        while at < len(data):
            at += 1
            value |= (data[at - 1] & 127) << shift
            shift += 7
            if data[at - 1] < 128:
                return value
        raise Refused("MalformedParticipation")

    runs = []
    if data:
        head = integer()
        if head & 1:
            base, bits, bit = 8 * (head >> 1), int.from_bytes(data[at:], "little"), 0
            while bits >> bit:
                if bits >> bit & 1 and runs and runs[-1][1] == base + bit:
                    runs[-1][1] += 1
                elif bits >> bit & 1:
                    runs.append([base + bit, base + bit + 1])
                bit += 1
        else:
            start = head >> 1
            runs.append([start, start + integer() + 1])
            while at < len(data):
                start = runs[-1][1] + integer() + 1
                runs.append([start, start + integer() + 1])
    if (runs and runs[-1][1] > 1 << 31) or participation_encode(runs) != data:
        raise Refused("MalformedParticipation")
    if runs and runs[-1][1] > sources:
        raise Refused("UnknownPosition")
    return runs


# ---------------------------------------------------------------- queries.md, sections 1 and 2: the language

AGGREGATES = ["SUM", "COUNT", "AVG", "VARIANCE", "STDDEV"]
RESERVED = {"SELECT", "FROM", "WHERE", "EPOCH", "DURATION", "AND", "OR", "NOT", "BETWEEN"}
UNITS_OF_TIME = {"D": 86_400_000, "H": 3_600_000, "M": 60_000, "S": 1000, "MS": 1}
EMPTY = (1, 0)
WHITE_SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
TOKEN = re.compile(
    rf"""[{WHITE_SPACE}]*(?:(?P<end>\Z)|(?P<word>[^\W\d]\w*)|(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<quoted>"(?:[^"]|"")*")"""
    r"""|(?P<text>'(?:[^']|'')*')|(?P<sign><=|>=|!=|<>|[(),*<>=+-])|(?P<open>["'])|(?P<other>.))""",
    re.DOTALL,
)


def upper(text):
    """The text in upper case, if it is ASCII. The words of the language are."""
    return text.upper() if text.isascii() else text


class QueryText:
    """Parses the text of a query to its plan, token by token. The first error is reported.

    Python has no data for the property Other_Alphabetic. A combining mark in a word without quotes is thus rejected.
    """

    def __init__(self, source, schema):
        if len(source.encode()) > 16384:
            raise Refused("QueryTooLong")
        self.source, self.at, self.schema = source, 0, schema
        self.items, self.columns, self.steps = [], [], []
        self.advance()
        self.query()

    def advance(self):
        match = TOKEN.match(self.source, self.at)
        self.at, self.kind, self.token = match.end(), match.lastgroup, match[match.lastgroup]
        if self.kind == "open":
            raise Refused("Unterminated")
        if self.kind == "other" or (self.kind == "word" and unicodedata.category(self.token[0]) == "No"):
            raise Refused("UnknownCharacter")

    def is_word(self, word):
        return self.kind == "word" and upper(self.token) == word

    def accept(self, *tokens):
        """Takes the next token if it is one of these words or signs."""
        if self.kind in ("word", "sign") and upper(self.token) in tokens:
            token = upper(self.token)
            self.advance()
            return token
        return None

    def expect(self, *tokens):
        token = self.accept(*tokens)
        if token is None:
            raise Refused("UnexpectedToken", f"{self.token!r}")
        return token

    def query(self):
        self.expect("SELECT")
        self.item()
        while self.accept(","):
            self.item()
        self.expect("FROM")
        self.expect("SENSORS")
        if self.accept("WHERE"):
            self.close(self.disjunction(0))
        if self.kind == "end":
            raise Refused("DurationMissing")
        self.expect("EPOCH")
        self.expect("DURATION")
        if self.kind == "end":
            raise Refused("DurationMissing")
        if self.kind != "number" or "." in self.token:
            raise Refused("UnexpectedToken")
        count = int(self.token)
        self.advance()
        if not 1 <= count < 1 << 32:
            raise Refused("DurationOutOfRange")
        if self.kind != "word" or upper(self.token) not in UNITS_OF_TIME:
            raise Refused("UnexpectedToken")
        self.epoch_ms = count * UNITS_OF_TIME[upper(self.token)]
        if not 1000 <= self.epoch_ms <= 7 * 86_400_000:
            raise Refused("DurationOutOfRange")
        self.advance()
        if self.kind != "end":
            raise Refused("UnexpectedToken")

    def item(self):
        if self.kind != "word" or upper(self.token) in RESERVED:
            raise Refused("UnexpectedToken")
        if upper(self.token) not in AGGREGATES:
            raise Refused("UnknownAggregate")
        aggregate, column = AGGREGATES.index(self.expect(*AGGREGATES)), None
        self.expect("(")
        if aggregate != 1 or not self.accept("*"):
            column = self.column()
        self.expect(")")
        if (aggregate, column) in self.items:
            raise Refused("DuplicateItem")
        self.items.append((aggregate, column))
        if len(self.items) > 16:
            raise Refused("TooManyItems")

    def column(self):
        """Reads a column. Returns its place in the plan."""
        if self.kind == "quoted":
            name = self.token[1:-1].replace('""', '"')
        elif self.kind == "word" and upper(self.token) not in RESERVED:
            name = self.token
        else:
            raise Refused("UnexpectedToken")
        if not self.schema.fields:
            raise Refused("NotNumeric")
        field = self.schema.field(name)
        if field is None:
            raise Refused("UnknownColumn")
        if field[2] >= 8:
            raise Refused("NotNumeric" if TYPES[field[2]] == "time" else "NotExact")
        if field not in self.columns:
            self.columns.append(field)
        if len(self.columns) > 8:
            raise Refused("TooManyColumns")
        self.advance()
        return self.columns.index(field)

    # Operands are (join, number, depth): `number` operands, whose steps are added already. If `join` is not None, they are
    # the operands of one AND or OR, whose own step is added when no further operand follows.

    def disjunction(self, nested):
        return self.joined("OR", self.conjunction, nested)

    def conjunction(self, nested):
        return self.joined("AND", self.operand, nested)

    def joined(self, join, read, nested):
        operands = read(nested)
        while self.accept(join):
            _, number, depth = self.open(operands, join)
            _, more, deeper = self.open(read(nested), join)
            operands = join, number + more, max(depth, deeper)
        return operands

    def open(self, operands, join):
        """Closes the operands, unless `join` joins them."""
        return operands if operands[0] == join else self.close(operands)

    def close(self, operands):
        join, number, depth = operands
        return self.step(number if join == "AND" else -number, depth + 1) if join else operands

    def step(self, step, depth):
        if depth > 16:
            raise Refused("TooDeep")
        if len(self.steps) == 32:
            raise Refused("TooManySteps")
        self.steps.append(step)
        return None, 1, depth

    def operand(self, nested):
        if nested > 16:
            raise Refused("TooDeep")
        if self.accept("NOT"):
            return self.step(0, self.close(self.operand(nested + 1))[2] + 1)
        if self.accept("("):
            inner = self.disjunction(nested + 1)
            self.expect(")")
            return inner
        return self.comparison()

    def number(self):
        negative = self.accept("+", "-") == "-"
        if self.kind == "text":
            raise Refused("NotNumeric")
        if self.kind != "number":
            raise Refused("UnexpectedToken")
        digits = self.token
        self.advance()
        if len(digits.replace(".", "")) > 38:
            raise Refused("NumberOutOfRange")
        return Fraction(("-" if negative else "") + digits)

    def comparison(self):
        if self.kind in ("number", "text") or self.token in ("+", "-"):
            number = self.number()
            sign = self.expect("<", "<=", ">", ">=", "=", "!=", "<>")
            sign = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign)
            column = self.column()
        else:
            column = self.column()
            if self.accept("BETWEEN"):
                low = self.number()
                self.expect("AND")
                return self.step([column, *self.interval(column, low, self.number())], 0)
            sign = self.expect("<", "<=", ">", ">=", "=", "!=", "<>")
            number = self.number()
        scaled = number * self.columns[column][3]
        if sign == ">":
            bounds = bound(math.floor(scaled) + 1), None
        elif sign == ">=":
            bounds = bound(math.ceil(scaled)), None
        elif sign == "<":
            bounds = None, bound(math.ceil(scaled) - 1)
        elif sign == "<=":
            bounds = None, bound(math.floor(scaled))
        else:
            bounds = self.interval(column, number, number)
        comparison = self.step([column, *bounds], 0)
        return self.step(0, 1) if sign in ("!=", "<>") else comparison

    def interval(self, column, low, high):
        divisor = self.columns[column][3]
        low, high = bound(math.ceil(low * divisor)), bound(math.floor(high * divisor))
        return (low, high) if low <= high else EMPTY

    def plan(self):
        summed = {column for aggregate, column in self.items if aggregate != 1}
        columns = []
        for at, (name, _, kind, divisor, offset) in enumerate(self.columns):
            bits = 8 * struct.calcsize(FORMATS[kind])
            low = -(1 << bits - 1) if TYPES[kind][0] == "i" else 0
            ends = [min(max(end + offset, -(1 << 63)), (1 << 63) - 1) for end in (low, low + (1 << bits) - 1)]
            columns.append([name, divisor, *(ends if at in summed else [])])
        return Plan(self.items, columns, self.steps, self.epoch_ms)


def bound(value):
    if not -(1 << 63) <= value < 1 << 63:
        raise Refused("NumberOutOfRange")
    return value


# ---------------------------------------------------------------- queries.md, sections 3 to 5: plan, slots, results


def places_of(divisor):
    """The least number of places at which `1 / divisor` is exact, or None."""
    return next((places for places in range(33) if 10**places % divisor == 0), None)


def shown(digits, places):
    text = str(abs(digits)).rjust(places + 1, "0")
    return ("-" if digits < 0 else "") + (f"{text[:-places]}.{text[-places:]}" if places else text)


@dataclass
class Plan:
    items: list
    columns: list
    steps: list
    epoch_ms: int

    def encode(self):
        items = [list(item) for item in self.items]
        return cbor2.dumps([1, items, self.columns, self.steps, self.epoch_ms])

    def slots(self):
        """The kind, the place of the column, vmax and shift of each slot."""
        slots = [("count", None, 1, 0)] if any(aggregate for aggregate, _ in self.items) else []
        for at, column in enumerate(self.columns):
            if len(column) == 4:
                low, high = column[2:]
                shift = min(0, low)
                slots.append(("sum", at, max(0, high) - shift, shift))
                if any((aggregate, at) in self.items for aggregate in (3, 4)):
                    slots.append(("squares", at, max(low**2, high**2), 0))
        return slots

    def tree(self):
        """The predicate as a tree, or None: ("AND", operands), ("OR", operands), ("NOT", [operand]), (column, low, high)."""
        waiting = []
        for step in self.steps:
            if type(step) is list:
                waiting.append(tuple(step))
            elif step == 0:
                waiting.append(("NOT", [waiting.pop()]))
            else:
                operands = waiting[-abs(step) :]
                del waiting[-abs(step) :]
                waiting.append(("AND" if step > 0 else "OR", operands))
        return waiting[0] if waiting else None

    def name(self, at):
        name = self.columns[at][0]
        plain = re.fullmatch(r"[^\W\d]\w*", name) and unicodedata.category(name[0]) != "No" and upper(name) not in RESERVED
        return name if plain else '"' + name.replace('"', '""') + '"'

    def comparison_text(self, column, low, high):
        name, divisor = self.name(column), self.columns[column][1]
        exact = places_of(divisor)
        places = 10 if exact is None else min(exact, 10)
        if (low, high) == EMPTY:
            return f"{name} BETWEEN 1 AND 0"
        least = None if low is None else shown(low * 10**places // divisor, places)
        most = None if high is None else shown(-(-high * 10**places // divisor), places)
        if high is None:
            return f"{name} >= {least}"
        if low is None:
            return f"{name} <= {most}"
        if low == high and exact == places:
            return f"{name} = {least}"
        return f"{name} BETWEEN {least} AND {most}"

    def predicate_text(self, tree, within=None):
        if type(tree[0]) is int:
            return self.comparison_text(*tree)
        operands = [self.predicate_text(operand, tree[0]) for operand in tree[1]]
        text = f"NOT {operands[0]}" if tree[0] == "NOT" else f" {tree[0]} ".join(operands)
        loose = (tree[0] == "OR" and within == "AND") or (tree[0] != "NOT" and within == "NOT")
        return f"({text})" if loose else text

    @property
    def text(self):
        items = [f"{AGGREGATES[a]}({'*' if column is None else self.name(column)})" for a, column in self.items]
        where = f" WHERE {self.predicate_text(self.tree())}" if self.steps else ""
        unit = next(unit for unit, ms in UNITS_OF_TIME.items() if self.epoch_ms % ms == 0)
        duration = f"{self.epoch_ms // UNITS_OF_TIME[unit]}{unit.lower()}"
        return f"SELECT {', '.join(items)} FROM sensors{where} EPOCH DURATION {duration}"

    def contribution(self, schema, record):
        """The contribution of a source to each slot."""
        places = []
        for name, divisor, *_ in self.columns:
            field = schema.field(name)
            if field is None:
                raise Refused("UnknownColumn")
            if field[2] >= 8:
                raise Refused("NotExact")
            if field[3] != divisor:
                raise Refused("DivisorMismatch")
            places.append(schema.fields.index(field))
        numerators = None
        if record is not None:
            values = schema.values(record)
            numerators = [values[place][0] for place in places]

        def holds(tree):
            if type(tree[0]) is int:
                value, low, high = numerators[tree[0]], tree[1], tree[2]
                return (low is None or low <= value) and (high is None or value <= high)
            truths = [holds(operand) for operand in tree[1]]
            return {"NOT": not truths[0], "AND": all(truths), "OR": any(truths)}[tree[0]]

        matches = numerators is not None and (not self.steps or holds(self.tree()))
        contributed = []
        for kind, at, _, shift in self.slots():
            if matches and at is not None and not self.columns[at][2] <= numerators[at] <= self.columns[at][3]:
                raise Refused("ValueOutOfRange")
            if not matches:
                contributed.append(-shift if kind == "sum" else 0)
            else:
                contributed.append(
                    1 if kind == "count" else numerators[at] - shift if kind == "sum" else numerators[at] ** 2
                )
        return contributed

    def answer(self, totals, participants):
        """The results as texts; None for an item without a result."""
        slots = self.slots()
        if len(totals) != len(slots):
            raise Refused("WrongSlotCount")
        count, sums, squares = None, {}, {}
        for (kind, at, vmax, shift), total in zip(slots, totals):
            if total > participants * vmax:
                raise Refused("SumOutOfRange")
            if kind == "count":
                count = total
            elif kind == "sum":
                sums[at] = total + participants * shift
            else:
                squares[at] = total, vmax
        if count is not None:
            for at, total in sums.items():
                possible = count * self.columns[at][2] <= total <= count * self.columns[at][3]
                if at in squares:
                    square, vmax = squares[at]
                    possible = possible and square <= count * vmax and total**2 <= count * square
                if not possible:
                    raise Refused("Inconsistent")
        results = []
        for aggregate, at in self.items:
            if aggregate == 1:
                results.append(str(count))
                continue
            divisor = self.columns[at][1]
            p = places_of(divisor)
            digits = 9 if p is None else [p, 0, p + 4, 2 * p + 4, p + 4][aggregate]
            if aggregate == 0:
                results.append(shown(round(Fraction(sums[at], divisor) * 10**digits), digits))
            elif count == 0:
                results.append(None)
            elif aggregate == 2:
                results.append(shown(round(Fraction(sums[at], count * divisor) * 10**digits), digits))
            else:
                variance = Fraction(count * squares[at][0] - sums[at] ** 2, (count * divisor) ** 2)
                scaled = variance * 10 ** (digits if aggregate == 3 else 2 * digits)
                results.append(shown(round(scaled) if aggregate == 3 else rounded_root(scaled), digits))
        return results


def rounded_root(square):
    """The root of a fraction, to the nearest integer, half to even."""
    down = math.isqrt(math.floor(square))
    middle = (down + Fraction(1, 2)) ** 2
    return down + (square > middle or (square == middle and down % 2))


def plan_decode(data):
    version, items, columns, steps, epoch_ms = array(decode(data), 5)
    version_one(version)
    read_items, read_columns, read_steps = [], [], []
    for item in array(items):
        aggregate, column = array(item, 2)
        out_of_range(uint(aggregate) > 4)
        read_items.append((aggregate, optional(column, uint, 8)))
        out_of_range(len(read_items) > 16)
    for column in array(columns):
        wrong_type(len(array(column)) not in (2, 4))
        read_columns.append([text(column[0]), uint(column[1], 32), *map(sint, column[2:])])
        out_of_range(len(read_columns) > 8)
    for step in array(steps):
        if type(step) is list:
            column, low, high = array(step, 3)
            read_steps.append([uint(column, 8), optional(low, sint), optional(high, sint)])
        else:
            out_of_range(abs(sint(step)) > 255)
            read_steps.append(step)
        out_of_range(len(read_steps) > 32)
    plan = Plan(read_items, read_columns, read_steps, uint(epoch_ms, 32))
    plan_check(plan)
    assert plan.encode() == data, "what was decoded encodes to what was read"
    return plan


def plan_check(plan):
    """The checks of a decoder in addition to those of the encoding and the types."""
    items, columns, steps = plan.items, plan.columns, plan.steps
    out_of_range(not items or len(set(items)) < len(items))
    out_of_range(any(column is None and aggregate != 1 for aggregate, column in items))
    mentioned = [column for _, column in items if column is not None] + [step[0] for step in steps if type(step) is list]
    out_of_range(list(dict.fromkeys(mentioned)) != list(range(len(columns))))
    out_of_range(len({column[0] for column in columns}) < len(columns))
    summed = {column for aggregate, column in items if aggregate != 1}
    for at, (name, divisor, *ends) in enumerate(columns):
        out_of_range(not 1 <= len(name.encode()) <= 64 or any(unicodedata.category(letter) == "Cc" for letter in name))
        out_of_range(divisor == 0 or (at in summed) != bool(ends) or (bool(ends) and ends[0] > ends[1]))
    waiting = []
    for step in steps:
        if type(step) is list:
            _, low, high = step
            out_of_range(low is None and high is None)
            out_of_range(None not in (low, high) and low > high and (low, high) != EMPTY)
            waiting.append((None, 0))
            continue
        taken = abs(step) or 1
        out_of_range(step in (1, -1) or taken > len(waiting))
        operands = waiting[-taken:]
        del waiting[-taken:]
        join = "AND" if step > 0 else "OR" if step < 0 else None
        out_of_range(join is not None and any(inner == join for inner, _ in operands))
        waiting.append((join, 1 + max(depth for _, depth in operands)))
        out_of_range(waiting[-1][1] > 16)
    out_of_range(len(waiting) != (1 if steps else 0))
    out_of_range(not 1000 <= plan.epoch_ms <= 7 * 86_400_000)


# ---------------------------------------------------------------- coordinator.md, sections 6 and 7: the audit


class DeviceSeals:
    """The seals of one device in the order of their indices, and the findings from them about a manifest."""

    def __init__(self, device, seals, listed):
        self.device, self.seals, self.listed = device, seals, listed

    def was_taken(self, seal):
        """Whether the seal is listed, or is the predecessor of a listed seal."""
        after = next((after for after in self.seals if after.prev == seal.digest), None)
        return any((one.epoch, one.device, one.digest) in self.listed for one in (seal, after) if one is not None)

    def is_whole(self, epoch):
        """Whether the chain continues after the epoch or closes it, without a gap in it."""
        ends = [at for at, seal in enumerate(self.seals) if seal.epoch == epoch and seal.last_in_epoch]
        ends += [at for at, seal in enumerate(self.seals) if seal.epoch > epoch][:1]
        for at in ends:
            while True:
                seal = self.seals[at]
                if seal.prev_epoch is None or seal.prev_epoch < epoch:
                    return True
                if at == 0 or self.seals[at - 1].digest != seal.prev:
                    break
                at -= 1
        return False

    def check(self, epoch, listed, gone_on):
        """The findings and doubts about the manifest of an epoch that lists these digests."""
        device = self.device.hex()
        findings, doubts, gap = [], [], False
        of_epoch = [seal for seal in self.seals if seal.epoch == epoch]
        for digest in listed:
            seal = next((seal for seal in self.seals if seal.digest == digest), None)
            after = next((seal for seal in self.seals if seal.prev == digest and seal.prev_index is not None), None)
            if seal is not None:
                if seal.epoch != epoch:
                    findings.append({"name": "Replayed", "device": device, "index": seal.index, "from": seal.epoch})
                elif seal.prev_epoch == epoch and seal.prev not in listed:
                    gap = True
                continue
            gap = True
            if after is not None and after.prev_epoch != epoch:
                findings.append({"name": "Replayed", "device": device, "index": after.prev_index, "from": after.prev_epoch})
            elif after is not None:
                doubts.append({"name": "Withheld", "device": device, "index": after.prev_index})
            elif self.is_whole(epoch):
                findings.append({"name": "InventedSeal", "device": device, "digest": digest.hex()})
            elif gone_on:
                findings.append({"name": "Unshown", "device": device, "digest": digest.hex()})
            else:
                doubts.append({"name": "NotShownYet", "device": device, "digest": digest.hex()})
        doubts += [{"name": "Late", "device": device, "index": s.index} for s in of_epoch if s.digest not in listed]
        mine = [seal for seal in of_epoch if seal.digest in listed]
        later = next((seal for seal in self.seals if seal.epoch > epoch), None)
        if later is not None and (later.restart or not self.was_taken(later)):
            later = None
        closed = mine and mine[-1].last_in_epoch
        if closed:
            went_on = True
        elif mine:
            went_on = later is not None and later.prev == mine[-1].digest
        else:
            went_on = later is not None and (later.prev_epoch is None or later.prev_epoch < epoch)
        if gap or not went_on:
            doubts.append({"name": "Absent", "device": device, "listed": bool(mine)})
        following = [seal for seal in self.seals if mine and not closed and seal.index > mine[-1].index][:1]
        if any(seal.restart for seal in mine + following):
            doubts.append({"name": "Restarted", "device": device})
        return findings, doubts


def audit(reader, data, since, until):
    """Audits the epochs since .. until-1. Returns an entry for each manifest, by epoch."""
    roster = reader.roster
    if not roster.has_budget:
        raise Refused("NoBudget")
    manifests, latest, seals_of, listed = {}, -1, {}, set()

    def inside(epoch):
        return since <= epoch < (M64 if until is None else until)

    broken = {}  # by epoch: the faults of the devices' chains
    histories, at = {}, None
    for kind, value in answer_items(reader, data):
        if kind == "end":
            continue
        if kind == "manifest":
            if value.epoch < since or at is not None or roster.period(value.epoch).budget is None:
                raise Refused("NotAsAsked", f"the manifest of epoch {value.epoch}")
            latest = max(latest, value.epoch)
            listed |= {(value.epoch, device, digest) for device, digests in value.devices for digest in digests}
            known = manifests.setdefault(value.epoch, []) if inside(value.epoch) else None
            if known is not None and value.digest not in [manifest.digest for manifest in known]:
                known.append(value)
        else:
            seal = value.seal
            if seal.device != at and seal.device in seals_of:
                raise Refused("NotAsAsked", seal.device.hex())
            at = seal.device
            history = histories.setdefault(at, History(at, since, until))
            found = history.broken(seal, roster)
            if found:
                name, index, epoch = found
                if name == "NotAsAsked":
                    raise Refused(name, f"index {index}")
                finding = {"name": name, "device": at.hex(), "index": index}
                if name == "Missing":
                    finding["named_by"] = seal.index
                broken.setdefault(epoch, []).append(finding)
                # The next seals are compared with this one.
                history = histories[at] = History(at, seal.epoch, None)
            history.take(seal)
            seals_of.setdefault(at, []).append(seal)

    of_epoch = {}
    for seals in seals_of.values():
        for seal in seals:
            if inside(seal.epoch):
                of_epoch.setdefault(seal.epoch, []).append(seal)
    devices = {device.id: DeviceSeals(device.id, seals_of.get(device.id, []), listed) for device in roster.devices}
    report = []
    for epoch in sorted({*manifests, *of_epoch, *filter(inside, broken)}):
        seals, found = of_epoch.get(epoch, []), list(broken.get(epoch, []))
        epoch_manifests = manifests.get(epoch, [])
        if len(epoch_manifests) > 1:
            found.append({"name": "TwoManifests", "digests": sorted(manifest.digest.hex() for manifest in epoch_manifests)})
        for manifest in epoch_manifests:
            report.append(audit_manifest(roster, manifest, devices, seals, found, latest > epoch))
        if not epoch_manifests:
            doubt = {"name": "NoManifest", "gone_on": latest > epoch}
            report.append(audit_entry(epoch, None, None, [], seals, [], found, [doubt], False))
    return report


def audit_manifest(roster, manifest, devices, seals, found, gone_on):
    """The verdict on one manifest."""
    listed, epoch, final = dict(manifest.devices), manifest.epoch, manifest.round
    mine = [seal for seal in seals if seal.digest in listed.get(seal.device, [])]
    levels, budget = roster.period(epoch).levels, roster.period(epoch).budget
    counts = [sum(seal.counters[level] for seal in mine) for level in range(levels)]
    due = next((j for j in range(levels) if sum(counts[j:]) <= budget), levels)
    findings, doubts = list(found), []
    for device, device_seals in devices.items():
        if not roster.device(device).is_member(epoch) and device not in listed:
            continue
        more, unclear = device_seals.check(epoch, listed.get(device, []), gone_on)
        findings += more
        doubts += unclear
    withheld = {(doubt["device"], doubt["index"]) for doubt in doubts if doubt["name"] == "Withheld"}
    findings = [one for one in findings if one["name"] != "Missing" or (one["device"], one["index"]) not in withheld]
    for device, digests in listed.items():
        if device not in devices:
            if manifest.roster == roster.digest:
                findings.append({"name": "InventedDevice", "device": device.hex(), "seals": len(digests)})
            else:
                doubts.append({"name": "Absent", "device": device.hex(), "listed": True})
    missing = any(doubt["name"] not in ("Restarted", "Late") for doubt in doubts)
    restarted = any(doubt["name"] == "Restarted" for doubt in doubts)
    rounds = sorted([seal.device.hex(), seal.round] for seal in mine if seal.round > final)
    justified = False
    if final < due:
        findings.append({"name": "OverBudget", "round": final, "kept": sum(counts[final:]), "due": due})
    elif rounds:
        announced = max(round for _, round in rounds)
        findings.append({"name": "RoundOverstated", "round": final, "announced": announced, "told": rounds})
    elif missing or (final > due and restarted):
        pass
    elif final > due:
        findings.append({"name": "StoppedEarly", "round": final, "due": due, "fitting": sum(counts[due:])})
    else:
        justified = True
    return audit_entry(epoch, manifest, due, counts, seals, mine, findings, doubts, justified)


def audit_entry(epoch, manifest, due, counts, seals, mine, findings, doubts, justified):
    def order(one):
        return one["name"], one.get("device", ""), one.get("index", -1), one.get("digest", "")

    return {
        "epoch": epoch,
        "verdict": "Unjustified" if findings else "Justified" if justified else "Undetermined",
        "manifest": manifest and manifest.digest.hex(),
        "round": manifest and manifest.round,
        "due": due,
        "kept": sum(counts[manifest.round :]) if manifest else 0,
        "counts": counts,
        "devices": len(manifest.devices) if manifest else 0,
        "listed": len(mine),
        "seals": len(seals),
        "findings": sorted(findings, key=order),
        "doubts": sorted(doubts, key=order),
    }


# ---------------------------------------------------------------- answers.md, section 8: explaining form; objects.md, section 8: receipts


def explain_check(roster, rebuilt, seal_bytes, digests):
    """Raises the error of the first difference between an explained seal and a rebuilt part."""
    object, explained = seal_decode(seal_bytes)
    device = roster.device(rebuilt.seal.device)
    key = device.key(rebuilt.seal.index, rebuilt.seal.epoch) if device else None
    if key is None:
        raise Refused("IndexOutOfRange")
    object.verify(key)
    for name in FIELDS:
        if explained.fields[name] != rebuilt.seal.fields[name]:
            raise Refused("StatementMismatch", name)
    part, given = rebuilt.part, chunks(digests)
    if explained.scheme == 0:
        start, above, levels = 0, CHAIN_START, len(explained.counters)
        if len(digests) == 32 * (levels + 1):
            # Only the levels from `start` on are kept.
            above, given = given[0], given[1:]
            start = next((level for level in range(levels) if given[level] != NULL), levels)
        if len(given) != levels or len(digests) % 32 or Reader.lowest(explained, part.select) < start:
            raise Refused("DigestCount")
        if star_chain(explained.counters[start:], given[start:], above) != explained.root:
            raise Refused("RootMismatch")
        for level, digest in sorted(rebuilt.blocks.items()):
            if digest != given[level]:
                raise Refused("BlockDigestMismatch", f"level {level}")
        if part.digests != Reader.star_evidence(explained, part.select, given, start, above):
            raise Refused("EvidenceMismatch")
        return
    if not digests:
        if rebuilt.seal.root != explained.root:
            raise Refused("PathMismatch")
        return
    if len(digests) != 32 * part.n:
        raise Refused("DigestCount")
    if tree_root(given) != explained.root:
        raise Refused("RootMismatch")
    for seq, _, record in rebuilt.rows:
        if leaf_hash(record) != given[seq]:
            raise Refused("PathMismatch", f"event {seq}")
    if part.digests != b"".join(multiproof(given, [seq for seq, _, _ in rebuilt.rows])):
        raise Refused("EvidenceMismatch")


def receipt_verify(receipt, record, key):
    """Verifies a COSE Receipt of inclusion by RFC 9942, sections 4 and 5.2, without Moteseal's formats. Returns the root."""
    refused = Refused("ReceiptRefused")
    try:
        object = cbor2.loads(receipt)
        if object.tag != 18:
            raise refused
        protected, unprotected, payload, signature = object.value
        header = cbor2.loads(protected)
        if header[395] != 1 or ALGORITHMS.get(header[1]) != key.alg or payload is not None:
            raise refused
        (proof,) = unprotected[396][-1]
        size, leaf, path = cbor2.loads(proof)
        if not path or any(len(digest) != 32 for digest in path):
            raise refused
        root = path_root(leaf_hash(record), leaf, size, path)
        key.verify(cbor2.dumps(["Signature1", protected, b"", root]), signature)
        return root
    except (Refused, KeyError, ValueError, TypeError, AttributeError, cbor2.CBORDecodeError):
        raise refused from None


# ---------------------------------------------------------------- test vectors


def operator_of(case):
    return Key(case["operator"]["alg"], unhex(case["operator"]["key"]))


def roster_of(case, opened={}):
    """The roster of the file, opened once. The vectors of rosters test the opening."""
    if case["roster"] not in opened:
        opened[case["roster"]] = roster_open(unhex(case["roster"]), operator_of(case))
    return opened[case["roster"]]


def show_value(value):
    if isinstance(value, tuple):
        return f"{value[0]}/{value[1]}"
    return struct.pack(">d", value).hex() if isinstance(value, float) else str(value)


def show_part(rebuilt):
    seal = rebuilt.seal
    return {
        "index": seal.index,
        "epoch": seal.epoch,
        "root": seal.root.hex(),
        "digest": seal.digest.hex(),
        "counters": seal.counters,
        "rows": [[seq, level, record.hex()] for seq, level, record in rebuilt.rows],
    }


def reader_of(case, given):
    known = {(unhex(entry["device"]), entry["index"]): unhex(entry["digest"]) for entry in given.get("known", [])}
    return Reader(roster_of(case), known, case.get("max_events", MAX_EVENTS))


def stream_read(case, given):
    parts, others = [], []
    for kind, value in reader_of(case, given).read(unhex(given["bytes"])):
        if kind == "part":
            parts.append(show_part(value))
        else:
            others.append(kind)
    return {"parts": parts, "others": others}


def choice_answer(case, given):
    """Checks the answer for one device: each epoch as requested, nothing else, and the range complete."""
    reader, parts = reader_of(case, given), []
    for kind, value in reader.read(unhex(given["bytes"])):
        if kind == "part":
            parts.append(value)
    device, since, until = unhex(given["device"]), given["since"], given["until"]
    seals = [rebuilt.seal for rebuilt in parts]
    inside, tail = check_history(seals, device, since, until)
    if tail is not None and until is not None:
        raise Refused("TailUnknown", f"from epoch {tail}")
    for rebuilt in parts[inside:]:
        if rebuilt.part.select != 0:
            raise Refused("NotAsAsked", "events after the range")
    choice = dict(given["choice"])
    if "rate" in choice:
        choice["rate"] = Fraction(choice["rate"])
    if "seed" in choice:
        choice["seed"] = unhex(choice["seed"])
    checked = parts[:inside]
    if "rate" not in choice and until is None and checked and not checked[-1].seal.last_in_epoch:
        # Nothing shows the last part of the newest epoch, so its selection cannot be checked.
        checked = [rebuilt for rebuilt in checked if rebuilt.seal.epoch != checked[-1].seal.epoch]
    for epoch in sorted({rebuilt.seal.epoch for rebuilt in checked}):
        check_choice([rebuilt for rebuilt in checked if rebuilt.seal.epoch == epoch], choice, choice.get("round", 0))
    rows = [[r.seal.index, seq, record.hex()] for r in checked for seq, _, record in r.rows]
    return {"seals": len(checked), "rows": rows}


def explain_run(case, given):
    """Compares the parts of a run, which may have failed, with their explained seals."""
    reader, rebuilt = reader_of(case, given), []
    for kind, value, _ in items(unhex(given["bytes"])):
        if kind == "schema":
            reader.schema = schema_decode(value)
        elif kind == "open":
            reader.open(*value)
        elif kind == "part":
            rebuilt.append(reader.part(value))
    for at, part in enumerate(rebuilt):
        if at >= len(given["explained"]):
            raise Refused("ExplanationWithheld")
        ((_, (seal, digests), _),) = items(unhex(given["explained"][at]))
        explain_check(reader.roster, part, seal, digests)
    return {}


def star_seal(_case, given):
    schema, salt, levels = schema_decode(unhex(given["schema"])), unhex(given["salt"]), given["levels"]
    blocks = [[] for _ in range(levels)]
    for seq, record in enumerate(given["records"]):
        blocks[level_of(salt, seq, levels)].append(unhex(record))
    counters = [len(block) for block in blocks]
    device, index = unhex(given["device"]), given["index"]
    digests = [
        block_digest(device, index, level, schema.join(block)) if block else NULL for level, block in enumerate(blocks)
    ]
    joined = [schema.join(block).hex() for block in blocks]
    return {
        "counters": counters,
        "blocks": joined,
        "digests": [digest.hex() for digest in digests],
        "root": star_chain(counters, digests).hex(),
    }


def leaves_of(given):
    return [leaf_hash(unhex(record)) for record in given["records"]]


def tree_multiproof(_case, given):
    leaves, selected = leaves_of(given), given["selected"]
    digests = multiproof(leaves, selected)
    root = multiproof_root(len(leaves), [(seq, leaves[seq]) for seq in selected], digests)
    assert root == tree_root(leaves) and len(digests) == multiproof_count(len(leaves), selected)
    return {"digests": [digest.hex() for digest in digests], "root": root.hex()}


def cose_object(_case, given):
    object = signed(unhex(given["bytes"]), given["typ"])
    return {"alg": object.alg, "vds": object.vds, "digest": object.digest.hex()}


def cose_verify(_case, given):
    object = signed(unhex(given["bytes"]), given["typ"])
    object.verify(Key(given["alg"], unhex(given["key"])))
    return {"digest": object.digest.hex()}


def cose_signature(_case, given):
    Key(given["alg"], unhex(given["key"])).verify(unhex(given["message"]), unhex(given["signature"]))
    return {}


def certificate_vector(case, given):
    certificate = certificate_open(unhex(given["bytes"]), operator_of(case))
    return {
        "group": certificate.group.hex(),
        "device": certificate.device.hex(),
        "serial": certificate.serial,
        "alg": certificate.alg,
        "key": certificate.key_bytes.hex(),
        "first_index": certificate.first_index,
        "digest": certificate.digest.hex(),
    }


def roster_vector(case, given):
    roster = roster_open(unhex(given["bytes"]), operator_of(case))
    return {
        "digest": roster.digest.hex(),
        "group_name": roster.group_name,
        "group": roster.group.hex(),
        "version": roster.version,
        "periods": [
            {
                "version": period.version,
                "first_epoch": period.first_epoch,
                "start_ms": period.start_ms if period.start_ms <= M64 else None,
                "epoch_ms": period.epoch_ms,
                "levels": period.levels,
                "budget": period.budget,
                "coordinator": period.coordinator and period.coordinator.digest.hex(),
            }
            for period in roster.periods
        ],
        "last_epoch": roster.last_epoch,
        "querier": roster.querier and roster.querier.digest.hex(),
        "devices": [
            [
                device.id.hex(),
                device.name,
                device.since,
                [[term.certificate.first_index, term.first_epoch, term.end_index, term.end_epoch] for term in device.terms],
            ]
            for device in roster.devices
        ],
    }


def succession_vector(case, given):
    before, later = (roster_open(unhex(given[name]), operator_of(case)) for name in ("before", "later"))
    check_succession(later, before)
    return {"version": later.version}


def schema_vector(_case, given):
    schema = schema_decode(unhex(given["bytes"]))
    fields = [[name, unit, TYPES[kind], divisor, str(offset)] for name, unit, kind, divisor, offset in schema.fields]
    return {"digest": schema.digest.hex(), "record_size": schema.record_size, "fields": fields}


def seal_vector(_case, given):
    object, seal = seal_decode(unhex(given["bytes"]))
    assert seal.digest == object.digest, "what was decoded encodes to what was read"
    return {"digest": seal.digest.hex(), "root": seal.root.hex(), "scheme": seal.scheme, "counters": seal.counters}


def urgent_vector(case, given):
    event = urgent_open(unhex(given["bytes"]), roster_of(case))
    return {"device": event.device.hex(), "index": event.index, "seq": event.seq, "record": event.record.hex()}


def at_most_vector(_case, given):
    levels = len(given["parts"][0]["counters"])
    seals = [
        Seal({"counters": part["counters"], "own_round": part["own_round"], "lost": part["lost"]}, NULL, "ed25519")
        for part in given["parts"]
    ]
    assert all(len(part["counters"]) == levels for part in given["parts"])
    return {"mask": at_most_mask(seals, given["m"])}


# ---------------------------------------------------------------- time.md


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
    last = (1 << 64) - 1
    return min(time + a - -(-a // 2048), last), min(time + b + -(-b // 2048), last)


def time_open_vector(_case, given):
    keys = [given[name] and Key(given[name]["alg"], unhex(given[name]["key"])) for name in ("operator", "querier")]
    to = unhex(given["group"]), unhex(given["device"]), unhex(given["challenge"])
    return {"time": str(time_open(unhex(given["bytes"]), *to, keys))}


def time_range_vector(_case, given):
    earliest, latest = time_range(*(int(given[name]) for name in ("time", "sent", "received", "now")))
    return {"earliest": str(earliest), "latest": str(latest)}


def announcement_vector(case, given):
    epoch, announced = announcement_open(unhex(given["bytes"]), roster_of(case))
    return {"epoch": epoch, "round": announced}


def manifest_vector(case, given):
    manifest = manifest_open(unhex(given["bytes"]), roster_of(case))
    return {
        "digest": manifest.digest.hex(),
        "roster": manifest.roster.hex(),
        "epoch": manifest.epoch,
        "round": manifest.round,
        "devices": [[device.hex(), [seal.hex() for seal in seals]] for device, seals in manifest.devices],
    }


def bundle_vector(case, given):
    reader, rounds, parts = reader_of(case, given), {}, []
    for kind, value in reader.read(unhex(given["bytes"])):
        if kind == "manifest":
            rounds.setdefault(value.epoch, []).append(value.round)
        elif kind == "part":
            if not is_whole(value, rounds, reader.roster):
                raise Refused("NotWhole")
            seal, lowest = value.seal, whole_from(value)
            parts.append({"index": seal.index, "epoch": seal.epoch, "from": lowest, "events": len(value.rows)})
    if not parts:
        raise Refused("NotWhole")
    return {"parts": parts}


def show_answer(checked, manifests):
    devices = [
        {
            "device": one.device.hex(),
            "standing": one.standing,
            "from": one.since,
            "seals": one.seals,
            "late": one.late,
            "rows": one.rows,
        }
        for one in checked
    ]
    return {"devices": devices, "rounds": [[epoch, manifests[epoch].round] for epoch in sorted(manifests)]}


def answer_vector(case, given):
    return show_answer(*check_answer(reader_of(case, given), unhex(given["bytes"]), query_check(given["query"])))


def proof_vector(case, given):
    return show_answer(*check_proof(reader_of(case, given), unhex(given["bytes"])))


def audit_vector(case, given):
    return {"epochs": audit(reader_of(case, given), unhex(given["bytes"]), given["since"], given["until"])}


def follow_vector(_case, given):
    followed, results = Followed(*given["frames"][0][:2]), []
    for frame in given["frames"]:
        what, first = followed.follow(*frame)
        results.append([what, first, followed.index, followed.epoch, followed.next, followed.round])
    return {"heard": results}


def offers_vector(_case, given):
    coordinator, after = Coordinator(given["levels"], given["budget"]), []
    for step, *arguments in given["steps"]:
        became = {"offer": coordinator.offer, "withdraw": coordinator.withdraw, "settle": coordinator.settle}[step](*arguments)
        after.append([became, coordinator.round, coordinator.kept])
    return {"after": after, "kept": coordinator.counts}


def encrypt_vector(_case, given):
    master, group, device = unhex(given["master"]), unhex(given["group"]), unhex(given["device"])
    query, slot, epoch = unhex(given["query"]), given["slot"], given["epoch"]
    if int(given["value"]) >= (1 << 96) - 1:
        raise Refused("ValueTooLarge")
    secrets = source_secret(master, group, device), key_group_secret(master, group, given["key_group"])
    key, share = source_key(secrets[0], query, slot, epoch)
    psr = (group_factor(secrets[1], query, slot, epoch) * (int(given["value"]) * SHARE + share) + key) % P
    return {"device": secrets[0].hex(), "key_group": secrets[1].hex(), "psr": be(psr, 32).hex()}


def open_vector(_case, given):
    master, group = unhex(given["master"]), unhex(given["group"])
    query, slot, epoch = unhex(given["query"]), given["slot"], given["epoch"]
    total = sum(psr_read(unhex(record)) for record in given["psrs"]) % P
    keys = [
        source_key(source_secret(master, group, unhex(device)), query, slot, epoch) for device in given["participants"]
    ]
    factor = group_factor(key_group_secret(master, group, given["key_group"]), query, slot, epoch)
    return {"sum": str(sum_open(total, factor, keys, int(given["vmax"])))}


def of_tesla(given):
    return unhex(given["network"]), unhex(given["sender"]), given["chain"]


def tesla_parameters_vector(_case, given):
    found = tesla_parameters(unhex(given["bytes"]), *of_tesla(given))
    shown = {name: getattr(found, name) for name in ("start", "interval", "delay", "last", "committed")}
    return shown | {"key": found.key.hex(), "reference": found.reference.hex()}


def tesla_send_vector(_case, given):
    tesla = Tesla(*of_tesla(given), *(given[name] for name in ("start", "interval", "delay", "last")))
    says = [(now, optional(message, unhex)) for now, message in given["says"]]
    parameters, frames = tesla_send(tesla, unhex(given["secret"]), says)
    return {"parameters": parameters.hex(), "said": [optional(frame, bytes.hex) for frame in frames]}


def tesla_receive_vector(_case, given):
    receiver = TeslaReceiver(tesla_parameters(unhex(given["parameters"]), *of_tesla(given)), given["offset"], given["steps"], given["budget"])
    results = []
    for now, frame in given["heard"]:
        try:
            messages = receiver.receive(now, unhex(frame))
            results.append(["taken", [[interval, message.hex()] for interval, message in messages]])
        except Refused as refused:
            results.append([refused.name, []])
    return {"heard": results, "committed": receiver.tesla.committed}


def participation_vector(_case, given):
    runs = participation_decode(unhex(given["bytes"]), given["sources"])
    return {"runs": runs, "count": sum(end - start for start, end in runs)}


def of_child(given):
    return unhex(given["frame"]), unhex(given["hub_secret"]), unhex(given["group"]), unhex(given["child"])


def parse_vector(_case, given):
    plan = QueryText(given["text"], schema_decode(unhex(given["schema"]))).plan()
    assert plan_decode(plan.encode()) == plan, "what a text gives is a plan"
    return {"plan": plan.encode().hex(), "text": plan.text}


def plan_vector(_case, given):
    plan, sources = plan_decode(unhex(given["bytes"])), given["sources"]
    if any(sources * (vmax + 1) >= 1 << 96 for _, _, vmax, _ in plan.slots()):
        raise Refused("Overflow")
    slots = [
        [kind, None if at is None else plan.columns[at][0], str(vmax), shift] for kind, at, vmax, shift in plan.slots()
    ]
    return {"text": plan.text, "epoch_ms": plan.epoch_ms, "slots": slots}


def contribution_vector(_case, given):
    plan, schema = plan_decode(unhex(given["plan"])), schema_decode(unhex(given["schema"]))
    record = None if given["record"] is None else unhex(given["record"])
    return {"values": [str(value) for value in plan.contribution(schema, record)]}


def result_vector(_case, given):
    plan = plan_decode(unhex(given["plan"]))
    return {"results": plan.answer([int(total) for total in given["totals"]], given["participants"])}


def shared_keys(given):
    return unhex(given["network"]), [Key(base["alg"], unhex(base["key"])) for base in given["bases"]]


def opened_by(given):
    return unhex(given["network"]), unhex(given["sender"]), Key(given["alg"], unhex(given["key"]))


def ids_vector(_case, given):
    key = Key(given["alg"], unhex(given["key"]))
    return {"sender": sender_named(given["sender"]).hex(), "key": key_id(key).hex(), "network": network_of(key).hex()}


def request_vector(_case, given):
    sender, key = sender_request(unhex(given["bytes"]))
    return {"sender": sender.hex(), "alg": key.alg, "key": key.raw.hex()}


def sender_certificate_vector(_case, given):
    found = sender_certificate(unhex(given["bytes"]), *shared_keys(given))
    found.check(given["now"], given["minimum"])
    return {
        "base": found.base,
        "serial": found.serial,
        "sender": found.sender.hex(),
        "alg": found.key.alg,
        "key": found.key.raw.hex(),
        "not_before": found.not_before,
        "not_after": found.not_after,
    }


def revocation_vector(_case, given):
    base, minimum = revocation(unhex(given["bytes"]), *shared_keys(given))
    return {"base": base, "minimum": minimum}


def chain_vector(_case, given):
    messages = [unhex(message) for message in given["messages"]]
    ids = [unhex(given[name]) for name in ("network", "sender", "key")]
    chain = Chain(*ids, given["number"], len(messages), given["per_block"], 0, 0, given["label"])
    leaves = chain_of(chain, messages)
    return {
        "reference": chain.reference.hex(),
        "longest": chain.longest,
        "leaves": [leaf.hex() for leaf in leaves],
        "first": chain.first.hex(),
        "tags": chain.tags.hex(),
    }


def head_vector(_case, given):
    head = chain_head(unhex(given["bytes"]), *opened_by(given))
    return {
        "reference": head.reference.hex(),
        "number": head.number,
        "messages": head.messages,
        "per_block": head.per_block,
        "longest": head.longest,
        "kind": head.kind,
        "label": head.label,
        "not_before": head.not_before,
        "not_after": head.not_after,
        "previous": head.previous,
        "first": head.first.hex(),
    }


def timely_vector(_case, given):
    chain_head(unhex(given["bytes"]), *opened_by(given)).timely(given["now"], given["offset"])
    return {}


def take_vector(_case, given):
    hearing, taken = ChainReceiver(chain_head(unhex(given["bytes"]), *opened_by(given))), []
    for block, index, leaf in given["leaves"]:
        try:
            taken.append(hearing.take(block, index, unhex(leaf)))
        except Refused as refused:
            taken.append(refused.name)
    return {"taken": taken, "block": hearing.block, "missing": sum(1 << index for index in hearing.missing)}


def broadcast_frame_vector(_case, given):
    read = broadcast_frame(unhex(given["bytes"]))
    return {name: value.hex() if type(value) is bytes else value for name, value in read.items()}


def single_vector(_case, given):
    head, message = chain_of_one(unhex(given["bytes"]), *opened_by(given))
    read = {"number": head.number, "kind": head.kind, "label": head.label}
    return read | {"message": message.hex(), "digest": head.first.hex()}


def evidence_vector(_case, given):
    certificate, hearing, proven = broadcast_evidence(unhex(given["bytes"]), *shared_keys(given))
    return {
        "sender": certificate and certificate.sender.hex(),
        "proven": proven,
        "messages": hearing and hearing.chain.messages,
    }


OPERATIONS = {
    "cbor.item": lambda _, given: decode(unhex(given["bytes"])) and {} or {},
    "cose.object": cose_object,
    "cose.verify": cose_verify,
    "cose.key": lambda _, given: Key(given["alg"], unhex(given["key"])) and {},
    "cose.signature": cose_signature,
    "cose.seal": seal_vector,
    "certificate.open": certificate_vector,
    "roster.open": roster_vector,
    "roster.succeed": succession_vector,
    "schema.open": schema_vector,
    "schema.record": lambda _, given: {
        "values": [show_value(v) for v in schema_decode(unhex(given["schema"])).values(unhex(given["record"]))]
    },
    "level.level": lambda _, given: {
        "levels": [level_of(unhex(given["salt"]), seq, given["levels"]) for seq in given["seqs"]]
    },
    "level.counters": lambda _, given: {
        "counters": [
            levels_of(unhex(given["salt"]), given["levels"], given["n"]).count(level) for level in range(given["levels"])
        ]
    },
    "level.salt": lambda _, given: {"salt": salt_of(unhex(given["key"]), unhex(given["device"]), given["index"]).hex()},
    "level.ids": lambda _, given: {
        "group": group_id(given["group"]).hex(),
        "device": device_id(given["group"], given["device"]).hex(),
    },
    "star.seal": star_seal,
    "tree.root": lambda _, given: {"root": tree_root(leaves_of(given)).hex()},
    "tree.path": lambda _, given: {"path": [d.hex() for d in inclusion_path(leaves_of(given), given["seq"])]},
    "tree.multiproof": tree_multiproof,
    "tree.path_root": lambda _, given: {
        "root": path_root(unhex(given["leaf"]), given["seq"], given["size"], [unhex(d) for d in given["path"]]).hex()
    },
    "tree.receipt": lambda _, given: {
        "root": receipt_verify(
            unhex(given["bytes"]), unhex(given["record"]), Key(given["alg"], unhex(given["key"]))
        ).hex()
    },
    "stream.read": stream_read,
    "stream.explain": explain_run,
    "stream.bundle": bundle_vector,
    "urgent.open": urgent_vector,
    "word.announcement": announcement_vector,
    "word.manifest": manifest_vector,
    "answer.open": answer_vector,
    "proof.open": proof_vector,
    "audit.range": audit_vector,
    "link.secret": lambda _, given: {
        "secret": link_secret(unhex(given["group_secret"]), unhex(given["group"]), unhex(given["device"])).hex()
    },
    "link.up": lambda _, given: frame_up(unhex(given["frame"]), unhex(given["group_secret"]), unhex(given["group"])),
    "link.down": lambda _, given: frame_down(
        unhex(given["frame"]), unhex(given["group_secret"]), unhex(given["group"]), unhex(given["device"])
    ),
    "link.refusal": lambda _, given: frame_refusal(
        unhex(given["frame"]), unhex(given["group_secret"]), unhex(given["group"]), unhex(given["device"])
    ),
    "link.follow": follow_vector,
    "coordinator.offers": offers_vector,
    "cast.ids": ids_vector,
    "cast.request": request_vector,
    "cast.certificate": sender_certificate_vector,
    "cast.revocation": revocation_vector,
    "cast.chain": chain_vector,
    "cast.head": head_vector,
    "cast.timely": timely_vector,
    "cast.take": take_vector,
    "cast.frame": broadcast_frame_vector,
    "cast.single": single_vector,
    "cast.evidence": evidence_vector,
    "query.parse": parse_vector,
    "query.plan": plan_vector,
    "query.contribution": contribution_vector,
    "query.answer": result_vector,
    "sum.encrypt": encrypt_vector,
    "sum.open": open_vector,
    "sum.participants": lambda _, given: {"bytes": participation_encode(given["runs"]).hex()},
    "sum.participation": participation_vector,
    "sum.up": lambda _, given: child_frame(*of_child(given)),
    "sum.explain": lambda _, given: explain_frame(*of_child(given)),
    "sum.agenda": lambda _, given: schedule_open(
        unhex(given["bytes"]), unhex(given["group"]), unhex(given["roster"]), Key(given["alg"], unhex(given["key"]))
    ),
    "time.challenge": lambda _, given: {
        "challenge": time_challenge(unhex(given["secret"]), given["starts"], given["count"]).hex()
    },
    "time.open": time_open_vector,
    "time.range": time_range_vector,
    "tesla.parameters": tesla_parameters_vector,
    "tesla.say": tesla_send_vector,
    "tesla.hear": tesla_receive_vector,
    "choice.rate": lambda _, given: {"mask": rate_mask(Fraction(given["rate"]), given["levels"])},
    "choice.at_most": at_most_vector,
    "choice.answer": choice_answer,
    "permutation.choose": lambda _, given: {
        "positions": permutation(
            unhex(given["seed"]), unhex(given["device"]), given["epoch"], int(given["total"]), given["m"]
        )
    },
}


def verdict(case, op, given):
    """The output of an operation, or the name of its error."""
    try:
        return OPERATIONS[op](case, given), None
    except Refused as refused:
        return None, refused.name


def mutated(case):
    """The mutations of a file: for each base, every byte changed by each flip, then every truncation."""
    for mutation in case.get("mutations", []):
        base = bytearray(unhex(mutation["input"][mutation["field"]]))
        names = iter([name for name, times in mutation["verdicts"] for _ in range(times)])
        for flip in mutation["flips"]:
            for at in range(len(base)):
                base[at] ^= flip
                yield mutation, f"{mutation['name']}: byte {at} ^ {flip:#04x}", bytes(base), next(names)
                base[at] ^= flip
        for length in range(len(base)):
            yield mutation, f"{mutation['name']}: cut at {length}", bytes(base[:length]), next(names)
        assert next(names, None) is None


def run_vectors(root):
    """Replays every vector and prints disagreements. Returns the exit code."""
    known_answers()
    names = set(re.findall(r"`([A-Z][A-Za-z]+)`", (pathlib.Path(__file__).parent / "errors.md").read_text()))
    passed = failed = 0
    skipped = {}
    files = sorted(pathlib.Path(root).rglob("*.json"))
    if not files:
        print(f"no vectors under {root}", file=sys.stderr)
        return 2

    def check(path, name, expected, case, op, given):
        nonlocal passed, failed
        try:
            found = verdict(case, op, given)
        except Skipped as reason:
            skipped.setdefault(str(reason), []).append(name)
            return
        if found == expected and (expected[1] is None or expected[1] in names):
            passed += 1
            return
        failed += 1
        why = f"expected {expected[1] or expected[0]}, found {found[1] or found[0]}"
        print(f"{path.parent.name}/{path.name}: {name}: {why if found != expected else 'the name is not in errors.md'}")

    for path in files:
        case = json.loads(path.read_text())
        for entry in case["valid"]:
            check(path, entry["name"], (entry["output"], None), case, entry["op"], entry["input"])
        for entry in case["invalid"]:
            check(path, entry["name"], (None, entry["error"]), case, entry["op"], entry["input"])
        for mutation, name, changed, error in mutated(case):
            given = {**mutation["input"], mutation["field"]: changed.hex()}
            expected = (mutation["kept"], None) if error == "kept" else (None, error)
            check(path, name, expected, case, mutation["op"], given)
    for reason, which in skipped.items():
        print(f"skipped {len(which)}: {reason} ({', '.join(which)})")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


# ---------------------------------------------------------------- files


def run_bundle(files, roster_path, operator_path):
    """Verifies streams. Prints a line for each seal, and the verdict on each file. Returns the exit code."""
    try:
        operator = key_from_pem(pathlib.Path(operator_path).read_bytes())
        roster = roster_open(pathlib.Path(roster_path).read_bytes(), operator)
    except (Refused, ValueError, OSError) as error:
        print(f"{roster_path}: {error}", file=sys.stderr)
        return 1
    worst = 0
    for file in files:
        try:
            data = pathlib.Path(file).read_bytes()
            rows = run_proof(file, roster, data) if data[:2] == b"\x83\x05" else run_stream(file, roster, data)
            print(f"{file}: verified, {rows} events")
        except Refused as refused:
            print(f"{file}: refused, {refused}")
            worst = 1
        except Skipped as reason:
            print(f"{file}: not checked: {reason}")
            worst = 1
        except OSError as error:
            print(f"{file}: {error.strerror}", file=sys.stderr)
            worst = 2
    return worst


def run_proof(file, roster, data):
    """Verifies a proof: the whole answer to its query. Returns the number of events."""
    checked, _ = check_proof(Reader(roster), data)
    for one in checked:
        device = roster.device(one.device)
        name, since = device.name if device else one.device.hex(), "" if one.since is None else f" from epoch {one.since} on"
        print(f"{file}: {name}: {one.seals} seals, {len(one.rows)} events, {one.standing}{since}")
    return sum(len(one.rows) for one in checked)


def run_stream(file, roster, data):
    """Verifies a file of bundles, each of which must be whole. Returns the number of events."""
    rows, seals, rounds = 0, 0, {}
    for kind, value in Reader(roster).read(data):
        if kind == "part":
            if not is_whole(value, rounds, roster):
                raise Refused("NotWhole", f"index {value.seal.index}")
            rows, seals = rows + len(value.rows), seals + 1
            seal, name = value.seal, roster.device(value.seal.device).name
            scheme = "tree" if seal.scheme else "star"
            count = f"{len(value.rows)} of {sum(seal.counters)} events"
            print(f"{file}: {name} index {seal.index} epoch {seal.epoch} {scheme}: {count}")
        elif kind == "manifest":
            rounds.setdefault(value.epoch, []).append(value.round)
        elif kind == "problem":
            print(f"{file}: the server reported {value[0]}: {value[1]}")
    if seals == 0:
        raise Refused("NotWhole", "the file has no seal")
    return rows


def merkle_probes(root):
    """The inclusion tests in a directory or archive, each with its name and content."""
    if root.is_dir():
        return [(str(path), path.read_bytes()) for path in sorted(root.rglob("inclusion/**/*.json"))]
    with tarfile.open(root) as archive:
        members = [m for m in archive if "/inclusion/" in m.name and m.name.endswith(".json")]
        return [(member.name, archive.extractfile(member).read()) for member in members]


def run_merkle(root):
    """Checks the RFC 9162 inclusion tests that transparency-dev publishes. Returns the exit code."""
    if root is None:
        data = os.environ.get("MOTESEAL_DATA") or pathlib.Path(__file__).parent.parent.parent / "shared" / "data"
        root = pathlib.Path(data) / "vectors_merkle" / "transparency_dev_merkle_testdata.tar.xz"
        if not root.exists():
            print("SKIPPED: RFC 9162 inclusion tests (vectors_merkle); set MOTESEAL_DATA to the folder with the data")
            return 1 if os.environ.get("MOTESEAL_DATA_REQUIRED") == "1" else 0
    passed = failed = 0
    for path, content in merkle_probes(pathlib.Path(root)):
        probe = json.loads(content)
        leaf, expected = base64.b64decode(probe["leafHash"] or ""), base64.b64decode(probe["root"] or "")
        path_digests = [base64.b64decode(digest) for digest in probe["proof"] or []]
        try:
            digests = [leaf, expected, *path_digests]
            good = all(len(digest) == 32 for digest in digests)
            good = good and path_root(leaf, probe["leafIdx"], probe["treeSize"], path_digests) == expected
        except Refused:
            good = False
        if good != probe["wantErr"]:
            passed += 1
        else:
            failed += 1
            print(f"{path}: {probe['desc']}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", metavar="DIR", help="replay the test vectors under DIR")
    commands = parser.add_subparsers(dest="command")
    bundle = commands.add_parser("bundle", help="verify bundles and proofs")
    bundle.add_argument("files", nargs="+", metavar="FILE")
    bundle.add_argument("--roster", required=True)
    bundle.add_argument("--operator", required=True, help="the operator's public key, PEM")
    merkle = commands.add_parser("merkle", help="check the tree against independent test data for RFC 9162")
    merkle.add_argument("dir", nargs="?", help="a directory or archive; default: the archive below MOTESEAL_DATA")
    arguments = parser.parse_args()
    if arguments.vectors:
        return run_vectors(arguments.vectors)
    if arguments.command == "bundle":
        return run_bundle(arguments.files, arguments.roster, arguments.operator)
    if arguments.command == "merkle":
        return run_merkle(arguments.dir)
    parser.print_usage(sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
