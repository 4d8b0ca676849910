//! Audits the uploads of a simulated group, honest or cheating, and checks the reports against the
//! readings of each device.

use std::collections::{BTreeMap, BTreeSet};

use moteseal_adversary::coordinator::{Bundle, Cheat, FoundBy, Upload};
use moteseal_client::audit::{Doubt, EpochReport, Finding, Report};
use moteseal_core::record::EpochNumber;
use moteseal_core::roster::Directory as _;
use moteseal_core::{DeviceId, Digest, Level, Round};
use moteseal_gateway::Ended;
use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::Limits;
use moteseal_seal::sample::Manifest;
use moteseal_seal::stream::Select;
use moteseal_store::{Bundle as StoredBundle, SealKey};
use moteseal_verify::{Event, ReadError, StreamReader};

use super::columns::Columns;
use super::device::Device;
use super::readers::Decrypted;
use super::versions::Counts;
use super::{World, secret};
use crate::upload_verifiers::{audited, audited_alone, rows_of};

impl World {
    /// Returns the late bundles that the cloud stores, with their epochs. A coordinator that was
    /// killed may return a seal again with more or fewer levels. A store replaces a bundle only by
    /// one that adds levels to it.
    pub(super) fn stored_late(&self) -> Vec<&(EpochNumber, Vec<u8>)> {
        let mut stored: BTreeMap<SealKey, (u32, &(EpochNumber, Vec<u8>))> = BTreeMap::new();
        for late in &self.late {
            let mut reader = StreamReader::new(&self.roster, Limits::default());
            let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
                let Event::Proven(proven) = event else { return Ok(()) };
                let bundle = StoredBundle::from_proven(&proven).unwrap();
                let known = stored.get(&bundle.key()).map(|(kept, _)| *kept);
                if known.is_none_or(|known| bundle.adds_to(known)) {
                    stored.insert(bundle.key(), (bundle.kept(), late));
                }
                Ok(())
            };
            reader.feed(&late.1, &mut visit).unwrap();
            reader.finish(&mut visit).unwrap();
        }
        stored.into_values().map(|(_, late)| late).collect()
    }

    /// Returns everything that was uploaded, by epoch: listed and late seals. An epoch in which no
    /// frame arrived in time has no manifest.
    fn uploads(&self) -> Vec<Upload> {
        let late = self.stored_late();
        let late_of = |epoch| {
            late.iter().filter(move |(of, _)| *of == epoch).map(|(_, bundle)| bundle.clone())
        };
        let read = |ended: &Ended, epoch, listed: &[Vec<u8>]| {
            let bundles: Vec<Vec<u8>> = listed.iter().cloned().chain(late_of(epoch)).collect();
            Upload::read(&self.roster, &ended.manifest, &bundles).unwrap()
        };
        let mut uploads: BTreeMap<EpochNumber, Upload> = self
            .ended
            .iter()
            .map(|ended| (ended.epoch, read(ended, ended.epoch, &ended.bundles)))
            .collect();
        for (epoch, _) in &late {
            let unlisted = || {
                let upload = read(&self.ended[0], *epoch, &[]);
                Upload {
                    epoch: *epoch,
                    round: Round(0),
                    listed: BTreeMap::new(),
                    withheld: true,
                    ..upload
                }
            };
            uploads.entry(*epoch).or_insert_with(unlisted);
        }
        uploads.into_values().collect()
    }

    /// Checks every bundle against the sensed readings. Readers decrypt those with encrypted columns.
    /// Returns, for each device, the seals that arrived.
    fn arrived(&self) -> (BTreeMap<DeviceId, Vec<Arrived>>, Decrypted) {
        let mut arrived: BTreeMap<DeviceId, Vec<Arrived>> = BTreeMap::new();
        let mut decrypted = Decrypted::default();
        let granted = self.reader.as_ref().map(|reader| (reader, reader.open(&self.roster)));
        let listed =
            self.ended.iter().flat_map(|ended| ended.bundles.iter().map(|bundle| (true, bundle)));
        let late = self.stored_late();
        for (is_listed, bundle) in listed.chain(late.iter().map(|(_, bundle)| (false, bundle))) {
            let mut reader = StreamReader::new(&self.roster, Limits::default());
            let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
                let Event::Proven(proven) = event else { return Ok(()) };
                let statement = proven.seal.statement();
                let Select::Levels(mask) = proven.part.select else {
                    panic!("not selected by levels")
                };
                let device =
                    self.devices.iter().find(|device| device.id == statement.device).unwrap();
                let none = (statement.epoch, Vec::new());
                let (epoch, truth) = device.truth.get(&statement.index.0).unwrap_or(&none);
                assert_eq!(
                    (*epoch, truth.len() as u64),
                    (statement.epoch, statement.counters.total()),
                    "a seal has other readings than its device sensed"
                );
                let encrypts = device.columns != Columns::Plain;
                assert_eq!(statement.keys.is_some(), encrypts);
                let mut kept = 0;
                if let Some((of, grant)) = granted.as_ref().filter(|_| encrypts) {
                    kept = of.check(grant, &proven, (device, truth), &mut decrypted);
                } else {
                    proven.sample.for_each(&Scalar, |seq, _, record| {
                        assert_eq!(device.columns.record(truth[seq.0 as usize]), record);
                        kept += 1;
                    });
                }
                arrived.entry(statement.device).or_default().push(Arrived {
                    index: statement.index.0,
                    epoch: statement.epoch,
                    digest: proven.seal.digest(),
                    before: statement.last.map(|(index, epoch)| (index.0, epoch)),
                    is_last: statement.last_in_epoch,
                    restart: statement.restart,
                    is_listed,
                    counted: statement.counters.total(),
                    kept,
                    surviving: statement.surviving(),
                    mask,
                });
                Ok(())
            };
            reader.feed(bundle, &mut visit).unwrap();
            reader.finish(&mut visit).unwrap();
        }
        arrived.values_mut().for_each(|seals| seals.sort_by_key(|seal| seal.index));
        (arrived, decrypted)
    }

    /// Returns the seals that arrived, by device and index.
    pub(super) fn arrived_indices(&self) -> BTreeSet<(DeviceId, u32)> {
        let (arrived, _) = self.arrived();
        let of = |(device, seals): (&DeviceId, &Vec<Arrived>)| {
            let device = *device;
            seals.iter().map(move |seal| (device, seal.index)).collect::<Vec<_>>()
        };
        arrived.iter().flat_map(of).collect()
    }

    /// Audits the uploads of an honest gateway.
    pub(super) fn audit(&self) -> Outcome {
        let mut outcome = Outcome::default();
        let (uploads, (arrived, decrypted)) = (self.uploads(), self.arrived());
        outcome.decrypted = decrypted;
        self.check_stored_bytes(&mut outcome.decrypted);
        let report = audited(&self.roster, &uploads, &secret(99)).unwrap();
        let found: Vec<_> = report.findings().collect();
        assert!(found.is_empty(), "an honest gateway is accused: {found:?}");
        for ended in &self.ended {
            self.check_manifest(ended, &arrived);
            let [audited] = of_epoch(&report, ended.epoch)[..] else { panic!("{report:?}") };
            self.check_doubts(audited, &arrived);
            match audited.verdict() {
                "Justified" => outcome.justified += 1,
                _ => outcome.undetermined += 1,
            }
            let at = uploads.iter().position(|upload| upload.epoch == ended.epoch).unwrap();
            let alone = audited_alone(&self.roster, &uploads, at, &secret(99)).unwrap();
            assert!(alone.findings().next().is_none(), "{alone:?}");
            let [alone] = of_epoch(&alone, ended.epoch)[..] else { panic!("{alone:?}") };
            check_alone(alone, audited, &arrived);
        }
        outcome.rolled_back = self.rolled_back;
        outcome.changes = self.versions.counts;
        for device in &self.devices {
            if !device.dead {
                outcome.left += device.mote.as_ref().unwrap().waiting() as u64;
            }
        }
        outcome
    }

    /// Asserts that a manifest lists exactly the seals that arrived in time, that exactly the
    /// levels from its round on are kept, and that the kept events are within the budget.
    fn check_manifest(&self, ended: &Ended, arrived: &BTreeMap<DeviceId, Vec<Arrived>>) {
        let mut scratch = vec![0; ended.manifest.len() + 64];
        let coordinator = self.roster.newest_period().coordinator.as_ref().unwrap();
        let manifest =
            Manifest::open(&ended.manifest, self.roster.group(), coordinator, &mut scratch)
                .unwrap();
        let listed: BTreeSet<Digest> = manifest.devices().flat_map(|(_, seals)| seals).collect();
        let listed_seals: Vec<&Arrived> = arrived
            .values()
            .flatten()
            .filter(|seal| seal.is_listed && seal.epoch == ended.epoch)
            .collect();
        assert_eq!(
            listed_seals.iter().map(|seal| seal.digest).collect::<BTreeSet<_>>(),
            listed,
            "the store lacks a seal of the manifest"
        );
        let from = u32::MAX.checked_shl(u32::from(manifest.round().0)).unwrap_or(0);
        assert!(
            listed_seals.iter().all(|seal| seal.mask == seal.surviving & from),
            "the levels from the round on must be kept, and no others"
        );
        let kept: u64 = listed_seals.iter().map(|seal| seal.kept).sum();
        assert_eq!(kept, ended.kept);
        assert!(kept <= self.budget);
    }

    /// Asserts that an epoch is undetermined for exactly the devices that were silent in it, and
    /// that it has all readings of the other devices, except devices that state a restart.
    fn check_doubts(&self, audited: &EpochReport, arrived: &BTreeMap<DeviceId, Vec<Arrived>>) {
        let epoch = audited.epoch;
        let named = |of: &dyn Fn(&Doubt) -> bool| {
            audited
                .doubts
                .iter()
                .filter(|doubt| of(doubt))
                .filter_map(Doubt::device)
                .collect::<BTreeSet<_>>()
        };
        let absent = named(&|doubt| matches!(doubt, Doubt::Absent { .. }));
        let restarted = named(&|doubt| matches!(doubt, Doubt::Restarted { .. }));
        let late = named(&|doubt| matches!(doubt, Doubt::Late { .. }));
        let mut silent = BTreeSet::new();
        let is_member = |device: &&Device| {
            self.roster.device(device.id).is_some_and(|device| device.is_member_in(epoch))
        };
        for device in self.devices.iter().filter(is_member) {
            let none = Vec::new();
            let seals = arrived.get(&device.id).unwrap_or(&none);
            let listed: u64 = seals
                .iter()
                .filter(|seal| seal.epoch == epoch && seal.is_listed)
                .map(|seal| seal.counted)
                .sum();
            let sensed: usize = device
                .truth
                .values()
                .filter(|(of, _)| *of == epoch)
                .map(|(_, records)| records.len())
                .sum();
            if is_silent(seals, epoch) {
                silent.insert(device.id);
            } else {
                assert!(
                    listed == sensed as u64 || restarted.contains(&device.id),
                    "{} in {audited:?}",
                    device.id
                );
            }
            assert_eq!(
                late.contains(&device.id),
                seals.iter().any(|seal| seal.epoch == epoch && !seal.is_listed)
            );
        }
        assert_eq!(absent, silent, "{audited:?}");
        let is_due = audited.manifest.map(|(_, round)| round) == audited.due;
        assert_eq!(
            audited.is_justified,
            silent.is_empty() && (is_due || restarted.is_empty()),
            "{audited:?}"
        );
        // There are no other doubts: every listed seal exists.
        let others = audited.doubts.len() - absent.len() - restarted.len() - late.len();
        assert!(others == 0, "{audited:?}");
    }

    /// Applies a cheat to an epoch and device. Searches from a random start for the first pair to
    /// which the cheat can be applied. Returns `None` if there is no such pair.
    pub(super) fn cheat(&mut self, cheat: &Cheat) -> Option<Caught> {
        let honest = self.uploads();
        let occasions = honest.len() * self.devices.len();
        let start = self.chance.below(occasions.max(1) as u64) as usize;
        for occasion in (0..occasions).map(|offset| (start + offset) % occasions) {
            let (at, device) =
                (occasion / self.devices.len(), self.devices[occasion % self.devices.len()].id);
            let mut uploads = honest.clone();
            if !honest[at].withheld && (cheat.alter)(&mut uploads, at, device) && uploads != honest
            {
                return Some(self.caught(cheat, &uploads, at, device));
            }
        }
        None
    }

    /// Audits all epochs, and then the altered epoch alone. Asserts that both audits find the
    /// cheat, or that the epoch is undetermined and the devices that cause this are named. The
    /// epoch is never justified, and no other epoch has a finding.
    fn caught(&self, cheat: &Cheat, uploads: &[Upload], at: usize, device: DeviceId) -> Caught {
        let (upload, case) =
            (&uploads[at], format!("{cheat:?} of {device} in epoch {}", uploads[at].epoch));
        if cheat.found_by == FoundBy::Verifier {
            let bundle = upload.bundles.iter().find(|bundle| bundle.device == device).unwrap();
            let name = rows_of(&self.roster, upload, bundle).unwrap_err();
            assert!(cheat.names.contains(&name.as_str()), "{case}: {name}");
            return Caught::Found;
        }
        let reports = [
            audited(&self.roster, uploads, &secret(99)),
            audited_alone(&self.roster, uploads, at, &secret(99)),
        ];
        let caught = reports.map(|report| match report {
            Ok(report) => {
                let others: Vec<_> =
                    report.findings().filter(|(epoch, _)| *epoch != upload.epoch).collect();
                assert!(others.is_empty(), "{case}: {others:?}");
                let of = of_epoch(&report, upload.epoch);
                // An epoch without a manifest and without seals is not in the report.
                let is_absent = cheat.name == "yesterday-resent" && upload.bundles.is_empty();
                assert_eq!(of.is_empty(), is_absent, "{case}: {report:?}");
                let caught = |of: &EpochReport| {
                    if self.is_due_but_not_kept(cheat, upload, of) {
                        Caught::Found
                    } else {
                        caught_in(cheat, of, &case)
                    }
                };
                of.into_iter().map(caught).min().unwrap_or(Caught::Undetermined)
            }
            // A manifest whose round is above the number of levels is invalid.
            Err(name) => {
                assert_eq!(
                    (cheat.name, name.as_str()),
                    ("kept-too-little", "RoundOutOfRange"),
                    "{case}"
                );
                Caught::Found
            }
        });
        // The two results may differ: an audit of a single epoch may not recognise a replayed seal,
        // and an audit of all epochs may have doubts because of a restart. Return the result of the
        // audit of all epochs.
        caught[0]
    }

    /// Returns whether a cheat is justified by the counters but still found by a client. If a
    /// device restarted, the honest round may be above the due round that follows from the
    /// counters. If a coordinator signs the due round instead, the counters justify it. But the
    /// coordinator lacks the readings between the two rounds, so a client that queries these
    /// readings finds the cheat.
    fn is_due_but_not_kept(&self, cheat: &Cheat, upload: &Upload, of: &EpochReport) -> bool {
        let is_due =
            cheat.name == "kept-too-much" && of.is_justified && of.due == Some(upload.round);
        let level = Level(upload.round.0);
        let lacks = |bundle: &Bundle| {
            bundle.counters.at(level) == 0 || rows_of(&self.roster, upload, bundle).is_err()
        };
        is_due && upload.bundles.iter().all(lacks)
    }
}

