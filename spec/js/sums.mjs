// Private sums (sums.md): keys, encryption, opening, participation, frames and query schedules.

import { openSingle, senderId } from "./cast.mjs";
import * as cbor from "./cbor.mjs";
import { be32, be64, big, chacha20Block, hmac, little, power, sha256 } from "./crypto.mjs";
import { fail } from "./fail.mjs";
import { fieldsOf, linkSecret, openTagged } from "./link.mjs";

const P = (1n << 256n) - 189n;
const SHARE = 1n << 160n;
const MAX_VALUE = (1n << 96n) - 1n;
const RECORD = 32;

// ---------------------------------------------------------------- keys, encryption, opening: sections 1 and 2

export const deviceSecret = (master, group, device) => hmac(master, "moteseal/1/sum/device", group, device);
export const keyGroupSecret = (master, group, number) => hmac(master, "moteseal/1/sum/keygroup", group, be32(number));

/** The block of a secret for a slot of a query in an epoch. */
function block(secret, query, slot, epoch) {
  const nonce = Buffer.alloc(12);
  nonce.writeBigUInt64LE(epoch, 4);
  return chacha20Block(hmac(secret, "moteseal/1/sum/query", query), slot, nonce);
}

function deviceValues(secret, query, slot, epoch) {
  const b = block(secret, query, slot, epoch);
  return { k: little(b.subarray(0, 32)) % P, s: little(b.subarray(32, 52)) };
}

function keyGroupValue(secret, query, slot, epoch) {
  const v = little(block(secret, query, slot, epoch).subarray(0, 32)) % P;
  return v === 0n ? 1n : v;
}

export function encrypt(deviceKey, keyGroupKey, query, slot, epoch, value) {
  if (value >= MAX_VALUE) fail("ValueTooLarge");
  const { k, s } = deviceValues(deviceKey, query, slot, epoch);
  const psr = (keyGroupValue(keyGroupKey, query, slot, epoch) * (value * SHARE + s) + k) % P;
  return Buffer.from(psr.toString(16).padStart(64, "0"), "hex");
}

/** The number that a source adds to its record: section 2.3. */
export function maskOf(root, group, query, slot, epoch, position, first, end) {
  const number = (place) => {
    const secret = hmac(root, "moteseal/1/sum/mask", group, be32(place));
    return little(block(secret, query, slot, epoch).subarray(0, 32)) % P;
  };
  const mask = (number(position) + P - number(position > first ? position - 1 : end - 1)) % P;
  return Buffer.from(mask.toString(16).padStart(64, "0"), "hex");
}

/** The tag of a refusal: section 4.1. */
export const refusalTag = (master, group, device, query, epoch, reason) =>
  hmac(deviceSecret(master, group, device), "moteseal/1/sum/refusal", query, be64(epoch), reason).subarray(0, 8);

function checkRecord(record) {
  if (record.length !== RECORD) fail("TruncatedPsr");
  if (big(record) >= P) fail("NotCanonical");
}

/** The sum of the participants' values, from the records that are added up. */
export function openSum(master, group, keyGroup, query, slot, epoch, vmax, participants, records) {
  let sum = 0n;
  for (const record of records) {
    checkRecord(record);
    sum += big(record);
  }
  let shares = 0n;
  for (const device of participants) {
    const { k, s } = deviceValues(deviceSecret(master, group, device), query, slot, epoch);
    sum -= k;
    shares += s;
  }
  const key = keyGroupValue(keyGroupSecret(master, group, keyGroup), query, slot, epoch);
  const m = (((sum % P) + P) * power(key, P - 2n, P)) % P;
  const r = m - shares;
  if (r < 0n || r % SHARE !== 0n) fail("SharesMismatch");
  const value = r / SHARE;
  if (value > BigInt(participants.length) * vmax) fail("SumOutOfRange");
  return value;
}

// ---------------------------------------------------------------- participation: section 5

const MAX_POSITION = 2 ** 31;
const MAX_HEAD = 2 ** 32;

function leb128(value) {
  const out = [];
  let v = value;
  do {
    const rest = Math.floor(v / 128);
    out.push((v % 128) + (rest > 0 ? 128 : 0));
    v = rest;
  } while (v > 0);
  return out;
}

/** The encoding of runs [start, end), which are ascending and do not touch. */
export function encodeParticipants(runs) {
  if (runs.length === 0) return Buffer.alloc(0);
  const asRuns = [];
  runs.forEach(([start, end], i) => {
    asRuns.push(...leb128(i === 0 ? start * 2 : start - runs[i - 1][1] - 1), ...leb128(end - start - 1));
  });
  const base = Math.floor(runs[0][0] / 8);
  const size = Math.floor((runs[runs.length - 1][1] - 1) / 8) - base + 1;
  const head = leb128(base * 2 + 1);
  if (asRuns.length <= head.length + size) return Buffer.from(asRuns);
  const bitmap = Buffer.alloc(size);
  for (const [start, end] of runs) for (let p = start; p < end; p++) bitmap[(p >> 3) - base] |= 1 << (p & 7);
  return Buffer.concat([Buffer.from(head), bitmap]);
}

