"""Queries, and what a server must return (answers.md, sections 3 to 7)."""

import json
import re
from dataclasses import dataclass
from fractions import Fraction

from .encoding import M64, Refused, unhex
from .hashes import H, be, chacha12_words
from .stream import items


def rate_mask(rate, levels):
    """The levels of a rate, a Fraction."""
    everything = (1 << levels) - 1
    if rate == 1:
        return everything
    if not 0 < rate < 1:
        raise Refused("RateUnavailable")
    digits = levels - 1
    k = int(rate * 2**digits)
    if k == 0:
        raise Refused("RateUnavailable")
    while k % 2 == 0:
        k, digits = k // 2, digits - 1
    mask = everything & ~((1 << digits) - 1)
    for b in range(1, digits):
        if k >> digits - b & 1:
            mask |= 1 << b - 1
    return mask


def seal_rate_mask(rate, seal):
    mask = rate_mask(rate, len(seal.counters))
    for level, count in enumerate(seal.counters):
        if mask >> level & 1 and count and seal.null(level):
            raise Refused("RateUnavailable")
    return mask & seal.surviving


def surviving_levels(seals, final=0):
    """The levels that exist in all parts of one epoch, which ended at the round `final`."""
    dropped = lambda level: any(seal.counters[level] and seal.null(level) for seal in seals)
    return [level for level in range(final, len(seals[0].counters)) if not dropped(level)]


def at_most_mask(seals, m, final=0):
    """The levels that `at most m` selects of the parts of one epoch, which ended at the round `final`."""
    mask, left = 0, m
    for level in surviving_levels(seals, final):
        count = sum(seal.counters[level] for seal in seals)
        if count <= left:
            left -= count
            mask |= 1 << level
    return mask


def permutation(seed, device, epoch, total, m):
    """The first m positions of a Fisher-Yates shuffle, in the order they are drawn."""
    words = chacha12_words(H(b"moteseal/1/perm", seed, device, be(epoch, 8)))
    moved, chosen = {}, []
    for i in range(min(m, total)):
        span = total - i
        limit = (1 << 64) - (1 << 64) % span
        w = next(word for word in words if word < limit)
        j = i + w % span
        here, there = moved.get(i, i), moved.get(j, j)
        moved[i], moved[j] = there, here
        chosen.append(there)
    return chosen


def check_choice(parts, choice, final=0):
    """Checks that the parts of one epoch of one device are as requested. `final` is the round of the epoch's manifest."""
    seals = [rebuilt.seal for rebuilt in parts]
    if not {"rate", "readings"} & set(choice) and any(seal.last_in_epoch for seal in seals[:-1]):
        raise Refused("EpochClosed")
    if "rate" in choice:
        forced = [seal_rate_mask(choice["rate"], seal) for seal in seals]
    elif "at_most" in choice:
        mask = at_most_mask(seals, choice["at_most"], final)
        forced = [mask & seal.surviving for seal in seals]
    elif "readings" in choice:
        named = [[seq for index, first, count in choice["readings"] if index == seal.index for seq in range(first, first + count)]
                 for seal in seals]
        if any(seqs and seal.scheme == 0 for seqs, seal in zip(named, seals)):
            raise Refused("SchemeMismatch")
        forced = [seqs or 0 for seqs in named]
    else:
        if any(seal.scheme == 0 for seal in seals):
            raise Refused("SchemeMismatch")
        there, existing = set(surviving_levels(seals, final)), []
        for part, rebuilt in enumerate(parts):
            existing += [(part, seq) for seq, level in enumerate(rebuilt.levels) if level in there]
        drawn = permutation(choice["seed"], seals[0].device, seals[0].epoch, len(existing), choice["count"])
        chosen = sorted(existing[position] for position in drawn)
        forced = [[seq for of, seq in chosen if of == part] or 0 for part in range(len(parts))]
    for rebuilt, expected in zip(parts, forced):
        if rebuilt.part.select != expected:
            raise Refused("NotAsAsked", f"index {rebuilt.seal.index}")


