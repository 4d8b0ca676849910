//! Tests a coordinator that cheats. Devices and coordinator are real; the coordinator's uploads are
//! altered, signed again with its key, and checked by all verifiers. Each cheat is reported by its
//! name, with the counters that prove it, and honest epochs have no findings.

use std::collections::{BTreeMap, BTreeSet};

use crate::budgeted::{Cloud, FIRST, Group, NAMES, coordinator, secret};
use crate::upload_verifiers::{audited, audited_alone, rows_of};
use moteseal_adversary::coordinator::{Bundle, CHEATS, Cheat, FoundBy, Upload, stream};
use moteseal_adversary::{Answer, Item, Select};
use moteseal_client::audit::{Doubt, EpochReport, Finding, Report, Verdict};
use moteseal_core::identity::encode_public_pem;
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, Round};
use moteseal_core::{DeviceId, Digest, Level, Sequence};
use moteseal_seal::level::Salt;
use moteseal_seal::sample::{self, Announcement, MAX_ANNOUNCEMENT};
use moteseal_seal::star;
use moteseal_verify::Roster;

const BUDGET: u64 = 100;
/// The number of readings of each device in each epoch, from none to far more than the budget.
const LOADS: [[u32; 4]; 6] = [
    [200, 300, 100, 50],
    [400, 40, 260, 333],
    [10, 20, 30, 20],
    [250, 250, 250, 250],
    [900, 0, 100, 180],
    [120, 90, 200, 60],
];

fn honest(scheme: Scheme) -> (Group, Vec<Upload>) {
    let mut group = Group::new(scheme, 10, BUDGET, 7);
    let uploads = LOADS.iter().map(|readings| group.epoch(*readings)).collect();
    (group, uploads)
}

#[test]
fn honest_epochs_are_justified_with_their_numbers() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let (group, uploads) = honest(scheme);
        let report = audited(&group.roster, &uploads, &coordinator()).unwrap();
        assert_eq!(
            (report.verdict(), report.epochs.len()),
            (Verdict::Justified, LOADS.len()),
            "{report:?}"
        );
        for ((epoch, upload), readings) in report.epochs.iter().zip(&uploads).zip(LOADS) {
            assert_eq!(epoch.manifest.map(|(_, round)| round), Some(upload.round));
            assert_eq!(epoch.due, Some(upload.round));
            let (all, kept): (u64, u64) = (
                epoch.counts.iter().map(|(_, count)| count).sum(),
                upload
                    .bundles
                    .iter()
                    .map(|bundle| rows_of(&group.roster, upload, bundle).unwrap())
                    .sum(),
            );
            assert_eq!(
                (all, epoch.kept),
                (readings.iter().map(|count| u64::from(*count)).sum(), kept),
                "{epoch:?}"
            );
            assert!(kept <= BUDGET && (kept > BUDGET / 4 || all <= BUDGET));
            assert_eq!((epoch.devices, epoch.listed, epoch.seals), (4, 4, 4));
            assert!(epoch.findings.is_empty() && epoch.doubts.is_empty(), "{epoch:?}");
        }
    }
}

#[test]
fn every_cheat_is_reported_by_its_name() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let (group, honest) = honest(scheme);
        let mut applied = BTreeSet::new();
        for cheat in CHEATS {
            for at in 1..LOADS.len() - 1 {
                for &device in &group.devices {
                    let mut uploads = honest.clone();
                    if (cheat.alter)(&mut uploads, at, device) && uploads != honest {
                        applied.insert(cheat.name);
                        assert_found(&group, &uploads, cheat, at, device);
                    }
                }
            }
        }
        assert_eq!(applied.len(), CHEATS.len(), "a cheat was never applicable: {applied:?}");
    }
}

