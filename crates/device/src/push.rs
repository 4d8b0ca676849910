//! Uploads an outbox to a cloud: every bundle in the order of its chain, many bundles in one
//! request. An interrupted upload can be resumed.
//!
//! The upload first asks the cloud which seals it has, so that an interrupted upload continues
//! where it stopped. A bundle is skipped only if the cloud lists the same seal. The seals are
//! compared by digest if the outbox has the next bundle of the chain, which contains the digest.
//! Otherwise they are compared by signature. Uploads are idempotent, so it is safe to repeat an
//! upload. A different seal under the same index is evidence against the device; it is uploaded and
//! reported. Nothing is deleted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use moteseal_api::{
    CBOR_SEQ, ErrorKind, JSON, NamedError as _, POSITION, Receipt, SealEntry, SealList, paths,
};
use moteseal_core::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_net::{Client, NetError};
use moteseal_seal::stream::{Item, Part};

use crate::outbox::EXTENSION;

/// A request is sent when its bundles have at least this many bytes in total.
const REQUEST_BYTES: usize = 4 << 20;
/// A request is sent when it has this many bundles.
const REQUEST_BUNDLES: usize = 512;
/// The maximum size of a bundle, in bytes: one seal with at most 64 MiB of events.
const MAX_BUNDLE: u64 = 80 << 20;
/// The maximum size of a page of a listing, and of a receipt, in bytes.
const MAX_JSON: usize = 4 << 20;
/// The maximum size of the explanation of one seal, without a tree's leaves, in bytes.
const MAX_EXPLANATION: usize = 64 << 10;
/// The number of seals to request in one page of a listing.
const PAGE: u32 = 1000;
/// The maximum number of attempts for one request if the connection breaks.
const ATTEMPTS: u32 = 5;

/// The properties of a bundle's file that can be read without a roster.
#[derive(Clone, Debug)]
struct File {
    path: PathBuf,
    device: DeviceId,
    /// The index of the previous seal, by which the bundles of a chain are ordered, and that seal's
    /// digest.
    after: Option<SealIndex>,
    prev: Option<Digest>,
    /// The file's seal. `None` if the file does not contain exactly one seal; such a file is always
    /// uploaded.
    seal: Option<Outline>,
}

/// The properties of a seal that are compared with a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outline {
    index: u32,
    epoch: u64,
    events: u64,
    scheme: &'static str,
    last_in_epoch: bool,
    restart: bool,
    signature: Vec<u8>,
}

impl Outline {
    fn fits(&self, entry: &SealEntry) -> bool {
        (entry.index, entry.epoch, entry.events) == (self.index, self.epoch, self.events)
            && (entry.last_in_epoch, entry.restart, entry.scheme.as_str())
                == (self.last_in_epoch, self.restart, self.scheme)
    }
}

/// Why bundles were not pushed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// A file or directory cannot be read.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The directory has no bundles.
    #[error("{} has no bundles (.{EXTENSION}); create some with `moteseal seal --out`", .0.display())]
    NoBundles(PathBuf),
    /// A file is not a bundle.
    #[error("{} is not a bundle: {cause}; move it elsewhere", .path.display())]
    NotABundle {
        /// The file.
        path: PathBuf,
        /// Why the file is not a bundle.
        cause: String,
    },
    /// The cloud did not accept the bundles.
    #[error("{error}{}", stored_before(*.pushed))]
    Net {
        /// The error of the request.
        error: NetError,
        /// The number of bundles that the cloud acknowledged during this upload.
        pushed: u64,
    },
}

/// Tells the user that another run continues after the bundles that are already stored.
fn stored_before(pushed: u64) -> String {
    match pushed {
        0 => String::new(),
        pushed => format!(" ({pushed} bundles are stored; run it again to continue)"),
    }
}

