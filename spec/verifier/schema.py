"""Stream schemas (objects.md, section 5)."""

import struct
import unicodedata
from dataclasses import dataclass

from .encoding import Refused, array, decode, sint, text, uint, version_one
from .hashes import H, be


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
