//! Builds the programs of `firmware/footprint` in the firmware's workspace, measures the sizes of
//! their files, and runs them in QEMU.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The address at which a program reads its input (`firmware/board/memory`).
const INPUT: &str = "0x3C000";
/// The size of the memory region for the input, in bytes.
const INPUT_SIZE: usize = 16 * 1024;
/// The time limit of a program. The longest one takes a second.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The programs, built with one set of features.
pub(crate) struct Firmware {
    programs: PathBuf,
    empty: u64,
    scratch: tempfile::TempDir,
}

/// The size and the output of one program.
pub(crate) struct Program {
    name: String,
    /// The bytes of flash, minus the bytes of the program `empty`, which contains no part of a
    /// mote.
    pub(crate) flash: u64,
    output: BTreeMap<String, String>,
}

impl Firmware {
    /// Builds these programs and `empty`. With an empty list, builds all programs that the features
    /// allow. `compact` selects the compact implementation of SHA-2, as in the firmware's settings,
    /// instead of the unrolled one.
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

    /// Runs a program with an input.
    pub(crate) fn run(&self, name: &str, input: &[u8]) -> Program {
        assert!(input.len() <= INPUT_SIZE, "{name}: an input of {} bytes", input.len());
        let (program, file) = (self.programs.join(name), self.scratch.path().join(name));
        // QEMU does not load an empty file.
        std::fs::write(&file, if input.is_empty() { &[0; 2] } else { input }).unwrap();
        let loader = format!("loader,file={},addr={INPUT},force-raw=on", file.display());
        let text = qemu("mps2-an385", &program, &["-device", &loader]);
        let output = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let flash = flash(&program).saturating_sub(self.empty);
        Program { name: name.to_owned(), flash, output: output.collect() }
    }
}

/// Builds programs of the firmware and returns their target directory.
fn cargo(what: &[&str], compact: bool) -> PathBuf {
    let firmware = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../firmware");
    let target = firmware.join(if compact { "target" } else { "target/unrolled" });
    // Use the cargo that runs this test.
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(&firmware)
        .args(["build", "--release", "--locked", "--quiet"])
        .args(what)
        .arg("--target-dir")
        .arg(&target);
    // Compile the programs with the firmware's own settings, not with the settings of this test.
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
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_BUILD_TARGET")
        .env_remove("CARGO_BUILD_RUSTFLAGS");
    if !compact {
        // This replaces the flags of firmware/.cargo/config.toml.
        cargo.env("RUSTFLAGS", "-C link-arg=-Tlink.x");
    }
    let status = cargo.status().expect("cargo runs");
    assert!(
        status.success(),
        "the firmware does not build; check that rust-toolchain.toml has thumbv7m-none-eabi"
    );
    target
}

/// Runs a program on one of QEMU's boards and returns its output. Panics if the program fails or
/// exceeds the time limit.
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
    let mut child = child
        .expect("qemu-system-arm does not start; tools/setup.sh installs it (qemu-system-arm)");
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > TIME_LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{} did not end within {TIME_LIMIT:?}", program.display());
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(status.success(), "{} ended with {status}: {text}", program.display());
    text
}

/// Builds a program of the firmware as it is used on a board, and returns its bytes of flash. Other
/// tests wait with their builds (`crates/cli/tests/it/emulator.rs`).
pub(crate) fn flash_of(program: &str, features: &str) -> u64 {
    let package = format!("moteseal-{program}");
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../firmware/target/tests.lock");
    std::fs::create_dir_all(lock.parent().unwrap()).unwrap();
    let building = std::fs::File::create(lock).unwrap();
    building.lock().unwrap();
    let target = cargo(&["-p", &package, "--features", features], true);
    flash(&target.join("thumbv7m-none-eabi/release").join(program))
}

/// Runs the board's smoke test on one of the boards and returns its output: serial line, clock,
/// flash page, measurements.
pub(crate) fn smoke(board: &str) -> String {
    let features = format!("{board},report");
    let target =
        cargo(&["-p", "moteseal-board", "--example", "smoke", "--features", &features], true);
    qemu(board, &target.join("thumbv7m-none-eabi/release/examples/smoke"), &[])
}

impl Program {
    fn value(&self, name: &str) -> &str {
        self.output.get(name).unwrap_or_else(|| {
            panic!("{} printed no {name:?}, only {:?}", self.name, self.output.keys())
        })
    }

    /// Returns a number that the program printed.
    pub(crate) fn get(&self, name: &str) -> u64 {
        self.value(name).parse().unwrap()
    }

    /// Returns a result, which the program prints in hexadecimal.
    pub(crate) fn result(&self, name: &str) -> Vec<u8> {
        let digits = self.value(&format!("{name}.result"));
        (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
            .collect()
    }

    /// Panics unless the program computed this result.
    pub(crate) fn expect(&self, name: &str, result: &[u8]) {
        assert!(
            self.result(name) == result,
            "{}: {name} differs from the result of the host",
            self.name
        );
    }
}

/// Returns the number of bytes of flash that a 32-bit little-endian ELF file takes. Adds up the
/// sections that are loaded and have contents (TIS, "ELF specification", book I, chapter 1). They
/// include the initial values of variables, but not the memory for variables.
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
