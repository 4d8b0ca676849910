//! Tests of requests, certificates, revocations, chains of one message, and the frames that carry
//! them.

use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_broadcast::{
    ChainId, ChainNumber, ChainRef, HeadError, KeyId, Kind, LeafError, MAX_HEAD, MAX_LEAF,
    MAX_MESSAGE, MAX_RECEIVERS, MAX_REQUEST, MAX_REVOCATION, MAX_SENDER_CERTIFICATE, MAX_SINGLE,
    NotInForce, Revocation, RevocationDraft, Revoked, SealError, SenderCertificate,
    SenderCertificateDraft, SenderCertificateError, SenderRequest, SenderRequestDraft, SingleDraft,
    SingleError, Window, open_single, sender_named,
};
use moteseal_core::DeviceId;
use moteseal_core::cbor::{DecodeError, Writer};
use moteseal_core::cose::{Protected, Sign1, Typ, sig_structure};
use moteseal_core::identity::IssueError;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey, SignatureError, Signer};
use proptest::prelude::*;

fn key(algorithm: Algorithm, seed: u8) -> SecretKey {
    SecretKey::from_seed(algorithm, &[seed; 32]).unwrap()
}

const SUITES: &[Algorithm] = &Algorithm::ALL;

fn certified(base: &SecretKey, network: NetworkId, key: &PublicKey, until: u64) -> Vec<u8> {
    let base_id = KeyId::of(&base.public());
    let sender = sender_named("ops");
    let draft = SenderCertificateDraft {
        network,
        base: base_id,
        serial: 9,
        sender,
        key,
        not_before: 100,
        not_after: until,
    };
    draft.issue(base, &mut [0; MAX_SENDER_CERTIFICATE]).unwrap().to_vec()
}

fn revoked(base: &SecretKey, network: NetworkId, minimum: u64) -> Vec<u8> {
    let revoked = Revoked::below(minimum);
    let draft = RevocationDraft { network, base: &base.public(), revoked };
    draft.issue(base, &mut [0; MAX_REVOCATION]).unwrap().to_vec()
}

#[test]
fn a_request_is_signed_with_its_own_key() {
    for &suite in SUITES {
        let (own, other) = (key(suite, 1), key(suite, 2));
        let public = own.public();
        let draft = SenderRequestDraft { sender: sender_named("ops"), key: &public };
        let mut out = [0; MAX_REQUEST];
        let bytes = draft.issue(&own, &mut out).unwrap().to_vec();
        let request = SenderRequest::open(&bytes).unwrap();
        assert_eq!((request.sender, &request.key), (sender_named("ops"), &public));
        let stolen = draft.issue(&other, &mut out).unwrap();
        let refused = SenderRequest::open(stolen).unwrap_err();
        assert_eq!(refused, SenderCertificateError::Signature(SignatureError::NotAuthentic));
    }
}

#[test]
fn a_certificate_is_valid_for_one_base_station_and_network() {
    for &suite in SUITES {
        let (base, other, sender) = (key(suite, 1), key(suite, 2), key(Algorithm::Esp256, 3));
        let network = NetworkId::of(&base.public());
        assert_ne!(network, NetworkId::of(&other.public()));
        let bytes = certified(&base, network, &sender.public(), 200);
        let certificate = SenderCertificate::open(&bytes, network, &base.public()).unwrap();
        assert_eq!((certificate.serial, certificate.sender), (9, sender_named("ops")));
        assert_eq!((certificate.not_before, certificate.not_after), (100, 200));
        assert_eq!(certificate.key().unwrap(), sender.public());
        let bases = [other.public(), base.public()];
        assert_eq!(SenderCertificate::open_any(&bytes, network, &bases).unwrap().1, 1);

        let refusal = |bytes: &[u8], network, bases: &[PublicKey]| {
            SenderCertificate::open_any(bytes, network, bases).unwrap_err()
        };
        assert_eq!(
            refusal(&bytes, NetworkId([0; 8]), &bases),
            SenderCertificateError::WrongNetwork
        );
        assert_eq!(
            refusal(&bytes, network, &bases[..1]),
            SenderCertificateError::UnknownBaseStation
        );
        assert_eq!(refusal(&bytes, network, &[]), SenderCertificateError::UnknownBaseStation);
        // A different base station signs a certificate that names this one.
        let (public, sender_key) = (base.public(), sender.public());
        let draft = SenderCertificateDraft {
            network,
            base: KeyId::of(&public),
            serial: 9,
            sender: sender_named("ops"),
            key: &sender_key,
            not_before: 0,
            not_after: u64::MAX,
        };
        let mut out = [0; MAX_SENDER_CERTIFICATE];
        let forged = draft.issue(&other, &mut out).unwrap();
        assert_eq!(
            refusal(forged, network, &bases),
            SenderCertificateError::Signature(SignatureError::NotAuthentic)
        );
        let another =
            if suite == Algorithm::Ed25519 { Algorithm::Esp256 } else { Algorithm::Ed25519 };
        let forged = draft.issue(&key(another, 2), &mut out).unwrap();
        assert_eq!(refusal(forged, network, &bases), SenderCertificateError::AlgorithmMismatch);
    }
}

