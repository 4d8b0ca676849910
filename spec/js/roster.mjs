// Certificates (objects.md, section 3) and rosters (section 4).

import * as cbor from "./cbor.mjs";
import { openObject, TYP_CERTIFICATE, TYP_ROSTER, verifyObject } from "./cose.mjs";
import { checkKey, checkKeyLength, deviceId, groupId, ownerId, sanitiserId, suiteOf } from "./crypto.mjs";
import { fail, failureOf } from "./fail.mjs";
import { isName } from "./schema.mjs";

const MAX_EPOCH_MS = 1n << 53n;

/** The form and shape of a certificate. */
function readCertificate(bytes) {
  const object = openObject(bytes, TYP_CERTIFICATE);
  const f = cbor.versioned(cbor.single(object.payload), 7);
  return {
    bytes,
    object,
    group: cbor.bytes(f[1], 8),
    device: cbor.bytes(f[2], 8),
    serial: cbor.u64(f[3]),
    cose: cbor.i64(f[4]),
    key: cbor.bytes(f[5]),
    firstIndex: cbor.u32(f[6]),
    alg: undefined,
  };
}

/** Section 3, steps 1 to 4; `notAuthentic` replaces the name of a failure of step 3. */
function checkCertificate(c, operator, notAuthentic) {
  c.alg = suiteOf(c.cose);
  if (c.alg === undefined) fail("UnknownAlgorithm");
  checkKeyLength(c.alg, c.key);
  const failure = failureOf(() => verifyObject(c.object, operator.alg, operator.key));
  if (failure !== null) fail(notAuthentic || failure);
  checkKey(c.alg, c.key);
}

export function openCertificate(bytes, operator) {
  const c = readCertificate(bytes);
  checkCertificate(c, operator, null);
  return c;
}

// ---------------------------------------------------------------- shape of the payload

const nameOf = cbor.text;

function shape(payload) {
  const f = cbor.array(cbor.single(payload));
  const need = (i) => (i < f.length ? f[i] : fail("UnexpectedType"));
  cbor.version(need(0));
  const r = {};
  r.groupName = nameOf(need(1));
  r.group = cbor.bytes(need(2), 8);
  r.version = cbor.u32(need(3));
  if (!(r.version === 0 ? [12] : [9, 10, 11]).includes(f.length)) fail("UnexpectedType");
  r.owners = [];
  r.sanitisers = [];
  r.history = cbor.array(f[4]).map((n) => cbor.bytes(n, 32));
  if (r.version === 0) {
    const p = { version: 0, epochMs: cbor.u64(f[5]), levels: cbor.u64(f[6]), budget: cbor.nullable(f[7], cbor.u64) };
    p.firstEpoch = cbor.u64(f[8]);
    p.startMs = null;
    r.lastEpoch = cbor.nullable(f[9], cbor.u64);
    p.coordinatorBytes = cbor.nullable(f[10], cbor.bytes);
    r.periods = [p];
    r.querierBytes = null;
    r.list = cbor.array(f[11]).map((n) => {
      const d = cbor.array(n, 3);
      const device = { id: cbor.bytes(d[0], 8), name: nameOf(d[1]), since: 0 };
      device.terms = cbor.array(d[2]).map((c) => ({ bytes: cbor.bytes(c), firstEpoch: 0n, endIndex: null, endEpoch: null }));
      return device;
    });
  } else {
    r.periods = cbor.array(f[5]).map((n) => {
      const p = cbor.array(n, 7);
      return {
        version: cbor.u32(p[0]),
        firstEpoch: cbor.u64(p[1]),
        startMs: cbor.u64(p[2]),
        epochMs: cbor.u64(p[3]),
        levels: cbor.u64(p[4]),
        budget: cbor.nullable(p[5], cbor.u64),
        coordinatorBytes: cbor.nullable(p[6], cbor.bytes),
      };
    });
    r.lastEpoch = cbor.nullable(f[6], cbor.u64);
    r.querierBytes = cbor.nullable(f[7], cbor.bytes);
    r.list = cbor.array(f[8]).map((n) => {
      const d = cbor.array(n, 4);
      const device = { id: cbor.bytes(d[0], 8), name: nameOf(d[1]), since: cbor.u32(d[2]) };
      device.terms = cbor.array(d[3]).map((t) => {
        const g = cbor.array(t, 4);
        return {
          bytes: cbor.bytes(g[0]),
          firstEpoch: cbor.u64(g[1]),
          endIndex: cbor.nullable(g[2], cbor.u32),
          endEpoch: cbor.nullable(g[3], cbor.u64),
        };
      });
      return device;
    });
    if (f.length >= 10) {
      r.owners = cbor.array(f[9]).map((n) => {
        const o = cbor.array(n, 2);
        return { name: nameOf(o[0]), bytes: cbor.bytes(o[1]) };
      });
      if (r.owners.length === 0 && f.length === 10) fail("UnexpectedType");
    }
    if (f.length === 11) {
      r.sanitisers = cbor.array(f[10]).map((n) => {
        const o = cbor.array(n, 3);
        const [name, bytes, rights] = [nameOf(o[0]), cbor.bytes(o[1]), cbor.array(o[2]).map(readRight)];
        if (rights.length === 0) fail("UnexpectedType");
        return { name, bytes, rights };
      });
      if (r.sanitisers.length === 0) fail("UnexpectedType");
    }
  }
  return r;
}

