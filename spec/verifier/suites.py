"""Signature suites (objects.md, section 2.2)."""

from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from .encoding import Refused, Skipped

try:
    from cryptography.hazmat.primitives.asymmetric import mldsa
except ImportError:
    mldsa = None


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
