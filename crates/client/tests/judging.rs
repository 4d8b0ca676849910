//! What is missing, contradicted or withheld is said by name: with and without a memory.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use moteseal_client::{Memory, Standing};
use moteseal_core::record::EpochNumber;
use moteseal_core::sample::Choice;
use support::{EPOCH, Group, Sealed, everything, nowhere};

const ALL: u32 = u32::MAX;

/// Five epochs of one mote, 20 events each.
fn five() -> (Group, Vec<Sealed>) {
    let group = Group::new();
    let mut position = group.start("mote-1");
    let records: Vec<Vec<u8>> = (0..20).map(|value| vec![value]).collect();
    let sealed = (0..5).map(|epoch| group.seal("mote-1", &mut position, EPOCH + epoch, &["a:V:u8"], &records)).collect();
    (group, sealed)
}

fn whole(group: &Group, sealed: &[Sealed]) -> Vec<u8> {
    group.answer(&sealed.iter().map(|sealed| (sealed, ALL)).collect::<Vec<_>>())
}

#[test]
fn a_withheld_tail_is_unknown_and_missing_past_what_is_remembered() {
    let (group, sealed) = five();
    let to_newest = || group.query(&["mote-1"], None, everything());
    let cut = whole(&group, &sealed[..3]);
    let report = group.judge(to_newest(), None, &cut, &mut nowhere()).unwrap();
    assert!(report.is_complete(), "no end was asked for");
    assert_eq!(report.devices[0].complete_until(), EpochNumber(EPOCH + 3));
    let ranged = group.query(&["mote-1"], Some(EPOCH + 5), everything());
    let report = group.judge(ranged.clone(), None, &cut, &mut nowhere()).unwrap();
    assert_eq!(report.devices[0].standing, Standing::TailUnknown { from: EpochNumber(EPOCH + 3) });
    assert!(!report.is_complete());

    let mut memory = Memory::new();
    group.judge(to_newest(), Some(&mut memory), &whole(&group, &sealed), &mut nowhere()).unwrap();
    for query in [to_newest(), ranged] {
        assert_eq!(group.judge(query, Some(&mut memory), &cut, &mut nowhere()).unwrap_err(), "Missing");
    }
    // An old answer does not make the memory older, and a range that ends before the newest seal is complete.
    let early = group.query(&["mote-1"], Some(EPOCH + 2), everything());
    let report = group.judge(early, Some(&mut memory), &group.answer(&[(&sealed[0], ALL), (&sealed[1], ALL)]), &mut nowhere());
    assert!(report.unwrap().is_complete());
    assert_eq!(group.judge(to_newest(), Some(&mut memory), &cut, &mut nowhere()).unwrap_err(), "Missing");
}

#[test]
fn a_withheld_device_is_unknown_and_missing_where_remembered() {
    let (group, sealed) = five();
    let query = group.query(&["mote-1", "mote-2"], None, everything());
    let report = group.judge(query.clone(), None, &whole(&group, &[]), &mut nowhere()).unwrap();
    assert_eq!(report.devices.len(), 2);
    assert!(!report.is_complete() && report.devices.iter().all(|device| device.seals == 0));
    let mut memory = Memory::new();
    group.judge(query.clone(), Some(&mut memory), &whole(&group, &sealed), &mut nowhere()).unwrap();
    assert_eq!(group.judge(query, Some(&mut memory), &whole(&group, &[]), &mut nowhere()).unwrap_err(), "Missing");
}

