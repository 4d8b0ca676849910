// Signed objects (objects.md, section 2), the seal's statement (section 6.1), urgent events (section 7) and receipts (section 8).

import * as cbor from "./cbor.mjs";
import { checkKeys, keysOf } from "./confidential.mjs";
import { checkKey, checkKeyLength, sha256, suiteOf, SUITES, verifySignature } from "./crypto.mjs";
import { Fail, fail } from "./fail.mjs";
import { checkRecord } from "./schema.mjs";
import { pathRoot } from "./tree.mjs";

export const TYP_SEAL = "moteseal-seal+cose";
export const TYP_EVENT = "moteseal-event+cose";
export const TYP_READING = "moteseal-reading+cose";
export const TYP_CERTIFICATE = "moteseal-cert+cose";
export const TYP_ROSTER = "moteseal-roster+cose";
export const TYP_ROUND = "moteseal-round+cose";
export const TYP_MANIFEST = "moteseal-manifest+cose";
export const TYP_TIME = "moteseal-time+cose";
export const TYP_POLICY = "moteseal-policy+cose";
export const TYP_GRANT = "moteseal-grant+cose";
export const TYP_SANITISED = "moteseal-sanitised+cose";

const TAG_SIGN1 = 18;
const LABEL_ALG = 1n;
const LABEL_CRIT = 2n;
const LABEL_CONTENT = 3n;
const LABEL_TYP = 16n;
const LABEL_VDS = 395n;
const LABEL_STATEMENT = -70001n;
const SIGNATURE1 = cbor.encodeText("Signature1");
const EMPTY = cbor.encodeBytes(Buffer.alloc(0));

/** The signed bytes of an object: section 2, rule 5. */
export function sigStructure(protectedBytes, payload) {
  return cbor.encodeArray([SIGNATURE1, cbor.encodeBytes(protectedBytes), EMPTY, cbor.encodeBytes(payload)]);
}

/** The entries of a protected header: section 2.1, step 2. */
function header(bytes, typ) {
  const map = cbor.single(bytes);
  if (map.t !== cbor.MAP) fail("UnexpectedType");
  const out = { alg: undefined, typ: undefined, vds: false, statement: undefined, content: undefined };
  for (let i = 0; i < map.v.length; i += 2) {
    const key = map.v[i];
    const value = map.v[i + 1];
    const label = key.t === cbor.UINT || key.t === cbor.NINT ? BigInt(key.v) : null;
    if (label === LABEL_CRIT) fail("UnknownCritical");
    else if (label === LABEL_ALG) out.alg = cbor.i64(value);
    else if (label === LABEL_CONTENT && typ === TYP_READING) out.content = cbor.u16(value);
    else if (label === LABEL_TYP) out.typ = cbor.text(value);
    else if (label === LABEL_VDS) {
      if (cbor.u64(value) !== 1n) fail("UnexpectedHeader");
      out.vds = true;
    } else if (label === LABEL_STATEMENT) out.statement = value;
    else fail("UnexpectedHeader");
  }
  return out;
}

/** Section 2.1, step 3. Returns the suite. */
function fit(head, typ) {
  if (head.typ !== typ) fail("WrongType");
  const alg = head.alg === undefined ? undefined : suiteOf(head.alg);
  if (alg === undefined) fail("UnknownAlgorithm");
  const wantsStatement = typ === TYP_SEAL || typ === TYP_EVENT || typ === TYP_READING;
  if ((head.statement !== undefined) !== wantsStatement) fail("UnexpectedHeader");
  if ((head.content !== undefined) !== (typ === TYP_READING)) fail("UnexpectedHeader");
  if (head.vds && typ !== TYP_SEAL) fail("UnexpectedHeader");
  return alg;
}

/** Section 2.1, steps 1 to 3. The payload of a signed reading is detached. */
export function openObject(bytes, typ, detached) {
  const tag = cbor.single(bytes);
  if (tag.t !== cbor.TAG || tag.v !== TAG_SIGN1) fail("UnexpectedType");
  const fields = cbor.array(tag.c, 4);
  const protectedBytes = cbor.bytes(fields[0]);
  if (fields[1].t !== cbor.MAP) fail("UnexpectedType");
  if (fields[1].v.length !== 0) fail("UnexpectedHeader");
  if (detached !== undefined && !cbor.isNull(fields[2])) fail("UnexpectedType");
  const payload = detached ?? cbor.bytes(fields[2]);
  const signature = cbor.bytes(fields[3]);
  const head = header(protectedBytes, typ);
  const alg = fit(head, typ);
  const signed = sigStructure(protectedBytes, payload);
  return { alg, vds: head.vds, content: head.content, statement: head.statement, protectedBytes, payload, signature, signed, digest: sha256(signed) };
}

/** Section 2.1, step 5. */
export function verifyObject(object, alg, key) {
  if (object.alg !== alg) fail("AlgorithmMismatch");
  verifySignature(alg, key, object.signed, object.signature);
}

// ---------------------------------------------------------------- the statement of a seal

