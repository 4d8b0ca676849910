//! Describes the machine on which a report was measured: processor, cores, memory, system,
//! compiler, and vector loops. A property that cannot be read is reported as unknown.

use std::process::Command;

use moteseal_lab::report::page::Machine;
use moteseal_lanes::Host;

/// The file that pins the compiler of the checkout.
const TOOLCHAIN: &str = include_str!("../../../../rust-toolchain.toml");

/// Returns the value of a name in a file with lines `name : value`.
fn line(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn quoted<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find(|line| line.starts_with(name))?.split('"').nth(1)
}

/// Describes the machine, the command, and the absent data.
pub(super) fn describe(command: &str, absent: Vec<String>) -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let unknown = || "unknown".to_owned();
    let processors = read("/proc/cpuinfo");
    let cores =
        std::thread::available_parallelism().map_or_else(|_| unknown(), |cores| cores.to_string());
    let speed = line(&processors, "cpu MHz")
        .map(|speed| format!(", {} MHz now", speed.split('.').next().unwrap_or(&speed)));
    let memory = line(&read("/proc/meminfo"), "MemTotal")
        .and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let rustc = Command::new("rustc")
        .arg("--version")
        .output()
        .ok()
        .filter(|output| output.status.success());
    let rustc = rustc.map_or_else(
        || format!("rustc {}", quoted(TOOLCHAIN, "channel").unwrap_or("unknown")),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    );
    let profile = if cfg!(debug_assertions) { "debug: its times mean nothing" } else { "release" };
    let lines = [
        (
            "processor",
            format!(
                "{}{}",
                line(&processors, "model name").unwrap_or_else(unknown),
                speed.unwrap_or_default()
            ),
        ),
        ("cores", format!("{cores}; one is used")),
        (
            "memory",
            memory.map_or_else(unknown, |kib| format!("{:.1} GiB", kib as f64 / 1_048_576.0)),
        ),
        ("system", format!("{} {}", std::env::consts::OS, std::env::consts::ARCH)),
        ("compiler", format!("{rustc}, {profile}")),
        ("vector loops", Host::detect().name().to_owned()),
    ];
    Machine {
        lines: lines.map(|(name, value)| (name.to_owned(), value)).to_vec(),
        command: command.to_owned(),
        absent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_has_every_property_of_the_machine() {
        let machine = describe("make lab", Vec::new());
        assert!(machine.lines.iter().all(|(_, value)| !value.is_empty()));
        assert_eq!(line("model name\t: AMD  EPYC\n", "model name"), Some("AMD EPYC".to_owned()));
        assert!(quoted(TOOLCHAIN, "channel").is_some_and(|channel| channel.starts_with("1.")));
    }
}
