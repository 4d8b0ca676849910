//! Chains for named receivers (spec/broadcast.md, section 8): a receiver finds its entry among
//! others, reads what the sender encrypted, and refuses what is malformed.

use moteseal_broadcast::address::{
    ADDRESS_ENTRY, AddressError, AddressRead, AddressReader, AddressStart, ContentKey, Opened,
};
use moteseal_broadcast::receipt::ReceiverKey;
use moteseal_broadcast::{
    BuildError, ChainDraft, ChainId, ChainNumber, DraftError, Head, KeyId, Kind, MAX_HEAD,
    MAX_LABEL, MAX_LEAF, OutgoingChain, Outline, Window,
};
use moteseal_core::cbor::{DecodeError, Writer};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, NetworkId};
use moteseal_core::signature::{Algorithm, SecretKey};
use proptest::prelude::*;

const ID: ChainId = ChainId {
    network: NetworkId(*b"network1"),
    sender: DeviceId(*b"sender 1"),
    number: ChainNumber(7),
};
const KEY: KeyId = KeyId(*b"key of 1");
const LABEL: &str = "valve 3";

fn receiver(position: u32) -> ReceiverKey {
    ReceiverKey::derive(&[5; 32], ID.network, ID.sender, position, &format!("r{position}"))
}

fn outline(messages: u32) -> Outline {
    Outline {
        id: ID,
        key: KEY,
        messages,
        per_block: 1,
        longest: 8192,
        kind: Kind::Command,
        is_addressed: true,
    }
}

fn content_key() -> ContentKey {
    ContentKey::new(&[9; 16])
}

/// Returns the sorted entries of receivers.
fn entries(of: impl IntoIterator<Item = u32>) -> Vec<[u8; ADDRESS_ENTRY]> {
    let mut entries: Vec<_> =
        of.into_iter().map(|at| content_key().entry(&ID, KEY, &receiver(at))).collect();
    entries.sort_unstable();
    entries
}

/// Returns the messages of an address with `first` entries in its first message and `each` in each
/// of the others.
fn address(entries: &[[u8; ADDRESS_ENTRY]], first: usize, each: usize) -> Vec<Vec<u8>> {
    let mut label = LABEL.as_bytes().to_vec();
    content_key().cipher(&ID, KEY).apply_to_label(&mut label);
    let (now, later) = entries.split_at(first.min(entries.len()));
    let start = AddressStart {
        commitment: content_key().commitment(&ID, KEY),
        entries: u32::try_from(entries.len()).unwrap(),
        label: &label,
        first: now.as_flattened(),
        content: None,
    };
    let mut messages = vec![written(&start)];
    messages.extend(later.chunks(each).map(|part| part.as_flattened().to_vec()));
    messages
}

fn written(start: &AddressStart<'_>) -> Vec<u8> {
    let mut out = vec![0; 8192];
    let mut writer = Writer::new(&mut out);
    start.encode(&mut writer).unwrap();
    writer.finish().to_vec()
}

fn read(
    messages: &[Vec<u8>],
    of: &Outline,
    key: Option<&ReceiverKey>,
) -> Result<Opened, AddressError> {
    let mut reader = AddressReader::new(of);
    for message in messages {
        if reader.take(key, message)? == AddressRead::Complete {
            break;
        }
    }
    reader.open()
}

#[test]
fn only_addressed_receivers_find_the_key_of_the_content() {
    let messages = address(&entries(0..40), 7, 11);
    assert_eq!(messages.len(), 4);
    let of = outline(5);
    for at in 0..40 {
        let opened = read(&messages, &of, Some(&receiver(at))).unwrap();
        assert_eq!((opened.key.secret(), opened.address), (&[9; 16], 4));
        let start = AddressStart::decode(&messages[0], 5).unwrap();
        assert_eq!(opened.cipher.label(&start, &mut [0; MAX_LABEL]), Ok(LABEL));
        let mut message = b"open".to_vec();
        content_key().cipher(&ID, KEY).apply(3, &mut message);
        assert_ne!(message, b"open");
        opened.cipher.apply(3, &mut message);
        assert_eq!(message, b"open");
    }
    let of_other = read(&messages, &of, Some(&receiver(40))).unwrap_err();
    assert_eq!(of_other, AddressError::NotAddressed);
    assert_eq!(read(&messages, &of, None).unwrap_err(), AddressError::NoReceiverKey);
    let other = ReceiverKey::derive(&[6; 32], ID.network, ID.sender, 3, "r3");
    let replaced = read(&messages, &of, Some(&other)).unwrap_err();
    assert_eq!(replaced, AddressError::NotAddressed, "the sender has a new list of receivers");
}

