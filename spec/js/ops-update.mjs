// The operations of update files of motes.

import { hex, keyOf, OPS, shown } from "./ops.mjs";
import { findTag, openPart } from "./update.mjs";

OPS["update.part"] = (input) => shown(openPart(hex(input.bytes), hex(input.network), input.bases.map(keyOf)));

OPS["update.tag"] = (input) => findTag(hex(input.bytes));
