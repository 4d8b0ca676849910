//! `moteseal broadcast send`: sends lines or files as authenticated broadcasts.

mod addressed;
mod live;
mod receipts;
mod terms;

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use moteseal_broadcast::firmware::{UPDATE_PART, UPDATE_SUFFIX};
use moteseal_broadcast::recovery::RefusedBroadcast;
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_broadcast::{
    ChainDraft, ChainId, ChainRef, KeyId, Kind, MAX_LABEL, MAX_MESSAGE, OutgoingChain, Revocation,
    SenderCertificate, SenderClaim,
};
use moteseal_core::cbor::Writer;
use moteseal_core::record::DeviceId;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::SecretKey;
use moteseal_gateway::broadcast::{
    AddressForm, Addressees, Amount, BegunChain, ChainNumbers, Content, ContentError, Hashes,
    Manner, Receivers, SendError, Sender, Unfinished, build, sign,
};
use moteseal_net::{Broadcast, BroadcastLink as _};
use serde_json::json;

use self::addressed::{Prepared, prepare};
use self::live::send_live;
use self::receipts::{Expected, ReceiptArguments};
use self::terms::{Terms, TermsArguments};
use super::link::{Access, until_up};
use super::receivers;
use crate::cloud::runtime;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::key::sender::display_seconds;
use crate::progress::{bar, bytes, count};
use crate::terminal::{self, Stdout, diagnostic, is_json};

/// How many times a revocation is sent. It is sent repeatedly, because receivers do not request
/// lost revocations.
const REVOCATIONS: u32 = 5;
/// The time between two transmissions of a revocation.
const PAUSE: Duration = Duration::from_millis(100);

/// Broadcast files, announcements or commands, so that every receiver can verify them.
///
/// One signature covers a whole chain of messages, so all its messages must be known in advance. A
/// file is split into messages; a receiver saves the file when it is complete. Receivers request
/// lost messages: this command answers them while it runs, and other receivers answer afterwards.
///
/// A command has an end, after which no receiver obeys it, and a topic: a receiver obeys only the
/// newest command of a topic. Announcements reach every receiver, also those that join later.
///
/// With --only, the content is encrypted for some receivers of the list. Other receivers verify and
/// relay it, and cannot read it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
                        moteseal broadcast send --key ops.key.pem --cert ops.cert --to udp://239.1.2.3:5000 --block 32 \\\n      \
                        firmware.bin\n  \
                        echo open | moteseal broadcast send --key ops.key.pem --cert ops.cert \\\n      \
                        --to udp://239.1.2.3:5000 --lines - --kind command --topic \"valve 3\" --valid 10m\n  \
                        tail -f orders | moteseal broadcast send --key ops.key.pem --cert ops.cert \\\n      \
                        --to mqtts://broker/field --lines - --live --kind command --valid 1m\n  \
                        moteseal broadcast send --key ops.key.pem --cert ops.cert --to udp://239.1.2.3:5000 \\\n      \
                        --only valve-1,valve-2 plan.pdf\n  \
                        moteseal broadcast send --revoke base.revocation --to udp://239.1.2.3:5000\n\n\
                        Addresses: udp://GROUP:PORT (a multicast address with optional ?interface= and &ttl=, or a\n\
                        broadcast address), mqtt[s]://BROKER/GROUP.\n\
                        Chain numbers only increase. The last one is stored next to the key, or in --state.\n\
                        Receivers of the list (moteseal broadcast receivers) acknowledge what they have; --wait-for waits\n\
                        for them.\n\
                        Exit codes: 0 some receiver answered, and enough have acknowledged; 4 too few have; 6 no receiver\n\
                        answered.")]
