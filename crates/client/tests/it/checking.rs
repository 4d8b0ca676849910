//! Missing, contradicting and withheld seals are reported with the name of the error, with and
//! without pinned seals.

use crate::support::{EPOCH, Group, Sealed, everything, nowhere};
use moteseal_client::{Error, PinnedSeals, Session, Standing};
use moteseal_core::record::EpochNumber;
use moteseal_seal::sample::Choice;
use moteseal_seal::stream::{Item, Open, Selection};
use moteseal_verify::write;

const ALL: u32 = u32::MAX;

/// Returns five epochs of one mote with 20 events each.
fn five() -> (Group, Vec<Sealed>) {
    let group = Group::new();
    let mut position = group.start("mote-1");
    let records: Vec<Vec<u8>> = (0..20).map(|value| vec![value]).collect();
    let sealed = (0..5)
        .map(|epoch| group.seal("mote-1", &mut position, EPOCH + epoch, &["a:V:u8"], &records))
        .collect();
    (group, sealed)
}

fn whole(group: &Group, sealed: &[Sealed]) -> Vec<u8> {
    group.answer(&sealed.iter().map(|sealed| (sealed, ALL)).collect::<Vec<_>>())
}

#[test]
fn a_withheld_tail_is_unknown_and_missing_before_a_pinned_seal() {
    let (group, sealed) = five();
    let to_newest = || group.query(&["mote-1"], None, everything());
    let cut = whole(&group, &sealed[..3]);
    let report = group.verify(to_newest(), None, &cut, &mut nowhere()).unwrap();
    assert!(report.is_complete(), "the query has no end");
    assert_eq!(report.devices[0].complete_until(), EpochNumber(EPOCH + 3));
    let ranged = group.query(&["mote-1"], Some(EPOCH + 5), everything());
    let report = group.verify(ranged.clone(), None, &cut, &mut nowhere()).unwrap();
    assert_eq!(report.devices[0].standing, Standing::TailUnknown { from: EpochNumber(EPOCH + 3) });
    assert!(!report.is_complete());

    let mut pinned = PinnedSeals::new();
    group.verify(to_newest(), Some(&mut pinned), &whole(&group, &sealed), &mut nowhere()).unwrap();
    for query in [to_newest(), ranged] {
        assert_eq!(
            group.verify(query, Some(&mut pinned), &cut, &mut nowhere()).unwrap_err(),
            "Missing"
        );
    }
    // An older answer does not replace the pinned seals. A range that ends before the newest pinned
    // seal is complete without this seal.
    let early = group.query(&["mote-1"], Some(EPOCH + 2), everything());
    let report = group.verify(
        early,
        Some(&mut pinned),
        &group.answer(&[(&sealed[0], ALL), (&sealed[1], ALL)]),
        &mut nowhere(),
    );
    assert!(report.unwrap().is_complete());
    assert_eq!(
        group.verify(to_newest(), Some(&mut pinned), &cut, &mut nowhere()).unwrap_err(),
        "Missing"
    );
}

#[test]
fn a_withheld_device_is_unknown_and_missing_if_a_seal_is_pinned() {
    let (group, sealed) = five();
    let query = group.query(&["mote-1", "mote-2"], None, everything());
    let report = group.verify(query.clone(), None, &whole(&group, &[]), &mut nowhere()).unwrap();
    assert_eq!(report.devices.len(), 2);
    assert!(!report.is_complete() && report.devices.iter().all(|device| device.seals == 0));
    let mut pinned = PinnedSeals::new();
    group
        .verify(query.clone(), Some(&mut pinned), &whole(&group, &sealed), &mut nowhere())
        .unwrap();
    assert_eq!(
        group.verify(query, Some(&mut pinned), &whole(&group, &[]), &mut nowhere()).unwrap_err(),
        "Missing"
    );
}

#[test]
fn two_histories_of_one_device_are_an_equivocation() {
    let (group, sealed) = five();
    // After its second seal, the device also continues with a different third seal.
    let mut position = sealed[1].seal.position();
    let fork = |epoch: u64, position: &mut _| {
        group.seal("mote-1", position, EPOCH + epoch, &["a:V:u8"], &[vec![99]])
    };
    let (third, fourth) = (fork(2, &mut position), fork(3, &mut position));
    let query = || group.query(&["mote-1"], None, everything());
    let mut pinned = PinnedSeals::new();
    group.verify(query(), Some(&mut pinned), &whole(&group, &sealed[..3]), &mut nowhere()).unwrap();
    let forked = [sealed[0].clone(), sealed[1].clone(), third.clone(), fourth.clone()];
    let answer = whole(&group, &forked);
    assert_eq!(
        group.verify(query(), Some(&mut pinned), &answer, &mut nowhere()).unwrap_err(),
        "Equivocation"
    );
    assert!(
        group.verify(query(), None, &answer, &mut nowhere()).is_ok(),
        "without pinned seals, nothing contradicts the answer"
    );
    // One answer has seals of both histories: the fourth seal names a different third seal as its
    // predecessor.
    let both = [sealed[0].clone(), sealed[1].clone(), sealed[2].clone(), fourth];
    assert_eq!(
        group.verify(query(), None, &whole(&group, &both), &mut nowhere()).unwrap_err(),
        "Equivocation"
    );
    let twice = [sealed[0].clone(), sealed[1].clone(), sealed[2].clone(), third];
    assert_eq!(
        group.verify(query(), None, &whole(&group, &twice), &mut nowhere()).unwrap_err(),
        "Equivocation"
    );
}

