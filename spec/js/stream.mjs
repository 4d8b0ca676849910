// The stream and its checks (answers.md, sections 1 and 2).

import * as cbor from "./cbor.mjs";
import { checkKeys } from "./confidential.mjs";
import { answeredRuns, checkPair, counts, keysAndGroups, lostFits, sealHeader, sigStructure } from "./cose.mjs";
import { openManifest } from "./coordinator.mjs";
import { countersOf, levelsOf, sha256, SUITES, verifySignature } from "./crypto.mjs";
import { Fail, fail } from "./fail.mjs";
import { cellsOfGroup, checkRecord, framed, openSchema, project, splitRecords } from "./schema.mjs";
import { blockDigest, chain, contained, groupDigest, levelDigest } from "./star.mjs";
import { groupsRoot, leafHash, proofLength, proofRoot } from "./tree.mjs";

const MIB = 1 << 20;
const MAX_ITEM = 68 * MIB;
const MAX_RUN_PARTS = 256;
const MAX_RUN_RECORDS = 64 * MIB;
const MAX_RUN_ITEMS = 136 * MIB;
const MAX_RUN_EVENTS = 1 << 24;
const MAX_INDEX = 0xffffffff;
const MAX_EPOCH = 0xffffffffffffffffn;
export const DEFAULT_MAX_EVENTS = 1 << 24;
const FIELDS = [2, 7, 14, 1, 3, 3, 3, 2, 0, 3];
const KINDS = ["schema", "open", "part", "end", "problem", "proof", "explain", "manifest", null, "sanitised"];

/** The item that begins at `p`: its form (section 2, step 1). */
function itemNode(bytes, p) {
  if (bytes.length - p <= MAX_ITEM) return cbor.itemAt(bytes, p);
  try {
    return cbor.itemAt(bytes.subarray(0, p + MAX_ITEM), p);
  } catch (e) {
    if (e instanceof Fail && e.name === "Truncated") fail("RunTooLong");
    throw e;
  }
}

/** The shape and sense of an item. */
export function readItem(node) {
  if (node.t !== cbor.ARRAY || node.v.length === 0 || node.v[0].t !== cbor.UINT) fail("UnexpectedType");
  const number = node.v[0].v;
  if (number > 9 || number === 8) fail("UnknownItem");
  // A part has one field more if its seal states keys, and three more if its schema has column groups.
  const hasMore = number === 2 && [FIELDS[2] + 1, FIELDS[2] + 3].includes(node.v.length);
  const f = hasMore ? node.v : cbor.array(node, FIELDS[number]);
  const item = { kind: KINDS[number], start: node.s, end: node.e };
  switch (item.kind) {
    case "schema":
    case "manifest":
      item.bytes = cbor.bytes(f[1]);
      break;
    case "open":
      cbor.version(f[1]);
      item.device = cbor.bytes(f[2], 8);
      item.version = cbor.u32(f[3]);
      item.prev = cbor.nullable(f[4], (n) => cbor.bytes(n, 32));
      item.prevIndex = cbor.nullable(f[5], cbor.u32);
      item.prevEpoch = cbor.nullable(f[6], cbor.u64);
      checkPair(item.prevIndex, item.prevEpoch);
      break;
    case "part":
      readPart(item, f);
      break;
    case "problem":
      item.name = cbor.text(f[1]);
      item.detail = cbor.text(f[2]);
      break;
    case "proof":
      cbor.version(f[1]);
      item.query = cbor.text(f[2]);
      break;
    case "sanitised":
      item.statement = cbor.bytes(f[1]);
      item.cells = cbor.bytes(f[2]);
      break;
    case "explain":
      item.seal = cbor.bytes(f[1]);
      item.digests = cbor.bytes(f[2]);
      break;
  }
  return item;
}

function readPart(item, f) {
  const flags = cbor.uint(f[1], 7);
  item.scheme = flags & 1;
  item.last = (flags & 2) !== 0;
  item.restart = (flags & 4) !== 0;
  item.skipped = cbor.u32(f[2]);
  item.advance = cbor.u64(f[3]);
  item.salt = cbor.bytes(f[4], 16);
  item.n = cbor.u32(f[5]);
  item.round = cbor.u8(f[6]);
  item.ownRound = cbor.u8(f[7]);
  item.lost = counts(f[8]);
  item.answered = answeredRuns(f[9]);
  [item.keys, item.groups] = keysAndGroups(f.slice(10, f.length === FIELDS[2] + 3 ? 12 : -4));
  item.blinds = f.length === FIELDS[2] + 3 ? cbor.bytes(f[12]) : Buffer.alloc(0);
  const [select, digests, events, signature] = f.slice(-4);
  item.gaps = null;
  item.mask = null;
  if (select.t === cbor.ARRAY) {
    if (select.v.length === 0) fail("FieldOutOfRange");
    // Gaps above 2^53 lose their last bits, and are past any event all the same.
    item.gaps = select.v.map((n) => Number(cbor.u64(n)));
  } else {
    item.mask = cbor.u32(select);
  }
  item.digestBytes = cbor.bytes(digests);
  item.events = cbor.bytes(events);
  item.signature = cbor.nullable(signature, cbor.bytes);
}