pub(crate) struct Arguments {
    /// Files, each sent as one chain
    #[arg(value_name = "FILE", required_unless_present_any = ["lines", "revoke"])]
    files: Vec<PathBuf>,
    /// The sender's secret key
    #[arg(long, value_name = "FILE", required_unless_present = "revoke")]
    key: Option<PathBuf>,
    /// The sender's certificate
    #[arg(long, value_name = "FILE", required_unless_present = "revoke")]
    cert: Option<PathBuf>,
    /// The address, for example udp://239.1.2.3:5000
    #[arg(long, value_name = "ADDRESS")]
    to: String,
    /// Messages per block; a receiver uses messages only when their block is complete [default: 32
    /// for files, 1 for lines and update files]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    block: Option<u8>,
    /// The number of bytes of a file per message [default: 1024, 256 for update files]; also the
    /// maximum for a message of the address that --only adds
    #[arg(long, value_name = "BYTES")]
    message: Option<usize>,
    /// A file whose lines are the messages of one chain; - for stdin
    #[arg(long, value_name = "FILE", conflicts_with = "files")]
    lines: Option<PathBuf>,
    /// Send each line as soon as it is read, as one chain with one signature
    #[arg(long, requires = "lines", conflicts_with = "block")]
    live: bool,
    /// The label of the chain; default: the name of the file
    #[arg(long, value_name = "TEXT", conflicts_with = "topic")]
    label: Option<String>,
    #[command(flatten)]
    terms: TermsArguments,
    #[command(flatten)]
    receipts: ReceiptArguments,
    /// Exit with 0 even if no receiver answers
    #[arg(long)]
    without_receivers: bool,
    /// The file with the number of the last chain; default: next to the key
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Whether to go on with a chain that was not finished, if it has the same content and terms:
    /// receivers then get the content once, under the first number. `auto` does so for files
    #[arg(long, value_name = "WHEN", default_value = "auto", conflicts_with = "live")]
    resume: Resume,
    /// Answer receivers' requests for this many seconds after the last block
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = seconds)]
    linger: f64,
    /// The maximum number of bytes per second
    #[arg(long, value_name = "BYTES", default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    rate: u64,
    /// Broadcast a base station's revocation before anything else; may be repeated
    #[arg(long, value_name = "FILE")]
    revoke: Vec<PathBuf>,
    #[command(flatten)]
    access: Access,
}

/// When to go on with an unfinished chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Resume {
    /// If the content is a file
    Auto,
    /// Also if the content is lines
    Always,
    /// Always send the content as a new chain
    Never,
}

impl Arguments {
    /// Returns the label of lines: for commands, this is their topic.
    fn label(&self) -> &str {
        self.terms.topic.as_deref().or(self.label.as_deref()).unwrap_or_default()
    }
}

/// Parses a number of seconds, up to a year.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds".to_owned())?;
    if (0.0..=31_536_000.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("a number of seconds from 0 to a year".to_owned())
    }
}

/// The sender of the broadcasts, with its key, certificate and chain numbers.
struct Speaker {
    key: SecretKey,
    id: KeyId,
    certificate: Vec<u8>,
    network: NetworkId,
    sender: DeviceId,
    numbers: ChainNumbers,
    unfinished: Unfinished,
    expected: Option<Expected>,
}

impl Speaker {
    fn read(arguments: &Arguments) -> Result<Option<Self>, Failure> {
        let (Some(key_path), Some(path)) = (&arguments.key, &arguments.cert) else {
            return Ok(None);
        };
        let key = files::secret_key(key_path)?;
        let certificate = files::read(path)?.to_vec();
        let claim = SenderCertificate::peek(&certificate).map_err(|error| {
            Failure::named(Exit::Usage, error.named())
                .with("; `moteseal key certify` makes a sender's certificate")
                .about(path)
        })?;
        let state = arguments.state.clone().unwrap_or_else(|| numbers_path(key_path));
        let numbers = ChainNumbers::new(&state, claim.sender);
        let unfinished = Unfinished::new(&state, claim.network, claim.sender, key.public());
        let id = KeyId::of(&key.public());
        if claim.key != id {
            let error = RefusedBroadcast::KeyNotCertified;
            return Err(Failure::named(Exit::Usage, error.named()).about(key_path));
        }
        let list = match &arguments.receipts.receivers {
            Some(path) => Some(path.clone()),
            None => Some(receivers::list_path(key_path)).filter(|path| path.exists()),
        };
        let list = list.map(|path| list_of(&claim, &path)).transpose()?;
        let expected = arguments.receipts.expected(list)?;
        Ok(Some(Self {
            expected,
            key,
            id,
            certificate,
            network: claim.network,
            sender: claim.sender,
            numbers,
            unfinished,
        }))
    }

