// Queries and which events a choice selects (answers.md, sections 3 and 4).

import { be64, chacha12, sha256 } from "./crypto.mjs";
import { fail } from "./fail.mjs";

const U64 = 0xffffffffffffffffn;
const TWO32 = 4294967296;
const RATE = /^([0-9]{1,18})(?:([./])([0-9]{1,18}))?$/;
const MAX_RATE_BITS = 31n;

/** Section 3.2; null if the text is not a rate. */
export function parseRate(text) {
  const m = typeof text === "string" ? RATE.exec(text) : null;
  if (m === null) return null;
  let num = BigInt(m[1]);
  let den = 1n;
  if (m[2] === "/") {
    den = BigInt(m[3]);
  } else if (m[2] === ".") {
    den = 10n ** BigInt(m[3].length);
    num = num * den + BigInt(m[3]);
  }
  if (den === 0n || num > den || (num << MAX_RATE_BITS) / den === 0n) return null;
  return { num, den };
}

/** Section 4.1, rule 1: the mask of the levels of a rate; fails as `RateUnavailable` if it rounds to 0. */
export function rateMask(rate, levels) {
  let d = levels - 1;
  let k = (rate.num << BigInt(d)) / rate.den;
  if (k === 0n) fail("RateUnavailable");
  if (rate.num === rate.den) return 0xffffffff >>> (32 - levels);
  while ((k & 1n) === 0n) {
    k >>= 1n;
    d--;
  }
  let mask = 0;
  for (let i = d; i < levels; i++) mask |= 1 << i;
  for (let j = 1; j < d; j++) if ((k >> BigInt(d - j)) & 1n) mask |= 1 << (j - 1);
  return mask >>> 0;
}

/** Section 4.2, rules 1 and 2: the levels that survive in an epoch. */
export function survivors(parts, round) {
  const levels = parts[0].counters.length;
  return Array.from({ length: levels }, (_, i) => i >= round && parts.every((p) => p.counters[i] === 0 || p.survives[i]));
}

/** Section 4.2, rule 4. `m` is a BigInt. */
export function atMostMask(parts, survives, m) {
  let left = m;
  let mask = 0;
  survives.forEach((s, i) => {
    const count = BigInt(parts.reduce((sum, p) => sum + p.counters[i], 0));
    if (!s || count > left) return;
    left -= count;
    mask |= 1 << i;
  });
  return mask >>> 0;
}

/** Section 4.3, rules 3 and 4: the drawn positions. `total` and `m` are BigInts. */
export function choose(device, epoch, seed, m, total) {
  const words = chacha12(sha256(Buffer.concat([Buffer.from("moteseal/1/perm"), seed, device, be64(epoch)])));
  const moved = new Map();
  const at = (i) => moved.get(i) ?? i;
  const out = [];
  const count = m < total ? m : total;
  for (let i = 0n; i < count; i++) {
    const rest = total - i;
    const limit = U64 + 1n - ((U64 + 1n) % rest);
    let w;
    do w = words.next().value;
    while (w >= limit);
    const j = i + (w % rest);
    out.push(at(j));
    moved.set(j, at(i));
  }
  return out;
}

/** The mask of a list of booleans. */
function maskOf(list) {
  return list.reduce((mask, v, i) => (v ? mask | (1 << i) : mask), 0) >>> 0;
}

/** Section 4.1, rules 2 and 4, and section 4.5: a part of a rate. */
export function checkRate(part, rate) {
  const mask = rateMask(rate, part.counters.length);
  part.counters.forEach((count, i) => {
    if ((mask >>> i) & 1 && count > 0 && !part.survives[i]) fail("RateUnavailable");
  });
  if (part.mask !== (mask & maskOf(part.survives)) >>> 0) fail("NotAsAsked");
}

/** Section 4.4, rule 4, and section 4.5: a part, if the query names readings. */
export function checkReadings(part, runs) {
  const named = runs.filter((run) => run.index === part.index);
  if (named.length > 0 && part.scheme !== 1) fail("SchemeMismatch");
  let at = 0;
  for (const { first, count } of named) {
    for (let seq = first; seq < first + count; seq++) if (part.gaps === null || part.seqs[at++] !== seq) fail("NotAsAsked");
  }
  if (named.length > 0 ? at !== part.seqs.length : part.mask !== 0) fail("NotAsAsked");
}

