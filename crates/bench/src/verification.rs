//! Measures the cost of verifying a million readings of many devices, from the bytes of a response
//! in memory to verified rows and to Arrow. It measures all readings and an eighth of them, on one
//! thread and on two.
//!
//! The responses are fetched from a cloud over HTTP before the measurement. One thread is measured
//! by its processor time, and several threads by the wall clock, which includes the time of other
//! programs.

use std::hint::black_box;
use std::io;
use std::num::NonZero;
use std::time::Instant;

use bytes::Bytes;
use moteseal_api::{CBOR_SEQ, JSON, Query, paths};
use moteseal_client::output::{Format, OutputError, Writer};
use moteseal_client::{PIECE, Report as Verified, Rows, Session, Sink};
use moteseal_core::cbor::item_length;
use moteseal_core::record::EpochNumber;
use moteseal_core::record::Scheme;
use moteseal_lanes::Host;
use moteseal_net::{Client, Options};
use moteseal_seal::Follower;
use moteseal_seal::engine::Engine as _;
use moteseal_seal::follow::{Limits, Place, Shape, Stride};
use moteseal_seal::sample::{Choice, Rate};
use moteseal_seal::stream::{Item, Part};
use moteseal_verify::{Roster, SchemaEntry};

use crate::hashing::dependent_compressions;
use crate::load::{Failed, Fleet, Service, requests, upload};
use crate::measure::{Bar, Contender, Report, interleaved, median};

/// Number of interleaved repetitions of each measurement.
const RUNS: usize = 11;
/// Number of bytes of a response that a session processes in one call.
const CHUNK: usize = PIECE;
/// The maximum size of a response, in bytes.
const MAX_ANSWER: usize = 256 << 20;

/// The devices and seals of a measurement.
struct Population {
    title: &'static str,
    devices: u16,
    epochs: u64,
    /// Readings per seal, of 4 bytes each.
    readings: u32,
    /// Whether verification of the complete response has a bar, in D per event.
    is_bar: bool,
}

const POPULATIONS: [Population; 5] = [
    Population {
        title: "1,000 devices, a seal of 1,000 readings each, one signature per seal",
        devices: 1000,
        epochs: 1,
        readings: 1000,
        is_bar: false,
    },
    Population {
        title: "1,000 devices, 4 seals of 250 readings each, one signature for the four",
        devices: 1000,
        epochs: 4,
        readings: 250,
        is_bar: false,
    },
    Population {
        title: "13 devices, 256 seals of 298 readings each, a signature for 64",
        devices: 13,
        epochs: 256,
        readings: 298,
        is_bar: true,
    },
    Population {
        title: "13 devices, 64 seals of 1,200 readings each, a signature for 64",
        devices: 13,
        epochs: 64,
        readings: 1_200,
        is_bar: true,
    },
    Population {
        title: "13 devices, 16 seals of 4,800 readings each, a signature for 16",
        devices: 13,
        epochs: 16,
        readings: 4_800,
        is_bar: true,
    },
];

/// A received response, and its query.
struct Answer<'r> {
    roster: &'r Roster,
    query: Query,
    bytes: Vec<u8>,
    /// Number of events that the response's seals cover.
    events: usize,
}

impl<'r> Answer<'r> {
    fn verify(&self, threads: NonZero<usize>, sink: &mut dyn Sink) -> Verified {
        let mut session = Session::new(self.roster, self.query.clone(), None).with_threads(threads);
        for chunk in self.bytes.chunks(CHUNK) {
            session.feed(chunk, sink).expect("the answer is a cloud's own");
        }
        session.finish(sink).expect("the answer is whole").0
    }

    /// Verifies the response without reading a row.
    fn verified(&self, threads: NonZero<usize>) {
        let report = self.verify(threads, &mut |_: &Rows<'_>| Ok::<(), OutputError>(()));
        assert_eq!(usize::try_from(report.events()), Ok(self.events));
    }

    /// Verifies the response and reads each row.
    fn rows(&self, threads: NonZero<usize>) {
        let mut sum = 0_u64;
        self.verify(threads, &mut |rows: &Rows<'_>| {
            rows.for_each(|seq, _, record| sum += seq.0 + u64::from(record[3]));
            Ok::<(), OutputError>(())
        });
        black_box(sum);
    }

    /// Verifies the response and converts its rows to an Arrow stream, which is discarded.
    fn arrow(&self, threads: NonZero<usize>) {
        let mut writer = Writer::new(Format::Arrow, io::sink());
        self.verify(threads, &mut writer);
        writer.finish().expect("discarding cannot fail");
    }
}

pub(crate) fn run() -> Result<Report, Failed> {
    let folder = tempfile::tempdir_in(
        std::env::current_exe()?.parent().ok_or("this program is in no folder")?,
    )?;
    let mut report = Report::new(format!(
        "verification of many devices, from an answer in memory; host loops: {}; D = one dependent SHA-256 compression; medians of \
         {RUNS} interleaved runs",
        Host::detect().name()
    ));
    for (population, number) in POPULATIONS.iter().zip(0..) {
        let folder = folder.path().join(format!("{number}"));
        std::fs::create_dir_all(&folder)?;
        let mut fleet = Fleet::new(population.devices.into(), Scheme::Star)?;
        fleet.write(&folder)?;
        let service = Service::start(&folder, false)?;
        let first = fleet.next_epoch();
        let bundles: Vec<_> =
            fleet.seal(population.epochs, population.readings)?.into_iter().flatten().collect();
        upload(&service.address, &[requests(&bundles, 500)])?;
        let range = (first, first + population.epochs);
        for (name, rate) in [("all", Rate::ALL), ("an eighth", "1/8".parse()?)] {
            let answer = fetch(
                &fleet.roster,
                &service,
                range,
                rate,
                bundles.len() * population.readings as usize,
            )?;
            report.add(
                format!("{}: {name}, bytes", population.title),
                answer.bytes.len() as f64 / 1e6,
                "MB",
                None,
            );
            measure(&answer, population.is_bar && rate == Rate::ALL, &mut report);
        }
    }
    Ok(report)
}