fn of_epoch(report: &Report, epoch: EpochNumber) -> Vec<&EpochReport> {
    report.epochs.iter().filter(|audited| audited.epoch == epoch).collect()
}

/// Asserts that the audit of an epoch alone has the same result as the audit of all epochs, except
/// for devices whose first seal after the epoch was late. The audit of the epoch alone has no later
/// seal, so that nothing shows that the coordinator took the late one.
fn check_alone(
    alone: &EpochReport,
    audited: &EpochReport,
    arrived: &BTreeMap<DeviceId, Vec<Arrived>>,
) {
    let absent = |of: &EpochReport| -> BTreeSet<DeviceId> {
        let doubts = of.doubts.iter().filter(|doubt| matches!(doubt, Doubt::Absent { .. }));
        doubts.filter_map(Doubt::device).collect()
    };
    let is_late = |device: &DeviceId| {
        let mut seals = arrived.get(device).into_iter().flatten();
        seals.find(|seal| seal.epoch > audited.epoch).is_some_and(|next| !next.is_listed)
    };
    let (by_one, by_all) = (absent(alone), absent(audited));
    let more: BTreeSet<DeviceId> = by_one.difference(&by_all).copied().collect();
    assert!(
        by_all.is_subset(&by_one)
            && more.iter().all(is_late)
            && alone.is_justified == (audited.is_justified && more.is_empty()),
        "{alone:?} and {audited:?}"
    );
}

