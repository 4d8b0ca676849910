//! `moteseal-bench redactable`: measures the malleable signatures of the RERUM project's deliverable
//! D5.3 (tables 15 to 17), SD-JWT, column groups, and the encryption of short strings (Mishra et al.,
//! section V). Prints the comparison of all schemes, and D5.3's numbers next to ours. Those of a mote are
//! computed from the footprint on a Cortex-M3.

mod encryption;
mod own;
mod schemes;

use std::hint::black_box;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use chacha20::ChaCha12Rng;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_lab::chance::Seed;
use moteseal_lab::redactable::{FIELD_BYTES, FIELDS, Measured, Properties, Ps14, Scheme, Times};
use moteseal_lab::report::redactable as report;
use moteseal_lab::seals::Spread;
use moteseal_lab::seals::footprint::Footprint;
use moteseal_research::redactable::accumulator::Trapdoor;
use moteseal_research::redactable::{moduli, mpps14_accumulated, ps14};
use moteseal_research::secp192r1;
use rand_core::SeedableRng;

use crate::lab::{FOOTPRINT, read_footprint};
use crate::measure::{Contender, interleaved};
use crate::rerum;
use crate::seals::extremes;
use own::{OWN, Own};
use schemes::{Accumulated, Bps12, Hashed, Redactable, SdJwt, Set};

/// The arguments of `moteseal-bench redactable`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print Markdown instead of aligned columns
    #[arg(long)]
    markdown: bool,
    /// Measure as little as possible, as a check of the program. The times are then meaningless
    #[arg(long)]
    quick: bool,
    /// The file of instructions counted on a Cortex-M3
    #[arg(long, value_name = "FILE", default_value = FOOTPRINT)]
    footprint: PathBuf,
}

/// The amount of measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Number of repetitions over which the median is taken.
    repetitions: usize,
    /// Number of operations per repetition that take microseconds; one twentieth of it for
    /// operations that take milliseconds.
    count: usize,
}

impl Effort {
    /// The effort of `make lab`. It takes about half a minute.
    pub(crate) const FULL: Self = Self { repetitions: 9, count: 60 };
    /// The smallest effort that produces every row.
    pub(crate) const QUICK: Self = Self { repetitions: 1, count: 1 };

    fn slow(self) -> usize {
        self.count.div_ceil(20)
    }
}

