//! The promises of a store about urgent events.

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};

use super::{Mote, Open};
use crate::epochs::Receipt;
use crate::urgent::{StoredUrgent, UrgentLimits, UrgentPage, UrgentPlace};

const ALL: UrgentLimits = UrgentLimits { read: 100, events: 100, bytes: 1 << 20 };

fn keys(events: &[StoredUrgent]) -> Vec<Digest> {
    events.iter().map(|event| event.key().digest).collect()
}

fn found(page: &UrgentPage) -> Vec<Digest> {
    page.events.iter().map(|(key, _)| key.digest).collect()
}

/// Events are returned in the order in which they were stored, each once. Both events for one place
/// are kept and reported. A place that the store does not have leads to its first event.
#[allow(clippy::expect_used, clippy::cast_possible_truncation)]
pub(super) fn events_are_kept_in_their_order(open: Open<'_>) {
    let (first, second) = (Mote::new("urgent 1", false), Mote::new("urgent 2", false));
    let mut events = vec![
        first.urgent(0, 7, 3, 1),
        second.urgent(9, 5, 0, 2),
        first.urgent(0, 7, 1, 3),
        first.urgent(u32::MAX, u64::MAX, u64::from(u32::MAX), 4),
    ];
    let twin = first.urgent(0, 7, 3, 99);
    let everything = |_: DeviceId, _: EpochNumber| true;
    {
        let store = open("urgent");
        assert_eq!(store.urgent(None, ALL, &everything), Ok(UrgentPage::default()));
        assert_eq!(store.urgent_bytes(first.device()), Ok(0));
        let put = |events: &[StoredUrgent]| {
            store.put_urgent(events.to_vec()).expect("the store accepts events")
        };
        assert_eq!(put(&events[..1]), Receipt { stored: 1, ..Receipt::default() });
        assert_eq!(put(&events), Receipt { stored: 3, known: 1, ..Receipt::default() });
        let doubled_events = vec![(first.device(), SealIndex(0), Sequence(3))];
        let twin = std::slice::from_ref(&twin);
        let expected = Receipt { stored: 1, doubled_events, ..Receipt::default() };
        assert_eq!(put(twin), expected);
        // A receipt may be lost, so the next one states the conflict, too.
        assert_eq!(put(twin), Receipt { stored: 0, known: 1, ..expected.clone() });
        assert_eq!(put(&events), Receipt { stored: 0, known: 4, ..expected });
    }
    events.push(twin);
    let store = open("urgent");
    let at = |seq, limit| {
        let place = (first.device(), SealIndex(0), Sequence(seq));
        store.urgent_at(place, limit).expect("the events for a place")
    };
    let mut both = [&events[0], &events[4]].map(|event| (event.key(), event.bytes().to_vec()));
    both.sort();
    assert_eq!((at(3, 10), at(3, 1)), (both.to_vec(), both[..1].to_vec()));
    assert_eq!((at(1, 10).len(), at(2, 10).len()), (1, 0));
    let page =
        |after: Option<UrgentPlace>, limits, select: &dyn Fn(DeviceId, EpochNumber) -> bool| {
            store.urgent(after, limits, select).expect("a page")
        };
    let all = page(None, ALL, &everything);
    assert_eq!((found(&all), all.has_more), (keys(&events), false));
    assert!(
        all.events
            .iter()
            .zip(&events)
            .all(|((key, bytes), event)| { *key == event.key() && bytes == event.bytes() })
    );
    let of_second = page(None, ALL, &|device, _| device == second.device());
    assert_eq!((found(&of_second), of_second.last), (keys(&events[1..2]), all.last));
    let late = page(None, ALL, &|_, epoch| epoch.0 > 7);
    assert_eq!(found(&late), keys(&events[3..4]));
    // Each limit ends a page, and the next page continues after it.
    for limits in [
        UrgentLimits { read: 2, ..ALL },
        UrgentLimits { events: 2, ..ALL },
        UrgentLimits { bytes: 300, ..ALL },
    ] {
        let (mut after, mut read) = (None, Vec::new());
        loop {
            let next = page(after, limits, &everything);
            assert!(next.events.len() <= 2, "{limits:?}");
            read.extend(found(&next));
            after = next.last.or(after);
            if !next.has_more {
                break;
            }
        }
        assert_eq!(read, keys(&events), "{limits:?}");
    }
    let place = |number: u64, digest| Some(UrgentPlace { number, digest });
    let digests = keys(&events);
    assert_eq!(found(&page(place(4, digests[3]), ALL, &everything)), digests[4..]);
    assert!(page(place(5, digests[4]), ALL, &everything).events.is_empty());
    for unknown in [place(4, digests[0]), place(6, digests[4]), place(0, digests[0])] {
        assert_eq!(found(&page(unknown, ALL, &everything)), digests, "{unknown:?}");
    }
    let bytes = |mote: &Mote| {
        let of = events.iter().filter(|event| event.key().device == mote.device());
        of.map(|event| event.bytes().len() as u64).sum::<u64>()
    };
    for mote in [&first, &second] {
        assert_eq!(store.urgent_bytes(mote.device()), Ok(bytes(mote)));
    }
    let schema = store.schema(&events[0].schema().digest).expect("the schema is read");
    assert_eq!(schema.as_ref(), Some(&events[0].schema().bytes));
}
