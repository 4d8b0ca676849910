// Queries over many devices: slots, fields, bins and contributions (queries.md, section 4).

import { fail } from "./fail.mjs";
import { boundOf } from "./noise.mjs";
import { numerators } from "./schema.mjs";

const SUMMED = [0, 2, 3, 4];
const SQUARES = [3, 4];
const BINNED = [5, 6];
const CAPACITY = 1n << 96n;
const MAX_SOURCES = 1n << 20n;
export const MAX_SLOTS = 17;
const SLOT_BITS = 96;
const COUNTED = 1n << 56n;
const OUTSIDE = 1n << 76n;

const largest = (a, b) => (a > b ? a : b);

const has = (items, column, aggregates) => items.some((i) => i.column === column && aggregates.includes(i.aggregate));
const placesWith = ({ items, columns }, aggregates) => [...columns.keys()].filter((column) => has(items, column, aggregates));

/** The places of the summed and of the binned columns, ascending. */
export const summed = (plan) => placesWith(plan, SUMMED);
export const binned = (plan) => placesWith(plan, BINNED);
export const hasSquares = ({ items }, column) => has(items, column, SQUARES);

export const hasFields = (plan) => plan.epsilon > 0 || binned(plan).length > 0 || summed(plan).length === 0;

/** Whether the groups have a field for the number of their readings. */
function hasReadingsField(plan) {
  const [sums, bins] = [summed(plan).length, binned(plan).length];
  return plan.epsilon > 0 ? sums > 0 || bins === 0 : sums === 0 && bins === 0;
}

/** The number of fields that change with one reading (sums.md, section 2.4, rule 3). */
export function partsOf(plan) {
  const ofGroup = (hasReadingsField(plan) ? 1 : 0) + summed(plan).length;
  return BigInt((plan.groups !== null ? 2 : 1) * ofGroup + 2 * binned(plan).length);
}

export const groupCount = ({ groups }) => (groups === null ? 1 : groups.values.length);

// ---------------------------------------------------------------- bins: section 4.3

const spanOf = ({ low, high }) => high - low + 1n;

export function binCount(plan, column) {
  const span = spanOf(plan.columns[column]);
  const bins = BigInt(plan.bins);
  return span < bins ? span : bins;
}

function binOf(plan, column, v) {
  const c = plan.columns[column];
  if (v <= c.low) return 0n;
  const inside = v > c.high ? c.high : v;
  return ((inside - c.low) * binCount(plan, column)) / spanOf(c);
}

/** The numerator at which bin `k` begins. */
export function binStart(plan, column, k) {
  const count = binCount(plan, column);
  const c = plan.columns[column];
  return c.low + (k * spanOf(c) + count - 1n) / count;
}

// ---------------------------------------------------------------- slots and fields: sections 4.1 and 4.2

/** The slots of the sums of a group. */
function sumsOf(plan, group) {
  const slots = [];
  for (const column of summed(plan)) {
    const { low, high } = plan.columns[column];
    const shift = low < 0n ? low : 0n;
    slots.push({ kind: "sum", column, group, vmax: largest(0n, high) - shift, shift });
    if (!hasSquares(plan, column)) continue;
    slots.push({ kind: "squares", column, group, vmax: largest(low * low, high * high), shift: 0n });
  }
  if (slots.length > 0 && slots[0].vmax >= 1n << 36n) slots.unshift({ kind: "counts", column: null, group, vmax: 0n, shift: 0n });
  return slots.map((slot, i) => ({ ...slot, isFirst: i === 0, most: slot.vmax + (i === 0 ? OUTSIDE : 0n) }));
}

/** The fields: {kind, group, column, bin, scale, highest}, numbered across all groups. */
export function fieldsOf(plan) {
  if (!hasFields(plan)) return [];
  const parts = partsOf(plan);
  const field = (kind, group, column, bin) => {
    const scale = kind === "steps" ? 32n : 1n;
    const noise = plan.epsilon > 0 ? 2n * boundOf(plan.epsilon, parts, scale) : 0n;
    return { kind, group, column, bin, scale, highest: scale + noise };
  };
  const fields = [];
  for (let group = 0; group < groupCount(plan); group++) {
    if (hasReadingsField(plan)) fields.push(field("readings", group, null, null));
    if (plan.epsilon > 0) for (const column of summed(plan)) fields.push(field("steps", group, column, null));
    for (const column of binned(plan)) {
      const count = binCount(plan, column);
      for (let bin = 0n; bin < count; bin++) fields.push(field("bin", group, column, bin));
    }
  }
  return fields.map((f, number) => ({ ...f, number }));
}