class History:
    """Follows the seals of one device in the epochs since .. until-1; up to its newest seal if until is None."""

    def __init__(self, device, since, until):
        self.device, self.since = device, since
        self.end = M64 if until is None else until
        self.ended, self.last, self.unknown = since >= self.end, None, since

    def broken(self, seal, roster=None):
        """The error of the next seal, with the index and epoch of the seal that it concerns; None if there is none."""
        last = self.last
        device = roster and roster.device(self.device)
        void = bool(device) and seal.prev_index is not None and device.is_void(seal.prev_index, seal.prev_epoch)
        if seal.device != self.device or seal.epoch < self.since or self.ended:
            return "NotAsAsked", seal.index, seal.epoch
        if last is None:
            inside = seal.prev_epoch is not None and seal.prev_epoch >= self.since
            return ("Missing", seal.prev_index, seal.prev_epoch) if inside and not void else None
        if void and seal.prev_index > last.index:
            return None
        if seal.index == last.index and seal.digest != last.digest:
            return "Equivocation", seal.index, seal.epoch
        if seal.index <= last.index:
            return "NotAsAsked", seal.index, seal.epoch
        if seal.prev_index is not None and seal.prev_index > last.index:
            return "Missing", seal.prev_index, seal.prev_epoch
        if seal.prev_index != last.index or seal.prev != last.digest:
            return "Equivocation", last.index, seal.epoch
        return None

    def take(self, seal):
        """Takes a seal, even one with an error. Returns whether it is in the range."""
        self.last, self.unknown = seal, seal.epoch + seal.last_in_epoch
        inside = seal.epoch < self.end
        self.ended = not inside or (seal.last_in_epoch and seal.epoch + 1 == self.end)
        return inside

    @property
    def tail(self):
        """The first epoch about which nothing is known, or None if the range is complete."""
        return None if self.ended else self.unknown


class RedactedHistory:
    """Follows the seals of one device in a redacted proof, of which any may be left out."""

    tail = None

    def __init__(self, device, since, until):
        self.device, self.since = device, since
        self.end, self.last = M64 if until is None else until, None

    def broken(self, seal, _roster=None):
        """The error of the next seal, with the index and epoch of the seal that it concerns; None if there is none."""
        last = self.last
        if last is None:
            return None
        if seal.index == last.index and seal.digest != last.digest:
            return "Equivocation", seal.index, seal.epoch
        if seal.index <= last.index:
            return "NotAsAsked", seal.index, seal.epoch
        if seal.prev_index is None or seal.prev_index < last.index:
            return "Equivocation", last.index, seal.epoch
        if seal.prev_index == last.index and seal.prev != last.digest:
            return "Equivocation", last.index, seal.epoch
        if seal.prev_index > last.index and seal.prev_epoch < last.epoch:
            return "Equivocation", last.index, seal.epoch
        return None

    def take(self, seal):
        """Takes a seal, even one with an error. Returns whether it is in the range."""
        self.last = seal
        return self.since <= seal.epoch < self.end


def check_history(seals, device, since, until):
    """Checks that no seal of the range is missing. Returns the number of seals in the range, and the epoch from which on nothing
    is known."""
    history, inside = History(device, since, until), 0
    for seal in seals:
        broken = history.broken(seal)
        if broken:
            raise Refused(broken[0], f"index {broken[1]}")
        inside += history.take(seal)
    return inside, history.tail


@dataclass
class CheckedDevice:
    """The content of an answer about one device."""

    device: bytes
    standing: str
    since: object  # the epoch from which on nothing is known or returned
    seals: int
    late: int
    rows: list


def answer_items(reader, data):
    """The manifests and parts of an answer, and its end item, after which there must be nothing."""
    for kind, value in reader.read(data):
        if kind == "problem":
            is_name = re.fullmatch("[0-9A-Za-z]{1,64}", value[0])
            raise Refused(value[0] if is_name else "Problem", value[1])
        if kind not in ("manifest", "part", "end"):
            raise Refused("NotAsAsked", kind)
        yield kind, value
        if kind == "end":
            if reader.consumed < len(data):
                raise Refused("TrailingBytes")
            return
    raise Refused("Truncated")


