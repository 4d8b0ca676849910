// The star (objects.md, section 6.3) and the digests of its parts (answers.md, section 1.2).

import { be32, sha256 } from "./crypto.mjs";

export const NULL_DIGEST = Buffer.alloc(32);
const BEFORE_FIRST = Buffer.alloc(32);
BEFORE_FIRST.write("moteseal/1/star/root");

/** `D_i` of the encoded events of a level that survives. */
export function blockDigest(device, index, level, block) {
  const header = Buffer.alloc(64);
  header.write("moteseal/1/star");
  device.copy(header, 32);
  header.writeUInt32BE(index, 40);
  header.writeUInt32BE(level, 44);
  return sha256(Buffer.concat([header, block]));
}

/** `D_ig` of the encoded cells of a group (groups.md, section 3). */
export function groupDigest(device, index, level, group, cells) {
  const header = Buffer.alloc(128);
  header.write("moteseal/2/star/group");
  device.copy(header, 32);
  header.writeUInt32BE(index, 40);
  header.writeUInt32BE(level, 44);
  header.writeUInt32BE(group, 48);
  return sha256(Buffer.concat([header, cells]));
}

/** `D_i` of the digests of all groups. */
export function levelDigest(digests) {
  const tag = Buffer.alloc(32);
  tag.write("moteseal/2/star/level");
  return sha256(Buffer.concat([tag, ...digests]));
}

/** `A_{to-1}`, from `A_{from-1}` (null: the constant before the first level). `digests[i]` is `D_i`, or undefined for a null level. */
export function chain(counters, digests, from, to, start) {
  let a = start ?? BEFORE_FIRST;
  for (let i = from; i < to; i++) a = sha256(Buffer.concat([a, be32(counters[i]), digests[i] ?? NULL_DIGEST]));
  return a;
}

/** The lowest selected level, or the number of levels. */
export function lowest(mask, levels) {
  for (let i = 0; i < levels; i++) if ((mask >>> i) & 1) return i;
  return levels;
}

/** The levels whose digest a part of a star contains, and whether it contains `A_{b-1}`. */
export function contained(mask, survives) {
  const b = lowest(mask, survives.length);
  const levels = [];
  for (let i = b + 1; i < survives.length; i++) if (survives[i] && !((mask >>> i) & 1)) levels.push(i);
  return { b, below: survives.slice(0, b).includes(true), levels };
}
