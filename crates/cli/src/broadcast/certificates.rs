//! `moteseal broadcast certificates`: the certificates that a base station has issued, or those that
//! a receiver knows.

use std::path::{Path, PathBuf};

use clap::Args;
use moteseal_broadcast::recovery::Store as _;
use moteseal_broadcast::{KeyId, Revoked, SenderCertificate};
use moteseal_core::record::NetworkId;
use moteseal_core::signature::PublicKey;
use moteseal_gateway::broadcast::Issued;
use moteseal_store::Archive;
use moteseal_store::archive::QUOTA;
use serde_json::json;

use crate::failure::{Exit, Failure};
use crate::files;
use crate::key::sender::{display_seconds, network, record_path, unix_seconds};
use crate::terminal::{Plain, Stdout, is_json};

/// List the certificates of senders: those that a base station has issued, or, with --state, those
/// that a receiver knows.
#[derive(Args, Debug)]
#[command(after_help = "Examples: moteseal broadcast certificates --ca keys/base.pub.pem\n\
                        reads the record keys/base.certificates, which `moteseal key certify` and `moteseal key revoke`\n\
                        extend.\n          \
                        moteseal broadcast certificates --ca keys/base.pub.pem --state broadcast.state\n\
                        reads the state of a stopped `moteseal broadcast watch`.")]
pub(crate) struct Arguments {
    /// The public key of a base station; may be repeated with --state
    #[arg(long, value_name = "PUBLIC_KEY", required = true)]
    ca: Vec<PathBuf>,
    /// The base station's record; default: next to the key
    #[arg(long, value_name = "FILE", conflicts_with = "state")]
    record: Option<PathBuf>,
    /// The state folder of `moteseal broadcast watch`, which must not run
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The network of the state, as 16 hexadecimal digits; default: the network that the first base
    /// station's key determines
    #[arg(long, value_name = "HEX", value_parser = network, requires = "state")]
    network: Option<NetworkId>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bases =
        arguments.ca.iter().map(|path| files::public_key(path)).collect::<Result<Vec<_>, _>>()?;
    match (&arguments.state, &arguments.ca[..], &bases[..]) {
        (Some(state), _, _) => known(arguments, state, &bases),
        (None, [path], [base]) => {
            let record = arguments.record.clone().unwrap_or_else(|| record_path(path));
            issued(&record, base)
        }
        _ => Err(Failure::usage("give one --ca, or --state")),
    }
}

/// Prints the certificates in a base station's record.
fn issued(path: &Path, base: &PublicKey) -> Result<(), Failure> {
    if !path.exists() {
        return Err(Failure::usage(
            "there is no such record; `moteseal key certify` makes it with the first certificate",
        )
        .about(path));
    }
    let issued = Issued::open_frozen(path, base)?;
    let now = unix_seconds();
    let mut out = Stdout::lock();
    let mut networks = Vec::new();
    for certificate in issued.certificates() {
        let revoked = issued.revoked(certificate.network);
        if !networks.contains(&certificate.network) {
            networks.push(certificate.network);
        }
        show_certificate(
            &mut out,
            &certificate.bytes,
            certificate.name.as_deref(),
            &revoked,
            now,
            None,
        )?;
    }
    for network in networks {
        show_revoked(&mut out, &format!("network {network}"), &issued.revoked(network))?;
    }
    Ok(())
}

/// Prints the certificates and revocations that a receiver knows.
fn known(arguments: &Arguments, state: &Path, bases: &[PublicKey]) -> Result<(), Failure> {
    if !state.exists() {
        return Err(Failure::usage("there is no such state folder").about(state));
    }
    let network = arguments.network.or_else(|| bases.first().map(NetworkId::of));
    let ids: Vec<KeyId> = bases.iter().map(KeyId::of).collect();
    let mut archive = Archive::open(state, network.unwrap_or(NetworkId([0; 8])), &ids, QUOTA)?;
    let now = unix_seconds();
    let mut out = Stdout::lock();
    let senders: Vec<_> =
        archive.certificates().map(|(key, bytes)| (key, bytes.to_vec())).collect();
    for (key, bytes) in senders {
        let claim = SenderCertificate::peek(&bytes)
            .map_err(|error| Failure::new(Exit::Internal, error).about(state))?;
        let base = (0..).zip(&ids).find(|(_, id)| **id == claim.base).map(|(place, _)| place);
        let revoked = base.map_or(Ok(Revoked::NONE), |base| archive.revoked(base))?;
        let newest = archive.floor(key)?.map(|number| number.0);
        show_certificate(&mut out, &bytes, None, &revoked, now, newest)?;
    }
    for (place, path) in (0..).zip(&arguments.ca) {
        let whose = format!("base station {}", path.display());
        show_revoked(&mut out, &whose, &archive.revoked(place)?)?;
    }
    Ok(())
}

/// Prints a certificate. `newest` is the number of the newest chain under its key, if known.
fn show_certificate(
    out: &mut Stdout,
    bytes: &[u8],
    name: Option<&str>,
    revoked: &Revoked,
    now: u64,
    newest: Option<u64>,
) -> Result<(), Failure> {
    let certificate =
        SenderCertificate::reopen(bytes).map_err(|error| Failure::new(Exit::Internal, error))?;
    let SenderCertificate { network, serial, sender, not_before, not_after, .. } = certificate;
    let status = match certificate.check(Some(now), revoked) {
        Ok(()) => "Valid",
        Err(error) => error.name(),
    };
    if is_json() {
        return out.line(json!({
            "serial": serial,
            "name": name,
            "sender": sender.to_string(),
            "key": KeyId::of_bytes(certificate.key_bytes).to_string(),
            "network": network.to_string(),
            "not_before": not_before,
            "not_after": (not_after != u64::MAX).then_some(not_after),
            "status": status,
            "newest_chain": newest,
        }));
    }
    let of = name.map_or_else(
        || format!("sender {sender}"),
        |name| format!("{} (sender {sender})", Plain(name)),
    );
    let until = match not_after {
        u64::MAX => "without an end".to_owned(),
        end => format!("until {}", display_seconds(end)),
    };
    let from = display_seconds(not_before);
    let newest = newest.map_or_else(String::new, |number| format!(", newest chain {number}"));
    out.line(format!("serial {serial}: {of}, {status}, from {from} {until}{newest}"))
}

/// Prints what is revoked in a network or by a base station.
fn show_revoked(out: &mut Stdout, whose: &str, revoked: &Revoked) -> Result<(), Failure> {
    if is_json() {
        return out.line(json!({
            "revoked_by": whose,
            "min_serial": revoked.minimum(),
            "serials": revoked.serials(),
        }));
    }
    out.line(format!("{whose}: {}", describe(revoked)))
}

/// Describes what a base station has revoked.
pub(crate) fn describe(revoked: &Revoked) -> String {
    let serials = revoked.serials().iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    match (revoked.minimum(), serials.is_empty()) {
        (0, true) => "no serial is revoked".to_owned(),
        (0, false) => format!("revoked serials: {serials}"),
        (minimum, true) => format!("revoked serials: all below {minimum}"),
        (minimum, false) => format!("revoked serials: all below {minimum}, and {serials}"),
    }
}
