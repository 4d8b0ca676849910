// Sanitised column groups (sanitised.md).

import * as cbor from "./cbor.mjs";
import { openObject, TYP_SANITISED, verifyObject } from "./cose.mjs";
import { be32, sha256 } from "./crypto.mjs";
import { fail } from "./fail.mjs";
import { checkRecord, framed, openSchema, splitRecords } from "./schema.mjs";
import { rowsOf } from "./stream.mjs";

const TAG = Buffer.alloc(32);
TAG.write("moteseal/1/sanitised");
const PADDING = Buffer.alloc(12);

/** Section 2. */
function readStatement(payload) {
  const f = cbor.array(cbor.single(payload), 15);
  cbor.version(f[0]);
  const s = {
    group: cbor.bytes(f[1], 8),
    roster: cbor.bytes(f[2], 32),
    sanitiser: cbor.bytes(f[3], 8),
    device: cbor.bytes(f[4], 8),
    index: cbor.u32(f[5]),
    seal: cbor.bytes(f[6], 32),
    schema: cbor.bytes(f[7], 32),
    columnGroup: cbor.u8(f[8]),
    mask: cbor.u32(f[9]),
    nonce: cbor.nullable(f[10], (n) => cbor.bytes(n, 12)),
    commitment: cbor.nullable(f[11], (n) => cbor.bytes(n, 16)),
    fields: cbor.bytes(f[12]),
    policy: cbor.text(f[13]),
    digests: cbor.array(f[14]).map((n) => cbor.bytes(n, 32)),
  };
  if (s.nonce !== null || s.commitment !== null || s.columnGroup > 7 || s.mask === 0) fail("FieldOutOfRange");
  return s;
}

function isPolicy(text) {
  const { length } = Buffer.from(text);
  return length >= 1 && length <= 256 && !/\p{Cc}/u.test(text);
}

const levelsIn = (mask) => [...Array(32).keys()].filter((level) => (mask >>> level) & 1);

function covers({ devices, groups, firstEpoch, endEpoch }, part, group) {
  const inTime = firstEpoch <= part.epoch && (endEpoch === null || part.epoch < endEpoch);
  return inTime && ((groups >> group) & 1) === 1 && (devices === null || devices.some((device) => device.equals(part.device)));
}

/** Steps 7 to 15 of section 4. Returns the records of the new cells. */
function check({ statement: s, sanitiser, cells }, part) {
  const group = s.columnGroup;
  if (!s.seal.equals(part.digest)) fail("SealMismatch");
  if (!s.schema.equals(part.statement.schema)) fail("SchemaMismatch");
  if (group === 0 || !((part.allGroups >> group) & 1)) fail("GroupsOutOfRange");
  if ((part.groups >> group) & 1) fail("GroupShown");
  if (part.mask === null || part.mask !== s.mask) fail("MaskMismatch");
  if (!sanitiser.rights.some((right) => covers(right, part, group))) fail("SanitiserNotPermitted");
  const schema = openSchema(s.fields);
  const names = (fields) => JSON.stringify(fields.map(({ id, name, unit }) => [String(id), name, unit]));
  const replaced = part.whole.fields.filter((field) => field.group === group);
  const isPlain = schema.fields.every((field) => field.suite === 0 && field.group === 0);
  if (!isPlain || names(schema.fields) !== names(replaced)) fail("FieldMismatch");
  const levels = levelsIn(s.mask);
  if (s.digests.length !== levels.length) fail("DigestCount");
  const records = splitRecords(schema, cells, part.seqs.length);
  if (records === null) fail("EventsLength");
  if (schema.version === 2) records.forEach((record) => checkRecord(schema, record));
  const rows = rowsOf(part);
  levels.forEach((level, i) => {
    const ofLevel = records.filter((_, at) => rows[at][1] === level).map((record) => framed(schema, record));
    const header = [TAG, part.device, be32(part.index), be32(level), be32(group), PADDING];
    if (!sha256(Buffer.concat([...header, ...ofLevel])).equals(s.digests[i])) fail("CellsMismatch");
  });
  return records.map((record, at) => [rows[at][0], record]);
}

/** What two statements of one scope must agree in: section 2, rule 9. */
const contentOf = ({ fields, policy, digests }) => JSON.stringify([fields, policy, digests]);

/** The items that are before their parts: section 4. */
export class Waiting {
  constructor(roster) {
    this.roster = roster;
    this.items = [];
  }

  /** Steps 1 to 6. */
  push({ statement: bytes, cells }) {
    const object = openObject(bytes, TYP_SANITISED);
    const statement = readStatement(object.payload);
    if (!isPolicy(statement.policy)) fail("InvalidPolicy");
    if (!statement.group.equals(this.roster.group)) fail("WrongGroup");
    if (!this.roster.versions.some((digest) => digest.equals(statement.roster))) fail("UnknownRoster");
    const sanitiser = this.roster.sanitisers.find(({ id }) => id.equals(statement.sanitiser));
    if (sanitiser === undefined) fail("UnknownSanitiser");
    verifyObject(object, sanitiser.certificate.alg, sanitiser.certificate.key);
    this.items.push({ statement, sanitiser, cells });
  }

  /** Steps 7 to 16. Returns the statements of a part, by ascending group, with the new rows. */
  take(part) {
    const taken = [];
    const isOf = ({ statement }) => statement.device.equals(part.device) && statement.index === part.index;
    while (this.items.length > 0 && isOf(this.items[0])) {
      const item = this.items.shift();
      const { statement: s, sanitiser } = item;
      const rows = check(item, part);
      for (const { statement: other } of taken) {
        if (other.columnGroup !== s.columnGroup) continue;
        const isOne = other.sanitiser.equals(s.sanitiser) && other.mask === s.mask;
        fail(isOne && contentOf(other) !== contentOf(s) ? "SanitiserEquivocation" : "DuplicateSanitised");
      }
      taken.push({ statement: s, sanitiser, rows });
    }
    if (part.signature !== null && this.items.length > 0) fail("SealMismatch");
    return taken.sort((a, b) => a.statement.columnGroup - b.statement.columnGroup);
  }

  finish() {
    if (this.items.length > 0) fail("SanitisedWithoutPart");
  }
}
