"""Stream schemas (objects.md, section 5)."""

import struct
import unicodedata
from dataclasses import dataclass
from typing import NamedTuple

from .encoding import Map, Refused, array, boolean, decode, sint, text, uint, wrong_type
from .hashes import H, be


TYPES = ["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f32", "f64", "time", "bool", "enum", "text", "timestamp", "point"]
FORMATS = [">B", ">b", ">H", ">h", ">I", ">i", ">Q", ">q", ">f", ">d", ">I", ">B", ">B", None, ">q", ">ii"]
TIME, BOOL, ENUM, TEXT, TIMESTAMP, POINT = range(10, 16)
SIGNED = {1: -1 << 7, 3: -1 << 15, 5: -1 << 31, 7: -1 << 63, TIMESTAMP: -1 << 63}
LEAST = -1 << 31
NULL_TEXT = 255
MAX_SCHEMA = 6152

UNITS = set(
    """m kg g s A K cd mol Hz rad sr N Pa J W C V F Ohm S Wb T H Cel lm lx Bq Gy Sv kat m2 m3 l m/s m/s2 m3/s l/s W/m2 cd/m2 bit
    bit/s lat lon pH dB dBW Bspl count / % %RH %EL EL 1/s 1/min beat/min beats S/m
    B VA VAs var vars J/m kg/m3 deg
    ms min h MHz kW kVA kvar Ah Wh kWh varh kvarh kVAh Wh/km KiB GB Mbit/s B/s MB/s mV mA dBm ug/m3 mm/h m/h ppm /100 /1000
    hPa mm cm km km/h""".split()
)


class Field(NamedTuple):
    name: str
    unit: str
    kind: int
    divisor: int
    offset: int
    id: int
    nullable: bool = False
    labels: tuple | None = None
    longest: int = 0
    relayed: bool = False
    suite: int = 0
    group: int = 0


def is_text(data, longest):
    """Whether a text is valid: UTF-8 without control characters, and not too long."""
    try:
        letters = data.decode("utf-8", "strict")
    except UnicodeDecodeError:
        return False
    return len(data) <= longest and not any(unicodedata.category(letter) == "Cc" for letter in letters)


@dataclass
class Schema:
    digest: bytes
    version: int
    fields: list

    @property
    def fixed(self):
        """Bytes of the cells that are not texts."""
        return sum(struct.calcsize(FORMATS[field.kind]) for field in self.fields if field.kind != TEXT)

    @property
    def texts(self):
        return [field for field in self.fields if field.kind == TEXT]

    @property
    def record_size(self):
        """Bytes of a record, or None if records are opaque or have texts."""
        return self.fixed if self.fields and not self.texts else None

    @property
    def groups(self):
        """The set of the column groups, or 0 if the schema has none."""
        groups = sum(1 << group for group in {field.group for field in self.fields})
        return groups if groups > 1 else 0

    def project(self, groups):
        """The schema of the records with only the columns of these groups (groups.md, section 2)."""
        return Schema(self.digest, self.version, [field for field in self.fields if groups >> field.group & 1])

    def projected(self, record, groups):
        """The projection of a record."""
        fixed, texts = b"", b""
        for field, cell in zip(self.fields, self.cells(record)):
            if groups >> field.group & 1 and field.kind == TEXT:
                texts += bytes([NULL_TEXT]) if cell is None else bytes([len(cell)]) + cell
            elif groups >> field.group & 1:
                fixed += cell
        return fixed + texts

    def field(self, name):
        """The field with this name, or None."""
        return next((field for field in self.fields if field.name == name), None)

    def cells(self, record):
        """The bytes of each cell, in the order of the fields; of a text, without its length and None if that is 255."""
        texts, at = [], self.fixed
        for _ in self.texts:
            if at >= len(record):
                raise Refused("RecordLength")
            length, at = record[at], at + 1
            texts.append(None if length == NULL_TEXT else record[at : at + length])
            at += 0 if length == NULL_TEXT else length
        if at != len(record):
            raise Refused("RecordLength")
        cells, at = [], 0
        for field in self.fields:
            if field.kind == TEXT:
                cells.append(texts.pop(0))
            else:
                cells.append(record[at : at + struct.calcsize(FORMATS[field.kind])])
                at += len(cells[-1])
        return cells

    @staticmethod
    def is_null(field, cell):
        if not field.nullable or field.kind == TEXT:
            return field.nullable and cell is None
        if field.kind == POINT:
            return struct.unpack(">ii", cell) == (LEAST, LEAST)
        if field.kind in SIGNED:
            return int.from_bytes(cell, "big", signed=True) == SIGNED[field.kind]
        return cell == b"\xff" * len(cell)

    @staticmethod
    def is_value(field, cell):
        if field.kind in (BOOL, ENUM):
            return cell[0] < (2 if field.kind == BOOL else len(field.labels))
        if field.kind == TEXT:
            return cell is not None and is_text(cell, field.longest)
        if field.kind == POINT:
            latitude, longitude = struct.unpack(">ii", cell)
            return abs(latitude) <= 900_000_000 and abs(longitude) <= 1_800_000_000
        return True

    def check_record(self, record):
        """Section 5.3: the checks of a record."""
        if not self.fields:
            return
        for field, cell in zip(self.fields, self.cells(record)):
            if field.suite:
                # The length of a text is all that a ciphertext shows.
                is_valid = field.kind != TEXT or (field.nullable if cell is None else len(cell) <= field.longest)
            else:
                is_valid = self.is_null(field, cell) or self.is_value(field, cell)
            if not is_valid:
                raise Refused("RecordValue", field.name)

    def values(self, record):
        """The values of a record's fields: exact for the integer types, None for null."""
        if self.version == 1:
            at = 0
            for field in self.fields:
                at += struct.calcsize(FORMATS[field.kind])
                if at > len(record):
                    raise Refused("RecordTooShort")
            record = record[:at]
        else:
            self.check_record(record)
        if any(field.suite for field in self.fields):
            raise Refused("Encrypted")
        return [self.value(field, cell) for field, cell in zip(self.fields, self.cells(record))]

    def value(self, field, cell):
        if self.is_null(field, cell):
            return None
        if field.kind == TEXT:
            return cell.decode()
        raw = struct.unpack(FORMATS[field.kind], cell)
        if field.kind == POINT:
            return tuple((degrees, 10_000_000) for degrees in raw)
        if field.kind == ENUM:
            return field.labels[raw[0]]
        if field.kind == BOOL:
            return raw[0] == 1
        return (raw[0] + field.offset, field.divisor) if field.kind < 8 else raw[0]

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


