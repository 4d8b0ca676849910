"""Update files of motes (update.md, section 1)."""

from .broadcast import of_base
from .encoding import Refused, array, byte_string, decode, out_of_range, text, uint, version_one
from .signed import signed

PART = 256
MANIFEST = "moteseal-firmware+cose"
TAG_START = b"\x9dMSfirmware\x01"
TAG_LENGTH = len(TAG_START) + 4 + 32


def is_plain(board):
    return 1 <= len(board) <= 32 and all(0x21 <= ord(character) <= 0x7E for character in board)


def first_part(part, network, bases):
    """Opens the first part of an update file. Returns the fields of its manifest."""
    out_of_range(len(part) != PART)
    end = 2 + int.from_bytes(part[:2], "big")
    out_of_range(end > PART or any(part[end:]))
    object = signed(part[2:end], MANIFEST)
    fields = array(decode(object.payload), 7)
    version_one(fields[0])
    of, base, board = byte_string(fields[1], 8), byte_string(fields[2], 8), text(fields[3])
    version, length, digest = uint(fields[4], 32), uint(fields[5], 32), byte_string(fields[6], 32)
    out_of_range(not is_plain(board) or version == 0 or length == 0)
    of_base(object, of, base, network, bases)
    return {"board": board, "version": version, "length": length, "digest": digest.hex()}


def image_tag(image):
    """Returns the board and the version that an image states."""
    last = len(image) - TAG_LENGTH
    places = [at for at in range(last + 1) if image.startswith(TAG_START, at)]
    if not places:
        raise Refused("NoImageTag")
    tag = image[places[0] :][:TAG_LENGTH]
    version, name = int.from_bytes(tag[12:16], "big"), tag[16:]
    board = name.rstrip(b"\0").decode("latin-1")
    if len(places) > 1 or version == 0 or not is_plain(board):
        raise Refused("BadImageTag")
    return {"board": board, "version": version}
