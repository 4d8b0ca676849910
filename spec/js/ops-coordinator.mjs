// The operations of announcements, manifests, the link and the audit.

import { audit } from "./audit.mjs";
import { openAnnouncement, openManifest } from "./coordinator.mjs";
import { dtlsPsk, follow, linkSecret, offers, openAcknowledgement, openRefusal, openUp } from "./link.mjs";
import { hex, malformed, OPS, rosterOf, shown, toHex } from "./ops.mjs";
import { optionsOf } from "./ops-stream.mjs";

OPS["word.announcement"] = (input, context) => openAnnouncement(hex(input.bytes), rosterOf(context));

OPS["word.manifest"] = (input, context) => {
  const m = openManifest(hex(input.bytes), rosterOf(context));
  return { devices: [...m.listed], digest: toHex(m.digest), epoch: m.epoch, roster: toHex(m.roster), round: m.round };
};

OPS["coordinator.offers"] = (input) => {
  if (!(input.levels >= 1 && input.levels <= 32)) malformed("levels");
  return offers(input.levels, input.budget, input.steps);
};

OPS["link.secret"] = (input) => {
  const secret = linkSecret(hex(input.group_secret), hex(input.group), hex(input.device));
  return { dtls_psk: toHex(dtlsPsk(secret)), secret: toHex(secret) };
};

OPS["link.follow"] = (input) => ({ heard: follow(input.frames) });

OPS["link.up"] = (input) => shown(openUp(hex(input.frame), hex(input.group_secret), hex(input.group)));

const down = (open) => (input) => shown(open(hex(input.frame), hex(input.group_secret), hex(input.group), hex(input.device)));

OPS["link.down"] = down(openAcknowledgement);

OPS["link.refusal"] = down(openRefusal);

OPS["audit.range"] = (input, context) => {
  const until = input.until === null || input.until === undefined ? null : BigInt(input.until);
  return { epochs: audit(hex(input.bytes), rosterOf(context), BigInt(input.since), until, optionsOf(context)) };
};