/** What a sanitiser may replace (sanitised.md, section 1). */
function readRight(n) {
  const f = cbor.array(n, 4);
  const devices = cbor.nullable(f[0], (list) => cbor.array(list).map((device) => cbor.bytes(device, 8)));
  if (devices !== null && devices.length === 0) fail("UnexpectedType");
  return { devices, groups: cbor.u8(f[1]), firstEpoch: cbor.u64(f[2]), endEpoch: cbor.nullable(f[3], cbor.u64) };
}

// ---------------------------------------------------------------- checks

function checkPeriods(r) {
  let before = null;
  for (const p of r.periods) {
    if (p.epochMs < 1n || p.epochMs > MAX_EPOCH_MS) fail("EpochLengthOutOfRange");
    if (p.levels < 1n || p.levels > 32n) fail("LevelsOutOfRange");
    p.levels = Number(p.levels);
    if (p.budget === 0n) fail("BudgetOutOfRange");
    if (before === null ? p.version !== 0 : p.version <= before.version || p.firstEpoch <= before.firstEpoch) fail("UnsortedPeriods");
    const start =
      before === null ? p.firstEpoch * p.epochMs : before.startMs + (p.firstEpoch - before.firstEpoch) * before.epochMs;
    if (r.version === 0) p.startMs = start;
    else if (p.startMs !== start) fail("EpochStartMismatch");
    p.coordinator = null;
    if (p.coordinatorBytes !== null) {
      p.coordinator = readCertificate(p.coordinatorBytes);
      if (!p.coordinator.group.equals(r.group)) fail("CertificateMismatch");
    }
    before = p;
  }
  if (before === null || before.version > r.version) fail("UnsortedPeriods");
  if (r.lastEpoch !== null && r.lastEpoch < before.firstEpoch) fail("EpochRangeEmpty");
}

