// The operations of seals, trees and streams.

import { openReceipt, openUrgent } from "./cose.mjs";
import { openReading } from "./reading.mjs";
import { countersOf, deviceId, groupId, levelsOf, saltOf } from "./crypto.mjs";
import { explain } from "./explain.mjs";
import { hex, keyOf, malformed, OPS, rosterOf, toHex } from "./ops.mjs";
import { Waiting } from "./sanitised.mjs";
import { framed, openSchema } from "./schema.mjs";
import { blockDigest, chain, NULL_DIGEST } from "./star.mjs";
import { DEFAULT_MAX_EVENTS, readFile, readStream, rowsOf } from "./stream.mjs";
import { leafHash, pathOf, pathRoot, proofOf, proofRoot, rootOf } from "./tree.mjs";

OPS["level.ids"] = (input) => ({ device: toHex(deviceId(input.group, input.device)), group: toHex(groupId(input.group)) });

OPS["level.salt"] = (input) => ({ salt: toHex(saltOf(hex(input.key), hex(input.device), input.index)) });

OPS["level.level"] = (input) => {
  const salt = hex(input.salt);
  return { levels: input.seqs.map((seq) => levelsOf(salt, 1, input.levels, seq)[0]) };
};

OPS["level.counters"] = (input) => {
  if (!(input.n <= DEFAULT_MAX_EVENTS)) malformed("n");
  return { counters: countersOf(levelsOf(hex(input.salt), input.n, input.levels), input.levels) };
};

OPS["star.seal"] = (input) => {
  const schema = openSchema(hex(input.schema));
  const device = hex(input.device);
  const eventLevels = levelsOf(hex(input.salt), input.records.length, input.levels);
  const counters = countersOf(eventLevels, input.levels);
  const blocks = counters.map(() => []);
  input.records.forEach((record, seq) => blocks[eventLevels[seq]].push(framed(schema, hex(record))));
  const joined = blocks.map((records) => Buffer.concat(records));
  const digests = joined.map((block, i) => (counters[i] === 0 ? NULL_DIGEST : blockDigest(device, input.index, i, block)));
  return {
    blocks: joined.map(toHex),
    counters,
    digests: digests.map(toHex),
    root: toHex(chain(counters, digests, 0, input.levels, null)),
  };
};

const leavesOf = (input) => input.records.map((record) => leafHash(hex(record)));

OPS["tree.root"] = (input) => ({ root: toHex(rootOf(leavesOf(input))) });

OPS["tree.path"] = (input) => ({ path: pathOf(leavesOf(input), input.seq).map(toHex) });

OPS["tree.path_root"] = (input) => ({
  root: toHex(pathRoot(BigInt(input.size), BigInt(input.seq), hex(input.leaf), input.path.map(hex))),
});

OPS["tree.multiproof"] = (input) => {
  const leaves = leavesOf(input);
  const digests = proofOf(leaves, input.selected);
  const root = proofRoot(leaves.length, input.selected, input.selected.map((seq) => leaves[seq]), digests);
  return { digests: digests.map(toHex), root: toHex(root) };
};

OPS["tree.receipt"] = (input) => {
  const { alg, key } = keyOf(input);
  return { root: toHex(openReceipt(hex(input.bytes), hex(input.record), alg, key)) };
};

OPS["urgent.open"] = (input, context) => {
  const schema = input.schema === undefined ? null : openSchema(hex(input.schema));
  const e = openUrgent(hex(input.bytes), rosterOf(context), schema);
  return { device: toHex(e.device), index: e.index, record: toHex(e.record), seq: e.seq };
};

OPS["reading.open"] = (input, context) => {
  const r = openReading(input.format, hex(input.bytes), rosterOf(context));
  return { device: toHex(r.device), index: r.index, epoch: r.epoch, seq: r.seq, format: r.format, time: r.time, values: r.values };
};

export function optionsOf(context) {
  return { maxEvents: context.max_events ?? DEFAULT_MAX_EVENTS };
}

OPS["stream.read"] = (input, context) => {
  const roster = rosterOf(context);
  const options = optionsOf(context);
  const seals = new Map((input.known ?? []).map((k) => [`${k.device}/${k.index}`, hex(k.digest)]));
  options.known = (id, index) => seals.get(`${id}/${index}`);
  const parts = [];
  const others = [];
  for (const item of readStream(hex(input.bytes), roster, options)) {
    if (item.kind !== "run") {
      if (item.kind !== "schema" && item.kind !== "open") others.push(item.kind);
      continue;
    }
    for (const part of item.parts) {
      parts.push({
        counters: part.counters,
        digest: toHex(part.digest),
        epoch: part.epoch,
        index: part.index,
        root: toHex(part.root),
        rows: rowsOf(part).map(([seq, level, record]) => [seq, level, toHex(record)]),
      });
    }
  }
  return { others, parts };
};

OPS["sanitised.read"] = (input, context) => {
  const roster = rosterOf(context);
  const waiting = new Waiting(roster);
  const sanitised = [];
  for (const item of readStream(hex(input.bytes), roster, optionsOf(context))) {
    if (item.kind === "sanitised") waiting.push(item);
    if (item.kind === "end") waiting.finish();
    if (item.kind !== "run") continue;
    for (const part of item.parts) {
      for (const { statement, sanitiser, rows } of waiting.take(part)) {
        sanitised.push({
          by: sanitiser.name,
          group: statement.columnGroup,
          index: part.index,
          policy: statement.policy,
          rows: rows.map(([seq, record]) => [seq, toHex(record)]),
        });
      }
    }
  }
  waiting.finish();
  return { sanitised };
};

OPS["stream.bundle"] = (input, context) => {
  const parts = readFile(hex(input.bytes), rosterOf(context), optionsOf(context));
  return { parts: parts.map(({ part, from }) => ({ epoch: part.epoch, events: part.seqs.length, from, index: part.index })) };
};

OPS["stream.explain"] = (input, context) => {
  const roster = rosterOf(context);
  let run = [];
  for (const item of readStream(hex(input.bytes), roster, { ...optionsOf(context), unverified: true })) {
    if (item.kind === "run") {
      run = item.parts;
      break;
    }
  }
  explain(roster, run, input.explained.map(hex));
  return {};
};
