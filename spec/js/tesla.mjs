// uTESLA (tesla.md).

import * as cbor from "./cbor.mjs";
import { kindOf } from "./cast.mjs";
import { be32, be64, hmac, sha256 } from "./crypto.mjs";
import { Fail, fail } from "./fail.mjs";

const MAX_INTERVAL = 0xffffffffn;
const MAX_DELAY = 255;
const MAX_LAST = 1048576;
const MAX_MESSAGE = 4096;
const MAX_LEAP = 1024;
const U64 = 0xffffffffffffffffn;
const KEY = 16;
const TAG = 8;
const KIND_PACKET = 40;
const KIND_KEY = 41;

/** The hashes of one chain: section 2. */
class Hashes {
  constructor(network, sender, chain) {
    this.prefix = Buffer.alloc(64);
    this.prefix.write("moteseal/tesla/1");
    network.copy(this.prefix, 24);
    sender.copy(this.prefix, 32);
    be64(chain).copy(this.prefix, 40);
    this.reference = this.hash(0).subarray(0, 8);
  }

  hash(kind, ...parts) {
    const prefix = Buffer.from(this.prefix);
    prefix[48] = kind;
    return sha256(Buffer.concat([prefix, ...parts]));
  }

  /** The key of interval `i - 1`. */
  before(i, key) {
    return this.hash(0, be32(i), key).subarray(0, KEY);
  }

  tag(i, key, message) {
    return hmac(this.hash(1, be32(i), key), message).subarray(0, TAG);
  }
}

const endsInTime = (s) => s.start + BigInt(s.last + s.delay + 1) * s.interval <= U64;

// ---------------------------------------------------------------- parameters: section 3

function readParameters(bytes) {
  const f = cbor.versioned(cbor.single(bytes), 10);
  const p = {
    network: cbor.bytes(f[1], 8),
    sender: cbor.bytes(f[2], 8),
    chain: cbor.u64(f[3]),
    start: cbor.u64(f[4]),
    interval: cbor.u64(f[5]),
    delay: cbor.u8(f[6]),
    last: cbor.u32(f[7]),
    committed: cbor.u32(f[8]),
    key: cbor.bytes(f[9], KEY),
  };
  const fits = p.interval >= 1n && p.interval <= MAX_INTERVAL && p.delay >= 1 && p.last >= 1 && p.last <= MAX_LAST;
  if (!fits || p.committed > p.last || !endsInTime(p)) fail("Malformed");
  return p;
}

export function openParameters(bytes, network, sender, chain) {
  let p;
  try {
    p = readParameters(bytes);
  } catch (e) {
    if (e instanceof Fail) fail("Malformed");
    throw e;
  }
  if (!p.network.equals(network)) fail("WrongNetwork");
  if (!p.sender.equals(sender)) fail("WrongSender");
  if (p.chain > chain) fail("WrongChain");
  p.hashes = new Hashes(p.network, p.sender, p.chain);
  return p;
}

// ---------------------------------------------------------------- a sender: sections 2 and 4

/** `says` are [time, message or null]; null tells a key. Returns the parameters of interval 0 and the frames. */
export function say(network, sender, chain, schedule, secret, says) {
  const { start, interval, delay, last } = schedule;
  if (interval < 1n || interval > MAX_INTERVAL) fail("IntervalOutOfRange");
  if (delay < 1 || delay > MAX_DELAY) fail("DelayOutOfRange");
  if (last < 1 || last > MAX_LAST) fail("TooManyIntervals");
  if (!endsInTime(schedule)) fail("EndsTooLate");
  const hashes = new Hashes(network, sender, chain);
  let top = 2;
  while (top < last) top *= 2;
  const keys = new Array(top + 1);
  keys[top] = secret;
  for (let i = top; i > 0; i--) keys[i - 1] = hashes.before(i, keys[i]);
  let served = 0n;
  const end = BigInt(last);
  const least = (a, b) => (a < b ? a : b);
  const frames = says.map(([time, message]) => {
    const now = time < start ? 0n : (time - start) / interval;
    if (message !== null && message.length > MAX_MESSAGE) fail("MessageTooLong");
    if (least(now, end) - least(served, end) > MAX_LEAP) fail("LeapTooLong");
    if (now < served) fail("ClockWentBack");
    served = now;
    if (message !== null && now === 0n) fail("NotStarted");
    if (message !== null && now > end) fail("Ended");
    const reference = cbor.encodeBytes(hashes.reference);
    if (message !== null) {
      const i = Number(now);
      return cbor.encodeArray([
        cbor.encodeUint(KIND_PACKET),
        reference,
        cbor.encodeUint(i),
        cbor.encodeBytes(message),
        cbor.encodeBytes(hashes.tag(i, keys[i], message)),
      ]);
    }
    const i = Number(least(now - BigInt(delay), end));
    if (i < 1) return null;
    return cbor.encodeArray([cbor.encodeUint(KIND_KEY), reference, cbor.encodeUint(i), cbor.encodeBytes(keys[i])]);
  });
  const parameters = cbor.encodeArray([
    cbor.encodeUint(1),
    cbor.encodeBytes(network),
    cbor.encodeBytes(sender),
    cbor.encodeUint(chain),
    cbor.encodeUint(start),
    cbor.encodeUint(interval),
    cbor.encodeUint(delay),
    cbor.encodeUint(last),
    cbor.encodeUint(0),
    cbor.encodeBytes(keys[0]),
  ]);
  return { parameters, said: frames };
}

