// Authenticated broadcast (broadcast.md).

import * as cbor from "./cbor.mjs";
import { openObject, verifyObject } from "./cose.mjs";
import { be64, checkKey, checkKeyLength, sha256, suiteOf } from "./crypto.mjs";
import { fail } from "./fail.mjs";

const TYP_REQUEST = "moteseal-request+cose";
const TYP_SENDER = "moteseal-sender+cose";
const TYP_REVOCATION = "moteseal-revocation+cose";
const TYP_CHAIN = "moteseal-chain+cose";
const MAX_MESSAGES = 1 << 24;
const MAX_BLOCK = 64;
const MAX_MESSAGE = 8192;
export const MAX_LABEL = 64;
const ADDRESSED = 8;
const CHAIN_KINDS = [0, 1, 2, 3, 8, 9, 11];
const MAX_REVOKED = 8;
const COMMAND = 3;
const LONGEST_COMMAND = 604800n;
const HASH_SHA256 = -16n;
const U64 = 0xffffffffffffffffn;
const TAG = 8;
const DIGEST = 32;
export const MAX_RECEIVER = 32767;

const named = (what, bytes) => sha256(`moteseal/1/${what}`, Buffer.from([0]), bytes).subarray(0, 8);

export const senderId = (name) => named("sender", Buffer.from(name, "utf8"));
export const keyId = (key) => named("key", key);
export const networkId = (key) => named("network", key);

export const isPlain = (label) => !/[\u0000-\u001f\u007f-\u009f]/.test(label);

// ---------------------------------------------------------------- senders and base stations: section 1

export function openRequest(bytes) {
  const object = openObject(bytes, TYP_REQUEST);
  const f = cbor.versioned(cbor.single(object.payload), 4);
  const sender = cbor.bytes(f[1], 8);
  const alg = suiteOf(cbor.i64(f[2]));
  const key = cbor.bytes(f[3]);
  if (alg === undefined) fail("UnknownAlgorithm");
  checkKeyLength(alg, key);
  checkKey(alg, key);
  verifyObject(object, alg, key);
  return { sender, alg, key };
}

/** The position of the base station that signed an object, by the key id in it. */
export function baseOf(object, network, wanted, base, bases) {
  if (!network.equals(wanted)) fail("WrongNetwork");
  const position = bases.findIndex((b) => keyId(b.key).equals(base));
  if (position < 0) fail("UnknownBaseStation");
  verifyObject(object, bases[position].alg, bases[position].key);
  return position;
}

export function openCertificate(bytes, network, bases) {
  const object = openObject(bytes, TYP_SENDER);
  const f = cbor.versioned(cbor.single(object.payload), 9);
  const stated = cbor.bytes(f[1], 8);
  const base = cbor.bytes(f[2], 8);
  const serial = cbor.u64(f[3]);
  const sender = cbor.bytes(f[4], 8);
  const alg = suiteOf(cbor.i64(f[5]));
  const key = cbor.bytes(f[6]);
  const notBefore = cbor.u64(f[7]);
  const notAfter = cbor.u64(f[8]);
  if (alg === undefined) fail("UnknownAlgorithm");
  if (serial === U64 || notBefore >= notAfter) fail("FieldOutOfRange");
  const position = baseOf(object, stated, network, base, bases);
  checkKeyLength(alg, key);
  checkKey(alg, key);
  return { base: position, serial, sender, alg, key, notBefore, notAfter };
}

/** Whether a set of revoked serials contains a serial. */
const revokes = (revoked, serial) => serial < revoked.minimum || revoked.serials.includes(serial);

/** Whether a certificate is in force. `now` is null without a clock. */
export function checkInForce(c, revoked, now) {
  if (revokes(revoked, c.serial)) fail("Revoked");
  if (now === null) return;
  if (now < c.notBefore) fail("NotYetValid");
  if (c.notAfter !== U64 && now >= c.notAfter) fail("Expired");
}

export function openRevocation(bytes, network, bases) {
  const object = openObject(bytes, TYP_REVOCATION);
  const f = cbor.versioned(cbor.single(object.payload), 5);
  const stated = cbor.bytes(f[1], 8);
  const base = cbor.bytes(f[2], 8);
  const minimum = cbor.u64(f[3]);
  const listed = cbor.array(f[4]);
  if (listed.length > MAX_REVOKED) fail("FieldOutOfRange");
  const serials = [];
  let previous = minimum;
  for (const item of listed) {
    const serial = cbor.u64(item);
    if (serial <= previous || serial === U64) fail("FieldOutOfRange");
    serials.push(serial);
    previous = serial;
  }
  return { base: baseOf(object, stated, network, base, bases), minimum, serials };
}

