// `bundle`: verifies files of bundles and proofs.

import { readFileSync } from "node:fs";
import { openProof } from "./answers.mjs";
import * as cbor from "./cbor.mjs";
import { checkKey, checkKeyLength } from "./crypto.mjs";
import { Fail, fail } from "./fail.mjs";
import { openRoster } from "./roster.mjs";
import { readFile } from "./stream.mjs";

// The SubjectPublicKeyInfo of each suite up to the key.
const SPKI = {
  "ed25519": { prefix: "302a300506032b6570032100", size: 32 },
  "esp256": { prefix: "3059301306072a8648ce3d020106082a8648ce3d030107034200", size: 65 },
  "ml-dsa-44": { prefix: "30820532300b06096086480165030403110382052100", size: 1312 },
};
const PEM = /^\s*-----BEGIN PUBLIC KEY-----([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----\s*$/;

/** The public key of a PEM file. */
function readPem(text) {
  const m = PEM.exec(text);
  if (m === null) fail("MalformedPem");
  const der = Buffer.from(m[1].replace(/\s/g, ""), "base64");
  for (const [alg, { prefix, size }] of Object.entries(SPKI)) {
    const head = Buffer.from(prefix, "hex");
    if (der.length !== head.length + size || !der.subarray(0, head.length).equals(head)) continue;
    const key = der.subarray(head.length);
    checkKeyLength(alg, key);
    checkKey(alg, key);
    return { alg, key };
  }
  return fail("MalformedDer");
}

function isProof(bytes) {
  try {
    const first = cbor.itemAt(bytes, 0);
    return first.t === cbor.ARRAY && first.v.length > 0 && first.v[0].t === cbor.UINT && first.v[0].v === 5;
  } catch (e) {
    if (e instanceof Fail) return false;
    throw e;
  }
}

function verify(bytes, roster) {
  if (isProof(bytes)) {
    const answer = openProof(bytes, roster, {});
    return answer.devices.map((d) => {
      const from = d.from === null ? "" : ` from epoch ${d.from}`;
      return `device ${d.device}: ${d.standing}${from}, ${d.seals} seals (${d.late} late), ${d.rows.length} events`;
    });
  }
  return readFile(bytes, roster, {}).map(({ part, from }) => {
    const pruned = from > 0 ? `, pruned at round ${from}` : "";
    return `device ${part.id}: seal ${part.index}, epoch ${part.epoch}, ${part.seqs.length} of ${part.n} events${pruned}`;
  });
}

/** Returns the exit status. */
export function bundle(paths, rosterPath, operatorPath) {
  let roster;
  try {
    roster = openRoster(readFileSync(rosterPath), readPem(readFileSync(operatorPath, "utf8")));
  } catch (e) {
    console.error(`${rosterPath}: ${e instanceof Fail ? e.name : e.message}`);
    return 1;
  }
  let status = 0;
  for (const path of paths) {
    try {
      const lines = verify(readFileSync(path), roster);
      console.log(`${path}: verified`);
      for (const line of lines) console.log(`  ${line}`);
    } catch (e) {
      console.log(`${path}: ${e instanceof Fail ? e.name : e.message}`);
      status = 1;
    }
  }
  return status;
}