// ---------------------------------------------------------------- a receiver: section 5

function readFrame(bytes) {
  const node = cbor.single(bytes);
  const kind = kindOf(node);
  if (kind !== KIND_PACKET && kind !== KIND_KEY) fail("UnknownItem");
  const f = cbor.array(node, kind === KIND_PACKET ? 5 : 4);
  const out = { reference: cbor.bytes(f[1], 8), interval: cbor.u32(f[2]), key: null };
  if (kind === KIND_KEY) {
    out.key = cbor.bytes(f[3], KEY);
  } else {
    out.message = cbor.bytes(f[3]);
    out.tag = cbor.bytes(f[4], TAG);
  }
  return out;
}

/** A receiver whose memory for packets is not limited. */
export class Receiver {
  /** `offset` is the bound of the clocks, `steps` and `budget` what it hashes at most, `longest` the longest message that it keeps. */
  constructor(parameters, offset, steps, budget, longest) {
    Object.assign(this, { parameters, offset, steps, budget, longest });
    this.known = parameters.committed;
    this.key = parameters.key;
    this.waiting = new Map();
    this.spentIn = undefined;
    this.spent = 0;
  }

  /** Returns the messages that a frame proves, [interval, message] each. */
  hear(now, bytes) {
    const frame = readFrame(bytes);
    const p = this.parameters;
    const ahead = now + this.offset - p.start;
    const x = ahead < 0n ? null : ahead / p.interval;
    if (!frame.reference.equals(p.hashes.reference)) fail("WrongChain");
    return frame.key === null ? this.packet(frame, x) : this.disclosure(frame, x);
  }

  packet({ interval, message, tag }, x) {
    const { last, delay } = this.parameters;
    if (interval === 0) fail("NoSuchInterval");
    if (interval > last) fail("BeyondEnd");
    if (interval <= this.known) fail("NotSafe");
    if (x === null || x < interval) fail("FutureInterval");
    if (x >= interval + delay) fail("NotSafe");
    if (message.length > this.longest) fail("MessageTooLong");
    const packets = this.waiting.get(interval) ?? [];
    if (packets.some((o) => o.message.equals(message) && o.tag.equals(tag))) fail("Repeated");
    packets.push({ message, tag });
    this.waiting.set(interval, packets);
    return [];
  }

  disclosure({ interval, key }, x) {
    const { last, delay, hashes } = this.parameters;
    if (interval > last) fail("BeyondEnd");
    if (interval <= this.known) fail(interval === this.known && key.equals(this.key) ? "Repeated" : "OldKey");
    const distance = interval - this.known;
    if (distance > this.steps) fail("TooManySteps");
    if (distance > delay + 1) {
      if (this.spentIn !== x) this.spent = 0;
      this.spentIn = x;
      if (this.spent + distance > this.budget) fail("BudgetSpent");
      this.spent += distance;
    }
    const keys = new Map([[interval, key]]);
    for (let i = interval; i > this.known; i--) keys.set(i - 1, hashes.before(i, keys.get(i)));
    if (!keys.get(this.known).equals(this.key)) fail("ForgedKey");
    const due = [...this.waiting.keys()].filter((i) => i <= interval).sort((a, b) => a - b);
    const early = x === null || x < interval + delay;
    const proven = [];
    for (const i of due) {
      for (const { message, tag } of early ? [] : this.waiting.get(i)) {
        if (hashes.tag(i, keys.get(i), message).equals(tag)) proven.push([i, message]);
      }
      this.waiting.delete(i);
    }
    this.known = interval;
    this.key = key;
    if (early) fail("ClockTooFarOff");
    return proven;
  }
}