impl PushError {
    /// Returns the error's name. For a rejection, this is the name that the cloud reports.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Io { .. } => "BadFile",
            Self::NoBundles(_) => "NoBundles",
            Self::NotABundle { .. } => "NotABundle",
            Self::Net { error, .. } => error.name(),
        }
    }

    /// Returns the kind of the request's error. For a file, returns
    /// [`Internal`](ErrorKind::Internal) if the machine failed to read it, and
    /// [`Usage`](ErrorKind::Usage) otherwise.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Net { error, .. } => error.kind(),
            Self::Io { error, .. } => match error.kind() {
                io::ErrorKind::NotFound
                | io::ErrorKind::AlreadyExists
                | io::ErrorKind::IsADirectory => ErrorKind::Usage,
                _ => ErrorKind::Internal,
            },
            _ => ErrorKind::Usage,
        }
    }
}

moteseal_api::named_error!(PushError);

/// Different seals that a device signed under one index, as the cloud states. Either the device's chain was started twice, or
/// its key is used in two places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The device.
    pub device: DeviceId,
    /// The index.
    pub index: SealIndex,
    /// A local bundle that contains one of the seals.
    pub path: PathBuf,
    /// The digests of these seals, in ascending order.
    pub digests: Vec<String>,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, index, path, digests } = self;
        write!(
            f,
            "device {device} signed different seals under index {index}, {}",
            digests.join(" and ")
        )?;
        write!(f, "; one of them is {}", path.display())
    }
}

/// The result of an upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    /// The number of bundles that the cloud stored during this upload.
    pub stored: u64,
    /// The number of bundles that the cloud already had.
    pub known: u64,
    /// The number of bundles that a cloud with workers has in its queue.
    pub queued: u64,
    /// The last position in that queue. A read that waits for it ([`moteseal_net::Options::after`]) sees all of these
    /// bundles.
    pub position: Option<u64>,
    /// The number of bytes sent.
    pub bytes: u64,
    /// The number of requests sent.
    pub requests: u64,
    /// The conflicts between the cloud's seals and the seals in these bundles.
    pub conflicts: Vec<Conflict>,
}

/// The bundles of one directory, ready to be uploaded.
#[derive(Debug)]
pub struct Push {
    files: Vec<File>,
}