/** The selected events of a tree, ascending; fails as `SelectOutOfRange`. */
function fromGaps(part) {
  if (part.scheme === 0) fail("SelectOutOfRange");
  const out = [];
  let next = 0;
  for (const gap of part.gaps) {
    const seq = next + gap;
    if (seq >= part.n || part.eventLevels[seq] < part.ownRound) fail("SelectOutOfRange");
    out.push(seq);
    next = seq + 1;
  }
  return out;
}

/** The events of the levels of a mask, in the order in which the scheme has them; fails as `SelectOutOfRange`. */
export function fromMask(part, mask) {
  for (let i = 0; i < 32; i++) if ((mask >>> i) & 1 && !part.survives[i]) fail("SelectOutOfRange");
  const out = [];
  if (part.scheme === 1) {
    for (let seq = 0; seq < part.n; seq++) if ((mask >>> part.eventLevels[seq]) & 1) out.push(seq);
    return out;
  }
  const byLevel = part.counters.map(() => []);
  for (let seq = 0; seq < part.n; seq++) if ((mask >>> part.eventLevels[seq]) & 1) byLevel[part.eventLevels[seq]].push(seq);
  for (let i = byLevel.length - 1; i >= 0; i--) for (const seq of byLevel[i]) out.push(seq);
  return out;
}

/** Steps 4.10 to 4.18 of section 2: what the part states of its events. Sets the part's records. */
function checkContent(part, schema, maxEvents) {
  const { levels } = part.period;
  if (part.round > part.ownRound || part.ownRound >= levels) fail("RoundOutOfRange");
  if (part.n > maxEvents) fail("TooManyEvents");
  part.eventLevels = levelsOf(part.salt, part.n, levels);
  part.counters = countersOf(part.eventLevels, levels);
  if (part.lost.length !== 0 && (part.scheme === 1 || !lostFits(part.lost, part.counters))) fail("LostOutOfRange");
  checkKeys(part.keys, schema);
  const { groups } = schema;
  if (part.groups & ~groups || (groups !== 0 && part.groups === 0)) fail("GroupsOutOfRange");
  if (part.blinds.length !== 0) fail("BlindCount");
  part.whole = schema;
  part.schema = groups === 0 ? schema : project(schema, part.groups);
  part.hidden = groupList(groups & ~part.groups);
  if (part.digestBytes.length % 32 !== 0) fail("DigestCount");
  part.survives = part.counters.map((c, i) => c > 0 && i >= part.ownRound && !part.lost[i]);
  part.seqs = part.gaps === null ? fromMask(part, part.mask) : fromGaps(part);
  part.digests = [];
  for (let p = 0; p < part.digestBytes.length; p += 32) part.digests.push(part.digestBytes.subarray(p, p + 32));
  let needed;
  if (part.scheme === 1) {
    needed = proofLength(part.n, part.seqs);
    part.siblings = needed;
    if (groups !== 0 && part.seqs.length > 0) needed = needed * groupList(part.groups).length + part.hidden.length;
  } else {
    const has = contained(part.mask, part.survives);
    part.replacing = has.levels.length + (has.below ? 1 : 0);
    needed = part.replacing + part.hidden.length * part.counters.filter((_, i) => (part.mask >>> i) & 1).length;
  }
  if (part.digests.length !== needed) fail("DigestCount");
  part.records = splitRecords(part.schema, part.events, part.seqs.length);
  if (part.records === null) fail("EventsLength");
  if (schema.version === 2) part.records.forEach((record) => checkRecord(part.schema, record));
}

/** The groups of a set, ascending. */
function groupList(set) {
  return [0, 1, 2, 3, 4, 5, 6, 7].filter((group) => (set >> group) & 1);
}

/** The encoded cells of a group in records of a part. */
function cellsIn(part, group, records) {
  const of = project(part.schema, 1 << group);
  return records.map((record) => framed(of, cellsOfGroup(part.schema, group, record)));
}

/** `D_i` of a level of a star with column groups (groups.md, sections 3 and 5). */
function groupedBlock(part, level, records) {
  const before = part.counters.filter((_, i) => i < level && (part.mask >>> i) & 1).length;
  let next = part.replacing + before * part.hidden.length;
  const digests = groupList(part.allGroups).map((group) => {
    if (part.hidden.includes(group)) return part.digests[next++];
    return groupDigest(part.device, part.index, level, group, Buffer.concat(cellsIn(part, group, records)));
  });
  return levelDigest(digests);
}

