//! Tests manifests of firmware images: only the exact bytes that the base station signed for the
//! network are accepted.

use moteseal_broadcast::firmware::{
    FirmwareDraft, FirmwareManifest, ImageTagError, UPDATE_PART, UpdateError, UpdateReport,
    find_tag, image_tag, manifest_in,
};
use moteseal_broadcast::{KeyId, SenderCertificateError};
use moteseal_core::cbor::DecodeError;
use moteseal_core::identity::IssueError;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, SecretKey};

const NETWORK: NetworkId = NetworkId([13; 8]);

fn key(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

fn draft(board: &str) -> FirmwareDraft<'_> {
    let base = KeyId::of(&key(14).public());
    FirmwareDraft { network: NETWORK, base, board, version: 7, length: 70_000, digest: [5; 32] }
}

#[test]
fn opens_what_the_base_station_has_signed() {
    let part = draft("mps2-an385").issue_part(&key(14)).unwrap();
    let manifest = FirmwareManifest::open_part(&part, NETWORK, &key(14).public()).unwrap();
    assert_eq!((manifest.board, manifest.version), ("mps2-an385", 7));
    assert_eq!((manifest.length, manifest.digest), (70_000, [5; 32]));
    // The longest board name fits into the part.
    assert!(draft(&"b".repeat(32)).issue_part(&key(14)).is_ok());
}

#[test]
fn refuses_every_changed_byte_and_length() {
    let part = draft("mps2-an385").issue_part(&key(14)).unwrap();
    for at in 0..UPDATE_PART {
        let mut changed = part;
        changed[at] ^= 1;
        let opened = FirmwareManifest::open_part(&changed, NETWORK, &key(14).public());
        assert!(opened.is_err(), "byte {at}");
    }
    for length in 0..UPDATE_PART {
        assert_eq!(manifest_in(&part[..length]), Err(DecodeError::FieldOutOfRange));
    }
}

#[test]
fn refuses_other_networks_base_stations_and_signers() {
    let (base, other) = (key(14).public(), key(15).public());
    let part = draft("mps2-an385").issue_part(&key(14)).unwrap();
    let open = |part: &[u8], network, base| FirmwareManifest::open_part(part, network, base).err();
    let wrong_network = Some(SenderCertificateError::WrongNetwork);
    assert_eq!(open(&part, NetworkId([14; 8]), &base), wrong_network);
    let unknown = Some(SenderCertificateError::UnknownBaseStation);
    assert_eq!(open(&part, NETWORK, &other), unknown);
    let by_another = draft("mps2-an385").issue_part(&key(15)).unwrap();
    let error = open(&by_another, NETWORK, &base).unwrap();
    assert!(matches!(error, SenderCertificateError::Signature(_)), "{error:?}");
}

#[test]
fn signs_no_field_that_readers_refuse() {
    let issue = |draft: FirmwareDraft<'_>| draft.issue_part(&key(14)).err();
    let refused = Some(IssueError::FieldOutOfRange);
    for board in ["", "two words", "gr\u{fc}n", &"b".repeat(33)] {
        assert_eq!(issue(draft(board)), refused, "{board:?}");
    }
    assert_eq!(issue(FirmwareDraft { version: 0, ..draft("b") }), refused);
    assert_eq!(issue(FirmwareDraft { length: 0, ..draft("b") }), refused);
}

#[test]
fn reports_have_one_form_each() {
    let reports = [
        UpdateReport::Running(1),
        UpdateReport::Received(u32::MAX),
        UpdateReport::Installing(3),
        UpdateReport::Trying(4),
        UpdateReport::Confirmed(5),
    ];
    let refused = UpdateError::ALL.map(|error| UpdateReport::Refused(6, error));
    for report in reports.into_iter().chain(refused) {
        assert_eq!(UpdateReport::decode(&report.encode()), Ok(report));
    }
    for bytes in [
        &[6, 0, 0, 0, 0, 1][..],
        &[0, 1, 0, 0, 0, 1],
        &[5, 0, 0, 0, 0, 1],
        &[5, 10, 0, 0, 0, 1],
        &[0; 5],
        &[0; 7],
    ] {
        assert_eq!(UpdateReport::decode(bytes), Err(DecodeError::FieldOutOfRange), "{bytes:?}");
    }
}

#[test]
fn finds_the_one_tag_of_an_image() {
    let (tag, other) = (image_tag("mps2-an385", 7), image_tag("lm3s6965evb", 8));
    let image = [&[0; 100][..], &tag, &[1; 33]].concat();
    assert_eq!(find_tag(&image), Ok(("mps2-an385", 7)));
    let longest = "b".repeat(32);
    assert_eq!(find_tag(&image_tag(&longest, 1)), Ok((longest.as_str(), 1)));
    assert_eq!(find_tag(&image[..140]), Err(ImageTagError::NoImageTag));
    let refused = Err(ImageTagError::BadImageTag);
    assert_eq!(find_tag(&[&image[..], &other].concat()), refused);
    assert_eq!(find_tag(&image_tag("", 7)), refused);
    assert_eq!(find_tag(&image_tag("mps2-an385", 0)), refused);
    assert_eq!(find_tag(&image_tag("two words", 7)), refused);
}
