//! Pushing an outbox to a cloud: every bundle in the order of its chain, many a request, resumable.
//!
//! The cloud is asked first what it has, so that a push that was interrupted goes on where it stopped. Sending something twice would
//! do no harm: uploads are idempotent. Nothing is deleted here.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use moteseal_api::{CBOR_SEQ, JSON, Receipt, SealList, paths};
use moteseal_core::record::{DeviceId, SealIndex};
use moteseal_core::wire::stream::Item;
use moteseal_net::{Client, NetError};

use crate::outbox::EXTENSION;

/// A request is sent when its bundles are this many bytes, or more.
const REQUEST_BYTES: usize = 4 << 20;
/// Or when they are this many.
const REQUEST_BUNDLES: usize = 512;
/// A bundle is one seal with at most 64 MiB of events; a larger file is none.
const MAX_BUNDLE: u64 = 80 << 20;
/// A listing's page or a receipt is never longer.
const MAX_JSON: usize = 4 << 20;
/// How many seals to ask for at once.
const PAGE: u32 = 1000;
/// How often a request is sent again when the connection breaks.
const ATTEMPTS: u32 = 5;

/// A bundle's file, as far as its open item says.
#[derive(Clone, Debug)]
struct File {
    path: PathBuf,
    device: DeviceId,
    /// The seal before, by which a chain's bundles are in order.
    after: Option<SealIndex>,
}

/// Why bundles were not pushed.
#[derive(Debug)]
#[non_exhaustive]
pub enum PushError {
    /// A file or directory cannot be read.
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There are no bundles in the directory.
    NoBundles(PathBuf),
    /// A file is not a bundle.
    NotABundle {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// The cloud did not take it.
    Net {
        /// Why.
        error: NetError,
        /// How many bundles it has acknowledged in this push.
        pushed: u64,
    },
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::NoBundles(path) => {
                write!(f, "{}: there are no bundles (.{EXTENSION}) in it; `moteseal seal --out` makes them", path.display())
            }
            Self::NotABundle { path, cause } => write!(f, "{}: not a bundle: {cause}; move it elsewhere", path.display()),
            Self::Net { error, pushed: 0 } => error.fmt(f),
            Self::Net { error, pushed } => write!(f, "{error} ({pushed} bundles are stored; run it again to go on)"),
        }
    }
}

impl std::error::Error for PushError {}

/// What became of a push.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    /// Bundles that the cloud has stored now.
    pub stored: u64,
    /// Bundles that it had before.
    pub known: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Requests sent.
    pub requests: u64,
    /// Indices under which the cloud has now seen two different seals of one device: its key is in two hands.
    pub conflicts: u64,
}

/// The bundles of one directory, ready to be pushed.
#[derive(Debug)]
pub struct Push {
    files: Vec<File>,
}

impl Push {
    /// Finds the bundles of a directory, or takes a single file.
    ///
    /// # Errors
    /// [`PushError`].
    pub fn open(path: &Path) -> Result<Self, PushError> {
        let io = |error| PushError::Io { path: path.to_owned(), error };
        let mut found = Vec::new();
        if fs::metadata(path).map_err(io)?.is_dir() {
            for entry in fs::read_dir(path).map_err(io)? {
                let file = entry.map_err(io)?.path();
                if file.extension().is_some_and(|extension| extension == EXTENSION) {
                    found.push(file);
                }
            }
        } else {
            found.push(path.to_owned());
        }
        if found.is_empty() {
            return Err(PushError::NoBundles(path.to_owned()));
        }
        let mut files: Vec<File> = found.into_iter().map(head).collect::<Result<_, _>>()?;
        files.sort_by(|a, b| (a.device, a.after, &a.path).cmp(&(b.device, b.after, &b.path)));
        Ok(Self { files })
    }

    /// How many bundles there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Never: a directory without bundles is an error.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Pushes what the cloud does not have; `done` is called with the number of bundles that it has now.
    ///
    /// # Errors
    /// `Io` or `Net`; what was acknowledged stays stored.
    pub async fn to(&self, cloud: &Client, done: &mut dyn FnMut(u64)) -> Result<Pushed, PushError> {
        let mut pushed = Pushed::default();
        let (mut body, mut count) = (Vec::new(), 0);
        let mut have: Option<(DeviceId, HashSet<Option<u32>>)> = None;
        for file in &self.files {
            if have.as_ref().is_none_or(|(device, _)| *device != file.device) {
                let stored = known(cloud, file.device).await.map_err(|error| pushed.failed(error))?;
                have = Some((file.device, stored));
            }
            let bytes = fs::read(&file.path).map_err(|error| PushError::Io { path: file.path.clone(), error })?;
            if have.as_ref().is_some_and(|(_, stored)| stored.contains(&index(&bytes))) {
                pushed.known += 1;
                done(pushed.stored + pushed.known);
                continue;
            }
            body.extend_from_slice(&bytes);
            count += 1;
            if body.len() >= REQUEST_BYTES || count == REQUEST_BUNDLES {
                pushed.request(cloud, &mut body, &mut count).await?;
                done(pushed.stored + pushed.known);
            }
        }
        if count > 0 {
            pushed.request(cloud, &mut body, &mut count).await?;
            done(pushed.stored + pushed.known);
        }
        Ok(pushed)
    }
}