class AnswerCheck:
    """Checks the items of an answer to a query in their order."""

    def __init__(self, roster, query):
        self.roster, self.since, self.until = roster, query["since"], query["until"]
        self.devices = [unhex(device) for device in query["devices"]]
        self.redacted = query.get("redacted", False)
        self.columns = set(query.get("columns") or [])
        choice = query.get("sample") or query
        self.choice = {key: choice[key] for key in ("rate", "at_most", "count", "seed", "readings") if choice.get(key) is not None}
        if "rate" in self.choice:
            self.choice["rate"] = rate_of(self.choice["rate"])
        if "seed" in self.choice:
            self.choice["seed"] = unhex(self.choice["seed"])
        self.named = {index for index, _first, _count in self.choice.get("readings", [])}
        self.manifests = {}
        self.checked = []
        self.at = None  # the current device
        self.begun = False

    def manifest(self, manifest):
        epoch, newest = manifest.epoch, max(self.manifests, default=-1)
        if newest == epoch and self.manifests[newest].digest != manifest.digest:
            raise Refused("TwoManifests", f"epoch {epoch}")
        inside = self.since <= epoch < (M64 if self.until is None else self.until)
        if self.redacted or self.roster.period(epoch).budget is None or self.begun or not inside or epoch <= newest:
            raise Refused("NotAsAsked", f"the manifest of epoch {epoch}")
        self.manifests[epoch] = manifest

    def part(self, rebuilt):
        seal, self.begun = rebuilt.seal, True
        if self.at != seal.device:
            self.leave()
            if seal.device not in self.devices[len(self.checked) :]:
                raise Refused("NotAsAsked", seal.device.hex())
            self.close_before(self.devices.index(seal.device))
            self.enter(seal.device)
        broken = self.history.broken(seal, self.roster)
        if broken:
            raise Refused(broken[0], f"index {broken[1]}")
        inside = self.history.take(seal)
        if self.held and self.held[0].seal.epoch != seal.epoch:
            self.release(seal)
        if not inside:
            if rebuilt.part.select != 0:
                raise Refused("NotAsAsked", "events after the range")
            return
        if (seal.epoch, seal.digest) in self.unseen:
            self.unseen.remove((seal.epoch, seal.digest))
        elif seal.epoch in self.manifests:
            self.late += 1
        if not self.redacted:
            self.check_columns(rebuilt)
        if "readings" in self.choice:
            self.named -= {seal.index}
        if self.redacted:
            self.hand_out([rebuilt])
        elif "rate" in self.choice or "readings" in self.choice:
            check_choice([rebuilt], self.choice)
            self.hand_out([rebuilt])
        else:
            self.held.append(rebuilt)

    def check_columns(self, rebuilt):
        """Checks that a part shows exactly the column groups of the columns that the query names."""
        fields, groups = rebuilt.whole.fields, rebuilt.whole.groups
        if not self.columns <= {field.name for field in fields}:
            raise Refused("UnknownColumn", f"index {rebuilt.seal.index}")
        asked = {0} | {field.group for field in fields if field.name in self.columns}
        asked = groups & sum(1 << group for group in asked) if self.columns else groups
        if asked & ~rebuilt.part.groups:
            raise Refused("ColumnWithheld", f"index {rebuilt.seal.index}")
        if asked != rebuilt.part.groups:
            raise Refused("NotAsAsked", f"index {rebuilt.seal.index}")

    def end(self):
        self.leave()
        self.close_before(len(self.devices))

    def enter(self, device):
        follow = RedactedHistory if self.redacted else History
        self.at, self.history = device, follow(device, self.since, self.until)
        self.held, self.rows, self.seals, self.late, self.unmanifested = [], [], 0, 0, None
        listed = ((epoch, dict(manifest.devices).get(device, [])) for epoch, manifest in self.manifests.items())
        self.unseen = {(epoch, digest) for epoch, digests in listed for digest in digests}

    def leave(self):
        """Ends the checks of the current device."""
        if self.at is None:
            return
        self.release(None)
        if self.unseen:
            raise Refused("Missing", "a seal that a manifest lists")
        if self.named:
            raise Refused("NotAsAsked", "a seal of which the query names readings")
        tail, device = self.history.tail, self.roster.device(self.at)
        newest = self.history.last and self.history.last.index
        if tail is not None and self.until is not None and device and not device.can_seal(newest, tail, self.until):
            tail = None
        standing, since = ("Complete", None) if tail is None else ("TailUnknown", tail)
        if self.unmanifested is not None:
            standing, since = "ManifestMissing", self.unmanifested
        if self.redacted:
            standing, since = "Redacted", None
        self.checked.append(CheckedDevice(self.at, standing, since, self.seals, self.late, self.rows))
        self.at = None

    def close_before(self, place):
        """Ends the checks of the devices before a place, of which the answer has no seal."""
        while len(self.checked) < place:
            self.enter(self.devices[len(self.checked)])
            self.leave()

    def release(self, following):
        """Checks the parts of an epoch together. `following` is the device's next seal in the answer."""
        parts, self.held = self.held, []
        if not parts:
            return
        seals, epoch = [rebuilt.seal for rebuilt in parts], parts[0].seal.epoch
        if seals[0].prev_epoch is not None and seals[0].prev_epoch >= epoch:
            raise Refused("Missing", f"index {seals[0].prev_index}")
        if any(seal.last_in_epoch for seal in seals[:-1]):
            raise Refused("EpochClosed")
        follows = following is not None and following.epoch > epoch and following.prev == seals[-1].digest
        whole = seals[-1].last_in_epoch or follows
        if self.roster.period(epoch).budget is not None and epoch not in self.manifests:
            if any(rebuilt.part.select != 0 for rebuilt in parts):
                raise Refused("NotAsAsked", f"epoch {epoch} has no manifest")
            if whole and self.unmanifested is None:
                self.unmanifested = epoch
        elif whole:
            check_choice(parts, self.choice, self.manifests[epoch].round if epoch in self.manifests else 0)
            self.hand_out(parts)

    def hand_out(self, parts):
        self.seals += len(parts)
        self.rows += [[rebuilt.seal.index, seq, record.hex()] for rebuilt in parts for seq, _, record in rebuilt.rows]