/// Returns the result of a cheat in the report on the altered epoch.
fn caught_in(cheat: &Cheat, of: &EpochReport, case: &str) -> Caught {
    let names: Vec<&str> = of.findings.iter().map(Finding::name).collect();
    match of.verdict() {
        "Unjustified" => {
            // If a device's chain has ended, an invented seal is reported as `Unshown`. If the
            // device restarted, the announced round may be higher than the round that the counters
            // require.
            let known = |name: &&str| {
                cheat.names.contains(name)
                    || *name == "Unshown"
                    || (cheat.name == "kept-too-much" && *name == "RoundOverstated")
            };
            assert!(names.iter().any(known), "{case}: {of:?}");
            Caught::Found
        }
        "Undetermined" => {
            let names_a_device = of.doubts.iter().any(|doubt| match doubt {
                Doubt::NoManifest { .. } => true,
                Doubt::Late { .. } => false,
                doubt => doubt.device().is_some(),
            });
            assert!(names_a_device, "{case}: no device is named: {of:?}");
            Caught::Undetermined
        }
        verdict => panic!("{case}: {verdict}, although the coordinator cheated: {of:?}"),
    }
}

/// The result of a cheat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Caught {
    Undetermined,
    Found,
}

/// A seal that reached the gateway.
#[derive(Debug)]
struct Arrived {
    index: u32,
    epoch: EpochNumber,
    digest: Digest,
    /// The index and epoch of the previous seal, as this seal states them.
    before: Option<(u32, EpochNumber)>,
    is_last: bool,
    restart: bool,
    is_listed: bool,
    counted: u64,
    kept: u64,
    surviving: u32,
    mask: u32,
}

