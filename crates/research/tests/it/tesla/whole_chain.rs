//! Shared helpers of the uTESLA tests: a schedule, a receiver, and a table of all keys of a chain.

use hmac::{Hmac, KeyInit, Mac};
use moteseal_broadcast::{ChainId, ChainNumber};
use moteseal_core::DeviceId;
use moteseal_core::record::NetworkId;
use moteseal_research::tesla::receiver::{FrameError, Receiver, Settings};
use moteseal_research::tesla::wire::TeslaFrame;
use moteseal_research::tesla::{ChainKey, KEY, Parameters, Schedule, TAG};
use sha2::{Digest as _, Sha256};

pub(crate) const SECRET: ChainKey = [9; KEY];
pub(crate) const START: u64 = 1_000_000;
pub(crate) const OFFSET: u64 = 30;

pub(crate) fn schedule(interval_ms: u32, delay: u8, last: u32) -> Schedule {
    let id =
        ChainId { network: NetworkId([1; 8]), sender: DeviceId([2; 8]), number: ChainNumber(3) };
    Schedule { id, start_ms: START, interval_ms, delay, last }
}

pub(crate) fn settings() -> Settings {
    Settings { offset_ms: OFFSET, steps: 1000, budget: 1 << 20, seed: 7 }
}

pub(crate) fn receiver<const ROWS: usize, const PLACES: usize>(
    parameters: Parameters,
) -> Receiver<ROWS, PLACES, 32> {
    Receiver::new(parameters, settings()).unwrap()
}

/// Returns the time in the middle of an interval.
pub(crate) fn amid(schedule: &Schedule, interval: u32) -> u64 {
    schedule.start_ms
        + u64::from(interval) * u64::from(schedule.interval_ms)
        + u64::from(schedule.interval_ms / 2)
}

/// Takes all verified messages from the receiver and returns them in order, with their intervals.
pub(crate) fn taken<const R: usize, const P: usize, const B: usize>(
    receiver: &mut Receiver<R, P, B>,
) -> Vec<(u32, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(delivered) = receiver.take() {
        all.push((delivered.interval, delivered.message.to_vec()));
    }
    all
}

pub(crate) fn receive_frame<const R: usize, const P: usize, const B: usize>(
    receiver: &mut Receiver<R, P, B>,
    now_ms: u64,
    frame: &[u8],
) -> Result<(), FrameError> {
    receiver.receive(now_ms, &TeslaFrame::decode(frame).unwrap())
}

/// All keys of a chain in a table. The table is computed by a second implementation of
/// the scheme.
pub(crate) struct Table {
    pub(crate) schedule: Schedule,
    pub(crate) keys: Vec<ChainKey>,
}

impl Table {
    pub(crate) fn new(schedule: Schedule, secret: ChainKey) -> Self {
        let top = schedule.last.next_power_of_two().max(2);
        let mut table = Self { schedule, keys: vec![secret] };
        for i in (1..=top).rev() {
            let before = table.hash(0, i, table.keys.last().unwrap())[..KEY].try_into().unwrap();
            table.keys.push(before);
        }
        table.keys.reverse();
        table
    }

    pub(crate) fn hash(&self, function: u8, interval: u32, key: &ChainKey) -> [u8; 32] {
        let ChainId { network, sender, number } = &self.schedule.id;
        let mut block = b"moteseal/tesla/1\0\0\0\0\0\0\0\0".to_vec();
        block.extend([&network.0[..], &sender.0, &number.0.to_be_bytes(), &[function]].concat());
        block.resize(64, 0);
        Sha256::digest([&block[..], &interval.to_be_bytes(), key].concat()).into()
    }

    pub(crate) fn tag(&self, interval: u32, message: &[u8]) -> [u8; TAG] {
        let key = self.hash(1, interval, &self.keys[interval as usize]);
        let mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&key).unwrap();
        mac.chain_update(message).finalize().into_bytes()[..TAG].try_into().unwrap()
    }

    pub(crate) fn packet<'a>(&self, interval: u32, message: &'a [u8]) -> TeslaFrame<'a> {
        TeslaFrame::Packet {
            chain: self.schedule.reference(),
            interval,
            message,
            tag: self.tag(interval, message),
        }
    }

    pub(crate) fn key(&self, interval: u32) -> TeslaFrame<'static> {
        TeslaFrame::Key {
            chain: self.schedule.reference(),
            interval,
            key: self.keys[interval as usize],
        }
    }

    pub(crate) fn parameters(&self) -> Parameters {
        Parameters { schedule: self.schedule, committed: 0, key: self.keys[0] }
    }
}