function readRuns(bytes) {
  let p = 0;
  const next = () => {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      if (p >= bytes.length || shift > 28) fail("MalformedParticipation");
      const b = bytes[p++];
      value += (b & 127) * 2 ** shift;
      if (b < 128) {
        if (value >= MAX_HEAD) fail("MalformedParticipation");
        return value;
      }
    }
  };
  const head = next();
  const runs = [];
  if (head % 2 === 1) {
    const base = (head - 1) / 2;
    for (let i = 0; p + i < bytes.length; i++) {
      for (let bit = 0; bit < 8; bit++) {
        if (!((bytes[p + i] >> bit) & 1)) continue;
        const position = 8 * (base + i) + bit;
        const last = runs[runs.length - 1];
        if (last !== undefined && last[1] === position) last[1]++;
        else runs.push([position, position + 1]);
      }
    }
    return runs;
  }
  let start = head / 2;
  for (;;) {
    const end = start + next() + 1;
    if (end > MAX_POSITION) fail("MalformedParticipation");
    runs.push([start, end]);
    if (p === bytes.length) return runs;
    start = end + next() + 1;
  }
}

/** The runs of a set of positions below `sources`. */
export function readParticipation(bytes, sources) {
  if (bytes.length === 0) return [];
  const runs = readRuns(bytes);
  if (runs.length > 0 && runs[runs.length - 1][1] > MAX_POSITION) fail("MalformedParticipation");
  if (!encodeParticipants(runs).equals(bytes)) fail("MalformedParticipation");
  if (runs[runs.length - 1][1] > sources) fail("UnknownPosition");
  return runs;
}

// ---------------------------------------------------------------- frames: section 4

const recordsOf = (node) => cbor.array(node).map((n) => cbor.bytes(n));

/** A frame of a child. */
export function openShare(frame, secret, group, child) {
  const out = openTagged(frame, linkSecret(secret, group, child), "up", (item) => {
    const f = fieldsOf(item, { 4: [5], 5: [7], 6: [6] });
    const head = { query: cbor.bytes(f[1], 4), epoch: cbor.u64(f[2]) };
    if (f[0].v === 4) return { frame: "share", ...head, participation: cbor.bytes(f[3]), psrs: recordsOf(f[4]) };
    if (f[0].v === 6) {
      const refusal = { frame: "refusal", ...head, position: cbor.u32(f[3]), reason: cbor.text(f[4]), tag: cbor.bytes(f[5], 8) };
      if (!/^[0-9A-Za-z]{1,40}$/.test(refusal.reason)) fail("Malformed");
      return refusal;
    }
    const children = { frame: "children", ...head, node: cbor.bytes(f[3], 8), first: cbor.u32(f[4]), total: cbor.u32(f[5]) };
    children.children = cbor.array(f[6]).map((n) => {
      const c = cbor.array(n, 3);
      return [cbor.bytes(c[0], 8), cbor.bytes(c[1]), recordsOf(c[2])];
    });
    return children;
  });
  if (out.frame === "refusal") return out;
  const lists = out.frame === "share" ? [out.psrs] : out.children.map((c) => c[2]);
  for (const list of lists) list.forEach(checkRecord);
  return out;
}

/** A parent's question to a child. */
export function openExplain(frame, secret, group, child) {
  return openTagged(frame, linkSecret(secret, group, child), "down", (item) => {
    const f = fieldsOf(item, { 18: [5] });
    return { query: cbor.bytes(f[1], 4), epoch: cbor.u64(f[2]), node: cbor.bytes(f[3], 8), first: cbor.u32(f[4]) };
  });
}

// ---------------------------------------------------------------- query schedules: section 3

const SCHEDULE = 2;
const MAX_QUERIES = 4;
const MAX_PLAN = 1840;

export function openSchedule(bytes, group, roster, alg, key) {
  const { head, message } = openSingle(bytes, group, senderId("querier"), alg, key);
  if (head.kind !== SCHEDULE) fail("WrongKind");
  const f = cbor.versioned(cbor.single(message), 5);
  const digest = cbor.bytes(f[1], 32);
  const sources = cbor.u32(f[2]);
  const keyGroup = cbor.u32(f[3]);
  const queries = cbor.array(f[4]).map((n) => {
    const q = cbor.array(n, 4);
    return { nonce: cbor.bytes(q[0], 16), first: cbor.u64(q[1]), until: cbor.u64(q[2]), plan: cbor.bytes(q[3]) };
  });
  if (!digest.equals(roster)) fail("WrongRoster");
  if (sources === 0 || keyGroup === 0 || queries.length > MAX_QUERIES) fail("FieldOutOfRange");
  if (queries.some((q) => q.first >= q.until || q.plan.length > MAX_PLAN)) fail("FieldOutOfRange");
  const posed = queries.map(({ nonce, first, until, plan }) => {
    const id = sha256(Buffer.concat([Buffer.from("moteseal/1/query"), roster, nonce, plan])).subarray(0, 16);
    return { id, first, until, plan };
  });
  if (new Set(posed.map((q) => q.id.toString("hex", 0, 4))).size !== posed.length) fail("AmbiguousQuery");
  return { digest: head.first, number: head.number, sources, key_group: keyGroup, queries: posed };
}
