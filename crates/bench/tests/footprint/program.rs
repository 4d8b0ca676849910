//! The programs of `firmware/footprint`: built by cargo in their own workspace, measured as files, and run in QEMU.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Where the board expects what a program works on (`firmware/board/memory`).
const INPUT: &str = "0x3C000";
/// The region's size.
const INPUT_ROOM: usize = 16 * 1024;
/// A program that takes longer hangs: the longest takes a second.
const PATIENCE: Duration = Duration::from_secs(120);

/// One build of the programs.
pub(crate) struct Firmware {
    programs: PathBuf,
    empty: u64,
    scratch: tempfile::TempDir,
}

/// What one program is and said.
pub(crate) struct Program {
    name: String,
    /// Bytes of flash, less what a program without a part takes.
    pub(crate) flash: u64,
    said: BTreeMap<String, String>,
}

impl Firmware {
    /// Builds these programs and `empty`, or all that the features have where none is named, with SHA-2 as the firmware's settings have it, or
    /// unrolled.
    pub(crate) fn build(features: &[&str], compact: bool, programs: &[&str]) -> Self {
        let features = format!("mps2-an385,{}", features.join(","));
        let mut what =
            vec!["-p", "moteseal-footprint", "--no-default-features", "--features", &features];
        if !programs.is_empty() {
            what.extend(programs.iter().chain(&["empty"]).flat_map(|program| ["--bin", program]));
        }
        let target = cargo(&what, compact);
        let programs = target.join("thumbv7m-none-eabi/release");
        let empty = flash(&programs.join("empty"));
        Self { programs, empty, scratch: tempfile::tempdir().unwrap() }
    }

    /// Runs a program on what it is to work on.
    pub(crate) fn run(&self, name: &str, input: &[u8]) -> Program {
        assert!(input.len() <= INPUT_ROOM, "{name}: an input of {} bytes", input.len());
        let (program, file) = (self.programs.join(name), self.scratch.path().join(name));
        // QEMU loads no empty file.
        std::fs::write(&file, if input.is_empty() { &[0; 2] } else { input }).unwrap();
        let loader = format!("loader,file={},addr={INPUT},force-raw=on", file.display());
        let text = qemu("mps2-an385", &program, &["-device", &loader]);
        let said = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let flash = flash(&program).saturating_sub(self.empty);
        Program { name: name.to_owned(), flash, said: said.collect() }
    }
}

/// Builds programs of the firmware; says where they went.
fn cargo(what: &[&str], compact: bool) -> PathBuf {
    let firmware = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../firmware");
    let target = firmware.join(if compact { "target" } else { "target/unrolled" });
    // The one that runs this test.
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(&firmware)
        .args(["build", "--release", "--locked", "--quiet"])
        .args(what)
        .arg("--target-dir")
        .arg(&target);
    // The programs are compiled as the firmware's own settings say, whatever this test was.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PROFILE_")
            || name.starts_with("CARGO_TARGET_")
            || name.starts_with("CARGO_ENCODED_")
        {
            cargo.env_remove(&*name);
        }
    }
    cargo
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .env_remove("CARGO_BUILD_RUSTFLAGS");
    if !compact {
        // Instead of the ones in firmware/.cargo/config.toml.
        cargo.env("RUSTFLAGS", "-C link-arg=-Tlink.x");
    }
    let status = cargo.status().expect("cargo runs");
    assert!(
        status.success(),
        "the firmware does not build; does the toolchain have thumbv7m-none-eabi? (rust-toolchain.toml)"
    );
    target
}

/// Runs a program on one of QEMU's boards until it ends well; what it said.
fn qemu(machine: &str, program: &Path, more: &[&str]) -> String {
    let mut qemu = Command::new("qemu-system-arm");
    qemu.args([
        "-machine", machine, "-display", "none", "-serial", "null", "-monitor", "none", "-icount",
        "shift=8",
    ]);
    qemu.args(["-semihosting-config", "enable=on,target=native"])
        .args(more)
        .arg("-kernel")
        .arg(program);
    let child = qemu.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child =
        child.expect("qemu-system-arm runs: Debian has it in the package qemu-system-arm, and tools/setup.sh installs it");
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{} does not end", program.display());
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(status.success(), "{} ended with {status}: {text}", program.display());
    text
}

/// What the board's own program says on one of the boards: serial line, clock, flash page, measurements.
pub(crate) fn smoke(board: &str) -> String {
    let features = format!("{board},report");
    let target =
        cargo(&["-p", "moteseal-board", "--example", "smoke", "--features", &features], true);
    qemu(board, &target.join("thumbv7m-none-eabi/release/examples/smoke"), &[])
}

impl Program {
    fn said(&self, name: &str) -> &str {
        self.said.get(name).unwrap_or_else(|| {
            panic!("{} says nothing of {name:?}: {:?}", self.name, self.said.keys())
        })
    }

    /// A number that it said.
    pub(crate) fn get(&self, name: &str) -> u64 {
        self.said(name).parse().unwrap()
    }

    /// The bytes of a result.
    pub(crate) fn result(&self, name: &str) -> Vec<u8> {
        let digits = self.said(&format!("{name}.result"));
        (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
            .collect()
    }

    /// Fails unless this was its result.
    pub(crate) fn expect(&self, name: &str, result: &[u8]) {
        assert!(
            self.result(name) == result,
            "{}: another {name} than this machine computes",
            self.name
        );
    }
}

/// What an ELF file of 32 bits, little-endian, puts into flash: the sections that are loaded and have contents (TIS, "ELF specification",
/// book I, chapter 1). Initial values of variables are among them; room for variables is not.
fn flash(file: &Path) -> u64 {
    let elf = std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let word = |at: usize| u32::from_le_bytes(elf[at..at + 4].try_into().unwrap());
    let half = |at: usize| usize::from(u16::from_le_bytes(elf[at..at + 2].try_into().unwrap()));
    const PROGRAM_BITS: u32 = 1;
    const ALLOCATED: u32 = 2;
    let (start, size, count) = (word(0x20) as usize, half(0x2e), half(0x30));
    let sections = (0..count).map(|number| start + number * size);
    let loaded =
        sections.filter(|at| word(at + 4) == PROGRAM_BITS && word(at + 8) & ALLOCATED != 0);
    loaded.map(|at| u64::from(word(at + 20))).sum()
}