/** The root of a tree with column groups (groups.md, sections 4 and 5). */
function groupedRoot(part) {
  if (part.n > 0 && part.seqs.length === 0) return part.digests[0];
  let next = 0;
  const roots = groupList(part.allGroups).map((group) => {
    if (part.n > 0 && part.hidden.includes(group)) return part.digests[next++];
    const leaves = part.records.map((record) => leafHash(cellsOfGroup(part.schema, group, record)));
    const proof = part.digests.slice(next, next + part.siblings);
    next += part.siblings;
    return proofRoot(part.n, part.seqs, leaves, proof);
  });
  return groupsRoot(roots);
}

/** The digests of the blocks of a star that the part contains: `D_i` by level. */
export function blocksOf(part) {
  const digests = new Array(part.counters.length);
  let p = 0;
  for (let i = part.counters.length - 1; i >= 0; i--) {
    if (!((part.mask >>> i) & 1)) continue;
    const records = part.records.slice(p, p + part.counters[i]);
    p += part.counters[i];
    digests[i] =
      part.allGroups === 0
        ? blockDigest(part.device, part.index, i, Buffer.concat(records.map((r) => framed(part.schema, r))))
        : groupedBlock(part, i, records);
  }
  return digests;
}

function rootOfPart(part) {
  if (part.scheme === 1 && part.allGroups !== 0) return groupedRoot(part);
  if (part.scheme === 1) return proofRoot(part.n, part.seqs, part.records.map(leafHash), part.digests);
  const { b, below, levels } = contained(part.mask, part.survives);
  const digests = blocksOf(part);
  levels.forEach((level, k) => (digests[level] = part.digests[k + (below ? 1 : 0)]));
  const start = below ? part.digests[0] : chain(part.counters, [], 0, b, null);
  return chain(part.counters, digests, b, part.counters.length, start);
}

/** The reader of a stream. `known` finds the digest of a device's seal by index, for open items without `prev`. */
class Reader {
  constructor(bytes, roster, options) {
    this.bytes = bytes;
    this.roster = roster;
    this.maxEvents = options.maxEvents ?? DEFAULT_MAX_EVENTS;
    this.known = options.known ?? (() => undefined);
    this.unverified = options.unverified === true;
    this.schema = null;
    this.open = null;
    this.endRun();
  }

  endRun() {
    this.run = [];
    this.itemBytes = 0;
    this.recordBytes = 0;
    this.runEvents = 0;
  }

  /** Section 1.4, rule 5, of an item that is not a part. */
  count(item) {
    const countsAlways = ["schema", "open", "sanitised"].includes(item.kind);
    if (this.run.length > 0 || countsAlways) this.itemBytes += item.end - item.start;
    if (this.itemBytes > MAX_RUN_ITEMS) fail("RunTooLong");
  }

  openDevice(item) {
    if (this.run.length > 0) fail("Unsigned");
    const id = item.device.toString("hex");
    const member = this.roster.devices.get(id);
    if (member === undefined) fail("UnknownDevice");
    if (item.version >= this.roster.versions.length) fail("UnknownRoster");
    let { prev } = item;
    if (item.prevIndex === null) {
      const first = member.terms[0].certificate.object.digest;
      if (prev !== null && !prev.equals(first)) fail("PrevMismatch");
      prev = first;
    } else if (prev === null) {
      prev = this.known(id, item.prevIndex);
      if (prev === undefined) fail("PrevUnknown");
    }
    this.open = { id, member, item, prev, prevIndex: item.prevIndex, prevEpoch: item.prevEpoch, last: false };
  }

