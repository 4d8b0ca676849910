"""The link between a device and its coordinator (coordinator.md, section 4)."""

import hashlib
import hmac
from dataclasses import dataclass

from .encoding import Form, Refused, array, byte_string, decode, optional, out_of_range, text, uint, wrong_type


def hmac256(key, *parts):
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


def link_secret(group_secret, group, device):
    return hmac256(group_secret, b"moteseal/1/link", group, device)


def dtls_psk(secret):
    """The pre-shared key of a device's DTLS sessions."""
    return hmac256(secret, b"moteseal/1/dtls")


def frame_item(frame, secret, direction):
    """Checks the tag of a frame. Returns its item."""
    if len(frame) < 16 or len(frame) > 65536:
        raise Refused("Malformed")
    item, tag = frame[:-16], frame[-16:]
    key = hmac256(secret, b"moteseal/1/link/" + direction)
    if not hmac.compare_digest(hmac256(key, item)[:16], tag):
        raise Refused("NotAuthentic")
    return decode(item)


def frame_events(data, start, until, size):
    """The events of a forward frame."""
    form, events, least = Form(data), [], start
    while form.at < len(data):
        place = uint(form.item())
        seq = least + (place >> 5)
        out_of_range(seq >= until)
        record = form.take(size or int.from_bytes(form.take(2), "big"))
        events.append([seq, place & 31, record.hex()])
        least = seq + 1
    return events


def perfect_subtrees(start, until, present):
    """The maximal perfect subtrees of a range of leaves that contain no present leaf."""
    found, at = [], start
    for end in [*present, until]:
        while at < end:
            width = 1 << (end - at).bit_length() - 1
            while at % width:
                width >>= 1
            found.append((at, at + width))
            at += width
        at = max(at, end + 1)
    return found


def frame_up(frame, group_secret, group):
    """Opens a frame of a device. The frame contains the device's id, from which its key follows."""
    if len(frame) < 11 or frame[0] >> 5 != 4 or frame[0] & 31 > 23 or frame[1] > 23 or frame[2] != 0x48:
        raise Refused("Malformed")
    device = bytes(frame[3:11])
    try:
        fields = array(frame_item(frame, link_secret(group_secret, group, device), b"up"))
        kinds = {(1, 9): "forward", (1, 10): "forward", (2, 5): "close", (3, 3): "schema", (6, 3): "challenge"}
        kind = kinds.get((uint(fields[0]), len(fields)))
        wrong_type(kind is None)
        read = {"frame": kind, "device": byte_string(fields[1], 8).hex()}
        if kind == "schema":
            return read | {"schema": byte_string(fields[2]).hex()}
        if kind == "challenge":
            return read | {"challenge": uint(fields[2])}
        if kind == "close":
            schema, opening, part = byte_string(fields[2], 32), byte_string(fields[3]), byte_string(fields[4])
            return read | {"schema": schema.hex(), "open": opening.hex(), "part": part.hex()}
        index, epoch, own_round = uint(fields[2], 32), uint(fields[3]), uint(fields[4], 8)
        start, until, size = uint(fields[5], 32), uint(fields[6], 32), uint(fields[7], 16)
        out_of_range(own_round > 31 or start > until)
        events = frame_events(byte_string(fields[8]), start, until, size)
        read |= {
            "index": index, "epoch": epoch, "own_round": own_round, "from": start, "until": until, "size": size,
            "events": events,
        }  # fmt: skip
        if len(fields) == 10:
            digests = byte_string(fields[9])
            places = perfect_subtrees(start, until, [seq for seq, _, _ in events])
            out_of_range(len(digests) != 32 * len(places))
            read["subtrees"] = [[*place, digests[32 * at : 32 * at + 32].hex()] for at, place in enumerate(places)]
        return read
    except Refused as refused:
        raise refused if refused.name == "NotAuthentic" else Refused("Malformed", str(refused)) from None


