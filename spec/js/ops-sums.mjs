// The operations of private sums.

import { checkedKey, hex, malformed, OPS, shown } from "./ops.mjs";
import * as sums from "./sums.mjs";

OPS["sum.encrypt"] = (input) => {
  const master = hex(input.master);
  const group = hex(input.group);
  const device = sums.deviceSecret(master, group, hex(input.device));
  const keyGroup = sums.keyGroupSecret(master, group, input.key_group);
  const psr = sums.encrypt(device, keyGroup, hex(input.query), input.slot, BigInt(input.epoch), BigInt(input.value));
  return shown({ device, key_group: keyGroup, psr });
};

OPS["sum.open"] = (input) => {
  const sum = sums.openSum(
    hex(input.master),
    hex(input.group),
    input.key_group,
    hex(input.query),
    input.slot,
    BigInt(input.epoch),
    BigInt(input.vmax),
    input.participants.map(hex),
    input.psrs.map(hex),
  );
  return { sum: sum.toString() };
};

OPS["sum.participants"] = (input) => {
  if (!input.runs.every(([start, end]) => start < end && end <= 2 ** 31)) malformed("runs");
  return shown({ bytes: sums.encodeParticipants(input.runs) });
};

OPS["sum.participation"] = (input) => {
  const runs = sums.readParticipation(hex(input.bytes), input.sources);
  return { count: runs.reduce((n, [start, end]) => n + end - start, 0), runs };
};

OPS["sum.up"] = (input) => shown(sums.openShare(hex(input.frame), hex(input.hub_secret), hex(input.group), hex(input.child)));

OPS["sum.refusal"] = (input) => {
  const [master, group, device, query] = [hex(input.master), hex(input.group), hex(input.device), hex(input.query)];
  return shown({ tag: sums.refusalTag(master, group, device, query, BigInt(input.epoch), input.reason) });
};

OPS["sum.explain"] = (input) =>
  shown(sums.openExplain(hex(input.frame), hex(input.hub_secret), hex(input.group), hex(input.child)));

OPS["sum.agenda"] = (input) => {
  const { alg, key } = checkedKey(input);
  return shown(sums.openSchedule(hex(input.bytes), hex(input.group), hex(input.roster), alg, key));
};
