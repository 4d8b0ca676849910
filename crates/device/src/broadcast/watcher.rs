//! A broadcast node with an archive. It delivers everything that it has verified, even after it was
//! killed or the machine was restarted.
//!
//! The messages of a block are delivered first and then recorded as delivered. If the process is
//! killed in between, they are delivered again. Every message is therefore delivered at least once.
//! A receiver recognises repetitions by the sender, the chain and the message's number. A file is
//! saved before it is recorded as delivered. If the process is killed in between, the next process
//! finds the existing file and writes no second one.
//!
//! [`delivery`](super::delivery) decides whether and when a verified chain is delivered.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use moteseal_api::ErrorKind;
use moteseal_broadcast::address::AddressError;
use moteseal_broadcast::receipt::ReceiverKey;
use moteseal_broadcast::recovery::{
    Event, Item, LinkSet, Meter, Node, Now, RefusedBroadcast, Relay, Settings, Store, Timing,
    Transmit,
};
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_broadcast::{
    CLOCK_OFFSET_SECONDS, ChainNumber, ChainRef, ExportError, Head, Incoming, MAX_HEAD, MAX_LEAF,
    MAX_PER_BLOCK, MAX_SENDER_CERTIFICATE, Outline, Revoked, Taken, Window, export,
};
use moteseal_core::record::DeviceId;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::PublicKey;
use moteseal_files::{PRIVATE, PUBLIC};
use moteseal_store::{Archive, ArchiveError};

use super::addressed::{Address, OwnContent, Reading};
use super::delivery::{Held, Watched};
use super::image;
use super::receipts::WatcherReceipts;

/// The number of copies of a frame from neighbours after which a watcher that repeats frames does not
/// repeat this one.
const COPIES: u8 = 2;
/// The interval at which the watcher tries again to resume chains, in milliseconds.
pub(super) const RESUME_MS: u64 = 10_000;
/// The maximum number of senders that are followed at once.
const SENDERS: usize = 64;
/// The maximum number of chains that are followed or served at once.
const CHAINS: usize = 64;

/// The time within which receipts are sent, and relays combine them, as a multiple of the maximum
/// delay of a request.
const SPREAD: u32 = 10;

/// The settings of a watcher.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// The network that the watcher belongs to.
    pub network: NetworkId,
    /// The base stations whose certificates are trusted.
    pub bases: &'a [PublicKey],
    /// The number of links. Frames that are received on one link are relayed to the other links.
    pub links: u8,
    /// Whether frames are also relayed on the link on which they were received: for a medium on which
    /// not every receiver is in range of the sender.
    pub repeats: bool,
    /// The node's delays and intervals.
    pub timing: Timing,
    /// The folder for received files. If it is `None`, they are kept only in the archive.
    pub save: Option<PathBuf>,
    /// The folder for received files whose name ends with `.agent`, instead of `save`.
    pub save_agents: Option<PathBuf>,
    /// The folder for the evidence of complete chains. If it is `None`, no evidence is written.
    pub evidence: Option<PathBuf>,
    /// Revocations that apply from the start and are also sent to other nodes.
    pub revocations: &'a [Vec<u8>],
    /// The keys that the watcher shares with senders, at most one for each sender.
    pub receiver_keys: &'a [ReceiverKey],
    /// The allowed offset between the clocks of this machine and of the senders, in seconds.
    pub clock_offset: u64,
    /// Whether to accept that the clock is earlier than in an earlier process. Set this only if the
    /// earlier time was wrong.
    pub accepts_earlier_time: bool,
}

impl<'a> Options<'a> {
    /// Returns the settings of a watcher with one link on a local network, which saves neither files
    /// nor evidence.
    #[must_use]
    pub const fn new(network: NetworkId, bases: &'a [PublicKey]) -> Self {
        Self {
            network,
            bases,
            links: 1,
            repeats: false,
            timing: Timing::LAN,
            save: None,
            save_agents: None,
            evidence: None,
            revocations: &[],
            receiver_keys: &[],
            clock_offset: CLOCK_OFFSET_SECONDS,
            accepts_earlier_time: false,
        }
    }
}

