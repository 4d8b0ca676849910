// The language of queries (queries.md, sections 1 and 2): from a text to a plan.

import { fail } from "./fail.mjs";
import * as query from "./query.mjs";
import { binned, hasFields } from "./query-slots.mjs";

const MAX_TEXT = 16384;
const MAX_DIGITS = 38;
const MAX_COUNT = 0xffffffffn;
const I64_MIN = -0x8000000000000000n;
const I64_MAX = 0x7fffffffffffffffn;
const SPACE = /\p{White_Space}*/uy;
const NUMBER = /[0-9]+(?:\.[0-9]+)?/y;
const SIGN = /<=|>=|!=|<>|<|>|=/y;
const MIRRORED = { "<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!=", "<>": "<>" };
const DURATIONS = { MS: 1n, S: 1000n, M: 60000n, H: 3600000n, D: 86400000n };

/** The raw values of the integer types. */
const rawRange = (type) => {
  const bits = BigInt(8 << (type >> 1));
  return type & 1 ? [-(1n << (bits - 1n)), (1n << (bits - 1n)) - 1n] : [0n, (1n << bits) - 1n];
};

class Parser {
  constructor(text, schema) {
    this.text = text;
    this.schema = schema;
    this.p = 0;
    this.columns = [];
    this.steps = 0;
    this.next();
  }

  match(pattern) {
    pattern.lastIndex = this.p;
    const m = pattern.exec(this.text);
    if (m === null) return null;
    this.p += m[0].length;
    return m[0];
  }

  /** Reads the next token: {kind, value}; the end is a token too. */
  next() {
    this.match(SPACE);
    const c = this.text[this.p];
    let value;
    if (c === undefined) this.token = { kind: "end" };
    else if (c === '"' || c === "'") this.token = { kind: c === '"' ? "quoted" : "text", value: this.quoted(c) };
    else if ((value = this.match(NUMBER)) !== null) this.token = { kind: "number", value };
    else if ((value = this.match(query.WORD)) !== null) this.token = { kind: "word", value, upper: query.upper(value) };
    else if ((value = this.match(SIGN)) !== null) this.token = { kind: "sign", value };
    else if ("(),*+-".includes(c)) {
      this.p++;
      this.token = { kind: c };
    } else fail("UnknownCharacter");
  }

  quoted(quote) {
    let out = "";
    for (;;) {
      const end = this.text.indexOf(quote, this.p + 1);
      if (end < 0) fail("Unterminated");
      out += this.text.slice(this.p + 1, end);
      this.p = end + 1;
      if (this.text[this.p] !== quote) return out;
      out += quote;
    }
  }

  isWord(word) {
    return this.token.kind === "word" && this.token.upper === word;
  }

  takeWord(word) {
    if (!this.isWord(word)) return false;
    this.next();
    return true;
  }

  take(kind) {
    if (this.token.kind !== kind) return false;
    this.next();
    return true;
  }

  need(taken) {
    if (!taken) fail("UnexpectedToken");
  }

  /** The place of the column that the current token names. */
  column() {
    const { token, schema, columns } = this;
    if (token.kind !== "quoted" && (token.kind !== "word" || query.RESERVED.has(token.upper))) fail("UnexpectedToken");
    if (schema.fields.length === 0) fail("NotNumeric");
    const field = schema.fields.find((f) => f.name === token.value);
    if (field === undefined) fail("UnknownColumn");
    if (field.type === 8 || field.type === 9) fail("NotExact");
    if (field.type >= 10) fail("NotNumeric");
    if (field.nullable) fail("NotExact");
    let place = columns.findIndex((c) => c.name === field.name);
    if (place < 0) {
      place = columns.length;
      if (place === query.MAX_COLUMNS) fail("TooManyColumns");
      columns.push({ name: field.name, divisor: field.divisor, low: null, high: null, field });
    }
    this.next();
    return place;
  }

