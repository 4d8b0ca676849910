"""Signed readings (objects.md, section 7.2)."""

import base64
import re
from dataclasses import dataclass
from decimal import Decimal

import cbor2

from .encoding import Map, Refused, Tag, array, byte_string, decode, out_of_range, uint, version_one, wrong_type
from .signed import READING, signed

MULTIPART, JSON, SENML_JSON, SENML_CBOR, COSE_SIGN1 = 62, 50, 110, 112, 18
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", re.ASCII)
NAME = re.compile(r"-?[A-Za-z0-9][-:./_A-Za-z0-9]*", re.ASCII)
PLAIN = re.compile(r"[!#-\[\]-~]*", re.ASCII)
TEXT = re.compile(r"[^\x00-\x1f\x7f-\x9f]*")
MEMBER = re.compile(r'"([!#-\[\]-~]*)":(?:"((?:[^"\\]|\\["\\])*)"|(true|false)|([-.0-9]+))', re.ASCII)
SIGNATURE = re.compile(rb'(.*),"signature":"([^"]*)"\}', re.DOTALL)
SECONDARY = set(
    "ms min h MHz kW kVA kvar Ah Wh kWh varh kvarh kVAh Wh/km KiB GB Mbit/s B/s MB/s mV mA dBm ug/m3 mm/h m/h ppm /100 /1000 hPa mm cm km km/h".split()
)


class Malformed(Exception):
    """The representation is not in its only encoding."""


def require(condition):
    if not condition:
        raise Malformed