fn assert_found(group: &Group, uploads: &[Upload], cheat: &Cheat, at: usize, device: DeviceId) {
    let epoch = uploads[at].epoch;
    let case = format!("{cheat:?} of {device} in epoch {epoch}");
    if cheat.found_by == FoundBy::Verifier {
        let bundle = uploads[at].bundles.iter().find(|bundle| bundle.device == device).unwrap();
        let name = rows_of(&group.roster, &uploads[at], bundle).unwrap_err();
        assert!(cheat.names.contains(&name.as_str()), "{case}: {name}");
        return;
    }
    let report = audited(&group.roster, uploads, &coordinator()).unwrap();
    let of = report.epochs.iter().find(|report| report.epoch == epoch).unwrap();
    assert!(!of.is_justified, "{case}: {of:?}");
    // An audit of that epoch alone has the same result.
    let alone = audited_alone(&group.roster, uploads, at, &coordinator()).unwrap();
    let same = |one: &EpochReport| {
        (one.verdict(), one.findings.iter().map(Finding::name).collect::<BTreeSet<_>>())
    };
    let of_alone = alone.epochs.iter().find(|report| report.epoch == epoch).unwrap();
    assert_eq!(same(of_alone), same(of), "{case}, in an audit of the epoch alone: {of_alone:?}");
    // No other epoch has a finding.
    let others: Vec<_> = report.findings().filter(|(other, _)| *other != epoch).collect();
    assert!(others.is_empty(), "{case}: {others:?}");
    if cheat.found_by == FoundBy::Doubt {
        let names: Vec<_> = of.doubts.iter().map(Doubt::name).collect();
        assert!(
            cheat.names.iter().all(|name| names.contains(name)) && of.findings.is_empty(),
            "{case}: {of:?}"
        );
        assert_eq!(report.verdict(), Verdict::Undetermined, "{case}");
        return;
    }
    assert_eq!(report.verdict(), Verdict::Unjustified, "{case}: {of:?}");
    let named = of.findings.iter().find(|finding| cheat.names.contains(&finding.name()));
    let finding = named.unwrap_or_else(|| panic!("{case}: {of:?}"));
    let described = finding.describe(&group.roster);
    assert!(described.starts_with(finding.name()), "{described}");
    match finding {
        Finding::Missing { .. } | Finding::InventedSeal { .. } => {
            assert_eq!(finding.devices(), [device], "{case}");
            assert!(NAMES.iter().any(|name| described.contains(name)), "{described}");
        }
        Finding::Round { found: sample::Finding::OverBudget { round, kept, due }, .. } => {
            assert_eq!((round.0 + 1, *due), (due.0, of.due.unwrap()), "{case}");
            assert!(*kept > BUDGET && described.contains(&kept.to_string()), "{described}");
        }
        Finding::Round { found: sample::Finding::StoppedEarly { round, due, fitting }, .. } => {
            assert_eq!((round.0 - 1, *due), (due.0, of.due.unwrap()), "{case}");
            assert!(*fitting <= BUDGET && described.contains(&fitting.to_string()), "{described}");
        }
        Finding::Replayed { from, .. } => assert_eq!(from.0 + 1, epoch.0, "{case}"),
        _ => {}
    }
}

/// Finding F6 of the review. A coordinator that leaves a seal out of its manifest, and an honest one
/// that receives the seal after its manifest, upload the same bytes. So the audit cannot decide
/// between them, although the device's chain continues and both coordinators list its next seal.
#[test]
fn a_seal_that_is_left_out_and_a_late_one_are_the_same_data() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let loads = [[10, 20, 30, 20], [20, 10, 25, 30], [30, 20, 10, 20]];
        let (mut honest_group, mut group) =
            (Group::new(scheme, 10, BUDGET, 7), Group::new(scheme, 10, BUDGET, 7));
        let honest = [
            honest_group.epoch(loads[0]),
            honest_group.late_epoch(loads[1], &[2]),
            honest_group.epoch(loads[2]),
        ];
        let mut cheating = loads.map(|readings| group.epoch(readings));
        let cheat = CHEATS.iter().find(|cheat| cheat.name == "device-unlisted").unwrap();
        assert!((cheat.alter)(&mut cheating, 1, group.devices[2]));
        let uploaded = |uploads: &[Upload]| stream(uploads, &group.roster, &coordinator()).unwrap();
        assert!(uploaded(&honest) == uploaded(&cheating), "{scheme:?}: the uploads differ");
        let report = audited(&group.roster, &cheating, &coordinator()).unwrap();
        let verdicts: Vec<_> = report.epochs.iter().map(EpochReport::verdict).collect();
        assert_eq!(verdicts, ["Justified", "Undetermined", "Justified"], "{report:?}");
        let late = report.epochs[1].doubts.iter().find(|doubt| doubt.name() == "Late").unwrap();
        let text = late.describe(&group.roster);
        assert!(text.contains("arrived after the manifest, or the coordinator left it"), "{text}");
    }
}

