// Sampling within a budget (coordinator.md): the round, announcements, manifests.

import * as cbor from "./cbor.mjs";
import { openObject, TYP_MANIFEST, TYP_ROUND, verifyObject } from "./cose.mjs";
import { fail, Fail } from "./fail.mjs";

const MAX_ANNOUNCEMENT = 32;

/** The epoch in an object of the coordinator, which is element `at` of its payload; null if it cannot be read. */
function statedEpoch(bytes, at) {
  try {
    const tag = cbor.single(bytes);
    const payload = cbor.single(cbor.bytes(cbor.array(tag.c ?? tag, 4)[2]));
    return cbor.u64(cbor.array(payload)[at] ?? payload);
  } catch (e) {
    if (e instanceof Fail) return null;
    throw e;
  }
}

/** Section 3.3: the certificate of the coordinator that signs this object. */
function coordinatorOf(bytes, at, roster) {
  const epoch = statedEpoch(bytes, at);
  const period = epoch === null ? roster.newestPeriod() : roster.periodOf(epoch);
  if (period.coordinator === null) fail("NoCoordinator");
  return period.coordinator;
}

/** Section 2.2. */
export function openAnnouncement(bytes, roster) {
  const coordinator = coordinatorOf(bytes, 2, roster);
  const object = openObject(bytes, TYP_ROUND);
  if (object.payload.length > MAX_ANNOUNCEMENT) fail("FieldOutOfRange");
  verifyObject(object, coordinator.alg, coordinator.key);
  const f = cbor.versioned(cbor.single(object.payload), 4);
  const group = cbor.bytes(f[1], 8);
  const epoch = cbor.u64(f[2]);
  const round = cbor.u8(f[3]);
  if (round > 31) fail("FieldOutOfRange");
  if (!group.equals(roster.group)) fail("WrongGroup");
  return { epoch, round };
}

/** Section 3.2. The digests of `listed` are by device id, all in hexadecimal. */
export function openManifest(bytes, roster) {
  const coordinator = coordinatorOf(bytes, 3, roster);
  const object = openObject(bytes, TYP_MANIFEST);
  verifyObject(object, coordinator.alg, coordinator.key);
  const f = cbor.versioned(cbor.single(object.payload), 6);
  const group = cbor.bytes(f[1], 8);
  const digest = cbor.bytes(f[2], 32);
  const epoch = cbor.u64(f[3]);
  const round = cbor.u8(f[4]);
  const devices = cbor.array(f[5]).map((n) => {
    const d = cbor.array(n, 2);
    return [cbor.bytes(d[0], 8).toString("hex"), cbor.array(d[1]).map((s) => cbor.bytes(s, 32).toString("hex"))];
  });
  if (round > 32) fail("FieldOutOfRange");
  if (!group.equals(roster.group)) fail("WrongGroup");
  devices.forEach(([id, seals], i) => {
    if (seals.length === 0 || (i > 0 && devices[i - 1][0] >= id)) fail("UnsortedDevices");
  });
  const version = roster.numbers.get(digest.toString("hex"));
  if (version === undefined) fail("UnknownRoster");
  if (!roster.hasEpoch(epoch)) fail("EpochOutOfRange");
  const period = roster.periodOf(epoch);
  if (version < period.version) fail("RosterOutdated");
  if (round > period.levels) fail("RoundOutOfRange");
  return { object, digest: object.digest, roster: digest, version, epoch, round, period, listed: new Map(devices) };
}
