//! A table of the ways in which a dishonest coordinator can falsify the epochs that it uploads. The
//! coordinator signs the falsified epochs with its own key.
//!
//! An [`Upload`] is an epoch's manifest with its bundles; every field can be changed. A [`Cheat`]
//! alters one of several epochs. It lists the names of the findings and errors that an audit, or a
//! verifier of the bundles, may report for it. Frames that a coordinator sends to its devices are
//! not part of this module.

use std::collections::BTreeMap;
use std::ops::Range;

use moteseal_core::digest::Digest;
use moteseal_core::identity::IssueError;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Framing, Level, Round, SealIndex, Sequence};
use moteseal_core::roster::Directory as _;
use moteseal_core::signature::Signer;
use moteseal_seal::follow::Limits;
use moteseal_seal::level::{Counters, Salt};
use moteseal_seal::sample::{Manifest, ManifestDraft};
use moteseal_seal::star;
use moteseal_seal::tree::{self, geometry};
use moteseal_verify::{Event, ReadError, Roster, StreamReader, write};

use crate::response::{Answer, Item, Part, Select};

/// A closed epoch, as its coordinator uploads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// The epoch.
    pub epoch: EpochNumber,
    /// The final round.
    pub round: Round,
    /// The seals that the manifest lists.
    pub listed: BTreeMap<DeviceId, Vec<Digest>>,
    /// A second manifest of the same epoch.
    pub other: Option<Box<Upload>>,
    /// Whether the coordinator withholds the manifest.
    pub withheld: bool,
    /// The bundles.
    pub bundles: Vec<Bundle>,
}

/// A seal with the events that the coordinator kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// The device.
    pub device: DeviceId,
    /// The seal's index.
    pub index: SealIndex,
    /// The seal's digest.
    pub digest: Digest,
    /// The length of each record; 0 if records have a length prefix.
    pub record_size: usize,
    /// The number of events of each level, according to the signed counters.
    pub counters: Counters,
    /// The digests `D_i` of the levels that are kept.
    pub blocks: Vec<Digest>,
    /// The encoded bundle: a stream of a schema, an open item and a part.
    pub bytes: Vec<u8>,
}

impl Upload {
    /// Reads a coordinator's manifest and the bundles of the epoch; `None` if one of them is
    /// invalid.
    #[must_use]
    pub fn read(roster: &Roster, manifest: &[u8], bundles: &[Vec<u8>]) -> Option<Self> {
        let mut scratch = vec![0; manifest.len() + 64];
        let epoch = Manifest::claimed_epoch(manifest)?;
        let coordinator = roster.period(epoch).coordinator.as_ref()?;
        let manifest = Manifest::open(manifest, roster.group(), coordinator, &mut scratch).ok()?;
        let bundles =
            bundles.iter().map(|bytes| Bundle::read(roster, bytes)).collect::<Option<Vec<_>>>()?;
        Some(Self {
            epoch: manifest.epoch(),
            round: manifest.round(),
            listed: manifest.devices().map(|(device, seals)| (device, seals.collect())).collect(),
            other: None,
            withheld: false,
            bundles,
        })
    }

    /// Returns the manifest as the coordinator signs it.
    ///
    /// # Errors
    /// [`IssueError`].
    pub fn manifest(
        &self,
        roster: &Roster,
        coordinator: &dyn Signer,
    ) -> Result<Vec<u8>, IssueError> {
        let devices: Vec<(DeviceId, &[Digest])> =
            self.listed.iter().map(|(device, seals)| (*device, &seals[..])).collect();
        let draft = ManifestDraft {
            group: roster.group(),
            roster: roster.digest(),
            epoch: self.epoch,
            round: self.round,
            devices: &devices,
        };
        let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
        Ok(draft.issue(coordinator, &mut scratch, &mut out)?.to_vec())
    }

    fn drop_device(&mut self, device: DeviceId) {
        self.listed.remove(&device);
        self.bundles.retain(|bundle| bundle.device != device);
    }
}

