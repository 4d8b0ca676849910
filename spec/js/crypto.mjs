// Hashes, ids (objects.md, section 1.4), SipHash-2-4, ChaCha12 and the signature suites (section 2.2).

import * as node from "node:crypto";
import { fail } from "./fail.mjs";
import { verifyMlDsa44 } from "./mldsa.mjs";

export function sha256(...parts) {
  if (parts.length === 1 && node.hash) return node.hash("sha256", parts[0], "buffer");
  const h = node.createHash("sha256");
  for (const p of parts) h.update(p);
  return h.digest();
}

export function hmac(key, ...parts) {
  const h = node.createHmac("sha256", key);
  for (const p of parts) h.update(p);
  return h.digest();
}

export function be32(v) {
  const out = Buffer.alloc(4);
  out.writeUInt32BE(v);
  return out;
}

export function be64(v) {
  const out = Buffer.alloc(8);
  out.writeBigUInt64BE(BigInt(v));
  return out;
}

const ZERO = Buffer.from([0]);

export function deviceId(group, device) {
  return sha256("moteseal/1/device", ZERO, group, ZERO, device).subarray(0, 8);
}

export function ownerId(group, name) {
  return sha256("moteseal/1/owner", ZERO, group, ZERO, name).subarray(0, 8);
}

export function sanitiserId(group, name) {
  return sha256("moteseal/1/sanitiser", ZERO, group, ZERO, name).subarray(0, 8);
}

export function groupId(group) {
  return sha256("moteseal/1/group", ZERO, group).subarray(0, 8);
}

export function saltOf(key, device, index) {
  return hmac(key, "moteseal/1/salt", device, be32(index)).subarray(0, 16);
}

// ---------------------------------------------------------------- SipHash-2-4

/**
 * The upper 32 bits of SipHash-2-4 of the messages `seq` (8 bytes, little-endian), for `first <= seq < first + count`. Halves of 32 bits
 * are used instead of BigInts, which would be about a hundred times slower.
 */
function sipHigh(salt, first, count, each) {
  const k0l = salt.readUInt32LE(0) | 0;
  const k0h = salt.readUInt32LE(4) | 0;
  const k1l = salt.readUInt32LE(8) | 0;
  const k1h = salt.readUInt32LE(12) | 0;
  for (let i = 0; i < count; i++) {
    const seq = first + i;
    const ml = seq | 0;
    const mh = Math.floor(seq / 4294967296) | 0;
    let al = k0l ^ 0x70736575, ah = k0h ^ 0x736f6d65;
    let bl = k1l ^ 0x6e646f6d, bh = k1h ^ 0x646f7261;
    let cl = k0l ^ 0x6e657261, ch = k0h ^ 0x6c796765;
    let dl = k1l ^ 0x79746573, dh = k1h ^ 0x74656462;
    for (let round = 0; round < 8; round++) {
      // The compression of the message, that of the length (8 bytes), and the finalization.
      if (round === 0) { dl ^= ml; dh ^= mh; }
      if (round === 2) { al ^= ml; ah ^= mh; dh ^= 0x08000000; }
      if (round === 4) { ah ^= 0x08000000; cl ^= 0xff; }
      let t, u;
      // a += b; b = rotl(b, 13) ^ a; a = rotl(a, 32)
      t = (al >>> 0) + (bl >>> 0); al = t | 0; ah = (ah + bh + (t > 4294967295 ? 1 : 0)) | 0;
      t = (bl << 13) | (bh >>> 19); u = (bh << 13) | (bl >>> 19); bl = t ^ al; bh = u ^ ah;
      t = al; al = ah; ah = t;
      // c += d; d = rotl(d, 16) ^ c
      t = (cl >>> 0) + (dl >>> 0); cl = t | 0; ch = (ch + dh + (t > 4294967295 ? 1 : 0)) | 0;
      t = (dl << 16) | (dh >>> 16); u = (dh << 16) | (dl >>> 16); dl = t ^ cl; dh = u ^ ch;
      // a += d; d = rotl(d, 21) ^ a
      t = (al >>> 0) + (dl >>> 0); al = t | 0; ah = (ah + dh + (t > 4294967295 ? 1 : 0)) | 0;
      t = (dl << 21) | (dh >>> 11); u = (dh << 21) | (dl >>> 11); dl = t ^ al; dh = u ^ ah;
      // c += b; b = rotl(b, 17) ^ c; c = rotl(c, 32)
      t = (cl >>> 0) + (bl >>> 0); cl = t | 0; ch = (ch + bh + (t > 4294967295 ? 1 : 0)) | 0;
      t = (bl << 17) | (bh >>> 15); u = (bh << 17) | (bl >>> 15); bl = t ^ cl; bh = u ^ ch;
      t = cl; cl = ch; ch = t;
    }
    each(i, (ah ^ bh ^ ch ^ dh) >>> 0);
  }
}

