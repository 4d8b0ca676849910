//! Writes the page `docs/footprint.md` and the tables `docs/footprint.csv` and
//! Returns the content of `docs/footprint_levels.csv`.

use std::fmt::Write as _;

use super::figures::Figures;

const START: &str = "# Footprint on a Cortex-M3

`cargo test -p moteseal-bench --test it footprint` regenerates this page and the tables next to it
(`footprint.csv`, `footprint_levels.csv`). It fails if a number has changed or exceeds its bar, the
upper limit that the test enforces. With `MOTESEAL_BLESS=1` it writes the files. The test builds the
programs of `firmware/footprint`, one for each part, and runs them in QEMU (`mps2-an385`) with
`-icount`, so that every number is the same on every machine with the pinned compiler.

**QEMU counts instructions**, not cycles, time or energy. A Cortex-M3 needs one to a dozen cycles
for an instruction, and more if its flash is slow.

- *RAM* is the state that is kept between two calls. *Stack* is what the deepest call of the part
  needs below its caller; the test fills the stack with a pattern to measure it.
- *Flash* is the size of a program with the part, less the size of the same program without it
  (start-up and test harness): code, constants and initial values. It includes the harness's few
  calls of the part, and library functions such as `memcpy`.
- Everything is optimised for size (`opt-level = \"s\"`, link-time optimisation) with the compact
  form of SHA-2 (`firmware/.cargo/config.toml`). The rows *SHA-2 unrolled* show the cost and the
  gain of the unrolled form.
- A star has 1,024 events of 4 bytes. A tree has 1,023, so that closing an epoch hashes a node at
  every height. The cost of an event is the mean over all of them, rounded up; it includes all work
  before the end of the epoch. The results of each program are compared with those of the host.
- The bar of 1 KiB applies to the RAM of the receiver of a chain. In addition, the receiver needs a
  buffer for the messages of one block, which the caller provides, and the memory of its own section
  below if it verifies heads itself.

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
arithmetic of `crypto-bigint`. They are only in `firmware/footprint`, because the paper uses them;
both are insecure. `footprint_levels.csv` has the RAM of a star for each number of levels: memory
against sampling resolution, whose finest rate is `2^-(L-1)`.
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
