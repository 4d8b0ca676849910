//! Measures a source of private sums: the work for a new query and for each reading, with the guard
//! that the mote must store before it sends a reading.

#![no_std]
#![no_main]

use core::hint::black_box;

use moteseal_board::entry;
use moteseal_footprint::{Meter, failed};
use moteseal_sum::guard::EpochGuard;
use moteseal_sum::query::QueryId;
use moteseal_sum::sies::{PSR, Psr, Slot, SourceKey, SourceSecret};

const EPOCH_MS: u64 = 30_000;

#[entry]
fn main() -> ! {
    let (mut meter, mut input) = Meter::start();
    let (secret, query) = (SourceSecret::from_bytes(&input.fixed()), QueryId(input.fixed()));
    let (reading, first) = (u32::from_be_bytes(input.fixed()), u64::from_be_bytes(input.fixed()));
    let mut key = None;
    meter.measure("query", &mut || key = Some(black_box(&secret).for_query(query)));
    let Some(key) = key else { failed("key") };
    meter.bytes(
        "state",
        size_of::<SourceSecret>() + size_of::<SourceKey>() + size_of::<EpochGuard>(),
    );
    let mut guard = EpochGuard::default();
    let mut psr = Psr::ZERO;
    let mut epoch = first;
    let mut kept = [0; 32];
    meter.measure("reading", &mut || {
        let Ok(mut permit) = guard.advance(query, EPOCH_MS, epoch) else { failed("guard") };
        // A mote writes this record to its journal before it sends.
        kept.copy_from_slice(&guard.encode()[9..41]);
        match key.encrypt(&mut permit, Slot(0), u128::from(reading)) {
            Ok(sealed) => psr = sealed,
            Err(_) => failed("encrypt"),
        }
        epoch += 1;
    });
    let bytes: [u8; PSR] = psr.to_bytes();
    meter.result("psr", &bytes);
    meter.end()
}
