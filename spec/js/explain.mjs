// The explaining form of a failed run (answers.md, section 8).

import * as cbor from "./cbor.mjs";
import { openSeal, verifyObject } from "./cose.mjs";
import { fail } from "./fail.mjs";
import { blocksOf, readItem } from "./stream.mjs";
import { chain, contained, lowest, NULL_DIGEST } from "./star.mjs";
import { leafHash, proofOf, rootOf } from "./tree.mjs";

// In the order of the statement: objects.md, section 6.
const STATEMENT_FIELDS = [
  "scheme", "group", "roster", "device", "index", "prev", "prevIndex", "epoch", "prevEpoch", "last", "restart", "schema", "salt",
  "round", "ownRound", "counters", "lost", "answered", "keys", "groups",
];

function same(a, b) {
  if (Buffer.isBuffer(a)) return b !== null && a.equals(b);
  if (Array.isArray(a)) return a.length === b.length && a.every((v, i) => same(v, b[i]));
  if (a !== null && typeof a === "object") return same(a.query, b.query) && a.first === b.first && a.count === b.count;
  return a === b;
}

const sameList = (a, b) => a.length === b.length && a.every((v, i) => v.equals(b[i]));

function explainStar(part, digests, root) {
  const { counters } = part;
  const levels = counters.length;
  let b = 0;
  let start = null;
  let blocks = digests;
  if (digests.length === levels + 1) {
    [start, ...blocks] = digests;
    b = blocks.findIndex((d) => !d.equals(NULL_DIGEST));
    if (b < 0) b = levels;
    if (lowest(part.mask, levels) < b) fail("DigestCount");
  } else if (digests.length !== levels) {
    fail("DigestCount");
  }
  if (!chain(counters, blocks, b, levels, start).equals(root)) fail("RootMismatch");
  blocksOf(part).forEach((d, i) => {
    if (!d.equals(blocks[i])) fail("BlockDigestMismatch");
  });
  const has = contained(part.mask, part.survives);
  const expected = has.levels.map((i) => blocks[i]);
  if (has.below) expected.unshift(chain(counters, blocks, b, has.b, start));
  // The digests of hidden column groups follow: they have led to the digests of the blocks.
  if (!sameList(part.digests.slice(0, part.replacing), expected)) fail("EvidenceMismatch");
}

function explainTree(part, digests, root) {
  if (digests.length !== 0 && (digests.length !== part.n || part.allGroups !== 0)) fail("DigestCount");
  if (digests.length === 0) {
    if (!part.root.equals(root)) fail("PathMismatch");
    return;
  }
  if (!rootOf(digests).equals(root)) fail("RootMismatch");
  part.seqs.forEach((seq, i) => {
    if (!leafHash(part.records[i]).equals(digests[seq])) fail("PathMismatch");
  });
  if (!sameList(part.digests, proofOf(digests, part.seqs))) fail("EvidenceMismatch");
}

/** `parts` are those of the failed run; `items` the store's explain items, one for each part. */
export function explain(roster, parts, items) {
  parts.forEach((part, i) => {
    if (items[i] === undefined) fail("ExplanationWithheld");
    const item = readItem(cbor.single(items[i]));
    if (item.kind !== "explain") fail("UnexpectedType");
    const { object, statement } = openSeal(item.seal);
    verifyObject(object, part.certificate.alg, part.certificate.key);
    if (STATEMENT_FIELDS.some((name) => !same(statement[name], part.statement[name]))) fail("StatementMismatch");
    if (item.digests.length % 32 !== 0) fail("DigestCount");
    const digests = [];
    for (let p = 0; p < item.digests.length; p += 32) digests.push(item.digests.subarray(p, p + 32));
    if (part.scheme === 1) explainTree(part, digests, object.payload);
    else explainStar(part, digests, object.payload);
  });
}
