"""Rounds and manifests (coordinator.md, sections 1 to 3)."""

from dataclasses import dataclass

from .encoding import M64, Refused, array, byte_string, decode, out_of_range, uint, version_one
from .signed import MANIFEST, ROUND, signed


class Coordinator:
    """The counts of the events that a coordinator keeps of one epoch."""

    def __init__(self, levels, budget):
        self.levels, self.budget, self.round = levels, budget, 0
        self.counts = [0] * levels

    @property
    def kept(self):
        return sum(self.counts)

    def forget(self):
        self.counts[self.round] = 0
        self.round += 1

    def offer(self, level):
        if not self.round <= level < self.levels:
            return "declined"
        self.counts[level] += 1
        before = self.round
        while self.kept > self.budget and self.round < self.levels:
            self.forget()
        return "kept" if self.round == before else "raised"

    def withdraw(self, level, events):
        if level < self.levels:
            self.counts[level] -= min(events, self.counts[level])
        return "withdrawn"

    def settle(self, due):
        while self.round < min(due, self.levels):
            self.forget()
        return "settled"


def announcement_open(data, roster):
    """The epoch and the round of a coordinator's announcement."""
    object = signed(data, ROUND)
    out_of_range(len(object.payload) > 32)
    object.verify(roster.periods[-1].coordinator_key)
    fields = array(decode(object.payload), 4)
    version_one(fields[0])
    group, epoch, announced = byte_string(fields[1], 8), uint(fields[2]), uint(fields[3], 8)
    out_of_range(announced > 31)
    if group != roster.group:
        raise Refused("WrongGroup")
    return epoch, announced


@dataclass
class Manifest:
    digest: bytes
    roster: bytes
    epoch: int
    round: int
    devices: list  # (device id, seal digests)


def manifest_epoch(data):
    """The epoch that a manifest states, read before its signature is checked; None if there is none."""
    try:
        fields = array(decode(signed(data, MANIFEST).payload), 6)
        version_one(fields[0])
        byte_string(fields[1], 8), byte_string(fields[2], 32)
        return uint(fields[3])
    except Refused:
        return None


def manifest_open(data, roster):
    stated = manifest_epoch(data)
    coordinator = roster.period(M64 if stated is None else stated).coordinator_key
    if coordinator is None:
        raise Refused("NoCoordinator")
    object = signed(data, MANIFEST)
    object.verify(coordinator)
    fields = array(decode(object.payload), 6)
    version_one(fields[0])
    group, under = byte_string(fields[1], 8), byte_string(fields[2], 32)
    epoch, final = uint(fields[3]), uint(fields[4], 8)
    devices = []
    for entry in array(fields[5]):
        device, seals = array(entry, 2)
        devices.append((byte_string(device, 8), [byte_string(digest, 32) for digest in array(seals)]))
    out_of_range(final > 32)
    if group != roster.group:
        raise Refused("WrongGroup")
    ids = [device for device, _ in devices]
    if ids != sorted(set(ids)) or any(not seals for _, seals in devices):
        raise Refused("UnsortedDevices")
    if under not in roster.history + [roster.digest]:
        raise Refused("UnknownRoster")
    if not roster.contains(epoch):
        raise Refused("EpochOutOfRange")
    if (roster.history + [roster.digest]).index(under) < roster.period(epoch).version:
        raise Refused("RosterOutdated")
    if final > roster.period(epoch).levels:
        raise Refused("RoundOutOfRange")
    return Manifest(object.digest, under, epoch, final, devices)
