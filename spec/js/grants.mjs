// Grants, owners' files and shares (grants.md).

import { scryptSync } from "node:crypto";
import * as cbor from "./cbor.mjs";
import { columnRoot, nextSecret } from "./confidential.mjs";
import { openObject, TYP_GRANT, verifyObject } from "./cose.mjs";
import { be32, be64, hmac, sha256 } from "./crypto.mjs";
import { Fail, fail } from "./fail.mjs";

const DEPTH = 32;
const LAST = 2 ** 32 - 1;
const ZERO = Buffer.from([0]);

// ---------------------------------------------------------------- keys

/** confidential.md: KDF. */
const derive = (key, label, ...context) => hmac(key, label, ZERO, ...context);

const sizeAt = (depth) => 2 ** (DEPTH - depth);

/** The first and the last offset below a node. */
export const offsets = (node) => [node.prefix * sizeAt(node.depth), (node.prefix + 1) * sizeAt(node.depth) - 1];

function below(node, depth, prefix) {
  let { key } = node;
  for (let at = node.depth + 1; at <= depth; at++) {
    const bit = Math.floor(prefix / 2 ** (depth - at)) % 2;
    key = derive(key, "moteseal/1/node", Buffer.from([bit]));
  }
  return { depth, prefix, key };
}

/** The fewest nodes that open the offsets `first` to `last` that `nodes` open. */
export function cover(nodes, first, last) {
  const out = [];
  for (const node of nodes) {
    let [start, end] = offsets(node);
    [start, end] = [Math.max(start, first), Math.min(end, last)];
    while (start <= end) {
      let height = 0;
      while (height < DEPTH && start % 2 ** (height + 1) === 0 && start + 2 ** (height + 1) - 1 <= end) height++;
      out.push(below(node, DEPTH - height, start / 2 ** height));
      start += 2 ** height;
    }
  }
  return out;
}

function openNodes(n) {
  const list = cbor.array(n);
  if (list.length > 64) fail("FieldOutOfRange");
  let free = 0;
  return list.map((item) => {
    const f = cbor.array(item, 3);
    const [depth, prefix] = [Number(uint(f[0], 8)), Number(uint(f[1], 32))];
    const node = { depth, prefix, key: cbor.bytes(f[2], 32) };
    if (depth > DEPTH || prefix >= 2 ** depth) fail("FieldOutOfRange");
    const [start, end] = offsets(node);
    if (start < free) fail("FieldOutOfRange");
    free = end + 1;
    return node;
  });
}

function uint(n, bits) {
  const v = BigInt(cbor.u64(n));
  if (v >> BigInt(bits) !== 0n) fail("FieldOutOfRange");
  return v;
}

const big = (n) => BigInt(cbor.u64(n));
const isPlain = (text, longest) => Buffer.byteLength(text) <= longest && !/[\u0000-\u001f\u007f-\u009f]/.test(text);
const isName = (text) => text !== "" && isPlain(text, 64);
const ascends = (list) => list.every((b, i) => i === 0 || Buffer.compare(list[i - 1], b) < 0);
const place = (device, generation) => Buffer.concat([device, be32(generation)]);

// ---------------------------------------------------------------- grants