impl Pushed {
    fn failed(&self, error: NetError) -> PushError {
        PushError::Net { error, pushed: self.stored }
    }

    /// Sends a request's bundles, again if the connection breaks.
    async fn request(&mut self, cloud: &Client, body: &mut Vec<u8>, count: &mut usize) -> Result<(), PushError> {
        let bytes = bytes::Bytes::from(std::mem::take(body));
        *count = 0;
        let mut attempt = 1;
        let receipt = loop {
            match put(cloud, bytes.clone()).await {
                Ok(receipt) => break receipt,
                Err(error) if error.is_unreachable() && attempt < ATTEMPTS && self.requests > 0 => {
                    tracing::warn!(attempt, %error, "trying again");
                    tokio::time::sleep(Duration::from_millis(250 << attempt)).await;
                    attempt += 1;
                }
                Err(error) => return Err(self.failed(error)),
            }
        };
        self.requests += 1;
        self.bytes += bytes.len() as u64;
        self.stored += receipt.stored;
        self.known += receipt.known;
        self.conflicts += receipt.conflicts.len() as u64;
        Ok(())
    }
}

async fn put(cloud: &Client, body: bytes::Bytes) -> Result<Receipt, NetError> {
    let answer = cloud.put(paths::BUNDLES, CBOR_SEQ, body).await?.expect(JSON)?;
    parse(answer).await
}

async fn parse<T: serde::de::DeserializeOwned>(answer: moteseal_net::Answer) -> Result<T, NetError> {
    let url = answer.url().to_owned();
    let bytes = answer.bytes(MAX_JSON).await?;
    serde_json::from_slice(&bytes).map_err(|error| NetError::NotACloud { url, cause: error.to_string() })
}

/// The indices that the cloud has of a device. It is not trusted: what it claims to have without having it, verification misses.
async fn known(cloud: &Client, device: DeviceId) -> Result<HashSet<Option<u32>>, NetError> {
    let (mut from, mut found) = (0, HashSet::new());
    loop {
        let answer = match cloud.get(&paths::seals(device, SealIndex(from), PAGE)).await {
            // A device that the cloud's roster does not have: the upload will be refused with the reason.
            Err(NetError::Refused { status: 404, .. }) => return Ok(found),
            answer => answer?.expect(JSON)?,
        };
        let list: SealList = parse(answer).await?;
        found.extend(list.seals.iter().map(|seal| Some(seal.index)));
        match list.next {
            Some(next) if next > from => from = next,
            _ => return Ok(found),
        }
    }
}

/// The device and the seal before, from a bundle's first items.
fn head(path: PathBuf) -> Result<File, PushError> {
    let io = |error| PushError::Io { path: path.clone(), error };
    let length = fs::metadata(&path).map_err(io)?.len();
    let not = |cause: &dyn fmt::Display| PushError::NotABundle { path: path.clone(), cause: cause.to_string() };
    if length > MAX_BUNDLE {
        return Err(not(&"it is too large"));
    }
    let bytes = fs::read(&path).map_err(io)?;
    let mut at = 0;
    while at < bytes.len() {
        match Item::decode(&bytes[at..]) {
            Ok((Item::Schema(_), length)) => at += length,
            Ok((Item::Open(open), _)) => {
                return Ok(File { device: open.device, after: open.last.map(|(index, _)| index), path });
            }
            Ok(_) => break,
            Err(error) => return Err(not(&error)),
        }
    }
    Err(not(&"it has no open item"))
}

/// The index of the last seal in a bundle.
fn index(bytes: &[u8]) -> Option<u32> {
    let (mut at, mut index) = (0, None);
    while let Ok((item, length)) = Item::decode(bytes.get(at..)?) {
        match item {
            Item::Open(open) => index = open.last.map(|(index, _)| index.0),
            Item::Part(part) => index = Some(index.map_or(0, |before| before.saturating_add(1)).saturating_add(part.skipped)),
            _ => {}
        }
        at += length;
    }
    index
}
