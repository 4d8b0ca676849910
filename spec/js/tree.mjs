// The Merkle tree of RFC 9162, section 2.1 (objects.md, section 6.4), and its multiproofs (answers.md, section 1.3).

import { sha256 } from "./crypto.mjs";
import { fail } from "./fail.mjs";

const EMPTY_ROOT = sha256(Buffer.alloc(0));
const LEAF = Buffer.from([0]);
const NODE = Buffer.from([1]);

export function leafHash(record) {
  return sha256(Buffer.concat([LEAF, record]));
}

export function nodeHash(left, right) {
  return sha256(Buffer.concat([NODE, left, right]));
}

/** The root of a tree with column groups (groups.md, section 4). */
export function groupsRoot(roots) {
  const tag = Buffer.alloc(32);
  tag.write("moteseal/2/tree/groups");
  return sha256(Buffer.concat([tag, ...roots]));
}

/** The largest power of two below `size`, which is at least 2. */
export function splitOf(size) {
  let k = 1;
  while (k * 2 < size) k *= 2;
  return k;
}

/** The root over `leaves[start .. end)`. */
export function rootOf(leaves, start = 0, end = leaves.length) {
  if (start === end) return EMPTY_ROOT;
  if (end - start === 1) return leaves[start];
  const k = start + splitOf(end - start);
  return nodeHash(rootOf(leaves, start, k), rootOf(leaves, k, end));
}

/** The siblings of leaf `seq`, from the leaf up. */
export function pathOf(leaves, seq, start = 0, end = leaves.length) {
  if (end - start <= 1) return [];
  const k = start + splitOf(end - start);
  return seq < k
    ? [...pathOf(leaves, seq, start, k), rootOf(leaves, k, end)]
    : [...pathOf(leaves, seq, k, end), rootOf(leaves, start, k)];
}

/** The root to which a path leads (RFC 9162, section 2.1.3.2). `size` and `seq` are BigInts. */
export function pathRoot(size, seq, leaf, path) {
  if (seq >= size) fail("OutOfRange");
  let fn = seq;
  let sn = size - 1n;
  let r = leaf;
  for (const p of path) {
    if (sn === 0n) fail("DigestCount");
    if ((fn & 1n) === 1n || fn === sn) {
      r = nodeHash(p, r);
      while ((fn & 1n) === 0n && fn !== 0n) {
        fn >>= 1n;
        sn >>= 1n;
      }
    } else {
      r = nodeHash(r, p);
    }
    fn >>= 1n;
    sn >>= 1n;
  }
  if (sn !== 0n) fail("DigestCount");
  return r;
}

/**
 * Visits the tree of `n` leaves from left to right: `subtree(start, end)` for each maximal subtree without a selected leaf,
 * `leaf(i)` for the selected leaf with position `i` in `selected` (ascending). Returns the combination of their results.
 */
function visit(n, selected, subtree, leaf, combine) {
  const walk = (start, end, from, to) => {
    if (from === to) return subtree(start, end);
    if (end - start === 1) return leaf(from);
    const k = start + splitOf(end - start);
    let middle = from;
    while (middle < to && selected[middle] < k) middle++;
    const left = walk(start, k, from, middle);
    return combine(left, walk(k, end, middle, to));
  };
  return walk(0, n, 0, selected.length);
}

/** The number of digests of the multiproof of `selected` in `n` leaves. */
export function proofLength(n, selected) {
  if (n === 0) return 0;
  return visit(n, selected, () => 1, () => 0, (a, b) => a + b);
}

/** The multiproof of `selected` in all leaves. */
export function proofOf(leaves, selected) {
  const out = [];
  if (leaves.length > 0) visit(leaves.length, selected, (s, e) => out.push(rootOf(leaves, s, e)), () => 0, () => 0);
  return out;
}

/** The root, from the leaf hashes of the selected events and exactly as many digests as needed. */
export function proofRoot(n, selected, hashes, digests) {
  if (n === 0) return EMPTY_ROOT;
  let next = 0;
  return visit(n, selected, () => digests[next++], (i) => hashes[i], nodeHash);
}