/** Section 3.1: the payload. */
function openPayload(payload) {
  const f = versionOne(cbor.single(payload), 10);
  const p = { group: cbor.bytes(f[1], 8), roster: cbor.bytes(f[2], 32), owner: cbor.bytes(f[3], 8) };
  p.time = { since: big(f[4]), until: cbor.nullable(f[5], big) };
  p.end = cbor.nullable(f[6], big);
  p.purpose = cbor.text(f[7]);
  p.recipients = f[8].t === cbor.ARRAY ? cbor.array(f[8]).map(cbor.text) : null;
  p.tag = p.recipients === null ? cbor.bytes(f[8], 32) : null;
  p.streams = cbor.array(f[9]).map((n) => {
    const g = cbor.array(n, 4);
    const stream = { device: cbor.bytes(g[0], 8), generation: cbor.u32(g[1]), base: big(g[2]) };
    stream.columns = cbor.array(g[3]).map((c) => {
      const h = cbor.array(c, 2);
      return { id: cbor.bytes(h[0], 16), nodes: openNodes(h[1]) };
    });
    return stream;
  });
  const between = (count, most) => count >= 1 && count <= most;
  if (p.recipients !== null) {
    const texts = p.recipients.map((text) => Buffer.from(text));
    if (!between(texts.length, 64) || !ascends(texts)) fail("FieldOutOfRange");
    if (!texts.every((text) => between(text.length, 128))) fail("FieldOutOfRange");
  }
  if (p.time.until !== null && p.time.since >= p.time.until) fail("FieldOutOfRange");
  const places = p.streams.map((stream) => place(stream.device, stream.generation));
  if (!isPlain(p.purpose, 256) || places.length === 0 || !ascends(places)) fail("FieldOutOfRange");
  for (const { base, columns } of p.streams) {
    if (!between(columns.length, 256) || !ascends(columns.map((c) => c.id))) fail("FieldOutOfRange");
    if (columns.some((c) => c.nodes.length === 0) || base + BigInt(LAST) >> 64n !== 0n) fail("FieldOutOfRange");
  }
  const isOfOne = (stream, i) => i >= 64 && p.streams[i - 64].device.equals(stream.device);
  if (p.streams.some(isOfOne)) fail("TooManyGenerations");
  return p;
}

function versionOne(node, count) {
  const f = cbor.array(node);
  if (f.length === 0) fail("UnexpectedType");
  cbor.version(f[0]);
  return cbor.array(node, count);
}

/** Section 4.1, steps 2 to 6. */
function verifyGrant(bytes, roster) {
  const object = openObject(bytes, TYP_GRANT);
  const payload = openPayload(object.payload);
  if (!payload.group.equals(roster.group)) fail("WrongGroup");
  if (![...roster.history, roster.digest].some((digest) => digest.equals(payload.roster))) fail("UnknownRoster");
  const owner = roster.owners.find(({ id }) => id.equals(payload.owner));
  if (owner === undefined) fail("UnknownOwner");
  try {
    verifyObject(object, owner.certificate.alg, owner.certificate.key);
  } catch (error) {
    if (error instanceof Fail && !payload.roster.equals(roster.digest)) fail("OwnerKeyChanged");
    throw error;
  }
  return { payload, owner };
}

/** Section 3.2. */
function passphraseTag(passphrase, salt) {
  const salted = Buffer.concat([Buffer.from("moteseal/1/passphrase"), ZERO, salt]);
  return Buffer.concat([salt, scryptSync(passphrase, salted, 16, { N: 1 << 15, r: 8, p: 1, maxmem: 64 << 20 })]);
}

/** Section 4.1, steps 2 to 8. */
export function openGrant(bytes, roster, recipient, passphrase, now) {
  const { payload, owner } = verifyGrant(bytes, roster);
  const { recipients, tag, end } = payload;
  const isListed =
    recipients !== null
      ? recipients.includes(recipient)
      : passphrase !== undefined && tag.equals(passphraseTag(passphrase, tag.subarray(0, 16)));
  if (!isListed) fail("NotForYou");
  if (end !== null && now > end) fail("GrantExpired");
  return { payload, owner };
}

/** Section 4.2, step 2: whether an epoch is in the granted time. */
function isWithin({ since, until }, roster, epoch) {
  const start = roster.epochStart(epoch);
  return since <= start && start >> 64n === 0n && (until === null || start + roster.periodOf(epoch).epochMs <= until);
}

/** The first epoch in the granted time, and the one after the last. */
export function epochsWithin({ since, until }, roster) {
  const first = roster.epochOf(since);
  const begin = roster.epochStart(first) < since ? first + 1n : first;
  return [begin, until === null ? (1n << 64n) - 1n : roster.epochOf(until)];
}

/** Section 4.2: the key of a column of a seal. */
export function grantKey(bytes, roster, { device, column, epoch, index, suite, nonce, commitment }) {
  const { payload } = verifyGrant(bytes, roster);
  let failure = "NotCovered";
  for (const stream of payload.streams.toReversed()) {
    const offset = Number(epoch - stream.base);
    const found = stream.columns.find(({ id }) => id.equals(column));
    if (!stream.device.equals(device) || found === undefined || offset < 0 || offset > LAST) continue;
    for (const leaf of cover(found.nodes, offset, offset)) {
      if (!isWithin(payload.time, roster, epoch)) fail("GrantOutdated");
      const context = [device, be64(epoch), be32(index), column, Buffer.from([suite]), nonce];
      const key = derive(leaf.key, "moteseal/1/seal", ...context);
      if (sha256("moteseal/1/commit", ZERO, key).subarray(0, 16).equals(commitment)) return key;
      failure = "WrongKey";
    }
  }
  return fail(failure);
}

