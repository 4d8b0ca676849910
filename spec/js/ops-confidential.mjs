// The operations of confidential readings.

import * as confidential from "./confidential.mjs";
import { hex, OPS, toHex } from "./ops.mjs";
import { checkRecord, decryptRecord, openSchema } from "./schema.mjs";

function sealKeyOf(input, leaf, column) {
  const { suite, index } = input;
  const place = { device: hex(input.device), epoch: BigInt(input.epoch), index, column, suite, nonce: hex(input.nonce) };
  return confidential.sealKey(leaf, place);
}

OPS["confidential.keys"] = (input) => {
  const secret = hex(input.secret);
  const column = confidential.columnId(hex(input.field));
  const root = confidential.columnRoot(secret, column);
  const nodes = [{ depth: 0n, prefix: 0n, key: root }];
  const leaf = confidential.epochKey(nodes, BigInt(input.base), BigInt(input.epoch));
  const key = sealKeyOf(input, leaf, column);
  return {
    column: toHex(column),
    commitment: toHex(confidential.commitment(key)),
    epoch_key: toHex(leaf),
    next: toHex(confidential.nextSecret(secret)),
    root: toHex(root),
    seal_key: toHex(key),
  };
};

OPS["confidential.cover"] = (input) => {
  const root = confidential.columnRoot(hex(input.secret), hex(input.column));
  const nodes = confidential.cover(root, BigInt(input.base), BigInt(input.first), BigInt(input.last));
  return { nodes: nodes.map(({ depth, prefix, key }) => [Number(depth), Number(prefix), toHex(key)]) };
};

OPS["confidential.open"] = (input) => {
  const nodes = input.nodes.map(([depth, prefix, key]) => ({ depth: BigInt(depth), prefix: BigInt(prefix), key: hex(key) }));
  confidential.checkNodes(nodes);
  const leaf = confidential.epochKey(nodes, BigInt(input.base), BigInt(input.epoch));
  const key = sealKeyOf(input, leaf, hex(input.column));
  confidential.checkKey(key, hex(input.commitment));
  return { seal_key: toHex(key) };
};

OPS["confidential.decrypt"] = (input) => {
  const schema = openSchema(hex(input.schema));
  const record = hex(input.record);
  checkRecord(schema, record);
  const keys = input.keys.map((key) => (key === null ? null : hex(key)));
  const { bytes, values } = decryptRecord(schema, keys, BigInt(input.seq), record);
  return { record: toHex(bytes), values };
};
