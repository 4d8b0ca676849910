//! Writes the entries for signed readings and DTLS on motes (RERUM deliverable D5.3, tables 7 to 9,
//! 19 to 21 and 23 to 25), compared with its numbers. Defects of D5.3 are stated in the entry that
//! they affect.

use std::path::Path;

use serde::Serialize;

use super::page::{Entry, Shown};
use super::seals::{digits, spread, time};
use super::{Out, ReportError};
use crate::rerum::{
    self, CLIENT, ESTIMATE, Measured, TABLE_8, TABLE_9, TABLE_23, TABLE_24, TABLE_25,
    TABLES_19_TO_21,
};
use crate::table::{Table, rounded, thousands};

/// The command that measures and writes the entries.
const COMMAND: &str = "moteseal-bench lab --out DIRECTORY";
/// The parts of the footprint with a signature of the product's suites.
const SIGNERS: [(&str, &str); 2] = [("Ed25519", "Ed25519, signing"), ("P-256", "P-256, signing")];

/// Writes data files into a folder, which is created if it does not exist, and returns the entries.
///
/// # Errors
/// [`ReportError::Write`].
pub fn write(measured: &Measured, out: &Path) -> Result<Vec<Entry>, ReportError> {
    let out = Out { folder: out };
    std::fs::create_dir_all(out.folder)
        .map_err(|cause| ReportError::Write { path: out.folder.to_owned(), cause })?;
    Ok(vec![
        signing(measured, &out)?,
        memory(measured, &out)?,
        sizes(measured, &out)?,
        objects(measured, &out)?,
        handshakes(measured, &out)?,
    ])
}

impl Measured {
    /// Returns a count on a Cortex-M3 as text.
    fn counted(&self, part: &str, what: &str) -> String {
        self.number(part, what)
            .map_or_else(|| "not counted".to_owned(), |number| thousands(rounded(number)))
    }

    fn number(&self, part: &str, what: &str) -> Option<f64> {
        self.footprint.as_ref()?.number(part, what)
    }
}

/// A row of signing.csv.
#[derive(Serialize)]
struct SigningRow {
    suite: &'static str,
    signed_ns: f64,
    opened_ns: f64,
    ratio_to_p192: f64,
}

fn signing(measured: &Measured, out: &Out<'_>) -> Result<Entry, ReportError> {
    let rows = &measured.signing;
    let csv: Vec<_> = rows
        .iter()
        .map(|row| SigningRow {
            suite: row.suite,
            signed_ns: row.signed.median,
            opened_ns: row.opened.median,
            ratio_to_p192: row.ratio,
        })
        .collect();
    out.rows("signing.csv", &csv)?;
    let mut table =
        Table::new(["suite", "sign a message", "verify and parse it", "ratio to P-192"]);
    let mut ours = Vec::new();
    for row in rows {
        table.row([
            row.suite.to_owned(),
            spread(row.signed),
            spread(row.opened),
            digits(row.ratio),
        ]);
        ours.push(format!(
            "{} {} signed, {} verified",
            row.suite,
            time(row.signed.median),
            time(row.opened.median)
        ));
    }
    let counted = SIGNERS
        .map(|(suite, part)| format!("{suite} {}", measured.counted(part, "signing 300 bytes")));
    let [unsigned, signed] = TABLE_8;
    Ok(Entry::new("rerum-table-7", "Tables 7 and 8: time of a signed reading", COMMAND)
        .paper(format!(
            "signing {} ms; transmission {} ms unsigned, {} ms signed; an interaction {} and {} ms",
            rerum::SIGNING_MS,
            unsigned.transmission,
            signed.transmission,
            unsigned.transmission,
            signed.transmission + signed.signing
        ))
        .ours(format!(
            "{}; instructions of a signature on a Cortex-M3: {}",
            ours.join("; "),
            counted.join(", ")
        ))
        .why("Here P-192 is computed with integers of any length on a server's processor, to the \
              letter of D5.3 and without any optimisation; the product's suites are optimised for \
              the processor. The transmission times of D5.3 are those of an IEEE 802.15.4 radio, so \
              only the numbers of messages and bytes are compared (tables 19 to 21).")
        .replacement(
            "no RE-Mote: times on this machine, and instructions that QEMU counts for the product's \
             suites",
        )
        .show(Shown::Table(table))
        .show(Shown::Text(
            "Table 6 of D5.3 has 206 ms for the same signature (micro-ecc, fast), without hashing \
             and encoding. The sample of its figure 4 is not base64url, as its text states: it has a \
             `+`. D5.3 does not state which bytes are signed; here they are the message without its \
             last member, cut out textually."
                .to_owned(),
        ))
        .data("signing.csv"))
}