#[test]
fn rejects_every_flipped_bit_of_a_certificate_or_revocation() {
    let base = key(Algorithm::Ed25519, 1);
    let (bases, network) = ([base.public()], NetworkId::of(&base.public()));
    let certificate = certified(&base, network, &key(Algorithm::Ed25519, 3).public(), 200);
    let revocation = revoked(&base, network, 3);
    assert!(SenderCertificate::open_any(&certificate, network, &bases).is_ok());
    assert!(Revocation::open(&revocation, network, &bases).is_ok());
    for (bytes, is_certificate) in [(certificate, true), (revocation, false)] {
        for bit in 0..bytes.len() * 8 {
            let mut forged = bytes.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            let is_open = match is_certificate {
                true => SenderCertificate::open_any(&forged, network, &bases).is_ok(),
                false => Revocation::open(&forged, network, &bases).is_ok(),
            };
            assert!(!is_open, "bit {bit}");
        }
    }
}

#[test]
fn a_certificate_is_valid_from_its_first_second_until_its_end() {
    let base = key(Algorithm::Ed25519, 1);
    let network = NetworkId::of(&base.public());
    let bytes = certified(&base, network, &base.public(), 200);
    let certificate = SenderCertificate::open(&bytes, network, &base.public()).unwrap();
    let at = |now, minimum| certificate.check(now, &Revoked::below(minimum));
    assert_eq!(at(Some(99), 0), Err(NotInForce::NotYetValid));
    assert_eq!(at(Some(100), 0), Ok(()));
    assert_eq!(at(Some(199), 0), Ok(()));
    assert_eq!(at(Some(200), 0), Err(NotInForce::Expired));
    // Without a clock, only the revocation is checked.
    assert_eq!(at(None, 0), Ok(()));
    assert_eq!(at(None, 9), Ok(()));
    assert_eq!(at(None, 10), Err(NotInForce::Revoked));
    assert_eq!(at(Some(150), 10), Err(NotInForce::Revoked));

    let endless = certified(&base, network, &base.public(), u64::MAX);
    let endless = SenderCertificate::open(&endless, network, &base.public()).unwrap();
    assert_eq!(endless.check(Some(u64::MAX), &Revoked::NONE), Ok(()));
}

/// Returns a signed certificate with these fields, valid or not.
fn raw_certificate(base: &SecretKey, serial: u64, not_before: u64, not_after: u64) -> Vec<u8> {
    let (mut header, mut payload, mut scratch, mut out) = ([0; 40], [0; 200], [0; 400], [0; 400]);
    let mut writer = Writer::new(&mut payload);
    writer.array(9).unwrap().uint(1_u8).unwrap().bytes(&NetworkId::of(&base.public()).0).unwrap();
    writer
        .bytes(&KeyId::of(&base.public()).0)
        .unwrap()
        .uint(serial)
        .unwrap()
        .bytes(&sender_named("ops").0)
        .unwrap();
    writer
        .int(-19)
        .unwrap()
        .bytes(&base.public().to_bytes())
        .unwrap()
        .uint(not_before)
        .unwrap()
        .uint(not_after)
        .unwrap();
    let payload = writer.finish();
    let mut writer = Writer::new(&mut header);
    Protected::new(Algorithm::Ed25519, Typ::SenderCertificate).encode(&mut writer).unwrap();
    let header = writer.finish();
    let signature = base.signature(sig_structure(&mut scratch, header, payload).unwrap()).unwrap();
    let mut writer = Writer::new(&mut out);
    Sign1::encode(&mut writer, header, payload, &signature).unwrap();
    writer.finish().to_vec()
}

