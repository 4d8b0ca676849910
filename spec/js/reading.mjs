// Signed readings (objects.md, section 7.2).

import * as cbor from "./cbor.mjs";
import { openObject, TYP_READING, verifyObject } from "./cose.mjs";
import { Fail, fail } from "./fail.mjs";

const MULTIPART = 62;
const JSON_OBJECT = 50;
const SENML_JSON = 110;
const SENML_CBOR = 112;
const COSE_SIGN1 = 18;
const MAX_REPRESENTATION = 131072;
const MAX_VALUES = 128;
const MAX_NUMBER = 400;
const LEAST_SECONDS = 1n << 28n;
const BEFORE = Buffer.from(',"signature":"');
const NUMBER = /^-?(0|[1-9][0-9]*)(\.[0-9]+)?$/;
const NAME = /^-?[A-Za-z0-9][-:./_A-Za-z0-9]*$/;
const PLAIN = /^[!#-[\]-~]*$/;
const CONTROL = /\p{Cc}/u;
const MEMBER = /"([!#-[\]-~]*)":(?:"((?:[^"\\]|\\["\\])*)"|(true|false)|([-.0-9]+))/y;
const SECONDARY = new Set(
  "ms min h MHz kW kVA kvar Ah Wh kWh varh kvarh kVAh Wh/km KiB GB Mbit/s B/s MB/s mV mA dBm ug/m3 mm/h m/h ppm /100 /1000 hPa mm cm km km/h".split(" "),
);

const malformed = () => fail("MalformedReading");
const need = (condition) => {
  if (!condition) malformed();
};

/** The bytes of the only spelling in base64url, or null. */
function fromBase64(text) {
  const bytes = Buffer.from(text, "base64url");
  return bytes.toString("base64url") === text ? bytes : null;
}

// ---------------------------------------------------------------- numbers

function number(text) {
  need(text.length <= MAX_NUMBER && NUMBER.test(text));
  return text;
}

/** Rule 10. */
function milliseconds(text) {
  const [whole, fraction = ""] = text.split(".");
  need(!text.startsWith("-") && fraction.length <= 3 && BigInt(whole) >= LEAST_SECONDS);
  const ms = BigInt(whole) * 1000n + BigInt(fraction.padEnd(3, "0"));
  need(ms < 1n << 64n);
  return ms;
}

function seconds(ms) {
  const text = `${ms / 1000n}.${String(ms % 1000n).padStart(3, "0")}`;
  return text.replace(/0+$/, "").replace(/\.$/, "");
}

const fits = (v) => v >= -(1n << 63n) && v < 1n << 64n;

/** Rule 13: a number as CBOR. */
function encodeNumber(text) {
  const [whole, fraction = ""] = text.split(".");
  const sign = text.startsWith("-") ? -1n : 1n;
  let mantissa = sign * BigInt(whole.replace("-", "") + fraction);
  let exponent = -fraction.length;
  if (!fits(mantissa)) {
    const shortest = /^(-?)([0-9])(?:\.([0-9]+))?e([-+][0-9]+)$/.exec(Number(text).toExponential());
    need(shortest);
    const [, minus, first, rest = "", power] = shortest;
    mantissa = BigInt(minus + first + rest);
    exponent = Number(power) - rest.length;
  }
  const integer = cbor.encodeInt(mantissa);
  return exponent === 0 ? integer : Buffer.concat([cbor.head(cbor.TAG, 4), cbor.encodeArray([cbor.encodeInt(BigInt(exponent)), integer])]);
}

function integer(node) {
  need(node.t === cbor.UINT || node.t === cbor.NINT);
  const v = BigInt(node.v);
  need(fits(v));
  return v;
}

function decodeNumber(node) {
  let exponent = 0n;
  let mantissa = node;
  if (node.t === cbor.TAG) {
    need(BigInt(node.v) === 4n && node.c.t === cbor.ARRAY && node.c.v.length === 2);
    exponent = integer(node.c.v[0]);
    mantissa = node.c.v[1];
  }
  const v = integer(mantissa);
  need(exponent >= -MAX_NUMBER && exponent <= MAX_NUMBER);
  const [sign, digits] = v < 0n ? ["-", String(-v)] : ["", String(v)];
  if (exponent >= 0n) return number(sign + digits + "0".repeat(Number(exponent)));
  const places = Number(-exponent);
  const padded = digits.padStart(places + 1, "0");
  return number(`${sign}${padded.slice(0, -places)}.${padded.slice(-places)}`);
}

// ---------------------------------------------------------------- representations: values are {name, unit, label, value}

const baseName = (device) => `urn:moteseal:device:${device.toString("hex")}:`;
const isSecondary = ({ unit }) => SECONDARY.has(unit);
/** Rule 11. Numbers and booleans are kept as their texts. */
const written = ({ label, value }) => (label === "v" || label === "vb" ? value : `"${value.replace(/["\\]/g, "\\$&")}"`);

function writeObject(time, values) {
  const members = time === null ? [] : [`"_time":${seconds(time)}`];
  for (const v of values) members.push(`"${v.name}":${written(v)}`);
  return Buffer.from(`{${members.join(",")}}`);
}

function writeText(device, time, values) {
  const records = values.map((v, at) => {
    const members = [];
    if (at === 0) {
      if (values.some(isSecondary)) members.push('"bver":26');
      members.push(`"bn":"${baseName(device)}"`);
      if (time !== null) members.push(`"bt":${seconds(time)}`);
    }
    members.push(`"n":"${v.name}"`);
    if (v.unit !== "") members.push(`"u":"${v.unit}"`);
    members.push(`"${v.label}":${written(v)}`);
    return `{${members.join(",")}}`;
  });
  return Buffer.from(`[${records.join(",")}]`);
}

function writeBinary(device, time, values) {
  const records = values.map((v, at) => {
    const entries = [[0, cbor.encodeText(v.name)]];
    if (v.unit !== "") entries.push([1, cbor.encodeText(v.unit)]);
    if (v.label === "v") entries.push([2, encodeNumber(v.value)]);
    else if (v.label === "vs") entries.push([3, cbor.encodeText(v.value)]);
    else if (v.label === "vb") entries.push([4, Buffer.from([v.value === "true" ? 0xf5 : 0xf4])]);
    else entries.push([8, cbor.encodeBytes(fromBase64(v.value))]);
    if (at === 0) {
      if (values.some(isSecondary)) entries.push([-1, cbor.encodeUint(26)]);
      entries.push([-2, cbor.encodeText(baseName(device))]);
      if (time !== null) entries.push([-3, encodeNumber(seconds(time))]);
    }
    return Buffer.concat([cbor.head(cbor.MAP, entries.length), ...entries.flatMap(([label, item]) => [cbor.encodeInt(BigInt(label)), item])]);
  });
  return cbor.encodeArray(records);
}

/** Reads the members of the object at `place`, each with a label and a value. */
function members(text, place) {
  need(text[place] === "{");
  const found = new Map();
  for (;;) {
    MEMBER.lastIndex = place + 1;
    const match = MEMBER.exec(text);
    need(match && !found.has(match[1]));
    if (match[2] !== undefined) found.set(match[1], { label: "vs", value: match[2].replace(/\\(.)/gu, "$1") });
    else if (match[3] !== undefined) found.set(match[1], { label: "vb", value: match[3] });
    else found.set(match[1], { label: "v", value: number(match[4]) });
    place = MEMBER.lastIndex;
    if (text[place] === ",") continue;
    need(text[place] === "}");
    return [found, place + 1];
  }
}

function readObject(text) {
  const [found, end] = members(text, 0);
  need(end === text.length);
  let time = null;
  const values = [];
  for (const [name, token] of found) {
    if (name === "_time") {
      need(token.label === "v");
      time = milliseconds(token.value);
    } else values.push({ name, unit: "", ...token });
  }
  return { time, values };
}

function readText(text) {
  need(text[0] === "[");
  let place = 1;
  let time = null;
  const values = [];
  for (;;) {
    const [found, end] = members(text, place);
    if (found.has("bt")) {
      need(found.get("bt").label === "v");
      time = milliseconds(found.get("bt").value);
    }
    const label = ["v", "vb", "vs", "vd"].find((known) => found.has(known));
    need(label !== undefined);
    const { label: kind, value } = found.get(label);
    need(kind === (label === "vd" ? "vs" : label) && (label !== "vd" || fromBase64(value) !== null));
    const name = found.get("n") ?? malformed();
    const unit = found.get("u") ?? { label: "vs", value: "" };
    need(name.label === "vs" && unit.label === "vs");
    values.push({ name: name.value, unit: unit.value, label, value });
    if (text[end] !== ",") {
      need(text.slice(end) === "]");
      return { time, values };
    }
    place = end + 1;
  }
}

function readBinary(bytes) {
  const pack = cbor.single(bytes);
  need(pack.t === cbor.ARRAY && pack.v.length <= MAX_VALUES);
  let time = null;
  const values = pack.v.map((record) => {
    need(record.t === cbor.MAP);
    const found = new Map();
    for (let i = 0; i < record.v.length; i += 2) {
      const key = record.v[i];
      if (key.t === cbor.UINT || key.t === cbor.NINT) found.set(Number(key.v), record.v[i + 1]);
    }
    if (found.has(-3)) time = milliseconds(decodeNumber(found.get(-3)));
    const name = cbor.text(found.get(0) ?? malformed());
    const unit = found.has(1) ? cbor.text(found.get(1)) : "";
    if (found.has(2)) return { name, unit, label: "v", value: decodeNumber(found.get(2)) };
    if (found.has(3)) return { name, unit, label: "vs", value: cbor.text(found.get(3)) };
    if (found.has(4)) return { name, unit, label: "vb", value: String(cbor.bool(found.get(4))) };
    return { name, unit, label: "vd", value: cbor.bytes(found.get(8) ?? malformed()).toString("base64url") };
  });
  return { time, values };
}

function utf8(bytes) {
  const text = bytes.toString("utf8");
  need(Buffer.from(text, "utf8").equals(bytes));
  return text;
}

/** Rules 6 to 14. */
function read(format, bytes, device) {
  const text = format === SENML_CBOR ? "" : utf8(bytes);
  const { time, values } = format === SENML_CBOR ? readBinary(bytes) : format === JSON_OBJECT ? readObject(text) : readText(text);
  const names = new Set(values.map(({ name }) => name));
  need(values.length >= 1 && values.length <= MAX_VALUES && names.size === values.length);
  for (const { name, unit, label, value } of values) {
    need(NAME.test(name) && name !== "signature" && PLAIN.test(unit) && (label !== "vs" || !CONTROL.test(value)));
  }
  const write = { [SENML_CBOR]: writeBinary, [SENML_JSON]: writeText, [JSON_OBJECT]: (_, ...rest) => writeObject(...rest) }[format];
  need(write(device, time, values).equals(bytes));
  return { time: time === null ? null : Number(time), values: values.map(({ name, unit, value }) => [name, unit, value]) };
}

// ---------------------------------------------------------------- responses

/** Rule 4. */
function separate(format, bytes) {
  if (format === JSON_OBJECT) {
    const end = bytes.length - 2;
    if (end < 0 || bytes.toString("latin1", end) !== '"}') fail("NoSignature");
    const start = end === 0 ? 0 : bytes.lastIndexOf('"', end - 1) + 1;
    const object = fromBase64(bytes.toString("latin1", start, end));
    const cut = start - BEFORE.length;
    if (object === null || cut < 0 || !bytes.subarray(cut, start).equals(BEFORE)) fail("NoSignature");
    return { format, representation: Buffer.concat([bytes.subarray(0, cut), Buffer.from("}")]), object };
  }
  if (format === SENML_JSON || format === SENML_CBOR) fail("NoSignature");
  if (format !== MULTIPART) fail("UnknownFormat");
  const fields = cbor.array(cbor.single(bytes), 4);
  const inner = cbor.u16(fields[0]);
  if (inner !== SENML_JSON && inner !== SENML_CBOR) fail("FieldOutOfRange");
  const representation = cbor.bytes(fields[1]);
  if (cbor.u16(fields[2]) !== COSE_SIGN1) fail("FieldOutOfRange");
  return { format: inner, representation, object: cbor.bytes(fields[3]) };
}

export function openReading(number, bytes, roster) {
  const { format, representation, object: signature } = separate(number, bytes);
  const object = openObject(signature, TYP_READING, representation);
  const f = cbor.versioned(object.statement, 7);
  if (representation.length > MAX_REPRESENTATION) fail("FieldOutOfRange");
  const group = cbor.bytes(f[1], 8);
  cbor.bytes(f[2], 32);
  const device = cbor.bytes(f[3], 8);
  const index = cbor.u32(f[4]);
  const epoch = cbor.u64(f[5]);
  const seq = cbor.u64(f[6]);
  if (object.content !== format) fail("WrongFormat");
  if (!group.equals(roster.group)) fail("WrongGroup");
  const member = roster.devices.get(device.toString("hex"));
  const term = member && roster.termOf(member, index, epoch);
  if (!term) fail("UnknownDevice");
  verifyObject(object, term.certificate.alg, term.certificate.key);
  try {
    return { device, index, epoch, seq, format, ...read(format, representation, device) };
  } catch (error) {
    if (error instanceof Fail) malformed();
    throw error;
  }
}
