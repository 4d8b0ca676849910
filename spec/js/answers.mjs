// The duties of a verifier of answers and proofs (answers.md, sections 6 and 7).

import * as cbor from "./cbor.mjs";
import { checkEpoch, checkRate, checkReadings, readQuery } from "./choice.mjs";
import { fail } from "./fail.mjs";
import { tryParse } from "./json.mjs";
import { readItem, readStream } from "./stream.mjs";

const PROBLEM = /^[A-Za-z0-9]{1,64}$/;

/** The place of a seal in the chain of its device: section 6.1. */
export class Chain {
  constructor(roster, id, since, until, open) {
    Object.assign(this, { roster, id, since, until, open });
    this.last = null;
    this.ended = since >= until;
  }

  /** Whether the seal that a part names as its predecessor is void. */
  followsVoid(part) {
    return part.prevIndex !== null && this.roster.isVoid(part.member, part.prevIndex, part.prevEpoch);
  }

  /** Checks the next seal; returns whether it is in the range. */
  next(part) {
    const { last } = this;
    if (part.id !== this.id || part.epoch < this.since || this.ended) fail("NotAsAsked");
    if (last === null) {
      if (part.prevEpoch !== null && part.prevEpoch >= this.since && !this.followsVoid(part)) fail("Missing");
    } else if (!(this.followsVoid(part) && part.prevIndex > last.index)) {
      if (part.index === last.index && !part.digest.equals(last.digest)) fail("Equivocation");
      if (part.index <= last.index) fail("NotAsAsked");
      if (part.prevIndex !== null && part.prevIndex > last.index) fail("Missing");
      if (part.prevIndex === null || part.prevIndex < last.index || !part.prev.equals(last.digest)) fail("Equivocation");
    }
    return this.accept(part);
  }

  /** Takes a seal as the newest one. */
  accept(part) {
    this.last = part;
    if (part.epoch >= this.until) {
      this.ended = true;
      return false;
    }
    if (part.last && part.epoch === this.until - 1n) this.ended = true;
    return true;
  }

  /** The epoch from which the tail is unknown; null if it is known. */
  tail() {
    if (this.ended) return null;
    const { last } = this;
    const from = last === null ? this.since : last.last ? last.epoch + 1n : last.epoch;
    const member = this.roster.devices.get(this.id);
    if (this.open || member === undefined) return from;
    const index = last === null ? 0 : last.index + 1;
    const follows = member.terms.some(
      (t) =>
        (t.endEpoch === null || t.endEpoch > from) && t.firstEpoch < this.until && (t.endIndex === null || t.endIndex > index),
    );
    return follows ? from : null;
  }
}

/** The place of a seal in the chain of its device, in a redacted proof: section 7.1. */
class RedactedChain {
  constructor(since, until) {
    Object.assign(this, { since, until });
    this.last = null;
  }

  followsVoid() {
    return false;
  }

  next(part) {
    const { last } = this;
    if (last !== null) {
      if (part.index === last.index && !part.digest.equals(last.digest)) fail("Equivocation");
      if (part.index <= last.index) fail("NotAsAsked");
      if (part.prevIndex === null || part.prevIndex < last.index) fail("Equivocation");
      if (part.prevIndex === last.index && !part.prev.equals(last.digest)) fail("Equivocation");
      if (part.prevIndex > last.index && part.prevEpoch < last.epoch) fail("Equivocation");
    }
    this.last = part;
    return part.epoch >= this.since && part.epoch < this.until;
  }

  tail() {
    return null;
  }
}

/** Checks that a part shows exactly the column groups of the columns that a query names: section 4.6. */
function checkColumns(part, names) {
  const { fields, groups } = part.whole;
  if (names.some((name) => !fields.some((field) => field.name === name))) fail("UnknownColumn");
  if (groups === 0) return;
  const asked = fields.filter((field) => names.includes(field.name)).reduce((set, field) => set | (1 << field.group), 1);
  const expected = names.length === 0 ? groups : asked;
  if ((expected & ~part.groups) !== 0) fail("ColumnWithheld");
  if (part.groups !== expected) fail("NotAsAsked");
}

/** The parts of one device in the range: sections 6.2 and 6.3, steps 2 to 4, without the manifests. */
class Device {
  /** `roundOf(epoch)` is the round at which an epoch ended, or null if it is missing. */
  constructor(roster, id, query, roundOf) {
    this.chain = query.redacted
      ? new RedactedChain(query.since, query.until)
      : new Chain(roster, id, query.since, query.until, query.open);
    this.choice = query.choice;
    this.columns = query.columns ?? [];
    this.roundOf = roundOf;
    this.held = [];
    this.named = new Set((query.choice.readings ?? []).map((run) => run.index));
    this.seals = 0;
    this.rows = [];
    this.missingFrom = null;
    this.tailFrom = null;
  }

  /** A proven part; returns whether it is in the range. `inRange` is called for one that is, before the choice is checked. */
  part(part, inRange) {
    const before = this.chain.last;
    const within = this.chain.next(part);
    if (this.held.length > 0 && this.held[0].epoch !== part.epoch) {
      const named = part.prevIndex === before.index && part.prev.equals(before.digest);
      this.checkHeld(named || this.chain.followsVoid(part));
    }
    if (!within) {
      if (part.mask !== 0) fail("NotAsAsked");
      return;
    }
    inRange(part);
    if (!this.choice.redacted) checkColumns(part, this.columns);
    this.named.delete(part.index);
    if (this.choice.redacted) {
      this.take([part]);
    } else if (this.choice.readings !== undefined) {
      checkReadings(part, this.choice.readings);
      this.take([part]);
    } else if (this.choice.rate === undefined) {
      this.held.push(part);
    } else {
      checkRate(part, this.choice.rate);
      this.take([part]);
    }
  }