def field_of_array(entry, id):
    name, unit, kind, divisor, offset = array(entry, 5)
    return Field(text(name), text(unit), uint(kind), uint(divisor), sint(offset), id)


KEYS = {
    0: ("id", uint, None),
    1: ("name", text, None),
    2: ("unit", text, ""),
    3: ("kind", uint, None),
    4: ("divisor", uint, 1),
    5: ("offset", sint, 0),
    6: ("nullable", boolean, False),
    7: ("labels", lambda value: tuple(text(label) for label in array(value)), None),
    8: ("longest", uint, 0),
    9: ("relayed", boolean, False),
    12: ("suite", uint, 0),
    16: ("group", uint, 0),
}


def field_of_map(entry):
    wrong_type(type(entry) is not Map)
    found = {"unit": "", "divisor": 1, "offset": 0}
    for key, value in entry.pairs:
        if uint(key) not in KEYS:
            if key % 2 == 0:
                raise Refused("UnsupportedField", str(key))
            continue
        name, read, omitted = KEYS[key]
        found[name] = read(value)
        if omitted is not None and found[name] == omitted:
            raise Refused("NonCanonical", f"{name} is not encoded")
    wrong_type(not {"id", "name", "kind"} <= set(found))
    return Field(**found)


def are_labels(labels):
    return (
        1 <= len(labels) <= 254
        and len(set(labels)) == len(labels)
        and all(is_text(label.encode(), 64) and label and not set(label) & set(",()") for label in labels)
    )


def schema_decode(data):
    version, fields = array(decode(data), 2)
    if uint(version) not in (1, 2) or (version == 2 and array(fields) == []):
        raise Refused("UnsupportedVersion")
    entries = enumerate(array(fields))
    shapes = [field_of_map(entry) if version == 2 else field_of_array(entry, at + 1) for at, entry in entries]
    if version == 2 and len(data) > MAX_SCHEMA:
        raise Refused("SchemaTooLong")
    if len(shapes) > 64:
        raise Refused("TooManyFields")
    read = []
    for field in shapes:
        if not 1 <= field.id <= 65535:
            raise Refused("InvalidFieldId")
        if not 1 <= len(field.name.encode()) <= 64 or any(unicodedata.category(letter) == "Cc" for letter in field.name):
            raise Refused("InvalidFieldName")
        if field.unit and field.unit not in UNITS:
            raise Refused("UnknownUnit", field.unit)
        if field.kind >= (len(TYPES) if version == 2 else BOOL):
            raise Refused("UnknownFieldType", str(field.kind))
        if not 1 <= field.divisor < 1 << 32 or (field.kind >= 8 and (field.divisor, field.offset) != (1, 0)):
            raise Refused("ScaleOutOfRange")
        if (field.kind == ENUM) != (field.labels is not None) or (field.labels is not None and not are_labels(field.labels)):
            raise Refused("InvalidLabels")
        if not (1 <= field.longest <= 254 if field.kind == TEXT else field.longest == 0):
            raise Refused("InvalidTextLength")
        if field.suite > 2:
            raise Refused("UnknownSuite", str(field.suite))
        if field.group > 7:
            raise Refused("InvalidGroup", str(field.group))
        if any(field.name == other.name for other in read):
            raise Refused("DuplicateField", field.name)
        if any(field.id == other.id for other in read):
            raise Refused("DuplicateFieldId", str(field.id))
        read.append(field)
        if len([other for other in read if other.suite]) > 16:
            raise Refused("TooManyEncryptedFields")
    if any(field.group for field in read):
        if all(field.group for field in read):
            raise Refused("NoFirstGroup")
        if any(field.group and not field.suite for field in read):
            raise Refused("PlainGroup")
    return Schema(H(b"moteseal/1/schema\0", data), version, read)


def show_value(value):
    """A value in the form of the vectors."""
    if value is None or isinstance(value, bool):
        return value if value is None else str(value).lower()
    if isinstance(value, tuple):
        return f"{value[0]}/{value[1]}" if isinstance(value[0], int) else " ".join(map(show_value, value))
    return struct.pack(">d", value).hex() if isinstance(value, float) else str(value)
