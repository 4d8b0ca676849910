// JSON (RFC 8259) with exact integers. JSON.parse rounds integers above 2^53. The last value of a repeated name counts.
//
// Integers are numbers up to 2^53 and BigInts above. Any other number is an object {number: its text}.

import { Fail, fail } from "./fail.mjs";

const INTEGER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
const STRING_END = /["\\\u0000-\u001f]/g;
const ESCAPES = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };
const MAX_DEPTH = 200;

class Parser {
  constructor(text) {
    this.text = text;
    this.p = 0;
  }

  space() {
    for (;;) {
      const c = this.text.charCodeAt(this.p);
      if (c !== 32 && c !== 10 && c !== 13 && c !== 9) return;
      this.p++;
    }
  }

  take(c) {
    this.space();
    if (this.text[this.p] !== c) return false;
    this.p++;
    return true;
  }

  value(depth) {
    if (depth > MAX_DEPTH) fail("BadJson");
    this.space();
    const c = this.text[this.p];
    if (c === '"') return this.string();
    if (c === "{") return this.object(depth);
    if (c === "[") {
      this.p++;
      const out = [];
      if (this.take("]")) return out;
      do out.push(this.value(depth + 1));
      while (this.take(","));
      if (!this.take("]")) fail("BadJson");
      return out;
    }
    for (const [word, v] of [["null", null], ["true", true], ["false", false]]) {
      if (this.text.startsWith(word, this.p)) {
        this.p += word.length;
        return v;
      }
    }
    INTEGER.lastIndex = this.p;
    const m = INTEGER.exec(this.text);
    if (m === null) fail("BadJson");
    this.p += m[0].length;
    if (m[1] !== undefined || m[2] !== undefined || m[0] === "-0") return { number: m[0] };
    const n = Number(m[0]);
    return Number.isSafeInteger(n) ? n : BigInt(m[0]);
  }

  object(depth) {
    this.p++;
    const out = Object.create(null);
    if (this.take("}")) return out;
    do {
      this.space();
      if (this.text[this.p] !== '"') fail("BadJson");
      const name = this.string();
      if (!this.take(":") || name in out) fail("BadJson");
      out[name] = this.value(depth + 1);
    } while (this.take(","));
    if (!this.take("}")) fail("BadJson");
    return out;
  }

  string() {
    let out = "";
    let from = ++this.p;
    for (;;) {
      STRING_END.lastIndex = this.p;
      const m = STRING_END.exec(this.text);
      if (m === null) fail("BadJson");
      out += this.text.slice(from, m.index);
      this.p = m.index + 1;
      if (m[0] === '"') return out;
      if (m[0] !== "\\") fail("BadJson");
      out += this.escape();
      from = this.p;
    }
  }

  escape() {
    const c = this.text[this.p++];
    if (c !== "u") {
      if (c === undefined || !Object.hasOwn(ESCAPES, c)) fail("BadJson");
      return ESCAPES[c];
    }
    const unit = this.unit();
    if (unit >= 0xdc00 && unit <= 0xdfff) fail("BadJson");
    if (unit < 0xd800 || unit > 0xdbff) return String.fromCharCode(unit);
    // A high surrogate alone is not a character.
    if (this.text[this.p] !== "\\" || this.text[this.p + 1] !== "u") fail("BadJson");
    this.p += 2;
    const low = this.unit();
    if (low < 0xdc00 || low > 0xdfff) fail("BadJson");
    return String.fromCharCode(unit, low);
  }

  unit() {
    const digits = this.text.slice(this.p, this.p + 4);
    if (!/^[0-9a-fA-F]{4}$/.test(digits)) fail("BadJson");
    this.p += 4;
    return parseInt(digits, 16);
  }
}

/** The value of a JSON text. Fails as `BadJson`. */
export function parse(text) {
  const parser = new Parser(text);
  const v = parser.value(0);
  parser.space();
  if (parser.p !== text.length) fail("BadJson");
  return v;
}

export function tryParse(text) {
  try {
    return parse(text);
  } catch (e) {
    if (e instanceof Fail) return undefined;
    throw e;
  }
}

/** A JSON text with sorted names. BigInts are integers. */
export function stringify(v) {
  if (typeof v === "bigint") return v.toString();
  if (Array.isArray(v)) return "[" + v.map(stringify).join(",") + "]";
  if (v !== null && typeof v === "object") {
    const names = Object.keys(v).sort();
    return "{" + names.map((n) => JSON.stringify(n) + ":" + stringify(v[n])).join(",") + "}";
  }
  return JSON.stringify(v);
}