#[test]
fn rejects_a_certificate_that_is_never_valid_or_irrevocable() {
    let base = key(Algorithm::Ed25519, 1);
    let (public, network) = (base.public(), NetworkId::of(&base.public()));
    for (serial, not_before, not_after, is_one) in [
        (u64::MAX - 1, 100, 101, true),
        (u64::MAX, 100, 101, false),
        (0, 100, 100, false),
        (0, 101, 100, false),
        (0, u64::MAX - 1, u64::MAX, true),
        (0, u64::MAX, u64::MAX, false),
    ] {
        let draft = SenderCertificateDraft {
            network,
            base: KeyId::of(&public),
            serial,
            sender: sender_named("ops"),
            key: &public,
            not_before,
            not_after,
        };
        let raw = raw_certificate(&base, serial, not_before, not_after);
        let mut out = [0; MAX_SENDER_CERTIFICATE];
        match draft.issue(&base, &mut out) {
            Ok(bytes) => assert_eq!((bytes, is_one), (&raw[..], true)),
            Err(error) => assert_eq!((error, is_one), (IssueError::FieldOutOfRange, false)),
        }
        let refused = SenderCertificate::open(&raw, network, &public).map(|_| ());
        let expected = if is_one {
            Ok(())
        } else {
            Err(SenderCertificateError::Decode(DecodeError::FieldOutOfRange))
        };
        assert_eq!(refused, expected, "{serial} {not_before} {not_after}");
    }
}

#[test]
fn a_revocation_applies_to_its_own_base_station_only() {
    let (base, other) = (key(Algorithm::Ed25519, 1), key(Algorithm::Esp256, 2));
    let (network, bases) = (NetworkId::of(&base.public()), [base.public(), other.public()]);
    for (place, signer) in [&base, &other].into_iter().enumerate() {
        let bytes = revoked(signer, network, 12);
        let (revocation, found) = Revocation::open(&bytes, network, &bases).unwrap();
        assert_eq!(
            (*revocation.revoked(), revocation.base(), found),
            (Revoked::below(12), KeyId::of(&signer.public()), place)
        );
        assert_eq!(
            Revocation::peek(&bytes).unwrap(),
            (KeyId::of(&signer.public()), Revoked::below(12))
        );
    }
    let bytes = revoked(&other, network, 12);
    assert_eq!(
        Revocation::open(&bytes, network, &bases[..1]).unwrap_err(),
        SenderCertificateError::UnknownBaseStation
    );
    assert_eq!(
        Revocation::open(&bytes, NetworkId([0; 8]), &bases).unwrap_err(),
        SenderCertificateError::WrongNetwork
    );
    let draft = RevocationDraft { network, base: &base.public(), revoked: Revoked::below(12) };
    let mut out = [0; MAX_REVOCATION];
    let forged = draft.issue(&key(Algorithm::Ed25519, 5), &mut out).unwrap();
    let refused = Revocation::open(forged, network, &bases).unwrap_err();
    assert_eq!(refused, SenderCertificateError::Signature(SignatureError::NotAuthentic));
}

/// A signature for one kind of object must not be valid for another kind.
#[test]
fn does_not_accept_one_kind_of_signed_object_as_another() {
    let base = key(Algorithm::Ed25519, 1);
    let (public, network) = (base.public(), NetworkId::of(&base.public()));
    let request = SenderRequestDraft { sender: sender_named("ops"), key: &public }
        .issue(&base, &mut [0; MAX_REQUEST])
        .unwrap()
        .to_vec();
    let (certificate, revocation) =
        (certified(&base, network, &public, 200), revoked(&base, network, 1));
    let wrong = SenderCertificateError::Decode(DecodeError::WrongType);
    assert_eq!(SenderRequest::open(&certificate).unwrap_err(), wrong);
    assert_eq!(SenderRequest::open(&revocation).unwrap_err(), wrong);
    for bytes in [&request, &revocation] {
        assert_eq!(SenderCertificate::open(bytes, network, &public).unwrap_err(), wrong);
    }
    for bytes in [&request, &certificate] {
        assert_eq!(
            Revocation::open(bytes, network, std::slice::from_ref(&public)).unwrap_err(),
            wrong
        );
    }
}