/** The levels of the events `first .. first+count-1` (objects.md, section 6.2). */
export function levelsOf(salt, count, levels, first = 0) {
  const out = new Uint8Array(count);
  const top = levels - 1;
  sipHigh(salt, first, count, (i, high) => {
    const zeros = Math.clz32(high);
    out[i] = zeros < top ? zeros : top;
  });
  return out;
}

/** The number of events of each level. */
export function countersOf(eventLevels, levels) {
  const out = new Array(levels).fill(0);
  for (const level of eventLevels) out[level]++;
  return out;
}

// ---------------------------------------------------------------- ChaCha12

const CHACHA_CONSTANTS = [0x61707865, 0x3320646e, 0x79622d32, 0x6b206574];

/** One block of ChaCha: 16 words. `tail` are the last four words of the state, counter and nonce. */
function chachaBlock(key, tail, doubleRounds) {
  const start = new Uint32Array(16);
  start.set(CHACHA_CONSTANTS);
  for (let i = 0; i < 8; i++) start[4 + i] = key.readUInt32LE(4 * i);
  start.set(tail, 12);
  const x = Uint32Array.from(start);
  for (let i = 0; i < doubleRounds; i++) {
    quarter(x, 0, 4, 8, 12);
    quarter(x, 1, 5, 9, 13);
    quarter(x, 2, 6, 10, 14);
    quarter(x, 3, 7, 11, 15);
    quarter(x, 0, 5, 10, 15);
    quarter(x, 1, 6, 11, 12);
    quarter(x, 2, 7, 8, 13);
    quarter(x, 3, 4, 9, 14);
  }
  for (let i = 0; i < 16; i++) x[i] += start[i];
  return x;
}

/** The words of 64 bits, little-endian, of ChaCha12 with nonce 0 from counter 0, as BigInts. */
export function* chacha12(key) {
  const tail = [0, 0, 0, 0];
  for (;;) {
    const x = chachaBlock(key, tail, 6);
    for (let i = 0; i < 16; i += 2) yield (BigInt(x[i + 1]) << 32n) | BigInt(x[i]);
    tail[0] = (tail[0] + 1) >>> 0;
    if (tail[0] === 0) tail[1]++;
  }
}

/** A block of ChaCha20 (RFC 8439, section 2.3): 64 bytes. */
export function chacha20Block(key, counter, nonce) {
  const tail = [counter, nonce.readUInt32LE(0), nonce.readUInt32LE(4), nonce.readUInt32LE(8)];
  const out = Buffer.alloc(64);
  chachaBlock(key, tail, 10).forEach((word, i) => out.writeUInt32LE(word, 4 * i));
  return out;
}

function quarter(x, a, b, c, d) {
  let t;
  x[a] += x[b]; t = x[d] ^ x[a]; x[d] = (t << 16) | (t >>> 16);
  x[c] += x[d]; t = x[b] ^ x[c]; x[b] = (t << 12) | (t >>> 20);
  x[a] += x[b]; t = x[d] ^ x[a]; x[d] = (t << 8) | (t >>> 24);
  x[c] += x[d]; t = x[b] ^ x[c]; x[b] = (t << 7) | (t >>> 25);
}

// ---------------------------------------------------------------- signature suites

export const SUITES = {
  "ed25519": { cose: -19, key: 32, signature: 64 },
  "esp256": { cose: -9, key: 65, signature: 64 },
  "ml-dsa-44": { cose: -48, key: 1312, signature: 2420 },
};

/** The suite of a COSE algorithm (a BigInt or number), or undefined. */
export function suiteOf(cose) {
  for (const name in SUITES) if (SUITES[name].cose == cose) return name;
  return undefined;
}