/// Why a watcher does not deliver a chain, or does not deliver it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Withheld {
    /// The chain's window has not begun. The watcher holds the chain until then.
    Early,
    /// The machine has no date. The watcher holds the chain until it has one.
    NoTrustedTime,
    /// The machine's clock is this many seconds behind the latest time that the watcher has used.
    /// The watcher holds the chain until the clock is right.
    ClockSetBack(u64),
    /// The chain's window has ended. The watcher never delivers the chain, or the rest of it.
    Late,
    /// A command of the same topic with this number came after the chain. The watcher never
    /// delivers the chain, or the rest of it.
    Superseded(ChainNumber),
    /// Too many chains are held. The watcher never delivers the chain.
    NoRoom,
}

impl Withheld {
    /// Returns the stable name (spec/errors.md).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Early => "Early",
            Self::NoTrustedTime => "NoTrustedTime",
            Self::ClockSetBack(_) => "ClockSetBack",
            Self::Late => "Late",
            Self::Superseded(_) => "SupersededCommand",
            Self::NoRoom => "NoRoom",
        }
    }

    /// Returns whether the watcher may deliver the chain later.
    #[must_use]
    pub const fn is_for_now(self) -> bool {
        matches!(self, Self::Early | Self::NoTrustedTime | Self::ClockSetBack(_))
    }
}

/// An event that a watcher reports.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum WatchEvent<'n> {
    /// The links are open, and the archive is loaded.
    Listening,
    /// A sender's certificate was accepted.
    Certified(DeviceId),
    /// A chain has begun.
    Begun {
        /// The chain.
        outline: &'n Outline,
        /// The chain's label.
        label: &'n str,
    },
    /// A chain continues where the last process stopped.
    Resumed {
        /// The chain.
        outline: &'n Outline,
        /// The chain's label.
        label: &'n str,
        /// The number of blocks that are already verified.
        verified: u32,
    },
    /// More blocks of a file are verified.
    Progress {
        /// The chain.
        outline: &'n Outline,
        /// The number of blocks that are verified.
        verified: u32,
    },
    /// A message is verified.
    Message {
        /// The chain.
        outline: &'n Outline,
        /// The chain's label.
        label: &'n str,
        /// When the chain applies.
        window: Window,
        /// The message's number in the chain, from 0.
        number: u32,
        /// The message.
        message: &'n [u8],
    },
    /// A chain, or the rest of it, is not delivered, or not yet.
    Withheld {
        /// The chain.
        outline: &'n Outline,
        /// The chain's label.
        label: &'n str,
        /// When the chain may be delivered.
        window: Window,
        /// The reason.
        why: Withheld,
    },
    /// A chain is for named receivers, and this watcher does not deliver it. The watcher relays it
    /// as other chains.
    NotAddressed {
        /// The chain.
        outline: &'n Outline,
        /// The reason.
        why: AddressError,
    },
    /// A chain was missed: a later chain of the same key names it. The watcher requests it.
    Missed {
        /// The chain's sender.
        sender: DeviceId,
        /// The chain's number.
        number: ChainNumber,
    },
    /// A chain is complete, and its messages were delivered.
    Complete {
        /// The chain.
        outline: &'n Outline,
        /// The chain's label.
        label: &'n str,
        /// Where its file was saved, if it was.
        saved: Option<&'n Path>,
        /// Where its evidence was written, if it was.
        evidence: Option<&'n Path>,
    },
    /// A chain was abandoned before it was complete, because its sender started newer chains.
    Abandoned(ChainRef),
    /// A chain was dropped because it exceeds the storage limits.
    TooLarge(ChainRef),
    /// A base station has revoked more certificates.
    Revoked {
        /// The base station, as an index into the options.
        base: u8,
        /// All that it has revoked.
        revoked: &'n Revoked,
    },
    /// A frame was rejected.
    Refused(RefusedBroadcast),
    /// A link cannot send at the moment.
    LinkDown {
        /// The link's number, from 0.
        link: u8,
        /// The cause.
        cause: &'n str,
    },
}

/// The function that receives the watcher's events.
pub type OnWatchEvent<'t> = dyn FnMut(WatchEvent<'_>) -> io::Result<()> + 't;

