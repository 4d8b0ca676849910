"""Certificates and rosters (objects.md, sections 3 and 4)."""

import unicodedata
from dataclasses import dataclass

from .encoding import Refused, array, byte_string, decode, optional, out_of_range, sint, text, uint, version_one, wrong_type
from .hashes import device_id, group_id, owner_id, sanitiser_id
from .signed import CERTIFICATE, ROSTER, Signed, signed
from .suites import ALGORITHMS, KEY_LENGTH, Key


@dataclass
class Certificate:
    object: Signed
    group: bytes
    device: bytes
    serial: int
    alg: str
    key_bytes: bytes
    first_index: int

    @property
    def digest(self):
        return self.object.digest


def certificate_decode(data):
    object = signed(data, CERTIFICATE)
    fields = array(decode(object.payload), 7)
    version_one(fields[0])
    group, device, serial = byte_string(fields[1], 8), byte_string(fields[2], 8), uint(fields[3])
    alg, key_bytes, first_index = sint(fields[4]), byte_string(fields[5]), uint(fields[6], 32)
    if alg not in ALGORITHMS:
        raise Refused("UnknownAlgorithm", str(alg))
    return Certificate(object, group, device, serial, ALGORITHMS[alg], key_bytes, first_index)


def certificate_prove(certificate, operator):
    """The checks after decoding. Returns the certified key."""
    if len(certificate.key_bytes) != KEY_LENGTH[certificate.alg]:
        raise Refused("KeyLength")
    certificate.object.verify(operator)
    return Key(certificate.alg, certificate.key_bytes)


def certificate_open(data, operator):
    certificate = certificate_decode(data)
    certificate_prove(certificate, operator)
    return certificate


@dataclass
class Term:
    """The seals for which a certified key is valid."""

    certificate: Certificate
    first_epoch: int
    end_index: object
    end_epoch: object
    key: object = None

    def ended(self, index, epoch):
        by_index = self.end_index is not None and index >= self.end_index
        return by_index or (self.end_epoch is not None and epoch >= self.end_epoch)


@dataclass
class Device:
    id: bytes
    name: str
    since: int
    terms: list

    def key(self, index, epoch):
        """The key of the seal with this index in this epoch: that of the last term whose first index and first epoch are not
        above them. None if there is no such term; refused if it has ended."""
        begun = [term for term in self.terms if term.certificate.first_index <= index and term.first_epoch <= epoch]
        if not begun:
            return None
        if begun[-1].ended(index, epoch):
            raise Refused("KeyEnded", self.name)
        return begun[-1].key

    def is_void(self, index, epoch):
        """Whether the roster has ended the key of this seal."""
        try:
            self.key(index, epoch)
            return False
        except Refused:
            return True

    def is_member(self, epoch):
        ends = ((term.first_epoch, term.end_epoch) for term in self.terms)
        return any(first <= epoch and (end is None or epoch < end) for first, end in ends)

    def can_seal(self, after, since, until):
        """Whether a key is valid for any seal after the index `after` (None: any) in the epochs since .. until-1."""
        for term in self.terms:
            first = max(term.first_epoch, since)
            in_time = first < until and (term.end_epoch is None or first < term.end_epoch)
            if in_time and (term.end_index is None or after is None or term.end_index > after + 1):
                return True
        return False


@dataclass
class Period:
    """Epochs with the same length, number of levels, budget and coordinator."""

    version: int
    first_epoch: int
    start_ms: object
    epoch_ms: int
    levels: int
    budget: object
    coordinator: object
    coordinator_key: object = None


@dataclass
class Owner:
    id: bytes
    name: str
    certificate: object
    key: object = None


@dataclass
class Right:
    """What a sanitiser may replace (sanitised.md, section 1)."""

    devices: list | None
    groups: int
    first_epoch: int
    end_epoch: object

    def covers(self, device, group, epoch):
        in_time = self.first_epoch <= epoch and (self.end_epoch is None or epoch < self.end_epoch)
        return in_time and self.groups >> group & 1 == 1 and (self.devices is None or device in self.devices)


@dataclass
class Sanitiser:
    id: bytes
    name: str
    certificate: object
    rights: list
    key: object = None


@dataclass
class Roster:
    digest: bytes
    group_name: str
    group: bytes
    version: int
    history: list
    periods: list
    last_epoch: object
    querier: object
    devices: list
    owners: list
    sanitisers: list

    def device(self, id):
        return next((device for device in self.devices if device.id == id), None)

    def digest_of(self, version):
        return (self.history + [self.digest])[version] if version <= self.version else None

    def period(self, epoch):
        """The period of an epoch. The first period counts for the epochs before it."""
        begun = [period for period in self.periods if period.first_epoch <= epoch]
        return begun[-1] if begun else self.periods[0]

    def epoch_start(self, epoch):
        """The start of an epoch, in Unix milliseconds."""
        period = self.period(epoch)
        return period.start_ms + (epoch - period.first_epoch) * period.epoch_ms

    def epoch_of(self, ms):
        """The epoch of an instant. Before the first period, epochs have its length."""
        begun = [period for period in self.periods if period.start_ms <= ms]
        period = begun[-1] if begun else self.periods[0]
        return period.first_epoch + (ms - period.start_ms) // period.epoch_ms

    def contains(self, epoch):
        return self.periods[0].first_epoch <= epoch and (self.last_epoch is None or epoch <= self.last_epoch)

    @property
    def has_budget(self):
        return any(period.budget is not None for period in self.periods)


