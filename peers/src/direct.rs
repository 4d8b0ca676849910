//! The cloud's work without HTTP, in this process: bundles are verified as an upload is, stored, and durable when it returns. Beside a
//! library that is called in process, this is what stands on the same footing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use moteseal_core::Digest;
use moteseal_core::record::{DeviceId, SealIndex};
use moteseal_core::seal::follow::Limits;
use moteseal_store::{EpochStore as _, Options, RedbStore};
use moteseal_verify::{Event, Roster, StreamReader};

use crate::load::Failed;

/// A store, and the roster that uploads are verified against.
pub(crate) struct Direct<'r> {
    roster: &'r Roster,
    store: RedbStore,
}

impl<'r> Direct<'r> {
    /// Over a new store, synced as the service's is.
    pub(crate) fn open(roster: &'r Roster, path: &Path) -> Result<Self, Failed> {
        Ok(Self { roster, store: RedbStore::open(path, Options::default())? })
    }

    /// Takes each uploader's bodies (bundles one behind the other), all uploaders at once, as [`upload`](crate::load::upload) sends
    /// them; how long it took.
    pub(crate) fn upload(&self, uploaders: &[Vec<Vec<u8>>]) -> Result<Duration, Failed> {
        let barrier = Barrier::new(uploaders.len() + 1);
        std::thread::scope(|scope| {
            let threads: Vec<_> = uploaders
                .iter()
                .map(|bodies| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        barrier.wait();
                        bodies.iter().try_for_each(|body| self.take(body))
                    })
                })
                .collect();
            barrier.wait();
            let start = Instant::now();
            for thread in threads {
                thread.join().map_err(|_| "an uploader panicked")??;
            }
            Ok(start.elapsed())
        })
    }

    /// Verifies every signature and digest of a body, and returns once all of it is durable.
    fn take(&self, body: &[u8]) -> Result<(), Failed> {
        let earlier: Mutex<BTreeMap<(DeviceId, SealIndex), Digest>> = Mutex::default();
        let known = |device, index| {
            let earlier = earlier.lock().unwrap_or_else(PoisonError::into_inner).get(&(device, index)).copied();
            earlier.or_else(|| match &self.store.seals_at(device, index).ok()?[..] {
                [only] => Some(only.key().digest),
                _ => None,
            })
        };
        let mut bundles = Vec::new();
        let mut visit = |event: Event<'_>| -> Result<(), Failed> {
            if let Event::Proven(proven) = event {
                let statement = proven.seal.statement();
                let place = (statement.device, statement.index);
                earlier.lock().unwrap_or_else(PoisonError::into_inner).insert(place, proven.seal.digest());
                bundles.push(moteseal_store::Bundle::from_proven(&proven)?);
            }
            Ok(())
        };
        let mut reader = StreamReader::new(self.roster, Limits::default()).with_known(Box::new(known));
        reader.feed(body, &mut visit)?;
        reader.finish(&mut visit)?;
        self.store.put(bundles)?;
        Ok(())
    }
}
