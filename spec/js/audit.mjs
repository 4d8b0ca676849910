// The audit of a coordinator (coordinator.md, sections 6 and 7).

import { Chain } from "./answers.mjs";
import { Fail, fail } from "./fail.mjs";
import { readStream } from "./stream.mjs";

const PROBLEM = /^[A-Za-z0-9]{1,64}$/;
const MAX_EPOCH = 0xffffffffffffffffn;
const FINDINGS = new Set([
  "Replayed", "InventedSeal", "Unshown", "InventedDevice", "TwoManifests", "Missing", "Equivocation", "OverBudget", "RoundOverstated",
  "StoppedEarly",
]);

const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

/** Section 7.5, rule 3: name, device id, index (none first), digest. */
function inOrder(a, b) {
  return (
    compare(a.name, b.name) ||
    compare(a.device ?? "", b.device ?? "") ||
    compare(a.index ?? -1, b.index ?? -1) ||
    compare(a.digest ?? "", b.digest ?? "")
  );
}

/** The seals of one device in the input, in order. */
class Seals {
  constructor(roster, id, since, until) {
    this.id = id;
    this.member = roster.devices.get(id);
    this.chain = new Chain(roster, id, since, until, false);
    this.list = [];
    this.byDigest = new Map();
  }

  add(seal) {
    this.list.push(seal);
    this.byDigest.set(seal.hex, seal);
  }

  firstAfter(epoch) {
    return this.list.find((s) => s.epoch > epoch);
  }

  /** Section 7.3, rule 4: whether the chain shows every seal of an epoch. */
  isGapless(epoch) {
    const starts = this.list.filter((s) => s.epoch === epoch && s.last);
    const after = this.firstAfter(epoch);
    if (after !== undefined) starts.push(after);
    return starts.some((start) => {
      let seal = start;
      while (seal !== undefined && seal.prevIndex !== null && seal.prevEpoch >= epoch) seal = this.byDigest.get(seal.prev);
      return seal !== undefined;
    });
  }
}

class Audit {
  constructor(roster, since, until) {
    if (!roster.hasBudget) fail("NoBudget");
    Object.assign(this, { roster, since, until });
    this.manifests = [];
    this.digests = new Set();
    this.newest = null;
    this.devices = new Map();
    this.current = null;
    this.chainFindings = [];
  }

  manifest(m) {
    if (m.epoch < this.since || m.period.budget === null || this.current !== null) fail("NotAsAsked");
    const hex = m.digest.toString("hex");
    if (this.digests.has(hex)) return;
    this.digests.add(hex);
    this.manifests.push({ ...m, hex, sets: new Map([...m.listed].map(([id, list]) => [id, new Set(list)])) });
    if (this.newest === null || m.epoch > this.newest) this.newest = m.epoch;
  }

  part(part) {
    if (this.current === null || this.current.id !== part.id) {
      if (this.devices.has(part.id)) fail("NotAsAsked");
      this.current = new Seals(this.roster, part.id, this.since, this.until);
      this.devices.set(part.id, this.current);
    }
    const { chain } = this.current;
    const before = chain.last;
    try {
      chain.next(part);
    } catch (e) {
      if (!(e instanceof Fail) || e.name === "NotAsAsked") throw e;
      if (e.name === "Missing") {
        const finding = { name: "Missing", device: part.id, index: part.prevIndex, named_by: part.index };
        this.chainFindings.push({ epoch: part.prevEpoch, digest: part.prev.toString("hex"), finding });
      } else {
        // The index is that of the seal which this one contradicts.
        const finding = { name: e.name, device: part.id, index: before.index };
        this.chainFindings.push({ epoch: part.epoch, digest: null, finding });
      }
      chain.accept(part);
    }
    const { index, epoch, prevIndex, prevEpoch, last, restart, round, counters } = part;
    const prev = part.prev.toString("hex");
    this.current.add({ hex: part.digest.toString("hex"), index, epoch, prev, prevIndex, prevEpoch, last, restart, round, counters });
  }

  goneOn(epoch) {
    return this.newest !== null && this.newest > epoch;
  }

