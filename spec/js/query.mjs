// Queries over many devices: plans, their text, slots, contributions and results (queries.md, sections 2 to 5).

import * as cbor from "./cbor.mjs";
import { fail } from "./fail.mjs";
import { isName, numerators } from "./schema.mjs";

export const AGGREGATES = ["SUM", "COUNT", "AVG", "VARIANCE", "STDDEV"];
export const MAX_ITEMS = 16;
export const MAX_COLUMNS = 8;
export const MAX_STEPS = 32;
export const MAX_DEPTH = 16;
export const MIN_DURATION = 1000n;
export const MAX_DURATION = 604800000n;
export const RESERVED = new Set(["SELECT", "FROM", "WHERE", "EPOCH", "DURATION", "AND", "OR", "NOT", "BETWEEN"]);
/** The text in upper case, if it is ASCII. The words of the language are. */
export const upper = (text) => (/^[\x00-\x7f]*$/.test(text) ? text.toUpperCase() : text);
export const WORD = /[\p{Alphabetic}_][\p{Alphabetic}\p{N}_]*/uy;
const SUM = 0;
const COUNT = 1;
const VARIANCE = 3;
const STDDEV = 4;
const CAPACITY = 1n << 96n;
const MAX_PLACES = 10;
const INEXACT_DIGITS = 9;

// ---------------------------------------------------------------- plans: section 3

const refuse = (condition) => condition && fail("FieldOutOfRange");

function shape(bytes) {
  const f = cbor.versioned(cbor.single(bytes), 5);
  const place = (n) => BigInt(cbor.u8(n));
  const items = cbor.array(f[1]).map((n, count) => {
    const i = cbor.array(n, 2);
    const aggregate = cbor.u64(i[0]);
    refuse(aggregate >= AGGREGATES.length);
    const item = { aggregate, column: cbor.nullable(i[1], place) };
    refuse(count >= MAX_ITEMS);
    return item;
  });
  const columns = cbor.array(f[2]).map((n, count) => {
    const c = cbor.array(n);
    if (c.length !== 2 && c.length !== 4) fail("UnexpectedType");
    const column = { name: cbor.text(c[0]), divisor: BigInt(cbor.u32(c[1])), low: null, high: null };
    if (c.length === 4) {
      column.low = cbor.i64(c[2]);
      column.high = cbor.i64(c[3]);
    }
    refuse(count >= MAX_COLUMNS);
    return column;
  });
  const steps = cbor.array(f[3]).map((n, count) => {
    let step;
    if (n.t === cbor.ARRAY) {
      const s = cbor.array(n, 3);
      step = { column: place(s[0]), low: cbor.nullable(s[1], cbor.i64), high: cbor.nullable(s[2], cbor.i64) };
    } else {
      step = { op: cbor.i64(n) };
      refuse(step.op < -255n || step.op > 255n);
    }
    refuse(count >= MAX_STEPS);
    return step;
  });
  return { items, columns, steps, epochMs: cbor.u64(f[4]) };
}

/** The predicate of steps in postfix order: a tree of comparisons, {not: x}, {and: [..]} and {or: [..]}; null without steps. */
function predicateOf(steps, columns) {
  const stack = [];
  for (const step of steps) {
    if (step.op === undefined) {
      refuse(step.column >= columns || (step.low === null && step.high === null));
      if (step.low !== null && step.high !== null && step.low > step.high) refuse(step.low !== 1n || step.high !== 0n);
      stack.push({ column: Number(step.column), low: step.low, high: step.high, depth: 0 });
      continue;
    }
    const count = step.op === 0n ? 1 : Number(step.op < 0n ? -step.op : step.op);
    refuse((step.op !== 0n && count < 2) || count > stack.length);
    const operands = stack.splice(stack.length - count);
    const kind = step.op === 0n ? "not" : step.op > 0n ? "and" : "or";
    refuse(kind !== "not" && operands.some((o) => o[kind] !== undefined));
    const depth = 1 + Math.max(...operands.map((o) => o.depth));
    refuse(depth > MAX_DEPTH);
    stack.push({ [kind]: kind === "not" ? operands[0] : operands, depth });
  }
  refuse(stack.length > 1);
  return stack[0] ?? null;
}