def check_answer(reader, data, query):
    """Checks an answer to a query. Returns the content for each device, and the manifests by epoch."""
    check = AnswerCheck(reader.roster, query)
    for kind, value in answer_items(reader, data):
        if kind == "end":
            check.end()
        else:
            {"manifest": check.manifest, "part": check.part}[kind](value)
    return check.checked, check.manifests


def rate_of(text):
    """The rate that a query states."""
    found = re.fullmatch(r"([0-9]{1,18})(?:/([0-9]{1,18})|\.([0-9]{1,18}))?", text)
    if not found:
        raise Refused("BadQuery", "not a rate")
    whole, divisor, digits = found.groups()
    if divisor is not None and int(divisor) == 0:
        raise Refused("BadQuery", "a rate over 0")
    rate = Fraction(int(whole), int(divisor or 1)) + Fraction(int(digits or 0), 10 ** len(digits or ""))
    if rate > 1 or int(rate * 2**31) == 0:
        raise Refused("BadQuery", "a rate of 0, or above 1")
    return rate


def query_check(query):
    """Checks the members of a query. Returns it with all of them."""

    def refuse(condition, why):
        if condition:
            raise Refused("BadQuery", why)

    def number(value, most, why):
        refuse(type(value) is not int or not 0 <= value <= most, why)
        return value

    def digits(value, length, why):
        refuse(type(value) is not str or not re.fullmatch(f"[0-9a-fA-F]{{{length}}}", value), why)
        return value

    refuse(type(query) is not dict, "not an object")
    known = {"devices", "since", "until", "rate", "at_most", "sample", "readings", "columns"}
    refuse(not {"devices", "since"} <= set(query) <= known, "a name that is unknown or missing")
    query = dict.fromkeys(known) | query
    refuse(type(query["devices"]) is not list or not query["devices"], "no devices")
    devices = [digits(device, 16, "not a device id").lower() for device in query["devices"]]
    refuse(len(set(devices)) < len(devices), "a device twice")
    number(query["since"], M64, "since")
    if query["until"] is not None:
        refuse(number(query["until"], M64, "until") <= query["since"], "an empty range")
    refuse(sum(query[name] is not None for name in ("rate", "at_most", "sample", "readings")) != 1, "not exactly one choice")
    if query["rate"] is not None:
        refuse(type(query["rate"]) is not str, "a rate is a text")
        rate_of(query["rate"])
    if query["at_most"] is not None:
        number(query["at_most"], M64, "at_most")
    if query["sample"] is not None:
        sample = query["sample"]
        refuse(type(sample) is not dict or set(sample) != {"count", "seed"}, "a sample has a count and a seed")
        refuse(number(sample["count"], 0xFFFFFFFF, "count") == 0, "a sample of nothing")
        digits(sample["seed"], 64, "a seed")
    if query["columns"] is not None:
        names = query["columns"]
        refuse(type(names) is not list or not 1 <= len(names) <= 64, "columns are 1 to 64 names")
        refuse(any(type(name) is not str or not 1 <= len(name.encode()) <= 64 for name in names), "a name of a column")
        refuse(len(set(names)) < len(names), "a column twice")
    if query["readings"] is not None:
        runs, end = query["readings"], (-1, 0)
        refuse(type(runs) is not list or not 1 <= len(runs) <= 8, "readings are 1 to 8 runs")
        refuse(len(devices) > 1, "readings of several devices")
        for run in runs:
            refuse(type(run) is not list or len(run) != 3, "a run is an index, a first reading and a count")
            index, first, count = (number(value, 0xFFFFFFFF, "a number of a run") for value in run)
            refuse(count == 0 or first + count > 0xFFFFFFFF, "an empty run, or a long one")
            refuse(index < end[0] or (index == end[0] and first < end[1]), "runs that descend or overlap")
            end = (index, first + count)
    return query