const MAX_LEVELS = 32;
const MAX_ANSWERED = 8;
const U64 = 0xffffffffffffffffn;

export function counts(node) {
  const list = cbor.array(node);
  if (list.length > MAX_LEVELS) fail("FieldOutOfRange");
  return list.map(cbor.u32);
}

/** Section 6.1, rules 11 to 13. */
export function answeredRuns(node) {
  const list = cbor.array(node);
  if (list.length > MAX_ANSWERED) fail("FieldOutOfRange");
  const runs = list.map((run) => {
    const fields = cbor.array(run, 3);
    const query = cbor.bytes(fields[0], 16);
    const first = cbor.u64(fields[1]);
    const count = cbor.u32(fields[2]);
    if (count === 0 || first + BigInt(count) > U64) fail("FieldOutOfRange");
    return { query, first, count };
  });
  const ends = new Map();
  for (const { query, first, count } of runs) {
    const id = query.toString("latin1");
    const end = ends.get(id);
    if (end !== undefined && first <= end) fail("FieldOutOfRange");
    ends.set(id, first + BigInt(count));
  }
  return runs;
}

/** Both null or both not: checked as soon as both have been read (section 1.3, rule 6). */
export function checkPair(a, b) {
  if ((a === null) !== (b === null)) fail("FieldOutOfRange");
}

export function statementOf(node) {
  const f = cbor.versionedWithGroups(node, 19);
  const s = {};
  s.scheme = cbor.uint(f[1], 1);
  s.group = cbor.bytes(f[2], 8);
  s.roster = cbor.bytes(f[3], 32);
  s.device = cbor.bytes(f[4], 8);
  s.index = cbor.u32(f[5]);
  s.prev = cbor.bytes(f[6], 32);
  s.prevIndex = cbor.nullable(f[7], cbor.u32);
  s.epoch = cbor.u64(f[8]);
  s.prevEpoch = cbor.nullable(f[9], cbor.u64);
  checkPair(s.prevIndex, s.prevEpoch);
  s.last = cbor.bool(f[10]);
  s.restart = cbor.bool(f[11]);
  s.schema = cbor.bytes(f[12], 32);
  s.salt = cbor.bytes(f[13], 16);
  s.round = cbor.u8(f[14]);
  s.ownRound = cbor.u8(f[15]);
  s.counters = counts(f[16]);
  if (s.counters.length === 0) fail("FieldOutOfRange");
  s.lost = counts(f[17]);
  s.answered = answeredRuns(f[18]);
  [s.keys, s.groups] = keysAndGroups(f.slice(19));
  if (s.groups === 1) fail("FieldOutOfRange");
  if (s.prevIndex !== null && (s.index <= s.prevIndex || s.epoch < s.prevEpoch)) fail("FieldOutOfRange");
  if (s.round > s.ownRound || s.ownRound >= s.counters.length) fail("FieldOutOfRange");
  if (s.counters.reduce((a, b) => a + b, 0) > 0xffffffff) fail("FieldOutOfRange");
  if (s.lost.length !== 0 && (s.scheme === 1 || !lostFits(s.lost, s.counters))) fail("FieldOutOfRange");
  return s;
}

/** The optional fields of a statement or part: none, keys, or keys or null and groups. */
export function keysAndGroups(f) {
  if (f.length === 0) return [null, 0];
  if (f.length === 1) return [keysOf(f[0]), 0];
  const keys = cbor.nullable(f[0], keysOf);
  const groups = cbor.u8(f[1]);
  if (!(groups & 1)) fail("FieldOutOfRange");
  return [keys, groups];
}

export function lostFits(lost, counters) {
  return lost.length === counters.length && lost.some((v) => v > 0) && lost.every((v, i) => v <= counters[i]);
}

export function encodeStatement(s) {
  const counted = (list) => cbor.encodeArray(list.map(cbor.encodeUint));
  const optional = (v) => (v === null ? cbor.encodeNull() : cbor.encodeUint(v));
  return cbor.encodeArray([
    cbor.encodeUint(s.groups !== 0 ? 3 : s.keys === null ? 1 : 2),
    cbor.encodeUint(s.scheme),
    cbor.encodeBytes(s.group),
    cbor.encodeBytes(s.roster),
    cbor.encodeBytes(s.device),
    cbor.encodeUint(s.index),
    cbor.encodeBytes(s.prev),
    optional(s.prevIndex),
    cbor.encodeUint(s.epoch),
    optional(s.prevEpoch),
    cbor.encodeBool(s.last),
    cbor.encodeBool(s.restart),
    cbor.encodeBytes(s.schema),
    cbor.encodeBytes(s.salt),
    cbor.encodeUint(s.round),
    cbor.encodeUint(s.ownRound),
    counted(s.counters),
    counted(s.lost),
    cbor.encodeArray(
      s.answered.map((r) => cbor.encodeArray([cbor.encodeBytes(r.query), cbor.encodeUint(r.first), cbor.encodeUint(r.count)])),
    ),
    ...(s.keys !== null ? [cbor.encodeBytes(s.keys)] : s.groups !== 0 ? [cbor.encodeNull()] : []),
    ...(s.groups !== 0 ? [cbor.encodeUint(s.groups)] : []),
  ]);
}