/// A row of memory.csv and objects.csv.
#[derive(Serialize)]
struct Sections {
    source: &'static str,
    what: String,
    flash: u64,
    /// The data that D5.3 counts as `.bss`, or the RAM of our part.
    ram: u64,
}

/// Returns a row of D5.3: `.text` and `.data` take flash, `.bss` is RAM.
fn theirs(what: &str, [text, data, bss]: [u32; 3]) -> Sections {
    Sections { source: "D5.3", what: what.to_owned(), flash: (text + data).into(), ram: bss.into() }
}

/// Returns a row of a part of the footprint.
fn ours(measured: &Measured, part: &str) -> Option<Sections> {
    let number = |what| measured.number(part, what).map(rounded);
    Some(Sections {
        source: "ours",
        what: part.to_owned(),
        flash: number("flash")?,
        ram: number("RAM")?,
    })
}

fn shown(rows: &[Sections]) -> Table {
    let mut table = Table::new(["what", "source", "flash", "RAM"]);
    for row in rows {
        table.row([
            row.what.clone(),
            row.source.to_owned(),
            thousands(row.flash),
            thousands(row.ram),
        ]);
    }
    table
}

fn memory(measured: &Measured, out: &Out<'_>) -> Result<Entry, ReportError> {
    let mut rows: Vec<_> = TABLE_9.iter().map(|(what, row)| theirs(what, *row)).collect();
    rows.extend(SIGNERS.iter().filter_map(|(_, part)| ours(measured, part)));
    out.rows("memory.csv", &rows)?;
    let counted =
        SIGNERS.map(|(suite, part)| format!("{suite} {}", measured.counted(part, "flash")));
    Ok(Entry::new("rerum-table-9", "Table 9: memory of signatures", COMMAND)
        .paper("5,580 bytes of text, 4 of data and 268 of bss: 5,852 bytes more with signatures")
        .ours(format!("bytes of flash of a signature on a Cortex-M3: {}", counted.join(", ")))
        .why("The paper's curve P-192 has 96 bits of security and needs less code than our suites of \
              128 bits. Its SHA-256 is in hardware and adds no code. Our numbers contain SHA-512 or \
              SHA-256 in software.")
        .replacement("no P-192 on our Cortex-M3: the sizes are those of the product's suites")
        .show(Shown::Table(shown(&rows)))
        .data("memory.csv"))
}

/// A row of messages.csv.
#[derive(Serialize)]
struct MessageRow {
    message: &'static str,
    bytes: usize,
    blocks: usize,
    messages: usize,
    wire_bytes: usize,
    time_ns: f64,
    d5_3_bytes: Option<usize>,
    d5_3_blocks: Option<usize>,
    d5_3_messages: Option<usize>,
}

