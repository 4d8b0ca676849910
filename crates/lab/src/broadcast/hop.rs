//! Simulates one hop, where all nodes are in range of each other, with the settings of the
//! product's commands. The test `a_simulated_hop_needs_as_many_frames_as_real_udp` of `moteseal`
//! runs these commands over real UDP and compares the numbers of frames, and
//! `tools/broadcast_netns.py` does so between network namespaces. If the results agree, the other
//! results of the simulator are more credible.

use moteseal_broadcast::MAX_PER_BLOCK;
use moteseal_broadcast::recovery::{Meter, Relay, Settings, Timing};
use moteseal_core::signature::Algorithm;

use super::chains::{CHAINS, NoChain, Repeating, SENDERS, settings, speech};
use super::{MESSAGES, NODES};
use crate::chance::Seed;
use crate::radio::{Air, Authority, Radio};

/// The sender's pace: the time between frames (about 70 bytes at 4,000 bytes per second), and the
/// pause for requests after each block.
const GAP_MS: u64 = 18;
const PAUSE_MS: u64 = 60;
/// The delay of the sender's answers, as in `moteseal_gateway::broadcast::sender::Manner::LAN`.
const SENDER_REPLY_MS: u32 = 2;
/// The time limit of an execution, in milliseconds.
const LONGEST_MS: u64 = 600_000;

/// Returns the number of fragments and repairs that the sender and six receivers send per message.
/// Nodes collect requests for `gather_ms` ([`Timing::gather_ms`]); 0 for answers with single leaves.
/// `None` if a receiver still misses a message at the end.
///
/// # Errors
/// [`NoChain`].
#[allow(clippy::cast_precision_loss)]
pub fn simulated(
    loss: f64,
    per_block: u8,
    gather_ms: u32,
    seed: Seed,
) -> Result<Option<f64>, NoChain> {
    let authority = Authority::new(Algorithm::Ed25519, 1).map_err(NoChain::Key)?;
    let speech = speech(&authority, 1, MESSAGES, per_block, seed)?;
    let node = Settings {
        relay: Relay::Never,
        timing: Timing { gather_ms, ..Timing::LAN },
        meter: Meter::HOST,
        ..settings(&authority, Repeating::Always)
    };
    let mut nodes = [node; NODES];
    nodes[0].timing.reply_ms = SENDER_REPLY_MS;
    let all_links = (0..NODES).flat_map(|one| (one + 1..NODES).map(move |other| (one, other)));
    let air = Air { delay_ms: 1, ..Air::losing(loss) };
    let mut radio =
        Radio::<SENDERS, CHAINS, { MAX_PER_BLOCK as usize }>::new(&nodes, all_links, air, seed);
    radio.start_all();
    let release =
        |message: u64| 100 + message * GAP_MS + message / u64::from(per_block.max(1)) * PAUSE_MS;
    radio.send_at(0, 0, &speech, &(0..u64::from(MESSAGES)).map(release).collect::<Vec<_>>());
    while radio.stations[1..].iter().any(|station| station.delivered.len() < MESSAGES as usize) {
        if radio.now_ms() > LONGEST_MS {
            return Ok(None);
        }
        radio.run(radio.now_ms() + 10, &mut ());
    }
    let data = radio.sent.iter().filter(|((_, name), _)| matches!(*name, "fragment" | "repair"));
    Ok(Some(data.map(|(_, count)| *count).sum::<u64>() as f64 / f64::from(MESSAGES)))
}
