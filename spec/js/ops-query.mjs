// The operations of queries over many devices.

import { hex, OPS, toHex } from "./ops.mjs";
import { parseQuery } from "./query-text.mjs";
import { checkCapacity, contribution, encodePlan, openPlan, planText, results, slotsOf } from "./query.mjs";
import { openSchema } from "./schema.mjs";

OPS["query.parse"] = (input) => {
  const plan = parseQuery(input.text, openSchema(hex(input.schema)));
  return { plan: toHex(encodePlan(plan)), text: planText(plan) };
};

OPS["query.plan"] = (input) => {
  const plan = openPlan(hex(input.bytes));
  const slots = slotsOf(plan);
  checkCapacity(slots, BigInt(input.sources));
  return {
    epoch_ms: plan.epochMs,
    slots: slots.map((s) => [s.kind, s.column === null ? null : plan.columns[s.column].name, s.vmax.toString(), s.shift, s.most.toString()]),
    text: planText(plan),
  };
};

OPS["query.contribution"] = (input) => {
  const plan = openPlan(hex(input.plan));
  const record = input.record === null ? null : hex(input.record);
  return { values: contribution(plan, openSchema(hex(input.schema)), record).map(String) };
};

OPS["query.answer"] = (input) => results(openPlan(hex(input.plan)), input.totals.map(BigInt), BigInt(input.participants));
