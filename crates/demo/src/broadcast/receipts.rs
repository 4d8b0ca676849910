//! Three watchers get an update of firmware, and acknowledge it to its sender. One of them is switched
//! on late, and an attacker forges its receipt meanwhile. The sender counts the receipts and names the
//! watcher that is missing.

use std::path::Path;

use moteseal_broadcast::receipt::ReceiverKey;
use moteseal_broadcast::recovery::Now;
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_broadcast::{KeyId, Kind, Window};
use moteseal_core::participation::Participation;
use moteseal_core::signature::{Algorithm, PublicKey};
use moteseal_device::broadcast::{Options, Watcher};
use moteseal_gateway::broadcast::{Receipts, Receivers};
use moteseal_lab::broadcast::truth::Truth;
use moteseal_lab::radio::Authority;
use moteseal_store::Archive;
use moteseal_terminal::failure::Failure;
use zeroize::Zeroizing;

use super::commands::internal;

/// The receivers. The last one is off when the update is sent.
const NAMES: [&str; 3] = ["valve 1", "valve 2", "valve 3"];
/// The board and the version of the update.
const UPDATE: (&str, u32) = ("valve", 2);
/// The length of the code in the update, in bytes.
const CODE: usize = 3000;
/// How long the receivers have to send their receipts, in seconds.
const TIME: u64 = 30;

/// What the sender knows at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReceiptStep {
    /// What happened before.
    pub(super) after: &'static str,
    pub(super) acknowledged: usize,
    /// The names of the receivers without a receipt.
    pub(super) missing: Vec<String>,
    /// The names of the receivers in whose name a wrong receipt has arrived.
    pub(super) failing: Vec<String>,
}

/// Gives all frames to a new watcher, and the receipts that it then sends to the sender.
fn watch(
    (folder, key): (&Path, &ReceiverKey),
    (authority, bases): (&Authority, &[PublicKey]),
    frames: &[Vec<u8>],
    receipts: &mut Receipts,
) -> Result<(), Failure> {
    let ids: Vec<KeyId> = bases.iter().map(KeyId::of).collect();
    let archive = Archive::open(folder, authority.network, &ids, 1 << 20).map_err(internal)?;
    let mut options = Options::new(authority.network, bases);
    options.receiver_keys = std::slice::from_ref(key);
    let now = |ms: u64| Now { ms, unix: Some(1_700_000_000 + ms / 1000) };
    let mut ignore = |_: moteseal_device::broadcast::WatchEvent<'_>| Ok(());
    let mut watcher = Watcher::open(options, archive, 1, now(0), &mut ignore).map_err(internal)?;
    for frame in frames {
        watcher.receive(now(0), 0, frame, &mut ignore).map_err(internal)?;
    }
    let mut out = vec![0; MAX_BROADCAST_FRAME];
    for ms in (0..TIME * 1000).step_by(50) {
        watcher.tend(now(ms), &mut ignore).map_err(internal)?;
        while let Some(transmit) = watcher.poll(now(ms), &mut out).map_err(internal)? {
            let sent = out.get(..transmit.length).unwrap_or_default();
            if let Ok(BroadcastFrame::Receipts { receivers, tag, .. }) =
                BroadcastFrame::decode(sent)
            {
                receipts.take(receivers, &tag, sent.len());
            }
        }
    }
    Ok(())
}

/// Runs the watchers. Returns what the sender knows after each event.
pub(super) fn play() -> Result<Vec<ReceiptStep>, Failure> {
    let authority = Authority::new(Algorithm::Ed25519, 1).map_err(internal)?;
    let sender = authority.certify("operations", Algorithm::Ed25519, 1).map_err(internal)?;
    let messages = authority.update(UPDATE, &[0xa5; CODE]).map_err(internal)?;
    let terms = (Kind::File, "valve-2.firmware", Window::ALWAYS);
    let chain = sender.send_as(terms, None, 1, 1, &messages).map_err(internal)?;
    let head = chain.head.clone();
    let frames = Truth { chains: vec![chain] }.frames(0);
    let mut list = Receivers::new(authority.network, sender.id, Zeroizing::new([9; 32]));
    for name in NAMES {
        list.add(name).map_err(internal)?;
    }
    let mut receipts = Receipts::new(&list, &head, list.current());
    let bases = [authority.public.clone()];
    let folder = tempfile::tempdir().map_err(internal)?;
    let mut steps = Vec::new();
    let run = |places: &[u32], receipts: &mut Receipts| {
        for place in places {
            let key = list.key(*place).ok_or_else(|| internal("a key is missing"))?;
            let folder = folder.path().join(place.to_string());
            watch((&folder, key), (&authority, &bases), &frames, receipts)?;
        }
        Ok::<_, Failure>(())
    };
    let mut note = |after, receipts: &Receipts| {
        let names = |positions: Vec<u32>| {
            positions.into_iter().map(|at| list.label(at).to_owned()).collect()
        };
        steps.push(ReceiptStep {
            after,
            acknowledged: receipts.count(),
            missing: names(receipts.missing().collect()),
            failing: names(receipts.failing().collect()),
        });
    };
    run(&[0, 1], &mut receipts)?;
    note("the update was sent", &receipts);
    // The attacker has the receipts of the others, and no key.
    let copied = list.key(0).map(|key| key.receipt(&head)).unwrap_or_default();
    let mut set = [0; 16];
    let length = Participation::encode_one(2, &mut set).map_err(internal)?;
    receipts.take(set.get(..length).unwrap_or_default(), &copied, length);
    note("an attacker forged a receipt of valve 3", &receipts);
    run(&[2], &mut receipts)?;
    note("valve 3 was switched on", &receipts);
    Ok(steps)
}

/// Returns the number of steps that are not as they should be.
pub(super) fn faults(steps: &[ReceiptStep]) -> u64 {
    let is_right = |step: &ReceiptStep, acknowledged: usize, is_forged: bool| {
        let missing = NAMES.get(acknowledged..).unwrap_or_default();
        let failing = if is_forged { missing } else { &[] };
        step.acknowledged == acknowledged && step.missing == missing && step.failing == failing
    };
    let [sent, forged, late] = steps else { return 1 };
    [is_right(sent, 2, false), is_right(forged, 2, true), is_right(late, 3, false)]
        .into_iter()
        .map(|right| u64::from(!right))
        .sum()
}
