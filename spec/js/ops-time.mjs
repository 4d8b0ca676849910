// The operations of signed time.

import { checkedKey, hex, OPS, toHex } from "./ops.mjs";
import { challengeOf, openStatement, rangeOf } from "./time.mjs";

OPS["time.challenge"] = (input) => ({ challenge: toHex(challengeOf(hex(input.secret), input.starts, input.count)) });

OPS["time.open"] = (input) => {
  const keys = [input.operator, input.querier].map((key) => (key === null ? null : checkedKey(key)));
  const time = openStatement(hex(input.bytes), hex(input.group), hex(input.device), hex(input.challenge), keys);
  return { time: time.toString() };
};

OPS["time.range"] = (input) => {
  const { earliest, latest } = rangeOf(...["time", "sent", "received", "now"].map((name) => BigInt(input[name])));
  return { earliest: earliest.toString(), latest: latest.toString() };
};