fn sizes(measured: &Measured, out: &Out<'_>) -> Result<Entry, ReportError> {
    let rows: Vec<_> = measured
        .messages
        .iter()
        .map(|message| {
            let theirs = TABLES_19_TO_21.iter().find(|row| row.message == message.name);
            MessageRow {
                message: message.name,
                bytes: message.bytes,
                blocks: message.transfer.blocks,
                messages: message.transfer.messages,
                wire_bytes: message.transfer.wire_bytes,
                time_ns: message.time.median,
                d5_3_bytes: theirs.map(|row| row.bytes),
                d5_3_blocks: theirs.map(|row| row.blocks),
                d5_3_messages: theirs.map(|row| row.messages),
            }
        })
        .collect();
    out.rows("messages.csv", &rows)?;
    let mut table = Table::new([
        "message",
        "bytes",
        "blocks of 64 bytes",
        "CoAP messages",
        "bytes of all CoAP messages",
        "processor time of both ends",
    ]);
    let mut ours = Vec::new();
    for (row, message) in rows.iter().zip(&measured.messages) {
        table.row([
            row.message.to_owned(),
            row.bytes.to_string(),
            row.blocks.to_string(),
            row.messages.to_string(),
            row.wire_bytes.to_string(),
            spread(message.time),
        ]);
        ours.push(format!("{} {} / {} / {}", row.message, row.bytes, row.blocks, row.messages));
    }
    let theirs = TABLES_19_TO_21
        .map(|row| format!("{} {} / {} / {}", row.message, row.bytes, row.blocks, row.messages));
    Ok(Entry::new("rerum-table-19", "Tables 19 to 21: bytes, blocks and messages", COMMAND)
        .paper(format!("bytes / blocks / messages: {}", theirs.join(", ")))
        .ours(format!("bytes / blocks / messages: {}", ours.join(", ")))
        .why("They do not differ: D5.3's sizes hold for JSON without spaces and blocks of 64 bytes. \
              With the product's suites the signature is 16 bytes longer, which takes a third block. \
              The product itself does not sign single readings: one signature covers all readings of \
              an epoch.")
        .show(Shown::Table(table))
        .show(Shown::Text(
            "The message with the malleable signature is that of D5.3's figure 15, with witnesses of our \
             implementation, which have the same length. The samples of D5.3 are no signatures of \
             their texts: two of their values are equal although the texts differ. Without the public \
             key `pk` the message has 358 bytes. In the mended form it also has no accumulator \
             `Acc`, which a verifier must not take from the message."
                .to_owned(),
        ))
        .data("messages.csv"))
}

fn objects(measured: &Measured, out: &Out<'_>) -> Result<Entry, ReportError> {
    let mut rows: Vec<_> =
        TABLE_23.iter().chain(&TABLE_24).map(|(what, row)| theirs(what, *row)).collect();
    let sum = |of: fn(&Sections) -> u64| rows.iter().take(TABLE_23.len()).map(of).sum::<u64>();
    let (flash, ram) = (sum(|row| row.flash), sum(|row| row.ram));
    rows.extend(ours(measured, CLIENT));
    out.rows("objects.csv", &rows)?;
    Ok(Entry::new("rerum-table-23", "Tables 23 and 24: size of DTLS", COMMAND)
        .paper(format!(
            "ten objects of TinyDTLS {} bytes of text and data, {} of bss; client {}, server {} in \
             all",
            thousands(flash),
            thousands(ram),
            thousands(total(TABLE_24[0].1)),
            thousands(total(TABLE_24[1].1))
        ))
        .ours(format!(
            "a client with a shared key, on a Cortex-M3: {} bytes of flash, {} of RAM, {} of stack",
            measured.counted(CLIENT, "flash"),
            measured.counted(CLIENT, "RAM"),
            measured.counted(CLIENT, "stack")
        ))
        .why("Our client has no retransmission, no fragments, no server and no signatures, and needs \
              no queue and no static buffers: its caller provides them. Its AES computes without \
              tables. TinyDTLS's objects contain its server, and its objects for elliptic curves are \
              not in the table.")
        .show(Shown::Table(shown(&rows)))
        .show(Shown::Text(
            "Defects of D5.3: the first three rows of table 23 equal those of its multicast engines \
             in table 38, so at least one of the two is a mistake. Its text calls the totals of table \
             24, 84,685 and 83,899 bytes, the size of bss."
                .to_owned(),
        ))
        .data("objects.csv"))
}

fn total(sections: [u32; 3]) -> u64 {
    sections.iter().map(|bytes| u64::from(*bytes)).sum()
}

/// A row of handshakes.csv.
#[derive(Serialize)]
struct HandshakeRow {
    suite: &'static str,
    datagrams: usize,
    messages: usize,
    records: usize,
    bytes: usize,
    bytes_of_each: String,
    time_ns: f64,
    ratio_to_psk: f64,
}

