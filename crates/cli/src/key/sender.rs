//! `moteseal key request|certify|revoke`: makes and revokes the certificates of broadcast senders
//! (spec/broadcast.md, section 1).

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use moteseal_api::Named;
use moteseal_broadcast::{
    KeyId, MAX_REQUEST, MAX_REVOCATION, MAX_SENDER_CERTIFICATE, Revocation, RevocationDraft,
    Revoked, SenderCertificateDraft, SenderRequest, SenderRequestDraft, sender_named,
};
use moteseal_core::record::DeviceId;
use moteseal_core::record::NetworkId;
use moteseal_device::import::display_ms;
use moteseal_gateway::broadcast::Issued;
use serde_json::json;

use crate::broadcast::describe_revoked;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::terminal::report;
use crate::time::instant;

/// The maximum number of bytes of a sender's name.
const MAX_NAME: usize = 64;
const SECONDS_A_DAY: u64 = 86_400;

/// Make a sender's request to a base station for a certificate.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: moteseal key request --key keys/ops.key.pem --sender ops --out ops.request\n\
                        Send the request to the owner of a base station's key, who runs: moteseal key certify ops.request\n\
                        ...\n\
                        A sender's id has 8 bytes: 16 hexadecimal digits are used directly; the id of any other name is\n\
                        the first 8 bytes of SHA-256(\"moteseal/1/sender\" || 0x00 || name)."
)]
pub(crate) struct Request {
    /// The sender's secret key; the request is for a certificate of the corresponding public key
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// The sender's name, or its id as 16 hexadecimal digits
    #[arg(long, value_name = "NAME", value_parser = sender)]
    sender: DeviceId,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Certify a sender's request with a base station's key.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
                        moteseal key certify ops.request --ca keys/base.key.pem --serial 7 --days 90 --out ops.cert\n\
                        Verify by other means that the request came from the sender that it names: its signature only\n\
                        proves possession of the key; --sender refuses the request of another one. Every certificate has\n\
                        its own serial.\n\
                        The record next to the key (keys/base.certificates) lists the certificates: moteseal broadcast\n\
                        certificates.")]
pub(crate) struct Certify {
    /// The request
    #[arg(value_name = "REQUEST")]
    request: PathBuf,
    /// The base station's secret key
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    /// The certificate's serial number at this base station; default: one above the highest in the
    /// record
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..u64::MAX))]
    serial: Option<u64>,
    /// The sender's name, which the record keeps; refuse the request of another sender
    #[arg(long, value_name = "NAME", value_parser = sender_name)]
    sender: Option<String>,
    /// The record of this base station; default: next to the key
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// The network, as 16 hexadecimal digits; default: the network that the base station's key
    /// determines
    #[arg(long, value_name = "HEX", value_parser = network)]
    network: Option<NetworkId>,
    /// The start of the certificate's validity; default: now
    #[arg(long, value_name = "TIME", value_parser = instant)]
    not_before: Option<u64>,
    /// The certificate's validity in days; default: no end
    #[arg(long, value_name = "N", conflicts_with = "not_after")]
    days: Option<u64>,
    /// The end of the certificate's validity, for example 2027-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = instant)]
    not_after: Option<u64>,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Revoke certificates of a base station: single ones, or all below a serial number.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples: moteseal key revoke --ca keys/base.key.pem --serial 5 --out base.revocation\n\
                        revokes one certificate. A revocation lists at most 8 single serials.\n          \
                        moteseal key revoke --ca keys/base.key.pem --min-serial 8 --out base.revocation\n\
                        revokes every certificate of this base station with a serial of 7 or less. If a sender must remain\n\
                        valid, certify it again with a higher serial first.\n\
                        A revocation contains all earlier ones: the record next to the key has the newest, or give it with\n\
                        --after."
)]
#[group(id = "what", required = true, multiple = true, args = ["serial", "min_serial"])]
pub(crate) struct Revoke {
    /// The base station's secret key
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    /// The serial number of a certificate to revoke; may be repeated
    #[arg(long, value_name = "N")]
    serial: Vec<u64>,
    /// The lowest serial number that remains valid
    #[arg(long, value_name = "N")]
    min_serial: Option<u64>,
    /// An earlier revocation that the record does not have
    #[arg(long, value_name = "FILE")]
    after: Vec<PathBuf>,
    /// The record of this base station; default: next to the key
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// The network, as 16 hexadecimal digits; default: the network that the base station's key
    /// determines
    #[arg(long, value_name = "HEX", value_parser = network)]
    network: Option<NetworkId>,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Parses a sender's id or name.
pub(crate) fn sender(text: &str) -> Result<DeviceId, String> {
    let mut id = [0; 8];
    if hex::decode_to_slice(text, &mut id).is_ok() {
        return Ok(DeviceId(id));
    }
    if text.is_empty() || text.len() > MAX_NAME || text.chars().any(char::is_control) {
        return Err("a name of 1 to 64 bytes without control characters, or 16 hexadecimal digits"
            .to_owned());
    }
    Ok(sender_named(text))
}

/// Checks a sender's name.
fn sender_name(text: &str) -> Result<String, String> {
    sender(text).map(|_| text.to_owned())
}

/// Parses the id of a network.
pub(crate) fn network(text: &str) -> Result<NetworkId, String> {
    let mut id = [0; 8];
    hex::decode_to_slice(text, &mut id).map_err(|_| "16 hexadecimal digits".to_owned())?;
    Ok(NetworkId(id))
}

/// Returns the current time in Unix seconds.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

/// Formats a time in Unix seconds.
pub(crate) fn display_seconds(seconds: u64) -> String {
    seconds.checked_mul(1000).map_or_else(|| format!("second {seconds}"), display_ms)
}

fn internal(error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Internal, error)
}