def proof_query(text, roster):
    """The query of a proof's first item, or the devices and the range of a redacted proof. The proof was made under a version of
    this roster."""

    def whole(digits):
        if digits.startswith("-"):
            raise ValueError("a negative number")
        return int(digits)

    def refuse(number):
        raise ValueError(f"{number} is not a whole number")

    def unique(pairs):
        if len({name for name, _value in pairs}) < len(pairs):
            raise ValueError("a name twice")
        return dict(pairs)

    try:
        hooks = {"parse_int": whole, "parse_float": refuse, "parse_constant": refuse}
        query = json.loads(text, object_pairs_hook=unique, **hooks)
        named = type(query) is dict and "roster" in query
        digest = query.pop("roster") if named else ""
        if named and (type(digest) is not str or not re.fullmatch("[0-9a-fA-F]{64}", digest)):
            raise ValueError("its roster is not a digest")
        redacted = query.pop("redacted", None) if type(query) is dict else None
        if redacted is not None:
            chosen = [name for name in ("rate", "at_most", "sample", "readings", "columns") if query.get(name) is not None]
            if redacted is not True or chosen:
                raise ValueError("redacted is not true, or a redacted proof with a choice")
            query["rate"] = "1"
        query = query_check(query)
        if redacted:
            query["redacted"], query["rate"] = True, None
    except (ValueError, RecursionError, Refused) as error:
        raise Refused("NotAProof", str(error)) from None
    if named and unhex(digest) not in [*roster.history, roster.digest]:
        raise Refused("UnknownRoster", digest)
    return query


def check_proof(reader, data):
    """Checks a proof: its query, and the answer to it. Returns what `check_answer` returns."""
    kind, text, length = next(items(data), (None, None, 0))
    if kind != "proof":
        raise Refused("NotAProof")
    return check_answer(reader, data[length:], proof_query(text, reader.roster))