function checkSense(plan) {
  const { items, columns, steps, epochMs } = plan;
  refuse(items.length < 1);
  const seen = new Set();
  const mentioned = new Set();
  const summed = new Set();
  for (const { aggregate, column } of items) {
    refuse(column === null && Number(aggregate) !== COUNT);
    refuse(column !== null && column >= columns.length);
    const id = `${aggregate}/${column}`;
    refuse(seen.has(id));
    seen.add(id);
    if (column !== null) mentioned.add(Number(column));
    if (Number(aggregate) !== COUNT) summed.add(Number(column));
  }
  plan.predicate = predicateOf(steps, columns.length);
  for (const step of steps) if (step.op === undefined) mentioned.add(Number(step.column));
  // A set keeps the order of its insertions, so this is the order of first mention.
  refuse(mentioned.size !== columns.length || [...mentioned].some((column, i) => column !== i));
  refuse(new Set(columns.map((c) => c.name)).size !== columns.length);
  columns.forEach((c, i) => {
    refuse(!isName(c.name) || c.divisor < 1n);
    refuse((c.low !== null) !== summed.has(i) || (c.low !== null && c.low > c.high));
  });
  refuse(epochMs < MIN_DURATION || epochMs > MAX_DURATION);
}

export function openPlan(bytes) {
  const plan = shape(bytes);
  checkSense(plan);
  plan.items = plan.items.map(({ aggregate, column }) => ({
    aggregate: Number(aggregate),
    column: column === null ? null : Number(column),
  }));
  return plan;
}

/** The encoding of a plan; the steps are made from its predicate. */
export function encodePlan({ items, columns, predicate, epochMs }) {
  const optional = (v) => (v === null ? cbor.encodeNull() : cbor.encodeInt(v));
  const steps = postfix(predicate).map((s) =>
    s.op !== undefined ? cbor.encodeInt(s.op) : cbor.encodeArray([cbor.encodeUint(s.column), optional(s.low), optional(s.high)]),
  );
  return cbor.encodeArray([
    cbor.encodeUint(1),
    cbor.encodeArray(items.map((i) => cbor.encodeArray([cbor.encodeUint(i.aggregate), optional(i.column)]))),
    cbor.encodeArray(
      columns.map((c) => {
        const range = c.low === null ? [] : [cbor.encodeInt(c.low), cbor.encodeInt(c.high)];
        return cbor.encodeArray([cbor.encodeText(c.name), cbor.encodeUint(c.divisor), ...range]);
      }),
    ),
    cbor.encodeArray(steps),
    cbor.encodeUint(epochMs),
  ]);
}

/** The steps of a predicate. */
export function postfix(predicate) {
  if (predicate === null) return [];
  if (predicate.not !== undefined) return [...postfix(predicate.not), { op: 0 }];
  const operands = predicate.and ?? predicate.or;
  if (operands === undefined) return [predicate];
  return [...operands.flatMap(postfix), { op: predicate.and !== undefined ? operands.length : -operands.length }];
}

// ---------------------------------------------------------------- the text of a plan

/** The least number of places at which 1 / divisor is exact; null if there is none. */
function placesOf(divisor) {
  let rest = divisor;
  let twos = 0;
  let fives = 0;
  for (; rest % 2n === 0n; rest /= 2n) twos++;
  for (; rest % 5n === 0n; rest /= 5n) fives++;
  return rest === 1n ? Math.max(twos, fives) : null;
}

/** A decimal number of `units` of the last of `places` digits. */
function decimal(units, places) {
  const sign = units < 0n ? "-" : "";
  const digits = (units < 0n ? -units : units).toString().padStart(places + 1, "0");
  return places === 0 ? sign + digits : `${sign}${digits.slice(0, -places)}.${digits.slice(-places)}`;
}

export function floorDivide(a, b) {
  const q = a / b;
  return a % b < 0n ? q - 1n : q;
}

export const ceilDivide = (a, b) => -floorDivide(-a, b);