/// Returns whether a device's seals, sorted by index, do not determine what it sensed in an epoch.
/// This simple implementation over all seals is the oracle for the audit.
fn is_silent(seals: &[Arrived], epoch: EpochNumber) -> bool {
    let listed: Vec<&Arrived> =
        seals.iter().filter(|seal| seal.epoch == epoch && seal.is_listed).collect();
    let newest = listed.last().map(|seal| seal.index);
    let is_skipped = seals
        .iter()
        .any(|seal| seal.epoch == epoch && !seal.is_listed && Some(seal.index) < newest);
    if is_skipped || listed.iter().any(|seal| seal.is_last) {
        return is_skipped;
    }
    // An unlisted seal may never have reached the coordinator, unless a listed seal names it.
    let was_taken = |seal: &Arrived| {
        let names_it = |next: &Arrived| next.before.is_some_and(|(index, _)| index == seal.index);
        seal.is_listed || seals.iter().any(|next| next.is_listed && names_it(next))
    };
    let next = seals
        .iter()
        .find(|seal| seal.epoch > epoch && !seal.restart)
        .filter(|next| was_taken(next));
    let first_later = seals.iter().find(|seal| seal.epoch > epoch).map(|seal| seal.index);
    !next.is_some_and(|next| {
        let follows = match newest {
            Some(newest) => next.before.is_some_and(|(index, _)| index == newest),
            None => next.before.is_none_or(|(_, of)| of < epoch),
        };
        follows && Some(next.index) == first_later
    })
}

#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) justified: u64,
    pub(super) undetermined: u64,
    pub(super) left: u64,
    /// How often the gateway had more of a device than the device's state.
    pub(super) rolled_back: u64,
    pub(super) changes: Counts,
    pub(super) decrypted: Decrypted,
    /// For each cheat, by name: how often it was applied, and how often it was found.
    pub(super) cheats: BTreeMap<&'static str, (u64, u64)>,
}