/// Runs the measurements and prints them.
pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    let effort = if arguments.quick { Effort::QUICK } else { Effort::FULL };
    let measured = read_footprint(&arguments.footprint)
        .and_then(|footprint| measure(footprint, effort, &mut |step| eprintln!("{step}")));
    match measured {
        Ok(measured) => {
            for table in [
                report::schemes(&measured),
                report::tables(&measured),
                report::computed(&measured),
                report::strings(&measured),
            ] {
                let text = if arguments.markdown { table.markdown() } else { table.to_string() };
                println!("{text}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("moteseal-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all measurements. The result also has the given counts on a Cortex-M3.
pub(crate) fn measure(
    footprint: Option<Footprint>,
    effort: Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Measured, String> {
    progress("malleable signatures");
    let schemes = all(effort)?;
    progress("malleable signatures of a mote's message");
    let (p192, ps14) = of_a_mote(effort)?;
    let [unsigned, signed] = rerum::plain()?;
    let sent = Some([unsigned, signed, rerum::send(own::of_a_mote()?.into())?]);
    progress("encryption of short strings");
    let encryptions = encryption::measure(effort)?;
    Ok(Measured { p192: Some(p192), ps14, schemes, encryptions, sent, footprint })
}

/// Returns the moduli of the measurements.
fn trapdoors() -> Result<[Trapdoor; 3], String> {
    let known =
        |trapdoor: Result<Trapdoor, _>| trapdoor.map_err(|error| format!("no modulus: {error}"));
    Ok([known(moduli::d5_3())?, known(moduli::bits_2048())?, known(moduli::bits_3072())?])
}

/// Measures signing and verifying of two parts, with ECDSA on P-192 for comparison.
fn of_a_mote(effort: Effort) -> Result<([Spread; 2], Vec<Ps14>), String> {
    let failed = |error: ps14::Refused| format!("PS14: {error}");
    let parts: [&[u8]; 2] = [b"27,", b"4556"];
    let key = secp192r1::SecretKey::from_bytes(&[7; 24]).ok_or("no key of P-192")?;
    let signature = key.sign(b"27,4556");
    let mut cases = Vec::new();
    for trapdoor in trapdoors()? {
        let key = ps14::SecretKey::generate(trapdoor, &mut rng());
        let signed = key.sign(&[7; ps14::TAG], parts).map_err(failed)?;
        key.public().verify(&signed).map_err(failed)?;
        cases.push((key, signed));
    }
    let count = effort.slow();
    let mut contenders = vec![
        Contender::new(count, || {
            for _ in 0..count {
                black_box(key.sign(b"27,4556"));
            }
        }),
        Contender::new(count, || {
            for _ in 0..count {
                assert!(key.public().verify(b"27,4556", black_box(&signature)));
            }
        }),
    ];
    for (key, signed) in &cases {
        contenders.push(Contender::new(count, move || {
            for _ in 0..count {
                let _ = black_box(key.sign(&[7; ps14::TAG], parts));
            }
        }));
        contenders.push(Contender::new(count, move || {
            for _ in 0..count {
                let _ = black_box(key.public().verify(black_box(signed)));
            }
        }));
    }
    let times = interleaved(effort.repetitions, &mut contenders);
    let rows = (1..).zip(&cases).map(|(at, (key, _))| Ps14 {
        bits: key.public().modulus().bits(),
        sign: extremes(&times, 2 * at),
        verify: extremes(&times, 2 * at + 1),
        sign_ratio: times.ratio(2 * at, 0),
        verify_ratio: times.ratio(2 * at + 1, 1),
    });
    Ok(([extremes(&times, 0), extremes(&times, 1)], rows.collect()))
}

/// Returns a generator with a fixed seed.
fn rng() -> ChaCha12Rng {
    SeedableRng::from_seed(Seed::default().derive("redactable", 0).0)
}

fn p256(byte: u8) -> Result<SecretKey, String> {
    SecretKey::from_seed(Algorithm::Esp256, &[byte; 32]).map_err(|error| format!("no key: {error}"))
}

/// Measures all schemes. They take turns within each repetition.
fn all(effort: Effort) -> Result<Vec<Scheme>, String> {
    let [short, middle, long] = trapdoors()?;
    let set = |trapdoor| Set(ps14::SecretKey::generate(trapdoor, &mut rng()));
    let p192 = |byte| secp192r1::SecretKey::from_bytes(&[byte; 24]).ok_or("no key of P-192");
    let tree = mpps14_accumulated::SecretKey::generate(middle.clone(), p256(3)?, &mut rng());
    let (slow, fast) = (effort.slow(), effort.count);
    let cases = [
        Case::new(set(short), schemes::PS14[0], slow)?,
        Case::new(set(middle), schemes::PS14[1], slow)?,
        Case::new(set(long), schemes::PS14[2], slow)?,
        Case::new(Bps12::new(p192(3)?, p192(5)?), schemes::BPS12[0], slow)?,
        Case::new(Bps12::new(p256(3)?, p256(5)?), schemes::BPS12[1], fast)?,
        Case::new(Hashed(p256(3)?), schemes::MPPS14[0], fast)?,
        Case::new(Accumulated(tree), schemes::MPPS14[1], slow)?,
        Case::new(SdJwt(p256(3)?), schemes::SD_JWT, fast)?,
        Case::new(Own::new(Algorithm::Esp256)?, OWN[0], fast)?,
        Case::new(Own::new(Algorithm::Ed25519)?, OWN[1], fast)?,
    ];
    let mut contenders = Vec::new();
    let mut places = Vec::new();
    for case in &cases {
        let start = contenders.len();
        for run in &case.runs {
            contenders.push(Contender::new(case.count, move || {
                for _ in 0..case.count {
                    run();
                }
            }));
        }
        places.push(start);
    }
    let times = interleaved(effort.repetitions, &mut contenders);
    drop(contenders);
    let row = |(case, at): (&Case, usize)| Scheme {
        properties: case.properties,
        bytes: case.bytes,
        field_bytes: case.field_bytes,
        times: Times {
            sign: extremes(&times, at),
            redact: extremes(&times, at + 1),
            verify: extremes(&times, at + 2),
            merge: (case.runs.len() > 3).then(|| extremes(&times, at + 3)),
        },
    };
    Ok(cases.iter().zip(places).map(row).collect())
}

/// A scheme with its prepared messages.
struct Case {
    properties: Properties,
    bytes: usize,
    field_bytes: usize,
    count: usize,
    /// Signs, redacts, verifies, and merges if the scheme can.
    runs: Vec<Box<dyn Fn()>>,
}

impl Case {
    /// Prepares a scheme, and checks that every operation succeeds.
    fn new<S: Redactable + 'static>(
        scheme: S,
        properties: Properties,
        count: usize,
    ) -> Result<Self, String> {
        let failed = |error| format!("{}: {error}", properties.name);
        let signed = scheme.sign(FIELDS).map_err(failed)?;
        let twice = scheme.sign(2 * FIELDS).map_err(failed)?;
        let (without_last, without_first) = (
            scheme.redact(&signed, FIELDS - 1).map_err(failed)?,
            scheme.redact(&signed, 0).map_err(failed)?,
        );
        for message in [&signed, &twice, &without_last, &without_first] {
            scheme.verify(message).map_err(failed)?;
        }
        let merged = scheme.merge(&without_last, &without_first).transpose().map_err(failed)?;
        if let Some(merged) = &merged {
            scheme.verify(merged).map_err(failed)?;
        }
        let bytes = scheme.length(&signed);
        let field_bytes = (scheme.length(&twice) - bytes) / FIELDS - FIELD_BYTES;
        let scheme = Rc::new((scheme, signed, without_last, without_first));
        #[allow(clippy::type_complexity)]
        let run = |operation: fn(&(S, S::Signed, S::Signed, S::Signed))| -> Box<dyn Fn()> {
            let scheme = Rc::clone(&scheme);
            Box::new(move || operation(black_box(&scheme)))
        };
        let mut runs = vec![
            run(|(scheme, ..)| drop(black_box(scheme.sign(FIELDS)))),
            run(|(scheme, signed, ..)| drop(black_box(scheme.redact(signed, FIELDS - 1)))),
            run(|(scheme, signed, ..)| drop(black_box(scheme.verify(signed)))),
        ];
        if merged.is_some() {
            runs.push(run(|(scheme, _, one, other)| drop(black_box(scheme.merge(one, other)))));
        }
        Ok(Self { properties, bytes, field_bytes, count, runs })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use moteseal_lab::health::fits_frame;

    use super::*;

    fn docs(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
    }

    fn documented() -> String {
        std::fs::read_to_string(docs("redactable.md")).unwrap()
    }

    #[test]
    fn what_is_computed_for_a_mote_is_that_of_the_documentation() {
        let footprint = read_footprint(&docs("footprint.csv")).unwrap();
        assert!(footprint.is_some());
        let [unsigned, signed] = rerum::plain().unwrap();
        let sent = [unsigned, signed, rerum::send(own::of_a_mote().unwrap().into()).unwrap()];
        for message in sent {
            assert!(fits_frame(message.transfer.longest), "{message:?}");
        }
        let measured = Measured { sent: Some(sent), footprint, ..Measured::default() };
        let (computed, tables) = (report::computed(&measured), report::tables(&measured));
        let is_of_a_mote = |row: &&Vec<String>| {
            ["17", "18", "19 and 21", "22"].contains(&row.first().unwrap().as_str())
        };
        let rows: Vec<_> =
            computed.rows().iter().chain(tables.rows().iter().filter(is_of_a_mote)).collect();
        assert_eq!(rows.len(), 3 + 3 + 1 + 3 + 2);
        let documented = documented();
        for row in rows {
            let row = format!("| {} |", row.join(" | "));
            assert!(documented.contains(&row), "docs/redactable.md has no row {row}");
        }
    }

    #[test]
    fn every_scheme_is_measured_and_its_sizes_are_those_of_the_documentation() {
        let measured = measure(None, Effort::QUICK, &mut |_| {}).unwrap();
        let sizes: Vec<_> = measured
            .schemes
            .iter()
            .map(|scheme| (scheme.properties.name, scheme.bytes, scheme.field_bytes))
            .collect();
        let documented = documented();
        assert_eq!(sizes.len(), 10);
        for (name, bytes, field) in sizes {
            let number = |number: usize| moteseal_lab::table::thousands(number as u64);
            let row = format!("| {name} | {} | {} | ", number(bytes), number(field));
            assert!(documented.contains(&row), "docs/redactable.md has no row {row}");
        }
        let merging = measured.schemes.iter().filter(|scheme| scheme.times.merge.is_some());
        assert_eq!(merging.count(), 8);
        let bytes: Vec<_> = measured.encryptions.iter().map(|row| row.bytes).collect();
        assert_eq!(bytes, [48, 80, 24, 24]);
    }
}
