//! Writes the entries for malleable signatures (RERUM deliverable D5.3, tables 15 to 18 and 22), and the
//! comparison of all schemes. Defects of D5.3 are stated in the entry that they affect.

mod mote;

use std::path::Path;

use serde::Serialize;

use super::page::{Entry, Shown};
use super::seals::{digits, spread, time};
use super::{Out, ReportError};
use crate::latency::paper;
use crate::latency::wireless::{Medium, Protection};
use crate::redactable::{
    FIELD_BYTES, FIELDS, Measured, P192_MS, TABLE_15, TABLE_16, TABLE_17, TABLE_18, TABLE_22,
};
use crate::rerum::TABLES_19_TO_21;
use crate::seals::Spread;
use crate::table::{Table, thousands};

pub use mote::computed;

/// The command that measures and writes the entries.
const COMMAND: &str = "moteseal-bench lab --out DIRECTORY";

/// Writes data files into a folder, which is created if it does not exist, and returns the entries.
///
/// # Errors
/// [`ReportError::Write`].
pub fn write(measured: &Measured, out: &Path) -> Result<Vec<Entry>, ReportError> {
    let out = Out { folder: out };
    std::fs::create_dir_all(out.folder)
        .map_err(|cause| ReportError::Write { path: out.folder.to_owned(), cause })?;
    Ok(vec![
        sanitizable(measured, &out)?,
        on_motes(measured, &out)?,
        all(measured, &out)?,
        encryptions(measured, &out)?,
    ])
}

/// Returns the comparison of all schemes.
#[must_use]
pub fn schemes(measured: &Measured) -> Table {
    let mut table = Table::new([
        "scheme",
        "bytes of a message",
        "bytes a field",
        "sign",
        "redact",
        "verify",
        "merge",
        "hidden",
        "who redacts",
        "linkable",
    ]);
    let short = |spread: Spread| time(spread.median);
    for scheme in &measured.schemes {
        let (properties, times) = (scheme.properties, scheme.times);
        table.row([
            properties.name.to_owned(),
            thousands(scheme.bytes as u64),
            thousands(scheme.field_bytes as u64),
            short(times.sign),
            short(times.redact),
            short(times.verify),
            times.merge.map_or_else(|| "none".to_owned(), short),
            properties.hidden.to_owned(),
            properties.redactor.to_owned(),
            properties.linked.to_owned(),
        ]);
    }
    table
}

/// Returns D5.3's tables 15 to 19, 21 and 22 with our numbers.
#[must_use]
pub fn tables(measured: &Measured) -> Table {
    let mut table = Table::new(["table of D5.3", "what", "D5.3", "ours"]);
    let mut row = |number: &str, what: &str, theirs: String, ours: String| {
        table.row([number.to_owned(), what.to_owned(), theirs, ours]);
    };
    let estimates = estimates(measured);
    for (what, count, theirs) in bps12_rows() {
        let ours = estimates.map_or_else(
            || "not measured".to_owned(),
            |[sign, verify]| time(f64::from(count) * if what == "verify" { verify } else { sign }),
        );
        row("15", &format!("BPS12, {what}, estimated"), format!("{theirs} ms"), ours);
    }
    let ours = |bits: u32, of: fn(&crate::redactable::Ps14) -> Spread| {
        let found = measured.ps14.iter().find(|row| row.bits == bits);
        found.map_or_else(|| "not measured".to_owned(), |row| time(of(row).median))
    };
    let [ecdsa, signing, verifying] = TABLE_16.map(|ms| format!("{} ms", thousands(ms.into())));
    let p192 =
        measured.p192.map_or_else(|| "not measured".to_owned(), |[sign, _]| time(sign.median));
    row("16", "ECDSA on P-192, sign", ecdsa, p192);
    row("16", "PS14, sign, 245 bits", signing, ours(245, |row| row.sign));
    row("16", "PS14, verify, 245 bits", verifying, ours(245, |row| row.verify));
    for (at, interaction) in TABLE_17.into_iter().enumerate() {
        let total = interaction.transmission + interaction.signing;
        row(
            "17",
            &format!("transmission and interaction, {}", interaction.message),
            format!("{} and {} ms", interaction.transmission, thousands(total.into())),
            mote::interaction(measured, at),
        );
    }
    row(
        "18",
        "memory of PS14 on the mote",
        format!("{} bytes", thousands(memory())),
        mote::memory(measured),
    );
    for size in TABLES_19_TO_21 {
        row(
            "19 and 21",
            &format!("bytes and CoAP messages, {}", size.message),
            format!("{} and {}", size.bytes, size.messages),
            "the same".to_owned(),
        );
    }
    for ((what, [sign, verify]), ours) in TABLE_22.into_iter().zip(mote::energies(measured)) {
        row(
            "22",
            &format!("energy of {what} signatures, sign and verify"),
            format!("{sign} and {verify} Ws"),
            ours,
        );
    }
    table
}

