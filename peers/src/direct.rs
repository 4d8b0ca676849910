//! The cloud's work without HTTP, in this process: bundles are verified as an upload is, stored, and durable when it returns. Beside a
//! library that is called in process, this is what stands on the same footing.

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

/// Batches that an uploader has handed in and that are not durable yet, at most: a library's caller need not wait for each.
const IN_FLIGHT: usize = 64;

type Stored = mpsc::Receiver<Result<Receipt, PutError>>;

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

    /// Verifies and stores each uploader's bodies (bundles one behind the other), all uploaders at once; how long it took until the last
    /// was durable.
    pub(crate) fn upload(&self, uploaders: Vec<Vec<Vec<u8>>>) -> Result<Duration, Failed> {
        at_once(uploaders, |bodies| {
            let known = Mutex::default();
            self.store_all(bodies.into_iter().map(|body| self.verified(&body, &known)))
        })
    }

    /// The same of bundles that were verified before: what storing alone takes.
    pub(crate) fn store(&self, uploaders: Vec<Vec<Vec<u8>>>) -> Result<Duration, Failed> {
        let verified = uploaders.iter().map(|bodies| {
            let known = Mutex::default();
            bodies.iter().map(|body| self.verified(body, &known)).collect::<Result<Vec<_>, _>>()
        });
        at_once(verified.collect::<Result<Vec<_>, _>>()?, |batches| {
            self.store_all(batches.into_iter().map(Ok))
        })
    }

    /// Hands in batches, and returns once all of them are durable.
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

    /// Verifies every signature and digest of a body. `known` are the seals of the bodies before it.
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

/// The digests of seals.
type Known = BTreeMap<(DeviceId, SealIndex), Digest>;

/// Does what each uploader has to do on a thread of its own, all at once; how long it took.
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
