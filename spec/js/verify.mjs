#!/usr/bin/env node
// A verifier of the Moteseal formats, written from the pages of the specification. It needs Node 20 and no packages.
//
//   node verify.mjs vectors [--vectors DIR] [--only PREFIX] [--json]

import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import "./ops-stream.mjs";
import * as vectors from "./vectors.mjs";

const HERE = dirname(fileURLToPath(import.meta.url));

function main(args) {
  const [command, ...rest] = args;
  if (command === "vectors") {
    const { values } = parseArgs({
      args: rest,
      options: { vectors: { type: "string" }, only: { type: "string" }, json: { type: "boolean" } },
    });
    const folder = values.vectors ?? join(HERE, "..", "vectors", "v1");
    return vectors.print(vectors.replay(folder, values.only), values.json);
  }
  console.error("usage: verify.mjs vectors [--vectors DIR] [--only PREFIX] [--json]");
  return 2;
}

process.exitCode = main(process.argv.slice(2));
