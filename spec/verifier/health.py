"""Records of health, the rows of their streams, and their frames (health.md)."""

from .encoding import Refused, array, byte_string, decode, out_of_range, sint, uint, version_one, wrong_type
from .hashes import be
from .link import frame_item, link_secret
from .schema import TYPES, schema_decode

# Section 1: the values of each group. A star marks a gauge.
GROUPS = {
    "dev": "temperature* battery_mv* battery* clock_offset*",
    "link": "too_long too_short bad_sync bad_crc sent received collisions retransmitted rssi* lqi*",
    "ip": "received sent forwarded dropped",
    "icmp": "received dropped sent",
    "udp": "received sent dropped bad_checksum",
    "tcp": "received sent dropped reset ack_errors bad_checksum retransmitted syn_drops syn_resets",
    "nd6": "sent received dropped",
    "queue": "waiting* urgent_waiting* readings given_up refused acknowledged*",
}
TABLE = [[(name.rstrip("*"), name.endswith("*")) for name in names.split()] for names in GROUPS.values()]
UNITS = {
    "dev.temperature": "Cel", "dev.battery_mv": "mV", "dev.battery": "%", "dev.clock_offset": "ms", "link.rssi": "dBm",
    "queue.acknowledged": "s",
}


def record_fields(fields):
    wrong_type(type(fields) is not list or len(fields) < 3)
    version_one(fields[0])
    boot, uptime = uint(fields[1], 32), uint(fields[2], 32)
    groups = [[None] * len(values) for values in TABLE]
    for place, group in enumerate(fields[3:]):
        if group is None:
            continue
        for at, value in enumerate(array(group)):
            if value is None:
                continue
            sint(value)
            if place < len(TABLE) and at < len(TABLE[place]):
                is_gauge = TABLE[place][at][1]
                out_of_range(not (-(1 << 31) <= value < 1 << 31 if is_gauge else 0 <= value < 1 << 32))
                groups[place][at] = value
        if not group or group[-1] is None:
            raise Refused("NonCanonical", "an unknown value at the end of a group")
    if fields[-1] is None:
        raise Refused("NonCanonical", "an unknown group at the end")
    return {"boot": boot, "uptime_s": uptime, "groups": groups}


def health_record(data):
    """Section 1: reads a record."""
    out_of_range(len(data) > 512)
    return record_fields(decode(data))


def columns(is_relayed):
    """Section 6: id, name, unit, type, divisor, null, relayed."""
    yield 1, "at", "", "timestamp", 1, False, False
    if is_relayed:
        yield 2, "node", "", "text", 1, False, False
    yield 3, "boot", "", "u32", 1, False, is_relayed
    yield 4, "uptime_s", "s", "u32", 1, False, is_relayed
    for number, (group, values) in enumerate(zip(GROUPS, TABLE), 1):
        for place, (value, is_gauge) in enumerate(values):
            name, kind = f"{group}.{value}", "i32" if is_gauge else "u32"
            divisor = 10 if name == "dev.temperature" else 1
            yield 16 * number + place, name, UNITS.get(name, ""), kind, divisor, True, is_relayed


def health_row(schema, record, at, node):
    """Section 6: the row of a record."""
    schema, health = schema_decode(schema), health_record(record)
    is_relayed = schema.field("node") is not None
    found = [
        (field.id, field.name, field.unit, TYPES[field.kind], field.divisor, field.nullable, field.relayed)
        for field in schema.fields
    ]
    if found != list(columns(is_relayed)) or (is_relayed and schema.field("node").longest != 64):
        raise Refused("OtherSchema")
    row = be(at, 8) + be(health["boot"], 4) + be(health["uptime_s"], 4)
    for values, group in zip(TABLE, health["groups"]):
        for (_, is_gauge), value in zip(values, group):
            null = -(1 << 31) if is_gauge else (1 << 32) - 1
            row += (null if value is None else value).to_bytes(4, "big", signed=is_gauge)
    # The texts follow the other cells.
    row += be(len(node.encode()), 1) + node.encode() if is_relayed else b""
    return {"row": row.hex()}


def frame_health(frame, group_secret, group):
    """Section 5: opens a report, as a coordinator does."""
    if len(frame) < 11 or frame[0] >> 5 != 4 or frame[0] & 31 > 23 or frame[1] > 23 or frame[2] != 0x48:
        raise Refused("Malformed")
    device = bytes(frame[3:11])
    try:
        fields = array(frame_item(frame, link_secret(group_secret, group, device), b"up"), 5)
        wrong_type(uint(fields[0]) != 8)
        session, interval = uint(fields[2]), uint(fields[3], 32)
        return {
            "device": byte_string(fields[1], 8).hex(),
            "session": session,
            "interval": interval,
            "health": record_fields(fields[4]),
        }
    except Refused as refused:
        raise refused if refused.name == "NotAuthentic" else Refused("Malformed", str(refused)) from None


def frame_health_session(frame, group_secret, group, device):
    """Section 5: opens the offer of a session, as the device does."""
    try:
        fields = array(frame_item(frame, link_secret(group_secret, group, device), b"down"), 6)
        kind, to, session, time = uint(fields[0]), byte_string(fields[1], 8), uint(fields[2]), uint(fields[3])
        boot, uptime = uint(fields[4], 32), uint(fields[5], 32)
        out_of_range(kind != 20 or to != device or session == 0)
        return {"session": session, "time": time, "boot": boot, "uptime_s": uptime}
    except Refused as refused:
        raise refused if refused.name == "NotAuthentic" else Refused("Malformed", str(refused)) from None
