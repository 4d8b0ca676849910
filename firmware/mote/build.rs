//! Passes the version of the firmware to the program, and writes the table of recorded readings: the
//! first 10,000 readings of three TelosB motes from data/telosb, one mote after another, unaltered. A
//! reading has 4 bytes: humidity in hundredths of a percent, then temperature in hundredths of a degree
//! Celsius, both 16 bits, big-endian.

use std::path::PathBuf;
use std::{env, fs, io};

const MOTES: [&str; 3] =
    ["singlehop_indoor_moteid1", "singlehop_indoor_moteid2", "singlehop_outdoor_moteid3"];

/// The number of readings in the table. More would take flash that the program needs.
const READINGS: usize = 10_000;

fn main() -> io::Result<()> {
    // The version of the firmware, which must increase with each image.
    println!("cargo::rerun-if-env-changed=MOTESEAL_FIRMWARE_VERSION");
    let version = env::var("MOTESEAL_FIRMWARE_VERSION").unwrap_or_else(|_| "1".to_owned());
    if !version.parse::<u32>().is_ok_and(|version| version > 0) {
        let message =
            format!("MOTESEAL_FIRMWARE_VERSION is {version:?}: use a number from 1 to 2^32-1");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    println!("cargo::rustc-env=MOTESEAL_FIRMWARE_VERSION={version}");
    let mut table = Vec::new();
    for mote in MOTES {
        let path = format!("../../data/telosb/{mote}_data.txt");
        println!("cargo::rerun-if-changed={path}");
        let malformed =
            |line: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{path}: {line:?}"));
        for line in fs::read_to_string(&path)?.lines().skip(1) {
            let [_, _, humidity, temperature, _] = line.split_whitespace().collect::<Vec<_>>()[..]
            else {
                return Err(malformed(line));
            };
            let hundredths = |text| hundredths(text).ok_or_else(|| malformed(line));
            let humidity = u16::try_from(hundredths(humidity)?).map_err(|_| malformed(line))?;
            let temperature =
                i16::try_from(hundredths(temperature)?).map_err(|_| malformed(line))?;
            table.extend(humidity.to_be_bytes());
            table.extend(temperature.to_be_bytes());
        }
    }
    table.truncate(READINGS * 4);
    fs::write(PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("readings.bin"), table)
}

/// Parses a decimal number with at most two digits after the point, and returns it times 100.
fn hundredths(text: &str) -> Option<i32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction:0<2}");
    if fraction.len() > 2 { None } else { digits.parse().ok() }
}