impl Push {
    /// Finds the bundles of a directory, or opens a single file.
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
        Self::of(found)
    }

    /// Opens the bundles in these files.
    ///
    /// # Errors
    /// `Io` or `NotABundle`.
    pub fn of(paths: Vec<PathBuf>) -> Result<Self, PushError> {
        let mut files: Vec<File> = paths.into_iter().map(outline).collect::<Result<_, _>>()?;
        files.sort_by(|a, b| (a.device, a.after, &a.path).cmp(&(b.device, b.after, &b.path)));
        Ok(Self { files })
    }

    /// Returns the number of bundles.
    #[must_use]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns whether there are no bundles.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Uploads the bundles that the cloud does not have. Calls `done` with the number of bundles
    /// that the cloud has so far.
    ///
    /// # Errors
    /// `Io` or `Net`. Bundles that the cloud has acknowledged stay stored.
    pub async fn to(&self, cloud: &Client, done: &mut dyn FnMut(u64)) -> Result<Pushed, PushError> {
        let mut pushed = Pushed::default();
        let digests = self.digests();
        // Indices under which the cloud has different seals, or may have a different seal than
        // ours.
        let mut doubtful: BTreeSet<(DeviceId, u32)> = BTreeSet::new();
        let (mut body, mut count) = (Vec::new(), 0);
        for files in self.files.chunk_by(|a, b| a.device == b.device) {
            let Some(device) = files.first().map(|file| file.device) else { continue };
            let wanted: BTreeSet<u32> =
                files.iter().filter_map(|file| file.seal.as_ref()).map(|seal| seal.index).collect();
            let listed =
                list(cloud, device, &wanted).await.map_err(|error| pushed.failed(error))?;
            for file in files {
                if let Some(seal) = &file.seal
                    && let Some(entries) = listed.get(&seal.index)
                {
                    let known = match digests.get(&(device, seal.index)) {
                        Some(Some(digest)) => entries.iter().any(|entry| {
                            seal.fits(entry)
                                && entry.digest == digest.to_string()
                                && file.prev.is_none_or(|prev| entry.prev == prev.to_string())
                        }),
                        _ => {
                            entries.iter().any(|entry| seal.fits(entry))
                                && has_signature(cloud, device, seal).await
                        }
                    };
                    if entries.iter().any(|entry| entry.digest != entries[0].digest) || !known {
                        doubtful.insert((device, seal.index));
                    }
                    if known {
                        pushed.known += 1;
                        done(pushed.stored + pushed.known + pushed.queued);
                        continue;
                    }
                }
                let bytes = fs::read(&file.path)
                    .map_err(|error| PushError::Io { path: file.path.clone(), error })?;
                body.extend_from_slice(&bytes);
                count += 1;
                if body.len() >= REQUEST_BYTES || count == REQUEST_BUNDLES {
                    doubtful
                        .extend(pushed.request(cloud, &mut body, &mut count, &self.files).await?);
                    done(pushed.stored + pushed.known + pushed.queued);
                }
            }
        }
        if count > 0 {
            doubtful.extend(pushed.request(cloud, &mut body, &mut count, &self.files).await?);
            done(pushed.stored + pushed.known + pushed.queued);
        }
        pushed.conflicts =
            self.conflicts(cloud, doubtful).await.map_err(|error| pushed.failed(error))?;
        Ok(pushed)
    }

    /// Returns the digest of each seal that another bundle names as its predecessor. The digest is
    /// `None` if two bundles name different digests for the same index.
    fn digests(&self) -> HashMap<(DeviceId, u32), Option<Digest>> {
        let mut digests = HashMap::new();
        for file in &self.files {
            if let (Some(SealIndex(index)), Some(prev)) = (file.after, file.prev) {
                let digest = digests.entry((file.device, index)).or_insert(Some(prev));
                *digest = digest.filter(|digest| *digest == prev);
            }
        }
        digests
    }

    /// Asks the cloud about these indices after the upload. Returns the conflicts. The cloud verifies the
    /// signatures of seals before it lists them as a conflict; two listed seals alone are none.
    async fn conflicts(
        &self,
        cloud: &Client,
        doubtful: BTreeSet<(DeviceId, u32)>,
    ) -> Result<Vec<Conflict>, NetError> {
        let mut of_device: BTreeMap<DeviceId, BTreeSet<u32>> = BTreeMap::new();
        for (device, index) in doubtful {
            of_device.entry(device).or_default().insert(index);
        }
        let mut conflicts = Vec::new();
        for (device, indices) in of_device {
            for (index, entries) in list(cloud, device, &indices).await? {
                let signed = entries.into_iter().filter(|entry| entry.conflict);
                let digests: BTreeSet<String> = signed.map(|entry| entry.digest).collect();
                let holds = |file: &&File| {
                    file.device == device
                        && file.seal.as_ref().is_some_and(|seal| seal.index == index)
                };
                if let (true, Some(file)) = (digests.len() > 1, self.files.iter().find(holds)) {
                    let (index, path) = (SealIndex(index), file.path.clone());
                    conflicts.push(Conflict {
                        device,
                        index,
                        path,
                        digests: digests.into_iter().collect(),
                    });
                }
            }
        }
        Ok(conflicts)
    }
}

impl Pushed {
    fn failed(&self, error: NetError) -> PushError {
        PushError::Net { error, pushed: self.stored }
    }

