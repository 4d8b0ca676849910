// Confidential readings (confidential.md): keys, covers, commitments, key streams.

import { createCipheriv, timingSafeEqual } from "node:crypto";
import * as cbor from "./cbor.mjs";
import { be32, be64, chacha20Block, hmac, sha256 } from "./crypto.mjs";
import { fail } from "./fail.mjs";

const CHACHA20 = 1;
const NONCE = 12;
const COMMITMENT = 16;
const MAX_ENCRYPTED = 16;
const DEPTH = 32n;
const LAST_OFFSET = 0xffffffffn;
const TEXT = 13;

const label = (text) => Buffer.from(text + "\0");

function kdf(key, name, ...context) {
  return hmac(key, label(name), ...context);
}

export const columnId = (field) => sha256(label("moteseal/2/column"), field).subarray(0, 16);
export const columnRoot = (secret, column) => kdf(secret, "moteseal/1/column", column);
export const nextSecret = (secret) => kdf(secret, "moteseal/2/next");
const child = (node, bit) => kdf(node, "moteseal/1/node", Buffer.from([bit]));

/** Section 1, rule 4. */
function offsetOf(base, epoch) {
  if (epoch < base || epoch - base > LAST_OFFSET) fail("EpochOutOfKeyRange");
  return epoch - base;
}

/** Section 1, rule 8: from below, joining ranges. Depth and prefix of each node. */
function coverOf(first, last) {
  const left = [];
  const right = [];
  let [a, b, depth] = [first, last + 1n, DEPTH];
  for (; a < b; depth--, a >>= 1n, b >>= 1n) {
    if (a & 1n) left.push({ depth, prefix: a++ });
    if (b & 1n) right.unshift({ depth, prefix: --b });
  }
  return [...left, ...right];
}

/** The node at a depth and prefix, from one above it. */
function derive(node, depth, prefix) {
  let { key } = node;
  for (let at = node.depth; at < depth; at++) key = child(key, Number((prefix >> (depth - at - 1n)) & 1n));
  return key;
}

export function cover(root, base, first, last) {
  const nodes = coverOf(offsetOf(base, first), offsetOf(base, last));
  return nodes.map(({ depth, prefix }) => ({ depth, prefix, key: derive({ depth: 0n, key: root }, depth, prefix) }));
}

export function checkNodes(nodes) {
  for (const { depth, prefix } of nodes) if (depth > DEPTH || prefix >> depth !== 0n) fail("MalformedKey");
}

/** Section 5, steps 2 and 3. */
export function epochKey(nodes, base, epoch) {
  const offset = offsetOf(base, epoch);
  const node = nodes.find(({ depth, prefix }) => offset >> (DEPTH - depth) === prefix);
  if (node === undefined) fail("NotCovered");
  return derive(node, DEPTH, offset);
}

export function sealKey(leaf, { device, epoch, index, column, suite, nonce }) {
  return kdf(leaf, "moteseal/1/seal", device, be64(epoch), be32(index), column, Buffer.from([suite]), nonce);
}

export const commitment = (key) => sha256(label("moteseal/1/commit"), key).subarray(0, COMMITMENT);

/** Section 5, step 4. */
export function checkKey(key, stated) {
  if (!timingSafeEqual(commitment(key), stated)) fail("WrongKey");
}

/** Section 3, rule 4: the keys of a seal. */
export function keysOf(node) {
  const keys = cbor.bytes(node);
  const rest = keys.length - NONCE;
  if (rest < COMMITMENT || rest > MAX_ENCRYPTED * COMMITMENT || rest % COMMITMENT !== 0) fail("FieldOutOfRange");
  return keys;
}

/** The number of commitments is that of the schema's encrypted columns. */
export function checkKeys(keys, schema) {
  const count = keys === null ? 0 : (keys.length - NONCE) / COMMITMENT;
  if (count !== schema.fields.filter((f) => f.suite !== 0).length) fail("KeyCommitmentCount");
}

/** Section 4, rules 4 and 5: `length` bytes of AES-128-CTR from block `first` on. */
function aes(key, first, length) {
  if (first + BigInt(Math.ceil(length / 16)) > 1n << 32n) fail("KeyStreamEnd");
  const counter = Buffer.alloc(16);
  key.copy(counter, 0, 16, 28);
  counter.writeUInt32BE(Number(first), 12);
  return createCipheriv("aes-128-ctr", key.subarray(0, 16), counter).update(Buffer.alloc(length));
}

/** Section 4, rule 3: a block of ChaCha20 whose nonce is a number of 4 and one of 8 bytes. */
function chacha(key, counter, low, high) {
  const nonce = Buffer.alloc(12);
  nonce.writeUInt32LE(low);
  nonce.writeBigUInt64LE(high, 4);
  return chacha20Block(key, counter, nonce);
}

/** Section 4, rules 1, 3 and 4. */
function fixedStream(suite, key, seq, width) {
  const size = suite === CHACHA20 ? 64n : 16n;
  const start = seq * BigInt(width);
  const first = start / size;
  const last = (start + BigInt(width) - 1n) / size;
  const blocks = [];
  for (let n = first; n <= last; n++) {
    blocks.push(suite === CHACHA20 ? chacha(key, Number(n & 0xffffffffn), Number(n >> 32n), 0n) : aes(key, n, 16));
  }
  const skip = Number(start - first * size);
  return Buffer.concat(blocks).subarray(skip, skip + width);
}

/** Section 4, rules 2 to 4. */
function textStream(suite, key, seq, length) {
  if (suite !== CHACHA20) return aes(key, 16n * seq, length);
  const blocks = [];
  for (let n = 0; n * 64 < length; n++) blocks.push(chacha(key, n, 1, seq));
  return Buffer.concat(blocks).subarray(0, length);
}

/** Decrypts a cell; of a text, without its length. */
export function decryptCell(field, key, seq, cell) {
  if (cell === null || cell.length === 0) return cell;
  const stream = (field.type === TEXT ? textStream : fixedStream)(field.suite, key, seq, cell.length);
  return Buffer.from(cell.map((byte, i) => byte ^ stream[i]));
}
