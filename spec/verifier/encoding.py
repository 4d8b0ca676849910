"""The encoding of objects: refusals, and CBOR in its only permitted form (objects.md, section 1)."""

from dataclasses import dataclass


class Refused(Exception):
    """A refusal, with its name in errors.md."""

    def __init__(self, name, detail=""):
        super().__init__(f"{name}: {detail}" if detail else name)
        self.name = name


class Skipped(Exception):
    """Something that this installation cannot check."""


unhex = bytes.fromhex


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


def versioned(value, length):
    """An array of `length` elements of version 1, or of one more of version 2. Returns it and whether it is the latter."""
    wrong_type(type(value) is not list)
    if len(value) == length:
        version_one(value[0])
        return value, False
    wrong_type(len(value) != length + 1 or value[0] != 2 or type(value[0]) is not int)
    return value, True


def with_groups(value, length):
    """An array as `versioned` takes it, or of two more elements than `length` and of version 3."""
    wrong_type(type(value) is not list)
    if len(value) != length + 2:
        return versioned(value, length)[0]
    wrong_type(value[0] != 3 or type(value[0]) is not int)
    return value


def groups_decode(value):
    """A set of column groups (groups.md, section 1): it has group 0."""
    out_of_range(not uint(value, 8) & 1)
    return value


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


M64 = (1 << 64) - 1
