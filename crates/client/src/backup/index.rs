//! The index of a backup: every object, with its length and its SHA-256 digest.

use std::collections::BTreeSet;

use moteseal_api::summary::Fingerprint;
use moteseal_core::digest::Digest;
use serde::{Deserialize, Serialize};

use super::place::{Place, object};
use super::{BackupError, content};

/// The name of the index.
pub const INDEX: &str = "index.json";
/// The version of the index's format.
const VERSION: u32 = 1;
/// The maximum size of an index, in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// Everything that a backup contains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    /// The version of this format: 1.
    pub version: u32,
    /// The id of the group.
    pub group: String,
    /// The version of the roster with which the export verified the data.
    pub roster_version: u32,
    /// The digest of that roster.
    pub roster_digest: String,
    /// The blocks of seals, of all devices.
    pub seals: Vec<Block>,
    /// The blocks of manifests.
    pub manifests: Vec<Block>,
    /// The urgent events.
    pub events: Events,
}

/// The seals of a device, or the manifests, of one block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// The device; null for manifests.
    pub device: Option<String>,
    /// The first index or epoch.
    pub first: u64,
    /// The fingerprint that the cloud stated. It differs from `entries` if some of the block was left
    /// out, or was stored while the export ran.
    pub stated: Fingerprint,
    /// The fingerprint of what the objects contain.
    pub entries: Fingerprint,
    /// The objects.
    pub objects: Vec<Object>,
}

/// The urgent events, in the order in which the cloud stored them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Events {
    /// The fingerprint that the cloud stated.
    pub stated: Fingerprint,
    /// The fingerprint of what the objects contain.
    pub entries: Fingerprint,
    /// The cursor after the last event.
    pub cursor: Option<String>,
    /// The objects.
    pub objects: Vec<Object>,
}

/// One object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Object {
    /// The name, below `objects/`.
    pub name: String,
    /// The SHA-256 digest of the content, as hexadecimal digits.
    pub sha256: String,
    /// The length in bytes.
    pub length: u64,
}

impl Object {
    pub(super) fn of(name: String, bytes: &[u8]) -> Self {
        let sha256 = Digest::of(&[bytes]).to_string();
        Self { name, sha256, length: bytes.len() as u64 }
    }

    /// Reads the object and checks its length and digest.
    pub(super) async fn read(&self, place: &Place) -> Result<Vec<u8>, BackupError> {
        let damaged = |what: &str| BackupError::Damaged {
            object: format!("{}/{}", place.name(), object(&self.name)),
            what: what.to_owned(),
        };
        if !is_name(&self.name) || self.length > content::MOST_OBJECT {
            return Err(damaged("the index does not describe it correctly"));
        }
        let bytes = place.read(&object(&self.name), content::MOST_OBJECT).await?;
        let bytes = bytes.ok_or_else(|| damaged("it is missing"))?;
        if bytes.len() as u64 != self.length || Digest::of(&[&bytes]).to_string() != self.sha256 {
            return Err(damaged("its content was altered"));
        }
        Ok(bytes)
    }
}

/// Returns whether a name of an index stays in the folder of the objects.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !name.is_empty() && name.len() <= 200 && name.bytes().all(is_plain)
}

impl Index {
    pub(super) fn new(roster: &moteseal_verify::Roster) -> Self {
        use moteseal_core::roster::Directory as _;
        Self {
            version: VERSION,
            group: roster.group().to_string(),
            roster_version: roster.version(),
            roster_digest: roster.digest().to_string(),
            seals: Vec::new(),
            manifests: Vec::new(),
            events: Events::default(),
        }
    }

    /// Reads the index of a place, if it has one.
    pub(super) async fn read(place: &Place) -> Result<Option<Self>, BackupError> {
        let Some(bytes) = place.read(INDEX, MOST_BYTES).await? else { return Ok(None) };
        let damaged = |what: String| BackupError::Damaged {
            object: format!("{}/{INDEX}", place.name()),
            what,
        };
        let index: Self =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if index.version != VERSION {
            return Err(damaged(format!(
                "its version is {}, and this program reads version {VERSION}",
                index.version
            )));
        }
        Ok(Some(index))
    }

    pub(super) async fn write(&self, place: &Place) -> Result<(), BackupError> {
        let failed = |error: serde_json::Error| BackupError::Io {
            action: "write",
            object: INDEX.to_owned(),
            cause: error.to_string(),
        };
        let mut bytes = serde_json::to_vec_pretty(self).map_err(failed)?;
        bytes.push(b'\n');
        place.write(INDEX, bytes).await
    }

    /// Returns all objects.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Object> {
        let blocks = self.seals.iter().chain(&self.manifests);
        blocks.flat_map(|block| &block.objects).chain(&self.events.objects)
    }

    /// Returns the names of all objects, as [`Place::list`] returns them.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.objects().map(|of| object(&of.name)).collect()
    }
}