  item() {
    const { token } = this;
    if (token.kind !== "word" || query.RESERVED.has(token.upper)) fail("UnexpectedToken");
    const isNamed = Object.hasOwn(query.RANKS, token.upper);
    const aggregate = isNamed ? query.QUANTILE : query.AGGREGATES.indexOf(token.upper);
    if (aggregate < 0) fail("UnknownAggregate");
    this.next();
    this.need(this.take("("));
    const item = { aggregate, column: null, rank: isNamed ? query.RANKS[token.upper] : null };
    if (aggregate !== query.COUNT || !this.take("*")) item.column = this.column();
    if (aggregate === query.QUANTILE && !isNamed) {
      this.need(this.take(","));
      item.rank = this.thousandths(10n, 0, query.MAX_RANK, "RankOutOfRange");
    }
    this.need(this.take(")"));
    if (aggregate !== query.COUNT) {
      const c = this.columns[item.column];
      const [low, high] = rawRange(c.field.type).map((v) => v + c.field.offset);
      c.low = low < I64_MIN ? I64_MIN : low;
      c.high = high > I64_MAX ? I64_MAX : high;
    }
    return item;
  }

  /** A number from `least` to `most` in units of 1 / (1000 * finer), of which it is a multiple. */
  thousandths(finer, least, most, error) {
    const { value, scale } = this.number();
    const scaled = value * 1000n * finer;
    if (scaled % scale !== 0n || scaled < BigInt(least) * scale || scaled > BigInt(most) * scale) fail(error);
    return Number(scaled / scale);
  }

  groups() {
    if (!this.takeWord("GROUP")) return null;
    this.need(this.takeWord("BY"));
    const column = this.column();
    const { divisor } = this.columns[column];
    if (!query.hasExactText(divisor)) fail("NotExact");
    this.need(this.take("("));
    const values = [];
    do {
      const { value, scale } = this.number();
      const numerator = (value * divisor) / scale;
      if ((value * divisor) % scale !== 0n || numerator < I64_MIN || numerator > I64_MAX) fail("NotAValue");
      if (values.includes(numerator)) fail("DuplicateValue");
      if (values.length === query.MAX_GROUPS) fail("TooManyGroups");
      values.push(numerator);
    } while (this.take(","));
    this.need(this.take(")"));
    return { column, values };
  }

  bins(items) {
    const needsBins = binned({ items, columns: this.columns }).length > 0;
    if (!this.isWord("BINS")) return needsBins ? query.DEFAULT_BINS : 0;
    if (!needsBins) fail("NoBins");
    this.next();
    const { kind, value } = this.token;
    if (kind !== "number" || value.includes(".")) fail("UnexpectedToken");
    const count = BigInt(value);
    if (count < BigInt(query.MIN_BINS) || count > BigInt(query.MAX_BINS)) fail("BinsOutOfRange");
    this.next();
    return Number(count);
  }

  noise(plan) {
    if (!this.takeWord("EPSILON")) return;
    plan.epsilon = this.thousandths(1n, 1, query.MAX_EPSILON, "EpsilonOutOfRange");
    if (!query.hasNoisyForm(plan)) fail("NoNoisyForm");
    if (query.isTooNoisy(plan)) fail("EpsilonOutOfRange");
  }

  items() {
    const out = [];
    do {
      const item = this.item();
      const isSame = (o) => o.aggregate === item.aggregate && o.column === item.column && o.rank === item.rank;
      if (out.some(isSame)) fail("DuplicateItem");
      if (out.length === query.MAX_ITEMS) fail("TooManyItems");
      out.push(item);
    } while (this.take(","));
    return out;
  }

  /** A number as numerator and power of ten. */
  number() {
    const isNegative = this.token.kind === "-";
    if (isNegative || this.token.kind === "+") this.next();
    const { token } = this;
    if (token.kind === "text") fail("NotNumeric");
    if (token.kind !== "number") fail("UnexpectedToken");
    this.next();
    const [whole, fraction = ""] = token.value.split(".");
    if ((whole + fraction).length > MAX_DIGITS) fail("NumberOutOfRange");
    const value = BigInt(whole + fraction);
    return { value: isNegative ? -value : value, scale: 10n ** BigInt(fraction.length) };
  }

  comparison() {
    if (["number", "text", "+", "-"].includes(this.token.kind)) {
      const x = this.number();
      const sign = this.sign();
      const column = this.column();
      return this.compare(column, MIRRORED[sign], x);
    }
    const column = this.column();
    if (this.takeWord("BETWEEN")) {
      const x = this.number();
      this.need(this.takeWord("AND"));
      const y = this.number();
      return this.interval(column, this.bound(column, x, query.ceilDivide), this.bound(column, y, query.floorDivide));
    }
    return this.compare(column, this.sign(), this.number());
  }

