// Deterministic CBOR: form (objects.md, section 1.2), shape (section 1.3) and encoding.
//
// A decoded item is a node {t, v, s, e}: major type, value, and the range of its bytes in `b`, the decoded buffer. Integers are
// numbers up to 2^53 and BigInts above. Arrays and maps have a list of nodes as value (a map: key, value, key, ...), a tag has its
// number as value and its content in `c`.

import { isUtf8 } from "node:buffer";
import { fail } from "./fail.mjs";

export const UINT = 0;
export const NINT = 1;
export const BYTES = 2;
export const TEXT = 3;
export const ARRAY = 4;
export const MAP = 5;
export const TAG = 6;
export const SIMPLE = 7;

const MAX_DEPTH = 12;
const TWO32 = 4294967296;

class Decoder {
  constructor(b, p) {
    this.b = b;
    this.p = p;
  }

  item(depth) {
    const b = this.b;
    const s = this.p;
    if (s >= b.length) fail("Truncated");
    const head = b[s];
    this.p = s + 1;
    const t = head >> 5;
    const low = head & 31;
    if (low >= 28) fail("NonCanonical");
    let v = low;
    if (low >= 24) v = this.argument(low);
    if (t === SIMPLE) {
      if (low >= 24 || low < 20 || low > 22) fail("NonCanonical");
      v = low === 20 ? false : low === 21 ? true : null;
    }
    const n = { t, v, s, e: 0, b, c: null };
    if (t === BYTES || t === TEXT) {
      if (b.length - this.p < v) fail("Truncated");
      const end = this.p + Number(v);
      n.v = b.subarray(this.p, end);
      this.p = end;
      if (t === TEXT) {
        if (!isUtf8(n.v)) fail("NonCanonical");
        n.v = n.v.toString("utf8");
      }
    } else if (t === NINT) {
      n.v = typeof v === "bigint" || v === Number.MAX_SAFE_INTEGER ? -1n - BigInt(v) : -1 - v;
    }
    if (depth > MAX_DEPTH) fail("NonCanonical");
    if (t === ARRAY) {
      n.v = [];
      for (let i = 0; i < v; i++) n.v.push(this.item(depth + 1));
    } else if (t === MAP) {
      n.v = [];
      let last = null;
      for (let i = 0; i < v; i++) {
        const key = this.item(depth + 1);
        const bytes = b.subarray(key.s, key.e);
        if (last !== null && Buffer.compare(last, bytes) >= 0) fail("NonCanonical");
        last = bytes;
        n.v.push(key, this.item(depth + 1));
      }
    } else if (t === TAG) {
      n.c = this.item(depth + 1);
    }
    n.e = this.p;
    return n;
  }

  argument(low) {
    const size = 1 << (low - 24);
    const b = this.b;
    const p = this.p;
    if (b.length - p < size) fail("Truncated");
    this.p = p + size;
    if (size === 1) {
      if (b[p] < 24) fail("NonCanonical");
      return b[p];
    }
    if (size === 2) {
      const v = b.readUInt16BE(p);
      if (v < 256) fail("NonCanonical");
      return v;
    }
    if (size === 4) {
      const v = b.readUInt32BE(p);
      if (v < 65536) fail("NonCanonical");
      return v;
    }
    const high = b.readUInt32BE(p);
    if (high === 0) fail("NonCanonical");
    if (high < 0x200000) return high * TWO32 + b.readUInt32BE(p + 4);
    return b.readBigUInt64BE(p);
  }
}

/** The item that begins at `p`. */
export function itemAt(b, p) {
  return new Decoder(b, p).item(0);
}

/** The one item of `b`. */
export function single(b) {
  const n = itemAt(b, 0);
  if (n.e !== b.length) fail("TrailingBytes");
  return n;
}

/** The bytes of a node. */
export function raw(n) {
  return n.b.subarray(n.s, n.e);
}

// ---------------------------------------------------------------- shape

export function array(n, count) {
  if (n.t !== ARRAY || (count !== undefined && n.v.length !== count)) fail("UnexpectedType");
  return n.v;
}

