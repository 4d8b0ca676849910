// Queries over many devices: plans and their text (queries.md, section 3).

import * as cbor from "./cbor.mjs";
import { fail } from "./fail.mjs";
import { boundOf } from "./noise.mjs";
import { binned, hasFields, MAX_SLOTS, partsOf, slotsOf } from "./query-slots.mjs";
import { isName } from "./schema.mjs";

export const AGGREGATES = ["SUM", "COUNT", "AVG", "VARIANCE", "STDDEV", "HISTOGRAM", "QUANTILE"];
export const [SUM, COUNT, AVG, VARIANCE, STDDEV, HISTOGRAM, QUANTILE] = AGGREGATES.keys();
/** The quantiles that have their own words. */
export const RANKS = { MIN: 0, MEDIAN: 5000, MAX: 10000 };
export const MAX_RANK = 10000;
export const MAX_ITEMS = 16;
export const MAX_COLUMNS = 8;
export const MAX_STEPS = 32;
export const MAX_DEPTH = 16;
export const MAX_GROUPS = 16;
export const MIN_BINS = 2;
export const MAX_BINS = 64;
export const DEFAULT_BINS = 8;
export const MAX_EPSILON = 4000;
const MAX_BOUND = 65536n;
/** The bits of a field without and with noise. */
export const COUNTER_BITS = [12, 16, 20];
export const NOISY_BITS = 48;
export const MIN_DURATION = 1000n;
export const MAX_DURATION = 604800000n;
export const RESERVED = new Set(["SELECT", "FROM", "WHERE", "EPOCH", "DURATION", "AND", "OR", "NOT", "BETWEEN"]);
/** The text in upper case, if it is ASCII. The words of the language are. */
export const upper = (text) => (/^[\x00-\x7f]*$/.test(text) ? text.toUpperCase() : text);
export const WORD = /[\p{Alphabetic}_][\p{Alphabetic}\p{N}_]*/uy;
const MAX_PLACES = 10;

// ---------------------------------------------------------------- plans: section 3

const refuse = (condition) => condition && fail("FieldOutOfRange");

