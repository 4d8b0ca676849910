//! Tests a mote whose flash was erased, or has an old content: it detects this from the first answer
//! of its coordinator, and continues after the newest stored seal.

use std::collections::BTreeSet;

use moteseal_core::record::{Scheme, SealIndex};
use moteseal_core::schema::{Field, Schema};
use moteseal_mote::Mote;
use moteseal_mote::durable::{Durable, Settings};
use moteseal_mote::notice::Notice;
use moteseal_mote::readings::Recording;
use moteseal_serial::Channel;

use crate::faulty_flash::Simulated;
use crate::whole_mote::{
    BUFFER, CERTIFICATE, COUNT, Coordinator, DEVICE, Taken, coordinator, provisioning,
};

/// Runs a mote in steps. `steps` are numbers of seals: when the coordinator has this many, the power
/// fails, and the function changes the flash, which is given with the flash at the end of the
/// previous step. Returns the coordinator, and the notices of each step.
fn simulate_steps(
    scheme: Scheme,
    steps: &[usize],
    change: fn(&Simulated, &Simulated) -> Simulated,
) -> (Coordinator, Vec<Vec<Notice>>) {
    let mut buffer = [0; 64];
    let schema = Schema::encode(&[Field::parse("reading::u32").unwrap()], &mut buffer).unwrap();
    let provisioning = provisioning(schema.as_bytes(), scheme);
    let table: Vec<u8> = (0..COUNT).flat_map(|reading| (reading * 3 + 1).to_be_bytes()).collect();
    let settings = Settings { interval_ms: 1, led: false, scheme };
    let (mut coordinator, mut now_ms, mut notices) = (coordinator(&schema), 0, Vec::new());
    let (mut flash, mut earlier) = (Simulated::new(), Simulated::new());
    for most in steps.iter().copied().chain([usize::MAX]) {
        let mut durable = Durable::open(&mut flash, DEVICE, CERTIFICATE, settings).unwrap();
        let recording = Recording::new(&table, 4, provisioning.window).unwrap();
        let mut mote = Mote::<_, _, 8, BUFFER>::new(&provisioning, &mut durable, None, recording);
        let mut of_life = Vec::new();
        mote.start(now_ms, &mut |_| ()).unwrap();
        let mut out = [0; 1400];
        for _ in 0..60_000 {
            now_ms += 1;
            if mote.is_done() || coordinator.sealed.len() >= most {
                break;
            }
            let notify = &mut |notice: Notice| of_life.push(notice);
            mote.work(now_ms, notify).unwrap();
            if let Some((_, length)) = mote.next_body(now_ms, &mut out, notify).unwrap() {
                let answer = coordinator.receive(&out[..length]);
                mote.receive(now_ms, Channel::Coordinator, &answer, notify).unwrap();
            }
        }
        assert!(mote.is_done() || coordinator.sealed.len() >= most, "the mote is never done");
        notices.push(of_life);
        if most < usize::MAX {
            let now = flash.repowered();
            flash = change(&now, &earlier);
            earlier = now;
        }
    }
    (coordinator, notices)
}

fn rolled_back(notices: &[Notice]) -> usize {
    notices.iter().filter(|notice| matches!(notice, Notice::RolledBack(..))).count()
}

/// Finding A1 of the review.
#[test]
fn a_mote_whose_flash_was_erased_continues_after_the_stored_seals() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        // The coordinator checks that the seals are one chain and that no index is reused.
        let (coordinator, notices) = simulate_steps(scheme, &[3], |_, _| Simulated::new());
        let after: Vec<&Taken> =
            coordinator.sealed.range(1 << 16..).map(|(_, taken)| taken).collect();
        assert!(after[0].restart && after[1..].iter().all(|taken| !taken.restart), "{after:?}");
        assert_eq!(coordinator.sealed.len() - after.len(), 3);
        assert_eq!((rolled_back(&notices[0]), rolled_back(&notices[1])), (0, 1));
        // The new state does not know which readings were sealed, so it seals the recording again.
        assert_eq!(after.iter().map(|taken| taken.count).sum::<u64>(), u64::from(COUNT));
    }
}

/// Finding A4 of the review.
#[test]
fn a_mote_with_an_old_copy_of_its_flash_continues_after_the_stored_seals() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let (coordinator, notices) = simulate_steps(scheme, &[3, 6], |now, earlier| {
            // After the first step, keep the flash. After the second step, restore the copy.
            if earlier.bytes.iter().all(|byte| *byte == 0xff) {
                now.clone()
            } else {
                earlier.clone()
            }
        });
        assert_eq!(
            notices.iter().map(|of_life| rolled_back(of_life)).collect::<Vec<_>>(),
            [0, 0, 1]
        );
        let after: Vec<&Taken> =
            coordinator.sealed.range(1 << 16..).map(|(_, taken)| taken).collect();
        assert!(after[0].restart && coordinator.sealed.len() - after.len() == 6, "{after:?}");
        let records: BTreeSet<[u8; 4]> =
            coordinator.sealed.values().flat_map(|taken| taken.records.values().copied()).collect();
        assert_eq!(records.len(), COUNT as usize, "every reading must be in a stored seal");
    }
}

/// Finding A5 of the review.
#[test]
fn replayed_acknowledgements_have_no_effect_while_the_coordinator_is_away() {
    let mut buffer = [0; 64];
    let schema = Schema::encode(&[Field::parse("reading::u32").unwrap()], &mut buffer).unwrap();
    let provisioning = provisioning(schema.as_bytes(), Scheme::Star);
    let table = vec![7; 4 * COUNT as usize];
    let settings = Settings { interval_ms: 1, led: false, scheme: Scheme::Star };
    let (mut coordinator, mut flash) = (coordinator(&schema), Simulated::new());
    let mut durable = Durable::open(&mut flash, DEVICE, CERTIFICATE, settings).unwrap();
    let recording = Recording::new(&table, 4, provisioning.window).unwrap();
    let mut mote = Mote::<_, _, 8, BUFFER>::new(&provisioning, &mut durable, None, recording);
    mote.start(0, &mut |_| ()).unwrap();
    let (mut out, mut recorded, mut given_up) = ([0; 1400], Vec::<Vec<u8>>::new(), 0);
    for now_ms in 1..100_000 {
        let notify = &mut |notice: Notice| {
            given_up += u32::from(matches!(notice, Notice::GivenUp(_) | Notice::RolledBack(..)));
        };
        // The coordinator goes away while the second seal is open and partly acknowledged.
        let is_away = coordinator.sealed.len() == 1
            && coordinator.followed.is_some_and(|of| of.index == SealIndex(1) && of.next.0 > 20);
        mote.work(now_ms, notify).unwrap();
        let body = mote.next_body(now_ms, &mut out, notify).unwrap();
        if is_away {
            if now_ms % 250 > 0 {
                continue;
            }
            for answer in &recorded {
                mote.receive(now_ms, Channel::Coordinator, answer, notify).unwrap();
            }
        } else if let Some((_, length)) = body {
            let answer = coordinator.receive(&out[..length]);
            mote.receive(now_ms, Channel::Coordinator, &answer, notify).unwrap();
            recorded.push(answer);
        }
    }
    assert_eq!((given_up, mote.is_done(), coordinator.sealed.len()), (0, false, 1));
}
