// The operations of authenticated broadcast.

import * as cast from "./cast.mjs";
import * as cbor from "./cbor.mjs";
import { be32, be64 } from "./crypto.mjs";
import { Fail } from "./fail.mjs";
import { checkedKey, hex, keyOf, OPS, shown, toHex } from "./ops.mjs";
import { checkReceipts, readAddressed, receiverKey, receiverTag } from "./receivers.mjs";

const basesOf = (input) => input.bases.map(keyOf);
const revokedOf = ({ minimum, serials }) => ({ minimum: BigInt(minimum), serials: serials.map(BigInt) });

OPS["cast.ids"] = (input) => {
  const { key } = keyOf(input);
  return shown({ key: cast.keyId(key), network: cast.networkId(key), sender: cast.senderId(input.sender) });
};

OPS["cast.request"] = (input) => shown(cast.openRequest(hex(input.bytes)));

OPS["cast.certificate"] = (input) => {
  const c = cast.openCertificate(hex(input.bytes), hex(input.network), basesOf(input));
  cast.checkInForce(c, revokedOf(input), input.now === null ? null : BigInt(input.now));
  const { notBefore, notAfter, ...rest } = c;
  return shown({ ...rest, not_before: notBefore, not_after: notAfter });
};

OPS["cast.revocation"] = (input) => {
  const revocation = cast.openRevocation(hex(input.bytes), hex(input.network), basesOf(input));
  cast.checkCovers(revocation, revokedOf(input.known));
  return revocation;
};

OPS["cast.chain"] = (input) => {
  const { number, label } = input;
  const perBlock = input.per_block;
  const messages = input.messages.map(hex);
  return shown(cast.makeChain(hex(input.network), hex(input.sender), hex(input.key), BigInt(number), perBlock, label, messages));
};

function headOf(input) {
  const { alg, key } = checkedKey(input);
  return cast.openHead(hex(input.bytes), hex(input.network), hex(input.sender), alg, key);
}

OPS["cast.head"] = (input) => {
  const h = headOf(input);
  const { first, kind, label, longest, messages, number, previous } = h;
  const window = { not_before: h.notBefore, not_after: h.notAfter };
  return shown({ first, kind, label, longest, messages, number, previous, ...window, per_block: h.perBlock, reference: h.hashes.reference });
};

OPS["cast.timely"] = (input) => {
  cast.checkTimely(headOf(input), input.now === null ? null : BigInt(input.now), BigInt(input.offset));
  return {};
};

OPS["cast.take"] = (input) => {
  const receiver = new cast.Receiver(headOf(input));
  const taken = input.leaves.map(([block, place, leaf]) => {
    try {
      const t = receiver.take(block, place, hex(leaf));
      if (t.kind === "repeated") return "repeated";
      return t.kind === "pending" ? ["pending", toHex(t.message)] : ["verified", toHex(t.message), t.block, t.complete];
    } catch (e) {
      if (e instanceof Fail) return e.name;
      throw e;
    }
  });
  return { block: receiver.number, missing: receiver.missing(), taken };
};

OPS["cast.frame"] = (input) => shown(cast.readFrame(cbor.single(hex(input.bytes))));

const keyFor = (input, position, name) =>
  receiverKey(hex(input.secret), hex(input.network), hex(input.sender), position, name);

OPS["cast.receiver"] = (input) => {
  const key = keyFor(input, input.position, input.name);
  const head = hex(input.head);
  const request = [hex(input.chain), be32(input.block), be64(input.wanted), be32(input.attempt)];
  return shown({
    key,
    receipt: receiverTag(key, "receipt", head),
    request: receiverTag(key, "request", ...request),
    head_request: receiverTag(key, "head-request", hex(input.key_id), be64(input.above)),
    head: receiverTag(key, "head", head),
  });
};

OPS["cast.receipts"] = (input) => {
  const keys = input.names.map((name, position) => keyFor(input, position, name));
  return { count: checkReceipts(keys, hex(input.head), hex(input.receivers), hex(input.tag)) };
};

OPS["cast.address"] = (input) => {
  const key = input.position === null ? null : keyFor(input, input.position, input.name);
  const id = Buffer.concat([hex(input.network), hex(input.sender), hex(input.key_id), be64(BigInt(input.number))]);
  const { label, content } = readAddressed(id, input.total, key, input.messages.map(hex));
  return { content: content.map(toHex), label };
};

OPS["cast.single"] = (input) => {
  const { alg, key } = checkedKey(input);
  const { head, message } = cast.openSingle(hex(input.bytes), hex(input.network), hex(input.sender), alg, key);
  return shown({ digest: head.first, kind: head.kind, label: head.label, message, number: head.number });
};

OPS["cast.evidence"] = (input) => shown(cast.openEvidence(hex(input.bytes), hex(input.network), basesOf(input)));
