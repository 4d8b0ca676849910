//! Writes the page `docs/footprint.md` and the tables `docs/footprint.csv` and
//! `docs/footprint_levels.csv`.

use std::fmt::Write as _;

use super::figures::Figures;

const START: &str = "# Footprint on a Cortex-M3

`cargo test -p moteseal-bench --test it footprint` measures the numbers on this page and in the
tables `footprint.csv` and `footprint_levels.csv`. The test fails if a number has changed, or
exceeds the upper limit in the column *bar*. With `MOTESEAL_BLESS=1`, it writes the files. The test
builds the programs of `firmware/footprint`, one for each part of the product, and runs them in QEMU
(`mps2-an385`) with `-icount`. With the pinned compiler, every number is therefore the same on every
machine.

**QEMU counts instructions**, not cycles, time or energy. A Cortex-M3 needs one to a dozen cycles
for an instruction, and more if its flash is slow.

- *RAM* is the size of the state that is kept between two calls.
- *Stack* is the stack that the deepest call of the part uses, without the frames of its caller. To
  measure it, the test fills the stack with a pattern.
- *Flash* is the size of a program with the part, minus the size of the same program without it
  (start-up and test harness). It consists of code, constants and initial values. It includes the
  few instructions of the harness that call the part, and library functions such as `memcpy`.
- Everything is optimised for size (`opt-level = \"s\"`, link-time optimisation) with the compact
  forms of SHA-2 and of AES (`firmware/.cargo/config.toml`). The sections whose titles end in *SHA-2
  unrolled* show the cost and the gain of the unrolled form.
- A star has 1,024 events of 4 bytes. A tree has 1,023 events, so that closing an epoch hashes a
  node at every height. The instructions per event are the mean over all events, rounded up, and
  include all work before the end of the epoch. The test compares the results of each program with
  results computed on the host.
- The section *Star, L = 16, two column groups* is about events of two cells, each in a column group
  of its own. Its flash includes the decoder of the schema.
- A column of the open seal keeps one block of key stream (64 bytes of its RAM), so that 16 events of
  4 bytes share a block of ChaCha20, or four blocks of AES.
- The section *Updates of the firmware* is about the complete firmware of `firmware/mote` and the boot
  stage. Both are compiled with `opt-level = \"z\"`. The firmware without slots also has the code
  that updates share with everything else: the record of the journal, the command, and the
  continuation of a chain after a restart.
- The receiver of a broadcast chain may use at most 1 KiB of RAM. In addition to this, it needs a
  buffer for the messages of one block, which the caller provides. If it verifies the heads of
  chains itself, it also needs the memory in the section *Receiver of a chain: memory in addition to
  its RAM*.
- The client of DTLS is `moteseal_research::dtls_psk`, which no product links. It runs against
  datagrams that a server of the crate dimpl sent to the same client on the host. Its handshake
  includes the cookie. The product's DTLS runs on hosts only. The section *Handshake of DTLS 1.2 at a
  client, ECDHE_ECDSA on P-256, estimated* adds operations on P-256 to the handshake with a shared key:
  an ephemeral key, the shared secret, one verification for each signature of the server and of its
  certificate, and the client's own signature.

";

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Returns the content of `docs/footprint.md`.
pub(crate) fn markdown(figures: &Figures) -> String {
    let mut text = START.to_owned();
    for part in &figures.0 {
        let (first, rest) = part.name.split_at(1);
        writeln!(
            text,
            "## {}{rest}\n\n| what | measured | bar |\n|---|---|---|",
            first.to_uppercase()
        )
        .unwrap();
        for row in &part.rows {
            let bar = row.bar.map_or(String::new(), |bar| format!("{} {}", grouped(bar), row.unit));
            writeln!(text, "| {} | {} {} | {bar} |", row.what, grouped(row.value), row.unit)
                .unwrap();
        }
        text.push('\n');
    }
    text.push_str(END);
    text
}

const END: &str = "\
RSA-1024 (with the Chinese remainder theorem) and DSA-512 are computed in constant time with the
arithmetic of `crypto-bigint`. Both are insecure. They are measured because the paper uses them, and
no product links them. `footprint_levels.csv` has the RAM of a star for each number of levels `L`:
more levels need more memory and allow lower sampling rates, down to `2^-(L-1)`.
";

/// Returns the content of `docs/footprint.csv`.
pub(crate) fn csv(figures: &Figures) -> String {
    let mut text = String::from("part,what,unit,value,bar\n");
    for part in &figures.0 {
        for row in &part.rows {
            let bar = row.bar.map_or(String::new(), |bar| bar.to_string());
            writeln!(text, "\"{}\",\"{}\",{},{},{bar}", part.name, row.what, row.unit, row.value)
                .unwrap();
        }
    }
    text
}

/// Returns the content of `docs/footprint_levels.csv`.
pub(crate) fn levels(ram: impl Fn(u8) -> u64) -> String {
    let mut text = String::from("levels,finest_rate,ram_bytes\n");
    for level in 2..=32 {
        writeln!(text, "{level},2^-{},{}", level - 1, ram(level)).unwrap();
    }
    text
}
