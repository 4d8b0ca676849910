// The stream schema (objects.md, section 5), and the records in encoded events.

import * as cbor from "./cbor.mjs";
import { sha256 } from "./crypto.mjs";
import { fail } from "./fail.mjs";

export const TYPES = ["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f32", "f64", "time"];
const SIZES = [1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 4];
const MAX_FIELDS = 64;
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

export function openSchema(bytes) {
  const [, list] = cbor.versioned(cbor.single(bytes), 2);
  const fields = cbor.array(list).map((node) => {
    const f = cbor.array(node, 5);
    return { name: cbor.text(f[0]), unit: cbor.text(f[1]), type: cbor.u64(f[2]), divisor: cbor.u64(f[3]), offset: cbor.i64(f[4]) };
  });
  if (fields.length > MAX_FIELDS) fail("TooManyFields");
  const names = new Set();
  let size = 0;
  for (const f of fields) {
    if (!isName(f.name)) fail("InvalidFieldName");
    if (f.unit !== "" && !UNITS.has(f.unit)) fail("UnknownUnit");
    if (f.type > 10n) fail("UnknownFieldType");
    f.type = Number(f.type);
    if (f.divisor === 0n || f.divisor > 0xffffffffn) fail("ScaleOutOfRange");
    if (f.type >= 8 && (f.divisor !== 1n || f.offset !== 0n)) fail("ScaleOutOfRange");
    if (names.has(f.name)) fail("DuplicateField");
    names.add(f.name);
    size += SIZES[f.type];
  }
  return { bytes, fields, recordSize: fields.length === 0 ? null : size, digest: sha256(Buffer.concat([PREFIX, bytes])) };
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
    return { b, unsigned: BigInt("0x" + b.toString("hex")) };
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

/** The values of a record as texts, in the forms of the vectors. */
export function readRecord(schema, record) {
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