impl Bundle {
    fn read(roster: &Roster, bytes: &[u8]) -> Option<Self> {
        let mut found = None;
        let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
            if let Event::Proven(proven) = event {
                let statement = proven.seal.statement();
                let record_size = match proven.schema.framing {
                    Framing::Fixed(size) => usize::from(size.get()),
                    Framing::Prefixed => 0,
                };
                let (device, index, digest) =
                    (statement.device, statement.index, proven.seal.digest());
                let (counters, blocks) = (statement.counters, proven.blocks.to_vec());
                found = Some(Self {
                    device,
                    index,
                    digest,
                    record_size,
                    counters,
                    blocks,
                    bytes: bytes.to_vec(),
                });
            }
            Ok(())
        };
        let mut reader = StreamReader::new(roster, Limits::default());
        reader.feed(bytes, &mut visit).ok()?;
        reader.finish(&mut visit).ok()?;
        found
    }

    /// Applies `change` to the part. Returns false if there is no part or nothing changed.
    fn alter(&mut self, change: impl FnOnce(&mut Part) -> bool) -> bool {
        let Ok(mut answer) = Answer::decode(&self.bytes) else { return false };
        let part = answer.items.iter_mut().find_map(|item| match item {
            Item::Part(part) => Some(part),
            _ => None,
        });
        let changed = part.is_some_and(|part| change(part));
        self.bytes = answer.encode();
        changed
    }

    fn events(&self) -> Vec<u8> {
        let items = Answer::decode(&self.bytes).map(|answer| answer.items).unwrap_or_default();
        let events = items.into_iter().find_map(|item| match item {
            Item::Part(part) => Some(part.events),
            _ => None,
        });
        events.unwrap_or_default()
    }
}

/// Where a cheat is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// By the audit, as a finding.
    Audit,
    /// By the audit, which reports that a fact cannot be determined. It stays undetermined when the
    /// devices' chains continue: if the seals arrive too late, an honest coordinator does not list
    /// them either, and nothing that is signed shows when a seal arrived.
    Doubt,
    /// By a verifier of the bundle. This is the cloud that ingests it, or a client if the cloud
    /// colludes.
    Verifier,
}

/// One way to cheat.
#[derive(Clone, Copy)]
pub struct Cheat {
    /// The name of the cheat.
    pub name: &'static str,
    /// A short description, which is part of spec/vectors (audit/cheats.json).
    pub about: &'static str,
    /// Where the cheat is detected.
    pub found_by: FoundBy,
    /// The names of the findings or errors with which the cheat is detected.
    pub names: &'static [&'static str],
    /// Alters the epoch at an index, to the disadvantage of a device. Returns false if the cheat
    /// does not apply.
    pub alter: fn(&mut [Upload], usize, DeviceId) -> bool,
}