#[test]
fn rejects_seals_that_are_left_out_repeated_or_not_requested() {
    let (group, sealed) = five();
    let query = |choice| group.query(&["mote-1"], Some(EPOCH + 4), choice);
    let verify = |parts: &[(&Sealed, u32)]| {
        let verified =
            group.verify(query(everything()), None, &group.answer(parts), &mut nowhere());
        verified.map(|report| report.rows())
    };
    let [a, b, c, d, e] = &sealed[..] else { panic!("five") };
    assert_eq!(verify(&[(a, ALL), (b, ALL), (c, ALL), (d, ALL)]), Ok(80));
    assert_eq!(verify(&[(a, ALL), (c, ALL)]).unwrap_err(), "Missing");
    assert_eq!(verify(&[(b, ALL), (c, ALL)]).unwrap_err(), "Missing");
    assert_eq!(verify(&[(a, ALL), (a, ALL)]).unwrap_err(), "NotAsAsked");
    assert_eq!(verify(&[(a, ALL), (b, ALL), (a, ALL)]).unwrap_err(), "NotAsAsked");
    assert_eq!(
        verify(&[(a, ALL), (b, ALL), (c, ALL), (d, ALL), (e, 0)]).unwrap_err(),
        "NotAsAsked"
    );
    assert_eq!(verify(&[(a, 0xfe), (b, ALL)]).unwrap_err(), "NotAsAsked");
    // The first seal after the range must have no events.
    let shorter = group.query(&["mote-1"], Some(EPOCH + 1), everything());
    assert_eq!(
        group
            .verify(shorter, None, &group.answer(&[(a, ALL), (b, 1)]), &mut nowhere())
            .unwrap_err(),
        "NotAsAsked"
    );
    // The selection is checked for each epoch.
    let counters = sealed[0].seal.statement().counters;
    let fits = moteseal_seal::sample::choice::EpochCounts::new(crate::support::LEVELS);
    let mut fits = fits;
    fits.add(sealed[0].seal.statement());
    let mask = fits.at_most(6);
    let rows: u32 = moteseal_seal::sample::choice::selected_count(&counters, mask);
    let one = group.query(&["mote-1"], Some(EPOCH + 1), Choice::AtMost(6));
    let report =
        group.verify(one.clone(), None, &group.answer(&[(a, mask)]), &mut nowhere()).unwrap();
    assert_eq!(report.rows(), u64::from(rows));
    assert_eq!(
        group.verify(one, None, &group.answer(&[(a, mask >> 1 << 2)]), &mut nowhere()).unwrap_err(),
        "NotAsAsked"
    );
}

/// Returns the levels that *at most* requires if the epoch has exactly these parts.
fn at_most(parts: &[Sealed], most: u64) -> u32 {
    let mut counts = moteseal_seal::sample::choice::EpochCounts::new(crate::support::LEVELS);
    parts.iter().for_each(|part| counts.add(part.seal.statement()));
    counts.at_most(most)
}