@dataclass
class Followed:
    """The position up to which a device's open seal has been followed."""

    index: int
    epoch: int
    next: int = 0
    round: int = 0

    def follow(self, index, epoch, own_round, start, until):
        """The kind of a forward frame, and its first new event."""
        what = "news"
        if index > self.index:
            if start or not until:
                return "gap", None
            self.index, self.epoch, self.next, self.round = index, epoch, 0, 0
            what = "next"
        elif (index, epoch) != (self.index, self.epoch):
            return "old", None
        if start > self.next:
            return "gap", None
        if until <= self.next:
            return "old", None
        first, self.next, self.round = self.next, until, max(self.round, own_round)
        return what, first


def stored_seal(item):
    """The newest seal that a coordinator has stored of a device."""
    index, epoch, last, digest = array(item, 4)
    index, epoch, last, digest = uint(index, 32), uint(epoch), uint(last), byte_string(digest, 32)
    out_of_range(last > 1)
    return {"index": index, "epoch": epoch, "last": last, "digest": digest.hex()}


def frame_down(frame, group_secret, group, device):
    """Opens an acknowledgement, as the device does."""
    try:
        fields = array(frame_item(frame, link_secret(group_secret, group, device), b"down"), 7)
        kind, to = uint(fields[0]), byte_string(fields[1], 8)
        index, next_seq, sealed = uint(fields[2], 32), uint(fields[3], 32), optional(fields[4], stored_seal)
        wants, challenge = uint(fields[5]), optional(fields[6], uint)
        out_of_range(kind != 16 or to != device or wants > 1)
        return {"index": index, "next": next_seq, "sealed": sealed, "wants": wants, "challenge": challenge}
    except Refused as refused:
        raise refused if refused.name == "NotAuthentic" else Refused("Malformed", str(refused)) from None


def frame_refusal(frame, group_secret, group, device):
    """Opens the refusal of a seal, as the device does."""
    try:
        fields = array(frame_item(frame, link_secret(group_secret, group, device), b"down"), 5)
        kind, to = uint(fields[0]), byte_string(fields[1], 8)
        index, final, name = uint(fields[2], 32), uint(fields[3]), text(fields[4])
        is_name = 1 <= len(name) <= 48 and name.isascii() and name.isalnum()
        out_of_range(kind != 17 or to != device or final > 1 or not is_name)
        return {"index": index, "final": final, "name": name}
    except Refused as refused:
        raise refused if refused.name == "NotAuthentic" else Refused("Malformed", str(refused)) from None


def frame_event(frame, group_secret, group):
    """Opens a frame with an urgent event (coordinator.md, section 8)."""
    if len(frame) < 11 or frame[0] >> 5 != 4 or frame[0] & 31 > 23 or frame[1] > 23 or frame[2] != 0x48:
        raise Refused("Malformed")
    device = bytes(frame[3:11])
    try:
        fields = array(frame_item(frame, link_secret(group_secret, group, device), b"up"), 4)
        wrong_type(uint(fields[0]) != 7)
        schema, event = byte_string(fields[2]), byte_string(fields[3])
        return {"device": byte_string(fields[1], 8).hex(), "schema": schema.hex(), "event": event.hex()}
    except Refused as refused:
        raise refused if refused.name == "NotAuthentic" else Refused("Malformed", str(refused)) from None


def frame_event_answer(frame, group_secret, group, device):
    """Opens the answer to an urgent event, as the device does."""
    try:
        fields = array(frame_item(frame, link_secret(group_secret, group, device), b"down"))
        wrong_type(len(fields) not in (3, 5))
        kind, to, digest = uint(fields[0]), byte_string(fields[1], 8), byte_string(fields[2], 32)
        out_of_range(kind != {3: 18, 5: 19}[len(fields)] or to != device)
        if kind == 18:
            return {"digest": digest.hex()}
        final, name = uint(fields[3]), text(fields[4])
        is_name = 1 <= len(name) <= 48 and name.isascii() and name.isalnum()
        out_of_range(final > 1 or not is_name)
        return {"digest": digest.hex(), "final": final, "name": name}
    except Refused as refused:
        raise refused if refused.name == "NotAuthentic" else Refused("Malformed", str(refused)) from None
