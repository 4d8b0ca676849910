// Update files of motes (update.md, section 1).

import { baseOf } from "./cast.mjs";
import * as cbor from "./cbor.mjs";
import { openObject } from "./cose.mjs";
import { fail } from "./fail.mjs";

const TYP_FIRMWARE = "moteseal-firmware+cose";
const PART = 256;
const TAG_START = Buffer.from("\x9dMSfirmware\x01", "latin1");
const TAG_LENGTH = TAG_START.length + 4 + 32;

const isBoard = (board) => /^[!-~]{1,32}$/.test(board);

/** Opens the first part of an update file: the length of the manifest, the manifest, and zeros. */
export function openPart(part, network, bases) {
  if (part.length !== PART) fail("FieldOutOfRange");
  const end = 2 + part.readUInt16BE(0);
  if (end > PART || part.subarray(end).some((byte) => byte !== 0)) fail("FieldOutOfRange");
  const object = openObject(part.subarray(2, end), TYP_FIRMWARE);
  const f = cbor.versioned(cbor.single(object.payload), 7);
  const stated = cbor.bytes(f[1], 8);
  const base = cbor.bytes(f[2], 8);
  const board = cbor.text(f[3]);
  const version = cbor.u32(f[4]);
  const length = cbor.u32(f[5]);
  const digest = cbor.bytes(f[6], 32);
  if (!isBoard(board) || version === 0 || length === 0) fail("FieldOutOfRange");
  baseOf(object, stated, network, base, bases);
  return { board, version, length, digest };
}

/** The board and the version that an image states. */
export function findTag(image) {
  const places = [];
  for (let at = image.indexOf(TAG_START); at >= 0; at = image.indexOf(TAG_START, at + 1)) {
    if (at + TAG_LENGTH <= image.length) places.push(at);
  }
  if (places.length === 0) fail("NoImageTag");
  const [at] = places;
  const version = image.readUInt32BE(at + 12);
  const board = image.toString("latin1", at + 16, at + TAG_LENGTH).replace(/\0*$/, "");
  if (places.length > 1 || version === 0 || !isBoard(board)) fail("BadImageTag");
  return { board, version };
}
