//! `moteseal broadcast verify`: verifies evidence of what a sender sent, without a network
//! (spec/broadcast.md, section 6).

use std::fs;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use moteseal_broadcast::address::{AddressError, AddressRead, AddressReader, AddressStart, Opened};
use moteseal_broadcast::receipt::ReceiverKey;
use moteseal_broadcast::wire::MAX_BROADCAST_FRAME;
use moteseal_broadcast::{
    EvidenceCheck, Head, Kind, MAX_LABEL, Revocation, Revoked, SenderCertificate, Shown,
};
use moteseal_core::cbor::{DecodeError, item_length};
use moteseal_core::record::NetworkId;
use moteseal_core::signature::PublicKey;
use moteseal_files::{PRIVATE, PUBLIC, Temporary};
use serde_json::{Map, Value, json};

use super::receivers;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::key::sender::{display_seconds, network, not_signed, unix_seconds};
use crate::progress::thousands;
use crate::terminal::{Stdout, diagnostic, is_json};
use crate::time::instant;

/// Verify evidence of a broadcast without a network: the sender's certificate, and a chain of
/// messages under one signature.
///
/// Anyone who has the base stations' public keys can verify it. Evidence may contain only the first
/// blocks of a chain; it then proves the messages of these blocks. A chain does not show when it
/// was sent, so the certificate is checked at the time given by --at, or now.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
                        moteseal broadcast verify orders.evidence --ca base.pub.pem\n  \
                        moteseal broadcast verify image.evidence --ca base.pub.pem --out image.bin\n\n\
                        Messages are printed on stdout, one per line with its number. The content of an image goes only to\n\
                        --out.\n\
                        Exit codes: 0 the whole chain is verified, 3 refused, 4 verified, but the chain is not complete.")]
pub(crate) struct Arguments {
    /// The file with the evidence
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The public key of a base station; may be repeated
    #[arg(long, value_name = "PUBLIC_KEY", required = true)]
    ca: Vec<PathBuf>,
    /// The network, as 16 hexadecimal digits; default: the network that the first base station's
    /// key determines
    #[arg(long, value_name = "HEX", value_parser = network)]
    network: Option<NetworkId>,
    /// A revocation of one of the base stations; may be repeated
    #[arg(long, value_name = "FILE")]
    revocation: Vec<PathBuf>,
    /// The time at which to check the certificate; default: now
    #[arg(long, value_name = "TIME", value_parser = instant)]
    at: Option<u64>,
    /// The key of an addressed receiver, made by `moteseal broadcast receivers`: decrypts a chain for
    /// named receivers. Without it, only the encrypted messages are verified
    #[arg(long, value_name = "FILE")]
    receiver_key: Option<PathBuf>,
    /// Write all messages, concatenated, to this file; nothing is written unless the chain is
    /// complete
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bases =
        arguments.ca.iter().map(|path| files::public_key(path)).collect::<Result<Vec<_>, _>>()?;
    let own = bases
        .first()
        .map(NetworkId::of)
        .ok_or_else(|| Failure::usage("give the public key of a base station with --ca"))?;
    let network = arguments.network.unwrap_or(own);
    let revoked = revoked(&arguments.revocation, network, &bases)?;
    let now = arguments.at.map_or_else(unix_seconds, |ms| ms / 1000);
    let path = &arguments.file;
    let mut frames = Frames::open(path)?;
    let mut check = EvidenceCheck::new(network, &bases);
    let mut report = Report::new(arguments)?;
    while let Some(frame) = frames.next()? {
        match check
            .take(frame)
            .map_err(|error| Failure::named(Exit::Refused, error.named()).about(path))?
        {
            Shown::Certificate { certificate, base } => {
                let revoked = revoked.get(base).copied().unwrap_or_default();
                certificate
                    .check(Some(now), &revoked)
                    .map_err(|error| Failure::named(Exit::Refused, error.named()).about(path))?;
                report.certificate(&certificate);
            }
            Shown::Head(head) => report.head(&head, arguments)?,
            Shown::Message { number, message, is_proven } => {
                report.message(number, message, is_proven)?;
            }
        }
    }
    let (proven, messages) = check.proven().ok_or_else(|| {
        Failure::new(
            Exit::Incomplete,
            format_args!("{}: the evidence ends before its head", path.display()),
        )
    })?;
    report.finish(path, proven, messages)
}