function columnText(name) {
  WORD.lastIndex = 0;
  const isWord = WORD.exec(name)?.[0].length === name.length && !RESERVED.has(upper(name));
  return isWord ? name : `"${name.replaceAll('"', '""')}"`;
}

function comparisonText({ column, low, high }, columns) {
  const { name, divisor } = columns[column];
  const shown = columnText(name);
  const exact = placesOf(divisor);
  const places = exact === null || exact > MAX_PLACES ? MAX_PLACES : exact;
  const scale = 10n ** BigInt(places);
  const lower = () => decimal(floorDivide(low * scale, divisor), places);
  const upper = () => decimal(ceilDivide(high * scale, divisor), places);
  if (low !== null && high !== null) {
    if (low > high) return `${shown} BETWEEN 1 AND 0`;
    if (low === high && exact !== null && exact <= MAX_PLACES) return `${shown} = ${lower()}`;
    return `${shown} BETWEEN ${lower()} AND ${upper()}`;
  }
  return low !== null ? `${shown} >= ${lower()}` : `${shown} <= ${upper()}`;
}

function predicateText(p, columns, outer) {
  const text = (q, within) => predicateText(q, columns, within);
  if (p.not !== undefined) return `NOT ${text(p.not, "not")}`;
  const operands = p.and ?? p.or;
  if (operands === undefined) return comparisonText(p, columns);
  const kind = p.and !== undefined ? "and" : "or";
  const joined = operands.map((q) => text(q, kind)).join(kind === "and" ? " AND " : " OR ");
  return outer === "not" || (outer === "and" && kind === "or") ? `(${joined})` : joined;
}

const UNITS = [["d", 86400000n], ["h", 3600000n], ["m", 60000n], ["s", 1000n], ["ms", 1n]];

export function planText({ items, columns, predicate, epochMs }) {
  const list = items.map((i) => `${AGGREGATES[i.aggregate]}(${i.column === null ? "*" : columnText(columns[i.column].name)})`);
  const where = predicate === null ? "" : ` WHERE ${predicateText(predicate, columns, null)}`;
  const [unit, ms] = UNITS.find(([, m]) => epochMs % m === 0n);
  return `SELECT ${list.join(", ")} FROM sensors${where} EPOCH DURATION ${epochMs / ms}${unit}`;
}

// ---------------------------------------------------------------- slots and contributions: section 4

const largest = (a, b) => (a > b ? a : b);

const COUNTED = 1n << 56n;
const OUTSIDE = 1n << 76n;

export function slotsOf({ items, columns }) {
  const slots = [];
  columns.forEach(({ low, high }, column) => {
    if (low === null) return;
    const shift = low < 0n ? low : 0n;
    slots.push({ kind: "sum", column, vmax: largest(0n, high) - shift, shift });
    if (items.some((i) => i.column === column && (i.aggregate === VARIANCE || i.aggregate === STDDEV))) {
      slots.push({ kind: "squares", column, vmax: largest(low * low, high * high), shift: 0n });
    }
  });
  if (slots.length === 0 || slots[0].vmax >= 1n << 36n) slots.unshift({ kind: "counts", column: null, vmax: 0n, shift: 0n });
  return slots.map((slot, number) => ({ ...slot, most: slot.vmax + (number === 0 ? OUTSIDE : 0n) }));
}

export function checkCapacity(slots, sources) {
  if (sources >= 1n << 20n || slots.some((s) => sources * (s.most + 1n) >= CAPACITY)) fail("Overflow");
}

function matches(predicate, values) {
  if (predicate === null) return true;
  if (predicate.not !== undefined) return !matches(predicate.not, values);
  if (predicate.and !== undefined) return predicate.and.every((p) => matches(p, values));
  if (predicate.or !== undefined) return predicate.or.some((p) => matches(p, values));
  const v = values[predicate.column];
  return (predicate.low === null || v >= predicate.low) && (predicate.high === null || v <= predicate.high);
}

