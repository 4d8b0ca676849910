// The stream schema (objects.md, section 5), and the records in encoded events.

import { isUtf8 } from "node:buffer";
import * as cbor from "./cbor.mjs";
import { decryptCell } from "./confidential.mjs";
import { sha256 } from "./crypto.mjs";
import { fail } from "./fail.mjs";

export const TYPES = [
  ...["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f32", "f64", "time"],
  ...["bool", "enum", "text", "timestamp", "point"],
];
const [TIME, BOOL, ENUM, TEXT, TIMESTAMP, POINT] = [10, 11, 12, 13, 14, 15];
// Of a text: nothing, because its cell is not among those of fixed size.
const SIZES = [1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 4, 1, 1, 0, 8, 8];
const NULL_TEXT = 255;
const MAX_SCHEMA = 6152;
const MAX_LABELS = 254;
const POINT_DIVISOR = 10000000;
const MAX_FIELDS = 64;
const MAX_ENCRYPTED = 16;
const UNITS = new Set(
  (
    "m kg g s A K cd mol Hz rad sr N Pa J W C V F Ohm S Wb T H Cel lm lx Bq Gy Sv kat m2 m3 l m/s m/s2 m3/s l/s W/m2 cd/m2 bit bit/s " +
    "lat lon pH dB dBW Bspl count / % %RH %EL EL 1/s 1/min beat/min beats S/m B VA VAs var vars J/m kg/m3 deg ms min h MHz kW kVA kvar " +
    "Ah Wh kWh varh kvarh kVAh Wh/km KiB GB Mbit/s B/s MB/s mV mA dBm ug/m3 mm/h m/h ppm /100 /1000 hPa mm cm km km/h"
  ).split(" "),
);
const OPAQUE_LENGTH = 2;
const PREFIX = Buffer.from("moteseal/1/schema\0");

/** 1 to 64 bytes without control characters (Unicode category Cc). */
export function isName(text) {
  const size = Buffer.byteLength(text);
  return size >= 1 && size <= 64 && !/[\u0000-\u001f\u007f-\u009f]/.test(text);
}

/** A field of version 1. */
function fromArray(node, position) {
  const f = cbor.array(node, 5);
  const [name, unit] = [cbor.text(f[0]), cbor.text(f[1])];
  const scale = { type: cbor.u64(f[2]), divisor: cbor.u64(f[3]), offset: cbor.i64(f[4]) };
  return { name, unit, ...scale, id: BigInt(position), nullable: false, labels: null, longest: 0n, relayed: false, suite: 0, group: 0 };
}

/** The keys of a field of version 2: its property, how to read the value, and the value that is not encoded. */
const KEYS = [
  ["id", cbor.u64],
  ["name", cbor.text],
  ["unit", cbor.text, ""],
  ["type", cbor.u64],
  ["divisor", cbor.u64, 1n],
  ["offset", cbor.i64, 0n],
  ["nullable", cbor.bool, false],
  ["labels", (n) => cbor.array(n).map(cbor.text)],
  ["longest", cbor.u64, 0n],
  ["relayed", cbor.bool, false],
  null,
  null,
  ["suite", cbor.u64, 0n],
  null,
  null,
  null,
  ["group", cbor.u64, 0n],
];

/** A field of version 2. */
function fromMap(node) {
  if (node.t !== cbor.MAP) fail("UnexpectedType");
  const f = { id: null, name: null, unit: "", type: null, divisor: 1n, offset: 0n, nullable: false, labels: null, longest: 0n, relayed: false, suite: 0n, group: 0n };
  for (let i = 0; i < node.v.length; i += 2) {
    const key = cbor.u64(node.v[i]);
    if (key < BigInt(KEYS.length) && KEYS[Number(key)] !== null) {
      const [property, read, omitted] = KEYS[Number(key)];
      f[property] = read(node.v[i + 1]);
      if (f[property] === omitted) fail("NonCanonical");
    } else if (key % 2n === 0n) {
      fail("UnsupportedField");
    }
  }
  if (f.id === null || f.name === null || f.type === null) fail("UnexpectedType");
  return f;
}

function areLabels(labels) {
  if (labels.length < 1 || labels.length > MAX_LABELS || new Set(labels).size !== labels.length) return false;
  return labels.every((label) => isName(label) && !/[,()]/.test(label));
}

function checkField(f, version, names, ids) {
  if (f.id < 1n || f.id > 65535n) fail("InvalidFieldId");
  if (!isName(f.name)) fail("InvalidFieldName");
  if (f.unit !== "" && !UNITS.has(f.unit)) fail("UnknownUnit");
  if (f.type > (version === 1 ? TIME : POINT)) fail("UnknownFieldType");
  f.type = Number(f.type);
  if (f.divisor === 0n || f.divisor > 0xffffffffn) fail("ScaleOutOfRange");
  if (f.type >= 8 && (f.divisor !== 1n || f.offset !== 0n)) fail("ScaleOutOfRange");
  if ((f.type === ENUM) !== (f.labels !== null) || (f.labels !== null && !areLabels(f.labels))) fail("InvalidLabels");
  if (f.type === TEXT ? f.longest < 1n || f.longest > 254n : f.longest !== 0n) fail("InvalidTextLength");
  f.longest = Number(f.longest);
  if (f.suite > 2n) fail("UnknownSuite");
  f.suite = Number(f.suite);
  if (f.group > 7n) fail("InvalidGroup");
  f.group = Number(f.group);
  if (names.has(f.name)) fail("DuplicateField");
  if (ids.has(f.id)) fail("DuplicateFieldId");
  names.add(f.name);
  ids.add(f.id);
}

