//! One hop on which everybody hears everybody, as the product's commands use it: simulated, and measured over real UDP between network namespaces by
//! `tools/broadcast_netns.py`. That the two agree is why the figures of the simulator can be believed.

use moteseal_broadcast::recovery::{Meter, Rate, Relay, Settings, Timing};
use moteseal_core::signature::Algorithm;

use super::chains::{NoChain, Repeating, Testbed, settings, speech};
use super::{MESSAGES, NODES};
use crate::chance::Seed;
use crate::radio::{Air, Authority};

/// Loss, messages a block, and the fragments and coded repairs that all nodes sent for each message: one run of `tools/broadcast_netns.py`, by a release
/// build on a quiet machine of two cores.
pub const MEASURED: [(f64, u8, f64); 6] = [
    (0.0, 1, 1.00),
    (0.1, 1, 1.63),
    (0.2, 1, 2.01),
    (0.0, 10, 1.00),
    (0.1, 10, 1.51),
    (0.2, 10, 1.89),
];
/// The sender's pace: a frame of some 70 bytes at 4,000 bytes a second, and a pause behind a block in which it is asked for what is missing.
const GAP_MS: u64 = 18;
const PAUSE_MS: u64 = 60;
/// How long a sender's answers wait (`moteseal_gateway::broadcast::sender::Manner::LAN`).
const SENDER_REPLY_MS: u32 = 2;
/// No run takes longer.
const LONGEST_MS: u64 = 600_000;

/// Fragments and coded repairs that a sender and six receivers send for each message; none if a receiver lacks something in the end.
///
/// # Errors
/// [`NoChain`].
#[allow(clippy::cast_precision_loss)]
pub fn simulated(loss: f64, per_block: u8, seed: Seed) -> Result<Option<f64>, NoChain> {
    let authority = Authority::new(Algorithm::Ed25519, 1).map_err(NoChain::Key)?;
    let speech = speech(&authority, 1, MESSAGES, per_block, seed)?;
    let node = Settings {
        relay: Relay::OtherLinks,
        timing: Timing::LAN,
        meter: Meter::HOST,
        ..settings(&authority, Repeating::Always)
    };
    // Receivers leave requests to the sender as long as it says something new, which here it does to the end.
    let mut nodes = [Settings {
        meter: Meter { answers: Rate { burst: 0, each_ms: u32::MAX }, ..node.meter },
        ..node
    }; NODES];
    nodes[0] = Settings { timing: Timing { reply_ms: SENDER_REPLY_MS, ..node.timing }, ..node };
    let everybody = (0..NODES).flat_map(|one| (one + 1..NODES).map(move |other| (one, other)));
    let air = Air { delay_ms: 1, ..Air::losing(loss) };
    let mut radio = Testbed::new(&nodes, everybody, air, seed);
    radio.start_all();
    let release =
        |message: u64| 100 + message * GAP_MS + message / u64::from(per_block.max(1)) * PAUSE_MS;
    radio.say_at(0, 0, &speech, &(0..u64::from(MESSAGES)).map(release).collect::<Vec<_>>());
    while radio.stations[1..].iter().any(|station| station.delivered.len() < MESSAGES as usize) {
        if radio.now_ms() > LONGEST_MS {
            return Ok(None);
        }
        radio.run(radio.now_ms() + 10, &mut ());
    }
    let data = radio.said.iter().filter(|((_, name), _)| matches!(*name, "fragment" | "repair"));
    Ok(Some(data.map(|(_, count)| *count).sum::<u64>() as f64 / f64::from(MESSAGES)))
}
