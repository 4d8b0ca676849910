//! Does the cloud's work within this process, without HTTP: verifies bundles as in an upload,
//! stores them, and returns when they are durable. This allows a fair comparison with a library
//! that is called within a process.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Barrier, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use moteseal_core::Digest;
use moteseal_core::record::{DeviceId, SealIndex};
use moteseal_seal::follow::Limits;
use moteseal_store::{Bundle, EpochStore as _, Options, PutError, Receipt, RedbStore};
use moteseal_verify::{Event, Roster, StreamReader};

use crate::load::Failed;

/// The maximum number of batches that an uploader has submitted and that are not durable yet. A
/// caller of a library need not wait for each batch.
const IN_FLIGHT: usize = 64;

type Stored = mpsc::Receiver<Result<Receipt, PutError>>;

/// A store, and the roster with which uploads are verified.
pub(crate) struct Direct<'r> {
    roster: &'r Roster,
    store: RedbStore,
}

impl<'r> Direct<'r> {
    /// Opens a new store that syncs in the same cases as the service.
    pub(crate) fn open(roster: &'r Roster, path: &Path) -> Result<Self, Failed> {
        Ok(Self { roster, store: RedbStore::open(path, Options::default())? })
    }

    /// Verifies and stores the bodies of each uploader, all uploaders at once. A body consists of
    /// concatenated bundles. Returns the time until the last body is durable.
    pub(crate) fn upload(&self, uploaders: Vec<Vec<Vec<u8>>>) -> Result<Duration, Failed> {
        at_once(uploaders, |bodies| {
            let known = Mutex::default();
            self.store_all(bodies.into_iter().map(|body| self.verified(&body, &known)))
        })
    }

    /// Measures storing alone: verifies all bundles first, and returns the time of storing them.
    pub(crate) fn store(&self, uploaders: Vec<Vec<Vec<u8>>>) -> Result<Duration, Failed> {
        let verified = uploaders.iter().map(|bodies| {
            let known = Mutex::default();
            bodies.iter().map(|body| self.verified(body, &known)).collect::<Result<Vec<_>, _>>()
        });
        at_once(verified.collect::<Result<Vec<_>, _>>()?, |batches| {
            self.store_all(batches.into_iter().map(Ok))
        })
    }

    /// Submits batches and returns once all of them are durable.
    fn store_all(
        &self,
        batches: impl Iterator<Item = Result<Vec<Bundle>, Failed>>,
    ) -> Result<(), Failed> {
        let mut waiting: VecDeque<Stored> = VecDeque::new();
        for batch in batches {
            let (reply, stored) = mpsc::sync_channel(1);
            self.store.submit(
                batch?,
                Box::new(move |result| {
                    let _ = reply.send(result);
                }),
            )?;
            waiting.push_back(stored);
            if waiting.len() == IN_FLIGHT
                && let Some(oldest) = waiting.pop_front()
            {
                oldest.recv()??;
            }
        }
        waiting.into_iter().try_for_each(|stored| Ok(stored.recv()?.map(drop)?))
    }

    /// Verifies every signature and digest of a body. `known` contains the seals of earlier bodies.
    fn verified(&self, body: &[u8], known: &Mutex<Known>) -> Result<Vec<Bundle>, Failed> {
        let of_place = |device, index| {
            let earlier =
                known.lock().unwrap_or_else(PoisonError::into_inner).get(&(device, index)).copied();
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
                known
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(place, proven.seal.digest());
                bundles.push(Bundle::from_proven(&proven)?);
            }
            Ok(())
        };
        let mut reader =
            StreamReader::new(self.roster, Limits::default()).with_known(Box::new(of_place));
        reader.feed(body, &mut visit)?;
        reader.finish(&mut visit)?;
        Ok(bundles)
    }
}

/// The digests of seals by device and index.
type Known = BTreeMap<(DeviceId, SealIndex), Digest>;

/// Runs `work` for each uploader on a separate thread, all at once. Returns the elapsed time.
fn at_once<T: Send>(
    uploaders: Vec<T>,
    work: impl Fn(T) -> Result<(), Failed> + Sync,
) -> Result<Duration, Failed> {
    let barrier = Barrier::new(uploaders.len() + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = uploaders
            .into_iter()
            .map(|uploader| {
                let (barrier, work) = (&barrier, &work);
                scope.spawn(move || {
                    barrier.wait();
                    work(uploader)
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