export function openSchema(bytes) {
  const [number, list] = cbor.array(cbor.single(bytes), 2);
  const version = cbor.u64(number) === 1n ? 1 : 2;
  if (number.v !== version) fail("UnsupportedVersion");
  const nodes = cbor.array(list);
  if (version === 2 && nodes.length === 0) fail("UnsupportedVersion");
  const fields = nodes.map((node, i) => (version === 1 ? fromArray(node, i + 1) : fromMap(node)));
  if (version === 2 && bytes.length > MAX_SCHEMA) fail("SchemaTooLong");
  if (fields.length > MAX_FIELDS) fail("TooManyFields");
  const names = new Set();
  const ids = new Set();
  let encrypted = 0;
  for (const f of fields) {
    checkField(f, version, names, ids);
    if (f.suite !== 0 && ++encrypted > MAX_ENCRYPTED) fail("TooManyEncryptedFields");
  }
  let groups = fields.reduce((set, f) => set | (1 << f.group), 0);
  if (groups > 1 && !(groups & 1)) fail("NoFirstGroup");
  if (fields.some((f) => f.group !== 0 && f.suite === 0)) fail("PlainGroup");
  if (groups === 1) groups = 0;
  return { bytes, version, groups, ...layoutOf(fields), digest: sha256(Buffer.concat([PREFIX, bytes])) };
}

/** The fields of a schema, and the sizes of their cells. */
function layoutOf(fields) {
  const fixed = fields.reduce((sum, f) => sum + SIZES[f.type], 0);
  const texts = fields.filter((f) => f.type === TEXT).length;
  const recordSize = fields.length === 0 || texts > 0 ? null : fixed;
  return { fields, fixed, texts, recordSize };
}

/** The schema of the records with only the columns of some groups (groups.md, section 2). */
export function project(schema, groups) {
  return { ...schema, ...layoutOf(schema.fields.filter((f) => (groups >> f.group) & 1)) };
}

/** The projection of a record to one group. */
export function cellsOfGroup(schema, group, record) {
  const fixed = [];
  const texts = [];
  cellsOf(schema, record).forEach((cell, i) => {
    const field = schema.fields[i];
    if (field.group !== group) return;
    if (field.type !== TEXT) fixed.push(cell);
    else texts.push(Buffer.from([cell === null ? NULL_TEXT : cell.length]), cell ?? Buffer.alloc(0));
  });
  return Buffer.concat([...fixed, ...texts]);
}

/** The bytes of each cell of a record of version 2; of a text, without its length, and null if that is 255. */
function cellsOf(schema, record) {
  const texts = [];
  let end = schema.fixed;
  for (let i = 0; i < schema.texts; i++) {
    if (end >= record.length) fail("RecordLength");
    const length = record[end];
    const start = end + 1;
    end = start + (length === NULL_TEXT ? 0 : length);
    texts.push(length === NULL_TEXT ? null : record.subarray(start, end));
  }
  if (end !== record.length) fail("RecordLength");
  let p = 0;
  let text = 0;
  return schema.fields.map(({ type }) => {
    if (type === TEXT) return texts[text++];
    p += SIZES[type];
    return record.subarray(p - SIZES[type], p);
  });
}

function isNullCell(field, cell) {
  if (!field.nullable) return false;
  if (field.type === TEXT) return cell === null;
  if (field.type === POINT) return cell.readInt32BE(0) === -0x80000000 && cell.readInt32BE(4) === -0x80000000;
  const isSigned = field.type === TIMESTAMP || (field.type < 8 && field.type & 1);
  return isSigned ? cell[0] === 0x80 && cell.subarray(1).every((b) => b === 0) : cell.every((b) => b === 0xff);
}

function isValueCell(field, cell) {
  if (field.type === BOOL) return cell[0] < 2;
  if (field.type === ENUM) return cell[0] < field.labels.length;
  if (field.type === POINT) return Math.abs(cell.readInt32BE(0)) <= 900000000 && Math.abs(cell.readInt32BE(4)) <= 1800000000;
  if (field.type !== TEXT) return true;
  return cell !== null && cell.length <= field.longest && isUtf8(cell) && !/[\u0000-\u001f\u007f-\u009f]/.test(cell.toString("utf8"));
}

/** The checks of a record (section 5.3). */
export function checkRecord(schema, record) {
  if (schema.fields.length === 0) return;
  cellsOf(schema, record).forEach((cell, i) => {
    const field = schema.fields[i];
    if (field.suite !== 0) {
      // The length of a text is all that a ciphertext shows.
      if (field.type === TEXT && (cell === null ? !field.nullable : cell.length > field.longest)) fail("RecordValue");
    } else if (!isNullCell(field, cell) && !isValueCell(field, cell)) {
      fail("RecordValue");
    }
  });
}