def check_name(name):
    if not 1 <= len(name.encode()) <= 64 or any(unicodedata.category(letter) == "Cc" for letter in name):
        raise Refused("InvalidName", name)


def roster_open(data, operator):
    object = signed(data, ROSTER)
    object.verify(operator)
    roster = roster_read(object.digest, decode(object.payload))

    def prove(certificate):
        try:
            return certificate_prove(certificate, operator)
        except Refused as refused:
            if refused.name in ("AlgorithmMismatch", "MalformedSignature", "NotAuthentic", "HighS"):
                raise Refused("CertificateNotAuthentic") from None
            raise

    for period in roster.periods:
        if period.coordinator is not None:
            period.coordinator_key = prove(period.coordinator)
    if roster.querier is not None:
        prove(roster.querier)
    for owner in roster.owners:
        owner.key = prove(owner.certificate)
    for sanitiser in roster.sanitisers:
        sanitiser.key = prove(sanitiser.certificate)
    for device in roster.devices:
        for term in device.terms:
            term.key = prove(term.certificate)
    return roster


def roster_read(digest, payload):
    """Reads the payload of a roster and checks all but the signatures of the certificates."""
    fields = [*array(payload), None, None, None, None]  # a field that is not there has another type
    version_one(fields[0])
    group_name, group, version = text(fields[1]), byte_string(fields[2], 8), uint(fields[3], 32)
    fields = array(payload)
    wrong_type(len(fields) not in ((9, 10, 11) if version else (12,)))
    history = [byte_string(digest, 32) for digest in array(fields[4])]
    if version == 0:
        epoch_ms, levels, budget = uint(fields[5]), uint(fields[6]), optional(fields[7], uint)
        first_epoch, last_epoch = uint(fields[8]), optional(fields[9], uint)
        coordinator = optional(fields[10], byte_string)
        start_ms = first_epoch * epoch_ms
        periods = [Period(0, first_epoch, start_ms, epoch_ms, levels, budget, coordinator)]
        querier = None
    else:
        periods = [
            Period(uint(version, 32), uint(first), uint(start), uint(length), uint(levels), optional(budget, uint), optional(key, byte_string))
            for version, first, start, length, levels, budget, key in (array(period, 7) for period in array(fields[5]))
        ]
        last_epoch, querier = optional(fields[6], uint), optional(fields[7], byte_string)
    listed = []
    for entry in array(fields[8 if version else 11]):
        if version == 0:
            id, name, certificates = array(entry, 3)
            id, name, since = byte_string(id, 8), text(name), 0
            terms = [(byte_string(certificate), 0, None, None) for certificate in array(certificates)]
        else:
            id, name, since, of_device = array(entry, 4)
            id, name, since, terms = byte_string(id, 8), text(name), uint(since, 32), []
            for term in array(of_device):
                certificate, first, end_index, end_epoch = array(term, 4)
                term = byte_string(certificate), uint(first), optional(end_index, lambda end: uint(end, 32)), optional(end_epoch, uint)
                terms.append(term)
        listed.append((id, name, since, terms))
    owned, sanitising = [], []
    if version and len(fields) > 9:
        wrong_type(not array(fields[9]) and len(fields) == 10)
        owned = [(text(name), byte_string(certificate)) for name, certificate in (array(owner, 2) for owner in fields[9])]
    if version and len(fields) > 10:
        wrong_type(not array(fields[10]))
        for name, certificate, rights in (array(sanitiser, 3) for sanitiser in fields[10]):
            sanitising.append((text(name), byte_string(certificate), [right_read(right) for right in array(rights)]))
            wrong_type(not rights)

    check_name(group_name)
    if group != group_id(group_name):
        raise Refused("GroupMismatch")
    if len(history) != version:
        raise Refused("HistoryLength")
    before = None
    for period in periods:
        check_period(period, before, group)
        before = period
    if not periods or before.version > version:
        raise Refused("UnsortedPeriods")
    if last_epoch is not None and last_epoch < before.first_epoch:
        raise Refused("EpochRangeEmpty")
    if querier is not None:
        querier = certificate_decode(querier)
        if (querier.group, querier.device) != (group, device_id(group_name, "querier")):
            raise Refused("CertificateMismatch", "of the querier")
    owners = []
    for name, encoded in owned:
        check_name(name)
        certificate, id = certificate_decode(encoded), owner_id(group_name, name)
        if (certificate.group, certificate.device) != (group, id):
            raise Refused("CertificateMismatch", name)
        if owners and owners[-1].id >= id:
            raise Refused("UnsortedOwners", name)
        owners.append(Owner(id, name, certificate))
    sanitisers = []
    for name, encoded, rights in sanitising:
        check_name(name)
        certificate, id = certificate_decode(encoded), sanitiser_id(group_name, name)
        if (certificate.group, certificate.device) != (group, id):
            raise Refused("CertificateMismatch", name)
        if sanitisers and sanitisers[-1].id >= id:
            raise Refused("UnsortedSanitisers", name)
        for right in rights:
            out_of_range(right.groups == 0 or right.groups & 1)
            if right.end_epoch is not None and right.end_epoch < right.first_epoch:
                raise Refused("TermRangeEmpty", name)
            if any(one >= other for one, other in zip(right.devices or [], (right.devices or [])[1:])):
                raise Refused("UnsortedDevices", name)
        sanitisers.append(Sanitiser(id, name, certificate, rights))
    coordinators = [period.coordinator.device for period in periods if period.coordinator is not None]
    devices = []
    for id, name, since, terms in listed:
        device = Device(id, name, since, [])
        check_name(name)
        if id != device_id(group_name, name):
            raise Refused("DeviceMismatch", name)
        if since > version:
            raise Refused("SinceOutOfRange", name)
        for encoded, first_epoch, end_index, end_epoch in terms:
            certificate = certificate_decode(encoded)
            if (certificate.group, certificate.device) != (group, id):
                raise Refused("CertificateMismatch", name)
            first = certificate.first_index, first_epoch
            if device.terms:
                last = device.terms[-1].certificate.first_index, device.terms[-1].first_epoch
                if first == last or first[0] < last[0] or first[1] < last[1]:
                    raise Refused("UnsortedCertificates", name)
            if (end_index is not None and end_index < first[0]) or (end_epoch is not None and end_epoch < first[1]):
                raise Refused("TermRangeEmpty", name)
            device.terms.append(Term(certificate, first_epoch, end_index, end_epoch))
        if not device.terms:
            raise Refused("CertificateMissing", name)
        last = devices[-1].id if devices else None
        if id == last or id in coordinators:
            raise Refused("DuplicateDevice", name)
        if last is not None and last > id:
            raise Refused("UnsortedDevices", name)
        devices.append(device)
    return Roster(digest, group_name, group, version, history, periods, last_epoch, querier, devices, owners, sanitisers)


