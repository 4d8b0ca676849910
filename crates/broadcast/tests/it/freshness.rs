//! The window, the kind and the previous number in a head: what senders may sign, what receivers
//! read, and at which times a chain may be delivered.

use std::convert::Infallible;

use moteseal_broadcast::{
    BuildError, ChainDraft, ChainId, ChainNumber, DraftError, Head, KeyId, Kind,
    MAX_COMMAND_SECONDS, MAX_HEAD, MAX_LEAF, OutgoingChain, Untimely, Window, sender_named,
};
use moteseal_core::digest::Digest;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, SecretKey};

const NETWORK: NetworkId = NetworkId([3; 8]);
const NOW: u64 = 1_700_000_000;

fn key() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[7; 32]).unwrap()
}

/// Builds and signs a chain of one message. Returns its head.
fn signed(
    number: u64,
    kind: Kind,
    window: Window,
    previous: Option<u64>,
) -> Result<Vec<u8>, DraftError> {
    let key = key();
    let draft = ChainDraft {
        id: ChainId { network: NETWORK, sender: sender_named("ops"), number: ChainNumber(number) },
        key: KeyId::of(&key.public()),
        messages: 1,
        per_block: 1,
        kind,
        label: "valve",
        window,
        previous: previous.map(ChainNumber),
        is_addressed: false,
    };
    let mut digests = [Digest::NULL];
    let mut scratch = [0; MAX_LEAF];
    let read = |_, _: &mut [u8]| Ok::<_, Infallible>(0);
    let chain = OutgoingChain::build(draft, &mut digests, &mut [], &mut scratch, read);
    let chain = chain.map_err(|error| match error {
        BuildError::Draft(error) => error,
        BuildError::Read(never) => match never {},
    })?;
    Ok(chain.head(&key, &mut [0; MAX_HEAD], &mut [0; MAX_HEAD]).unwrap().to_vec())
}

const fn window(not_before: u64, not_after: u64) -> Window {
    Window { not_before, not_after }
}

#[test]
fn receivers_read_the_window_the_kind_and_the_previous_number_that_were_signed() {
    let longest = window(NOW, NOW + MAX_COMMAND_SECONDS);
    for (number, kind, window, previous) in [
        (9, Kind::Announcement, Window::ALWAYS, None),
        (9, Kind::Announcement, window(NOW, u64::MAX), Some(8)),
        (9, Kind::File, window(0, NOW), Some(0)),
        (u64::MAX, Kind::Command, longest, Some(u64::MAX - 1)),
        (u64::MAX, Kind::Command, window(0, 1), Some(0)),
    ] {
        let bytes = signed(number, kind, window, previous).unwrap();
        let (sender, public) = (sender_named("ops"), key().public());
        let head = Head::open(&bytes, NETWORK, sender, &public, &mut [0; MAX_HEAD]).unwrap();
        assert_eq!((head.outline().kind, head.window()), (kind, window));
        assert_eq!(head.previous(), previous.map(ChainNumber));
        let claim = Head::peek(&bytes).unwrap();
        assert_eq!((claim.kind(), claim.window()), (kind, window));
        assert_eq!(claim.previous(), previous.map(ChainNumber));
    }
}

#[test]
fn a_sender_signs_no_command_without_an_end_and_no_impossible_window_or_previous_number() {
    let too_long = window(NOW, NOW + MAX_COMMAND_SECONDS + 1);
    for (kind, window, previous, error) in [
        (Kind::Command, Window::ALWAYS, None, DraftError::CommandWithoutEnd),
        (Kind::Command, window(NOW, u64::MAX), None, DraftError::CommandWithoutEnd),
        (Kind::Command, too_long, None, DraftError::ValidityTooLong),
        (Kind::Command, window(NOW, NOW), None, DraftError::EmptyWindow),
        (Kind::Announcement, window(NOW, NOW - 1), None, DraftError::EmptyWindow),
        (Kind::File, window(u64::MAX, u64::MAX), None, DraftError::EmptyWindow),
        (Kind::Announcement, Window::ALWAYS, Some(9), DraftError::PreviousNotBelow),
        (Kind::Announcement, Window::ALWAYS, Some(10), DraftError::PreviousNotBelow),
    ] {
        assert_eq!(signed(9, kind, window, previous), Err(error), "{kind} {window:?}");
    }
    signed(9, Kind::Announcement, too_long, None).unwrap();
}

#[test]
fn a_chain_is_deliverable_from_the_offset_before_its_begin_until_its_end() {
    let command = window(1_000, 1_600);
    for (now, offset, expected) in [
        (989, 10, Err(Untimely::Early)),
        (990, 10, Ok(())),
        (999, 0, Err(Untimely::Early)),
        (1_000, 0, Ok(())),
        (1_599, 10, Ok(())),
        (1_600, 0, Err(Untimely::Late)),
        (1_600, 10, Err(Untimely::Late)),
        (u64::MAX, u64::MAX, Err(Untimely::Late)),
    ] {
        assert_eq!(command.check(Some(now), offset), expected, "{now} {offset}");
    }
    let from = window(1_000, u64::MAX);
    assert_eq!(from.check(Some(u64::MAX), 0), Ok(()), "2^64-1 is no end");
    for limited in [command, from, window(0, 1_600)] {
        assert_eq!(limited.check(None, 10), Err(Untimely::NoTrustedTime));
    }
    assert_eq!(Window::ALWAYS.check(None, 0), Ok(()));
}
