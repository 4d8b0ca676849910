//! Writes what a cloud stores into a backup.

use std::collections::{BTreeSet, HashMap};

use futures_util::stream::{self, StreamExt as _};
use moteseal_api::summary::{BLOCK, BlockSummary, Fingerprint, Summary};
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_core::roster::{Directory as _, NoKey};
use moteseal_net::NetError;
use moteseal_net::replica::{BlockWalk, BlocksOf, DeviceWalk, ListedSeal, Replica, bundle_of};
use moteseal_verify::{Roster, urgent, write};

use super::index::{Block, Events, Index, Object};
use super::place::{Place, object};
use super::{BackupError, Findings, content};

/// The number of bundles that are requested at the same time.
const AT_ONCE: usize = 4;
/// The maximum number of seals in the listing of a block.
const MOST_LISTED: usize = 1 << 13;
/// The maximum number of answers with urgent events without a new event.
const USELESS: u32 = 1 << 10;

/// What an export did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// The number of seals in the backup.
    pub seals: u64,
    /// The number of manifests in the backup.
    pub manifests: u64,
    /// The number of urgent events in the backup.
    pub events: u64,
    /// The number of objects that were written.
    pub written: u64,
    /// The bytes of these objects.
    pub bytes: u64,
    /// The number of objects of an earlier export that are used again.
    pub reused: u64,
    /// The number of objects that were removed, because nothing uses them any more.
    pub removed: u64,
    /// The number of seals that were left out because the roster has ended their key.
    pub void: u64,
    /// What does not verify, and is therefore not in the backup.
    pub refused: Findings,
}

/// Writes what the cloud of `replica` stores into `place`. `progress` is called with the number of
/// seals that are done and of all seals.
///
/// # Errors
/// [`BackupError`]. The last complete backup of the place is not affected.
pub async fn export(
    replica: &Replica,
    roster: &Roster,
    place: &Place,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Exported, BackupError> {
    let replica = &replica.clone().fresh();
    let summary = replica.summary(None).await?;
    if summary.group != roster.group().to_string() {
        let whose = replica.client().base().to_owned();
        return Err(BackupError::OtherGroup { whose, group: summary.group });
    }
    let before = Index::read(place).await?.filter(|index| index.group == summary.group);
    let mut before = before.unwrap_or_else(|| Index::new(roster));
    let mut export = Export {
        replica,
        roster,
        place,
        exported: Exported::default(),
        index: Index::new(roster),
        done: 0,
        total: summary.seals.count,
        progress,
        before: HashMap::new(),
        names: place.list().await?.into_iter().collect(),
    };
    // An outdated roster may have accepted what the current one does not.
    let is_same_roster = before.roster_digest == export.index.roster_digest;
    for block in std::mem::take(&mut before.seals).into_iter().chain(before.manifests) {
        if is_same_roster {
            export.before.insert((block.device.clone(), block.first), block);
        }
    }
    export.manifests().await?;
    export.seals().await?;
    let events = if is_same_roster { before.events } else { Events::default() };
    export.events(events, &summary).await?;
    export.finish().await
}

struct Export<'e> {
    replica: &'e Replica,
    roster: &'e Roster,
    place: &'e Place,
    exported: Exported,
    index: Index,
    done: u64,
    total: u64,
    progress: &'e mut dyn FnMut(u64, u64),
    /// The blocks of the last backup.
    before: HashMap<(Option<String>, u64), Block>,
    /// The objects that exist.
    names: BTreeSet<String>,
}