def right_read(right):
    devices, groups, first, end = array(right, 4)
    if devices is not None:
        wrong_type(not array(devices))
        for device in devices:
            byte_string(device, 8)
    return Right(devices, uint(groups, 8), uint(first), optional(end, uint))


def check_period(period, before, group):
    """Checks a period that follows `before`, or the first one. Decodes its coordinator's certificate."""
    if not 1 <= period.epoch_ms <= 1 << 53:
        raise Refused("EpochLengthOutOfRange")
    if not 1 <= period.levels <= 32:
        raise Refused("LevelsOutOfRange")
    if period.budget == 0:
        raise Refused("BudgetOutOfRange")
    if before is None:
        ascends, start_ms = period.version == 0, period.first_epoch * period.epoch_ms
    else:
        ascends = period.version > before.version and period.first_epoch > before.first_epoch
        start_ms = before.start_ms + (period.first_epoch - before.first_epoch) * before.epoch_ms
    if not ascends:
        raise Refused("UnsortedPeriods")
    if period.start_ms != start_ms:
        raise Refused("EpochStartMismatch")
    if period.coordinator is not None:
        period.coordinator = certificate_decode(period.coordinator)
        if period.coordinator.group != group:
            raise Refused("CertificateMismatch", "of the coordinator")


def check_succession(later, before):
    """Checks that a roster is a later version of another."""
    if later.group != before.group:
        raise Refused("WrongGroup")
    if later.version <= before.version or later.digest_of(before.version) != before.digest:
        raise Refused("NotLater")
    known = len(before.periods)

    def of_period(period):
        key = period.coordinator_key
        of_key = key and (key.alg, key.raw)
        return period.version, period.first_epoch, period.epoch_ms, period.levels, period.budget, of_key

    if [of_period(period) for period in later.periods[:known]] != [of_period(period) for period in before.periods]:
        raise Refused("PeriodsChanged")
    if any(period.version <= before.version for period in later.periods[known:]):
        raise Refused("PeriodsChanged")

    def tightens(new, old):
        return old is None or (new is not None and new <= old)

    for earlier in before.devices:
        device = later.device(earlier.id)
        if device is None or device.since != earlier.since or len(device.terms) < len(earlier.terms):
            raise Refused("DeviceChanged", earlier.name)
        for new, old in zip(device.terms, earlier.terms):
            same = new.certificate.digest == old.certificate.digest and new.first_epoch == old.first_epoch
            if not same or not tightens(new.end_index, old.end_index) or not tightens(new.end_epoch, old.end_epoch):
                raise Refused("DeviceChanged", earlier.name)
    for device in later.devices:
        if before.device(device.id) is None and device.since <= before.version:
            raise Refused("DeviceChanged", device.name)
