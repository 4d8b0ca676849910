//! Measures the coordinator of a thousand devices on one thread: the rates of declined events, kept
//! events and events in frames, and the memory.

use std::hint::black_box;

use moteseal_core::link::{LinkKey, MAX_FRAME};
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Framing, Level, Round, SealIndex, Sequence};
use moteseal_core::roster::Directory;
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_gateway::GroupCoordinator;
use moteseal_gateway::queues::{Queues, Slot};
use moteseal_seal::level::LevelKey;
use moteseal_seal::level::Salt;
use moteseal_seal::sample::{Coordinator, Forwarder, Offer};
use moteseal_seal::wire::Uplink;
use moteseal_verify::Roster;
use moteseal_verify::issue::{Budget, FirstRoster};

use crate::load::Failed;
use crate::measure::{Bar, Contender, Report, Times, interleaved};

const DEVICES: u16 = 1000;
const LEVELS: u8 = 16;
const EPOCH: EpochNumber = EpochNumber(500_000);
const MILLION: usize = 1_000_000;
const GROUP_SECRET: [u8; 32] = [0x6b; 32];
/// Bytes of records and their heads per frame: 64 events of 4 bytes, each with a head of 1 byte.
const FRAME_EVENTS: usize = 64 * 5;
const RECORD: [u8; 4] = *b"read";

pub(crate) fn run() -> Result<Report, Failed> {
    let mut report = Report::new(format!(
        "the coordinator of {DEVICES} devices, one thread, records of 4 bytes, medians of 7 interleaved runs"
    ));
    let key = LevelKey::new(&Salt(*b"0123456789abcdef"));
    let offers: Vec<(Slot, Level, Sequence)> = (0..MILLION as u64)
        .map(|i| {
            (
                Slot((i % u64::from(DEVICES)) as u32),
                key.level(i, LEVELS),
                Sequence(i / u64::from(DEVICES)),
            )
        })
        .collect();
    let group = Group::new()?;
    let frames = group.frames()?;
    let events = frames.len() * 64;
    let (ample, tight) = (group.coordinator(2 * MILLION as u64)?, group.coordinator(100_000)?);
    let mut contenders = [
        // At a round that equals the number of levels, the coordinator declines every event.
        Contender::new(MILLION, || black_box(offered(&offers, LEVELS, 100_000)).check(0)),
        Contender::new(MILLION, || {
            black_box(offered(&offers, 0, MILLION as u64)).check(MILLION as u64);
        }),
        Contender::new(MILLION, || black_box(offered(&offers, 0, 100_000)).check(0)),
        Contender::new(events, || receive(&ample, &frames)),
        Contender::new(events, || receive(&tight, &frames)),
    ];
    let times = interleaved(7, &mut contenders);
    let rate = |times: &Times, contender| 1e3 / times.nanoseconds(contender);
    report.add("offered and declined, a second", rate(&times, 0), "M", Bar::AtLeast(100.0));
    report.add("offered and kept, a second", rate(&times, 1), "M", Bar::AtLeast(15.0));
    report.add("offered at a budget of 100,000, a second", rate(&times, 2), "M", None);
    report.add(
        "in authenticated frames of 64, all kept, a second",
        rate(&times, 3),
        "M",
        Bar::AtLeast(4.0),
    );
    report.add(
        "the same at a budget of 100,000, a second",
        rate(&times, 4),
        "M",
        Bar::AtLeast(4.0),
    );
    let full = offered(&offers[..100_000], 0, 100_000);
    #[allow(clippy::cast_precision_loss)]
    let overhead = (full.queues.memory() - 100_000 * RECORD.len()) as f64 / 1e5;
    report.add("memory without the record, an event of 100,000", overhead, "B", Bar::AtMost(32.0));
    Ok(report)
}

/// The coordinator and its queues after all events have been offered.
struct Outcome {
    coordinator: Coordinator,
    queues: Queues,
}

impl Outcome {
    /// Panics if the number of kept events shows that a different case was measured.
    fn check(&self, least: u64) {
        assert!(
            self.coordinator.kept() >= least
                && self.coordinator.kept() <= self.coordinator.budget()
        );
    }
}

fn offered(offers: &[(Slot, Level, Sequence)], round: u8, budget: u64) -> Outcome {
    let (mut coordinator, mut queues) = (Coordinator::new(LEVELS, budget), Queues::new(LEVELS));
    for level in coordinator.settle(Round(round)) {
        queues.forget(Level(level));
    }
    for &(slot, level, seq) in offers {
        match coordinator.offer(level) {
            Offer::Declined => {}
            Offer::Kept => keep(&mut queues, slot, level, seq),
            Offer::Raised(levels) => {
                levels.clone().for_each(|level| queues.forget(Level(level)));
                if level.0 >= levels.end {
                    keep(&mut queues, slot, level, seq);
                }
            }
        }
    }
    Outcome { coordinator, queues }
}