def to_base64(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def from_base64(text):
    """Returns the bytes of the only spelling in base64url, or None."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars="-_", validate=True)
    except ValueError:
        return None
    return data if to_base64(data) == text else None


@dataclass
class Reading:
    device: bytes
    index: int
    epoch: int
    seq: int
    format: int
    ms: int
    values: list


# ---------------------------------------------------------------- numbers


def number(text):
    require(len(text) <= 400 and NUMBER.fullmatch(text))
    return text


def milliseconds(text):
    """Rule 10."""
    whole, _, fraction = text.partition(".")
    require(not text.startswith("-") and len(fraction) <= 3)
    ms = int(whole) * 1000 + int(fraction.ljust(3, "0"))
    require(1 << 28 <= ms // 1000 and ms < 1 << 64)
    return ms


def seconds(ms):
    return f"{ms // 1000}.{ms % 1000:03}".rstrip("0").rstrip(".")


def to_cbor(text):
    """Rule 13: a number as CBOR."""
    whole, _, fraction = text.partition(".")
    mantissa, exponent = int(whole + fraction), -len(fraction)
    if not -(1 << 63) <= mantissa < 1 << 64:
        shortest = Decimal(repr(float(text)))
        require(shortest.is_finite())
        sign, digits, exponent = shortest.normalize().as_tuple()
        mantissa = int("".join(map(str, digits))) * (-1 if sign else 1)
    return cbor2.dumps(mantissa if exponent == 0 else cbor2.CBORTag(4, [exponent, mantissa]))


def from_cbor(item):
    exponent, mantissa = 0, item
    if type(item) is Tag:
        require(item.number == 4 and type(item.value) is list and len(item.value) == 2)
        exponent, mantissa = item.value
    require(type(exponent) is int and type(mantissa) is int)
    require(abs(exponent) <= 400 and -(1 << 63) <= mantissa < 1 << 64)
    sign, digits = "-" if mantissa < 0 else "", str(abs(mantissa))
    if exponent >= 0:
        return number(sign + digits + "0" * exponent)
    digits = digits.rjust(1 - exponent, "0")
    return number(f"{sign}{digits[:exponent]}.{digits[exponent:]}")


# ------------------------------------------------------------ representations: [name, unit, label, value], label v, vb, vs or vd


def base_name(device):
    return f"urn:moteseal:device:{device.hex()}:"


def has_secondary(values):
    return any(unit in SECONDARY for _, unit, _, _ in values)


def in_json(label, value):
    """Rule 11: a value as JSON. Numbers and booleans are kept as their texts."""
    return value if label in ("v", "vb") else '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


def write_json(ms, values):
    members = [f'"_time":{seconds(ms)}'] if ms is not None else []
    for name, _, label, value in values:
        members.append(f'"{name}":{in_json(label, value)}')
    return "{" + ",".join(members) + "}"


def write_senml_json(device, ms, values):
    start = ['"bver":26'] if has_secondary(values) else []
    start.append(f'"bn":"{base_name(device)}"')
    if ms is not None:
        start.append(f'"bt":{seconds(ms)}')
    records = []
    for name, unit, label, value in values:
        unit = [f'"u":"{unit}"'] if unit else []
        records.append(",".join(start + [f'"n":"{name}"'] + unit + [f'"{label}":{in_json(label, value)}']))
        start = []
    return "[" + ",".join("{" + record + "}" for record in records) + "]"


def write_senml_cbor(device, ms, values):
    start = [cbor2.dumps(-1) + cbor2.dumps(26)] if has_secondary(values) else []
    start.append(cbor2.dumps(-2) + cbor2.dumps(base_name(device)))
    if ms is not None:
        start.append(cbor2.dumps(-3) + to_cbor(seconds(ms)))
    out = [cbor2.dumps([0] * len(values))[: -len(values)]]
    for name, unit, label, value in values:
        entries = [b"\x00" + cbor2.dumps(name)] + ([b"\x01" + cbor2.dumps(unit)] if unit else [])
        if label == "v":
            entries.append(b"\x02" + to_cbor(value))
        elif label == "vs":
            entries.append(b"\x03" + cbor2.dumps(value))
        elif label == "vb":
            entries.append(b"\x04" + cbor2.dumps(value == "true"))
        else:
            entries.append(b"\x08" + cbor2.dumps(from_base64(value)))
        out += [bytes([0xA0 + len(entries + start)])] + entries + start
        start = []
    return b"".join(out)


def members(text, place):
    """Reads the members of the object at `place`. Returns them, as pairs of label and value, and the place after the object."""
    require(text[place : place + 1] == "{")
    found = {}
    while True:
        match = MEMBER.match(text, place + 1)
        require(match and match[1] not in found)
        if match[2] is not None:
            found[match[1]] = ("vs", re.sub(r"\\(.)", r"\1", match[2]))
        else:
            found[match[1]] = ("vb", match[3]) if match[3] else ("v", number(match[4]))
        place = match.end()
        if text[place : place + 1] != ",":
            require(text[place : place + 1] == "}")
            return found, place + 1


def read_json(text, _device):
    found, end = members(text, 0)
    require(end == len(text))
    time = found.pop("_time", None)
    require(time is None or time[0] == "v")
    ms = None if time is None else milliseconds(time[1])
    values = [(name, "", label, value) for name, (label, value) in found.items()]
    return ms, values, write_json(ms, values)


def read_senml_json(text, device):
    require(text[:1] == "[")
    place, ms, values = 1, None, []
    while True:
        found, place = members(text, place)
        if "bt" in found:
            require(found["bt"][0] == "v")
            ms = milliseconds(found["bt"][1])
        label = next((label for label in ("v", "vb", "vs", "vd") if label in found), None)
        require(label and "n" in found)
        kind, value = found[label]
        require(kind == {"vd": "vs"}.get(label, label) and (label != "vd" or from_base64(value) is not None))
        (kind, name), (of_unit, unit) = found["n"], found.get("u", ("vs", ""))
        require(kind == of_unit == "vs")
        values.append((name, unit, label, value))
        if text[place : place + 1] != ",":
            require(text[place:] == "]")
            break
        place += 1
    return ms, values, write_senml_json(device, ms, values)


def read_senml_cbor(data, device):
    try:
        records = decode(data)
    except Refused as error:
        raise Malformed from error
    require(type(records) is list and len(records) <= 128)
    ms, values = None, []
    for record in records:
        require(type(record) is Map)
        found = {label: value for label, value in record.pairs if type(label) is int}
        if -3 in found:
            ms = milliseconds(from_cbor(found[-3]))
        name, unit = found.get(0), found.get(1, "")
        require(type(name) is str and type(unit) is str)
        if 2 in found:
            values.append((name, unit, "v", from_cbor(found[2])))
        elif 3 in found:
            require(type(found[3]) is str)
            values.append((name, unit, "vs", found[3]))
        elif 4 in found:
            require(type(found[4]) is bool)
            values.append((name, unit, "vb", "true" if found[4] else "false"))
        else:
            require(type(found.get(8)) is bytes)
            values.append((name, unit, "vd", to_base64(found[8])))
    check(values)
    return ms, values, write_senml_cbor(device, ms, values)


def check(values):
    names = [name for name, _, _, _ in values]
    require(1 <= len(names) <= 128 and len(set(names)) == len(names))
    require(all(NAME.fullmatch(name) and name != "signature" for name in names))
    require(all(PLAIN.fullmatch(unit) for _, unit, _, _ in values))
    require(all(TEXT.fullmatch(value) for _, _, label, value in values if label == "vs"))


def read(format, representation, device):
    """Rules 6 to 14. Returns the time and the values."""
    if format == SENML_CBOR:
        ms, values, written = read_senml_cbor(representation, device)
    else:
        try:
            text = representation.decode()
        except UnicodeDecodeError as error:
            raise Malformed from error
        ms, values, written = (read_json if format == JSON else read_senml_json)(text, device)
        written = written.encode()
    check(values)
    require(written == representation)
    return ms, values


# ---------------------------------------------------------------- responses


def separate(format, data):
    """Rule 4. Returns the format, the representation and the object."""
    if format == JSON:
        match = SIGNATURE.fullmatch(data)
        object = from_base64(match[2].decode("latin-1")) if match and match[2].isascii() else None
        if object is None:
            raise Refused("NoSignature")
        return JSON, match[1] + b"}", object
    if format in (SENML_JSON, SENML_CBOR):
        raise Refused("NoSignature")
    if format != MULTIPART:
        raise Refused("UnknownFormat")
    fields = array(decode(data), 4)
    format = uint(fields[0], 16)
    out_of_range(format not in (SENML_JSON, SENML_CBOR))
    representation = byte_string(fields[1])
    out_of_range(uint(fields[2], 16) != COSE_SIGN1)
    return format, representation, byte_string(fields[3])


def reading_open(format, data, roster):
    format, representation, bytes_of_object = separate(format, data)
    object = signed(bytes_of_object, READING, representation)
    fields = array(object.statement, 7)
    version_one(fields[0])
    out_of_range(len(representation) > 1 << 17)
    group, _, device = byte_string(fields[1], 8), byte_string(fields[2], 32), byte_string(fields[3], 8)
    index, epoch, seq = uint(fields[4], 32), uint(fields[5]), uint(fields[6])
    if object.content != format:
        raise Refused("WrongFormat")
    if group != roster.group:
        raise Refused("WrongGroup")
    listed = roster.device(device)
    key = listed.key(index, epoch) if listed else None
    if key is None:
        raise Refused("UnknownDevice")
    object.verify(key)
    try:
        ms, values = read(format, representation, device)
    except Malformed:
        raise Refused("MalformedReading") from None
    return Reading(device, index, epoch, seq, format, ms, [[name, unit, value] for name, unit, _, value in values])