#[test]
fn two_histories_of_one_device_are_an_equivocation() {
    let (group, sealed) = five();
    // The same device goes on from its second seal with another third one.
    let mut position = sealed[1].seal.position();
    let fork = |epoch: u64, position: &mut _| group.seal("mote-1", position, EPOCH + epoch, &["a:V:u8"], &[vec![99]]);
    let (third, fourth) = (fork(2, &mut position), fork(3, &mut position));
    let query = || group.query(&["mote-1"], None, everything());
    let mut memory = Memory::new();
    group.judge(query(), Some(&mut memory), &whole(&group, &sealed[..3]), &mut nowhere()).unwrap();
    let forked = [sealed[0].clone(), sealed[1].clone(), third.clone(), fourth.clone()];
    let answer = whole(&group, &forked);
    assert_eq!(group.judge(query(), Some(&mut memory), &answer, &mut nowhere()).unwrap_err(), "Equivocation");
    assert!(group.judge(query(), None, &answer, &mut nowhere()).is_ok(), "without a memory nothing contradicts it");
    // Both within one answer: a fourth seal that names another third.
    let both = [sealed[0].clone(), sealed[1].clone(), sealed[2].clone(), fourth];
    assert_eq!(group.judge(query(), None, &whole(&group, &both), &mut nowhere()).unwrap_err(), "Equivocation");
    let twice = [sealed[0].clone(), sealed[1].clone(), sealed[2].clone(), third];
    assert_eq!(group.judge(query(), None, &whole(&group, &twice), &mut nowhere()).unwrap_err(), "Equivocation");
}

#[test]
fn seals_left_out_repeated_or_unasked_are_named() {
    let (group, sealed) = five();
    let query = |choice| group.query(&["mote-1"], Some(EPOCH + 4), choice);
    let judge = |parts: &[(&Sealed, u32)]| {
        let judged = group.judge(query(everything()), None, &group.answer(parts), &mut nowhere());
        judged.map(|report| report.rows())
    };
    let [a, b, c, d, e] = &sealed[..] else { panic!("five") };
    assert_eq!(judge(&[(a, ALL), (b, ALL), (c, ALL), (d, ALL)]), Ok(80));
    assert_eq!(judge(&[(a, ALL), (c, ALL)]).unwrap_err(), "Missing");
    assert_eq!(judge(&[(b, ALL), (c, ALL)]).unwrap_err(), "Missing");
    assert_eq!(judge(&[(a, ALL), (a, ALL)]).unwrap_err(), "NotAsAsked");
    assert_eq!(judge(&[(a, ALL), (b, ALL), (a, ALL)]).unwrap_err(), "NotAsAsked");
    assert_eq!(judge(&[(a, ALL), (b, ALL), (c, ALL), (d, ALL), (e, 0)]).unwrap_err(), "NotAsAsked");
    assert_eq!(judge(&[(a, 0xfe), (b, ALL)]).unwrap_err(), "NotAsAsked");
    // The seal behind the range comes without events.
    let shorter = group.query(&["mote-1"], Some(EPOCH + 1), everything());
    assert_eq!(group.judge(shorter, None, &group.answer(&[(a, ALL), (b, 1)]), &mut nowhere()).unwrap_err(), "NotAsAsked");
    // What the choice leaves is judged an epoch at a time.
    let counters = sealed[0].seal.statement().counters;
    let fits = moteseal_core::sample::choice::EpochCounts::new(support::LEVELS);
    let mut fits = fits;
    fits.add(sealed[0].seal.statement());
    let mask = fits.at_most(6);
    let rows: u32 = moteseal_core::sample::choice::selected_count(&counters, mask);
    let one = group.query(&["mote-1"], Some(EPOCH + 1), Choice::AtMost(6));
    let report = group.judge(one.clone(), None, &group.answer(&[(a, mask)]), &mut nowhere()).unwrap();
    assert_eq!(report.rows(), u64::from(rows));
    assert_eq!(group.judge(one, None, &group.answer(&[(a, mask >> 1 << 2)]), &mut nowhere()).unwrap_err(), "NotAsAsked");
}

#[test]
fn an_answer_ends_with_its_end_and_nothing_behind_it() {
    let (group, sealed) = five();
    let query = || group.query(&["mote-1"], None, everything());
    let answer = whole(&group, &sealed);
    for cut in 0..answer.len() {
        let judged = group.judge(query(), None, &answer[..cut], &mut nowhere());
        assert!(["Truncated", "Unsigned"].contains(&judged.unwrap_err().as_str()), "cut at {cut}");
    }
    let doubled = [&answer[..], &answer[..]].concat();
    assert_eq!(group.judge(query(), None, &doubled, &mut nowhere()).unwrap_err(), "TrailingBytes");
}