/// Returns what each base station has revoked. Of several revocations of a base station, each must
/// cover the ones before it, or be covered by them.
fn revoked(
    revocations: &[PathBuf],
    network: NetworkId,
    bases: &[PublicKey],
) -> Result<Vec<Revoked>, Failure> {
    let mut all = vec![Revoked::NONE; bases.len()];
    for path in revocations {
        let bytes = files::read(path)?;
        let (revocation, base) = Revocation::open(&bytes, network, bases)
            .map_err(|error| not_signed(path, &bytes, "revocation", error.named()))?;
        let Some(known) = all.get_mut(base) else { continue };
        if revocation.revoked().covers(known) {
            *known = *revocation.revoked();
        } else if !known.covers(revocation.revoked()) {
            return Err(Failure::usage(
                "Superseded: another revocation of this base station revokes serials that this one does not; give only the newest one",
            )
            .about(path));
        }
    }
    Ok(all)
}

/// Reads the key that a receiver shares with the sender of a chain.
fn key_for(head: &Head<'_>, path: &Path) -> Result<ReceiverKey, Failure> {
    let key = receivers::key(path)?;
    if (key.network(), key.sender()) == (head.id().network, head.id().sender) {
        return Ok(key);
    }
    let message = "NoReceiverKey: the receiver shares this key with another sender; use the one that it shares with the sender of the chain";
    Err(Failure::usage(message).about(path))
}

/// Reads the frames of a file one at a time.
struct Frames<'p> {
    path: &'p Path,
    file: fs::File,
    buffer: Vec<u8>,
    /// The range of the buffer that has been read but not yet returned.
    from: usize,
    to: usize,
}

impl<'p> Frames<'p> {
    fn open(path: &'p Path) -> Result<Self, Failure> {
        let fail = |error| Failure::file("read", path, &error);
        let mut frames = Self {
            path,
            file: fs::File::open(path).map_err(fail)?,
            buffer: vec![0; 4 * MAX_BROADCAST_FRAME],
            from: 0,
            to: 0,
        };
        frames.fill()?;
        let head = &frames.buffer[..frames.to.min(64)];
        if head.is_empty() {
            return Err(Failure::usage(format_args!("{} is empty", path.display())));
        }
        // Evidence starts with a certificate's frame: an array of two items. The first item is 32.
        match files::looks_like(head) {
            Some(like) if !head.starts_with(&[0x82, 0x18, 32]) => Err(Failure::usage(
                format_args!("{} is not evidence; it looks like {like}", path.display()),
            )),
            _ => Ok(frames),
        }
    }