  part(part) {
    const { roster, open } = this;
    if (open === null) fail("NoOpen");
    if (this.schema === null) fail("SchemaUnknown");
    part.index = open.prevIndex === null ? part.skipped : open.prevIndex + 1 + part.skipped;
    if (part.index > MAX_INDEX) fail("IndexOutOfRange");
    part.epoch = (open.prevEpoch ?? 0n) + part.advance;
    if (part.epoch > MAX_EPOCH || !roster.hasEpoch(part.epoch)) fail("EpochOutOfRange");
    if (part.skipped > 0 && !part.restart) fail("GapWithoutRestart");
    if (part.advance === 0n && open.last) fail("EpochClosed");
    part.period = roster.periodOf(part.epoch);
    if (open.item.version < part.period.version) fail("RosterOutdated");
    const term = roster.termOf(open.member, part.index, part.epoch);
    if (term === undefined) fail("IndexOutOfRange");
    if (roster.hasEnded(term, part.index, part.epoch)) fail("KeyEnded");
    part.device = open.item.device;
    part.id = open.id;
    part.member = open.member;
    part.allGroups = this.schema.groups;
    part.certificate = term.certificate;
    checkContent(part, this.schema, this.maxEvents);
    const { alg } = term.certificate;
    if (part.signature !== null && part.signature.length !== SUITES[alg].signature) fail("MalformedSignature");
    this.addToRun(part);
    part.prev = open.prev;
    part.prevIndex = open.prevIndex;
    part.prevEpoch = open.prevEpoch;
    part.root = rootOfPart(part);
    part.statement = {
      scheme: part.scheme,
      group: roster.group,
      roster: roster.versions[open.item.version],
      device: part.device,
      index: part.index,
      prev: part.prev,
      prevIndex: part.prevIndex,
      epoch: part.epoch,
      prevEpoch: part.prevEpoch,
      last: part.last,
      restart: part.restart,
      schema: this.schema.digest,
      salt: part.salt,
      round: part.round,
      ownRound: part.ownRound,
      counters: part.counters,
      lost: part.lost,
      answered: part.answered,
      keys: part.keys,
      groups: part.allGroups,
    };
    const signed = sigStructure(sealHeader(alg, part.statement), part.root);
    part.digest = sha256(signed);
    open.prev = part.digest;
    open.prevIndex = part.index;
    open.prevEpoch = part.epoch;
    open.last = part.last;
    if (part.signature === null) return null;
    if (!this.unverified) verifySignature(alg, term.certificate.key, signed, part.signature);
    const parts = this.run;
    this.endRun();
    return { kind: "run", parts };
  }

  addToRun(part) {
    this.itemBytes += part.end - part.start;
    this.recordBytes += part.events.length;
    if (this.run.length >= MAX_RUN_PARTS || this.recordBytes > MAX_RUN_RECORDS || this.itemBytes > MAX_RUN_ITEMS) fail("RunTooLong");
    if (this.runEvents > MAX_RUN_EVENTS) fail("RunTooLong");
    this.runEvents += part.n;
    this.run.push(part);
  }

  *items() {
    let p = 0;
    while (p < this.bytes.length) {
      const item = readItem(itemNode(this.bytes, p));
      p = item.end;
      if (item.kind === "part") {
        const run = this.part(item);
        if (run !== null) yield run;
        continue;
      }
      this.count(item);
      switch (item.kind) {
        case "schema":
          this.schema = openSchema(item.bytes);
          break;
        case "open":
          this.openDevice(item);
          break;
        case "end":
        case "manifest":
          if (this.run.length > 0) fail("Unsigned");
          if (item.kind === "manifest") item.manifest = openManifest(item.bytes, this.roster);
          break;
      }
      yield item;
    }
    if (this.run.length > 0 && !this.unverified) fail("Unsigned");
    if (this.run.length > 0) yield { kind: "run", parts: this.run };
  }
}

/**
 * Reads a stream item by item: yields each item that is not a part, after its checks, and each proven run as {kind: "run", parts}.
 * Options: `maxEvents`, `known(device id, index)`, and `unverified`, which yields runs that no signature proves, for an explanation.
 */
export function readStream(bytes, roster, options = {}) {
  return new Reader(bytes, roster, options).items();
}

/** The rows of a part by ascending event: event, level, record. */
export function rowsOf(part) {
  const rows = part.seqs.map((seq, i) => [seq, part.eventLevels[seq], part.records[i]]);
  return rows.sort((a, b) => a[0] - b[0]);
}

// ---------------------------------------------------------------- files

/** Section 1.5, rules 6 to 8: the lowest round from which a part is whole. */
function wholeFrom(part, rounds) {
  if (part.mask === null || part.hidden.length > 0) fail("NotWhole");
  let r = 0;
  part.survives.forEach((survives, i) => {
    if (survives && !((part.mask >>> i) & 1)) r = i + 1;
  });
  for (let i = 0; i < r; i++) if ((part.mask >>> i) & 1) fail("NotWhole");
  if (r > 0 && (part.period.budget === null || !(rounds.get(part.epoch) >= r))) fail("NotWhole");
  return r;
}

/** Section 1.5: a file of bundles. Returns its parts with their `from`. */
export function readFile(bytes, roster, options) {
  const rounds = new Map();
  const parts = [];
  for (const item of readStream(bytes, roster, options)) {
    if (item.kind === "manifest") {
      const { epoch, round } = item.manifest;
      if (!(rounds.get(epoch) >= round)) rounds.set(epoch, round);
    } else if (item.kind === "run") {
      for (const part of item.parts) parts.push({ part, from: wholeFrom(part, rounds) });
    }
  }
  if (parts.length === 0) fail("NotWhole");
  return parts;
}