fn signed_single(signer: &SecretKey, label: &str, message: &[u8]) -> Result<Vec<u8>, SealError> {
    let id =
        ChainId { network: NetworkId([1; 8]), sender: sender_named("ops"), number: ChainNumber(4) };
    let draft = SingleDraft {
        id,
        kind: Kind::QuerySchedule,
        label,
        window: Window::ALWAYS,
        previous: None,
        message,
    };
    Ok(draft.seal(signer, &mut [0; MAX_SINGLE], &mut [0; MAX_SINGLE])?.to_vec())
}

#[test]
fn opens_a_chain_of_one_message() {
    for &suite in SUITES {
        let signer = key(suite, 1);
        for message in [&[][..], b"close valve 3", &[7; MAX_MESSAGE]] {
            let frame = signed_single(&signer, "valves", message).unwrap();
            let mut scratch = [0; MAX_SINGLE];
            let mut open = |network, sender| {
                open_single(&frame, network, sender, &signer.public(), &mut scratch)
            };
            let found = open(NetworkId([1; 8]), sender_named("ops")).unwrap();
            assert_eq!(
                (found.message(), found.label(), found.outline().kind),
                (message, "valves", Kind::QuerySchedule)
            );
            assert_eq!(
                (found.id().number, found.id().sender),
                (ChainNumber(4), sender_named("ops"))
            );
            let refused = open(NetworkId([2; 8]), sender_named("ops")).unwrap_err();
            assert_eq!(refused, SingleError::Head(HeadError::WrongNetwork));
            assert_eq!(
                open(NetworkId([1; 8]), DeviceId([0; 8])).unwrap_err(),
                SingleError::Head(HeadError::WrongSender)
            );
        }
        assert!(signed_single(&signer, "", &[7; MAX_MESSAGE + 1]).is_err());
    }
}

#[test]
fn rejects_every_flipped_bit_of_a_chain_of_one() {
    let signer = key(Algorithm::Ed25519, 1);
    let frame = signed_single(&signer, "", b"close valve 3").unwrap();
    let mut scratch = [0; MAX_SINGLE];
    for bit in 0..frame.len() * 8 {
        let mut forged = frame.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let refused = open_single(
            &forged,
            NetworkId([1; 8]),
            sender_named("ops"),
            &signer.public(),
            &mut scratch,
        )
        .unwrap_err();
        // The message is the frame's last 13 bytes.
        if bit / 8 >= frame.len() - 13 {
            assert_eq!(refused, SingleError::Leaf(LeafError::ForgedLeaf));
        }
    }
    let (head, leaf) = match BroadcastFrame::decode(&frame).unwrap() {
        BroadcastFrame::Single { head, leaf } => (head, leaf),
        _ => unreachable!("the frame is a chain of one message"),
    };
    let mut out = [0; MAX_BROADCAST_FRAME];
    for other in [
        BroadcastFrame::Head(head),
        BroadcastFrame::Fragment { chain: ChainRef([0; 8]), block: 1, index: 0, leaf },
    ] {
        let mut writer = Writer::new(&mut out);
        other.encode(&mut writer).unwrap();
        let refused = open_single(
            writer.finish(),
            NetworkId([1; 8]),
            sender_named("ops"),
            &signer.public(),
            &mut scratch,
        );
        assert_eq!(refused.unwrap_err(), SingleError::NotSingle);
    }
}