pub(crate) fn request(arguments: &Request) -> Result<(), Failure> {
    let Request { key, sender, out } = arguments;
    let secret = files::secret_key(key)?;
    let mut buffer = [0; MAX_REQUEST];
    let draft = SenderRequestDraft { sender: *sender, key: &secret.public() };
    files::create(out, draft.issue(&secret, &mut buffer).map_err(internal)?, 0o644)?;
    report(
        format_args!("request of sender {sender}: {}", out.display()),
        || json!({ "file": out.display().to_string(), "sender": sender.to_string() }),
    )
}

pub(crate) fn certify(arguments: &Certify) -> Result<(), Failure> {
    let Certify { request: path, ca, network, not_before, days, not_after, out, .. } = arguments;
    let bytes = files::read(path)?;
    let request = SenderRequest::open(&bytes)
        .map_err(|error| not_signed(path, &bytes, "request", error.named()))?;
    let name = arguments.sender.as_deref();
    if let Some(name) = name
        && sender(name).is_ok_and(|sender| sender != request.sender)
    {
        let sender = request.sender;
        return Err(Failure::new(
            Exit::Refused,
            format_args!("OtherSender: the request is that of sender {sender}, and not of {name}"),
        )
        .about(path));
    }
    let base = files::secret_key(ca)?;
    files::check_absent(out)?;
    let record = arguments.record.clone().unwrap_or_else(|| record_path(ca));
    let mut issued = Issued::open(&record, &base.public())?;
    let highest = issued.certificates().iter().map(|of| of.serial).max();
    let serial = arguments.serial.or_else(|| highest.map_or(Some(1), |last| last.checked_add(1)));
    let serial = serial.filter(|serial| *serial < u64::MAX).ok_or_else(|| {
        Failure::usage("all serials above the highest one are used; give --serial")
    })?;
    let network = network.unwrap_or_else(|| NetworkId::of(&base.public()));
    let not_before = not_before.map_or_else(unix_seconds, |ms| ms / 1000);
    let not_after = match (days, not_after) {
        (Some(days), _) => {
            days.checked_mul(SECONDS_A_DAY).and_then(|length| not_before.checked_add(length))
        }
        (None, Some(ms)) => Some(ms / 1000),
        (None, None) => Some(u64::MAX),
    };
    let not_after = not_after.filter(|not_after| not_before < *not_after).ok_or_else(|| {
        Failure::usage("the certificate would never be valid: give --days above 0, or --not-after later than its start")
    })?;
    let draft = SenderCertificateDraft {
        network,
        base: KeyId::of(&base.public()),
        serial,
        sender: request.sender,
        key: &request.key,
        not_before,
        not_after,
    };
    let mut buffer = [0; MAX_SENDER_CERTIFICATE];
    let certificate = draft.issue(&base, &mut buffer).map_err(internal)?;
    issued.certify(name, certificate)?;
    files::create(out, certificate, 0o644)?;
    let until = if not_after == u64::MAX {
        String::from("without an end")
    } else {
        format!("until {}", display_seconds(not_after))
    };
    let text = format!(
        "certificate {serial} of sender {} in network {network}, {until}: {}",
        request.sender,
        out.display()
    );
    report(text, || {
        json!({
            "file": out.display().to_string(),
            "sender": request.sender.to_string(),
            "network": network.to_string(),
            "serial": serial,
            "not_before": not_before,
            "not_after": (not_after != u64::MAX).then_some(not_after),
        })
    })
}