/// A coordinator withholds everything of an epoch: the manifest and all seals. The next seal of each
/// device shows its missing seal. Without a later seal, the coordinator uploads the same bytes as an
/// honest one whose devices sealed nothing in the epoch.
#[test]
fn a_withheld_epoch_is_found_if_a_chain_continues_and_otherwise_no_data_differs() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let (mut silent_group, mut group) =
            (Group::new(scheme, 10, BUDGET, 7), Group::new(scheme, 10, BUDGET, 7));
        let mut silent = vec![silent_group.epoch(LOADS[0])];
        silent_group.silent_epoch();
        let mut cheating = vec![group.epoch(LOADS[0]), group.epoch(LOADS[1])];
        (cheating[1].withheld, cheating[1].bundles) = (true, Vec::new());
        let roster = &group.roster;
        let uploaded = |uploads: &[Upload]| stream(uploads, roster, &coordinator()).unwrap();
        assert!(uploaded(&silent) == uploaded(&cheating), "{scheme:?}: the uploads differ");
        let verdicts = |uploads: &[Upload]| -> Vec<_> {
            let report = audited(roster, uploads, &coordinator()).unwrap();
            report.epochs.iter().map(|of| (of.epoch.0 - FIRST, of.verdict())).collect()
        };
        assert_eq!(verdicts(&cheating), [(0, "Justified")]);

        silent.push(silent_group.epoch(LOADS[2]));
        assert_eq!(verdicts(&silent), [(0, "Justified"), (2, "Justified")]);
        cheating.push(group.epoch(LOADS[2]));
        let roster = &group.roster;
        let report = audited(roster, &cheating, &coordinator()).unwrap();
        let of: Vec<_> =
            report.epochs.iter().map(|of| (of.epoch.0 - FIRST, of.verdict())).collect();
        assert_eq!(of, [(0, "Justified"), (1, "Unjustified"), (2, "Justified")], "{report:?}");
        let missing = |report: &Report| -> BTreeSet<_> {
            report
                .findings()
                .inspect(|(epoch, finding)| {
                    assert_eq!((epoch.0, finding.name()), (FIRST + 1, "Missing"));
                })
                .flat_map(|(_, finding)| finding.devices())
                .collect()
        };
        assert_eq!(missing(&report), group.devices.iter().copied().collect());

        // One device falls silent as well, or the coordinator withholds its next seal, too. The other
        // devices still show the withheld epoch, and the next manifest has a doubt about this device.
        let device = group.devices[3];
        cheating[2].listed.remove(&device);
        cheating[2].bundles.retain(|bundle| bundle.device != device);
        let report = audited(roster, &cheating, &coordinator()).unwrap();
        assert_eq!(missing(&report), group.devices[..3].iter().copied().collect());
        assert_eq!(report.epochs[2].doubts, [Doubt::Absent { device, listed: false }]);
    }
}

#[test]
fn a_device_dropped_in_the_last_epoch_is_named_and_becomes_a_finding_when_its_chain_continues() {
    let (mut group, mut uploads) = honest(Scheme::Star);
    let (last, device) = (uploads.len() - 1, group.devices[1]);
    uploads[last].listed.remove(&device);
    uploads[last].bundles.retain(|bundle| bundle.device != device);
    let report = audited(&group.roster, &uploads, &coordinator()).unwrap();
    assert_eq!(report.verdict(), Verdict::Undetermined);
    assert_eq!(report.epochs[last].doubts, [Doubt::Absent { device, listed: false }]);
    uploads.push(group.epoch([50, 60, 70, 80]));
    let report = audited(&group.roster, &uploads, &coordinator()).unwrap();
    let (epoch, finding) = report.findings().next().unwrap();
    assert_eq!(
        (epoch, finding.name(), finding.devices()),
        (uploads[last].epoch, "Missing", vec![device])
    );
}