/// Why a watcher stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The archive failed.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A file or evidence could not be saved. The chain stays in the archive, and the next process
    /// tries again.
    #[error("{}: {}", .0.display(), .1)]
    Save(PathBuf, io::Error),
    /// An event could not be reported.
    #[error("the output could not be written: {0}")]
    Output(io::Error),
    /// Verified data in the archive has changed. After a restart, the watcher verifies it again and
    /// requests what is missing.
    #[error(
        "chain {0} was verified before, but its data in the archive has changed; start again \
         to repair it"
    )]
    Damaged(ChainRef),
}

impl WatchError {
    /// Returns the error's stable name (spec/errors.md).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Archive(error) => error.name(),
            Self::Save(..) => "SaveFailed",
            Self::Output(_) => "OutputFailed",
            Self::Damaged(_) => "ArchiveDamaged",
        }
    }

    /// Returns the kind of the archive's error, and [`Internal`](ErrorKind::Internal) for other
    /// errors.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Archive(error) => error.kind(),
            _ => ErrorKind::Internal,
        }
    }
}

moteseal_api::named_error!(WatchError);

/// A broadcast node with its archive, without sockets or a clock.
/// [`broadcast::run`](crate::broadcast::run()) adds them.
pub struct Watcher<'a> {
    pub(super) node: Box<Node<'a, SENDERS, CHAINS, { MAX_PER_BLOCK as usize }>>,
    pub(super) archive: Archive,
    pub(super) save: Option<PathBuf>,
    pub(super) save_agents: Option<PathBuf>,
    pub(super) evidence: Option<PathBuf>,
    pub(super) leaf: Vec<u8>,
    /// Whether the watcher relays chains.
    pub(super) is_relay: bool,
    pub(super) clock_offset: u64,
    /// How long a receiver that catches up waits for later commands, in milliseconds.
    pub(super) catch_up_ms: u64,
    /// When the watcher started, in milliseconds of `Now`.
    pub(super) started_at: u64,
    /// The latest time that was used, in seconds of Unix time.
    pub(super) latest: u64,
    /// Verified chains that are not delivered yet.
    pub(super) held: BTreeMap<ChainRef, Held>,
    pub(super) receipts: WatcherReceipts<'a>,
    /// What the addresses of chains say.
    pub(super) addresses: BTreeMap<ChainRef, Address>,
    /// The address that was read last, if it is not complete.
    pub(super) reading: Option<Reading>,
    /// Chains in the archive that could not be resumed, because the machine's clock may be wrong or
    /// because there was no room.
    unresumed: Vec<ChainRef>,
    resumed_at: u64,
}

impl fmt::Debug for Watcher<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("archive", &self.archive).finish_non_exhaustive()
    }
}

