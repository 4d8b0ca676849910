//! Writes the memory layout of the selected board to `memory.x`, which cortex-m-rt's linker script
//! includes.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=memory");
    let has = |feature| env::var_os(format!("CARGO_FEATURE_{feature}")).is_some();
    let files: &[&str] = if has("LM3S6965EVB") {
        &["lm3s6965evb", "pages"]
    } else if has("BOOT") {
        &["mps2-an385-boot", "pages", "keys", "slots"]
    } else if has("SLOTS") {
        &["mps2-an385-slots", "pages", "keys", "slots"]
    } else {
        &["mps2-an385", "pages", "keys"]
    };
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let parts: Vec<String> = files
        .iter()
        .map(|file| fs::read_to_string(format!("memory/{file}.x")))
        .collect::<Result<_, _>>()?;
    fs::write(out.join("memory.x"), parts.concat())?;
    // The linker script of the boot stage, which has its own interrupt vectors, includes this file.
    fs::write(out.join("device.x"), "")?;
    println!("cargo::rustc-link-search={}", out.display());
    Ok(())
}
