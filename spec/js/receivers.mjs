// Receivers that share a key with the sender of a broadcast (broadcast.md, section 7).

import { MAX_RECEIVER } from "./cast.mjs";
import { be32, hmac } from "./crypto.mjs";
import { fail } from "./fail.mjs";
import { readParticipation } from "./sums.mjs";

export function receiverKey(secret, network, sender, position, name) {
  return hmac(secret, "moteseal/1/receiver\0", network, sender, be32(position), name);
}

export const receiverTag = (key, what, ...parts) => hmac(key, `moteseal/1/receiver/${what}\0`, ...parts).subarray(0, 16);

/** Checks combined receipts. `keys` has the key of each position. Returns the number of receivers. */
export function checkReceipts(keys, head, receivers, tag) {
  const runs = readParticipation(receivers, MAX_RECEIVER + 1);
  if (runs.length === 0) fail("MalformedParticipation");
  const all = Buffer.alloc(16);
  let count = 0;
  for (const [start, end] of runs) {
    for (let position = start; position < end; position++, count++) {
      if (position >= keys.length) fail("UnknownPosition");
      const own = receiverTag(keys[position], "receipt", head);
      for (let i = 0; i < all.length; i++) all[i] ^= own[i];
    }
  }
  if (!all.equals(tag)) fail("NotAuthentic");
  return count;
}