/** What a source contributes to each slot; `record` is null without a reading. */
export function contribution(plan, schema, record) {
  const places = plan.columns.map((c) => {
    const place = schema.fields.findIndex((f) => f.name === c.name);
    if (place < 0) fail("UnknownColumn");
    const field = schema.fields[place];
    if (field.type >= 8) fail("NotExact");
    if (field.divisor !== c.divisor) fail("DivisorMismatch");
    return place;
  });
  let values = null;
  if (record !== null) {
    const all = numerators(schema, record);
    values = places.map((place) => all[place]);
    if (!matches(plan.predicate, values)) values = null;
  }
  const inside = (c, i) => c.low === null || (values[i] >= c.low && values[i] <= c.high);
  const counted = values !== null && plan.columns.every(inside);
  const integers = slotsOf(plan).map(({ kind, column, shift }) => {
    const value = counted && column !== null ? values[column] : 0n;
    return kind === "sum" ? value - shift : value * value;
  });
  if (values !== null) integers[0] += counted ? COUNTED : OUTSIDE;
  return integers;
}

// ---------------------------------------------------------------- results: section 5

/** a / b to the nearest of so many digits, halfway to even. `b` is positive. */
function quotient(a, b, digits) {
  const scaled = a * 10n ** BigInt(digits);
  let q = floorDivide(scaled, b);
  const twice = 2n * (scaled - q * b);
  if (twice > b || (twice === b && q % 2n !== 0n)) q++;
  return decimal(q, digits);
}

function squareRoot(v) {
  if (v < 2n) return v;
  let x = 1n << BigInt((v.toString(2).length + 1) >> 1);
  for (;;) {
    const y = (x + v / x) >> 1n;
    if (y >= x) return x;
    x = y;
  }
}

/** The root of a / b^2, rounded in the same way. */
function root(a, b, digits) {
  const scaled = a * 10n ** BigInt(2 * digits);
  let x = squareRoot(scaled / (b * b));
  const half = (2n * x + 1n) ** 2n * b * b;
  const four = 4n * scaled;
  if (half < four || (half === four && x % 2n !== 0n)) x++;
  return decimal(x, digits);
}

/** The results, in the order of the items; null for those that have no value. */
export function results(plan, totals, participants) {
  const slots = slotsOf(plan);
  if (totals.length !== slots.length) fail("WrongSlotCount");
  const [first] = totals;
  const values = [first % COUNTED, ...totals.slice(1)];
  const n = (first / COUNTED) % (OUTSIDE / COUNTED);
  const outside = first / OUTSIDE;
  slots.forEach((s, i) => {
    if (values[i] > participants * s.vmax || n + outside > participants) fail("SumOutOfRange");
  });
  const at = (kind, column) => slots.findIndex((s) => s.kind === kind && s.column === column);
  const sums = plan.columns.map((c, i) => {
    const place = at("sum", i);
    return place < 0 ? null : values[place] + participants * slots[place].shift;
  });
  const squares = plan.columns.map((c, i) => values[at("squares", i)] ?? null);
  plan.columns.forEach((c, i) => {
    const s = sums[i];
    const q = squares[i];
    if (s === null) return;
    if (s < n * c.low || s > n * c.high) fail("Inconsistent");
    if (q !== null && (q > n * slots[at("squares", i)].vmax || s * s > n * q)) fail("Inconsistent");
  });
  const shown = plan.items.map(({ aggregate, column }) => {
    if (aggregate === COUNT) return n.toString();
    const { divisor } = plan.columns[column];
    const s = sums[column];
    const p = placesOf(divisor);
    const digits = (count) => (p === null ? INEXACT_DIGITS : count);
    if (aggregate === SUM) return quotient(s, divisor, digits(p));
    if (n === 0n) return null;
    const variance = squares[column] === null ? null : n * squares[column] - s * s;
    if (aggregate === VARIANCE) return quotient(variance, (n * divisor) ** 2n, digits(2 * p + 4));
    if (aggregate === STDDEV) return root(variance, n * divisor, digits(p + 4));
    return quotient(s, n * divisor, digits(p + 4));
  });
  return { count: Number(n), outside: Number(outside), results: shown };
}
