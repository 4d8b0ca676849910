//! Checks that the simulator agrees with real UDP. On one hop, the simulated nodes must send the
//! number of frames per message that was measured between network namespaces
//! (`tools/broadcast_netns.py`), within 15 %.

use moteseal_lab::broadcast::hop::{MEASURED, simulated};
use moteseal_lab::chance::{Average, Seed};

#[test]
fn a_simulated_hop_needs_as_many_frames_as_real_udp() {
    let mut different = Vec::new();
    for (loss, per_block, measured) in MEASURED {
        let run = |seed| {
            simulated(loss, per_block, Seed::default().derive("hop", seed))
                .unwrap()
                .expect("every receiver has every message")
        };
        let simulated: Average = (0..10).map(run).collect();
        println!(
            "loss {loss}, blocks of {per_block:>2}: simulated {simulated:.2}, real {measured:.2}"
        );
        if (simulated.mean() / measured - 1.0).abs() > 0.15 {
            different.push((loss, per_block, simulated.mean(), measured));
        }
    }
    assert!(different.is_empty(), "{different:?}");
}