#[test]
fn a_chain_of_one_message_has_its_content_in_the_address() {
    let mut content = b"led on".to_vec();
    content_key().cipher(&ID, KEY).apply(0, &mut content);
    let entries = entries([3, 4]);
    let start = AddressStart {
        commitment: content_key().commitment(&ID, KEY),
        entries: 2,
        label: &[],
        first: entries.as_flattened(),
        content: Some(&content),
    };
    let message = written(&start);
    let opened = read(std::slice::from_ref(&message), &outline(1), Some(&receiver(4))).unwrap();
    assert_eq!(opened.address, 0);
    let start = AddressStart::decode(&message, 1).unwrap();
    let mut content = start.content.unwrap().to_vec();
    opened.cipher.apply(0, &mut content);
    assert_eq!(content, b"led on");
    let of_several = AddressStart::decode(&message, 2);
    assert_eq!(of_several, Err(DecodeError::UnexpectedType), "content besides messages");
}

#[test]
fn malformed_addresses_are_refused() {
    let out_of_range = AddressError::Decode(DecodeError::FieldOutOfRange);
    let sorted = entries(0..6);
    let (mut swapped, mut twice) = (sorted.clone(), sorted.clone());
    swapped.swap(4, 5);
    twice[3] = twice[2];
    let key = receiver(0);
    let refused =
        |messages: &[Vec<u8>], count| read(messages, &outline(count), Some(&key)).unwrap_err();
    assert_eq!(refused(&address(&swapped, 3, 3), 3), out_of_range, "not in order");
    assert_eq!(refused(&address(&twice, 2, 2), 4), out_of_range, "one entry twice");
    let good = address(&sorted, 3, 3);
    assert_eq!(refused(&good[..1], 3), AddressError::AddressIncomplete, "one message so far");
    assert_eq!(refused(&good, 2), AddressError::AddressIncomplete, "no content");
    for (length, what) in [(3 * ADDRESS_ENTRY - 1, "a part of an entry"), (0, "no entry")] {
        let mut cut = good.clone();
        cut[1].truncate(length);
        assert_eq!(refused(&cut, 3), out_of_range, "{what}");
    }
    let mut more = good.clone();
    more[1].extend_from_slice(&[0xff; ADDRESS_ENTRY]);
    assert_eq!(refused(&more, 3), out_of_range, "more entries than stated");
    let start = AddressStart::decode(&good[0], 3).unwrap();
    let long = [0; MAX_LABEL + 1];
    for (changed, what) in [
        (AddressStart { entries: 0, ..start }, "for nobody"),
        (AddressStart { entries: 2, ..start }, "fewer than in the message"),
        (AddressStart { entries: 32_769, ..start }, "more than a list has"),
        (AddressStart { first: &[], ..start }, "no entry in the first message"),
        (AddressStart { label: &long, ..start }, "a long label"),
    ] {
        assert_eq!(refused(&[written(&changed)], 3), out_of_range, "{what}");
    }
}

#[test]
fn a_wrong_content_key_or_label_is_detected() {
    let mut sorted = entries(0..3);
    let own = content_key().entry(&ID, KEY, &receiver(1));
    let place = sorted.iter().position(|entry| *entry == own).unwrap();
    for bit in 64..8 * ADDRESS_ENTRY {
        sorted[place] = own;
        sorted[place][bit / 8] ^= 1 << (bit % 8);
        let refused = read(&address(&sorted, 3, 3), &outline(2), Some(&receiver(1)));
        assert_eq!(refused.unwrap_err(), AddressError::WrongContentKey, "bit {bit}");
    }
    let opened = read(&address(&entries(0..3), 3, 3), &outline(2), Some(&receiver(1))).unwrap();
    for label in [&b"\xff"[..], b"\x1b[2J"] {
        let mut label = label.to_vec();
        opened.cipher.apply_to_label(&mut label);
        let messages = address(&entries(0..3), 3, 3);
        let start = AddressStart::decode(&messages[0], 2).unwrap();
        let start = AddressStart { label: &label, ..start };
        let mut out = [0; MAX_LABEL];
        let refused = opened.cipher.label(&start, &mut out);
        assert_eq!(refused, Err(AddressError::Decode(DecodeError::FieldOutOfRange)));
    }
}