function checkDevices(r) {
  const coordinators = r.periods.filter((p) => p.coordinator !== null).map((p) => p.coordinator.device);
  let before = null;
  for (const d of r.list) {
    if (!isName(d.name)) fail("InvalidName");
    if (!d.id.equals(deviceId(r.groupName, d.name))) fail("DeviceMismatch");
    if (d.since > r.version) fail("SinceOutOfRange");
    let last = null;
    for (const t of d.terms) {
      t.certificate = readCertificate(t.bytes);
      t.firstIndex = t.certificate.firstIndex;
      if (!t.certificate.group.equals(r.group) || !t.certificate.device.equals(d.id)) fail("CertificateMismatch");
      if (last !== null) {
        if (t.firstIndex < last.firstIndex || t.firstEpoch < last.firstEpoch) fail("UnsortedCertificates");
        if (t.firstIndex === last.firstIndex && t.firstEpoch === last.firstEpoch) fail("UnsortedCertificates");
      }
      if (t.endIndex !== null && t.endIndex < t.firstIndex) fail("TermRangeEmpty");
      if (t.endEpoch !== null && t.endEpoch < t.firstEpoch) fail("TermRangeEmpty");
      last = t;
    }
    if (last === null) fail("CertificateMissing");
    if ((before !== null && before.equals(d.id)) || coordinators.some((c) => c.equals(d.id))) fail("DuplicateDevice");
    if (before !== null && Buffer.compare(before, d.id) > 0) fail("UnsortedDevices");
    before = d.id;
  }
}

class Roster {
  constructor(fields, object, bytes) {
    Object.assign(this, fields);
    this.bytes = bytes;
    this.digest = object.digest;
    this.devices = new Map(this.list.map((d) => [d.id.toString("hex"), d]));
    this.versions = [...this.history, this.digest];
    this.numbers = new Map(this.versions.map((digest, i) => [digest.toString("hex"), i]));
    this.hasBudget = this.periods.some((p) => p.budget !== null);
  }

  newestPeriod() {
    return this.periods[this.periods.length - 1];
  }

  /** The period of an epoch; those before the first period are computed with its values. */
  periodOf(epoch) {
    for (let i = this.periods.length - 1; i > 0; i--) if (this.periods[i].firstEpoch <= epoch) return this.periods[i];
    return this.periods[0];
  }

  /** The start of an epoch, in Unix milliseconds. */
  epochStart(epoch) {
    const p = this.periodOf(epoch);
    return p.startMs + (epoch - p.firstEpoch) * p.epochMs;
  }

  /** The epoch of an instant. Before the first period, epochs have its length. */
  epochOf(ms) {
    const p = this.periods.findLast((q) => q.startMs <= ms);
    return p === undefined ? ms / this.periods[0].epochMs : p.firstEpoch + (ms - p.startMs) / p.epochMs;
  }

  hasEpoch(epoch) {
    return epoch >= this.periods[0].firstEpoch && (this.lastEpoch === null || epoch <= this.lastEpoch);
  }

  /** The term that gives a seal its key, which may have ended; or undefined (section 4.3). */
  termOf(device, index, epoch) {
    return device.terms.findLast((t) => t.firstIndex <= index && t.firstEpoch <= epoch);
  }

  hasEnded(term, index, epoch) {
    return (term.endIndex !== null && index >= term.endIndex) || (term.endEpoch !== null && epoch >= term.endEpoch);
  }

  isVoid(device, index, epoch) {
    const term = this.termOf(device, index, epoch);
    return term !== undefined && this.hasEnded(term, index, epoch);
  }

  isMember(device, epoch) {
    return device.terms.some((t) => t.firstEpoch <= epoch && (t.endEpoch === null || epoch < t.endEpoch));
  }
}

