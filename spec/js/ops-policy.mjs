// The operations of policies and masks.

import { checkedKey, hex, OPS, shown } from "./ops.mjs";
import { charge, openPayload, openPolicy, permit } from "./policy.mjs";
import { openPlan } from "./query.mjs";
import { maskOf } from "./sums.mjs";

OPS["policy.open"] = (input) => {
  const policy = openPolicy(hex(input.bytes), hex(input.group), hex(input.roster), checkedKey(input));
  const { version, minCount, minCountSquares } = policy;
  return { version, min_count: minCount, min_count_squares: minCountSquares };
};

OPS["policy.permit"] = (input) => {
  const policy = openPayload(hex(input.policy));
  const ring = input.ring === null ? null : Number(input.ring);
  return { permission: permit(policy, checkedKey(input).key, openPlan(hex(input.plan)), ring) };
};

OPS["policy.charge"] = (input) => {
  const names = ["day", "spent", "start_ms", "epsilon", "budget"];
  const [day, spent, start, epsilon, budget] = names.map((name) => BigInt(input[name]));
  return charge({ day, spent }, start, epsilon, budget);
};

OPS["sum.mask"] = (input) => {
  const [root, group, query] = [hex(input.root), hex(input.group), hex(input.query)];
  const { slot, position, first, end } = input;
  return shown({ mask: maskOf(root, group, query, slot, BigInt(input.epoch), position, first, end) });
};