fn any_frame<'a>(
    kind: u8,
    chain: [u8; 8],
    block: u32,
    bits: u64,
    small: u8,
    bytes: &'a [u8],
    more: &'a [u8],
) -> BroadcastFrame<'a> {
    let (chain, index) = (ChainRef(chain), small % 64);
    let (key, tag, receiver) = (KeyId(chain.0), [small; 16], block % MAX_RECEIVERS);
    match kind % 13 {
        0 => BroadcastFrame::Certificate(bytes),
        1 => BroadcastFrame::Revocation(bytes),
        2 => BroadcastFrame::Head(bytes),
        3 => BroadcastFrame::Fragment { chain, block, index, leaf: bytes },
        4 => BroadcastFrame::Wanted { chain, block, wanted: bits },
        5 => BroadcastFrame::Holds { chain, block, index },
        6 => BroadcastFrame::Single { head: bytes, leaf: more },
        7 => {
            BroadcastFrame::Repair { chain, block, mask: bits.max(1), lengths: bits as u16, bytes }
        }
        8 => BroadcastFrame::Receipts { chain, receivers: bytes, tag },
        9 => BroadcastFrame::ReceiptsWanted { chain, most: block.max(1), receivers: bytes },
        10 => BroadcastFrame::HeadWanted { key, above: bits, receiver, tag },
        11 => BroadcastFrame::HeadFor { receiver, tag, head: bytes },
        _ => BroadcastFrame::ReceiverWanted {
            chain,
            block,
            wanted: bits,
            attempt: bits as u32,
            receiver,
            tag,
        },
    }
}

proptest! {
    #[test]
    fn reads_a_frame_as_written(
        kind: u8, chain: [u8; 8], block: u32, bits: u64, small: u8,
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        more in prop::collection::vec(any::<u8>(), 0..300),
        place: prop::sample::Index, value: u8,
    ) {
        let frame = any_frame(kind, chain, block, bits, small, &bytes, &more);
        let mut out = [0; MAX_BROADCAST_FRAME];
        let mut writer = Writer::new(&mut out);
        frame.encode(&mut writer).unwrap();
        let written = writer.finish().to_vec();
        prop_assert_eq!(BroadcastFrame::decode(&written), Ok(frame));
        prop_assert_eq!(BroadcastFrame::decode(&written[..written.len() - 1]), Err(DecodeError::Truncated));
        // A changed frame either cannot be decoded, or decodes and encodes to the same bytes.
        let mut damaged = written.clone();
        damaged[place.index(written.len())] = value;
        if let Ok(frame) = BroadcastFrame::decode(&damaged) {
            let mut writer = Writer::new(&mut out);
            frame.encode(&mut writer).unwrap();
            prop_assert_eq!(&writer.finish()[..], &damaged[..]);
        }
    }
}

#[test]
fn rejects_frames_of_unknown_kinds_or_with_invalid_indices() {
    let refusal = |bytes: &[u8]| BroadcastFrame::decode(bytes).unwrap_err();
    assert_eq!(refusal(&[0x82, 0x18, 31, 0x40]), DecodeError::UnknownItem);
    assert_eq!(refusal(&[0x82, 0x18, 40, 0x40]), DecodeError::UnknownItem);
    assert_eq!(refusal(&[0x83, 0x18, 32, 0x40, 0x40]), DecodeError::UnexpectedType);
    assert_eq!(
        refusal(&[0x84, 0x18, 37, 0x48, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x18, 64]),
        DecodeError::FieldOutOfRange
    );
    assert_eq!(refusal(&[0x84, 0x18, 37, 0x44, 0, 0, 0, 0, 1, 0]), DecodeError::UnexpectedType);
    assert_eq!(
        refusal(&[0x86, 0x18, 39, 0x48, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0x40]),
        DecodeError::FieldOutOfRange
    );
    assert_eq!(refusal(&[0x82, 0x18, 32, 0x40, 0]), DecodeError::TrailingBytes);
    assert!(BroadcastFrame::decode(&[0x82, 0x18, 32, 0x40]).is_ok());
    // The largest frames fit the documented maximum length.
    let (leaf, head) = (vec![0; MAX_LEAF], vec![0; MAX_HEAD]);
    let mut out = [0; MAX_BROADCAST_FRAME];
    assert!(
        BroadcastFrame::Single { head: &head, leaf: &leaf }
            .encode(&mut Writer::new(&mut out))
            .is_ok()
    );
    let largest = BroadcastFrame::Repair {
        chain: ChainRef([0; 8]),
        block: u32::MAX,
        mask: u64::MAX,
        lengths: u16::MAX,
        bytes: &leaf,
    };
    assert!(largest.encode(&mut Writer::new(&mut out)).is_ok());
}