impl std::fmt::Debug for Cheat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Every way to cheat.
pub const CHEATS: &[Cheat] = &[
    Cheat {
        name: "device-dropped",
        about: "a device is left out of an epoch: neither listed nor uploaded",
        found_by: FoundBy::Audit,
        names: &["Missing"],
        alter: |uploads, at, device| {
            let had = uploads[at].listed.contains_key(&device);
            uploads[at].drop_device(device);
            had
        },
    },
    Cheat {
        name: "device-unlisted",
        about: "a device's seal is uploaded, but not listed: its counters are left out",
        found_by: FoundBy::Doubt,
        names: &["Late"],
        alter: |uploads, at, device| uploads[at].listed.remove(&device).is_some(),
    },
    Cheat {
        name: "event-dropped",
        about: "one reading is cut out of what was kept of a device",
        found_by: FoundBy::Verifier,
        names: &["EventsLength"],
        alter: |uploads, at, device| of(uploads, at, device).is_some_and(cut_event),
    },
    Cheat {
        name: "event-replaced",
        about: "one reading of a device is told twice instead of the one behind it",
        found_by: FoundBy::Verifier,
        names: &["NotAuthentic"],
        alter: |uploads, at, device| of(uploads, at, device).is_some_and(repeat_event),
    },
    Cheat {
        name: "level-dropped",
        about: "what was kept of a device lacks the finest level that the manifest's round keeps",
        found_by: FoundBy::Verifier,
        names: &["NotAsAsked"],
        alter: |uploads, at, device| of(uploads, at, device).is_some_and(drop_level),
    },
    Cheat {
        name: "kept-too-little",
        about: "one round more than the counters ask for",
        found_by: FoundBy::Audit,
        names: &["StoppedEarly"],
        alter: |uploads, at, _| {
            uploads[at].round.0 += 1;
            true
        },
    },
    Cheat {
        name: "kept-too-much",
        about: "one round less than the counters ask for",
        found_by: FoundBy::Audit,
        names: &["OverBudget"],
        alter: |uploads, at, _| {
            uploads[at].round.0 = uploads[at].round.0.saturating_sub(1);
            true
        },
    },
    Cheat {
        name: "device-invented",
        about: "a device is listed that the roster does not have",
        found_by: FoundBy::Audit,
        names: &["InventedDevice"],
        alter: |uploads, at, _| {
            uploads[at].listed.insert(DeviceId(*b"phantom!"), vec![Digest([0x77; 32])]);
            true
        },
    },
    Cheat {
        name: "seal-invented",
        about: "a seal of a device is listed that it never signed",
        found_by: FoundBy::Audit,
        names: &["InventedSeal"],
        alter: |uploads, at, device| {
            uploads[at].listed.entry(device).or_default().push(Digest([0x78; 32]));
            true
        },
    },
    Cheat {
        name: "yesterday-replayed",
        about: "the list of the epoch before is signed again",
        found_by: FoundBy::Audit,
        names: &["Replayed"],
        alter: |uploads, at, _| {
            let Some(before) = at.checked_sub(1) else { return false };
            uploads[at].listed = uploads[before].listed.clone();
            true
        },
    },
    Cheat {
        name: "yesterday-resent",
        about: "the manifest of the epoch before is sent again, and none of this one",
        found_by: FoundBy::Doubt,
        names: &["NoManifest"],
        alter: |uploads, at, _| {
            uploads[at].withheld = true;
            true
        },
    },
    Cheat {
        name: "two-manifests",
        about: "two lists are signed of one epoch, one of them without a device",
        found_by: FoundBy::Audit,
        names: &["TwoManifests"],
        alter: |uploads, at, device| {
            let mut other = Upload { bundles: Vec::new(), other: None, ..uploads[at].clone() };
            let had = other.listed.remove(&device).is_some();
            uploads[at].other = Some(Box::new(other));
            had
        },
    },
    Cheat {
        name: "listed-elsewhere",
        about: "one device's seal is listed under another's name",
        found_by: FoundBy::Audit,
        names: &["InventedSeal"],
        alter: |uploads, at, device| {
            let listed = &mut uploads[at].listed;
            let Some(other) = listed.keys().copied().find(|other| *other != device) else {
                return false;
            };
            let Some(seals) = listed.remove(&other) else { return false };
            listed.entry(device).or_default().extend(seals);
            true
        },
    },
    Cheat {
        name: "blocks-swapped",
        about: "two devices' readings change places",
        found_by: FoundBy::Verifier,
        names: &["EventsLength", "NotAuthentic"],
        alter: |uploads, at, device| {
            let bundles = &mut uploads[at].bundles;
            let Some(one) = bundles.iter().position(|bundle| bundle.device == device) else {
                return false;
            };
            let Some(other) = bundles.iter().position(|bundle| bundle.device != device) else {
                return false;
            };
            let (mine, theirs) = (bundles[one].events(), bundles[other].events());
            let differ = mine != theirs;
            // Repeat the bytes up to the length that the other seal's counters require, so that
            // only the digests differ.
            let fit = |from: &[u8], length: usize| {
                from.iter().copied().cycle().take(length).collect::<Vec<u8>>()
            };
            let (to_one, to_other) = (fit(&theirs, mine.len()), fit(&mine, theirs.len()));
            differ
                && !mine.is_empty()
                && !theirs.is_empty()
                && bundles[one]
                    .alter(|part| std::mem::replace(&mut part.events, to_one) != part.events)
                && bundles[other]
                    .alter(|part| std::mem::replace(&mut part.events, to_other) != part.events)
        },
    },
];

fn of(uploads: &mut [Upload], at: usize, device: DeviceId) -> Option<&mut Bundle> {
    uploads[at].bundles.iter_mut().find(|bundle| bundle.device == device)
}

fn cut_event(bundle: &mut Bundle) -> bool {
    let size = bundle.record_size;
    bundle.alter(|part| {
        let cut = size > 0 && part.events.len() >= size;
        part.events.truncate(part.events.len() - if cut { size } else { 0 });
        cut
    })
}

fn repeat_event(bundle: &mut Bundle) -> bool {
    let size = bundle.record_size;
    bundle.alter(|part| {
        let differ = size > 0
            && part.events.len() >= 2 * size
            && part.events[..size] != part.events[size..2 * size];
        if differ {
            part.events.copy_within(..size, size);
        }
        differ
    })
}