#[test]
fn a_listed_seal_that_is_missing_is_pending_until_the_coordinator_continues() {
    let (mut group, mut uploads) = honest(Scheme::Star);
    let (last, device) = (uploads.len() - 1, group.devices[2]);
    let listed = uploads[last].listed[&device][0];
    uploads[last].bundles.retain(|bundle| bundle.device != device);
    let report = audited(&group.roster, &uploads, &coordinator()).unwrap();
    assert!(
        report.epochs[last].doubts.contains(&Doubt::NotShownYet { device, digest: listed }),
        "{report:?}"
    );
    assert_eq!(report.verdict(), Verdict::Undetermined);
    // When the device's chain continues, it shows that the listed seal exists. The seal is then
    // reported as withheld.
    uploads.push(group.epoch([50, 60, 70, 80]));
    let report = audited(&group.roster, &uploads, &coordinator()).unwrap();
    let withheld = report.epochs[last]
        .doubts
        .iter()
        .any(|doubt| matches!(doubt, Doubt::Withheld { device: of, .. } if *of == device));
    assert!(withheld && report.verdict() == Verdict::Undetermined, "{report:?}");
    // If the device stays silent while the coordinator continues, nothing shows that the listed
    // seal exists.
    let uploads_without: Vec<Upload> = uploads
        .iter()
        .map(|upload| {
            let mut upload = upload.clone();
            if upload.epoch >= uploads[last].epoch {
                upload.bundles.retain(|bundle| bundle.device != device);
            }
            if upload.epoch > uploads[last].epoch {
                upload.listed.remove(&device);
            }
            upload
        })
        .collect();
    let report = audited(&group.roster, &uploads_without, &coordinator()).unwrap();
    assert!(
        report.epochs[last].findings.contains(&Finding::Unshown { device, digest: listed }),
        "{report:?}"
    );
}

#[test]
fn refuses_a_manifest_of_another_signer() {
    let (group, uploads) = honest(Scheme::Star);
    assert_eq!(audited(&group.roster, &uploads, &secret(98)).unwrap_err(), "NotAuthentic");
    assert_eq!(audited(&group.roster, &uploads, &secret(0)).unwrap_err(), "NotAuthentic");
}

#[test]
fn a_forged_round_is_ignored_and_the_epoch_stays_justified() {
    let (mut group, mut uploads) = honest(Scheme::Star);
    let epoch = EpochNumber(FIRST + LOADS.len() as u64);
    // Announcements that were signed by a stranger, by a device, and by the coordinator of another
    // group.
    let id = group.group();
    let mut other = id;
    other.0[0] ^= 1;
    for (signer, group_id, name) in [
        (secret(97), id, "NotAuthentic"),
        (secret(0), id, "NotAuthentic"),
        (coordinator(), other, "WrongGroup"),
    ] {
        let mut out = [0; MAX_ANNOUNCEMENT];
        let announcement =
            Announcement::issue(group_id, epoch, Round(9), &signer, &mut out).unwrap();
        let refused = Announcement::open(
            announcement,
            id,
            group.roster.newest_period().coordinator.as_ref().unwrap(),
        )
        .unwrap_err();
        assert_eq!(refused.name(), name);
    }
    uploads.push(group.epoch([200, 100, 300, 100]));
    assert_eq!(
        audited(&group.roster, &uploads, &coordinator()).unwrap().verdict(),
        Verdict::Justified
    );
}

/// A coordinator that announces a higher round than necessary receives fewer readings. The audit
/// finds this whichever round the manifest states.
#[test]
fn an_exaggerated_round_is_found_with_any_manifest() {
    let mut group = Group::new(Scheme::Star, 10, BUDGET, 9);
    let epoch = |(at, readings): (usize, &[u32; 4])| {
        if at == 1 {
            group.epoch_with_announced_round(*readings, Round(8))
        } else {
            group.epoch(*readings)
        }
    };
    let mut uploads: Vec<Upload> = LOADS.iter().enumerate().map(epoch).collect();
    let report = audited(&group.roster, &uploads, &coordinator()).unwrap();
    let epoch_of_cheat = uploads[1].epoch;
    let found: Vec<_> = report.findings().collect();
    assert!(
        !found.is_empty()
            && found
                .iter()
                .all(|(epoch, finding)| *epoch == epoch_of_cheat
                    && finding.name() == "RoundOverstated"),
        "{found:?}"
    );
    let Finding::Round { found: sample::Finding::RoundOverstated { round, announced }, devices } =
        found[0].1
    else {
        panic!("{found:?}")
    };
    assert!(announced > round && !devices.is_empty(), "{found:?}");
    assert!(found[0].1.describe(&group.roster).contains(&format!("round {announced}")));
    // The audit also finds the cheat if the manifest states the announced round.
    uploads[1].round = *announced;
    let report = audited(&group.roster, &uploads, &coordinator()).unwrap();
    let names: Vec<_> = report.findings().map(|(epoch, finding)| (epoch, finding.name())).collect();
    assert_eq!(names, [(epoch_of_cheat, "StoppedEarly")]);
}

