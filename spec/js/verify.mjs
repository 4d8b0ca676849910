#!/usr/bin/env node
// A verifier of the Moteseal formats, written from the pages of the specification. It needs Node 20 and no packages.
//
//   node verify.mjs vectors [--vectors DIR] [--only PREFIX] [--json]
//   node verify.mjs bundle FILE... --roster ROSTER --operator PEM
//   node verify.mjs batch

import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { batch } from "./batch.mjs";
import { bundle } from "./files.mjs";
import "./ops-stream.mjs";
import "./ops-answers.mjs";
import "./ops-coordinator.mjs";
import "./ops-cast.mjs";
import "./ops-update.mjs";
import "./ops-sums.mjs";
import "./ops-query.mjs";
import "./ops-confidential.mjs";
import "./ops-grants.mjs";
import "./ops-policy.mjs";
import "./ops-time.mjs";
import * as vectors from "./vectors.mjs";

const HERE = dirname(fileURLToPath(import.meta.url));
const USAGE = `usage: verify.mjs vectors [--vectors DIR] [--only PREFIX] [--json]
       verify.mjs bundle FILE... --roster ROSTER --operator PEM
       verify.mjs batch`;

async function main(args) {
  const [command, ...rest] = args;
  if (command === "vectors") {
    const { values } = parseArgs({
      args: rest,
      options: { vectors: { type: "string" }, only: { type: "string" }, json: { type: "boolean" } },
    });
    const folder = values.vectors ?? join(HERE, "..", "vectors", "v1");
    return vectors.print(vectors.replay(folder, values.only), values.json);
  }
  if (command === "bundle") {
    const { values, positionals } = parseArgs({
      args: rest,
      allowPositionals: true,
      options: { roster: { type: "string" }, operator: { type: "string" } },
    });
    if (positionals.length > 0 && values.roster && values.operator) return bundle(positionals, values.roster, values.operator);
  }
  if (command === "batch") return batch(process.stdin, process.stdout);
  console.error(USAGE);
  return 2;
}

main(process.argv.slice(2)).then(
  (status) => (process.exitCode = status),
  (e) => {
    console.error(e.message);
    process.exitCode = 2;
  },
);
