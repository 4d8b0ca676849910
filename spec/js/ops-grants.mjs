// The operations of grants, owners' files and shares.

import { createPrivateKey, createPublicKey } from "node:crypto";
import { encodeOwner, epochsWithin, forget, grantKey, joinShares, offsets, openGrant, openOwner, openShare } from "./grants.mjs";
import { hex, OPS, rosterOf, shown } from "./ops.mjs";

/** The epochs of begin .. stop-1 that nodes open, as ranges. */
function ranges(base, nodes, [begin, stop]) {
  const out = [];
  for (const node of nodes) {
    let [first, last] = offsets(node).map((offset) => base + BigInt(offset));
    [first, last] = [first < begin ? begin : first, last < stop ? last : stop - 1n];
    if (first > last) continue;
    const before = out.at(-1);
    if (before !== undefined && before[1] + 1n === first) before[1] = last;
    else out.push([first, last]);
  }
  return out;
}

OPS["grant.open"] = (input, context) => {
  const { recipient, passphrase } = input;
  const roster = rosterOf(context);
  const { payload, owner } = openGrant(hex(input.bytes), roster, recipient, passphrase, BigInt(input.now));
  const within = epochsWithin(payload.time, roster);
  const columns = payload.streams.flatMap(({ device, generation, base, columns }) =>
    columns.map(({ id, nodes }) => [device, generation, id, ranges(base, nodes, within)]),
  );
  const { purpose, time, end, recipients } = payload;
  return shown({ owner: owner.name, ...time, purpose, not_after: end, recipients, columns });
};

OPS["grant.key"] = (input, context) => {
  const [device, column, nonce, commitment] = ["device", "column", "nonce", "commitment"].map((name) => hex(input[name]));
  const { index, suite } = input;
  const seal = { device, column, epoch: BigInt(input.epoch), index, suite, nonce, commitment };
  return shown({ key: grantKey(hex(input.bytes), rosterOf(context), seal) });
};

OPS["owner.open"] = (input) => {
  const { group, name, key, streams } = openOwner(hex(input.bytes));
  const secret = createPrivateKey({ key, format: "der", type: "pkcs8" });
  const spki = createPublicKey(secret).export({ format: "der", type: "spki" });
  return shown({
    group,
    name,
    key: spki.subarray(-32),
    streams: streams.map((s) => [s.device, s.generation, s.base, s.forgotten, s.columns.map((c) => [c.id, c.name])]),
  });
};

OPS["owner.forget"] = (input) => shown({ bytes: encodeOwner(forget(openOwner(hex(input.bytes)), BigInt(input.epoch))) });

OPS["owner.share"] = (input) => shown({ secret: joinShares(input.shares.map(openShare)) });