/** Decrypts the columns that have a key. Returns the record and its values, as `readRecord` does. */
export function decryptRecord(schema, keys, seq, record) {
  const fixed = [];
  const texts = [];
  const rest = [...keys];
  const values = cellsOf(schema, record).map((sealed, i) => {
    const field = schema.fields[i];
    const key = field.suite === 0 ? undefined : rest.shift();
    const cell = key ? decryptCell(field, key, seq, sealed) : sealed;
    if (field.type === TEXT) texts.push(cell === null ? Buffer.from([NULL_TEXT]) : Buffer.concat([Buffer.from([cell.length]), cell]));
    else fixed.push(cell);
    if (key === null) return { error: "Encrypted" };
    if (!isNullCell(field, cell) && !isValueCell(field, cell)) fail("RecordValue");
    return valueOf(field, cell);
  });
  return { bytes: Buffer.concat([...fixed, ...texts]), values };
}

function valueOf(field, cell) {
  if (isNullCell(field, cell)) return null;
  const { type, divisor, offset } = field;
  if (type === TEXT) return cell.toString("utf8");
  if (type === BOOL) return cell[0] === 1 ? "true" : "false";
  if (type === ENUM) return field.labels[cell[0]];
  if (type === POINT) return `${cell.readInt32BE(0)}/${POINT_DIVISOR} ${cell.readInt32BE(4)}/${POINT_DIVISOR}`;
  const unsigned = BigInt("0x" + cell.toString("hex"));
  if (type === TIMESTAMP) return BigInt.asIntN(64, unsigned).toString();
  if (type === TIME) return unsigned.toString();
  if (type >= 8) return (type === 8 ? widen(cell) : unsigned).toString(16).padStart(16, "0");
  return `${(type & 1 ? BigInt.asIntN(8 * cell.length, unsigned) : unsigned) + offset}/${divisor}`;
}

/** The bits of the binary64 of a binary32. */
function widen(b) {
  const bits = b.readUInt32BE(0);
  const fraction = bits & 0x7fffff;
  if (((bits >>> 23) & 0xff) === 0xff && fraction !== 0) {
    // A conversion by the processor may change the payload of a NaN.
    const sign = bits >>> 31 ? 0x8000000000000000n : 0n;
    return sign | 0x7ff8000000000000n | (BigInt(fraction) << 29n);
  }
  const out = Buffer.alloc(8);
  out.writeDoubleBE(b.readFloatBE(0));
  return out.readBigUInt64BE(0);
}

/** The bytes of each field of a record, as unsigned integers. */
function rawFields(schema, record) {
  let p = 0;
  return schema.fields.map(({ type }) => {
    const size = SIZES[type];
    if (record.length - p < size) fail("RecordTooShort");
    const b = record.subarray(p, p + size);
    p += size;
    return { b, unsigned: size === 0 ? 0n : BigInt("0x" + b.toString("hex")) };
  });
}

/** The numerators of a record: `raw + offset` of the integer types, null of the others. */
export function numerators(schema, record) {
  return rawFields(schema, record).map(({ b, unsigned }, i) => {
    const { type, offset } = schema.fields[i];
    if (type >= 8) return null;
    return (type & 1 ? BigInt.asIntN(8 * b.length, unsigned) : unsigned) + offset;
  });
}

/** The values of a record as texts, in the forms of the vectors; null for null. */
export function readRecord(schema, record) {
  if (schema.version === 2) {
    checkRecord(schema, record);
    if (schema.fields.some((f) => f.suite !== 0)) fail("Encrypted");
    return cellsOf(schema, record).map((cell, i) => valueOf(schema.fields[i], cell));
  }
  const exact = numerators(schema, record);
  return rawFields(schema, record).map(({ b, unsigned }, i) => {
    const { type, divisor } = schema.fields[i];
    if (type === 10) return unsigned.toString();
    if (type >= 8) return (type === 8 ? widen(b) : unsigned).toString(16).padStart(16, "0");
    return `${exact[i]}/${divisor}`;
  });
}

/** Exactly `count` records of encoded events; null if they are not. */
export function splitRecords(schema, events, count) {
  const size = schema.recordSize;
  const out = [];
  if (size !== null) {
    if (events.length !== size * count) return null;
    for (let i = 0; i < count; i++) out.push(events.subarray(i * size, (i + 1) * size));
    return out;
  }
  let p = 0;
  for (let i = 0; i < count; i++) {
    if (events.length - p < OPAQUE_LENGTH) return null;
    const end = p + OPAQUE_LENGTH + events.readUInt16BE(p);
    if (end > events.length) return null;
    out.push(events.subarray(p + OPAQUE_LENGTH, end));
    p = end;
  }
  return p === events.length ? out : null;
}

/** A record in the form in which events are hashed and sent. */
export function framed(schema, record) {
  if (schema.recordSize !== null) return record;
  const length = Buffer.alloc(OPAQUE_LENGTH);
  length.writeUInt16BE(record.length);
  return Buffer.concat([length, record]);
}