    /// Reads until the buffer is full or the file ends.
    fn fill(&mut self) -> Result<(), Failure> {
        self.buffer.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        while self.to < self.buffer.len() {
            match self.file.read(&mut self.buffer[self.to..]) {
                Ok(0) => break,
                Ok(length) => self.to += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::file("read", self.path, &error)),
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<&[u8]>, Failure> {
        if self.to - self.from < MAX_BROADCAST_FRAME {
            self.fill()?;
        }
        if self.from == self.to {
            return Ok(None);
        }
        let rest = &self.buffer[self.from..self.to];
        // No frame is longer than the buffer.
        let length = item_length(rest).map_err(|error| match error {
            DecodeError::Truncated if rest.len() < MAX_BROADCAST_FRAME => {
                Failure::named(Exit::Incomplete, error.named())
                    .with(", the file is truncated; the frames before it are verified")
                    .about(self.path)
            }
            error => Failure::named(Exit::Refused, error.named()).about(self.path),
        })?;
        self.from += length;
        Ok(Some(&rest[..length]))
    }
}

/// Prints the messages of each block of the evidence once the block is verified.
struct Report {
    out: Stdout,
    file: Option<Unfinished>,
    facts: Map<String, Value>,
    line: String,
    kind: Kind,
    /// The messages of the block that is not complete yet: at most 64 messages of 8 KiB.
    pending: Vec<(u32, Vec<u8>)>,
    bytes: u64,
    /// How to read a chain for named receivers.
    address: Option<Address>,
}

/// The state of reading a chain for named receivers.
struct Address {
    messages: u32,
    reader: AddressReader,
    key: Option<ReceiverKey>,
    opened: Option<Opened>,
    /// The first message of the address.
    first: Vec<u8>,
    /// The label, as soon as it is decrypted.
    label: Option<String>,
}

impl Address {
    /// Reads a message. Returns its number and content; `None` if it belongs to the address or
    /// cannot be decrypted.
    fn read(
        &mut self,
        number: u32,
        message: &[u8],
    ) -> Result<Option<(u32, Vec<u8>)>, AddressError> {
        if number == 0 {
            self.first = message.to_vec();
        }
        if self.opened.is_none() {
            let read = self.reader.take(self.key.as_ref(), message)?;
            if read == AddressRead::More || self.key.is_none() {
                return Ok(None);
            }
            let opened = self.opened.insert(self.reader.open()?);
            let start = AddressStart::decode(&self.first, self.messages)?;
            self.label = Some(opened.cipher.label(&start, &mut [0; MAX_LABEL])?.to_owned());
        }
        let Some(opened) = &self.opened else { return Ok(None) };
        let Some((number, content)) = opened.content(number, message)? else { return Ok(None) };
        let mut content = content.to_vec();
        opened.cipher.apply(number, &mut content);
        Ok(Some((number, content)))
    }
}

impl Report {
    fn new(arguments: &Arguments) -> Result<Self, Failure> {
        // What only named receivers may read is for the owner of the file only.
        let mode = if arguments.receiver_key.is_some() { PRIVATE } else { PUBLIC };
        let file = arguments.out.as_deref().map(|path| Unfinished::new(path, mode)).transpose()?;
        Ok(Self {
            out: Stdout::lock(),
            file,
            facts: Map::new(),
            line: String::new(),
            kind: Kind::Announcement,
            pending: Vec::new(),
            bytes: 0,
            address: None,
        })
    }

    fn certificate(&mut self, certificate: &SenderCertificate<'_>) {
        let SenderCertificate { network, base, serial, sender, not_before, not_after, .. } =
            certificate;
        let until = (*not_after != u64::MAX).then(|| display_seconds(*not_after));
        for (name, value) in [
            ("sender", json!(sender.to_string())),
            ("network", json!(network.to_string())),
            ("base_station", json!(base.to_string())),
            ("serial", json!(serial)),
            ("not_before", json!(display_seconds(*not_before))),
            ("not_after", json!(until)),
        ] {
            self.facts.insert(name.to_owned(), value);
        }
        self.line = format!("sender {sender}, certificate {serial} of base station {base}");
    }

    fn head(&mut self, head: &Head<'_>, arguments: &Arguments) -> Result<(), Failure> {
        if head.outline().is_addressed {
            let key =
                arguments.receiver_key.as_deref().map(|path| key_for(head, path)).transpose()?;
            if key.is_none() && arguments.out.is_some() {
                return Err(Failure::usage(
                    "NoReceiverKey: the messages are encrypted; --out needs --receiver-key",
                ));
            }
            let (messages, reader) = (head.outline().messages, AddressReader::new(head.outline()));
            let (opened, first, label) = (None, Vec::new(), None);
            self.address = Some(Address { messages, reader, key, opened, first, label });
        }
        let (id, outline, window) = (head.id(), head.outline(), head.window());
        let until = window.has_end().then(|| display_seconds(window.not_after));
        self.kind = outline.kind;
        for (name, value) in [
            ("chain", json!(id.number.0)),
            ("kind", json!(outline.kind.name())),
            ("label", json!(head.label())),
            ("addressed", json!(outline.is_addressed)),
            ("deliver_from", json!(display_seconds(window.not_before))),
            ("deliver_until", json!(until)),
            ("previous_chain", json!(head.previous().map(|previous| previous.0))),
            ("messages", json!(outline.messages)),
            ("per_block", json!(outline.per_block)),
        ] {
            self.facts.insert(name.to_owned(), value);
        }
        let label =
            if head.label().is_empty() { String::new() } else { format!(" {:?}", head.label()) };
        self.line += &format!(", chain {}{label} ({})", id.number, outline.kind);
        if let Some(until) = until {
            let from = display_seconds(window.not_before);
            self.line += &format!(", to be delivered from {from} until {until}");
        }
        Ok(())
    }

    fn message(&mut self, number: u32, message: &[u8], is_proven: bool) -> Result<(), Failure> {
        self.pending.push((number, message.to_vec()));
        if is_proven {
            for (number, message) in std::mem::take(&mut self.pending) {
                self.print(number, &message)?;
            }
        }
        Ok(())
    }

    /// Decrypts a message of a chain for named receivers, and prints it.
    fn print(&mut self, number: u32, message: &[u8]) -> Result<(), Failure> {
        let Some(address) = &mut self.address else { return self.print_content(number, message) };
        let read = address.read(number, message);
        let read = read.map_err(|error| Failure::named(Exit::Refused, error.named()))?;
        if let Some(label) = address.label.take().filter(|label| !label.is_empty()) {
            self.line += &format!(", label {label:?}");
            self.facts.insert("label".to_owned(), json!(label));
        }
        match read {
            Some((number, content)) => self.print_content(number, &content),
            None => Ok(()),
        }
    }

    fn print_content(&mut self, number: u32, message: &[u8]) -> Result<(), Failure> {
        self.bytes += message.len() as u64;
        if let Some(file) = &mut self.file {
            file.write(message)?;
        }
        if self.kind == Kind::File {
            return Ok(());
        }
        // Bytes that are not text are shown in hexadecimal.
        let text = std::str::from_utf8(message).ok();
        match (is_json(), text) {
            (true, Some(text)) => self.out.line(json!({ "message": number, "text": text })),
            (true, None) => {
                self.out.line(json!({ "message": number, "hex": hex::encode(message) }))
            }
            (false, Some(text)) => self.out.line(format_args!("{number}  {text}")),
            (false, None) => self.out.line(format_args!("{number}  0x{}", hex::encode(message))),
        }
    }

    fn finish(mut self, path: &Path, proven: u32, messages: u32) -> Result<(), Failure> {
        let (is_whole, shown) = (proven == messages, thousands(u64::from(proven)));
        if is_json() {
            self.facts.insert("proven".to_owned(), json!(proven));
            self.facts.insert("bytes".to_owned(), json!(self.bytes));
            self.facts.insert("whole".to_owned(), json!(is_whole));
            self.out.line(Value::Object(self.facts))?;
        }
        diagnostic(&self.line);
        if !is_whole {
            let loose = if self.pending.is_empty() {
                ""
            } else {
                "; the messages after them prove nothing until their block is complete"
            };
            let message = format!(
                "{}: the first {shown} of {} messages are verified{loose}",
                path.display(),
                thousands(u64::from(messages))
            );
            return Err(Failure::new(Exit::Incomplete, message));
        }
        if let Some(file) = self.file {
            file.finish()?;
        }
        let is_encrypted = self.address.as_ref().is_some_and(|address| address.key.is_none());
        if is_encrypted {
            diagnostic(format_args!(
                "verified: all {shown} messages; they are encrypted, and --receiver-key decrypts them"
            ));
        } else {
            let size = thousands(self.bytes);
            diagnostic(format_args!("verified: all {shown} messages, {size} bytes"));
        }
        Ok(())
    }
}

/// A new file that becomes visible only when it is complete.
struct Unfinished {
    path: PathBuf,
    temporary: Temporary,
    out: BufWriter<fs::File>,
}

impl Unfinished {
    fn new(path: &Path, mode: u32) -> Result<Self, Failure> {
        if path.exists() {
            return Err(Failure::usage(format_args!(
                "{} already exists; remove it or name another file",
                path.display()
            )));
        }
        let fail = |error| Failure::file("write", path, &error);
        let temporary = Temporary::create(path, mode).map_err(fail)?;
        let out = BufWriter::new(temporary.file().map_err(fail)?);
        Ok(Self { path: path.to_owned(), temporary, out })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).map_err(|error| Failure::file("write", &self.path, &error))
    }

    fn finish(mut self) -> Result<(), Failure> {
        let written = self.out.flush().and_then(|()| self.out.get_ref().sync_all());
        // Unlike a rename, a link fails if another process has created the file in the meantime.
        written
            .and_then(|()| self.temporary.link(&self.path))
            .map_err(|error| Failure::file("write", &self.path, &error))
    }
}
