"""Query schedules, frames and participation of private sums (sums.md, sections 3 to 5)."""

import re

from .broadcast import chain_of_one, sender_named
from .encoding import Refused, array, byte_string, decode, out_of_range, text, uint, version_one, wrong_type
from .hashes import H, be
from .link import frame_item, link_secret
from .sums import psr_read


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
    out_of_range(any(first >= until or len(plan) > 1840 for _, first, until, plan in posed))
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
        kind = {(4, 5): "share", (5, 7): "children", (6, 6): "refusal"}.get((uint(fields[0]) if fields else None, len(fields)))
        wrong_type(kind is None)
        read = {"frame": kind, "query": byte_string(fields[1], 4).hex(), "epoch": uint(fields[2])}
        if kind == "refusal":
            reason = text(fields[4])
            wrong_type(re.fullmatch("[0-9A-Za-z]{1,40}", reason) is None)
            return read | {"position": uint(fields[3], 32), "reason": reason, "tag": byte_string(fields[5], 8).hex()}
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