const ENTRY_TYP = Buffer.concat([cbor.encodeUint(16), cbor.encodeText(TYP_SEAL)]);
const ENTRY_VDS = Buffer.concat([cbor.encodeUint(395), cbor.encodeUint(1)]);
const KEY_STATEMENT = cbor.encodeInt(LABEL_STATEMENT);

/** The protected header of a seal, rebuilt. */
export function sealHeader(alg, statement) {
  const entries = [cbor.encodeUint(1), cbor.encodeInt(SUITES[alg].cose), ENTRY_TYP];
  const isTree = isPlainTree(statement);
  if (isTree) entries.push(ENTRY_VDS);
  entries.push(KEY_STATEMENT, encodeStatement(statement));
  return Buffer.concat([cbor.head(cbor.MAP, isTree ? 4 : 3), ...entries]);
}

/** Whether the root is that of one tree as in RFC 9162: a tree without column groups. */
function isPlainTree(statement) {
  return statement.scheme === 1 && statement.groups === 0;
}

/** Section 2.1, steps 1 to 4, of a seal. */
export function openSeal(bytes) {
  const object = openObject(bytes, TYP_SEAL);
  const statement = statementOf(object.statement);
  if (object.payload.length !== 32) fail("UnexpectedType");
  if (object.vds !== isPlainTree(statement)) fail("UnexpectedHeader");
  return { object, statement };
}

// ---------------------------------------------------------------- urgent events

const MAX_RECORD = 65535;

/** Section 7. `schema` is the stream schema, or null if the receiver does not have it. */
export function openUrgent(bytes, roster, schema = null) {
  const object = openObject(bytes, TYP_EVENT);
  const f = cbor.versionedWithMore(object.statement, 8);
  if (object.payload.length > MAX_RECORD) fail("FieldOutOfRange");
  const group = cbor.bytes(f[1], 8);
  cbor.bytes(f[2], 32);
  const device = cbor.bytes(f[3], 8);
  const index = cbor.u32(f[4]);
  const epoch = cbor.u64(f[5]);
  const seq = cbor.u64(f[6]);
  const digest = cbor.bytes(f[7], 32);
  const keys = f.length > 8 ? keysOf(f[8]) : null;
  if (!group.equals(roster.group)) fail("WrongGroup");
  const member = roster.devices.get(device.toString("hex"));
  const term = member && roster.termOf(member, index, epoch);
  if (!term) fail("UnknownDevice");
  verifyObject(object, term.certificate.alg, term.certificate.key);
  if (schema !== null) {
    if (!digest.equals(schema.digest)) fail("SchemaUnknown");
    if (!roster.hasEpoch(epoch)) fail("EpochOutOfRange");
    checkKeys(keys, schema);
    checkRecord(schema, object.payload);
  }
  return { device, index, seq, record: object.payload };
}

// ---------------------------------------------------------------- receipts

const LABEL_PROOFS = 396;

/** Section 8, rule 3: RFC 9942 alone. Returns the root. */
export function openReceipt(bytes, record, alg, key) {
  try {
    checkKeyLength(alg, key);
    checkKey(alg, key);
    const tag = cbor.single(bytes);
    if (tag.t !== cbor.TAG || tag.v !== TAG_SIGN1) fail("UnexpectedType");
    const fields = cbor.array(tag.c, 4);
    const protectedBytes = cbor.bytes(fields[0]);
    const outer = oneEntry(fields[1], cbor.UINT, LABEL_PROOFS);
    const proofs = cbor.array(oneEntry(outer, cbor.NINT, -1), 1);
    if (!cbor.isNull(fields[2])) fail("UnexpectedType");
    const signature = cbor.bytes(fields[3]);
    const proof = cbor.array(cbor.single(cbor.bytes(proofs[0])), 3);
    const size = cbor.u64(proof[0]);
    const seq = cbor.u64(proof[1]);
    const path = cbor.array(proof[2]).map((n) => cbor.bytes(n, 32));
    if (path.length === 0) fail("PathEmpty");
    const head = header(protectedBytes);
    if (fit(head, TYP_SEAL) !== alg || !head.vds) fail("WrongType");
    const root = pathRoot(size, seq, sha256(Buffer.from([0]), record), path);
    verifySignature(alg, key, sigStructure(protectedBytes, root), signature);
    return root;
  } catch (e) {
    if (e instanceof Fail) fail("ReceiptRefused");
    throw e;
  }
}

/** The value of the only entry of a map. */
function oneEntry(node, type, label) {
  if (node.t !== cbor.MAP || node.v.length !== 2) fail("UnexpectedHeader");
  if (node.v[0].t !== type || node.v[0].v !== label) fail("UnexpectedHeader");
  return node.v[1];
}