/// Removes the lowest kept level, and adds the digests that prove the remaining events. Does nothing with a
/// tree that has column groups.
fn drop_level(bundle: &mut Bundle) -> bool {
    let (size, counters, blocks) = (bundle.record_size, bundle.counters, bundle.blocks.clone());
    bundle.alter(|part| {
        let Select::Levels(mask) = part.select else { return false };
        let rest = mask & mask.wrapping_sub(1);
        if rest == 0 || size == 0 {
            return false;
        }
        if part.scheme == Scheme::Tree {
            return part.groups.is_none() && prune_tree(part, counters.levels(), size, rest);
        }
        let link = |above: Digest, level: u32| {
            let level = Level(u8::try_from(level).unwrap_or(u8::MAX));
            let block = blocks.get(usize::from(level.0)).copied().unwrap_or(Digest::NULL);
            star::link(&above, counters.at(level), &block)
        };
        let (lowest, next) = (mask.trailing_zeros(), rest.trailing_zeros());
        let above = match <[u8; 32]>::try_from(&part.digests[..]) {
            Ok(digest) => Digest(digest),
            Err(_) => (0..lowest).fold(star::chain_start(), link),
        };
        part.digests = (lowest..next).fold(above, link).0.to_vec();
        // The block of the lowest level is at the end.
        let cut = size * counters.at(Level(u8::try_from(lowest).unwrap_or(u8::MAX))) as usize;
        part.events.truncate(part.events.len().saturating_sub(cut));
        part.select = Select::Levels(rest);
        true
    })
}

/// Reduces a tree to the levels of a mask, and adds the multiproof of the remaining events.
/// Computes the multiproof recursively from the root.
fn prune_tree(part: &mut Part, levels: u8, size: usize, mask: u32) -> bool {
    let Select::Levels(before) = part.select else { return false };
    let (n, salt) = (u64::from(part.n), Salt(part.salt));
    let of = |mask: u32| {
        (0..n)
            .map(Sequence)
            .filter(move |seq| mask >> salt.level(*seq, levels).0 & 1 == 1)
            .collect::<Vec<Sequence>>()
    };
    let known: BTreeMap<(u64, u64), Digest> = geometry::siblings(n, of(before))
        .zip(part.digests.as_chunks::<32>().0)
        .map(|(subtree, digest)| ((subtree.start, subtree.end), Digest(*digest)))
        .collect();
    let records: BTreeMap<Sequence, &[u8]> =
        of(before).into_iter().zip(part.events.chunks(size)).collect();
    let kept = of(mask);
    let digests: Option<Vec<Digest>> = geometry::siblings(n, kept.iter().copied())
        .map(|subtree| root(subtree.start..subtree.end, &known, &records))
        .collect();
    let Some(digests) = digests else { return false };
    let events: Option<Vec<&[u8]>> = kept.iter().map(|seq| records.get(seq).copied()).collect();
    let Some(events) = events.map(|events| events.concat()) else { return false };
    part.digests = digests.into_iter().flat_map(|digest| digest.0).collect();
    (part.events, part.select) = (events, Select::Levels(mask));
    true
}

/// Returns the root of a subtree, computed from known roots of smaller subtrees and from records;
/// `None` if they do not suffice.
fn root(
    leaves: Range<u64>,
    known: &BTreeMap<(u64, u64), Digest>,
    records: &BTreeMap<Sequence, &[u8]>,
) -> Option<Digest> {
    if let Some(root) = known.get(&(leaves.start, leaves.end)) {
        return Some(*root);
    }
    let left = geometry::split(leaves.end - leaves.start);
    if left == 0 {
        return records.get(&Sequence(leaves.start)).map(|record| tree::leaf(record));
    }
    let middle = leaves.start + left;
    Some(tree::node(
        &root(leaves.start..middle, known, records)?,
        &root(middle..leaves.end, known, records)?,
    ))
}

/// Returns a stream of all uploaded data, as a colluding cloud serves it: the manifests, then every
/// bundle, ordered by device and index.
///
/// # Errors
/// [`IssueError`].
pub fn stream(
    uploads: &[Upload],
    roster: &Roster,
    coordinator: &dyn Signer,
) -> Result<Vec<u8>, IssueError> {
    let mut out = Vec::new();
    for upload in uploads.iter().filter(|upload| !upload.withheld) {
        write::manifest(&mut out, &upload.manifest(roster, coordinator)?);
        if let Some(other) = &upload.other {
            write::manifest(&mut out, &other.manifest(roster, coordinator)?);
        }
    }
    let mut bundles: Vec<&Bundle> = uploads.iter().flat_map(|upload| &upload.bundles).collect();
    bundles.sort_by_key(|bundle| (bundle.device, bundle.index));
    bundles.iter().for_each(|bundle| out.extend_from_slice(&bundle.bytes));
    write::end(&mut out);
    Ok(out)
}