    /// Returns the receivers for which the content is encrypted; `None` if it is for all.
    fn addressees(&self) -> Option<Addressees<'_>> {
        self.expected.as_ref()?.addressees()
    }

    /// Takes the chain of `chains` that has this content, label, terms and receivers.
    fn take_begun(
        &self,
        chains: &mut Vec<BegunChain>,
        terms: &Terms,
        (per_block, form): (u8, AddressForm),
        (label, content): (&str, &Content),
    ) -> Result<Option<BegunChain>, Failure> {
        let (now, to) = (unix_now()?, self.addressees());
        let of_head = if to.is_some() { "" } else { label };
        for (place, begun) in chains.iter().enumerate() {
            let Some(draft) = begun.draft() else { continue };
            let is_same = (draft.label, draft.kind, draft.per_block)
                == (of_head, terms.kind, per_block)
                && draft.is_addressed == to.is_some()
                && terms.have(&draft.window, begun.begun(), now);
            if !is_same {
                continue;
            }
            let (id, key) = ((&draft.id, draft.key), begun.content_key());
            let prepared = prepare(to.as_ref(), key, id, (label, content), form)?;
            if begun.has_content(&prepared.content)? {
                return Ok(Some(chains.remove(place)));
            }
        }
        Ok(None)
    }

    /// Returns the parameters of the next chain. `now` is the time in seconds of Unix time.
    fn next<'t>(
        &self,
        terms: &Terms,
        per_block: u8,
        label: &'t str,
        now: u64,
    ) -> Result<ChainDraft<'t>, Failure> {
        let (number, previous) = self.numbers.next(self.id)?;
        let (network, sender) = (self.network, self.sender);
        Ok(ChainDraft {
            id: ChainId { network, sender, number },
            key: self.id,
            messages: 0,
            per_block,
            kind: terms.kind,
            label,
            window: terms.window(now)?,
            previous,
            is_addressed: self.addressees().is_some(),
        })
    }
}

/// Reads a list of receivers, and checks that it is that of the certified sender.
fn list_of(claim: &SenderClaim, path: &Path) -> Result<Receivers, Failure> {
    let list = receivers::read(path)?;
    if (list.network(), list.sender()) != (claim.network, claim.sender) {
        let message = "OtherSender: the list has the receivers of another sender or network; use --receivers with the list that was made with this certificate";
        return Err(Failure::usage(message).about(path));
    }
    Ok(list)
}

/// Returns the path of a sender's file of chain numbers: `ops.chains` next to `ops.key.pem`.
fn numbers_path(key: &Path) -> PathBuf {
    let name = key.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    key.with_file_name(format!("{}.chains", name.strip_suffix(".key.pem").unwrap_or(name)))
}

/// Returns the time in seconds since 1970.
fn unix_now() -> Result<u64, Failure> {
    SystemTime::now().duration_since(UNIX_EPOCH).map(|since| since.as_secs()).map_err(|_| {
        Failure::new(Exit::Internal, "the clock is before 1970; set the clock of this machine")
    })
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let speaker = Speaker::read(arguments)?;
    let terms = Terms::of(&arguments.terms, arguments.lines.is_some())?;
    // Reject a window that no receiver would accept before anything is sent.
    terms.window(unix_now()?)?;
    let revocations =
        arguments.revoke.iter().map(|path| revocation(path)).collect::<Result<Vec<_>, _>>()?;
    let contents = contents(arguments)?;
    runtime()?.block_on(async {
        let link = arguments.access.open(&arguments.to)?;
        until_up(&link, &arguments.to).await?;
        revoke(&link, &revocations).await?;
        let Some(speaker) = &speaker else { return Ok(()) };
        if arguments.live {
            return send_live(arguments, &terms, speaker, &link).await;
        }
        send_all(arguments, &terms, speaker, &link, &contents).await
    })
}