impl Export<'_> {
    /// Returns the block of the last backup, if the cloud states the same fingerprint and the
    /// objects exist.
    fn unchanged(&mut self, device: Option<DeviceId>, block: &BlockSummary) -> Option<Block> {
        let key = (device.map(|device| device.to_string()), block.first);
        let before = self.before.remove(&key)?;
        let has = |of: &Object| self.names.contains(&object(&of.name));
        let is_same = before.stated == block.entries && before.objects.iter().all(has);
        self.exported.reused += if is_same { before.objects.len() as u64 } else { 0 };
        is_same.then_some(before)
    }

    /// Returns a block whose only object an export wrote that did not finish. The name of an object
    /// follows from what the block contains, and the content is verified again.
    async fn resumed(
        &mut self,
        device: Option<DeviceId>,
        block: &BlockSummary,
    ) -> Result<Option<Block>, BackupError> {
        let kind = device.map_or("manifests".to_owned(), |device| format!("seals-{device}"));
        let name = format!("{kind}-{}-{}", block.first, short(&block.entries));
        if !self.names.contains(&object(&name)) {
            return Ok(None);
        }
        let bytes = self.place.read(&object(&name), content::MOST_OBJECT).await?;
        let Some(bytes) = bytes else { return Ok(None) };
        let entries: Option<Vec<Fingerprint>> = if device.is_some() {
            let seals = content::seals(self.roster, &bytes).ok();
            seals.map(|seals| seals.iter().map(content::fingerprint).collect())
        } else {
            let entry = |bytes| content::manifest(self.roster, bytes).ok().map(|(_, entry)| entry);
            content::manifests(&bytes).and_then(|all| all.into_iter().map(entry).collect())
        };
        let sum: Fingerprint = entries.unwrap_or_default().iter().sum();
        if sum != block.entries {
            return Ok(None);
        }
        let mut kept = Block::empty(device, block);
        kept.entries = sum;
        kept.objects.push(Object::of(name, &bytes));
        self.exported.reused += 1;
        Ok(Some(kept))
    }

    /// Writes an object, unless it exists with the same content.
    async fn write(&mut self, name: String, bytes: Vec<u8>) -> Result<Object, BackupError> {
        let of = Object::of(name, &bytes);
        let path = object(&of.name);
        if self.names.contains(&path) && of.read(self.place).await.is_ok() {
            self.exported.reused += 1;
            return Ok(of);
        }
        self.exported.written += 1;
        self.exported.bytes += of.length;
        self.place.write(&path, bytes).await?;
        self.names.insert(path);
        Ok(of)
    }

    async fn manifests(&mut self) -> Result<(), BackupError> {
        let mut walk = BlockWalk::new(BlocksOf::Manifests);
        while let Some(blocks) = walk.next(self.replica).await? {
            for block in blocks {
                let kept = match self.unchanged(None, &block) {
                    Some(kept) => kept,
                    None => self.manifests_of(&block).await?,
                };
                self.exported.manifests += kept.entries.count;
                self.index.manifests.push(kept);
            }
        }
        Ok(())
    }

    async fn manifests_of(&mut self, block: &BlockSummary) -> Result<Block, BackupError> {
        if let Some(kept) = self.resumed(None, block).await? {
            return Ok(kept);
        }
        let (since, until) = (block.first, block.first.checked_add(BLOCK));
        let mut arriving =
            self.replica.manifests(EpochNumber(since), until.map(EpochNumber)).await?;
        let mut kept = Block::empty(None, block);
        let mut part = Part::default();
        while let Some(bytes) = arriving.next().await? {
            match content::manifest(self.roster, &bytes) {
                Ok((epoch, entry)) if epoch >= since && until.is_none_or(|until| epoch < until) => {
                    if part.bytes.len() >= content::FULL {
                        self.end_part(&mut kept, &mut part, "manifests").await?;
                    }
                    write::manifest(&mut part.bytes, &bytes);
                    part.add(&entry);
                }
                Ok(_) => self.exported.refused.add("NotAsAsked", "a manifest of another epoch"),
                Err(name) => {
                    let what = format!("a manifest of the epochs from {since} on");
                    self.exported.refused.add(name, what);
                }
            }
        }
        self.end_part(&mut kept, &mut part, "manifests").await?;
        Ok(kept)
    }

    async fn seals(&mut self) -> Result<(), BackupError> {
        let mut walk = DeviceWalk::default();
        while let Some(devices) = walk.next(self.replica).await? {
            for entry in devices {
                if self.roster.device(entry.device).is_none() {
                    let what = format!("device {}", entry.device);
                    self.exported.refused.add("UnknownDevice", what);
                    continue;
                }
                let mut walk = BlockWalk::new(BlocksOf::Seals(entry.device));
                while let Some(blocks) = walk.next(self.replica).await? {
                    for block in blocks {
                        let kept = match self.unchanged(Some(entry.device), &block) {
                            Some(kept) => {
                                self.done += kept.entries.count;
                                kept
                            }
                            None => self.seals_of(entry.device, &block).await?,
                        };
                        self.exported.seals += kept.entries.count;
                        self.index.seals.push(kept);
                        (self.progress)(self.done.min(self.total), self.total);
                    }
                }
            }
        }
        Ok(())
    }

    async fn seals_of(
        &mut self,
        device: DeviceId,
        block: &BlockSummary,
    ) -> Result<Block, BackupError> {
        if let Some(kept) = self.resumed(Some(device), block).await? {
            self.done += kept.entries.count;
            return Ok(kept);
        }
        let mut kept = Block::empty(Some(device), block);
        let mut listed = self.replica.seals_of_block(device, block.first, MOST_LISTED).await?;
        let before = listed.len();
        listed.retain(|seal| {
            let epoch = seal.epoch.unwrap_or(EpochNumber(0));
            let key = self.roster.with_key(device, seal.index, epoch, &mut |_| {});
            key != Err(NoKey::Ended)
        });
        self.exported.void += (before - listed.len()) as u64;
        let (replica, roster) = (self.replica, self.roster);
        let fetched = listed.into_iter().map(|seal| one(replica, roster, seal));
        let mut fetched = stream::iter(fetched).buffered(AT_ONCE);
        let mut part = Part::default();
        while let Some((seal, result)) = fetched.next().await {
            self.done += 1;
            if self.done.is_multiple_of(64) {
                (self.progress)(self.done.min(self.total), self.total);
            }
            match result? {
                Ok((bundle, entry)) => {
                    let is_full = part.bytes.len() + bundle.len() > content::FULL
                        || part.count == content::BUNDLES;
                    if is_full && part.count > 0 {
                        self.end_part(&mut kept, &mut part, &format!("seals-{device}")).await?;
                    }
                    part.bytes.extend_from_slice(&bundle);
                    part.add(&entry);
                }
                Err(name) => {
                    let what = format!("seal {} of device {device}", seal.index);
                    self.exported.refused.add(&name, what);
                }
            }
        }
        self.end_part(&mut kept, &mut part, &format!("seals-{device}")).await?;
        Ok(kept)
    }

    /// Writes the part as the next object of a block.
    async fn end_part(
        &mut self,
        block: &mut Block,
        part: &mut Part,
        kind: &str,
    ) -> Result<(), BackupError> {
        if part.count == 0 {
            return Ok(());
        }
        let Part { bytes, entries, .. } = std::mem::take(part);
        let name = format!("{kind}-{}-{}", block.first, short(&entries));
        block.objects.push(self.write(name, bytes).await?);
        block.entries.add(&entries);
        Ok(())
    }

    /// Appends the events after those of the last backup. If the events of the last backup and
    /// these are not what the cloud states, all events are written again.
    async fn events(&mut self, before: Events, summary: &Summary) -> Result<(), BackupError> {
        let has = |of: &Object| self.names.contains(&object(&of.name));
        let is_complete = before.objects.iter().all(has);
        if is_complete && before.stated == summary.events {
            self.exported.reused += before.objects.len() as u64;
            self.index.events = before;
        } else {
            let is_grown = is_complete && before.cursor.is_some();
            let (start, reused) =
                if is_grown { (before.clone(), before.objects.len()) } else { Default::default() };
            let refused = self.exported.refused.clone();
            let mut events = self.events_after(start).await?;
            let may_have_more = events.entries.count > summary.events.count;
            if is_grown && events.entries != summary.events && !may_have_more {
                self.exported.refused = refused;
                events = self.events_after(Events::default()).await?;
            } else {
                self.exported.reused += reused as u64;
            }
            events.stated = summary.events;
            self.index.events = events;
        }
        self.exported.events = self.index.events.entries.count;
        Ok(())
    }

    async fn events_after(&mut self, mut events: Events) -> Result<Events, BackupError> {
        let (mut part, mut useless) = (Part::default(), 0);
        loop {
            let (body, cursor) = self.replica.events(events.cursor.as_deref()).await?;
            // Events that do not verify are left out. One of them must not hide the others.
            let (verified, refused) = verified_events(self.roster, &body);
            for name in refused {
                self.exported.refused.add(name, "an urgent event");
            }
            useless = if verified.is_empty() { useless + 1 } else { 0 };
            for (item, entry) in verified {
                if part.count == content::EVENTS || part.bytes.len() >= content::FULL_EVENTS {
                    self.end_events(&mut events, &mut part).await?;
                }
                part.bytes.extend_from_slice(&item);
                part.add(&entry);
            }
            let is_last = cursor.is_none() || cursor == events.cursor || useless > USELESS;
            events.cursor = cursor.or(events.cursor);
            if is_last {
                self.end_events(&mut events, &mut part).await?;
                return Ok(events);
            }
        }
    }

    async fn end_events(
        &mut self,
        events: &mut Events,
        part: &mut Part,
    ) -> Result<(), BackupError> {
        if part.count == 0 {
            return Ok(());
        }
        let Part { bytes, entries, .. } = std::mem::take(part);
        let object = self.write(format!("events-{}", short(&entries)), bytes).await?;
        events.objects.push(object);
        events.entries.add(&entries);
        Ok(())
    }

    /// Replaces the index, and removes the objects that it does not name.
    async fn finish(mut self) -> Result<Exported, BackupError> {
        self.index.write(self.place).await?;
        let used = self.index.names();
        for name in self.place.list().await? {
            if !used.contains(&name) {
                self.place.remove(&name).await?;
                self.exported.removed += 1;
            }
        }
        (self.progress)(self.total, self.total);
        Ok(self.exported)
    }
}

