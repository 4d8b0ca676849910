//! Measures a star of 16 levels whose events have two column groups.

#![no_std]
#![no_main]

use moteseal_core::digest::Digest;
use moteseal_core::record::Framing;
use moteseal_core::schema::{GroupLayout, Schema};
use moteseal_core::{DeviceId, SealIndex};
use moteseal_footprint::star::EVENT;
use moteseal_footprint::{Meter, Of, failed};
use moteseal_seal::level::SaltKey;
use moteseal_seal::star::{self, GroupedStar};

/// A star for the levels and groups of this program.
type Grouped = GroupedStar<16, 2>;

#[moteseal_board::entry]
fn main() -> ! {
    let (mut meter, mut input) = Meter::start();
    let (device, key) = (DeviceId(input.fixed()), SaltKey::new(input.fixed()));
    let index = SealIndex(u32::from_be_bytes(input.fixed()));
    let events = input.item();
    let Ok(schema) = Schema::decode(input.item()) else { failed("schema") };
    let Some(framing) = Framing::fixed(EVENT) else { failed("framing") };
    let Some(layout) = GroupLayout::new(&schema, schema.groups()) else { failed("groups") };
    let salt = key.salt(device, index);
    let empty = Grouped::new(device, index, &salt, (layout, framing), 16);
    let Some(empty) = empty else { failed("levels") };
    meter.bytes("state", size_of::<Grouped>());
    meter.number("events", (events.len() / EVENT) as u64);
    let mut root = Digest::NULL;
    for of in [Of::Instructions, Of::Stack] {
        let mut running = empty.clone();
        meter.once(of, "push", &mut || {
            for event in events.as_chunks::<EVENT>().0 {
                if running.push(event).is_err() {
                    failed("push");
                }
            }
        });
        meter.once(of, "close", &mut || {
            let (counters, digests) = running.close_in_place();
            root = star::root(&counters, &digests);
        });
    }
    meter.result("root", &root.0);
    meter.end()
}
