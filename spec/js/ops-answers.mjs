// The operations of choices, answers and proofs.

import { openAnswer, openProof, openRange } from "./answers.mjs";
import { atMostMask, choose, parseRate, rateMask, readQuery, survivors } from "./choice.mjs";
import { fail } from "./fail.mjs";
import { hex, malformed, OPS, rosterOf, toHex } from "./ops.mjs";
import { optionsOf } from "./ops-stream.mjs";

OPS["choice.rate"] = (input) => {
  const rate = parseRate(input.rate);
  if (rate === null) fail("RateUnavailable");
  return { mask: rateMask(rate, input.levels) };
};

OPS["choice.at_most"] = (input) => {
  const parts = input.parts.map((p) => ({
    counters: p.counters,
    survives: p.counters.map((c, i) => c > 0 && i >= p.own_round && !p.lost[i]),
  }));
  return { mask: atMostMask(parts, survivors(parts, 0), BigInt(input.m)) };
};

OPS["permutation.choose"] = (input) => ({
  positions: choose(hex(input.device), BigInt(input.epoch), hex(input.seed), BigInt(input.m), BigInt(input.total)),
});

const rowOf = ([index, seq, record]) => [index, seq, toHex(record)];

OPS["choice.answer"] = (input, context) => {
  const { choice } = input;
  const open = input.until === null || input.until === undefined;
  const query = {
    devices: [input.device],
    since: BigInt(input.since),
    until: open ? 0xffffffffffffffffn : BigInt(input.until),
    open,
    choice: {},
  };
  if (choice.rate !== undefined) {
    query.choice.rate = parseRate(choice.rate);
    if (query.choice.rate === null) fail("RateUnavailable");
  } else if (choice.at_most !== undefined) {
    query.choice.atMost = BigInt(choice.at_most);
  } else {
    query.choice.sample = { count: BigInt(choice.count), seed: hex(choice.seed) };
  }
  const range = openRange(hex(input.bytes), rosterOf(context), query, choice.round ?? 0, optionsOf(context));
  return { rows: range.rows.map(rowOf), seals: range.seals };
};

function answerOutput(answer) {
  for (const d of answer.devices) d.rows = d.rows.map(rowOf);
  return answer;
}

OPS["answer.open"] = (input, context) => {
  const query = readQuery(input.query);
  if (query === null) malformed("query");
  return answerOutput(openAnswer(hex(input.bytes), rosterOf(context), query, optionsOf(context)));
};

OPS["proof.open"] = (input, context) => answerOutput(openProof(hex(input.bytes), rosterOf(context), optionsOf(context)));