/// Reads a revocation. Does not verify it: receivers check that their base station signed it.
fn revocation(path: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = files::read(path)?.to_vec();
    Revocation::peek(&bytes).map_err(|error| {
        Failure::named(Exit::Usage, error.named())
            .with("; `moteseal key revoke` makes a revocation")
            .about(path)
    })?;
    Ok(bytes)
}

async fn revoke(link: &Broadcast, revocations: &[Vec<u8>]) -> Result<(), Failure> {
    for revocation in revocations {
        let mut frame = vec![0; MAX_BROADCAST_FRAME];
        let mut writer = Writer::new(&mut frame);
        BroadcastFrame::Revocation(revocation)
            .encode(&mut writer)
            .map_err(|error| Failure::new(Exit::Internal, error))?;
        let length = writer.position();
        frame.truncate(length);
        let frame = bytes::Bytes::from(frame);
        for time in 0..REVOCATIONS {
            if time > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            link.send(frame.clone()).await?;
        }
    }
    if !revocations.is_empty() {
        terminal::report(
            format_args!("sent {}", count(revocations.len() as u64, "revocation")),
            || json!({ "revocations": revocations.len() }),
        )?;
    }
    Ok(())
}

/// Returns the contents to send, with their labels.
fn contents(arguments: &Arguments) -> Result<Vec<(String, Content)>, Failure> {
    let failure = |error: ContentError| match error {
        ContentError::Unreadable(path, error) => Failure::file("read", &path, &error),
        error => error.into(),
    };
    if arguments.live {
        return Ok(Vec::new());
    }
    if let Some(path) = &arguments.lines {
        let mut lines = Vec::new();
        for line in reader(path)?.split(b'\n') {
            let line = line.map_err(|error| Failure::file("read", path, &error))?;
            if line.len() > MAX_MESSAGE {
                return Err(failure(ContentError::LineTooLong {
                    line: lines.len() + 1,
                    length: line.len(),
                }));
            }
            lines.push(trimmed(line));
        }
        let label = arguments.label().to_owned();
        return Ok(vec![(label, Content::lines(lines).map_err(failure)?)]);
    }
    let name_of = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut name: String = name
            .chars()
            .map(|character| if character.is_control() { '_' } else { character })
            .collect();
        while name.len() > MAX_LABEL {
            name.pop();
        }
        name
    };
    let content = |path: &PathBuf| {
        let label = arguments.label.clone().unwrap_or_else(|| name_of(path));
        let content = Content::file(path, arguments.message).map_err(|error| match error {
            ContentError::Empty => failure(error).about(path),
            error => failure(error),
        })?;
        if content.is_update_file() {
            check_update_file(arguments, &label).map_err(|failure| failure.about(path))?;
        }
        Ok((label, content))
    };
    arguments.files.iter().map(content).collect()
}

/// Checks that motes will accept an update file (spec/update.md, section 2).
fn check_update_file(arguments: &Arguments, label: &str) -> Result<(), Failure> {
    let message = arguments.message.unwrap_or(UPDATE_PART);
    if arguments.block.unwrap_or(1) != 1 || message != UPDATE_PART {
        let message = "motes accept an update file only in blocks of one message of 256 bytes; leave out --block and --message";
        return Err(Failure::usage(message));
    }
    if !arguments.receipts.only.is_empty() {
        let message =
            "motes accept an update file only if it is not encrypted; use --for in place of --only";
        return Err(Failure::usage(message));
    }
    if !label.ends_with(UPDATE_SUFFIX) {
        let message = format!(
            "motes accept an update file only with a label that ends with {UPDATE_SUFFIX}; rename the file, or give such a --label"
        );
        return Err(Failure::usage(message));
    }
    Ok(())
}