function shape(bytes) {
  const f = cbor.versioned(cbor.single(bytes), 9);
  const place = (n) => BigInt(cbor.u8(n));
  const items = cbor.array(f[1]).map((n, count) => {
    const i = cbor.array(n);
    if (i.length === 0) fail("UnexpectedType");
    const aggregate = cbor.u64(i[0]);
    refuse(aggregate >= AGGREGATES.length);
    const isQuantile = Number(aggregate) === QUANTILE;
    cbor.array(n, isQuantile ? 3 : 2);
    const item = { aggregate, column: cbor.nullable(i[1], place), rank: isQuantile ? cbor.u16(i[2]) : null };
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
  const groups = cbor.nullable(f[4], (n) => {
    const g = cbor.array(n, 2);
    const column = cbor.u8(g[0]);
    const values = cbor.array(g[1]).map((v, count) => {
      const value = cbor.i64(v);
      refuse(count >= MAX_GROUPS);
      return value;
    });
    return { column, values };
  });
  const [bins, counterBits, epsilon] = [cbor.u8(f[5]), cbor.u8(f[6]), cbor.u32(f[7])];
  return { items, columns, steps, groups, bins, counterBits, epsilon, epochMs: cbor.u64(f[8]) };
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
  const { items, columns, steps, groups, epochMs } = plan;
  refuse(items.length < 1);
  const seen = new Set();
  const mentioned = new Set();
  const ranged = new Set();
  for (const { aggregate, column, rank } of items) {
    refuse(column === null && Number(aggregate) !== COUNT);
    refuse(column !== null && column >= columns.length);
    refuse(rank !== null && rank > MAX_RANK);
    const id = `${aggregate}/${column}/${rank}`;
    refuse(seen.has(id));
    seen.add(id);
    if (column !== null) mentioned.add(Number(column));
    if (Number(aggregate) !== COUNT) ranged.add(Number(column));
  }
  plan.predicate = predicateOf(steps, columns.length);
  for (const step of steps) if (step.op === undefined) mentioned.add(Number(step.column));
  if (groups !== null) mentioned.add(groups.column);
  // A set keeps the order of its insertions, so this is the order of first mention.
  refuse(mentioned.size !== columns.length || [...mentioned].some((column, i) => column !== i));
  refuse(new Set(columns.map((c) => c.name)).size !== columns.length);
  columns.forEach((c, i) => {
    refuse(!isName(c.name) || c.divisor < 1n);
    refuse((c.low !== null) !== ranged.has(i) || (c.low !== null && c.low > c.high));
  });
  if (groups !== null) {
    refuse(groups.values.length < 1 || new Set(groups.values).size !== groups.values.length);
    refuse(!hasExactText(columns[groups.column].divisor));
  }
  refuse(epochMs < MIN_DURATION || epochMs > MAX_DURATION);
}

/** The rules 9 to 11 and 13 of section 3.1. */
function checkForm(plan) {
  const { bins, counterBits, epsilon } = plan;
  refuse(binned(plan).length > 0 ? bins < MIN_BINS || bins > MAX_BINS : bins !== 0);
  refuse(epsilon > MAX_EPSILON);
  if (!hasFields(plan)) refuse(counterBits !== 0);
  else refuse(epsilon > 0 ? counterBits !== NOISY_BITS : !COUNTER_BITS.includes(counterBits));
  refuse(epsilon > 0 && (!hasNoisyForm(plan) || isTooNoisy(plan)));
}

/** Whether the results of all items have a form with noise. */
export const hasNoisyForm = ({ items }) =>
  items.every(({ aggregate, rank }) => aggregate !== VARIANCE && aggregate !== STDDEV && rank !== 0 && rank !== MAX_RANK);

export const isTooNoisy = (plan) => boundOf(plan.epsilon, partsOf(plan), 32n) > MAX_BOUND;

/** Whether the numerators over the divisor have an exact decimal form of at most 10 places. */
export function hasExactText(divisor) {
  const places = placesOf(divisor);
  return places !== null && places <= MAX_PLACES;
}

/** The plan of the bytes. `anySlots` permits any number of slots, as of a plan whose counter bits have not been chosen. */
export function openPlan(bytes, anySlots = false) {
  const plan = shape(bytes);
  checkSense(plan);
  plan.items = plan.items.map(({ aggregate, column, rank }) => ({
    aggregate: Number(aggregate),
    column: column === null ? null : Number(column),
    rank,
  }));
  checkForm(plan);
  refuse(!anySlots && slotsOf(plan).length > MAX_SLOTS);
  return plan;
}

/** The encoding of a plan; the steps are made from its predicate. */
export function encodePlan({ items, columns, predicate, groups, bins, counterBits, epsilon, epochMs }) {
  const optional = (v) => (v === null ? cbor.encodeNull() : cbor.encodeInt(v));
  const steps = postfix(predicate).map((s) =>
    s.op !== undefined ? cbor.encodeInt(s.op) : cbor.encodeArray([cbor.encodeUint(s.column), optional(s.low), optional(s.high)]),
  );
  return cbor.encodeArray([
    cbor.encodeUint(1),
    cbor.encodeArray(
      items.map((i) => {
        const rank = i.rank === null ? [] : [cbor.encodeUint(i.rank)];
        return cbor.encodeArray([cbor.encodeUint(i.aggregate), optional(i.column), ...rank]);
      }),
    ),
    cbor.encodeArray(
      columns.map((c) => {
        const range = c.low === null ? [] : [cbor.encodeInt(c.low), cbor.encodeInt(c.high)];
        return cbor.encodeArray([cbor.encodeText(c.name), cbor.encodeUint(c.divisor), ...range]);
      }),
    ),
    cbor.encodeArray(steps),
    groups === null
      ? cbor.encodeNull()
      : cbor.encodeArray([cbor.encodeUint(groups.column), cbor.encodeArray(groups.values.map(cbor.encodeInt))]),
    ...[bins, counterBits, epsilon, epochMs].map(cbor.encodeUint),
  ]);
}

/** The steps of a predicate. */
function postfix(predicate) {
  if (predicate === null) return [];
  if (predicate.not !== undefined) return [...postfix(predicate.not), { op: 0 }];
  const operands = predicate.and ?? predicate.or;
  if (operands === undefined) return [predicate];
  return [...operands.flatMap(postfix), { op: predicate.and !== undefined ? operands.length : -operands.length }];
}

// ---------------------------------------------------------------- the text of a plan

/** The least number of places at which 1 / divisor is exact; null if there is none. */
export function placesOf(divisor) {
  let rest = divisor;
  let twos = 0;
  let fives = 0;
  for (; rest % 2n === 0n; rest /= 2n) twos++;
  for (; rest % 5n === 0n; rest /= 5n) fives++;
  return rest === 1n ? Math.max(twos, fives) : null;
}

/** A decimal number of `units` of the last of `places` digits. */
export function decimal(units, places) {
  const sign = units < 0n ? "-" : "";
  const digits = (units < 0n ? -units : units).toString().padStart(places + 1, "0");
  return places === 0 ? sign + digits : `${sign}${digits.slice(0, -places)}.${digits.slice(-places)}`;
}

export function floorDivide(a, b) {
  const q = a / b;
  return a % b < 0n ? q - 1n : q;
}

export const ceilDivide = (a, b) => -floorDivide(-a, b);

/** The places of numbers in the text of a plan. */
const placesShown = (divisor) => (hasExactText(divisor) ? placesOf(divisor) : MAX_PLACES);

/** `numerator / divisor` with the places of a plan's text, rounded by `divide`. */
export function numberText(numerator, divisor, divide) {
  const places = placesShown(divisor);
  return decimal(divide(numerator * 10n ** BigInt(places), divisor), places);
}

function columnText(name) {
  WORD.lastIndex = 0;
  const isWord = WORD.exec(name)?.[0].length === name.length && !RESERVED.has(upper(name));
  return isWord ? name : `"${name.replaceAll('"', '""')}"`;
}

function comparisonText({ column, low, high }, columns) {
  const { name, divisor } = columns[column];
  const shown = columnText(name);
  const lower = () => numberText(low, divisor, floorDivide);
  const upper = () => numberText(high, divisor, ceilDivide);
  if (low !== null && high !== null) {
    if (low > high) return `${shown} BETWEEN 1 AND 0`;
    if (low === high && hasExactText(divisor)) return `${shown} = ${lower()}`;
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

function itemText({ aggregate, column, rank }, columns) {
  const shown = column === null ? "*" : columnText(columns[column].name);
  if (rank === null) return `${AGGREGATES[aggregate]}(${shown})`;
  const word = Object.keys(RANKS).find((w) => RANKS[w] === rank);
  return word !== undefined ? `${word}(${shown})` : `QUANTILE(${shown}, ${decimal(BigInt(rank), 4)})`;
}

export function planText({ items, columns, predicate, groups, bins, epsilon, epochMs }) {
  let text = `SELECT ${items.map((i) => itemText(i, columns)).join(", ")} FROM sensors`;
  if (predicate !== null) text += ` WHERE ${predicateText(predicate, columns, null)}`;
  if (groups !== null) {
    const { name, divisor } = columns[groups.column];
    text += ` GROUP BY ${columnText(name)} (${groups.values.map((v) => numberText(v, divisor, floorDivide)).join(", ")})`;
  }
  if (bins !== 0 && bins !== DEFAULT_BINS) text += ` BINS ${bins}`;
  if (epsilon !== 0) text += ` EPSILON ${decimal(BigInt(epsilon), 3)}`;
  const [unit, ms] = UNITS.find(([, m]) => epochMs % m === 0n);
  return `${text} EPOCH DURATION ${epochMs / ms}${unit}`;
}
