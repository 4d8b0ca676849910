// Policies of private sums (policy.md).

import { keyId } from "./cast.mjs";
import * as cbor from "./cbor.mjs";
import { openObject, TYP_POLICY, verifyObject } from "./cose.mjs";
import { fail } from "./fail.mjs";
import { hasSquares, summed } from "./query-slots.mjs";

const MAX_QUERIERS = 8;
const MAX_COLUMNS = 16;
const MAX_NAME = 64;
const MIN_EPOCH = 1000;
const DAY_MS = 86_400_000;
const MAX_EPOCH = 7 * DAY_MS;

function openColumn(node) {
  const f = cbor.array(node, 4);
  const name = cbor.text(f[0]);
  const divisor = cbor.u32(f[1]);
  const [low, high] = [cbor.nullable(f[2], cbor.i64), cbor.nullable(f[3], cbor.i64)];
  if ((low === null) !== (high === null)) fail("FieldOutOfRange");
  return { name, divisor, low, high };
}

function openTerms(node) {
  const f = cbor.array(node, 5);
  const key = cbor.bytes(f[0], 8);
  const trust = cbor.u64(f[1]);
  if (trust > 1n) fail("FieldOutOfRange");
  const epochMs = cbor.u32(f[2]);
  const budget = cbor.u32(f[3]);
  const columns = cbor.array(f[4]).map(openColumn);
  const trusted = trust === 1n;
  columns.forEach(({ name, divisor, low, high }, place) => {
    const length = Buffer.byteLength(name);
    const first = columns.findIndex((other) => other.name === name) === place;
    if (!first || length < 1 || length > MAX_NAME || divisor === 0) fail("FieldOutOfRange");
    if (low === null ? !trusted : low > high) fail("FieldOutOfRange");
  });
  if (columns.length > MAX_COLUMNS || epochMs < MIN_EPOCH || epochMs > MAX_EPOCH) fail("FieldOutOfRange");
  if (trusted && budget !== 0) fail("FieldOutOfRange");
  return { key, trusted, epochMs, budget, columns };
}

/** Section 1: the payload. */
export function openPayload(payload) {
  const f = cbor.versioned(cbor.single(payload), 7);
  const [group, roster] = [cbor.bytes(f[1], 8), cbor.bytes(f[2], 32)];
  const [version, minCount, minCountSquares] = [f[3], f[4], f[5]].map(cbor.u32);
  const nodes = cbor.array(f[6]);
  if (minCount < 2 || minCountSquares < minCount) fail("FieldOutOfRange");
  const queriers = nodes.map(openTerms);
  const first = ({ key, trusted }, place) =>
    queriers.findIndex((other) => other.key.equals(key)) === place && trusted === queriers[0].trusted;
  if (queriers.length > MAX_QUERIERS || !queriers.every(first)) fail("FieldOutOfRange");
  return { group, roster, version, minCount, minCountSquares, queriers };
}

/** Section 1: the checks of a policy. */
export function openPolicy(bytes, group, roster, operator) {
  const object = openObject(bytes, TYP_POLICY);
  const policy = openPayload(object.payload);
  if (!policy.group.equals(group)) fail("WrongGroup");
  if (!policy.roster.equals(roster)) fail("WrongRoster");
  verifyObject(object, operator.alg, operator.key);
  return policy;
}

/**
 * Section 3: how a source with this policy answers: "plain", "masked", or {noisy} with the budget that applies or null.
 * `ring` is the size of its key group; null without masks.
 */
export function permit(policy, querier, plan, ring) {
  const terms = policy.queriers.find(({ key }) => key.equals(keyId(querier)));
  if (terms === undefined) fail("QuerierNotPermitted");
  const epochMs = Number(plan.epochMs);
  const isNoisy = plan.epsilon > 0;
  if (epochMs < terms.epochMs || (!terms.trusted && !isNoisy && epochMs > terms.epochMs)) fail("EpochNotPermitted");
  const free = terms.trusted && terms.columns.length === 0;
  for (const { name, divisor, low, high } of free ? [] : plan.columns) {
    const column = terms.columns.find((c) => c.name === name && BigInt(c.divisor) === BigInt(divisor));
    if (column === undefined) fail("ColumnNotPermitted");
    if (isNoisy || low === null || column.low === null) continue;
    if (low !== column.low || high !== column.high) fail("RangeNotPermitted");
  }
  if (!isNoisy) {
    if (terms.trusted) return "plain";
    if (plan.predicate !== null || plan.groups !== null || plan.bins !== 0) fail("ConditionNotPermitted");
    if (summed(plan).length > 1) fail("ColumnsCombined");
  } else if (!terms.trusted && plan.epsilon > terms.budget) fail("BudgetTooSmall");
  if (ring === null) fail("NoMasks");
  if (ring < (plan.columns.some((c, i) => hasSquares(plan, i)) ? policy.minCountSquares : policy.minCount)) fail("GroupTooSmall");
  if (!isNoisy) return "masked";
  return { noisy: terms.trusted ? null : terms.budget };
}

/** Section 4: the state of a source after an answer for the epoch that begins at `start`, all as BigInts. */
export function charge(state, start, epsilon, budget) {
  const day = start / BigInt(DAY_MS);
  const { day: before, spent } = day > state.day ? { day, spent: 0n } : state;
  if (spent + epsilon > budget) fail("BudgetSpent");
  return { day: before, spent: spent + epsilon };
}
