//! Runs the firmware in QEMU: builds it, starts it with its serial line on a free loopback port,
//! resets it and kills it. Its process ends when its [`Emulator`] is dropped.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The address of the provisioning blob on both boards (firmware/board/memory).
const PROVISION: u32 = 0x3_c000;
/// The place of the run slot in the RAM file of mps2-an385 (firmware/board/memory).
pub(crate) const RUN_SLOT: u64 = 0x1_1000;
/// The length of the flash page in bytes. It is at the start of the RAM file of mps2-an385.
const FLASH_PAGE: usize = 8 << 10;
/// The timeout of an operation: longer than any successful operation takes.
const LONG: Duration = Duration::from_secs(300);

/// A QEMU machine for which the firmware is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Board {
    Lm3s6965evb,
    /// The RAM of this machine is a file, so the flash page in it survives the end of QEMU.
    Mps2An385,
}

impl Board {
    const fn name(self) -> &'static str {
        match self {
            Self::Lm3s6965evb => "lm3s6965evb",
            Self::Mps2An385 => "mps2-an385",
        }
    }
}

/// Builds the firmware for a board and copies it to `out`.
pub(crate) fn firmware(board: Board, out: &Path) {
    build("mote", &format!("{},report", board.name()), 1, out);
}

/// Builds a program of the firmware with these features, and with this version, and copies it to
/// `out`. Other tests wait with their builds, because they might replace the program before it is
/// copied.
pub(crate) fn build(program: &str, features: &str, version: u32, out: &Path) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../firmware");
    fs::create_dir_all(folder.join("target")).unwrap();
    let building = fs::File::create(folder.join("target/tests.lock")).unwrap();
    building.lock().unwrap();
    let mut command = Command::new("cargo");
    let package = format!("moteseal-{program}");
    command.current_dir(&folder).args(["build", "--quiet", "--locked", "--release"]);
    command.args(["-p", &package, "--features", features]);
    // Cargo's variables of the build of this test do not apply to another target.
    for (name, _) in std::env::vars().filter(|(name, _)| {
        name.starts_with("CARGO_") && name != "CARGO_HOME" && !name.starts_with("CARGO_NET")
    }) {
        command.env_remove(name);
    }
    let output = command
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTDOCFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env("MOTESEAL_FIRMWARE_VERSION", version.to_string())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "the firmware cannot be built: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    fs::copy(folder.join("target/thumbv7m-none-eabi/release").join(program), out).unwrap();
}

/// Returns the content of the program's flash: the loadable segments of an ELF file of 32 bits.
pub(crate) fn image_of(elf: &[u8]) -> Vec<u8> {
    let word = |at: usize| u32::from_le_bytes(elf[at..at + 4].try_into().unwrap()) as usize;
    let half = |at: usize| usize::from(u16::from_le_bytes(elf[at..at + 2].try_into().unwrap()));
    assert_eq!(&elf[..5], b"\x7fELF\x01");
    let headers = (0..half(44)).map(|header| word(28) + header * half(42));
    // Type, place in the file, physical address, length in the file.
    let mut segments: Vec<(usize, &[u8])> = headers
        .filter(|at| word(*at) == 1 && word(at + 16) > 0)
        .map(|at| (word(at + 12), &elf[word(at + 4)..][..word(at + 16)]))
        .collect();
    segments.sort_by_key(|(address, _)| *address);
    let start = segments[0].0;
    let mut image = Vec::new();
    for (address, bytes) in segments {
        image.resize(address - start, 0xff);
        image.extend_from_slice(bytes);
    }
    image
}