/** Whether a revocation may follow what is revoked already: it must revoke all of that. */
export function checkCovers(revocation, known) {
  const lost = known.serials.filter((serial) => !revokes(revocation, serial));
  if (revocation.minimum < known.minimum || lost.length > 0) fail("Superseded");
}

// ---------------------------------------------------------------- chains: section 2

/** The hashes of one chain. */
class Hashes {
  constructor(network, sender, key, number) {
    this.prefix = Buffer.alloc(64);
    this.prefix.write("moteseal/cast/1");
    network.copy(this.prefix, 24);
    sender.copy(this.prefix, 32);
    key.copy(this.prefix, 40);
    be64(number).copy(this.prefix, 48);
    this.reference = this.leaf(Buffer.alloc(0)).subarray(0, 8);
  }

  role(role, ...parts) {
    const prefix = Buffer.from(this.prefix);
    prefix[56] = role;
    return sha256(Buffer.concat([prefix, ...parts]));
  }

  leaf(x) {
    return this.role(0, x);
  }

  /** `hashes` are those of all leaves; that of the last one is not used. */
  block(last, hashes) {
    return this.role(1, last, ...hashes.slice(0, -1));
  }
}

const tagsOf = (hashes) => (hashes.length === 1 ? [] : hashes.map((h) => h.subarray(0, TAG)));

/** What a sender makes of its messages: the leaves, and what its head states of the first block. */
export function makeChain(network, sender, key, number, perBlock, label, messages) {
  if (messages.length === 0) fail("NoMessages");
  if (messages.length > MAX_MESSAGES) fail("TooManyMessages");
  if (perBlock < 1 || perBlock > MAX_BLOCK) fail("BlockTooLarge");
  if (messages.some((m) => m.length > MAX_MESSAGE)) fail("MessageTooLong");
  if (Buffer.byteLength(label) > MAX_LABEL) fail("LabelTooLong");
  if (!isPlain(label)) fail("LabelNotPlain");
  const hashes = new Hashes(network, sender, key, number);
  const blocks = [];
  for (let i = 0; i < messages.length; i += perBlock) blocks.push(messages.slice(i, i + perBlock));
  let trailer = Buffer.alloc(0);
  let digest = null;
  let tags = [];
  for (let i = blocks.length - 1; i >= 0; i--) {
    const leaves = blocks[i];
    const last = Buffer.concat([trailer, leaves[leaves.length - 1]]);
    leaves[leaves.length - 1] = last;
    const leafHashes = leaves.map((x) => hashes.leaf(x));
    digest = hashes.block(last, leafHashes);
    tags = tagsOf(leafHashes);
    trailer = Buffer.concat([digest, ...tags]);
  }
  const longest = messages.reduce((n, m) => Math.max(n, m.length), 0);
  return { leaves: blocks.flat(), first: digest, tags: Buffer.concat(tags), longest, reference: hashes.reference };
}

// ---------------------------------------------------------------- heads and leaves: section 3

/** The number of leaves of block `i`, from 1. */
const blockSize = (head, i) => Math.min(head.perBlock, head.messages - (i - 1) * head.perBlock);
const tagCount = (head, i) => (blockSize(head, i) === 1 ? 0 : blockSize(head, i));