  take(parts) {
    this.seals += parts.length;
    for (const p of parts) {
      p.seqs.map((seq, i) => [p.index, seq, p.records[i]]).sort((a, b) => a[1] - b[1]).forEach((row) => this.rows.push(row));
    }
  }

  /** Section 6.3, step 3. */
  checkHeld(continued) {
    const parts = this.held;
    if (parts.length === 0) return;
    this.held = [];
    const { epoch } = parts[0];
    parts.forEach((p, i) => {
      if (!this.chain.followsVoid(p)) {
        if (i === 0 && p.prevEpoch === epoch) fail("Missing");
        if (i > 0 && (p.prevIndex !== parts[i - 1].index || !p.prev.equals(parts[i - 1].digest))) fail("Missing");
      }
      if (p.last && i + 1 < parts.length) fail("EpochClosed");
    });
    const whole = continued || parts[parts.length - 1].last;
    const round = this.roundOf(epoch, parts[0].period);
    if (round === null && parts.some((p) => p.mask !== 0)) fail("NotAsAsked");
    if (!whole) {
      this.tailFrom = epoch;
    } else if (round === null) {
      this.missingFrom ??= epoch;
    } else {
      checkEpoch(parts, this.choice, round);
      this.take(parts);
    }
  }

  end() {
    this.checkHeld(false);
  }

  tail() {
    return this.tailFrom ?? this.chain.tail();
  }
}

/** An answer, item by item: section 6.3. */
class Answer {
  constructor(roster, query) {
    this.roster = roster;
    this.query = query;
    this.manifests = new Map();
    this.newest = null;
    this.begun = false;
    this.place = -1;
    this.devices = query.devices.map((id) => {
      const roundOf = (epoch, period) => (period.budget === null ? 0 : this.manifests.get(epoch)?.round ?? null);
      return { id, late: 0, shown: new Map(), state: new Device(roster, id, query, roundOf) };
    });
  }

  manifest(m) {
    if (this.newest !== null && m.epoch === this.newest.epoch && !m.digest.equals(this.newest.digest)) fail("TwoManifests");
    const { since, until, redacted } = this.query;
    if (redacted || m.period.budget === null || this.begun || m.epoch < since || m.epoch >= until) fail("NotAsAsked");
    if (this.newest !== null && m.epoch <= this.newest.epoch) fail("NotAsAsked");
    this.newest = m;
    this.manifests.set(m.epoch, m);
  }

  part(part) {
    this.begun = true;
    if (this.place < 0 || this.devices[this.place].id !== part.id) {
      if (this.place >= 0) this.endDevice(this.place);
      const place = this.devices.findIndex((d) => d.id === part.id);
      if (place <= this.place) fail("NotAsAsked");
      for (let i = this.place + 1; i < place; i++) this.endDevice(i);
      this.place = place;
    }
    const device = this.devices[this.place];
    device.state.part(part, () => {
      const digest = part.digest.toString("hex");
      device.shown.set(digest, part.epoch);
      const m = this.manifests.get(part.epoch);
      if (m !== undefined && !(m.listed.get(part.id) ?? []).includes(digest)) device.late++;
    });
  }

  endDevice(place) {
    const device = this.devices[place];
    device.state.end();
    for (const m of this.manifests.values()) {
      for (const digest of m.listed.get(device.id) ?? []) if (device.shown.get(digest) !== m.epoch) fail("Missing");
    }
    if (device.state.named.size > 0) fail("NotAsAsked");
  }

  end(rest) {
    for (let i = Math.max(this.place, 0); i < this.devices.length; i++) this.endDevice(i);
    if (rest > 0) fail("TrailingBytes");
    return {
      devices: this.devices.map(({ id, late, state }) => {
        const tail = state.tail();
        const from = state.missingFrom ?? tail;
        const whole = state.missingFrom !== null ? "ManifestMissing" : tail !== null ? "TailUnknown" : "Complete";
        const standing = this.query.redacted ? "Redacted" : whole;
        return { device: id, standing, from, seals: state.seals, late, rows: state.rows };
      }),
      rounds: [...this.manifests.values()].map((m) => [m.epoch, m.round]),
    };
  }
}

/** Verifies an answer to a query. */
export function openAnswer(bytes, roster, query, options) {
  const answer = new Answer(roster, query);
  for (const item of readStream(bytes, roster, options)) {
    switch (item.kind) {
      case "manifest":
        answer.manifest(item.manifest);
        break;
      case "run":
        for (const part of item.parts) answer.part(part);
        break;
      case "end":
        return answer.end(bytes.length - item.end);
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

/** Verifies a proof: section 7. */
export function openProof(bytes, roster, options) {
  if (bytes.length === 0) fail("NotAProof");
  const first = readItem(cbor.itemAt(bytes, 0));
  if (first.kind !== "proof") fail("NotAProof");
  const query = readQuery(tryParse(first.query) ?? null);
  if (query === null) fail("NotAProof");
  if (query.roster !== null && !roster.numbers.has(query.roster)) fail("UnknownRoster");
  return openAnswer(bytes.subarray(first.end), roster, query, options);
}

/** The seals of one device in a range, which MUST be complete, with what a choice selects: the operation `choice.answer`. */
export function openRange(bytes, roster, query, round, options) {
  const device = new Device(roster, query.devices[0], query, () => round);
  for (const item of readStream(bytes, roster, options)) {
    if (item.kind === "run") for (const part of item.parts) device.part(part, () => {});
  }
  device.end();
  if (!query.open && device.tail() !== null) fail("TailUnknown");
  return { seals: device.seals, rows: device.rows };
}