fn reader(path: &Path) -> Result<Box<dyn io::BufRead + Send>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path).map_err(|error| Failure::file("read", path, &error))?;
    Ok(Box::new(BufReader::new(file)))
}

/// Removes the end of a line, LF or CRLF.
fn trimmed(mut line: Vec<u8>) -> Vec<u8> {
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    line
}

fn seed() -> Result<u64, Failure> {
    getrandom::u64().map_err(|error| {
        Failure::new(Exit::Internal, format_args!("cannot get random bytes: {error}"))
    })
}

async fn send_all(
    arguments: &Arguments,
    terms: &Terms,
    speaker: &Speaker,
    link: &Broadcast,
    contents: &[(String, Content)],
) -> Result<(), Failure> {
    let mut hashes: Vec<Hashes> = contents.iter().map(|_| Hashes::default()).collect();
    let chains: Vec<OnceCell<OutgoingChain<'_>>> =
        contents.iter().map(|_| OnceCell::new()).collect();
    let manner = Manner { rate: arguments.rate, ..Manner::LAN };
    let sender = Sender::new(link, speaker.network, &speaker.certificate, manner, seed()?);
    let mut sender = sender?;
    let (mut sent_chains, mut finished) = (Vec::new(), Vec::new());
    let resumes = match arguments.resume {
        Resume::Auto => terms.kind == Kind::File,
        Resume::Always => true,
        Resume::Never => false,
    };
    let unfinished_failure = |error| Failure::file("write", speaker.unfinished.folder(), &error);
    let per_block = |content: &Content| {
        let usual = if terms.kind == Kind::File && !content.is_update_file() { 32 } else { 1 };
        arguments.block.unwrap_or(usual)
    };
    let to = speaker.addressees();
    let form = AddressForm::divided(arguments.message);
    let prepared_contents: Vec<OnceCell<Content>> =
        contents.iter().map(|_| OnceCell::new()).collect();
    let mut begun_chains = Vec::new();
    let last = speaker.numbers.last()?;
    // This also removes chains that can no longer be continued, with their keys.
    let mut all = speaker.unfinished.resumable(last).map_err(unfinished_failure)?;
    if resumes {
        for (label, content) in contents {
            let settings = (per_block(content), form);
            begun_chains.push(speaker.take_begun(&mut all, terms, settings, (label, content))?);
        }
    }
    let mut begun_chains = begun_chains.into_iter();
    if let Some(expected) = &speaker.expected {
        sender.set_receivers(&expected.list);
    }
    let places = chains.iter().zip(&prepared_contents);
    for ((places, hashes), (label, plain)) in places.zip(&mut hashes).zip(contents) {
        let before = sender.amount();
        let about = |error: SendError| match (&error, label.is_empty()) {
            (SendError::ContentChanged { .. }, false) => {
                Failure::from(error).about(Path::new(label))
            }
            _ => error.into(),
        };
        // Reserve one number at a time, because another process of this sender may send a chain in
        // the meantime, and numbers must not decrease.
        let now = unix_now()?;
        let begun = begun_chains.next().flatten();
        let of_head = if to.is_some() { "" } else { &**label };
        let draft = match begun.as_ref().and_then(BegunChain::draft) {
            Some(draft) => ChainDraft { label: of_head, ..draft },
            None => speaker.next(terms, per_block(plain), of_head, now)?,
        };
        let key = begun.as_ref().and_then(BegunChain::content_key);
        let prepared = prepare(to.as_ref(), key, (&draft.id, draft.key), (label, plain), form)?;
        let Prepared { content, key } = prepared;
        let content = places.1.get_or_init(|| content);
        let chain = build(draft, content, hashes).map_err(about)?;
        let chain = places.0.get_or_init(|| chain);
        // The content may have been modified since it was compared with that of the begun chain.
        if begun.as_ref().is_some_and(|begun| !begun.is_same(chain)) {
            return Err(about(SendError::ContentChanged { message: None }));
        }
        let number = chain.outline().id.number;
        let mut begun = match begun {
            Some(begun) => begun,
            None => {
                let head = sign(chain, &speaker.key)?;
                speaker.unfinished.begin(number, head, now, key).map_err(unfinished_failure)?
            }
        };
        let (head, sent_blocks) = (begun.head().to_vec(), begun.blocks());
        if sent_blocks > 0 {
            diagnostic(format_args!(
                "chain {number} goes on after block {sent_blocks} of {}",
                chain.blocks()
            ));
        }
        if let Some(expected) = &speaker.expected {
            sender.expect(chain.reference(), &head, expected.positions.iter().copied());
            sent_chains.push((chain.reference(), chain.outline().id.number.0));
        }
        if let Some(to) = &to {
            sender.address(chain.reference(), to.positions());
        }
        let bar = bar(u64::from(chain.blocks()), "blocks");
        let progress = |block| {
            bar.set_position(u64::from(block));
            begun.record(block);
        };
        let sent = sender.send_after(sent_blocks, chain, content, head, progress).await;
        bar.finish_and_clear();
        sent.map_err(about)?;
        let of_receivers = to.as_ref().map(|to| to.positions().len());
        report(chain, (plain, of_receivers), label, less(sender.amount(), before))?;
        finished.push(begun);
    }
    finish(arguments, speaker, &mut sender, &sent_chains).await?;
    finished.into_iter().try_for_each(|begun| begun.finish().map_err(unfinished_failure))
}

