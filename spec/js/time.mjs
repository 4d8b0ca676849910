// Signed time (time.md): challenges, statements, and the clock of a mote.

import * as cbor from "./cbor.mjs";
import { openObject, TYP_TIME, verifyObject } from "./cose.mjs";
import { sha256 } from "./crypto.mjs";
import { fail } from "./fail.mjs";

const LABEL = Buffer.from("moteseal/1/time/challenge\0");
const MAX_PAYLOAD = 48;
const MAX_DELAY = 5000n;
const RATE = 2048n;
const LAST = 0xffffffffffffffffn;

/** Section 1. */
export function challengeOf(secret, starts, count) {
  const numbers = Buffer.alloc(8);
  numbers.writeUInt32BE(starts, 0);
  numbers.writeUInt32BE(count, 4);
  return sha256(Buffer.concat([LABEL, secret, numbers])).subarray(0, 16);
}

/** Section 2.2, steps 1 to 7. `keys` are those of the operator and of the querier, or null. */
export function openStatement(bytes, group, device, challenge, keys) {
  const object = openObject(bytes, TYP_TIME);
  if (object.payload.length > MAX_PAYLOAD) fail("FieldOutOfRange");
  const f = cbor.versioned(cbor.single(object.payload), 6);
  const to = { group: cbor.bytes(f[1], 8), device: cbor.bytes(f[2], 8), challenge: cbor.bytes(f[3], 16) };
  const time = cbor.u64(f[4]);
  const signer = cbor.u64(f[5]);
  if (signer > 1n) fail("FieldOutOfRange");
  if (!to.group.equals(group)) fail("WrongGroup");
  if (!to.device.equals(device)) fail("OtherDevice");
  if (!to.challenge.equals(challenge)) fail("WrongChallenge");
  const key = keys[Number(signer)];
  if (key === null) fail("UnknownSigner");
  verifyObject(object, key.alg, key.key);
  return time;
}

const least = (a, b) => (a < b ? a : b);
const part = (n) => (n + RATE - 1n) / RATE;

/** Section 2.2, step 8, and section 3, rule 2. */
export function rangeOf(time, sent, received, now) {
  if (received - sent > MAX_DELAY) fail("TimeLate");
  const a = now - received;
  const b = now - sent;
  return { earliest: least(time + a - part(a), LAST), latest: least(time + b + part(b), LAST) };
}