// ---------------------------------------------------------------- owners' files

const ED25519_PKCS8 = Buffer.from("302e020100300506032b657004220420", "hex");
const checksum = (content) => sha256("moteseal/1/owner-file", ZERO, content);

/** Section 2.1. */
export function openOwner(bytes) {
  const f = versionOne(cbor.single(bytes), 3);
  const [content, check] = [cbor.bytes(f[1]), cbor.bytes(f[2], 32)];
  if (!checksum(content).equals(check)) fail("Damaged");
  const g = cbor.array(cbor.single(content), 4);
  const owner = { group: cbor.text(g[0]), name: cbor.text(g[1]), key: cbor.bytes(g[2]) };
  let last = null;
  owner.streams = cbor.array(g[3]).map((n) => {
    const h = cbor.array(n, 7);
    const s = { device: cbor.bytes(h[0], 8), generation: cbor.u32(h[1]), base: big(h[2]), step: cbor.u32(h[3]) };
    s.secret = cbor.bytes(h[4], 32);
    s.forgotten = cbor.nullable(h[5], big);
    s.columns = cbor.array(h[6]).map((c) => {
      const i = cbor.array(c, 4);
      return { id: cbor.bytes(i[0], 16), name: cbor.text(i[1]), batch: cbor.u32(i[2]), nodes: cbor.nullable(i[3], openNodes) };
    });
    const first = s.forgotten === null ? 0n : s.forgotten - s.base;
    const valid =
      (s.forgotten === null || (first > 0n && first <= BigInt(LAST))) &&
      s.step <= 256 &&
      s.step > 0 === (s.forgotten !== null) &&
      s.columns.length <= 256 &&
      ascends(s.columns.map((c) => c.id)) &&
      s.columns.every(
        (c) =>
          isName(c.name) &&
          c.batch <= 255 &&
          (c.nodes !== null) === c.batch < s.step &&
          (c.nodes === null || c.nodes.length === 0 || offsets(c.nodes[0])[0] >= Number(first)),
      );
    if (!valid) fail("FieldOutOfRange");
    const at = place(s.device, s.generation);
    const order = last === null ? -1 : Buffer.compare(last, at);
    if (order === 0) fail("DuplicateStream");
    if (order > 0) fail("FieldOutOfRange");
    last = at;
    return s;
  });
  if (!isName(owner.group) || !isName(owner.name)) fail("FieldOutOfRange");
  if (owner.key.length !== 48 || !owner.key.subarray(0, 16).equals(ED25519_PKCS8)) fail("MalformedDer");
  return owner;
}

/** Section 2.3. */
export function forget(owner, epoch) {
  if (owner.streams.some((s) => epoch > s.base + BigInt(LAST))) fail("EpochOutOfKeyRange");
  const streams = owner.streams.map((s) => {
    const start = s.forgotten ?? s.base;
    const first = epoch > start ? epoch : start;
    const isAdded = s.forgotten !== null && s.columns.some((c) => c.nodes === null);
    if (s.columns.length === 0 || (first === start && !isAdded)) return s;
    const secrets = new Map();
    let { secret } = s;
    const step = Math.max(s.step, ...s.columns.map((c) => c.batch + 1));
    for (let batch = s.step; batch < step; batch++) {
      secrets.set(batch, secret);
      secret = nextSecret(secret);
    }
    const columns = s.columns.map((c) => {
      const before = c.nodes ?? [{ depth: 0, prefix: 0, key: columnRoot(secrets.get(c.batch), c.id) }];
      return { ...c, nodes: cover(before, Number(first - s.base), LAST) };
    });
    return { ...s, step, secret, forgotten: first, columns };
  });
  return { ...owner, streams };
}