export function slotsOf(plan) {
  const slots = [];
  if (plan.epsilon === 0) for (let group = 0; group < groupCount(plan); group++) slots.push(...sumsOf(plan, group));
  const fields = fieldsOf(plan);
  const bits = BigInt(plan.counterBits);
  const width = fields.length > 0 ? Math.floor(SLOT_BITS / plan.counterBits) : 1;
  for (let i = 0; i < fields.length; i += width) {
    const held = fields.slice(i, i + width).map((f, place) => ({ ...f, lowest: BigInt(place) * bits }));
    const vmax = held.reduce((sum, f) => sum + (f.highest << f.lowest), 0n);
    slots.push({ kind: "counters", column: null, group: null, vmax, shift: 0n, isFirst: false, most: vmax, fields: held });
  }
  return slots;
}

/** Section 4.4. */
export function fits(plan, sources) {
  const slots = slotsOf(plan);
  if (sources >= MAX_SOURCES || slots.length > MAX_SLOTS) return false;
  if (hasFields(plan) && sources >> BigInt(plan.counterBits) !== 0n) return false;
  return slots.every((s) => sources * (s.most + 1n) < CAPACITY);
}

// ---------------------------------------------------------------- contributions

function matches(predicate, values) {
  if (predicate === null) return true;
  if (predicate.not !== undefined) return !matches(predicate.not, values);
  if (predicate.and !== undefined) return predicate.and.every((p) => matches(p, values));
  if (predicate.or !== undefined) return predicate.or.some((p) => matches(p, values));
  const v = values[predicate.column];
  return (predicate.low === null || v >= predicate.low) && (predicate.high === null || v <= predicate.high);
}

/** The checks of section 4.5: the places of the plan's columns in the source's schema. */
function placesIn(plan, schema) {
  return plan.columns.map((c) => {
    const place = schema.fields.findIndex((f) => f.name === c.name);
    if (place < 0) fail("UnknownColumn");
    const field = schema.fields[place];
    if (field.type >= 8 || field.nullable) fail("NotExact");
    if (field.divisor !== c.divisor) fail("DivisorMismatch");
    return place;
  });
}

/** The group of a reading with these numerators; -1 if it does not match. */
function groupOf(plan, values) {
  if (values === null || !matches(plan.predicate, values)) return -1;
  return plan.groups === null ? 0 : plan.groups.values.indexOf(values[plan.groups.column]);
}

/** What a source contributes to each slot; `record` is null without a reading. */
export function contribution(plan, schema, record, noise = null) {
  const places = placesIn(plan, schema);
  if (plan.epsilon > 0 && noise === null) fail("NoiseMissing");
  let values = null;
  if (record !== null) {
    const all = numerators(schema, record);
    values = places.map((place) => all[place]);
  }
  const group = groupOf(plan, values);
  const counted = group >= 0 && summed(plan).every((i) => values[i] >= plan.columns[i].low && values[i] <= plan.columns[i].high);

  const added = (field) => {
    if (!counted || field.group !== group) return 0n;
    if (field.kind === "readings") return 1n;
    const v = values[field.column];
    if (field.kind === "bin") return binOf(plan, field.column, v) === field.bin ? 1n : 0n;
    return noise.steps(field.number, v, plan.columns[field.column]);
  };
  const counters = (slot) =>
    slot.fields.reduce((sum, f) => {
      const number = added(f) + (plan.epsilon > 0 ? noise.added(f.number, f.scale) : 0n);
      return sum + (number << f.lowest);
    }, 0n);
  return slotsOf(plan).map((slot) => {
    if (slot.kind === "counters") return counters(slot);
    const isOurs = slot.group === group;
    const v = isOurs && counted && slot.column !== null ? values[slot.column] : 0n;
    const integer = slot.kind === "squares" ? v * v : v - slot.shift;
    return isOurs && slot.isFirst ? integer + (counted ? COUNTED : OUTSIDE) : integer;
  });
}

/** The total of the first slot of a group: its value, and the numbers of readings that are counted and outside. */
export const divided = (total) => ({ value: total % COUNTED, count: (total % OUTSIDE) / COUNTED, outside: total / OUTSIDE });