  /** Section 7.1, rule 4, for the seals of a device. */
  isTaken(seals, seal) {
    const isListed = (s) => this.manifests.some((m) => m.epoch === s.epoch && m.sets.get(seals.id)?.has(s.hex));
    return isListed(seal) || seals.list.some((s) => s.prevIndex !== null && s.prev === seal.hex && isListed(s));
  }

  /** Section 7.2, rules 1 and 2. `listed` are the seals of the epoch that the manifest lists. */
  isMissing(m, seals, listed) {
    const digests = m.sets.get(seals.id) ?? new Set();
    for (const digest of digests) if (!seals.byDigest.has(digest)) return true;
    if (listed.some((s) => s.prevEpoch === m.epoch && !digests.has(s.prev))) return true;
    const last = listed[listed.length - 1];
    if (last !== undefined && last.last) return false;
    const after = seals.firstAfter(m.epoch);
    if (after === undefined || after.restart || !this.isTaken(seals, after)) return true;
    if (last !== undefined) return after.prevIndex === null || after.prev !== last.hex;
    return after.prevIndex !== null && after.prevEpoch >= m.epoch;
  }

  /** Section 7.2, rule 3. */
  hasRestarted(seals, listed) {
    if (listed.some((s) => s.restart)) return true;
    const last = listed[listed.length - 1];
    if (last === undefined || last.last) return false;
    return seals.list[seals.list.indexOf(last) + 1]?.restart === true;
  }

  /** Section 7.3; null for a correct digest. */
  listedDigest(m, seals, digest) {
    const device = seals.id;
    const seal = seals.byDigest.get(digest);
    if (seal !== undefined) {
      return seal.epoch === m.epoch ? null : { name: "Replayed", device, index: seal.index, from: seal.epoch };
    }
    const naming = seals.list.filter((s) => s.prevIndex !== null && s.prev === digest);
    const other = naming.find((s) => s.prevEpoch !== m.epoch);
    if (other !== undefined) return { name: "Replayed", device, index: other.prevIndex, from: other.prevEpoch };
    if (naming.length > 0) return { name: "Withheld", device, index: naming[0].prevIndex };
    if (seals.isGapless(m.epoch)) return { name: "InventedSeal", device, digest };
    return { name: this.goneOn(m.epoch) ? "Unshown" : "NotShownYet", device, digest };
  }

  sealsOf(id) {
    return this.devices.get(id) ?? new Seals(this.roster, id, this.since, this.until);
  }

