//! Tests that a mote records the newest chain for each sender's key until its memory for keys is
//! full, and never removes a key to make room for another.

use crate::faulty_flash::Simulated;
use moteseal_broadcast::{ChainNumber, KeyId};
use moteseal_core::digest::Digest;
use moteseal_core::record::DeviceId;
use moteseal_core::record::Scheme;
use moteseal_mote::durable::{Durable, NoRoom, Settings};

const SETTINGS: Settings = Settings { interval_ms: 1, led: false, scheme: Scheme::Star };

fn open(flash: &mut Simulated) -> Durable<&mut Simulated> {
    Durable::open(flash, DeviceId([7; 8]), Digest([8; 32]), SETTINGS).unwrap()
}

#[test]
fn rejects_a_fifth_key_and_keeps_the_floors_of_the_others() {
    let keys = [1, 2, 3, 4].map(|byte| KeyId([byte; 8]));
    let mut flash = Simulated::new();
    let mut durable = open(&mut flash);
    for (key, number) in keys.into_iter().zip(10..) {
        assert_eq!(durable.raise(key, ChainNumber(number)), Ok(Ok(())));
    }
    for _ in 0..3 {
        assert_eq!(durable.raise(KeyId([5; 8]), ChainNumber(1)), Ok(Err(NoRoom)));
    }
    assert_eq!(durable.raise(keys[1], ChainNumber(50)), Ok(Ok(())));
    let floors = [10, 50, 12, 13].map(|number| Some(ChainNumber(number)));
    assert_eq!(keys.map(|key| durable.memory().floor(key)), floors);
    // The floors survive a move of the journal to its other page, and a restart.
    for number in 51..400 {
        assert_eq!(durable.raise(keys[1], ChainNumber(number)), Ok(Ok(())));
    }
    let mut durable = open(&mut flash);
    let floors = [10, 399, 12, 13].map(|number| Some(ChainNumber(number)));
    assert_eq!(keys.map(|key| durable.memory().floor(key)), floors);
    assert_eq!(durable.raise(KeyId([5; 8]), ChainNumber(1)), Ok(Err(NoRoom)));
}
