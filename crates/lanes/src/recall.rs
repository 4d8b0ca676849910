//! An engine with a cache of levels. Verifying a seal computes the levels of its events, and
//! reading the events afterwards needs the same levels. With the cache they are computed only once.
//!
//! The cache looks up a level by all values on which the level depends: the salt, the number of
//! levels and the sequence number. The results are therefore always those of [`Host`].

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use moteseal_core::record::Framing;
use moteseal_core::schema::GroupLayout;
use moteseal_core::{DeviceId, Digest, SealIndex, Sequence};
use moteseal_seal::engine::Engine;
use moteseal_seal::level::{Counters, Salt};
use moteseal_seal::star::Served;
use moteseal_seal::tree::MultiproofError;

use crate::Host;

/// The capacity in bytes, chosen to fit the cache of a processor core. A seal takes one byte per
/// event plus [`SEAL_OVERHEAD`] bytes. Seals that exceed the capacity are not cached.
const MOST: usize = 256 << 10;
/// The number of bytes that a seal takes in addition to its levels. It also limits the number of
/// cached seals, because a search may have to examine all of them.
const SEAL_OVERHEAD: usize = 64;

/// The loops of a [`Host`], with a cache of the levels of recent seals. Clones share the cache.
#[derive(Clone, Debug)]
pub struct Recall {
    host: Host,
    /// `None` for an engine without a cache.
    seals: Option<Arc<Mutex<Seals>>>,
}

#[derive(Debug, Default)]
struct Seals {
    /// The cached levels, in the order in which they were computed.
    counted: VecDeque<Counted>,
    /// The number of bytes that all cached seals take.
    bytes: usize,
    /// The index of the seal that was read last. The search starts there, because seals are read in
    /// the order in which they were computed.
    last: usize,
}

#[derive(Debug)]
struct Counted {
    salt: Salt,
    of: u8,
    /// The level of each event.
    levels: Vec<u8>,
}

impl Recall {
    /// Creates an engine with a cache and the fastest loops of this processor. Use it for a
    /// verifier that also reads the events that it has verified.
    #[must_use]
    pub fn detect() -> Self {
        Self { host: Host::detect(), seals: Some(Arc::default()) }
    }

    /// Returns the engine without the cache.
    #[must_use]
    pub const fn host(&self) -> Host {
        self.host
    }

    /// Computes the levels of `n` events and caches them. Several threads may call it at the same
    /// time.
    fn count(&self, seals: &Mutex<Seals>, salt: &Salt, of: u8, n: usize) -> Counters {
        let mut room = seals.lock().unwrap_or_else(PoisonError::into_inner).make_room(n);
        room.clear();
        room.resize(n, 0);
        self.host.levels(salt, of, 0, &mut room);
        let counters = self.host.histogram(&room, of);
        seals.lock().unwrap_or_else(PoisonError::into_inner).counted.push_back(Counted {
            salt: *salt,
            of,
            levels: room,
        });
        counters
    }
}

impl From<Host> for Recall {
    /// Creates an engine without a cache.
    fn from(host: Host) -> Self {
        Self { host, seals: None }
    }
}

impl Seals {
    /// Removes the oldest seals until there is room for a seal of `n` events, and reserves this
    /// room. Returns the memory of a removed seal for reuse.
    fn make_room(&mut self, n: usize) -> Vec<u8> {
        let mut room = Vec::new();
        while self.bytes + n + SEAL_OVERHEAD > MOST {
            let Some(oldest) = self.counted.pop_front() else { break };
            self.bytes -= oldest.levels.len() + SEAL_OVERHEAD;
            self.last = self.last.saturating_sub(1);
            room = oldest.levels;
        }
        self.bytes += n + SEAL_OVERHEAD;
        room
    }

    /// Copies the levels of the events from `first` on to `out`, if they are cached. Returns
    /// whether they were.
    fn recall(&mut self, salt: &Salt, of: u8, first: u64, out: &mut [u8]) -> bool {
        let Ok(first) = usize::try_from(first) else { return false };
        let seals = self.counted.len();
        for seal in (self.last..seals).chain(0..self.last.min(seals)) {
            let counted = &self.counted[seal];
            if counted.salt == *salt && counted.of == of {
                let levels = counted.levels.get(first..).and_then(|levels| levels.get(..out.len()));
                return levels.is_some_and(|levels| {
                    out.copy_from_slice(levels);
                    self.last = seal;
                    true
                });
            }
        }
        false
    }
}

impl Engine for Recall {
    fn levels(&self, salt: &Salt, levels: u8, first: u64, out: &mut [u8]) {
        if let Some(seals) = &self.seals
            && seals.lock().unwrap_or_else(PoisonError::into_inner).recall(salt, levels, first, out)
        {
            return;
        }
        self.host.levels(salt, levels, first, out);
    }

    fn counters(&self, salt: &Salt, levels: u8, n: u32) -> Counters {
        match self.seals.as_deref() {
            Some(seals) if n > 0 && n as usize + SEAL_OVERHEAD <= MOST => {
                self.count(seals, salt, levels, n as usize)
            }
            _ => self.host.counters(salt, levels, n),
        }
    }

    fn block_digests(
        &self,
        device: DeviceId,
        index: SealIndex,
        blocks: &[&[u8]],
        out: &mut [Digest],
    ) {
        self.host.block_digests(device, index, blocks, out);
    }

    fn star_roots<'s, 'a: 's>(&self, stars: &mut dyn Iterator<Item = &'s mut Served<'a>>) {
        self.host.star_roots(stars);
    }

    fn grouped_digests(
        &self,
        layout: &GroupLayout,
        framing: Framing,
        hidden: &[u8],
        star: &mut Served<'_>,
    ) {
        self.host.grouped_digests(layout, framing, hidden, star);
    }

    fn leaves(&self, size: usize, records: &[u8], out: &mut [Digest]) {
        self.host.leaves(size, records, out);
    }

    fn multiproof_root(
        &self,
        n: u64,
        framing: Framing,
        records: &[u8],
        selected: &mut dyn Iterator<Item = Sequence>,
        siblings: &[u8],
    ) -> Result<Digest, MultiproofError> {
        self.host.multiproof_root(n, framing, records, selected, siblings)
    }

    fn nodes(&self, children: &[Digest], out: &mut [Digest]) {
        self.host.nodes(children, out);
    }
}
