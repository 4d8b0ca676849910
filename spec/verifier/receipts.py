"""Explanations of refusals (answers.md, section 8) and receipts (objects.md, section 8)."""

import cbor2

from .encoding import Refused
from .seal import FIELDS, seal_decode
from .stream import Reader, chunks
from .suites import ALGORITHMS
from .trees import CHAIN_START, NULL, leaf_hash, multiproof, path_root, star_chain, tree_root


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
        evidence = Reader.star_evidence(explained, part.select, given, start, above)
        # The digests of hidden column groups follow: they have led to the digests of the blocks.
        if part.digests[: len(evidence)] != evidence:
            raise Refused("EvidenceMismatch")
        return
    if not digests:
        if rebuilt.seal.root != explained.root:
            raise Refused("PathMismatch")
        return
    if len(digests) != 32 * part.n or explained.groups:
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