/** `single`: whether the chain must be of one message (section 4). */
export function openHead(bytes, network, sender, alg, key, single = false) {
  const object = openObject(bytes, TYP_CHAIN);
  const f = cbor.versioned(cbor.single(object.payload), 16);
  const head = { network: cbor.bytes(f[1], 8), sender: cbor.bytes(f[2], 8), key: cbor.bytes(f[3], 8), number: cbor.u64(f[4]) };
  const messages = cbor.u32(f[5]);
  const perBlock = cbor.u8(f[6]);
  const longest = cbor.u16(f[7]);
  const kind = cbor.u8(f[8]);
  if (!CHAIN_KINDS.includes(kind) || messages < 1 || messages > MAX_MESSAGES) fail("FieldOutOfRange");
  if (perBlock < 1 || perBlock > MAX_BLOCK || longest > MAX_MESSAGE) fail("FieldOutOfRange");
  Object.assign(head, { messages, perBlock, longest, kind });
  head.label = cbor.text(f[9]);
  head.notBefore = cbor.u64(f[10]);
  head.notAfter = cbor.u64(f[11]);
  const step = cbor.u64(f[12]);
  const hash = cbor.i64(f[13]);
  head.first = cbor.bytes(f[14], DIGEST);
  head.tags = cbor.bytes(f[15]);
  if (hash !== HASH_SHA256) fail("UnknownAlgorithm");
  if (Buffer.byteLength(head.label) > MAX_LABEL || !isPlain(head.label)) fail("FieldOutOfRange");
  if (kind >= ADDRESSED && head.label !== "") fail("FieldOutOfRange");
  if (head.notBefore >= head.notAfter || step > head.number) fail("FieldOutOfRange");
  const validity = head.notAfter - head.notBefore;
  if (kind % ADDRESSED === COMMAND && (head.notAfter === U64 || validity > LONGEST_COMMAND)) fail("FieldOutOfRange");
  if (head.tags.length !== TAG * tagCount(head, 1)) fail("FieldOutOfRange");
  head.previous = step === 0n ? null : head.number - step;
  if (single && head.messages !== 1) fail("NotSingle");
  if (!head.network.equals(network)) fail("WrongNetwork");
  if (!head.sender.equals(sender)) fail("WrongSender");
  if (!head.key.equals(keyId(key))) fail("WrongKey");
  verifyObject(object, alg, key);
  head.hashes = new Hashes(head.network, head.sender, head.key, head.number);
  head.blocks = Math.ceil(head.messages / head.perBlock);
  return head;
}

/** Whether a chain may be delivered at a time (section 3.5). `now` is null without a trusted time. */
export function checkTimely(head, now, offset) {
  if (head.notBefore === 0n && head.notAfter === U64) return;
  if (now === null) fail("NoTrustedTime");
  if (now + offset < head.notBefore) fail("Early");
  if (head.notAfter !== U64 && now >= head.notAfter) fail("Late");
}

/** A receiver of the leaves of one chain. */
export class Receiver {
  constructor(head) {
    this.head = head;
    this.number = 1;
    this.begin(head.first, head.tags);
  }

  begin(digest, tags) {
    this.digest = digest;
    this.tags = tags;
    this.size = this.number <= this.head.blocks ? blockSize(this.head, this.number) : 0;
    this.forget();
  }

  forget() {
    this.leafHashes = new Array(this.size).fill(null);
    this.messages = new Array(this.size).fill(null);
    this.last = null;
  }

  /** A bit for each leaf of the block that is not there. */
  missing() {
    return this.leafHashes.reduce((mask, h, i) => (h === null ? mask | (1n << BigInt(i)) : mask), 0n);
  }

  /** Takes a leaf: {kind, message}, and for a verified block its number, its messages and whether the chain is complete. */
  take(block, place, leaf) {
    const { head, size } = this;
    if (block !== this.number || this.number > head.blocks) fail("NotThisBlock");
    if (place >= size) fail("IndexOutOfRange");
    const isLast = place === size - 1;
    const trailer = isLast && block < head.blocks ? DIGEST + TAG * tagCount(head, block + 1) : 0;
    if (leaf.length < trailer) fail("LeafTooShort");
    if (leaf.length - trailer > head.longest) fail("LeafTooLong");
    const message = leaf.subarray(trailer);
    const hash = head.hashes.leaf(leaf);
    if (size === 1) {
      if (!head.hashes.block(leaf, [hash]).equals(this.digest)) fail("ForgedLeaf");
    } else if (!hash.subarray(0, TAG).equals(this.tags.subarray(TAG * place, TAG * (place + 1)))) {
      fail("ForgedLeaf");
    }
    if (this.leafHashes[place] !== null) return { kind: "repeated", message };
    this.leafHashes[place] = hash;
    this.messages[place] = message;
    if (isLast) this.last = leaf;
    if (this.leafHashes.includes(null)) return { kind: "pending", message };
    if (size > 1 && !head.hashes.block(this.last, this.leafHashes).equals(this.digest)) {
      this.forget();
      fail("BlockMismatch");
    }
    const { last, messages } = this;
    this.number++;
    this.begin(last.subarray(0, DIGEST), last.subarray(DIGEST, last.length - messages[size - 1].length));
    return { kind: "verified", message, block, messages, complete: block === head.blocks };
  }
}

// ---------------------------------------------------------------- frames: section 5

const KINDS = {
  32: ["certificate", 2],
  33: ["revocation", 2],
  34: ["head", 2],
  35: ["fragment", 5],
  36: ["wanted", 4],
  37: ["holds", 4],
  38: ["single", 3],
  39: ["repair", 6],
  42: ["receipts", 4],
  43: ["receipts wanted", 4],
  44: ["head wanted", 5],
  45: ["head for", 4],
  46: ["receiver wanted", 7],
};

