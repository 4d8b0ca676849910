// The link between a device and its coordinator (coordinator.md, section 4), and what a coordinator keeps (section 1).

import { timingSafeEqual } from "node:crypto";
import * as cbor from "./cbor.mjs";
import { hmac } from "./crypto.mjs";
import { Fail, fail } from "./fail.mjs";

const MAX_FRAME = 65536;
const TAG = 16;
const UP_ID = 3;
const ID_HEAD = 0x48;

export function linkSecret(groupSecret, group, device) {
  return hmac(groupSecret, "moteseal/1/link", group, device);
}

/** The pre-shared key of a device's DTLS sessions. */
export function dtlsPsk(linkSecret) {
  return hmac(linkSecret, "moteseal/1/dtls");
}

/** The item of a frame, whose tag is under the key of `direction`. */
function untag(frame, secret, direction) {
  const item = frame.subarray(0, frame.length - TAG);
  const tag = hmac(hmac(secret, `moteseal/1/link/${direction}`), item).subarray(0, TAG);
  if (!timingSafeEqual(tag, frame.subarray(item.length))) fail("NotAuthentic");
  return item;
}

/** Any failure of the form and shape of a frame is `Malformed`. */
function wellFormed(read) {
  try {
    return read();
  } catch (e) {
    if (e instanceof Fail) fail("Malformed");
    throw e;
  }
}

/** The fields of a frame, the first of which is one of `kinds` (its number: the numbers of fields). */
export function fieldsOf(item, kinds) {
  const f = cbor.array(cbor.single(item));
  if (f.length === 0) fail("Malformed");
  const counts = kinds[cbor.u8(f[0])];
  if (counts === undefined || !counts.includes(f.length)) fail("Malformed");
  return f;
}

/** The maximal perfect subtrees of `start .. end-1`: section 4.3. Powers of two may exceed 32 bits, so there are no shifts. */
function subtrees(start, end, out) {
  while (start < end) {
    let size = 1;
    while (start % (size * 2) === 0 && start + size * 2 <= end) size *= 2;
    out.push([start, start + size]);
    start += size;
  }
}

function forward(f) {
  const out = {
    frame: "forward",
    index: cbor.u32(f[2]),
    epoch: cbor.u64(f[3]),
    own_round: cbor.uint(f[4], 31),
    from: cbor.u32(f[5]),
    until: cbor.u32(f[6]),
    size: cbor.u16(f[7]),
    events: [],
  };
  const bytes = cbor.bytes(f[8]);
  const digests = f.length === 10 ? cbor.bytes(f[9]) : null;
  if (out.from > out.until) fail("Malformed");
  const free = [];
  let next = out.from;
  for (let p = 0; p < bytes.length; ) {
    const place = cbor.itemAt(bytes, p);
    const value = cbor.u64(place);
    const seq = BigInt(next) + (value >> 5n);
    if (seq >= out.until) fail("Malformed");
    p = place.e;
    let { size } = out;
    if (size === 0) {
      if (bytes.length - p < 2) fail("Malformed");
      size = bytes.readUInt16BE(p);
      p += 2;
    }
    if (bytes.length - p < size) fail("Malformed");
    out.events.push([Number(seq), Number(value & 31n), bytes.subarray(p, p + size)]);
    p += size;
    subtrees(next, Number(seq), free);
    next = Number(seq) + 1;
  }
  subtrees(next, out.until, free);
  if (digests !== null) {
    if (digests.length !== 32 * free.length) fail("Malformed");
    out.subtrees = free.map(([start, end], i) => [start, end, digests.subarray(32 * i, 32 * i + 32)]);
  }
  return out;
}

const UP = { 1: [9, 10], 2: [5], 3: [3], 6: [3] };

function readUp(item) {
  const f = fieldsOf(item, UP);
  const device = cbor.bytes(f[1], 8);
  switch (f[0].v) {
    case 1:
      return { device, ...forward(f) };
    case 2:
      return { device, frame: "close", schema: cbor.bytes(f[2], 32), open: cbor.bytes(f[3]), part: cbor.bytes(f[4]) };
    case 3:
      return { device, frame: "schema", schema: cbor.bytes(f[2]) };
    default:
      return { device, frame: "challenge", challenge: cbor.u64(f[2]) };
  }
}