/// Answers requests for the time that the user has chosen, and collects receipts. Then fails if too
/// few receivers have acknowledged what was sent, or if there is no receiver.
async fn finish(
    arguments: &Arguments,
    speaker: &Speaker,
    sender: &mut Sender<'_, Broadcast>,
    chains: &[(ChainRef, u64)],
) -> Result<(), Failure> {
    let linger = Duration::from_secs_f64(arguments.linger);
    let begin = Instant::now();
    if let Some(expected) = speaker.expected.as_ref().filter(|_| !chains.is_empty()) {
        arguments.receipts.collect(sender, expected, chains, linger).await?;
    }
    sender.linger(linger.saturating_sub(begin.elapsed())).await?;
    if arguments.without_receivers || sender.finds_receivers().await? {
        return Ok(());
    }
    let message = format_args!(
        "NoReceiver: {}: no receiver answered; start receivers first, or use --without-receivers",
        arguments.to
    );
    Err(Failure::new(Exit::Unreachable, message))
}

const fn less(amount: Amount, before: Amount) -> Amount {
    Amount {
        frames: amount.frames - before.frames,
        bytes: amount.bytes - before.bytes,
        repaired: amount.repaired - before.repaired,
    }
}

fn report(
    chain: &OutgoingChain<'_>,
    (content, receivers): (&Content, Option<usize>),
    label: &str,
    amount: Amount,
) -> Result<(), Failure> {
    let (outline, window) = (chain.outline(), chain.window());
    diagnostic(format_args!(
        "sent chain {}{} of {}{}: {}, {}; transmitted {}, of which {} were repairs",
        outline.id.number,
        if label.is_empty() { String::new() } else { format!(" {label:?}") },
        outline.id.sender,
        receivers.map_or(String::new(), |of| format!(" for {}", count(of as u64, "receiver"))),
        count(u64::from(content.messages()), "message"),
        bytes(content.bytes()),
        bytes(amount.bytes),
        bytes(amount.repaired)
    ));
    if !is_json() {
        return Ok(());
    }
    Stdout::lock().line(json!({
        "sender": outline.id.sender.to_string(),
        "chain": outline.id.number.0,
        "kind": outline.kind.name(),
        "label": label,
        "not_before": display_seconds(window.not_before),
        "not_after": window.has_end().then(|| display_seconds(window.not_after)),
        "messages": content.messages(),
        "receivers": receivers,
        "blocks": outline.blocks(),
        "content_bytes": content.bytes(),
        "frames": amount.frames,
        "sent_bytes": amount.bytes,
        "repaired_bytes": amount.repaired,
    }))
}