impl<'a> Watcher<'a> {
    /// Opens a watcher that continues from the archive. It verifies the archive's content again,
    /// and delivers what was not delivered before. `seed` is any number that nobody else can
    /// predict.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn open(
        options: Options<'a>,
        mut archive: Archive,
        seed: u64,
        now: Now,
        notify: &mut OnWatchEvent<'_>,
    ) -> Result<Self, WatchError> {
        let relay = match options.links {
            _ if options.repeats => Relay::Flood { copies: COPIES },
            0 | 1 => Relay::Never,
            _ => Relay::OtherLinks,
        };
        // The node that sent a new leaf may be out of range of the one that requests it.
        let leave_ms = if options.repeats { 0 } else { options.timing.leave_ms };
        let settings = Settings {
            network: options.network,
            bases: options.bases,
            links: LinkSet::first(options.links),
            relay,
            timing: Timing { leave_ms, ..options.timing },
            meter: Meter::HOST,
        };
        let mut node = Box::new(Node::new(settings, seed, now));
        node.set_receiver_keys(options.receiver_keys);
        let spread = options.timing.request_ms.saturating_mul(SPREAD);
        let receipts = WatcherReceipts::new(
            options.receiver_keys,
            (settings.links, options.repeats),
            spread,
            !seed,
        );
        let latest = match now.unix {
            Some(unix) if options.accepts_earlier_time && unix < archive.time() => {
                archive.set_time(unix)?;
                unix
            }
            _ => archive.time(),
        };
        let mut watcher = Self {
            node,
            archive,
            save: options.save,
            save_agents: options.save_agents,
            evidence: options.evidence,
            leaf: vec![0; MAX_LEAF],
            is_relay: relay != Relay::Never,
            clock_offset: options.clock_offset,
            catch_up_ms: u64::from(options.timing.advertise_ms.0).saturating_mul(2),
            started_at: now.ms,
            latest,
            held: BTreeMap::new(),
            receipts,
            addresses: BTreeMap::new(),
            reading: None,
            unresumed: Vec::new(),
            resumed_at: now.ms,
        };
        for revocation in options.revocations {
            watcher.revoke(now, revocation, notify)?;
        }
        watcher.unresumed = watcher.archive.chains();
        watcher.resume(now, notify)?;
        watcher.node.solicit(now);
        for missed in watcher.archive.missed_chains() {
            watcher.node.request(now, missed.chain);
        }
        Ok(watcher)
    }

    /// Resumes chains of the archive: all chains that are not complete, and the newest complete
    /// chains, which the node serves to others.
    fn resume(&mut self, now: Now, notify: &mut OnWatchEvent<'_>) -> Result<(), WatchError> {
        self.resumed_at = now.ms;
        let all = std::mem::take(&mut self.unresumed);
        let (complete, mut chains): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|chain| self.archive.is_complete(*chain));
        let room = (CHAINS / 2).saturating_sub(chains.len());
        chains.extend(complete.iter().rev().take(room).rev());
        for chain in chains {
            let Some(resumed) = self.node.resume(now, chain, &mut self.archive, &mut self.leaf)?
            else {
                // The chain's certificate may become valid later, when the clock is corrected or
                // when another certificate arrives. Try the chain again then.
                if !self.archive.is_complete(chain) {
                    self.unresumed.push(chain);
                }
                continue;
            };
            let Watched { outline, label, .. } = self.head(chain)?;
            if !resumed.is_complete {
                notify(WatchEvent::Resumed {
                    outline: &outline,
                    label: &label,
                    verified: resumed.verified,
                })
                .map_err(WatchError::Output)?;
            }
            self.deliver(now, chain, resumed.verified, resumed.is_complete, notify)?;
        }
        Ok(())
    }

    /// Applies a base station's revocation from a file, and sends the revocation to other nodes.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn revoke(
        &mut self,
        now: Now,
        revocation: &[u8],
        notify: &mut OnWatchEvent<'_>,
    ) -> Result<(), WatchError> {
        match self.node.revoke(now, revocation, &mut self.archive)? {
            Event::Revoked { base } => {
                let revoked = &self.archive.revoked(base)?;
                notify(WatchEvent::Revoked { base, revoked }).map_err(WatchError::Output)
            }
            // This revocation or a later one is already known.
            _ => Ok(()),
        }
    }

    /// Receives a frame.
    ///
    /// # Errors
    /// [`WatchError`]. Nothing is lost, because the watcher continues from the archive after a
    /// restart.
    pub fn receive(
        &mut self,
        now: Now,
        link: u8,
        frame: &[u8],
        notify: &mut OnWatchEvent<'_>,
    ) -> Result<(), WatchError> {
        if let Ok(
            decoded @ (BroadcastFrame::Receipts { .. }
            | BroadcastFrame::ReceiptsWanted { .. }
            | BroadcastFrame::HeadWanted { .. }
            | BroadcastFrame::HeadFor { .. }),
        ) = BroadcastFrame::decode(frame)
        {
            self.receive_receipts(now, link, &decoded, frame)?;
        }
        let event = match self.node.receive(now, link, frame, &mut self.archive) {
            Err(ArchiveError::ReferenceTaken(_)) => {
                Event::Refused(RefusedBroadcast::ReferenceTaken)
            }
            Err(ArchiveError::QuotaReached { .. }) => return self.give_up(frame, notify),
            event => event?,
        };
        if let Event::Accepted { chain, .. }
        | Event::Pending { chain, .. }
        | Event::Verified { chain, .. } = event
        {
            self.receipts.note(chain, link);
        }
        self.report_missed(notify)?;
        match event {
            Event::Nothing | Event::Pending { .. } => Ok(()),
            Event::Certified { sender, .. } => {
                notify(WatchEvent::Certified(sender)).map_err(WatchError::Output)?;
                self.resume(now, notify)
            }
            Event::Accepted { chain, abandoned, .. } => {
                if self.drop_unwanted(now, chain, notify)? {
                    return Ok(());
                }
                let Watched { outline, label, .. } = self.head(chain)?;
                if !self.archive.has_room_for(outline.messages) {
                    self.node.abandon(chain, &mut self.archive)?;
                    return notify(WatchEvent::TooLarge(chain)).map_err(WatchError::Output);
                }
                notify(WatchEvent::Begun { outline: &outline, label: &label })
                    .map_err(WatchError::Output)?;
                abandoned.map_or(Ok(()), |chain| {
                    notify(WatchEvent::Abandoned(chain)).map_err(WatchError::Output)
                })
            }
            Event::Verified { chain, last, is_last, .. } => {
                self.deliver(now, chain, last, is_last, notify)
            }
            Event::Revoked { base } => {
                let revoked = &self.archive.revoked(base)?;
                notify(WatchEvent::Revoked { base, revoked }).map_err(WatchError::Output)
            }
            Event::Refused(refused) => {
                notify(WatchEvent::Refused(refused)).map_err(WatchError::Output)
            }
        }
    }

    /// Writes the next frame that is due to the start of `out`, which must have room for
    /// [`MAX_BROADCAST_FRAME`] bytes.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn poll(&mut self, now: Now, out: &mut [u8]) -> Result<Option<Transmit>, WatchError> {
        let transmit = match self.node.poll(now, &mut self.archive, out) {
            // A head that was waiting for its certificate cannot be stored, because there is no
            // room for it.
            Err(ArchiveError::ReferenceTaken(_) | ArchiveError::QuotaReached { .. }) => None,
            transmit => transmit?,
        };
        Ok(transmit.or_else(|| self.receipts.poll(now, out)))
    }

    /// Returns when [`poll`](Self::poll) next has work to do, in milliseconds of `Now`.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        let held = self.held.values().map(|held| held.until);
        self.node.next_due().into_iter().chain(held).chain(self.receipts.next_due()).min()
    }

    /// Returns the archive of received chains.
    #[must_use]
    pub const fn archive(&self) -> &Archive {
        &self.archive
    }

    /// Delivers the held chains that are due. Tries again to resume the chains that could not be
    /// resumed, at most every ten seconds.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn tend(&mut self, now: Now, notify: &mut OnWatchEvent<'_>) -> Result<(), WatchError> {
        self.note_time(now)?;
        self.report_missed(notify)?;
        self.deliver_held(now, notify)?;
        if self.unresumed.is_empty() || now.ms < self.resumed_at.saturating_add(RESUME_MS) {
            Ok(())
        } else {
            self.resume(now, notify)
        }
    }

    /// Drops the chain of a frame for which the archive has no room. Other chains continue.
    fn give_up(&mut self, frame: &[u8], notify: &mut OnWatchEvent<'_>) -> Result<(), WatchError> {
        let chain = match BroadcastFrame::decode(frame) {
            Ok(BroadcastFrame::Fragment { chain, .. } | BroadcastFrame::Repair { chain, .. }) => {
                chain
            }
            Ok(BroadcastFrame::Head(head) | BroadcastFrame::Single { head, .. }) => {
                match Head::peek(head) {
                    Ok(claim) => claim.reference(),
                    Err(_) => return Ok(()),
                }
            }
            _ => return Ok(()),
        };
        self.node.abandon(chain, &mut self.archive)?;
        self.archive.forget(chain)?;
        notify(WatchEvent::TooLarge(chain)).map_err(WatchError::Output)
    }

    /// Assembles a file from a chain and saves it. Data from the archive is verified again, so that
    /// the saved file is exactly the file that the sender signed.
    pub(super) fn save_image(
        &mut self,
        chain: ChainRef,
        (label, own): (&str, Option<&OwnContent>),
        folder: &Path,
    ) -> Result<PathBuf, WatchError> {
        let mut buffer = [0; MAX_HEAD];
        let head = self
            .archive
            .fetch(Item::Head(chain), &mut buffer)?
            .ok_or(WatchError::Damaged(chain))?;
        let head = Head::reopen(head).map_err(|_| WatchError::Damaged(chain))?;
        let mut verifier = Incoming::<{ MAX_PER_BLOCK as usize }>::new(&head)
            .map_err(|_| WatchError::Damaged(chain))?;
        let (archive, leaf, outline) = (&mut self.archive, &mut self.leaf, *head.outline());
        let mode = if outline.is_addressed { PRIVATE } else { PUBLIC };
        let saved =
            image::save(folder, &image::file_name(label), &chain.to_string(), mode, |out| {
                for block in 1..=outline.blocks() {
                    for index in 0..outline.in_block(block) {
                        let bytes = kept(archive, chain, (block, index), leaf)?;
                        let damaged = || io::Error::other(WatchError::Damaged(chain));
                        let message = match verifier.take(block, index, bytes) {
                            Ok(Taken::Pending { message } | Taken::Verified { message, .. }) => {
                                message
                            }
                            Ok(Taken::Repeated) | Err(_) => return Err(damaged()),
                        };
                        let Some(own) = own else {
                            out.write_all(message)?;
                            continue;
                        };
                        let number = outline.message(block, index);
                        let read = own.read(number, message).map_err(|_| damaged())?;
                        if let Some((_, content)) = read {
                            out.write_all(&content)?;
                        }
                    }
                }
                Ok(())
            });
        saved.map_err(|error| watch_error(error, folder))
    }

    /// Writes the evidence of a complete chain.
    pub(super) fn write_evidence(
        &mut self,
        chain: ChainRef,
        outline: &Outline,
        folder: &Path,
    ) -> Result<PathBuf, WatchError> {
        let (mut certificate, mut head) = ([0; MAX_SENDER_CERTIFICATE], [0; MAX_HEAD]);
        let damaged = || WatchError::Damaged(chain);
        let certificate = self
            .archive
            .fetch(Item::ChainCertificate(chain), &mut certificate)?
            .ok_or_else(damaged)?;
        let head = self.archive.fetch(Item::Head(chain), &mut head)?.ok_or_else(damaged)?;
        let (archive, leaf) = (&mut self.archive, &mut self.leaf);
        let mut frame = vec![0; MAX_BROADCAST_FRAME];
        let name = format!("{}-{}.broadcast", outline.id.sender, outline.id.number);
        let saved = image::save(folder, &name, &chain.to_string(), PUBLIC, |out| {
            let fetch = |block, index, room: &mut [u8]| {
                kept(archive, chain, (block, index), room).map(<[u8]>::len)
            };
            let write = |frame: &[u8]| out.write_all(frame);
            let exported = export(
                (certificate, head, outline),
                outline.blocks(),
                (leaf, &mut frame),
                fetch,
                write,
            );
            exported.map_err(|error| match error {
                ExportError::BufferTooSmall => io::ErrorKind::InvalidData.into(),
                ExportError::Other(error) => error,
            })
        });
        saved.map_err(|error| watch_error(error, folder))
    }
}

/// Reads a leaf from the archive. Every returned error wraps a [`WatchError`].
fn kept<'b>(
    archive: &mut Archive,
    chain: ChainRef,
    (block, index): (u32, u8),
    room: &'b mut [u8],
) -> io::Result<&'b [u8]> {
    let leaf = archive
        .fetch(Item::Leaf { chain, block, index }, room)
        .map_err(|error| io::Error::other(WatchError::Archive(error)))?;
    leaf.ok_or_else(|| io::Error::other(WatchError::Damaged(chain)))
}

/// Returns the wrapped [`WatchError`], or the error of writing a file to `folder`.
fn watch_error(error: io::Error, folder: &Path) -> WatchError {
    error.downcast().unwrap_or_else(|error| WatchError::Save(folder.to_owned(), error))
}