const placeOf = (node) => cbor.uint(node, MAX_BLOCK - 1);

/** The position of a receiver: section 5.1, rule 8. */
const receiverOf = (node) => cbor.uint(node, MAX_RECEIVER);

const tagOf = (node) => cbor.bytes(node, 16);

/** The fields of the frames of section 7. */
const SHARED = {
  receipts: (f) => ({ chain: cbor.bytes(f[1], 8), receivers: cbor.bytes(f[2]), tag: tagOf(f[3]) }),
  "receipts wanted": (f) => {
    const [chain, most] = [cbor.bytes(f[1], 8), cbor.u32(f[2])];
    if (most === 0) fail("FieldOutOfRange");
    return { chain, most, receivers: cbor.bytes(f[3]) };
  },
  "head wanted": (f) => ({ key: cbor.bytes(f[1], 8), above: cbor.u64(f[2]), receiver: receiverOf(f[3]), tag: tagOf(f[4]) }),
  "head for": (f) => ({ receiver: receiverOf(f[1]), tag: tagOf(f[2]), head: cbor.bytes(f[3]) }),
  "receiver wanted": (f) => ({
    chain: cbor.bytes(f[1], 8),
    block: cbor.u32(f[2]),
    wanted: cbor.u64(f[3]),
    attempt: cbor.u32(f[4]),
    receiver: receiverOf(f[5]),
    tag: tagOf(f[6]),
  }),
};

/** The kind of a frame, checked before the number of its fields. */
export function kindOf(node) {
  if (node.t !== cbor.ARRAY || node.v.length === 0 || node.v[0].t !== cbor.UINT) fail("UnexpectedType");
  return node.v[0].v;
}

export function readFrame(node) {
  const kind = KINDS[kindOf(node)];
  if (kind === undefined) fail("UnknownItem");
  const [frame, count] = kind;
  const f = cbor.array(node, count);
  if (count === 2) return { frame, bytes: cbor.bytes(f[1]) };
  if (frame === "single") return { frame, head: cbor.bytes(f[1]), leaf: cbor.bytes(f[2]) };
  if (frame in SHARED) return { frame, ...SHARED[frame](f) };
  const out = { frame, chain: cbor.bytes(f[1], 8), block: cbor.u32(f[2]) };
  if (frame === "fragment") {
    out.index = placeOf(f[3]);
    out.leaf = cbor.bytes(f[4]);
  } else if (frame === "wanted") {
    out.wanted = cbor.u64(f[3]);
  } else if (frame === "holds") {
    out.index = placeOf(f[3]);
  } else {
    out.mask = cbor.u64(f[3]);
    out.lengths = cbor.u16(f[4]);
    out.bytes = cbor.bytes(f[5]);
    if (out.mask === 0n) fail("FieldOutOfRange");
  }
  return out;
}

/** Section 4: the head and the message of a chain of one. */
export function openSingle(bytes, network, sender, alg, key) {
  const frame = readFrame(cbor.single(bytes));
  if (frame.frame !== "single") fail("NotSingle");
  const head = openHead(frame.head, network, sender, alg, key, true);
  const { message } = new Receiver(head).take(1, 0, frame.leaf);
  return { head, message };
}

/** Section 6: what a sender said, proven to third parties. */
export function openEvidence(bytes, network, bases) {
  const out = { sender: null, messages: null, proven: [] };
  let certificate = null;
  let receiver = null;
  let place = 0;
  for (let p = 0; p < bytes.length; ) {
    const node = cbor.itemAt(bytes, p);
    p = node.e;
    const frame = readFrame(node);
    if (certificate === null) {
      if (frame.frame !== "certificate") fail("OutOfOrder");
      certificate = openCertificate(frame.bytes, network, bases);
      out.sender = certificate.sender;
    } else if (receiver === null) {
      if (frame.frame !== "head") fail("OutOfOrder");
      receiver = new Receiver(openHead(frame.bytes, network, certificate.sender, certificate.alg, certificate.key));
      out.messages = receiver.head.messages;
    } else {
      if (frame.frame !== "fragment" || !frame.chain.equals(receiver.head.hashes.reference)) fail("OutOfOrder");
      if (frame.block !== receiver.number || frame.index !== place || receiver.size === 0) fail("OutOfOrder");
      const taken = receiver.take(frame.block, frame.index, frame.leaf);
      place++;
      if (taken.kind === "verified") {
        out.proven.push(...taken.messages);
        place = 0;
      }
    }
  }
  return out;
}