function encode(v) {
  if (v === null) return Buffer.from([0xf6]);
  if (Buffer.isBuffer(v)) return Buffer.concat([head(2, v.length), v]);
  if (typeof v === "string") return Buffer.concat([head(3, Buffer.byteLength(v)), Buffer.from(v)]);
  if (Array.isArray(v)) return Buffer.concat([head(4, v.length), ...v.map(encode)]);
  return head(0, v);
}

function head(major, value) {
  const v = BigInt(value);
  const size = [24n, 1n << 8n, 1n << 16n, 1n << 32n].findIndex((end) => v < end);
  if (size === 0) return Buffer.from([(major << 5) | Number(v)]);
  const width = size === -1 ? 8 : 1 << (size - 1);
  return Buffer.concat([Buffer.from([(major << 5) | (24 + Math.log2(width))]), be64(v).subarray(8 - width)]);
}

export function encodeOwner({ group, name, key, streams }) {
  const list = streams.map((s) => {
    const nodes = (c) => (c.nodes === null ? null : c.nodes.map((n) => [n.depth, n.prefix, n.key]));
    const columns = s.columns.map((c) => [c.id, c.name, c.batch, nodes(c)]);
    return [s.device, s.generation, s.base, s.step, s.secret, s.forgotten, columns];
  });
  const content = encode([group, name, key, list]);
  return encode([1, content, checksum(content)]);
}

// ---------------------------------------------------------------- shares

const DIGITS = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";
const BECH32M = 0x2bc830a3;
const GENERATORS = [0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3];

function polymod(values) {
  let check = 1;
  for (const value of values) {
    const top = check >>> 25;
    check = ((check & 0x1ffffff) << 5) ^ value;
    GENERATORS.forEach((generator, i) => {
      if ((top >>> i) & 1) check ^= generator;
    });
  }
  return check;
}

/** Section 5.2: a share. */
export function openShare(text) {
  if (text !== text.toLowerCase() && text !== text.toUpperCase()) fail("MalformedShare");
  const small = text.trim().toLowerCase();
  const end = small.lastIndexOf("1");
  const [prefix, data] = [small.slice(0, Math.max(end, 0)), small.slice(end + 1)];
  const values = [...data].map((letter) => DIGITS.indexOf(letter));
  if (prefix !== "moteseal-share-" || values.includes(-1) || values.length < 6) fail("MalformedShare");
  const codes = [...prefix].map((letter) => letter.charCodeAt(0));
  const expanded = [...codes.map((c) => c >> 5), 0, ...codes.map((c) => c & 31)];
  if (polymod([...expanded, ...values]) !== BECH32M) fail("MalformedShare");
  const bytes = [];
  let [pending, bits] = [0, 0];
  for (const value of values.slice(0, -6)) {
    pending = (pending << 5) | value;
    bits += 5;
    if (bits >= 8) {
      bits -= 8;
      bytes.push(pending >> bits);
      pending &= (1 << bits) - 1;
    }
  }
  if (bits >= 5 || pending !== 0) fail("MalformedShare");
  if (bytes.length > 0 && bytes[0] > 1) fail("UnsupportedShare");
  if (bytes.length !== 38 || bytes[0] !== 1 || bytes[5] < 1 || bytes[5] > 3) fail("MalformedShare");
  return { set: Buffer.from(bytes.slice(1, 5)), position: bytes[5], value: bytes.slice(6) };
}

function times(a, b) {
  let product = 0;
  for (; b > 0; b >>= 1) {
    if (b & 1) product ^= a;
    a = (a << 1) ^ (a & 0x80 ? 0x11b : 0);
  }
  return product;
}

/** Section 5.2: the secret of shares. */
export function joinShares(shares) {
  const [one] = shares;
  if (one === undefined) fail("TooFewShares");
  if (shares.some(({ set }) => !set.equals(one.set))) fail("OtherBackup");
  const other = shares.find(({ position }) => position !== one.position);
  if (other === undefined) fail("TooFewShares");
  let inverse = 1;
  while (times(inverse, one.position ^ other.position) !== 1) inverse++;
  const slope = one.value.map((a, i) => times(a ^ other.value[i], inverse));
  const secret = one.value.map((a, i) => a ^ times(slope[i], one.position));
  const fits = ({ position, value }) => value.every((v, i) => v === (secret[i] ^ times(slope[i], position)));
  if (!shares.every(fits)) fail("ShareMismatch");
  return Buffer.from(secret);
}
