//! Measures a star's memory for each number of levels that a group may have. More levels take more
//! memory and allow lower sampling rates.

#![no_std]
#![no_main]

use moteseal_board::entry;
use moteseal_footprint::Meter;
use moteseal_seal::Star;

#[entry]
fn main() -> ! {
    let (mut meter, _) = Meter::start();
    macro_rules! star {
        ($($levels:literal)+) => { $(meter.bytes(stringify!($levels), size_of::<Star<$levels>>());)+ };
    }
    star!(2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);
    meter.end()
}