fn handshakes(measured: &Measured, out: &Out<'_>) -> Result<Entry, ReportError> {
    let rows: Vec<_> = measured
        .handshakes
        .iter()
        .map(|row| HandshakeRow {
            suite: row.suite,
            datagrams: row.datagrams.len(),
            messages: row.messages,
            records: row.records,
            bytes: row.bytes(),
            bytes_of_each: row
                .datagrams
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" "),
            time_ns: row.time.median,
            ratio_to_psk: row.ratio,
        })
        .collect();
    out.rows("handshakes.csv", &rows)?;
    let mut table = Table::new([
        "handshake",
        "datagrams",
        "messages",
        "records",
        "bytes",
        "bytes of each datagram",
        "processor time of both sides",
        "ratio",
    ]);
    let mut ours = Vec::new();
    for (row, measured) in rows.iter().zip(&measured.handshakes) {
        table.row([
            row.suite.to_owned(),
            row.datagrams.to_string(),
            row.messages.to_string(),
            row.records.to_string(),
            thousands(row.bytes as u64),
            row.bytes_of_each.clone(),
            spread(measured.time),
            digits(row.ratio_to_psk),
        ]);
        ours.push(format!(
            "{}: {} datagrams, {} messages, {} bytes, {}",
            row.suite,
            row.datagrams,
            row.messages,
            thousands(row.bytes as u64),
            time(row.time_ns)
        ));
    }
    let instructions = |part, what| measured.number(part, what);
    let psk = instructions(CLIENT, "a handshake");
    let mut counted =
        Table::new(["handshake of a client, on a Cortex-M3", "instructions", "ratio"]);
    let mut row = |name: &str, count: Option<f64>| {
        let ratio = count.zip(psk).map(|(count, psk)| digits(count / psk));
        let number = count.map(|count| thousands(rounded(count)));
        let absent = || "not counted".to_owned();
        let cells = [number.unwrap_or_else(absent), ratio.unwrap_or_else(absent)];
        counted.row([name.to_owned(), cells[0].clone(), cells[1].clone()]);
        cells
    };
    let [count_psk, _] = row("PSK_AES128_CCM_8", psk);
    let [count_raw, ratio_raw] = row(
        "ECDHE_ECDSA, raw public keys of both sides (estimate)",
        instructions(ESTIMATE, "raw public keys of both sides"),
    );
    for what in ["the server's certificate", "certificates of both sides"] {
        row(&format!("ECDHE_ECDSA, {what} (estimate)"), instructions(ESTIMATE, what));
    }
    let [ecc, shared] = TABLE_25;
    Ok(Entry::new("rerum-table-25", "Table 25: handshakes of DTLS 1.2", COMMAND)
        .paper(format!(
            "ECC {:.3} s (standard deviation {:.3}), PSK {:.3} s ({:.3}): ratio {}",
            ecc.mean,
            ecc.deviation,
            shared.mean,
            shared.deviation,
            digits(rerum::ratio())
        ))
        .ours(format!(
            "{}; instructions of a client on a Cortex-M3: PSK {count_psk}, ECDHE_ECDSA with raw \
             public keys {count_raw} (estimate): ratio {ratio_raw}",
            ours.join("; ")
        ))
        .why("D5.3 measured the time between two motes with TinyDTLS, radio included: six \
              datagrams, of some 0.1 s each by table 8. TinyDTLS's curve arithmetic is slow: by table 5 of \
              D5.3, the eight operations of both sides on P-256 would take some ten seconds with \
              micro-ecc, not 137. Our ratio on a Cortex-M3 counts instructions of the client only, \
              without radio; on this machine, both sides and all copies of datagrams count.")
        .replacement(
            "no motes: the crate dimpl in memory on this machine, both sides in one thread; and \
             instructions that QEMU counts. With signatures, they are the handshake with a shared \
             key, plus the operations on P-256",
        )
        .show(Shown::Table(table))
        .show(Shown::Table(counted))
        .data("handshakes.csv"))
}
