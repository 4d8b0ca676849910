//! Fuzzes the stored and transmitted data of private sums: participants, frames, query schedules
//! and key files. Data that decodes must have exactly one encoding, and only signed bytes may open
//! as a query schedule.

use moteseal_core::Digest;
use moteseal_core::link::{LinkKey, MAX_FRAME};
use moteseal_core::participation::{Participation, max_size};
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_sum::QuerierName;
use moteseal_sum::key_file::{Circle, MAX_KEY_FILE, Masked, QuerierKeys, SourceKeys};
use moteseal_sum::policy::{MAX_COLUMNS, Policy};
use moteseal_sum::schedule::{self, MAX_QUERY_SCHEDULE, Posed, QuerySchedule, QueryScheduleDraft};
use moteseal_sum::sies::Psr;
use moteseal_sum::wire::{Children, Explain, SumUplink, close_share};

use crate::fixture;
use crate::link::{SECRET, framed};

const SOURCES: u32 = 5000;
const ROSTER: Digest = Digest([9; 32]);

/// Decodes the bytes as each kind of object.
pub fn run(bytes: &[u8]) {
    participants(bytes);
    if let Ok(policy) = Policy::decode(bytes) {
        assert_eq!(policy.payload(), bytes);
        policy.for_each_querier(|terms| assert!(terms.columns.len() <= MAX_COLUMNS));
    }
    let key = LinkKey::new(&SECRET);
    let mut out = vec![0; MAX_FRAME + 64];
    let frame = framed(b"up", bytes);
    match SumUplink::open(&frame, &key) {
        Ok(SumUplink::Share(share)) => {
            if let Ok(psrs) = share.psrs.iter().collect::<Result<Vec<Psr>, _>>() {
                let again = close_share(
                    share.query,
                    share.epoch,
                    share.participation,
                    &psrs,
                    &key,
                    &mut out,
                )
                .expect("it has fitted before");
                assert_eq!(again, frame, "two encodings of one share");
            }
        }
        Ok(SumUplink::Children(children)) => {
            assert_eq!(
                children.relay(&key, &mut out).expect("it has fitted before"),
                frame,
                "two encodings of one answer"
            );
            assert!(children.shares().count() <= bytes.len());
        }
        Ok(SumUplink::Refusal(refusal)) => {
            let again = refusal.close(&key, &mut out).expect("it has fitted before");
            assert_eq!(again, frame, "two encodings of one refusal");
        }
        Err(_) => {}
    }
    let frame = framed(b"down", bytes);
    if let Ok(explain) = Explain::open(&frame, &key) {
        assert_eq!(
            explain.close(&key, &mut out).expect("it has fitted before"),
            frame,
            "two encodings of one question"
        );
    }
    let querier = fixture::operator().public();
    let is_ours = || schedule() == bytes;
    let mut scratch = vec![0; bytes.len() + 64];
    if let Ok(opened) = schedule::receive(bytes, GroupId::of("home"), &querier, &mut scratch) {
        assert!(
            is_ours() && QuerySchedule::open(&opened, GroupId::of("home"), &ROSTER).is_ok(),
            "a schedule that was never signed"
        );
    }
    if let Ok(keys) = SourceKeys::decode(bytes) {
        assert!(keys.position < keys.circle.sources && keys.circle.key_group > 0);
        assert!(keys.encode(&mut [0; MAX_KEY_FILE]).is_ok());
    }
    let _ = QuerierKeys::decode(bytes);
}

fn participants(bytes: &[u8]) {
    let Ok(read) = Participation::decode(bytes, SOURCES) else { return };
    let mut words = vec![0_u64; SOURCES.div_ceil(64) as usize];
    let mut end = 0;
    for run in read.runs() {
        assert!(run.start >= end && run.start < run.end && run.end <= SOURCES);
        end = run.end;
        run.for_each(|at| words[at as usize / 64] |= 1 << (at % 64));
    }
    assert_eq!(words.iter().map(|word| word.count_ones()).sum::<u32>(), read.count());
    let mut out = vec![0; max_size(SOURCES)];
    let length = Participation::encode(&words, &mut out).expect("any set fits");
    assert_eq!(&out[..length], bytes, "two encodings of one set");
}

fn schedule() -> Vec<u8> {
    let plan = crate::query::seeds().pop().unwrap_or_default();
    let queries = [Posed { nonce: [3; 16], first: 5, until: 9, plan: &plan }];
    let draft = QueryScheduleDraft {
        group: GroupId::of("home"),
        roster: ROSTER,
        number: 7,
        sources: SOURCES,
        key_group: 100,
        queries: &queries,
    };
    let (mut scratch, mut out) = (vec![0; MAX_QUERY_SCHEDULE], vec![0; MAX_QUERY_SCHEDULE]);
    draft.issue(&fixture::operator(), &mut scratch, &mut out).unwrap().to_vec()
}

/// Returns one seed for each kind of object.
pub fn seeds() -> Vec<Vec<u8>> {
    let key = LinkKey::new(&SECRET);
    let mut out = vec![0; MAX_FRAME];
    let item = |frame: &[u8]| frame[..frame.len() - 16].to_vec();
    let mut set = vec![0; max_size(SOURCES)];
    let length =
        Participation::encode(&[0xffff, u64::MAX, 0x5555_5555_5555_5555], &mut set).unwrap();
    let share =
        item(close_share(1, 70_000, &set[..length], &[Psr::ZERO; 3], &key, &mut out).unwrap());
    let explain = Explain { query: 1, epoch: 70_000, node: DeviceId(*b"gateway1"), first: 0 };
    let children = [(DeviceId(*b"mote0001"), &set[..length], &[Psr::ZERO; 2][..])];
    let answer = item(Children::close(&explain, &children, &key, &mut out).unwrap());
    let question = item(explain.close(&key, &mut out).unwrap());
    let circle =
        Circle { group: GroupId::of("home"), roster: ROSTER, sources: SOURCES, key_group: 100 };
    let mut pem = [0; MAX_KEY_FILE];
    let masked = Masked::new(|| [0..1, 2..67].into_iter()).unwrap();
    let mut files = |name: &str, masked: Option<&Masked>| {
        let of = (&QuerierName::new(name).unwrap(), &fixture::operator().public());
        let querier = QuerierKeys::encode(&circle, of, &[7; 32], masked, &mut pem).unwrap();
        let querier = querier.as_bytes().to_vec();
        let source = QuerierKeys::decode(&querier).unwrap().source(DeviceId(*b"mote0001"), 3);
        [querier, source.encode(&mut pem).unwrap().as_bytes().to_vec()]
    };
    let ([querier, source], [further, its_source]) =
        (files("querier", None), files("alerts", Some(&masked)));
    vec![
        further,
        its_source,
        set[..length].to_vec(),
        vec![6, 2, 0, 9],
        share,
        answer,
        question,
        schedule(),
        querier,
        source,
    ]
}