    /// Uploads the bundles of a request, and repeats the request if the connection breaks. Returns
    /// the indices in `files` for which the cloud reports a conflict.
    async fn request(
        &mut self,
        cloud: &Client,
        body: &mut Vec<u8>,
        count: &mut usize,
        files: &[File],
    ) -> Result<Vec<(DeviceId, u32)>, PushError> {
        let bytes = bytes::Bytes::from(std::mem::take(body));
        *count = 0;
        let mut attempt = 1;
        let receipt = loop {
            match put(cloud, bytes.clone()).await {
                Ok((receipt, position)) => {
                    self.position = self.position.max(position);
                    break receipt;
                }
                Err(error) if error.is_unreachable() && attempt < ATTEMPTS && self.requests > 0 => {
                    tracing::warn!(attempt, error = %error.named(), "the upload failed; trying again");
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
        self.queued += receipt.queued;
        let named: BTreeSet<(&str, u32)> =
            receipt.conflicts.iter().map(|at| (at.device.as_str(), at.index)).collect();
        if named.is_empty() {
            return Ok(Vec::new());
        }
        let ours = files.iter().filter_map(|file| Some((file.device, file.seal.as_ref()?.index)));
        Ok(ours
            .filter(|(device, index)| named.contains(&(device.to_string().as_str(), *index)))
            .collect())
    }
}

/// Returns the receipt, and the position in the queue of a cloud with workers.
async fn put(cloud: &Client, body: bytes::Bytes) -> Result<(Receipt, Option<u64>), NetError> {
    let answer = cloud.put(paths::BUNDLES, CBOR_SEQ, body).await?.expect(JSON)?;
    let position = answer.header(POSITION).and_then(|position| position.parse().ok());
    Ok((parse(answer).await?, position))
}

async fn parse<T: serde::de::DeserializeOwned>(
    answer: moteseal_net::Response,
) -> Result<T, NetError> {
    let url = answer.url().to_owned();
    let bytes = answer.bytes(MAX_JSON).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| NetError::NotACloud { url, cause: error.to_string() })
}

/// Returns the seals that the cloud lists under these indices of a device. The listing is not
/// trusted: if the cloud lists a seal that it does not have, verification detects it later. At most
/// one request is sent for each index, and seals under other indices are ignored.
async fn list(
    cloud: &Client,
    device: DeviceId,
    wanted: &BTreeSet<u32>,
) -> Result<BTreeMap<u32, Vec<SealEntry>>, NetError> {
    let mut found: BTreeMap<u32, Vec<SealEntry>> = BTreeMap::new();
    let mut rest = wanted.range(..);
    while let Some(&from) = rest.next() {
        let answer = match cloud.get(&paths::seals(device, SealIndex(from), PAGE)).await {
            // The cloud's roster does not list the device. The cloud will reject the upload with
            // the reason.
            Err(NetError::Refused { status: 404, .. }) => return Ok(found),
            answer => answer?.expect(JSON)?,
        };
        let url = answer.url().to_owned();
        let page: SealList = parse(answer).await?;
        if !ascends(&page, from) {
            return Err(NetError::NotACloud {
                url,
                cause: "the indices of the listing are not ascending".to_owned(),
            });
        }
        let is_digest =
            |text: &str| text.len() == 64 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !page.seals.iter().all(|seal| is_digest(&seal.digest)) {
            return Err(NetError::NotACloud {
                url,
                cause: "the listing contains invalid digests".to_owned(),
            });
        }
        for seal in page.seals.into_iter().filter(|seal| wanted.contains(&seal.index)) {
            found.entry(seal.index).or_default().push(seal);
        }
        let Some(next) = page.next else { break };
        rest = wanted.range(next..);
    }
    Ok(found)
}

/// Returns whether the indices of a page's seals are ascending, and whether all of them are at
/// least `from` and below the start of the next page.
fn ascends(page: &SealList, from: u32) -> bool {
    let indices = page.seals.iter().map(|seal| seal.index);
    indices.is_sorted()
        && page
            .seals
            .iter()
            .all(|seal| seal.index >= from && page.next.is_none_or(|next| seal.index < next))
        && page.next.is_none_or(|next| next > from)
}

/// Returns whether the cloud's seal under this index has the same signature as the bundle. Returns
/// `false` if the cloud does not return the seal.
async fn has_signature(cloud: &Client, device: DeviceId, seal: &Outline) -> bool {
    let path = paths::explain(device, SealIndex(seal.index));
    let Ok(answer) = cloud.get(&path).await.and_then(|answer| answer.expect(CBOR_SEQ)) else {
        return false;
    };
    let Ok(bytes) = answer.bytes(MAX_EXPLANATION).await else { return false };
    let mut rest = bytes.as_slice();
    while let Ok((Item::Explain { seal: signed, .. }, length)) = Item::decode(rest) {
        // The signature is the last element of a COSE_Sign1.
        if !seal.signature.is_empty() && signed.ends_with(&seal.signature) {
            return true;
        }
        rest = &rest[length..];
    }
    false
}

/// Reads a bundle's file without a roster.
fn outline(path: PathBuf) -> Result<File, PushError> {
    let io = |error| PushError::Io { path: path.clone(), error };
    let length = fs::metadata(&path).map_err(io)?.len();
    let not = |cause: &dyn fmt::Display| PushError::NotABundle {
        path: path.clone(),
        cause: cause.to_string(),
    };
    if length > MAX_BUNDLE {
        return Err(not(&"it is too large"));
    }
    let bytes = fs::read(&path).map_err(io)?;
    let (mut at, mut opens, mut seals) = (0, Vec::new(), Vec::new());
    while at < bytes.len() {
        let (item, length) = Item::decode(&bytes[at..]).map_err(|error| not(&error.named()))?;
        match (item, opens.last()) {
            (Item::Schema(_), _) => {}
            (Item::Open(open), _) => opens.push(open),
            (Item::Part(part), Some(open)) => {
                seals.push(seal(open.last, &part).ok_or_else(|| not(&"its index overflows"))?);
            }
            _ => return Err(not(&"it has items other than schema, open and part items")),
        }
        at += length;
    }
    let Some(open) = opens.first() else { return Err(not(&"it has no open item")) };
    let seal = if opens.len() == 1 && seals.len() == 1 { seals.pop() } else { None };
    Ok(File {
        device: open.device,
        after: open.last.map(|(index, _)| index),
        prev: open.prev,
        seal,
        path,
    })
}

/// Returns the properties of a part's seal. `last` is the index and epoch of the previous seal.
fn seal(last: Option<(SealIndex, EpochNumber)>, part: &Part<'_>) -> Option<Outline> {
    let (index, epoch) =
        last.map_or(Some((0, 0)), |(index, epoch)| Some((index.0.checked_add(1)?, epoch.0)))?;
    Some(Outline {
        index: index.checked_add(part.skipped)?,
        epoch: epoch.checked_add(part.advance)?,
        events: part.n.into(),
        scheme: part.scheme.as_str(),
        last_in_epoch: part.last_in_epoch,
        restart: part.restart,
        signature: part.signature.unwrap_or_default().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn page(indices: &[u32], next: Option<u32>) -> SealList {
        let seal = |&index| SealEntry {
            index,
            epoch: 0,
            digest: String::new(),
            prev: String::new(),
            scheme: String::new(),
            events: 0,
            last_in_epoch: false,
            restart: false,
            kept_from: 0,
            conflict: false,
        };
        SealList { device: String::new(), seals: indices.iter().map(seal).collect(), next }
    }

    #[test]
    fn rejects_a_listing_that_does_not_ascend() {
        assert!(ascends(&page(&[3, 3, 5], Some(6)), 3));
        assert!(ascends(&page(&[], None), 3));
        for (indices, next) in [
            (&[3, 5, 4][..], None),
            (&[2, 3], None),
            (&[3, 6], Some(6)),
            (&[], Some(3)),
            (&[], Some(2)),
        ] {
            assert!(!ascends(&page(indices, next), 3), "{indices:?} {next:?}");
        }
    }
}
