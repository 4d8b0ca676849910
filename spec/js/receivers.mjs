// Receivers that share a key with the sender of a broadcast (broadcast.md, section 7).

import { isPlain, MAX_LABEL, MAX_RECEIVER } from "./cast.mjs";
import * as cbor from "./cbor.mjs";
import { be32, hmac, sha256 } from "./crypto.mjs";
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

// ---------------------------------------------------------------- chains for named receivers: section 8

const ENTRY = 24;
const MARK = 8;
const LABEL_NUMBER = 0xffffffff;

const expand = (key, label, ...info) => hmac(key, `${label}\0`, ...info, Buffer.from([1]));
const xor = (one, other) => Buffer.from(one.map((byte, at) => byte ^ other[at]));

/** Encrypts or decrypts a message. */
function encrypted(id, contentKey, number, data) {
  const key = expand(contentKey, "moteseal/1/content", id);
  const stream = [];
  for (let block = 0; block * 32 < data.length; block++) stream.push(hmac(key, be32(number), be32(block)));
  return xor(data, Buffer.concat(stream));
}

/** Splits entries, of which there are at most `most`, into [mark, masked key]. */
function entriesOf(bytes, most) {
  const count = bytes.length / ENTRY;
  if (!Number.isInteger(count) || count < 1 || count > most) fail("FieldOutOfRange");
  return Array.from({ length: count }, (_, at) => bytes.subarray(at * ENTRY, (at + 1) * ENTRY));
}

/** The label and the content of a chain of `total` messages. `receiver` is the key of a receiver, or null. */
export function readAddressed(id, total, receiver, messages) {
  const f = cbor.versioned(cbor.single(messages[0]), total === 1 ? 6 : 5);
  const commitment = cbor.bytes(f[1], 32);
  const stated = cbor.u32(f[2]);
  const label = cbor.bytes(f[3]);
  let entries = cbor.bytes(f[4]);
  const inline = total === 1 ? cbor.bytes(f[5]) : null;
  if (stated < 1 || stated > MAX_RECEIVER + 1 || label.length > MAX_LABEL) fail("FieldOutOfRange");
  let left = stated;
  if (total === 1 && entries.length !== left * ENTRY) fail("FieldOutOfRange");
  const own = receiver === null ? null : expand(receiver, "moteseal/1/receiver/address", id, commitment);
  let last = null;
  let contentKey = null;
  let read = 0;
  for (;;) {
    const list = entriesOf(entries, left);
    for (const entry of list) {
      const mark = entry.subarray(0, MARK);
      if (last !== null && Buffer.compare(mark, last) <= 0) fail("FieldOutOfRange");
      last = mark;
      if (own !== null && mark.equals(own.subarray(0, MARK))) contentKey = xor(entry.subarray(MARK), own.subarray(MARK));
    }
    read += 1;
    left -= list.length;
    const more = (total > 1 ? 1 : 0) + (left > 0 ? 1 : 0);
    if (read + more > total || (left > 0 && read === messages.length)) fail("AddressIncomplete");
    if (left === 0) break;
    entries = messages[read];
  }
  if (own === null) fail("NoReceiverKey");
  if (contentKey === null) fail("NotAddressed");
  if (!sha256("moteseal/1/content-key\0", id, contentKey).equals(commitment)) fail("WrongContentKey");
  const plain = encrypted(id, contentKey, LABEL_NUMBER, label);
  const text = plain.toString("utf8");
  if (!Buffer.from(text, "utf8").equals(plain) || !isPlain(text)) fail("FieldOutOfRange");
  const content = total === 1 ? [inline] : messages.slice(read);
  return { label: text, content: content.map((message, number) => encrypted(id, contentKey, number, message)) };
}
