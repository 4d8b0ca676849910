"""Signed objects (objects.md, section 2)."""

from dataclasses import dataclass

import cbor2

from .encoding import Map, Refused, Tag, array, byte_string, decode, sint, text, uint, wrong_type
from .hashes import H
from .suites import ALGORITHMS


SEAL, EVENT = "moteseal-seal+cose", "moteseal-event+cose"
CERTIFICATE, ROSTER = "moteseal-cert+cose", "moteseal-roster+cose"
ROUND, MANIFEST = "moteseal-round+cose", "moteseal-manifest+cose"
TIME = "moteseal-time+cose"
POLICY = "moteseal-policy+cose"
GRANT = "moteseal-grant+cose"
SANITISED = "moteseal-sanitised+cose"
READING = "moteseal-reading+cose"


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
    content: int

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


def signed(data, typ, detached=None):
    """Steps 1 to 3. The payload of a signed reading is detached."""
    value = decode(data)
    wrong_type(type(value) is not Tag or value.number != 18)
    protected, unprotected, payload, signature = array(value.value, 4)
    byte_string(protected)
    wrong_type(type(unprotected) is not Map)
    if unprotected.pairs:
        raise Refused("UnexpectedHeader", "unprotected")
    if detached is None:
        byte_string(payload)
    else:
        wrong_type(payload is not None)
        payload = detached
    byte_string(signature)
    header = decode(protected)
    wrong_type(type(header) is not Map)
    alg = found_typ = statement = content = None
    vds = has_statement = False
    for label, entry in header.pairs:
        if type(label) is not int:
            raise Refused("UnexpectedHeader", str(label))
        if label == 1:
            alg = sint(entry)
        elif label == 2:
            raise Refused("UnknownCritical")
        elif label == 3 and typ == READING:
            content = uint(entry, 16)
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
    if has_statement != (typ in (SEAL, EVENT, READING)) or (vds and typ != SEAL) or (content is None) == (typ == READING):
        raise Refused("UnexpectedHeader")
    return Signed(protected, payload, signature, ALGORITHMS[alg], vds, statement, content)
