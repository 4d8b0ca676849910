//! Writes the memory layout of the selected board to `memory.x`, which cortex-m-rt's linker script
//! includes.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=memory");
    let board = if env::var_os("CARGO_FEATURE_LM3S6965EVB").is_some() {
        "lm3s6965evb"
    } else {
        "mps2-an385"
    };
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let memory = fs::read_to_string(format!("memory/{board}.x"))?;
    let pages = fs::read_to_string("memory/pages.x")?;
    fs::write(out.join("memory.x"), memory + &pages)?;
    println!("cargo::rustc-link-search={}", out.display());
    Ok(())
}