impl Block {
    fn empty(device: Option<DeviceId>, block: &BlockSummary) -> Self {
        Self {
            device: device.map(|device| device.to_string()),
            first: block.first,
            stated: block.entries,
            entries: Fingerprint::EMPTY,
            objects: Vec::new(),
        }
    }
}

/// An object that is being made.
#[derive(Default)]
struct Part {
    bytes: Vec<u8>,
    entries: Fingerprint,
    count: usize,
}

impl Part {
    fn add(&mut self, entry: &Fingerprint) {
        self.entries.add(entry);
        self.count += 1;
    }
}

/// Returns a short text for a fingerprint, for the name of an object.
fn short(entries: &Fingerprint) -> String {
    let sum = moteseal_core::digest::Digest(entries.sum).to_string();
    format!("{}-{}", entries.count, &sum[..32])
}

/// A bundle and its fingerprint, or the name of the error with which it is refused.
type Fetched = Result<(Vec<u8>, Fingerprint), String>;

/// Fetches one bundle and verifies it.
async fn one(
    replica: &Replica,
    roster: &Roster,
    seal: ListedSeal,
) -> (ListedSeal, Result<Fetched, NetError>) {
    let body = async { replica.bundle(&seal).await?.bytes(content::MOST_BUNDLE).await };
    let body = match body.await {
        Ok(body) => body,
        Err(NetError::Refused { status: 404 | 409 | 413 | 422, .. }) => {
            return (seal, Ok(Err("NotServed".to_owned())));
        }
        Err(error) => return (seal, Err(error)),
    };
    let Some(range) = bundle_of(&body) else { return (seal, Ok(Err("NotWhole".to_owned()))) };
    let bundle = &body[range];
    let fetched = match content::seals(roster, bundle) {
        Err(error) => Err(error.name().to_owned()),
        Ok(seals) => match seals[..] {
            [of] if (of.device, of.index, of.digest) == (seal.device, seal.index, seal.digest)
                && of.kept_from <= seal.kept_from =>
            {
                Ok((bundle.to_vec(), content::fingerprint(&of)))
            }
            _ => Err("NotAsAsked".to_owned()),
        },
    };
    (seal, Ok(fetched))
}

/// Returns the events of an answer that verify, each with its schema and its fingerprint, and the
/// names of the errors of the others.
fn verified_events(
    roster: &Roster,
    body: &[u8],
) -> (Vec<(Vec<u8>, Fingerprint)>, Vec<&'static str>) {
    let (mut verified, mut refused) = (Vec::new(), Vec::new());
    let (mut schema, mut rest): (&[u8], &[u8]) = (&[], body);
    while let Ok(length) = moteseal_core::cbor::item_length(rest) {
        let (item, tail) = rest.split_at(length);
        rest = tail;
        // An event is a tagged COSE_Sign1; the other items are arrays.
        if item.first() != Some(&0xd2) {
            schema = item;
            continue;
        }
        let alone = [schema, item].concat();
        match urgent::read(&alone, roster, (1, false), &mut || ()) {
            Ok(read) => {
                verified
                    .extend(read.events.iter().map(|event| (alone.clone(), content::event(event))));
            }
            Err(error) if error.name() == "KeyEnded" => {}
            Err(error) => refused.push(error.name()),
        }
    }
    (verified, refused)
}
