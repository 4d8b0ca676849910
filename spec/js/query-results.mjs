// Queries over many devices: from the totals of the slots to the results (queries.md, section 5).

import { fail } from "./fail.mjs";
import { boundOf, distanceOf, squareRoot } from "./noise.mjs";
import { ceilDivide, decimal, floorDivide, hasExactText, numberText, placesOf } from "./query.mjs";
import { AVG, COUNT, HISTOGRAM, QUANTILE, SUM, VARIANCE } from "./query.mjs";
import { binCount, binned, binStart, divided, groupCount, partsOf, slotsOf, summed } from "./query-slots.mjs";

const INEXACT_DIGITS = 9;
const RANK_UNITS = 10000n;
const STEPS = 32n;

// ---------------------------------------------------------------- numbers

/** a / b to the nearest of so many digits, halfway to even. `b` is positive. */
function quotient(a, b, digits) {
  const scaled = a * 10n ** BigInt(digits);
  let q = floorDivide(scaled, b);
  const twice = 2n * (scaled - q * b);
  if (twice > b || (twice === b && q % 2n !== 0n)) q++;
  return decimal(q, digits);
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

const absolute = (v) => (v < 0n ? -v : v);
const sumOf = (list) => list.reduce((a, b) => a + b, 0n);

// ---------------------------------------------------------------- totals: sections 5.1 and 5.2

/** The numbers of each group: its count, the readings outside, and by column its sums, squares, steps and bins. */
function groupsOf(plan, slots, totals, participants) {
  const groups = Array.from({ length: groupCount(plan) }, () => ({
    count: null,
    outside: 0n,
    hasReadings: false,
    sums: new Map(),
    squares: new Map(),
    steps: new Map(),
    bins: new Map(binned(plan).map((column) => [column, []])),
  }));
  let isTooHigh = false;
  const most = (value, highest) => {
    if (value > participants * highest) isTooHigh = true;
  };
  const parts = partsOf(plan);
  const offset = (scale) => (plan.epsilon > 0 ? participants * boundOf(plan.epsilon, parts, scale) : 0n);
  slots.forEach((slot, i) => {
    if (slot.kind === "counters") {
      most(totals[i], slot.vmax);
      for (const { kind, group, column, scale, highest, lowest } of slot.fields) {
        const held = BigInt.asUintN(plan.counterBits, totals[i] >> lowest);
        most(held, highest);
        const value = held - offset(scale);
        const g = groups[group];
        if (kind === "bin") g.bins.get(column).push(value);
        else if (kind === "steps") g.steps.set(column, value);
        else {
          g.count = value;
          g.hasReadings = true;
        }
      }
      return;
    }
    const g = groups[slot.group];
    let value = totals[i];
    if (slot.isFirst) ({ value, count: g.count, outside: g.outside } = divided(totals[i]));
    most(value, slot.vmax);
    if (slot.kind === "sum") g.sums.set(slot.column, value + participants * slot.shift);
    if (slot.kind === "squares") g.squares.set(slot.column, { value, vmax: slot.vmax });
  });
  for (const g of groups) {
    g.count ??= sumOf(g.bins.get(binned(plan)[0]));
    // The noise of the count may bring it above the number of participants.
    if (plan.epsilon === 0) most(g.count + g.outside, 1n);
  }
  if (isTooHigh) fail("SumOutOfRange");
  return groups;
}

/** Totals without noise that no readings have are `Inconsistent`. */
function checkPossible(plan, groups, participants) {
  const need = (condition) => condition || fail("Inconsistent");
  need(sumOf(groups.map((g) => g.count + g.outside)) <= participants);
  for (const { count: n, sums, squares, bins } of groups) {
    for (const [column, s] of sums) {
      const { low, high } = plan.columns[column];
      need(n * low <= s && s <= n * high);
      const q = squares.get(column);
      need(q === undefined || (q.value <= n * q.vmax && s * s <= n * q.value));
    }
    for (const list of bins.values()) need(sumOf(list) === n);
  }
}

// ---------------------------------------------------------------- bins

const rankOf = (rank, n) => {
  const r = ceilDivide(BigInt(rank) * n, RANK_UNITS);
  return r < 1n ? 1n : r;
};

/** The first bin up to whose end so many readings are, or the last bin. */
function binAt(list, rank) {
  let upTo = 0n;
  const found = list.findIndex((number) => (upTo += number) >= rank);
  return found < 0 ? list.length - 1 : found;
}

/** The lower bound of the bin `first` and the upper bound of the bin `last`. */
function boundsOf(plan, column, first, last) {
  const { divisor } = plan.columns[column];
  const isOpen = !summed(plan).includes(column);
  const isLast = BigInt(last) === binCount(plan, column) - 1n;
  const low = binStart(plan, column, BigInt(first));
  const high = binStart(plan, column, BigInt(last + 1)) - 1n;
  return {
    low: isOpen && first === 0 ? null : numberText(low, divisor, floorDivide),
    high: isOpen && isLast ? null : numberText(high, divisor, ceilDivide),
  };
}

// ---------------------------------------------------------------- results: sections 5.3 and 5.4

function exactResult(plan, { aggregate, column, rank }, { count: n, sums, squares, bins }) {
  if (aggregate === COUNT) return n.toString();
  if (aggregate === HISTOGRAM) return { counts: bins.get(column), within: 0 };
  if (aggregate === QUANTILE) {
    if (n === 0n) return null;
    const found = binAt(bins.get(column), rankOf(rank, n));
    return boundsOf(plan, column, found, found);
  }
  const { divisor } = plan.columns[column];
  const s = sums.get(column);
  const p = placesOf(divisor);
  const digits = (number) => (p === null ? INEXACT_DIGITS : number);
  if (aggregate === SUM) return quotient(s, divisor, digits(p));
  if (n === 0n) return null;
  if (aggregate === AVG) return quotient(s, n * divisor, digits(p + 4));
  const variance = n * squares.get(column).value - s * s;
  if (aggregate === VARIANCE) return quotient(variance, (n * divisor) ** 2n, digits(2 * p + 4));
  return root(variance, n * divisor, digits(p + 4));
}

function noisyResult(plan, { aggregate, column, rank }, { count: n, hasReadings, steps, bins }, distance) {
  const w = distance(1n);
  const ofBins = (i) => squareRoot(w * w * binCount(plan, i));
  // A count that is the sum of bins is as far from the exact one as the sum is.
  if (aggregate === COUNT) return { value: n.toString(), within: (hasReadings ? w : ofBins(binned(plan)[0])).toString() };
  if (aggregate === HISTOGRAM) return { counts: bins.get(column), within: w };
  if (aggregate === QUANTILE) {
    const list = bins.get(column);
    const [sum, e] = [sumOf(list), ofBins(column)];
    if (sum <= e) return null;
    const r = rankOf(rank, sum);
    return boundsOf(plan, column, binAt(list, r > e ? r - e : 1n), binAt(list, r + e));
  }
  const { divisor, low, high } = plan.columns[column];
  const digits = hasExactText(divisor) ? placesOf(divisor) : INEXACT_DIGITS;
  const [t, wt, range] = [steps.get(column), distance(STEPS), high - low];
  const scaled = t * range + STEPS * n * low;
  if (aggregate === SUM) {
    const within = wt * range + STEPS * absolute(low) * w;
    return { value: quotient(scaled, STEPS * divisor, digits), within: quotient(within, STEPS * divisor, digits) };
  }
  if (n <= w) return null;
  const over = STEPS * n * divisor;
  const within = wt * range + (absolute(t * range) / n) * w;
  return { value: quotient(scaled, over, digits + 4), within: quotient(within, over, digits + 4) };
}

/** The results of each group, in the order of the items; null for those that have no value. `ring` is the size of a key group. */
export function results(plan, totals, participants, ring) {
  const slots = slotsOf(plan);
  if (totals.length !== slots.length) fail("WrongSlotCount");
  const groups = groupsOf(plan, slots, totals, participants);
  if (plan.epsilon === 0) checkPossible(plan, groups, participants);
  const distance = (scale) => distanceOf(plan.epsilon, partsOf(plan), scale, participants, ring);
  const resultOf = (item, g) => (plan.epsilon > 0 ? noisyResult(plan, item, g, distance) : exactResult(plan, item, g));
  const nameOf = ({ column, values }, i) => numberText(values[i], plan.columns[column].divisor, floorDivide);
  return groups.map((g, i) => {
    const name = plan.groups === null ? null : nameOf(plan.groups, i);
    return { name, count: g.count, outside: g.outside, results: plan.items.map((item) => resultOf(item, g)) };
  });
}
