//! Tests of what a base station has revoked. A set of serials gives the expected results.

use std::collections::BTreeSet;

use moteseal_broadcast::{MAX_REVOKED, MAX_REVOKED_BYTES, RevokeError, Revoked};
use proptest::prelude::*;

/// A change of what is revoked.
#[derive(Clone, Debug)]
enum Change {
    Serial(u64),
    Below(u64),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![4 => (0..24_u64).prop_map(Change::Serial), 1 => (0..24_u64).prop_map(Change::Below)]
}

proptest! {
    #[test]
    fn revokes_exactly_what_was_added_and_never_less(changes in prop::collection::vec(change(), 0..40)) {
        let (mut revoked, mut expected) = (Revoked::NONE, BTreeSet::new());
        for change in changes {
            let before = revoked;
            match change {
                Change::Below(minimum) => {
                    revoked = revoked.and_below(minimum);
                    expected.extend(0..minimum);
                }
                Change::Serial(serial) => match revoked.and(serial) {
                    Ok(next) => {
                        revoked = next;
                        expected.insert(serial);
                    }
                    Err(error) => {
                        prop_assert_eq!(error, RevokeError::TooManySerials);
                        prop_assert_eq!(revoked.serials().len(), MAX_REVOKED);
                    }
                },
            }
            for serial in 0..30 {
                prop_assert_eq!(revoked.contains(serial), expected.contains(&serial));
            }
            // Equal sets have equal representations, and the earlier value is covered.
            prop_assert_eq!(revoked.minimum(), (0..).find(|serial| !expected.contains(serial)).unwrap());
            prop_assert!(revoked.covers(&before));
            prop_assert_eq!(before.covers(&revoked), before == revoked);
            let mut out = [0; MAX_REVOKED_BYTES];
            prop_assert_eq!(Revoked::decode(revoked.encode(&mut out)), Ok(revoked));
        }
    }
}

#[test]
fn a_minimum_makes_room_when_the_list_is_full() {
    let full = (0..8).fold(Revoked::NONE, |revoked, serial| revoked.and(2 * serial + 3).unwrap());
    assert_eq!(full.and(100), Err(RevokeError::TooManySerials));
    assert_eq!(full.and(u64::MAX), Err(RevokeError::NoSuchSerial));
    let raised = full.and_below(5);
    assert_eq!((raised.minimum(), raised.serials().len()), (6, 6));
    assert!(raised.covers(&full) && raised.and(100).unwrap().contains(100));
    assert!(!full.covers(&raised));
}
