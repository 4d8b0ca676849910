"""The digests of stars and trees (objects.md, section 6)."""

from .encoding import Refused
from .hashes import H, be


NULL = bytes(32)
CHAIN_START = b"moteseal/1/star/root".ljust(32, b"\0")


def block_digest(device, index, level, block):
    header = b"moteseal/1/star".ljust(32, b"\0") + device + be(index, 4) + be(level, 4)
    return H(header.ljust(64, b"\0"), block)


def group_digest(device, index, level, group, cells):
    """D_ig (groups.md, section 3)."""
    header = b"moteseal/2/star/group".ljust(32, b"\0") + device + be(index, 4) + be(level, 4) + be(group, 4)
    return H(header.ljust(128, b"\0"), cells)


def level_digest(digests):
    """D_i of the digests of all groups."""
    return H(b"moteseal/2/star/level".ljust(32, b"\0"), *digests)


def groups_root(roots):
    """The root of a tree with column groups (groups.md, section 4)."""
    return H(b"moteseal/2/tree/groups".ljust(32, b"\0"), *roots)


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