/// Uploads to a cloud and audits the cloud. Also returns the name of the cloud's error if it
/// refused an upload.
async fn through_a_cloud(roster: &Roster, uploads: &[Upload]) -> (Cloud, Option<String>, Report) {
    let cloud = Cloud::serve(roster).await;
    let mut refused = None;
    for upload in uploads {
        refused = refused.or(cloud.take(roster, upload).await.err());
    }
    let report = moteseal_client::Client::new(&cloud.client, roster)
        .audit()
        .since(EpochNumber(FIRST))
        .run()
        .await
        .unwrap();
    (cloud, refused, report)
}

/// Like `every_cheat_is_reported_by_its_name`, but over HTTP: an honest cloud refuses uploads that
/// do not verify, and the audit of the other uploads names the cheat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_cheat_is_found_through_a_cloud() {
    let (group, honest) = honest(Scheme::Star);
    let (_, refused, report) = through_a_cloud(&group.roster, &honest).await;
    assert_eq!(
        (refused, report.verdict(), report.epochs.len()),
        (None, Verdict::Justified, LOADS.len()),
        "{report:?}"
    );
    assert_eq!(
        report,
        Report {
            bytes: report.bytes,
            signatures: report.signatures,
            ..audited(&group.roster, &honest, &coordinator()).unwrap()
        }
    );
    for cheat in CHEATS {
        let (at, device) = (1, group.devices[3]);
        let mut uploads = honest.clone();
        assert!((cheat.alter)(&mut uploads, at, device), "{cheat:?}");
        let case = format!("{cheat:?} of {device}");
        let (cloud, refused, report) = through_a_cloud(&group.roster, &uploads).await;
        let epoch = uploads[at].epoch;
        let of = report.epochs.iter().find(|report| report.epoch == epoch).unwrap();
        let alone = moteseal_client::Client::new(&cloud.client, &group.roster)
            .audit()
            .since(epoch)
            .until(EpochNumber(epoch.0 + 1))
            .run()
            .await
            .unwrap();
        assert_eq!(alone.epochs[0].verdict(), of.verdict(), "{case}, audited alone: {alone:?}");
        let mut names: Vec<&str> = of
            .findings
            .iter()
            .map(Finding::name)
            .chain(of.doubts.iter().map(Doubt::name))
            .collect();
        names.extend(refused.as_deref());
        assert!(!of.is_justified && report.verdict() != Verdict::Justified, "{case}: {of:?}");
        match cheat.found_by {
            // The cloud refuses a seal that is listed and exists, so the seal cannot be fetched.
            FoundBy::Verifier => {
                assert!(refused.is_some() && names.contains(&"Withheld"), "{case}: {names:?}");
            }
            // The round is too low, but the additional readings that this round keeps are missing.
            // The next test adds them with `keep_from`.
            _ if refused.as_deref() == Some("NotWhole") => assert_eq!(cheat.name, "kept-too-much"),
            _ => assert!(cheat.names.iter().any(|name| names.contains(name)), "{case}: {names:?}"),
        }
    }
}

/// A coordinator that does not announce the last round to its devices receives all readings of the
/// previous round. It can then keep the previous round with all its readings, although this round
/// is one too low.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_that_is_too_low_is_found_even_with_all_its_readings() {
    let mut group = Group::new(Scheme::Star, 10, BUDGET, 11);
    group.announces = |epoch, round| (epoch.0 != FIRST + 1).then_some(round);
    let mut uploads: Vec<Upload> = LOADS.iter().map(|readings| group.epoch(*readings)).collect();
    uploads[1].round.0 -= 1;
    let round = uploads[1].round;
    for (bundle, readings) in uploads[1]
        .bundles
        .iter_mut()
        .zip(group.devices.iter().zip(LOADS[1]).collect::<BTreeMap<_, _>>().values())
    {
        keep_from(bundle, round, *readings);
    }
    let kept: u64 = uploads[1]
        .bundles
        .iter()
        .map(|bundle| rows_of(&group.roster, &uploads[1], bundle).unwrap())
        .sum();
    assert!(kept > BUDGET, "only {kept} readings are kept");
    let (_, refused, report) = through_a_cloud(&group.roster, &uploads).await;
    assert_eq!((refused, report.verdict()), (None, Verdict::Unjustified));
    let found: Vec<_> = report.findings().collect();
    let [(epoch, finding)] = found[..] else { panic!("{found:?}") };
    assert_eq!((epoch, finding.name()), (uploads[1].epoch, "OverBudget"));
    let expected =
        format!("round {round} keeps {kept} events; the budget requires round {}", round.0 + 1);
    assert!(finding.describe(&group.roster).contains(&expected), "{finding:?}");
}