/** Sections 4.2, 4.3 and 4.5: the parts of a whole epoch, which ended at `round` (0 without a budget). */
export function checkEpoch(parts, choice, round) {
  const survives = survivors(parts, round);
  if (choice.atMost !== undefined) {
    const mask = atMostMask(parts, survives, choice.atMost);
    for (const p of parts) if (p.mask !== (mask & maskOf(p.survives)) >>> 0) fail("NotAsAsked");
    return;
  }
  if (parts.some((p) => p.scheme !== 1)) fail("SchemeMismatch");
  // Each is its part's place times 2^32, plus its sequence number: pairs would take several times the memory.
  const existing = [];
  parts.forEach((p, k) => {
    for (let seq = 0; seq < p.n; seq++) if (survives[p.eventLevels[seq]]) existing.push(k * TWO32 + seq);
  });
  const selected = parts.map(() => []);
  const { count, seed } = choice.sample;
  for (const position of choose(parts[0].device, parts[0].epoch, seed, count, BigInt(existing.length))) {
    const event = existing[Number(position)];
    selected[Math.floor(event / TWO32)].push(event % TWO32);
  }
  parts.forEach((p, k) => {
    const wanted = selected[k].sort((a, b) => a - b);
    const same =
      wanted.length === 0 ? p.mask === 0 : p.gaps !== null && wanted.length === p.seqs.length && wanted.every((s, i) => s === p.seqs[i]);
    if (!same) fail("NotAsAsked");
  });
}

// ---------------------------------------------------------------- queries

const MEMBERS = new Set(["devices", "since", "until", "rate", "at_most", "sample", "readings", "columns", "redacted", "roster"]);
const isInteger = (v) => (typeof v === "number" || typeof v === "bigint") && v >= 0 && BigInt(v) <= U64;
const isHex = (v, size) => typeof v === "string" && v.length === 2 * size && /^[0-9a-fA-F]*$/.test(v);

/** Section 4.4, rules 2 and 3: the runs of named readings; null if they are invalid. */
function readRuns(runs) {
  if (!Array.isArray(runs) || runs.length < 1 || runs.length > 8) return null;
  const out = [];
  for (const run of runs) {
    if (!Array.isArray(run) || run.length !== 3 || !run.every((v) => isInteger(v) && v < TWO32)) return null;
    const [index, first, count] = run;
    const before = out[out.length - 1];
    if (count < 1 || first + count >= TWO32) return null;
    if (before && (index < before.index || (index === before.index && first < before.first + before.count))) return null;
    out.push({ index, first, count });
  }
  return out;
}

/** Section 3.1: the query of a parsed JSON text; null if it is invalid. */
export function readQuery(json) {
  if (json === null || typeof json !== "object" || Array.isArray(json)) return null;
  if (Object.keys(json).some((name) => !MEMBERS.has(name))) return null;
  const { devices, since, until, rate, at_most: atMost, sample, readings, columns, redacted, roster } = json;
  if (!Array.isArray(devices) || devices.length === 0 || !devices.every((d) => isHex(d, 8))) return null;
  const q = { devices: devices.map((d) => d.toLowerCase()), choice: {}, roster: null };
  if (new Set(q.devices).size !== q.devices.length) return null;
  if (!isInteger(since)) return null;
  q.since = BigInt(since);
  q.open = until === undefined || until === null;
  if (!q.open && (!isInteger(until) || BigInt(until) <= q.since)) return null;
  q.until = q.open ? U64 : BigInt(until);
  const given = [rate, atMost, sample, readings, redacted].filter((v) => v !== undefined && v !== null);
  if (given.length !== 1) return null;
  q.redacted = given[0] === redacted;
  if (q.redacted && redacted !== true) return null;
  const names = columns ?? [];
  if (columns !== undefined && columns !== null && (q.redacted || !Array.isArray(columns) || columns.length === 0)) return null;
  const isName = (name) => typeof name === "string" && name.length > 0 && Buffer.byteLength(name) <= 64;
  if (names.length > 64 || !names.every(isName) || new Set(names).size !== names.length) return null;
  q.columns = names;
  if (q.redacted) {
    q.choice.redacted = true;
  } else if (given[0] === rate) {
    q.choice.rate = parseRate(rate);
    if (q.choice.rate === null) return null;
  } else if (given[0] === atMost) {
    if (!isInteger(atMost)) return null;
    q.choice.atMost = BigInt(atMost);
  } else if (given[0] === readings) {
    q.choice.readings = q.devices.length === 1 ? readRuns(readings) : null;
    if (q.choice.readings === null) return null;
  } else {
    if (typeof sample !== "object" || Array.isArray(sample)) return null;
    if (Object.keys(sample).sort().join() !== "count,seed") return null;
    const { count, seed } = sample;
    if (!isInteger(count) || count < 1 || count > 0xffffffff || !isHex(seed, 32)) return null;
    q.choice.sample = { count: BigInt(count), seed: Buffer.from(seed, "hex") };
  }
  if (roster !== undefined) {
    if (!isHex(roster, 32)) return null;
    q.roster = roster.toLowerCase();
  }
  return q;
}