/// Queries the service for all devices.
fn fetch<'r>(
    roster: &'r Roster,
    service: &Service,
    (since, until): (u64, u64),
    rate: Rate,
    events: usize,
) -> Result<Answer<'r>, Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = Client::new(&format!("http://{}", service.address), &Options::default())?;
    let devices = roster.devices().map(|device| device.id).collect();
    let (since, until) = (EpochNumber(since), Some(EpochNumber(until)));
    let query = Query { devices, since, until, choice: Choice::Rate(rate), columns: Vec::new() };
    let body = Bytes::from(query.to_json());
    let bytes = runtime.block_on(async {
        client.post(paths::QUERY, JSON, body).await?.expect(CBOR_SEQ)?.bytes(MAX_ANSWER).await
    })?;
    Ok(Answer { roster, query, bytes, events })
}

/// A decoded part, its position, and its schema.
struct Placed<'a> {
    place: Place,
    part: Part<'a>,
    shape: Shape<'static>,
}

/// Decodes the parts of a response.
fn parts<'a>(follower: &mut Follower<'_, Roster, Host>, mut bytes: &'a [u8]) -> Vec<Placed<'a>> {
    let (mut parts, mut place, mut shape) = (Vec::new(), None, None);
    while !bytes.is_empty() {
        let length = item_length(bytes).expect("the answer is whole");
        match Item::decode_whole(&bytes[..length]).expect("the answer is a cloud's own") {
            Item::Schema(schema) => {
                let SchemaEntry { digest, framing, .. } =
                    SchemaEntry::decode(schema).expect("a cloud's own");
                shape = Some(Shape::new(digest, framing));
            }
            Item::Open(open) => {
                follower.open(&open, |_| None).expect("the answer is a cloud's own");
                place = follower.place();
            }
            Item::Part(part) => {
                let (here, shape) = (
                    place.expect("an open item came before"),
                    shape.expect("a schema came before"),
                );
                place = Some(
                    follower
                        .place_after(&here, Stride::of(&part))
                        .expect("the answer is a cloud's own"),
                );
                parts.push(Placed { place: here, part, shape });
            }
            _ => {}
        }
        bytes = &bytes[length..];
    }
    parts
}

/// Measures one response on one thread, then on two.
fn measure<'r>(answer: &Answer<'r>, is_bar: bool, report: &mut Report) {
    const ONE: NonZero<usize> = NonZero::<usize>::MIN;
    const TWO: NonZero<usize> = NonZero::new(2).expect("two is not zero");
    let mut follower = Follower::new(answer.roster, Host::detect(), Limits::default());
    let parts = parts(&mut follower, &answer.bytes);
    let events = answer.events;
    let mut contenders = [
        dependent_compressions(),
        Contender::new(events, || answer.verified(ONE)),
        Contender::new(events, || answer.rows(ONE)),
        Contender::new(events, || answer.arrow(ONE)),
        Contender::new(events, || {
            for parts in parts.chunks(16) {
                let prepared = parts
                    .iter()
                    .map(|Placed { place, part, shape }| follower.prepare(place, part, shape));
                let mut prepared =
                    prepared.collect::<Result<Vec<_>, _>>().expect("the answer is a cloud's own");
                follower.compute_roots(&mut prepared.iter_mut());
                black_box(prepared);
            }
        }),
        Contender::new(events, || {
            for Placed { part, .. } in &parts {
                black_box(follower.engine().counters(
                    &part.salt,
                    answer.roster.newest_period().levels,
                    part.n,
                ));
            }
        }),
    ];
    let times = interleaved(RUNS, &mut contenders);
    report.add(
        "  verified, an event that the seals cover",
        times.ratio(1, 0),
        "D",
        is_bar.then_some(Bar::AtMost(0.15)),
    );
    report.add(
        "    its levels and roots alone, sixteen seals at a time",
        times.ratio(4, 0),
        "D",
        None,
    );
    report.add("      its levels alone", times.ratio(5, 0), "D", None);
    report.add("  and each row read", times.ratio(2, 0), "D", None);
    report.add("  and converted to Arrow", times.ratio(3, 0), "D", None);
    let names = ["verified", "and each row read", "and converted to Arrow"];
    let works: [fn(&Answer<'r>, NonZero<usize>); 3] =
        [Answer::verified, Answer::rows, Answer::arrow];
    for ((name, work), place) in names.into_iter().zip(works).zip(0..) {
        let (mut ratios, mut both) = (Vec::new(), Vec::new());
        for run in 0..=RUNS {
            let [one, two] = [ONE, TWO].map(|threads| {
                let start = Instant::now();
                work(answer, threads);
                start.elapsed().as_secs_f64()
            });
            if run > 0 {
                ratios.push(one / two);
                both.push(two * 1e3);
            }
        }
        report.add(format!("  on two threads, {name}"), median(both), "ms", None);
        let bar = (place == 2).then_some(Bar::AtLeast(1.5));
        report.add("    faster than on one, by wall-clock time", median(ratios), "x", bar);
    }
}