/// Replaces the bundle by one that has every level from `round` on, made from the device's
/// readings.
fn keep_from(bundle: &mut Bundle, round: Round, readings: u32) {
    let mut answer = Answer::decode(&bundle.bytes).unwrap();
    let part = answer
        .items
        .iter_mut()
        .find_map(|item| if let Item::Part(part) = item { Some(part) } else { None })
        .unwrap();
    assert_eq!((part.n, part.own_round), (readings, Round(0)), "the device forwarded all levels");
    let (salt, levels) = (Salt(part.salt), bundle.counters.levels());
    let mut blocks = vec![Vec::new(); usize::from(levels)];
    for place in 0..readings {
        blocks[usize::from(salt.level(Sequence(place.into()), levels).0)]
            .extend(place.to_be_bytes());
    }
    let digest = |level: u8| {
        let block = &blocks[usize::from(level)];
        if block.is_empty() {
            Digest::NULL
        } else {
            star::block_digest(bundle.device, bundle.index, Level(level), block)
        }
    };
    let kept: Vec<u8> =
        (round.0..levels).filter(|level| !blocks[usize::from(*level)].is_empty()).collect();
    let above = (0..kept[0]).fold(star::chain_start(), |above, level| {
        star::link(&above, bundle.counters.at(Level(level)), &digest(level))
    });
    part.digests = if kept[0] == 0 { Vec::new() } else { above.0.to_vec() };
    part.select = Select::Levels(kept.iter().fold(0, |mask, level| mask | 1 << level));
    part.events = kept.iter().rev().flat_map(|level| blocks[usize::from(*level)].clone()).collect();
    bundle.bytes = answer.encode();
}

/// The command reports findings in its output and by its exit code.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_prints_the_findings() {
    let (group, honest) = honest(Scheme::Star);
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("roster.cbor"), group.roster.bytes()).unwrap();
    let mut pem = [0; 512];
    std::fs::write(path("op.pub.pem"), encode_public_pem(&secret(98).public(), &mut pem).unwrap())
        .unwrap();
    let run = |url: &str, more: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_moteseal"));
        command.env("XDG_STATE_HOME", path("state"));
        command.current_dir(directory.path()).args([
            "audit",
            "--from",
            url,
            "--roster",
            "roster.cbor",
        ]);
        let output = command.args(["--operator", "op.pub.pem"]).args(more).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    let (cloud, ..) = through_a_cloud(&group.roster, &honest).await;
    let (code, out, stderr) = run(&cloud.url, &[]);
    assert_eq!((code, out.lines().count()), (0, LOADS.len()), "{out}{stderr}");
    let second = out.lines().nth(1).unwrap();
    assert!(
        second.contains("Justified")
            && second.contains("of 1,033 readings kept, budget 100; 4 seals of 4 devices"),
        "{out}"
    );
    assert!(stderr.contains("6 epochs justified, 0 not, 0 undetermined"), "{stderr}");
    let one = run(&cloud.url, &["--epoch", &(FIRST + 1).to_string(), "--json"]);
    let json: serde_json::Value = serde_json::from_str(&one.1).unwrap();
    assert_eq!(
        (one.0, &json["epochs"][0]["events"], &json["justified"]),
        (0, &1033.into(), &1.into()),
        "{json}"
    );
    assert_eq!(run(&cloud.url, &["--epoch", "7"]).0, 4);

    let mut dropped = honest.clone();
    assert!((CHEATS[0].alter)(&mut dropped, 1, group.devices[3]));
    let (cloud, ..) = through_a_cloud(&group.roster, &dropped).await;
    let (code, out, stderr) = run(&cloud.url, &["--json"]);
    let json: serde_json::Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    let finding = &json["epochs"][1]["findings"][0];
    assert_eq!(
        (code, &finding["name"], &finding["devices"][0]),
        (5, &"Missing".into(), &"east".into()),
        "{json}"
    );
    assert!(
        stderr.lines().last().unwrap().starts_with("moteseal: Missing: east signed seal 1"),
        "{stderr}"
    );
    // The newest manifest omits a device: the epoch is undetermined, and the device is named.
    let mut last = honest;
    assert!((CHEATS[0].alter)(&mut last, LOADS.len() - 1, group.devices[3]));
    let (cloud, ..) = through_a_cloud(&group.roster, &last).await;
    let (code, _, stderr) = run(&cloud.url, &[]);
    assert!(code == 4 && stderr.contains("Absent: east is not listed"), "{code} {stderr}");
    assert_eq!(run("http://127.0.0.1:1", &[]).0, 6);
}
