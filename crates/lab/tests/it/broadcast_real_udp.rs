//! The simulator does not lie: what nodes send on one hop of it is what they sent over real UDP
//! between network namespaces (tools/broadcast_netns.py), within what chance and the machine's own
//! delays make of it.

use moteseal_lab::broadcast::hop::{MEASURED, simulated};
use moteseal_lab::chance::{Average, Seed};

#[test]
fn nodes_send_on_a_simulated_hop_what_they_sent_over_real_udp() {
    let mut off = Vec::new();
    for (loss, per_block, measured) in MEASURED {
        let run = |seed| {
            simulated(loss, per_block, Seed::default().derive("hop", seed))
                .unwrap()
                .expect("everything arrives")
        };
        let simulated: Average = (0..10).map(run).collect();
        println!(
            "loss {loss}, blocks of {per_block:>2}: simulated {simulated:.2}, real {measured:.2}"
        );
        if (simulated.mean() / measured - 1.0).abs() > 0.15 {
            off.push((loss, per_block, simulated.mean(), measured));
        }
    }
    assert!(off.is_empty(), "{off:?}");
}