const ED_P = (1n << 255n) - 19n;
const ED_D = 37095705934669439343138083508754565189542113879843219016388785533085940283555n;
const ED_SQRT_M1 = 19681161376707505956807079304988542015446066515923890162744021073123829784752n;
// The y coordinates of the points whose order divides 8.
const ED_SMALL = new Set([
  0n,
  1n,
  ED_P - 1n,
  little("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
  little("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
]);
const P256_P = BigInt("0xffffffff00000001000000000000000000000000ffffffffffffffffffffffff");
const P256_B = BigInt("0x5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b");
const P256_N = BigInt("0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551");

/** A little-endian integer. */
export function little(hexOrBytes) {
  const b = Buffer.from(typeof hexOrBytes === "string" ? Buffer.from(hexOrBytes, "hex") : hexOrBytes);
  return BigInt("0x" + b.reverse().toString("hex"));
}

/** A big-endian integer. */
export const big = (b) => BigInt("0x" + b.toString("hex"));

export function power(base, exponent, p) {
  let r = 1n;
  let b = base % p;
  for (let e = exponent; e > 0n; e >>= 1n) {
    if (e & 1n) r = (r * b) % p;
    b = (b * b) % p;
  }
  return r;
}

/** The y coordinate in an encoded point, which may be above the prime. */
function edY(b) {
  const masked = Buffer.from(b);
  masked[31] &= 0x7f;
  return little(masked);
}

function edKeyIsValid(key) {
  const y = edY(key);
  if (y >= ED_P || ED_SMALL.has(y)) return false;
  const u = (y * y - 1n + ED_P) % ED_P;
  const v = (ED_D * y * y + 1n) % ED_P;
  const v3 = (v * v * v) % ED_P;
  let x = (u * v3 * power(u * v3 * v3 * v, (ED_P - 5n) / 8n, ED_P)) % ED_P;
  const check = (v * x * x) % ED_P;
  if (check !== u) {
    if (check !== (ED_P - u) % ED_P) return false;
    x = (x * ED_SQRT_M1) % ED_P;
  }
  return x !== 0n || (key[31] & 0x80) === 0;
}

function p256KeyIsValid(key) {
  if (key[0] !== 4) return false;
  const x = big(key.subarray(1, 33));
  const y = big(key.subarray(33));
  if (x >= P256_P || y >= P256_P) return false;
  return (y * y - (x * x * x - 3n * x + P256_B)) % P256_P === 0n;
}

const DER = {
  ed25519: Buffer.from("302a300506032b6570032100", "hex"),
  esp256: Buffer.from("3059301306072a8648ce3d020106082a8648ce3d030107034200", "hex"),
};
const KEYS = new Map();
const MAX_CACHED = 4096;

export function checkKeyLength(alg, key) {
  if (key.length !== SUITES[alg].key) fail("KeyLength");
}

/** The public key in the form of node:crypto (or itself); null if it is invalid. Remembered by its bytes. */
function prepared(alg, key) {
  if (alg === "ml-dsa-44") return key;
  const id = alg + key.toString("latin1");
  let known = KEYS.get(id);
  if (known === undefined) {
    const valid = alg === "ed25519" ? edKeyIsValid(key) : p256KeyIsValid(key);
    known = valid ? node.createPublicKey({ key: Buffer.concat([DER[alg], key]), format: "der", type: "spki" }) : null;
    if (KEYS.size >= MAX_CACHED) KEYS.clear();
    KEYS.set(id, known);
  }
  return known;
}

/** objects.md, section 2.2, rules 2 to 5. */
export function checkKey(alg, key) {
  if (prepared(alg, key) === null) fail("InvalidPublicKey");
}

/** objects.md, section 2.1, steps 5.2 and 5.3. The key has the length of its suite. */
export function verifySignature(alg, key, message, signature) {
  if (signature.length !== SUITES[alg].signature) fail("MalformedSignature");
  const pub = prepared(alg, key);
  if (pub === null) fail("NotAuthentic");
  if (alg === "ed25519") {
    if (ED_SMALL.has(edY(signature.subarray(0, 32)) % ED_P)) fail("NotAuthentic");
    if (!node.verify(null, message, pub, signature)) fail("NotAuthentic");
  } else if (alg === "esp256") {
    const r = big(signature.subarray(0, 32));
    const s = big(signature.subarray(32));
    if (r === 0n || s === 0n || r >= P256_N || s >= P256_N) fail("NotAuthentic");
    if (!node.verify("sha256", message, { key: pub, dsaEncoding: "ieee-p1363" }, signature)) fail("NotAuthentic");
    if (s > P256_N >> 1n) fail("HighS");
  } else if (!verifyMlDsa44(pub, message, signature)) {
    fail("NotAuthentic");
  }
}