#[test]
fn two_chains_share_neither_masks_nor_key_streams() {
    let (one, other) = (content_key(), ContentKey::new(&[8; 16]));
    let later = ChainId { number: ChainNumber(8), ..ID };
    let key = receiver(1);
    // The mask is the exclusive or of the key and the entry.
    let mask = |content: &ContentKey, id: &ChainId| -> Vec<u8> {
        let entry = content.entry(id, KEY, &key);
        entry[8..].iter().zip(content.secret()).map(|(entry, key)| entry ^ key).collect()
    };
    // A sender whose state was restored can use a number again, with another content key.
    assert_ne!(mask(&one, &ID), mask(&other, &ID));
    assert_ne!(mask(&one, &ID), mask(&one, &later));
    let stream = |content: &ContentKey, id: &ChainId, number| {
        let mut zeros = [0; 64];
        content.cipher(id, KEY).apply(number, &mut zeros);
        zeros
    };
    let first = stream(&one, &ID, 0);
    assert_ne!(first[..32], first[32..]);
    for (content, id, number) in
        [(&other, &ID, 0), (&one, &later, 0), (&one, &ID, 1), (&one, &ID, u32::MAX)]
    {
        assert_ne!(stream(content, id, number), first);
    }
}

#[test]
fn the_head_of_an_addressed_chain_states_its_kind_and_hides_its_label() {
    let key = SecretKey::from_seed(Algorithm::Ed25519, &[7; 32]).unwrap();
    let draft = ChainDraft {
        id: ID,
        key: KeyId::of(&key.public()),
        messages: 2,
        per_block: 1,
        kind: Kind::Command,
        label: "",
        window: Window { not_before: 5, not_after: 9 },
        previous: None,
        is_addressed: true,
    };
    let build = |draft: ChainDraft<'static>| {
        let (mut digests, mut scratch, mut out) = ([Digest::NULL; 2], [0; MAX_LEAF], [0; MAX_HEAD]);
        let read = |_, _: &mut [u8]| Ok::<_, std::convert::Infallible>(0);
        let chain = OutgoingChain::build(draft, &mut digests, &mut [], &mut scratch, read)?;
        Ok(chain.head(&key, &mut scratch, &mut out).unwrap().to_vec())
    };
    let head = build(draft).unwrap();
    let opened = Head::reopen(&head).unwrap();
    assert!(opened.outline().is_addressed && opened.outline().kind == Kind::Command);
    assert_eq!(opened.outline().kind_number(), 11);
    let plain = build(ChainDraft { is_addressed: false, label: "valve 3", ..draft }).unwrap();
    assert!(!Head::reopen(&plain).unwrap().outline().is_addressed);
    let refused = |draft| match build(draft) {
        Err(BuildError::Draft(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(ChainDraft { label: "valve 3", ..draft }), DraftError::LabelNotHidden);
    let schedule = ChainDraft { kind: Kind::QuerySchedule, ..draft };
    assert_eq!(refused(schedule), DraftError::KindNotAddressed);
}

proptest! {
    #[test]
    fn hostile_messages_never_open(messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..4), count in 1_u32..5) {
        let opened = read(&messages, &outline(count), Some(&receiver(0)));
        prop_assert!(opened.is_err());
    }

    #[test]
    fn a_cut_or_changed_start_is_refused_or_the_same(at in 0_usize..150, bit in 0_u8..8) {
        let good = address(&entries(0..3), 3, 3);
        let mut changed = good[0].clone();
        if let Some(byte) = changed.get_mut(at) {
            *byte ^= 1 << bit;
            // The commitment, the entries and the encoding are checked. The label is checked by the
            // signature of the chain.
            if let Ok(start) = AddressStart::decode(&changed, 2) {
                prop_assert_eq!(written(&start), changed.clone());
            }
            let opened = read(&[changed], &outline(2), Some(&receiver(1)));
            if let Ok(opened) = opened {
                prop_assert_eq!(opened.key.secret(), &[9; 16]);
            }
        }
    }
}