  sign() {
    const { token } = this;
    if (token.kind !== "sign") fail("UnexpectedToken");
    this.next();
    return token.value;
  }

  bound(column, x, divide) {
    return divide(x.value * this.columns[column].divisor, x.scale);
  }

  interval(column, low, high) {
    for (const v of [low, high]) if (v !== null && (v < I64_MIN || v > I64_MAX)) fail("NumberOutOfRange");
    const isEmpty = low !== null && high !== null && low > high;
    return this.step(isEmpty ? { column, low: 1n, high: 0n } : { column, low, high }, 0);
  }

  compare(column, sign, x) {
    const floor = this.bound(column, x, query.floorDivide);
    const ceil = this.bound(column, x, query.ceilDivide);
    switch (sign) {
      case ">":
        return this.interval(column, floor + 1n, null);
      case ">=":
        return this.interval(column, ceil, null);
      case "<":
        return this.interval(column, null, ceil - 1n);
      case "<=":
        return this.interval(column, null, floor);
      case "=":
        return this.interval(column, ceil, floor);
      default:
        return this.step({ not: this.interval(column, ceil, floor).operands[0] }, 1);
    }
  }

  // Operands are {join, operands, depth}. If `join` is not null, they are those of one AND or OR, whose own step is added when no
  // further operand follows.

  /** Adds a step: one operand. */
  step(operand, depth) {
    if (depth > query.MAX_DEPTH) fail("TooDeep");
    if (++this.steps > query.MAX_STEPS) fail("TooManySteps");
    return { join: null, operands: [operand], depth };
  }

  close({ join, operands, depth }) {
    return join === null ? { join, operands, depth } : this.step({ [join]: operands }, depth + 1);
  }

  /** Closes the operands, unless `join` joins them. */
  open(run, join) {
    return run.join === join ? run : this.close(run);
  }

  operand(nested) {
    if (nested > query.MAX_DEPTH) fail("TooDeep");
    if (this.takeWord("NOT")) {
      const { operands, depth } = this.close(this.operand(nested + 1));
      return this.step({ not: operands[0] }, depth + 1);
    }
    if (!this.take("(")) return this.comparison();
    const inner = this.disjunction(nested + 1);
    this.need(this.take(")"));
    return inner;
  }

  joined(word, join, read) {
    let run = read();
    while (this.takeWord(word)) {
      const before = this.open(run, join);
      const after = this.open(read(), join);
      run = { join, operands: [...before.operands, ...after.operands], depth: Math.max(before.depth, after.depth) };
    }
    return run;
  }

  disjunction(nested) {
    return this.joined("OR", "or", () => this.joined("AND", "and", () => this.operand(nested)));
  }

  predicate() {
    return this.close(this.disjunction(0)).operands[0];
  }

  duration() {
    if (this.token.kind === "end") fail("DurationMissing");
    this.need(this.takeWord("EPOCH"));
    this.need(this.takeWord("DURATION"));
    const { token } = this;
    if (token.kind === "end") fail("DurationMissing");
    if (token.kind !== "number" || token.value.includes(".")) fail("UnexpectedToken");
    this.next();
    const count = BigInt(token.value);
    if (count < 1n || count > MAX_COUNT) fail("DurationOutOfRange");
    const unit = this.token.kind === "word" ? DURATIONS[this.token.upper] : undefined;
    if (unit === undefined) fail("UnexpectedToken");
    const ms = count * unit;
    if (ms < query.MIN_DURATION || ms > query.MAX_DURATION) fail("DurationOutOfRange");
    this.next();
    return ms;
  }

  query() {
    this.need(this.takeWord("SELECT"));
    const items = this.items();
    this.need(this.takeWord("FROM"));
    this.need(this.takeWord("SENSORS"));
    const predicate = this.takeWord("WHERE") ? this.predicate() : null;
    const groups = this.groups();
    const plan = { items, columns: this.columns, predicate, groups, bins: this.bins(items), epsilon: 0 };
    this.noise(plan);
    plan.counterBits = !hasFields(plan) ? 0 : plan.epsilon > 0 ? query.NOISY_BITS : query.COUNTER_BITS.at(-1);
    plan.epochMs = this.duration();
    this.need(this.token.kind === "end");
    return plan;
  }
}

export function parseQuery(text, schema) {
  if (Buffer.byteLength(text) > MAX_TEXT) fail("QueryTooLong");
  return new Parser(text, schema).query();
}
