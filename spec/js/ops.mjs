// The operations of the vectors (README.md of the specification), by name. Each takes the input and the context that the cases of a
// file share, and returns the output or fails.

import * as cbor from "./cbor.mjs";
import * as cose from "./cose.mjs";
import { checkKey, checkKeyLength, SUITES, verifySignature } from "./crypto.mjs";
import { checkSuccession, openCertificate, openRoster } from "./roster.mjs";
import { openSchema, readRecord, TYPES } from "./schema.mjs";

export const OPS = Object.create(null);

/** An input that has not the form of the vectors. */
export function malformed(what) {
  throw new TypeError("not an input of this operation: " + what);
}

export function hex(text) {
  if (typeof text !== "string" || text.length % 2 !== 0 || /[^0-9a-fA-F]/.test(text)) malformed("hexadecimal");
  return Buffer.from(text, "hex");
}

export const toHex = (b) => b.toString("hex");

export function keyOf(input) {
  if (!Object.hasOwn(SUITES, input.alg)) malformed("alg");
  return { alg: input.alg, key: hex(input.key) };
}

/** A public key that is valid. */
export function checkedKey(input) {
  const k = keyOf(input);
  checkKeyLength(k.alg, k.key);
  checkKey(k.alg, k.key);
  return k;
}

/** An output with its byte strings in hexadecimal. */
export function shown(v) {
  if (Buffer.isBuffer(v)) return toHex(v);
  if (Array.isArray(v)) return v.map(shown);
  if (v === null || typeof v !== "object") return v;
  return Object.fromEntries(Object.entries(v).map(([name, value]) => [name, shown(value)]));
}

const OPERATORS = new Map();
const ROSTERS = new Map();
const MAX_ROSTERS = 64;

export function operatorOf(context) {
  const { operator } = context;
  if (!operator) malformed("no operator");
  const id = operator.alg + operator.key;
  let known = OPERATORS.get(id);
  if (known === undefined) {
    known = checkedKey(operator);
    if (OPERATORS.size >= MAX_ROSTERS) OPERATORS.clear();
    OPERATORS.set(id, known);
  }
  return known;
}

/** The opened roster of the context, remembered by its bytes. */
export function rosterOf(context) {
  const operator = operatorOf(context);
  const id = operator.alg + context.operator.key + context.roster;
  let known = ROSTERS.get(id);
  if (known === undefined) {
    known = openRoster(hex(context.roster), operator);
    if (ROSTERS.size >= MAX_ROSTERS) ROSTERS.clear();
    ROSTERS.set(id, known);
  }
  return known;
}

OPS["cbor.item"] = (input) => {
  cbor.single(hex(input.bytes));
  return {};
};

OPS["cose.object"] = (input) => {
  const o = cose.openObject(hex(input.bytes), input.typ);
  return { alg: o.alg, digest: toHex(o.digest), vds: o.vds };
};

OPS["cose.seal"] = (input) => {
  const { object, statement } = cose.openSeal(hex(input.bytes));
  return { counters: statement.counters, digest: toHex(object.digest), root: toHex(object.payload), scheme: statement.scheme };
};

OPS["cose.verify"] = (input) => {
  const { alg, key } = checkedKey(input);
  const o = cose.openObject(hex(input.bytes), input.typ);
  cose.verifyObject(o, alg, key);
  return { digest: toHex(o.digest) };
};

OPS["cose.signature"] = (input) => {
  const { alg, key } = checkedKey(input);
  verifySignature(alg, key, hex(input.message), hex(input.signature));
  return {};
};

OPS["cose.key"] = (input) => {
  checkedKey(input);
  return {};
};

OPS["certificate.open"] = (input, context) => {
  const c = openCertificate(hex(input.bytes), operatorOf(context));
  return {
    alg: c.alg,
    device: toHex(c.device),
    digest: toHex(c.object.digest),
    first_index: c.firstIndex,
    group: toHex(c.group),
    key: toHex(c.key),
    serial: c.serial,
  };
};

/** What a sanitiser may replace. */
const rightOf = ({ devices, groups, firstEpoch, endEpoch }) => [devices === null ? null : devices.map(toHex), groups, firstEpoch, endEpoch];

OPS["roster.open"] = (input, context) => {
  const r = openRoster(hex(input.bytes), operatorOf(context));
  const digestOf = (c) => (c === null ? null : toHex(c.object.digest));
  return {
    devices: r.list.map((d) => [
      toHex(d.id),
      d.name,
      d.since,
      d.terms.map((t) => [t.firstIndex, t.firstEpoch, t.endIndex, t.endEpoch]),
    ]),
    digest: toHex(r.digest),
    group: toHex(r.group),
    group_name: r.groupName,
    last_epoch: r.lastEpoch,
    periods: r.periods.map((p) => ({
      budget: p.budget,
      coordinator: digestOf(p.coordinator),
      epoch_ms: p.epochMs,
      first_epoch: p.firstEpoch,
      levels: p.levels,
      start_ms: p.startMs,
      version: p.version,
    })),
    querier: digestOf(r.querier),
    ...(r.sanitisers.length > 0 && { sanitisers: r.sanitisers.map((s) => [s.name, digestOf(s.certificate), s.rights.map(rightOf)]) }),
    ...(r.owners.length > 0 && { owners: r.owners.map((o) => [o.name, digestOf(o.certificate)]) }),
    version: r.version,
  };
};

OPS["roster.succeed"] = (input, context) => {
  const operator = operatorOf(context);
  const before = openRoster(hex(input.before), operator);
  const later = openRoster(hex(input.later), operator);
  checkSuccession(before, later);
  return { version: later.version };
};

OPS["schema.open"] = (input) => {
  const s = openSchema(hex(input.bytes));
  return {
    digest: toHex(s.digest),
    fields: s.fields.map((f) => {
      const both = [f.name, f.unit, TYPES[f.type], f.divisor, f.offset.toString()];
      return s.version === 1 ? both : [...both, Number(f.id), f.nullable, f.labels ?? [], f.longest, f.relayed, ...(f.suite === 0 ? [] : [f.suite]), ...(f.group === 0 ? [] : [f.group])];
    }),
    record_size: s.recordSize,
  };
};

OPS["schema.record"] = (input) => {
  const schema = openSchema(hex(input.schema));
  return { values: readRecord(schema, hex(input.record)) };
};