#[test]
fn an_epoch_whose_last_part_is_withheld_gives_no_sample() {
    const MOST: u64 = 30;
    let group = Group::new();
    let mut position = group.start("mote-1");
    let records: Vec<Vec<u8>> = (0..40).map(|value| vec![value]).collect();
    let first = group.seal("mote-1", &mut position, EPOCH, &["a:V:u8"], &records);
    let mut part =
        |last| group.seal_part("mote-1", &mut position, (EPOCH + 1, last), &["a:V:u8"], &records);
    let parts = [part(false), part(false), part(false), part(true)];
    let after = group.seal("mote-1", &mut position, EPOCH + 2, &["a:V:u8"], &records);
    let masks: Vec<u32> = (1..=4).map(|shown| at_most(&parts[..shown], MOST)).collect();
    assert!(
        masks.windows(2).any(|pair| pair[0] != pair[1]),
        "the selection depends on the number of parts: {masks:?}"
    );
    let alone = at_most(std::slice::from_ref(&first), MOST);
    let epoch_before = u64::from(moteseal_seal::sample::choice::selected_count(
        &first.seal.statement().counters,
        alone,
    ));

    let to_newest = || group.query(&["mote-1"], None, Choice::AtMost(MOST));
    let ranged = || group.query(&["mote-1"], Some(EPOCH + 2), Choice::AtMost(MOST));
    for shown in 1..4 {
        let mut served = vec![(&first, alone)];
        served.extend(parts[..shown].iter().map(|part| (part, masks[shown - 1])));
        for (query, complete) in [(to_newest(), true), (ranged(), false)] {
            let report = group.verify(query, None, &group.answer(&served), &mut nowhere()).unwrap();
            assert_eq!(
                report.devices[0].standing,
                Standing::TailUnknown { from: EpochNumber(EPOCH + 1) }
            );
            assert_eq!(
                (report.rows(), report.seals(), report.events()),
                (epoch_before, 1, 40),
                "{shown} parts served"
            );
            assert_eq!(report.is_complete(), complete);
        }
        // A query whose range starts with the incomplete epoch returns no rows.
        let only = group.query(&["mote-1"], None, Choice::AtMost(MOST));
        let only = moteseal_api::Query { since: EpochNumber(EPOCH + 1), ..only };
        let report = group.verify(only, None, &group.answer(&served[1..]), &mut nowhere()).unwrap();
        assert_eq!((report.rows(), report.is_complete()), (0, false));
        // A seal of a later epoch does not make the epoch complete, because this seal names a
        // predecessor that was left out.
        let mut around = served.clone();
        around.push((&after, 0));
        assert_eq!(
            group.verify(ranged(), None, &group.answer(&around), &mut nowhere()).unwrap_err(),
            "Missing"
        );
        // The selection of a rate does not depend on the other parts of the epoch.
        let parts: Vec<(&Sealed, u32)> = served.iter().map(|(part, _)| (*part, ALL)).collect();
        let report = group
            .verify(
                group.query(&["mote-1"], None, everything()),
                None,
                &group.answer(&parts),
                &mut nowhere(),
            )
            .unwrap();
        assert_eq!(report.rows(), 40 * (shown as u64 + 1));
    }
    let mut whole = vec![(&first, alone)];
    whole.extend(parts.iter().map(|part| (part, masks[3])));
    for query in [to_newest(), ranged()] {
        let report = group.verify(query, None, &group.answer(&whole), &mut nowhere()).unwrap();
        assert!(
            report.is_complete() && report.seals() == 5 && report.rows() <= epoch_before + MOST
        );
        assert_eq!(report.devices[0].complete_until(), EpochNumber(EPOCH + 2));
    }
}

#[test]
fn an_epoch_without_a_last_part_is_complete_once_a_later_epoch_follows() {
    let group = Group::new();
    let mut position = group.start("mote-1");
    let records: Vec<Vec<u8>> = (0..40).map(|value| vec![value]).collect();
    let open = group.seal_part("mote-1", &mut position, (EPOCH, false), &["a:V:u8"], &records);
    let after = group.seal_part("mote-1", &mut position, (EPOCH + 1, false), &["a:V:u8"], &records);
    let mask = at_most(std::slice::from_ref(&open), 20);
    let ask = |until, parts: &[(&Sealed, u32)]| {
        let query = group.query(&["mote-1"], until, Choice::AtMost(20));
        group.verify(query, None, &group.answer(parts), &mut nowhere()).unwrap()
    };
    assert_eq!(ask(None, &[(&open, mask)]).rows(), 0);
    let followed = ask(Some(EPOCH + 1), &[(&open, mask), (&after, 0)]);
    assert!(followed.is_complete() && followed.rows() > 0 && followed.seals() == 1);
    // The epoch of the second seal is also incomplete, so the query returns no rows of it.
    let both = ask(None, &[(&open, mask), (&after, at_most(std::slice::from_ref(&after), 20))]);
    assert_eq!((both.rows(), both.seals(), both.is_complete()), (followed.rows(), 1, true));
}

#[test]
fn rejects_a_part_after_the_last_part_of_its_epoch() {
    let group = Group::new();
    let mut position = group.start("mote-1");
    let records: Vec<Vec<u8>> = (0..4).map(|value| vec![value]).collect();
    let parts: Vec<Sealed> =
        (0..2).map(|_| group.seal("mote-1", &mut position, EPOCH, &["a:V:u8"], &records)).collect();
    let query = group.query(&["mote-1"], None, Choice::AtMost(100));
    assert_eq!(
        group.verify(query, None, &whole(&group, &parts), &mut nowhere()).unwrap_err(),
        "EpochClosed"
    );
}