/// The overhead of table 18, in bytes.
fn memory() -> u64 {
    let total = |(_, sections): (&str, [u32; 3])| sections.into_iter().map(u64::from).sum::<u64>();
    let [with, without] = TABLE_18.map(total);
    with - without
}

/// The rows of table 15: what is done, the number of operations and D5.3's time in milliseconds.
fn bps12_rows() -> [(&'static str, u32, u32); 3] {
    let [sign, verify] = P192_MS;
    let [signing, sanitising, verifying] = TABLE_15;
    [
        ("sign", signing, signing * sign),
        ("sanitise", sanitising, sanitising * sign),
        ("verify", verifying, verifying * verify),
    ]
}

/// Our times of ECDSA on P-192, in nanoseconds.
fn estimates(measured: &Measured) -> Option<[f64; 2]> {
    measured.p192.map(|times| times.map(|time| time.median))
}

/// A row of sanitizable.csv.
#[derive(Serialize)]
struct SanitizableRow {
    source: String,
    sign_ns: f64,
    sanitise_ns: f64,
    verify_ns: f64,
}

fn sanitizable(measured: &Measured, out: &Out<'_>) -> Result<Entry, ReportError> {
    let theirs = bps12_rows().map(|(_, _, ms)| f64::from(ms) * 1e6);
    let mut rows = vec![("D5.3, P-192, estimated".to_owned(), theirs)];
    if let Some([sign, verify]) = estimates(measured) {
        let [signing, sanitising, verifying] = TABLE_15.map(f64::from);
        let estimated = [signing * sign, sanitising * sign, verifying * verify];
        rows.push(("ours, P-192, estimated".to_owned(), estimated));
    }
    for scheme in measured.schemes.iter().filter(|row| row.properties.name.starts_with("BPS12")) {
        let times = scheme.times;
        let name = scheme.properties.name.replace("BPS12, ", "ours, ");
        let medians = [times.sign, times.redact, times.verify].map(|time| time.median);
        rows.push((format!("{name}, measured"), medians));
    }
    let csv: Vec<_> = rows
        .iter()
        .map(|(source, [sign, sanitise, verify])| SanitizableRow {
            source: source.clone(),
            sign_ns: *sign,
            sanitise_ns: *sanitise,
            verify_ns: *verify,
        })
        .collect();
    out.rows("sanitizable.csv", &csv)?;
    let mut table = Table::new(["BPS12", "sign", "sanitise", "verify"]);
    let mut ours = Vec::new();
    for (at, (source, times)) in rows.iter().enumerate() {
        let [sign, sanitise, verify] = times.map(time);
        if at > 0 {
            ours.push(format!("{}: {sign}, {sanitise}, {verify}", source.replace("ours, ", "")));
        }
        table.row([source.clone(), sign, sanitise, verify]);
    }
    let [sign, sanitise, verify] =
        bps12_rows().map(|(_, count, ms)| format!("{count} operations, {ms} ms"));
    Ok(Entry::new("rerum-table-15", "Table 15: time of a sanitizable signature, BPS12", COMMAND)
        .paper(format!("estimated: sign {sign}; sanitise {sanitise}; verify {verify}"))
        .ours(format!("sign, sanitise, verify: {}", ours.join("; ")))
        .why("D5.3 multiplies times of micro-ecc on a mote and implements nothing. Our sanitiser also \
              verifies the signature of the fixed blocks before it replaces one, which D5.3 does not \
              count. P-192 is computed here without any optimisation, P-256 with the product's \
              library.")
        .show(Shown::Table(table))
        .data("sanitizable.csv"))
}

/// A row of ps14.csv.
#[derive(Serialize)]
struct Ps14Row {
    bits: u32,
    sign_ns: f64,
    verify_ns: f64,
    sign_ratio_to_p192: f64,
    verify_ratio_to_p192: f64,
}

fn on_motes(measured: &Measured, out: &Out<'_>) -> Result<Entry, ReportError> {
    let csv: Vec<_> = measured
        .ps14
        .iter()
        .map(|row| Ps14Row {
            bits: row.bits,
            sign_ns: row.sign.median,
            verify_ns: row.verify.median,
            sign_ratio_to_p192: row.sign_ratio,
            verify_ratio_to_p192: row.verify_ratio,
        })
        .collect();
    out.rows("ps14.csv", &csv)?;
    out.rows("mote.csv", &mote::rows(measured))?;
    let mut table =
        Table::new(["PS14, two parts", "sign", "ratio to P-192", "verify", "ratio to P-192"]);
    let mut ours = Vec::new();
    for row in &measured.ps14 {
        let name = format!("{} bits", thousands(row.bits.into()));
        let [sign_ratio, verify_ratio] = [row.sign_ratio, row.verify_ratio].map(digits);
        ours.push(format!(
            "{name}: sign {}, verify {}, {sign_ratio} and {verify_ratio} times P-192",
            time(row.sign.median),
            time(row.verify.median)
        ));
        table.row([name, spread(row.sign), sign_ratio, spread(row.verify), verify_ratio]);
    }
    let [ecdsa, signing, verifying] = TABLE_16;
    let [_, ecdsa_verifying] = P192_MS;
    let ratio = |a: u32, b: u32| digits(f64::from(a) / f64::from(b));
    let [(_, [plain, _]), (_, [sign, verify])] = TABLE_22;
    ours.push(mote::summary(measured));
    Ok(Entry::new("rerum-table-16", "Tables 16 to 18 and 22: PS14 on a mote", COMMAND)
        .paper(format!(
            "sign {} ms, verify {} ms, {} and {} times P-192; transmission {} ms; {} bytes of memory; \
             energy {sign} and {verify} Ws, P-192 {plain} Ws",
            thousands(signing.into()),
            thousands(verifying.into()),
            ratio(signing, ecdsa),
            ratio(verifying, ecdsa_verifying),
            TABLE_17[2].transmission,
            thousands(memory())
        ))
        .ours(ours.join("; "))
        .why("D5.3 computes with integers of any length on a mote that has no hardware for them, and \
              its modulus has 245 bits, which one processor factors in about a minute. Ours uses a \
              square as accumulator and computes roots modulo the two primes, in constant time; D5.3 \
              does not state how it inverts exponents, whose inverses modulo phi(n) need not exist. \
              On a mote, column groups take one signature on a curve instead of powers modulo n. They \
              need more memory, because the code also encrypts and derives keys, and SHA-512 and ChaCha20 \
              are in software. D5.3 measures the transmission with all waiting times; the computed time \
              on air is that of the frames alone.")
        .replacement(
            "no RE-Mote: times of PS14 on this machine, and no PS14 on a Cortex-M3, because this \
             implementation needs a heap. Tables 17, 18 and 22 are computed for column groups: \
             from the bytes of frames at 250 kbit/s, and from instructions and bytes that are counted on a \
             Cortex-M3, with one cycle for each instruction (it needs one to a dozen) and with the power \
             of D5.3's mote, its energy divided by its time. No program of the footprint verifies a \
             part, so the hashes of verifying are not included",
        )
        .show(Shown::Table(table))
        .show(Shown::Table(tables(measured)))
        .show(Shown::Table(computed(measured)))
        .show(Shown::Text(
            "Defects of D5.3: it sends the accumulator in the message, so anyone can forge a \
             signature of any set without a key, with a modulus of any length; a test of \
             moteseal-research does so. Its text states that verifying takes 68 times the energy of \
             ECDSA; by its table 22 it is 66.8 times. Verifying takes less time than signing in table 16 \
             and more energy in table 22."
                .to_owned(),
        ))
        .data("ps14.csv")
        .data("mote.csv"))
}

/// A row of redactable.csv.
#[derive(Serialize)]
struct SchemeRow {
    scheme: &'static str,
    bytes: usize,
    bytes_a_field: usize,
    sign_ns: f64,
    redact_ns: f64,
    verify_ns: f64,
    merge_ns: Option<f64>,
}

fn all(measured: &Measured, out: &Out<'_>) -> Result<Entry, ReportError> {
    let csv: Vec<_> = measured
        .schemes
        .iter()
        .map(|scheme| SchemeRow {
            scheme: scheme.properties.name,
            bytes: scheme.bytes,
            bytes_a_field: scheme.field_bytes,
            sign_ns: scheme.times.sign.median,
            redact_ns: scheme.times.redact.median,
            verify_ns: scheme.times.verify.median,
            merge_ns: scheme.times.merge.map(|time| time.median),
        })
        .collect();
    out.rows("redactable.csv", &csv)?;
    let ours: Vec<_> = measured
        .schemes
        .iter()
        .map(|scheme| {
            let times = scheme.times;
            format!(
                "{}: {} bytes a field, {}, {}",
                scheme.properties.name,
                thousands(scheme.field_bytes as u64),
                time(times.sign.median),
                time(times.verify.median)
            )
        })
        .collect();
    Ok(Entry::new("beyond-redactable", "Redactable signatures compared", COMMAND)
        .paper(format!(
            "on a mote: PS14 sign {} ms, BPS12 412 ms (an estimate), MPPS14 like PS14 (an expectation)",
            thousands(TABLE_16[1].into())
        ))
        .ours(format!(
            "of {FIELDS} fields of {FIELD_BYTES} bytes, sign and verify: {}",
            ours.join("; ")
        ))
        .why("MPPS14 needs only hashes and one signature if nobody redacts inner nodes, and behaves \
              like PS14 only with accumulators. SD-JWT is text and repeats the digest of each claim; \
              the other sizes are those of compact encodings.")
        .show(Shown::Table(schemes(measured)))
        .data("redactable.csv"))
}

/// A row of encryptions.csv.
#[derive(Serialize)]
struct EncryptionRow {
    cipher: &'static str,
    bytes: usize,
    time_ns: f64,
}

/// Returns the comparison of encryptions of a string.
#[must_use]
pub fn strings(measured: &Measured) -> Table {
    let mut table = Table::new(["encryption of a string of 24 bytes", "bytes", "time"]);
    for row in &measured.encryptions {
        table.row([row.name.to_owned(), row.bytes.to_string(), spread(row.time)]);
    }
    table
}

fn encryptions(measured: &Measured, out: &Out<'_>) -> Result<Entry, ReportError> {
    let csv: Vec<_> = measured
        .encryptions
        .iter()
        .map(|row| EncryptionRow { cipher: row.name, bytes: row.bytes, time_ns: row.time.median })
        .collect();
    out.rows("encryptions.csv", &csv)?;
    let ours: Vec<_> = measured
        .encryptions
        .iter()
        .map(|row| format!("{} {} bytes, {}", row.name, row.bytes, time(row.time.median)))
        .collect();
    let added = |protection| {
        let of = |protection| paper::per_message(Medium::Loopback, protection).unwrap_or_default();
        digits((of(protection) - of(Protection::Plain)) * 1e3)
    };
    Ok(Entry::new(
        "beyond-encryption",
        "Encryption of a string of 24 bytes (Mishra et al., section V)",
        COMMAND,
    )
    .paper(format!(
        "AES-128-CBC once adds {} µs to the time of a message over a router, twice {} µs",
        added(Protection::Once),
        added(Protection::Twice)
    ))
    .ours(ours.join("; "))
    .why("The paper's times are those of an ESP8266, Wi-Fi included; this machine has instructions for \
          AES. CBC needs a random vector and padding for each string, and authenticates nothing. The \
          product's key stream adds no bytes to a string, because its position is the position in the \
          seal, which also authenticates it.")
    .show(Shown::Table(strings(measured)))
    .data("encryptions.csv"))
}