/** A frame from a device of the group. */
export function openUp(frame, groupSecret, group) {
  if (frame.length > MAX_FRAME || frame.length < TAG) fail("Malformed");
  if (frame[0] >> 5 !== cbor.ARRAY || (frame[0] & 31) > 23 || frame[1] > 23 || frame[2] !== ID_HEAD) fail("Malformed");
  const device = frame.subarray(UP_ID, UP_ID + 8);
  const item = untag(frame, linkSecret(groupSecret, group, device), "up");
  return wellFormed(() => readUp(item));
}

/** A frame whose device is known: `read` takes its item. */
export function openTagged(frame, secret, direction, read) {
  if (frame.length > MAX_FRAME || frame.length < TAG) fail("Malformed");
  const item = untag(frame, secret, direction);
  return wellFormed(() => read(item));
}

const openDown = (frame, groupSecret, group, device, read) =>
  openTagged(frame, linkSecret(groupSecret, group, device), "down", read);

const own = (node, device) => cbor.bytes(node, 8).equals(device) || fail("Malformed");

/** An acknowledgement to a device. */
export function openAcknowledgement(frame, groupSecret, group, device) {
  return openDown(frame, groupSecret, group, device, (item) => {
    const f = fieldsOf(item, { 16: [7] });
    own(f[1], device);
    const out = { index: cbor.u32(f[2]), next: cbor.u32(f[3]) };
    out.sealed = cbor.nullable(f[4], (n) => {
      const s = cbor.array(n, 4);
      return { index: cbor.u32(s[0]), epoch: cbor.u64(s[1]), last: cbor.uint(s[2], 1), digest: cbor.bytes(s[3], 32) };
    });
    out.wants = cbor.uint(f[5], 1);
    out.challenge = cbor.nullable(f[6], cbor.u64);
    return out;
  });
}

/** A refusal to a device. */
export function openRefusal(frame, groupSecret, group, device) {
  return openDown(frame, groupSecret, group, device, (item) => {
    const f = fieldsOf(item, { 17: [5] });
    own(f[1], device);
    const out = { index: cbor.u32(f[2]), final: cbor.uint(f[3], 1), name: cbor.text(f[4]) };
    if (!/^[A-Za-z0-9]{1,48}$/.test(out.name)) fail("Malformed");
    return out;
  });
}

/** Section 4.6. `frames` are [index, epoch, own round, from, until]; the first one gives the state its index and epoch. */
export function follow(frames) {
  if (frames.length === 0) return [];
  const state = { index: frames[0][0], epoch: BigInt(frames[0][1]), next: 0, round: 0 };
  return frames.map(([index, epochGiven, round, from, until]) => {
    const epoch = BigInt(epochGiven);
    let kind = "news";
    if (index < state.index || (index === state.index && epoch !== state.epoch)) kind = "old";
    else if (index > state.index && from === 0 && until !== 0) {
      Object.assign(state, { index, epoch, next: 0, round: 0 });
      kind = "next";
    } else if (index > state.index || from > state.next) kind = "gap";
    else if (until <= state.next) kind = "old";
    let first = null;
    if (kind === "news" || kind === "next") {
      first = state.next;
      state.next = until;
      state.round = Math.max(state.round, round);
    }
    return [kind, first, state.index, state.epoch, state.next, state.round];
  });
}

/** Section 1: what a coordinator keeps of one epoch. */
export function offers(levels, budget, steps) {
  const kept = new Array(levels).fill(0);
  let round = 0;
  const total = () => kept.reduce((a, b) => a + b, 0);
  const raise = () => {
    kept[round] = 0;
    round++;
  };
  const after = steps.map(([step, a, b]) => {
    let result;
    if (step === "offer") {
      const before = round;
      if (a < round || a >= levels) result = "declined";
      else {
        kept[a]++;
        while (total() > budget && round < levels) raise();
        result = round > before ? "raised" : "kept";
      }
    } else if (step === "withdraw") {
      if (a < levels) kept[a] -= Math.min(kept[a], b);
      result = "withdrawn";
    } else {
      while (round < a && round < levels) raise();
      result = "settled";
    }
    return [result, round, total()];
  });
  return { after, kept };
}