/// A mote in QEMU.
pub(crate) struct Emulator {
    pub(crate) board: Board,
    folder: PathBuf,
    name: String,
    /// The TCP port of its serial line.
    pub(crate) port: u16,
    /// The socket of that port. Each QEMU inherits it, so nothing else can take the port while none runs.
    listener: TcpListener,
    /// QEMU, and the thread that reads what it prints.
    process: Option<(Child, JoinHandle<()>)>,
    /// The lines that the firmware has printed since the first start.
    lines: Arc<Mutex<Vec<String>>>,
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Emulator {
    /// Starts the firmware `NAME.elf` with the provisioning blob `NAME.bin`, both in a folder.
    pub(crate) fn start(board: Board, folder: &Path, name: &str) -> Self {
        let ram = fs::File::create(folder.join(format!("{name}.ram"))).unwrap();
        ram.set_len(16 << 20).unwrap();
        Self::start_with_ram(board, folder, name)
    }

    /// Starts the boot stage `NAME.elf` with an image in the run slot. The flash page is erased, as
    /// that of a new chip.
    pub(crate) fn start_with_image(folder: &Path, name: &str, image: &[u8]) -> Self {
        let ram = fs::File::create(folder.join(format!("{name}.ram"))).unwrap();
        ram.set_len(16 << 20).unwrap();
        ram.write_all_at(&[0xff; FLASH_PAGE], 0).unwrap();
        ram.write_all_at(image, RUN_SLOT).unwrap();
        Self::start_with_ram(Board::Mps2An385, folder, name)
    }

    fn start_with_ram(board: Board, folder: &Path, name: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut emulator = Self {
            board,
            folder: folder.to_owned(),
            name: name.to_owned(),
            port: listener.local_addr().unwrap().port(),
            listener,
            process: None,
            lines: Arc::default(),
        };
        emulator.power();
        emulator
    }

    fn file(&self, ending: &str) -> String {
        self.folder.join(format!("{}.{ending}", self.name)).to_str().unwrap().to_owned()
    }

    fn power(&mut self) {
        let mut command = Command::new("qemu-system-arm");
        match self.board {
            Board::Lm3s6965evb => command.args(["-machine", "lm3s6965evb"]),
            Board::Mps2An385 => command
                .args([
                    "-object",
                    &format!(
                        "memory-backend-file,id=ram,size=16M,share=on,mem-path={}",
                        self.file("ram")
                    ),
                ])
                .args(["-machine", "mps2-an385,memory-backend=ram"]),
        };
        let _ = fs::remove_file(self.file("qmp"));
        command.args([
            "-display",
            "none",
            "-monitor",
            "none",
            "-nodefaults",
            "-semihosting-config",
            "enable=on,target=native",
        ]);
        command.args(["-kernel", &self.file("elf")]);
        command.args([
            "-device",
            &format!("loader,file={},addr={PROVISION:#x},force-raw=on", self.file("bin")),
        ]);
        // Without `nodelay`, a byte waits for the acknowledgement of the one before, up to 40 ms. With
        // `mux`, QEMU stores up to 32 bytes for the receiver, which has room for one. The escape
        // character of `mux` is not a byte.
        // The socket is QEMU's standard input.
        command.args(["-chardev", "socket,id=line,fd=0,server=on,wait=off,nodelay=on,mux=on"]);
        let listener = OwnedFd::from(self.listener.try_clone().unwrap());
        command.args(["-serial", "chardev:line", "-echr", "0x100"]);
        command.args(["-qmp", &format!("unix:{},server=on,wait=off", self.file("qmp"))]);
        let log = fs::File::options().create(true).append(true).open(self.file("log")).unwrap();
        let process = command.stdin(listener).stdout(Stdio::piped()).stderr(log).spawn();
        let mut process = process.expect("qemu-system-arm is missing: run tools/setup.sh test");
        let (out, lines) = (BufReader::new(process.stdout.take().unwrap()), self.lines.clone());
        let reader = std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                lines.lock().unwrap().push(line);
            }
        });
        self.process = Some((process, reader));
    }

    /// Resets the machine. RAM keeps its contents.
    pub(crate) fn reset(&self) {
        let start = Instant::now();
        let stream = loop {
            match UnixStream::connect(self.file("qmp")) {
                Ok(stream) => break stream,
                Err(error) => assert!(start.elapsed() < LONG, "{}: {error}", self.name),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut answer = |command: &str| {
            if !command.is_empty() {
                (&stream).write_all(command.as_bytes()).unwrap();
            }
            // Skip events that arrive before the response to the command.
            lines
                .by_ref()
                .map(Result::unwrap)
                .find(|line| line.contains("\"return\"") || line.contains("\"QMP\""))
                .unwrap()
        };
        answer("");
        answer("{\"execute\": \"qmp_capabilities\"}\n");
        answer("{\"execute\": \"system_reset\"}\n");
    }

    /// Ends QEMU with SIGKILL and starts it again. Everything outside its RAM file is lost.
    pub(crate) fn lose_power(&mut self) {
        assert_eq!(self.board, Board::Mps2An385, "the other board's flash does not survive this");
        self.kill();
        self.power();
    }

    /// Starts QEMU again after it has ended.
    pub(crate) fn power_returns(&mut self) {
        self.kill();
        self.power();
    }

    /// Returns QEMU's exit status if it has ended.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let status = self.process.as_mut()?.0.try_wait().unwrap()?;
        Some(status.code().unwrap_or(-1))
    }

    /// Ends QEMU with SIGKILL. Afterwards, the reports of this life are complete.
    pub(crate) fn kill(&mut self) {
        if let Some((mut process, reader)) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
            let _ = reader.join();
        }
    }

    /// Returns what all QEMUs of this mote have printed on standard error.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap()
    }

    /// Returns the firmware's reports so far: the lines that begin with `mote: `, without that
    /// prefix.
    pub(crate) fn reports(&self) -> Vec<String> {
        self.lines
            .lock()
            .unwrap()
            .iter()
            .filter_map(|line| line.strip_prefix("mote: ").map(str::to_owned))
            .collect()
    }

    /// Returns the number of reports that begin with `prefix`.
    pub(crate) fn count(&self, prefix: &str) -> usize {
        self.reports().iter().filter(|report| report.starts_with(prefix)).count()
    }

    /// Waits for a report that begins with `prefix`.
    #[track_caller]
    pub(crate) fn until(&self, prefix: &str) {
        self.until_all(prefix, 1);
    }

    /// Waits until there are `times` reports that begin with `prefix`.
    #[track_caller]
    pub(crate) fn until_all(&self, prefix: &str, times: usize) {
        let start = Instant::now();
        while self.count(prefix) < times {
            assert!(
                start.elapsed() < LONG,
                "{} has not reported {prefix:?} {times} times: {:#?}",
                self.name,
                self.reports()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