pub(crate) fn revoke(arguments: &Revoke) -> Result<(), Failure> {
    let Revoke { ca, serial, min_serial, network, after, out, .. } = arguments;
    let base = files::secret_key(ca)?;
    let network = network.unwrap_or_else(|| NetworkId::of(&base.public()));
    files::check_absent(out)?;
    let record = arguments.record.clone().unwrap_or_else(|| record_path(ca));
    let mut issued = Issued::open(&record, &base.public())?;
    let mut revoked = issued.revoked(network).and_below(min_serial.unwrap_or_default());
    for path in after {
        let bytes = files::read(path)?;
        let (earlier, _) = Revocation::open(&bytes, network, &[base.public()])
            .map_err(|error| not_signed(path, &bytes, "revocation", error.named()))?;
        revoked = revoked.and_below(earlier.revoked().minimum());
        revoked = and_all(revoked, earlier.revoked().serials())?;
    }
    revoked = and_all(revoked, serial)?;
    let mut buffer = [0; MAX_REVOCATION];
    let draft = RevocationDraft { network, base: &base.public(), revoked };
    let revocation = draft.issue(&base, &mut buffer).map_err(internal)?;
    issued.revoke(network, revocation)?;
    files::create(out, revocation, 0o644)?;
    let text = format!(
        "revocation in network {network}: {}; {}",
        out.display(),
        describe_revoked(&revoked)
    );
    report(text, || {
        json!({
            "file": out.display().to_string(),
            "network": network.to_string(),
            "min_serial": revoked.minimum(),
            "serials": revoked.serials(),
        })
    })
}

/// Also revokes some serials.
fn and_all(revoked: Revoked, serials: &[u64]) -> Result<Revoked, Failure> {
    serials.iter().try_fold(revoked, |revoked, serial| {
        revoked.and(*serial).map_err(|error| Failure::named(Exit::Usage, error.named()))
    })
}

/// Returns the path of a base station's record: `base.certificates` next to `base.key.pem`.
pub(crate) fn record_path(key: &Path) -> PathBuf {
    let name = key.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let stem = [".key.pem", ".pub.pem"].iter().find_map(|end| name.strip_suffix(end));
    key.with_file_name(format!("{}.certificates", stem.unwrap_or(name)))
}

/// Returns the failure for a file that is not the expected signed object: a usage failure if it is
/// another kind of file, otherwise a refusal.
pub(crate) fn not_signed(
    path: &Path,
    bytes: &[u8],
    what: &str,
    error: Named<'_, impl std::fmt::Display>,
) -> Failure {
    match files::looks_like(&bytes[..bytes.len().min(64)]) {
        Some(like) if !bytes.starts_with(&[0xd2, 0x84]) => {
            Failure::usage(format_args!("{} is not a {what}; it looks like {like}", path.display()))
        }
        _ => Failure::named(Exit::Refused, error).about(path),
    }
}