#[test]
fn rejects_a_truncated_answer_and_bytes_after_the_end() {
    let (group, sealed) = five();
    let query = || group.query(&["mote-1"], None, everything());
    let answer = whole(&group, &sealed);
    for cut in 0..answer.len() {
        let verified = group.verify(query(), None, &answer[..cut], &mut nowhere());
        assert!(
            ["Truncated", "Unsigned"].contains(&verified.unwrap_err().as_str()),
            "cut at {cut}"
        );
    }
    let doubled = [&answer[..], &answer[..]].concat();
    assert_eq!(group.verify(query(), None, &doubled, &mut nowhere()).unwrap_err(), "TrailingBytes");
}

/// Finding F1 of the review. Whatever follows the end item is unsigned, also a schema and an open
/// item, which the verification of no part needs.
#[test]
fn rejects_a_schema_and_an_open_item_after_the_end() {
    let (group, sealed) = five();
    let answer = whole(&group, &sealed);
    let mut schema = Vec::new();
    write::schema(&mut schema, &sealed[0].schema);
    let statement = sealed[0].seal.statement();
    let mut open = Vec::new();
    let prev = Some(statement.prev);
    write::open(
        &mut open,
        &Open { device: statement.device, roster_version: 0, prev, last: statement.last },
    );
    for tail in [&schema[..], &open, &[schema.clone(), open.clone()].concat(), &[0xff], &[0x82]] {
        let longer = [&answer, tail].concat();
        let query = group.query(&["mote-1"], None, everything());
        assert_eq!(
            group.verify(query, None, &longer, &mut nowhere()).unwrap_err(),
            "TrailingBytes"
        );
        // The same for a proof, whole and byte by byte.
        let mut proof = Vec::new();
        write::proof(&mut proof, &group.query(&["mote-1"], None, everything()).to_json());
        proof.extend(&longer);
        for size in [1, proof.len()] {
            let mut session = Session::of_proof(&group.roster, None);
            let refused =
                proof.chunks(size).find_map(|piece| session.feed(piece, &mut nowhere()).err());
            assert_eq!(Error::from(refused.unwrap()).name(), "TrailingBytes");
        }
    }
}

/// Finding F4 of the review. A part of a run is checked before the item after it, although its
/// signature has not arrived.
#[test]
fn an_error_of_an_unproven_part_precedes_that_of_the_next_item() {
    let (group, sealed) = five();
    let part = |signed: bool| {
        let mut out = Vec::new();
        let signature = [0; 64];
        let seal = &sealed[0].seal;
        let root = write::star_evidence(seal, &sealed[0].blocks, 0);
        let signature = signed.then_some(&signature[..]);
        write::part(&mut out, seal, Selection::Levels(0), &root, &[], signature);
        out
    };
    let head = |answer: &[u8]| {
        let (_, schema) = Item::decode(answer).unwrap();
        let (_, open) = Item::decode(&answer[schema..]).unwrap();
        (answer[..schema].to_vec(), answer[schema..schema + open].to_vec())
    };
    let (schema, open) = head(&whole(&group, &sealed[..1]));
    let (mut explanation, mut problem) = (Vec::new(), Vec::new());
    write::explain(&mut explanation, &[], &[]);
    write::problem(&mut problem, "StoreFailed", "the disk");
    for (item, own) in [(&explanation, "NotAsAsked"), (&problem, "StoreFailed")] {
        for (pieces, expected) in
            [(vec![&schema], "NoOpen"), (vec![&open], "SchemaUnknown"), (vec![&schema, &open], own)]
        {
            let start = pieces.into_iter().flatten().copied().collect::<Vec<u8>>();
            let answer = [&start[..], &part(false), item].concat();
            let query = group.query(&["mote-1"], None, everything());
            assert_eq!(group.verify(query, None, &answer, &mut nowhere()).unwrap_err(), expected);
        }
    }
}

/// Finding F4 of the review. The end item ends the checks of every device of the query, before
/// anything after it is read.
#[test]
fn a_missing_seal_precedes_bytes_after_the_end() {
    let (group, sealed) = five();
    let mut pinned = PinnedSeals::new();
    let query = || group.query(&["mote-1"], None, everything());
    group.verify(query(), Some(&mut pinned), &whole(&group, &sealed), &mut nowhere()).unwrap();
    for shown in [0, 3] {
        let answer = [&whole(&group, &sealed[..shown])[..], &[0]].concat();
        assert_eq!(
            group.verify(query(), Some(&mut pinned), &answer, &mut nowhere()).unwrap_err(),
            "Missing"
        );
    }
}