fn keep(queues: &mut Queues, slot: Slot, level: Level, seq: Sequence) {
    assert!(queues.keep(slot, level, seq, &RECORD).is_ok(), "a million small events fit");
}

/// The group, with its keys.
struct Group {
    operator: SecretKey,
    names: Vec<String>,
    secrets: Vec<SecretKey>,
}

impl Group {
    fn new() -> Result<Self, Failed> {
        let secret = |device: u16| {
            let mut seed = [7; 32];
            seed[..2].copy_from_slice(&device.to_be_bytes());
            SecretKey::from_seed(Algorithm::Ed25519, &seed)
        };
        Ok(Self {
            operator: secret(DEVICES)?,
            names: (0..DEVICES).map(|device| format!("dev{device}")).collect(),
            secrets: (0..DEVICES).map(secret).collect::<Result<_, _>>()?,
        })
    }

    fn roster(&self, budget: u64) -> Result<Roster, Failed> {
        let keys: Vec<_> = self
            .names
            .iter()
            .map(String::as_str)
            .zip(self.secrets.iter().map(SecretKey::public))
            .collect();
        let budget = Some(Budget { events: budget, coordinator: self.operator.public() });
        let group = FirstRoster {
            group: "fleet",
            epoch_ms: 3_600_000,
            levels: LEVELS,
            budget,
            devices: &keys,
        };
        Ok(Roster::open(&group.issue(&self.operator)?, &self.operator.public())?)
    }

    /// Returns a coordinator that has the schemas of all devices.
    fn coordinator(&self, budget: u64) -> Result<GroupCoordinator, Failed> {
        let roster = self.roster(budget)?;
        let coordinator = GroupCoordinator::new(roster.clone(), GROUP_SECRET);
        let mut coordinator = coordinator.ok_or("the group has no budget")?;
        for device in roster.devices() {
            let link = LinkKey::new(&LinkKey::secret_of(&GROUP_SECRET, roster.group(), device.id));
            let _ =
                coordinator.receive(&schema_frame(device.id, &link, &["reading::u32"])?, EPOCH)?;
        }
        Ok(coordinator)
    }

    /// Returns ten frames of each device, in turn, before a round is announced.
    fn frames(&self) -> Result<Vec<Vec<u8>>, Failed> {
        let roster = self.roster(1)?;
        let framing = Framing::fixed(RECORD.len()).ok_or("the record size is invalid")?;
        let mut devices: Vec<Vec<Vec<u8>>> = Vec::new();
        for (device, number) in roster.devices().zip(0u64..) {
            let key = LevelKey::new(&Salt((u128::from(number) + 1).to_be_bytes()));
            let link = LinkKey::new(&LinkKey::secret_of(&GROUP_SECRET, roster.group(), device.id));
            let mut forwarder = Forwarder::<{ 1 << 14 }>::new(
                SealIndex(0),
                EPOCH,
                (Scheme::Star, framing),
                LEVELS,
                Round(0),
            );
            for seq in 0..640 {
                let _ = forwarder.note(key.level(seq, LEVELS), &RECORD);
            }
            let (mut scratch, mut out, mut frames) =
                ([0; FRAME_EVENTS], vec![0; MAX_FRAME], Vec::new());
            while let Some(forward) = forwarder.next_frame(&mut scratch)? {
                assert_eq!(forward.events().count(), 64);
                frames.push(Uplink::Forward(forward).close(device.id, &link, &mut out)?.to_vec());
            }
            assert_eq!(frames.len(), 10);
            devices.push(frames);
        }
        Ok((0..10)
            .flat_map(|turn| devices.iter().map(move |frames| frames[turn].clone()))
            .collect())
    }
}

/// Returns a frame of a device with a schema.
pub(crate) fn schema_frame(
    device: DeviceId,
    link: &LinkKey,
    columns: &[&str],
) -> Result<Vec<u8>, Failed> {
    let fields = columns.iter().map(|column| Field::parse(column));
    let mut buffer = [0; MAX_SCHEMA];
    let schema = Schema::encode(&fields.collect::<Result<Vec<_>, _>>()?, &mut buffer)?;
    let mut out = vec![0; MAX_FRAME];
    Ok(Uplink::Schema(schema.as_bytes()).close(device, link, &mut out)?.to_vec())
}

/// Receives all frames with a copy of a coordinator.
fn receive(coordinator: &GroupCoordinator, frames: &[Vec<u8>]) {
    let mut coordinator = coordinator.clone();
    for frame in frames {
        assert!(
            coordinator.receive(frame, EPOCH).is_ok_and(|news| news.durable),
            "every frame is new"
        );
    }
    let budget = coordinator.roster().budget(EPOCH).unwrap_or_default();
    assert!(
        coordinator.kept(EPOCH) > budget / 4 && coordinator.kept(EPOCH) <= budget,
        "{} of {budget}",
        coordinator.kept(EPOCH)
    );
    black_box(&coordinator);
}
