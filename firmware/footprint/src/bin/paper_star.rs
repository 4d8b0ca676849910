//! Measures the paper's star and a star with one compression for each event, both of 16 levels, for
//! comparison with the star of `moteseal_seal`.

#![no_std]
#![no_main]

use moteseal_board::entry;
use moteseal_footprint::paper::{OneEach, PaperStar};
use moteseal_footprint::star::EVENT;
use moteseal_footprint::{Meter, opaque};
use moteseal_seal::level::Salt;

#[entry]
fn main() -> ! {
    let (mut meter, mut input) = Meter::start();
    let events = input.item().as_chunks::<EVENT>().0;
    meter.number("events", events.len() as u64);
    let mut paper = PaperStar::<16>::default();
    meter.bytes("paper", size_of::<PaperStar<16>>());
    meter.measure("paper", &mut || events.iter().for_each(|event| paper.push(event)));
    opaque(paper.digests());
    let mut one = OneEach::<16>::new(&opaque(Salt([7; 16])));
    meter.bytes("one", size_of::<OneEach<16>>());
    meter.measure("one", &mut || events.iter().for_each(|event| one.push(event)));
    opaque(one.states());
    meter.end()
}