export function bytes(n, size) {
  if (n.t !== BYTES || (size !== undefined && n.v.length !== size)) fail("UnexpectedType");
  return n.v;
}

export function text(n) {
  if (n.t !== TEXT) fail("UnexpectedType");
  return n.v;
}

export function bool(n) {
  if (n.t !== SIMPLE || n.v === null) fail("UnexpectedType");
  return n.v;
}

export function isNull(n) {
  return n.t === SIMPLE && n.v === null;
}

/** Null, or what `read` makes of the node. */
export function nullable(n, read) {
  return isNull(n) ? null : read(n);
}

/** An unsigned integer up to `max`, which is at most 2^53 - 1. */
export function uint(n, max) {
  if (n.t !== UINT) fail("UnexpectedType");
  if (n.v > max) fail("FieldOutOfRange");
  return n.v;
}

export const u8 = (n) => uint(n, 255);
export const u16 = (n) => uint(n, 65535);
export const u32 = (n) => uint(n, 4294967295);

/** An unsigned integer of 64 bits, as a BigInt. */
export function u64(n) {
  if (n.t !== UINT) fail("UnexpectedType");
  return BigInt(n.v);
}

/** A signed integer of 64 bits, as a BigInt. */
export function i64(n) {
  if (n.t !== UINT && n.t !== NINT) fail("UnexpectedType");
  const v = BigInt(n.v);
  if (v > 0x7fffffffffffffffn || v < -0x8000000000000000n) fail("FieldOutOfRange");
  return v;
}

/** The version of a structure. */
export function version(n) {
  if (n.t !== UINT) fail("UnexpectedType");
  if (n.v !== 1) fail("UnsupportedVersion");
}

/** The elements of a versioned array of `count` fields. */
export function versioned(n, count) {
  const fields = array(n, count);
  version(fields[0]);
  return fields;
}

/** The elements of an array of `count` fields and version 1, or of one field more and version 2. */
export function versionedWithMore(n, count) {
  if (n.t !== ARRAY || n.v.length !== count + 1) return versioned(n, count);
  if (n.v[0].t !== UINT || n.v[0].v !== 2) fail("UnexpectedType");
  return n.v;
}

/** The elements of an array as `versionedWithMore` takes it, or of two more elements than `count` and of version 3. */
export function versionedWithGroups(n, count) {
  if (n.t !== ARRAY || n.v.length !== count + 2) return versionedWithMore(n, count);
  if (n.v[0].t !== UINT || n.v[0].v !== 3) fail("UnexpectedType");
  return n.v;
}

// ---------------------------------------------------------------- encoding

export function head(major, value) {
  const v = typeof value === "bigint" && value <= 0xffffffffn ? Number(value) : value;
  const m = major << 5;
  if (typeof v === "bigint" || v > 0xffffffff) {
    const out = Buffer.alloc(9);
    out[0] = m | 27;
    out.writeBigUInt64BE(BigInt(v), 1);
    return out;
  }
  if (v < 24) return Buffer.from([m | v]);
  if (v < 256) return Buffer.from([m | 24, v]);
  if (v < 65536) return Buffer.from([m | 25, v >> 8, v & 255]);
  const out = Buffer.alloc(5);
  out[0] = m | 26;
  out.writeUInt32BE(v, 1);
  return out;
}

export const encodeUint = (v) => head(UINT, v);
export const encodeInt = (v) => (v < 0 ? head(NINT, -1n - BigInt(v)) : head(UINT, v));
export const encodeBytes = (v) => Buffer.concat([head(BYTES, v.length), v]);
export const encodeNull = () => Buffer.from([0xf6]);
export const encodeBool = (v) => Buffer.from([v ? 0xf5 : 0xf4]);

export function encodeText(v) {
  const utf8 = Buffer.from(v, "utf8");
  return Buffer.concat([head(TEXT, utf8.length), utf8]);
}

/** An array of encoded items. */
export function encodeArray(items) {
  return Buffer.concat([head(ARRAY, items.length), ...items]);
}
