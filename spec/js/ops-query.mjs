// The operations of queries over many devices.

import { fail } from "./fail.mjs";
import { Noise } from "./noise.mjs";
import { hex, OPS, toHex } from "./ops.mjs";
import { COUNTER_BITS, encodePlan, openPlan, planText } from "./query.mjs";
import { results } from "./query-results.mjs";
import { contribution, fits, hasFields, partsOf, slotsOf } from "./query-slots.mjs";
import { parseQuery } from "./query-text.mjs";
import { openSchema } from "./schema.mjs";

OPS["query.parse"] = (input) => {
  const plan = parseQuery(input.text, openSchema(hex(input.schema)));
  return { plan: toHex(encodePlan(plan)), text: planText(plan) };
};

OPS["query.plan"] = (input) => {
  const plan = openPlan(hex(input.bytes));
  if (!fits(plan, BigInt(input.sources))) fail("Overflow");
  const name = (column) => (column === null ? null : plan.columns[column].name);
  return {
    epoch_ms: plan.epochMs,
    slots: slotsOf(plan).map((s) => [s.kind, name(s.column), s.vmax.toString(), s.shift, s.most.toString()]),
    text: planText(plan),
  };
};

/** The contribution with the noise that `noiseOf` makes for the plan. */
function contributed(input, noiseOf) {
  const plan = openPlan(hex(input.plan));
  const schema = openSchema(hex(input.schema));
  const record = input.record === null ? null : hex(input.record);
  return { values: contribution(plan, schema, record, noiseOf(plan)).map(String) };
}

OPS["query.contribution"] = (input) => contributed(input, () => null);

OPS["query.noisy"] = (input) =>
  contributed(input, (plan) => new Noise(plan.epsilon, partsOf(plan), hex(input.key), BigInt(input.epoch), BigInt(input.ring)));

OPS["query.answer"] = (input) => {
  const plan = openPlan(hex(input.plan));
  return { groups: results(plan, input.totals.map(BigInt), BigInt(input.participants), BigInt(input.ring)) };
};

OPS["query.fit"] = (input) => {
  // A text has a plan of more slots than permitted if only lower counter bits make it fit.
  const plan = openPlan(hex(input.plan), true);
  if (hasFields(plan) && plan.epsilon === 0) {
    const sources = BigInt(input.sources);
    plan.counterBits = COUNTER_BITS.find((counterBits) => fits({ ...plan, counterBits }, sources)) ?? COUNTER_BITS.at(-1);
  }
  return { plan: toHex(encodePlan(plan)) };
};