  entry(m) {
    const { roster } = this;
    const { levels } = m.period;
    const budget = Number(m.period.budget);
    const counts = new Array(levels).fill(0);
    const notes = [];
    const told = [];
    const ids = new Set(m.listed.keys());
    for (const [id, member] of roster.devices) if (roster.isMember(member, m.epoch)) ids.add(id);
    let listedCount = 0;
    let sealCount = 0;
    let missing = false;
    let restarted = false;
    for (const [, seals] of this.devices) if (!ids.has(seals.id) && seals.list.some((s) => s.epoch === m.epoch)) ids.add(seals.id);
    for (const id of ids) {
      const digests = m.sets.get(id) ?? new Set();
      if (!roster.devices.has(id)) {
        if (m.version === roster.version) {
          notes.push({ name: "InventedDevice", device: id, seals: m.listed.get(id).length });
        } else {
          notes.push({ name: "Absent", device: id, listed: true });
          missing = true;
        }
        continue;
      }
      const seals = this.sealsOf(id);
      const ofEpoch = seals.list.filter((s) => s.epoch === m.epoch);
      const listed = ofEpoch.filter((s) => digests.has(s.hex));
      sealCount += ofEpoch.length;
      listedCount += listed.length;
      for (const s of listed) s.counters.forEach((c, i) => (counts[i] += c));
      const highest = Math.max(-1, ...listed.map((s) => s.round));
      if (highest > m.round) told.push([id, highest]);
      for (const s of ofEpoch) if (!digests.has(s.hex)) notes.push({ name: "Late", device: id, index: s.index });
      for (const digest of digests) {
        const note = this.listedDigest(m, seals, digest);
        if (note !== null) notes.push(note);
      }
      if (!digests.size && !roster.isMember(roster.devices.get(id), m.epoch)) continue;
      if (this.isMissing(m, seals, listed)) {
        notes.push({ name: "Absent", device: id, listed: listed.length > 0 });
        missing = true;
      }
      if (this.hasRestarted(seals, listed)) {
        notes.push({ name: "Restarted", device: id });
        restarted = true;
      }
    }
    for (const { epoch, digest, finding } of this.chainFindings) {
      if (epoch === m.epoch && !(digest !== null && m.sets.get(finding.device)?.has(digest))) notes.push(finding);
    }
    const rivals = this.manifests.filter((o) => o.epoch === m.epoch).map((o) => o.hex);
    if (rivals.length > 1) notes.push({ name: "TwoManifests", digests: rivals.sort() });
    const keptFrom = (round) => counts.slice(round).reduce((a, b) => a + b, 0);
    let due = 0;
    while (due < levels && keptFrom(due) > budget) due++;
    const kept = keptFrom(m.round);
    let justified = false;
    if (m.round < due) {
      notes.push({ name: "OverBudget", round: m.round, kept, due });
    } else if (told.length > 0) {
      told.sort((a, b) => compare(a[0], b[0]));
      notes.push({ name: "RoundOverstated", round: m.round, announced: Math.max(...told.map((t) => t[1])), told });
    } else if (!missing && m.round > due) {
      if (!restarted) notes.push({ name: "StoppedEarly", round: m.round, due, fitting: keptFrom(due) });
    } else if (!missing) {
      justified = true;
    }
    return this.finish(notes, justified, {
      epoch: m.epoch,
      manifest: m.hex,
      round: m.round,
      due,
      counts,
      kept,
      devices: m.listed.size,
      listed: listedCount,
      seals: sealCount,
    });
  }

  entryWithoutManifest(epoch, seals) {
    const notes = this.chainFindings.filter((f) => f.epoch === epoch).map((f) => f.finding);
    notes.push({ name: "NoManifest", gone_on: this.goneOn(epoch) });
    const values = { epoch, manifest: null, round: null, due: null, counts: [], kept: 0, devices: 0, listed: 0, seals };
    return this.finish(notes, false, values);
  }

  finish(notes, justified, values) {
    notes.sort(inOrder);
    const findings = notes.filter((n) => FINDINGS.has(n.name));
    const doubts = notes.filter((n) => !FINDINGS.has(n.name));
    const verdict = findings.length > 0 ? "Unjustified" : justified ? "Justified" : "Undetermined";
    return { ...values, verdict, findings, doubts };
  }

  result() {
    const entries = this.manifests.filter((m) => m.epoch < this.until).map((m) => this.entry(m));
    const covered = new Set(entries.map((e) => e.epoch));
    const open = new Map();
    for (const [, seals] of this.devices) {
      for (const s of seals.list) if (s.epoch < this.until && !covered.has(s.epoch)) open.set(s.epoch, (open.get(s.epoch) ?? 0) + 1);
    }
    for (const { epoch } of this.chainFindings) {
      if (epoch >= this.since && epoch < this.until && !covered.has(epoch) && !open.has(epoch)) open.set(epoch, 0);
    }
    for (const [epoch, seals] of open) entries.push(this.entryWithoutManifest(epoch, seals));
    // The sort is stable: manifests of one epoch stay in the order in which they came.
    return entries.sort((a, b) => compare(a.epoch, b.epoch));
  }
}

/** The entries of an audit of the epochs `since .. until-1`. */
export function audit(bytes, roster, since, until, options) {
  const state = new Audit(roster, since, until ?? MAX_EPOCH);
  for (const item of readStream(bytes, roster, options)) {
    switch (item.kind) {
      case "manifest":
        state.manifest(item.manifest);
        break;
      case "run":
        for (const part of item.parts) state.part(part);
        break;
      case "end":
        if (item.end < bytes.length) fail("TrailingBytes");
        return state.result();
      case "problem":
        fail(PROBLEM.test(item.name) ? item.name : "Problem");
        break;
      case "proof":
      case "explain":
        fail("NotAsAsked");
    }
  }
  return fail("Truncated");
}