/** Section 4.4. */
export function openRoster(bytes, operator) {
  const object = openObject(bytes, TYP_ROSTER);
  verifyObject(object, operator.alg, operator.key);
  const r = shape(object.payload);
  if (!isName(r.groupName)) fail("InvalidName");
  if (!r.group.equals(groupId(r.groupName))) fail("GroupMismatch");
  if (r.history.length !== r.version) fail("HistoryLength");
  checkPeriods(r);
  r.querier = null;
  if (r.querierBytes !== null) {
    r.querier = readCertificate(r.querierBytes);
    if (!r.querier.group.equals(r.group)) fail("CertificateMismatch");
    if (!r.querier.device.equals(deviceId(r.groupName, "querier"))) fail("CertificateMismatch");
  }
  let lastOwner = null;
  for (const owner of r.owners) {
    if (!isName(owner.name)) fail("InvalidName");
    owner.certificate = readCertificate(owner.bytes);
    owner.id = ownerId(r.groupName, owner.name);
    const { group, device } = owner.certificate;
    if (!group.equals(r.group) || !device.equals(owner.id)) fail("CertificateMismatch");
    if (lastOwner !== null && Buffer.compare(lastOwner, owner.id) >= 0) fail("UnsortedOwners");
    lastOwner = owner.id;
  }
  let lastSanitiser = null;
  for (const sanitiser of r.sanitisers) {
    if (!isName(sanitiser.name)) fail("InvalidName");
    sanitiser.certificate = readCertificate(sanitiser.bytes);
    sanitiser.id = sanitiserId(r.groupName, sanitiser.name);
    const { group, device } = sanitiser.certificate;
    if (!group.equals(r.group) || !device.equals(sanitiser.id)) fail("CertificateMismatch");
    if (lastSanitiser !== null && Buffer.compare(lastSanitiser, sanitiser.id) >= 0) fail("UnsortedSanitisers");
    for (const { devices, groups, firstEpoch, endEpoch } of sanitiser.rights) {
      if (groups === 0 || groups & 1) fail("FieldOutOfRange");
      if (endEpoch !== null && endEpoch < firstEpoch) fail("TermRangeEmpty");
      const ascends = (device, i) => i === 0 || Buffer.compare(devices[i - 1], device) < 0;
      if (devices !== null && !devices.every(ascends)) fail("UnsortedDevices");
    }
    lastSanitiser = sanitiser.id;
  }
  checkDevices(r);
  const certificates = r.periods.map((p) => p.coordinator);
  certificates.push(r.querier);
  for (const owner of r.owners) certificates.push(owner.certificate);
  for (const sanitiser of r.sanitisers) certificates.push(sanitiser.certificate);
  for (const d of r.list) for (const t of d.terms) certificates.push(t.certificate);
  for (const c of certificates) if (c !== null) checkCertificate(c, operator, "CertificateNotAuthentic");
  return new Roster(r, object, bytes);
}

// ---------------------------------------------------------------- succession

const sameKey = (a, b) => (a === null || b === null ? a === b : a.alg === b.alg && a.key.equals(b.key));

/** Section 4.5. */
export function checkSuccession(before, later) {
  if (!before.group.equals(later.group)) fail("WrongGroup");
  if (later.version <= before.version || !later.history[before.version].equals(before.digest)) fail("NotLater");
  later.periods.forEach((p, i) => {
    const old = before.periods[i];
    if (old === undefined) {
      if (p.version <= before.version) fail("PeriodsChanged");
    } else if (
      ["version", "firstEpoch", "startMs", "epochMs", "levels", "budget"].some((k) => p[k] !== old[k]) ||
      !sameKey(p.coordinator, old.coordinator)
    ) {
      fail("PeriodsChanged");
    }
  });
  if (later.periods.length < before.periods.length) fail("PeriodsChanged");
  const movesBack = (end, old) => old !== null && (end === null || end > old);
  for (const [id, old] of before.devices) {
    const d = later.devices.get(id);
    if (d === undefined || d.since !== old.since || d.terms.length < old.terms.length) fail("DeviceChanged");
    old.terms.forEach((t, i) => {
      const u = d.terms[i];
      if (!t.bytes.equals(u.bytes) || t.firstEpoch !== u.firstEpoch) fail("DeviceChanged");
      if (movesBack(u.endIndex, t.endIndex) || movesBack(u.endEpoch, t.endEpoch)) fail("DeviceChanged");
    });
  }
  for (const [id, d] of later.devices) if (!before.devices.has(id) && d.since <= before.version) fail("DeviceChanged");
}
