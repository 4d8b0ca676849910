//! `moteseal key firmware`: signs the manifest of an image for motes (spec/update.md, section 1).

use std::path::PathBuf;

use clap::Args;
use moteseal_core::record::NetworkId;
use moteseal_gateway::broadcast::UpdateFile;
use serde_json::json;

use super::sender::network;
use crate::failure::Failure;
use crate::files;
use crate::progress::bytes;
use crate::terminal::report;

/// Sign an image of motes' firmware with a base station's key.
///
/// The update file that it makes is broadcast with `moteseal broadcast send`. Motes of this network
/// and board accept it if its version is above theirs.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
                        moteseal key firmware target/thumbv7m-none-eabi/release/mote --ca keys/base.key.pem \\\n      \
                        --out mps2-an385-7.firmware\n\
                        moteseal broadcast send --key ops.key.pem --cert ops.cert --to udp://239.1.2.3:5000 \\\n      \
                        mps2-an385-7.firmware\n\
                        echo install 7 | moteseal broadcast send --key ops.key.pem --cert ops.cert \\\n      \
                        --to udp://239.1.2.3:5000 \\\n    \
                        --lines - --kind command --topic firmware --valid 1h\n\
                        The image states its board and version. A party that has the base station's key can replace the\n\
                        firmware of every mote of the network: keep it offline.")]
pub(crate) struct Firmware {
    /// The firmware: the ELF file that cargo builds, or its image
    #[arg(value_name = "PROGRAM")]
    program: PathBuf,
    /// The base station's secret key
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    /// The network, as 16 hexadecimal digits; default: the network that the base station's key
    /// determines
    #[arg(long, value_name = "HEX", value_parser = network)]
    network: Option<NetworkId>,
    /// The update file to write; default: BOARD-VERSION.firmware
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) fn firmware(arguments: &Firmware) -> Result<(), Failure> {
    let Firmware { program, ca, network, out } = arguments;
    let base = files::secret_key(ca)?;
    let network = network.unwrap_or_else(|| NetworkId::of(&base.public()));
    let content = files::read(program)?;
    let file = UpdateFile::sign(&content, network, &base)
        .map_err(|error| Failure::from(error).about(program))?;
    let out = out.clone().unwrap_or_else(|| file.file_name().into());
    files::create(&out, &file.bytes, 0o644)?;
    let text = format!(
        "version {} for {} in network {network}, {}: {}",
        file.version,
        file.board,
        bytes(u64::from(file.length)),
        out.display()
    );
    report(text, || {
        json!({
            "file": out.display().to_string(),
            "network": network.to_string(),
            "board": file.board,
            "version": file.version,
            "bytes": file.length,
            "digest": file.digest.to_string(),
        })
    })
}
