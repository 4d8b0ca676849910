//! The newest version of each group's roster that a client has used. An earlier version, or one
//! that does not have the pinned version in its history, is refused (spec/objects.md, section 4.5).
//! Otherwise a key that a later version revoked would be valid again for a client that is given the
//! earlier file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use moteseal_api::ErrorKind;
use moteseal_core::digest::Digest;
use moteseal_core::record::GroupId;
use moteseal_core::roster::Directory as _;
use moteseal_verify::Roster;
use serde_json::{Value, json};

use super::digest;

/// A group and its operator: the id of the group, and the SHA-256 of the operator's public key.
/// Groups with the same name under different operators are distinct.
type GroupKey = (GroupId, Digest);

/// The newest version of a roster that this client has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedRoster {
    /// The version.
    pub version: u32,
    /// The digest of this version.
    pub digest: Digest,
    /// The time of the first use of this version.
    pub since: Timestamp,
}

/// Why a client refuses a roster: it is neither the version that the client has used before nor a
/// later version of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.sentence())]
pub struct RosterNotLater {
    /// The group's name.
    pub group: String,
    /// The version of the roster that was given.
    pub given: u32,
    /// The version that the client has used.
    pub pinned: PinnedRoster,
    /// The file of pinned seals, if they are in a file.
    pub file: Option<PathBuf>,
}

impl RosterNotLater {
    /// Returns the stable name of the error, `NotLater`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        "NotLater"
    }

    /// Always returns [`ErrorKind::Usage`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }

    fn sentence(&self) -> String {
        let Self { group, given, pinned, file } = self;
        let PinnedRoster { version, since, .. } = pinned;
        let since = since.strftime("%Y-%m-%dT%H:%M:%SZ");
        let what = if given < version {
            format!(
                "version {given} of the roster of {group} is older than version {version}, which \
                 this client has used since {since}; get the newest version from the operator"
            )
        } else if given == version {
            format!(
                "this client has used another version {version} of the roster of {group} since \
                 {since}; ask the operator which of the two is right"
            )
        } else {
            format!(
                "version {given} of the roster of {group} does not follow the version {version} \
                 that this client has used since {since}; ask the operator which of the two is right"
            )
        };
        match file {
            Some(file) => {
                format!("{what}, or delete {} to discard what is pinned", file.display())
            }
            None => what,
        }
    }
}

moteseal_api::named_error!(RosterNotLater);

/// The pinned rosters of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rosters(BTreeMap<GroupKey, PinnedRoster>);

impl Rosters {
    /// Returns the pinned version of a roster's group.
    pub(super) fn of(&self, roster: &Roster) -> Option<PinnedRoster> {
        self.0.get(&group_key(roster)).copied()
    }

    /// Checks that a roster is the pinned version or a later version of it. `file` is the file of
    /// the pinned seals, for the message.
    pub(super) fn check(&self, roster: &Roster, file: Option<&Path>) -> Result<(), RosterNotLater> {
        let Some(pinned) = self.of(roster) else { return Ok(()) };
        if roster.version_of(&pinned.digest) == Some(pinned.version) {
            return Ok(());
        }
        Err(RosterNotLater {
            group: roster.group_name().to_owned(),
            given: roster.version(),
            pinned,
            file: file.map(Path::to_owned),
        })
    }

    /// Pins a roster, unless the same or a later version is pinned. Returns whether this changed
    /// anything.
    pub(super) fn pin(&mut self, roster: &Roster, now: Timestamp) -> bool {
        let (version, digest) = (roster.version(), roster.digest());
        let pinned = PinnedRoster { version, digest, since: now };
        let key = group_key(roster);
        let is_newer = self.0.get(&key).is_none_or(|known| known.version < version);
        if is_newer {
            self.0.insert(key, pinned);
        }
        is_newer
    }

    /// Adds what another process has saved. The later version of a roster counts; of two different
    /// rosters with the same version, the one that was saved first.
    pub(super) fn merge(&mut self, saved: Self) {
        for (key, saved) in saved.0 {
            let entry = self.0.entry(key).or_insert(saved);
            if entry.version <= saved.version {
                *entry = saved;
            }
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let entry = |(key, roster): (&GroupKey, &PinnedRoster)| {
            json!({
                "group": key.0.to_string(),
                "operator": key.1.to_string(),
                "version": roster.version,
                "digest": roster.digest.to_string(),
                "since": roster.since.to_string(),
            })
        };
        self.0.iter().map(entry).collect()
    }

    /// Reads the rosters of a file. A file of an earlier version of this program has none.
    pub(super) fn parse(value: Option<&Value>) -> Option<Self> {
        let Some(value) = value else { return Some(Self::default()) };
        let entry = |entry: &Value| {
            let text = |name: &str| entry.get(name)?.as_str();
            let mut group = GroupId([0; 8]);
            hex::decode_to_slice(text("group")?, &mut group.0).ok()?;
            let version = entry.get("version")?.as_u64()?.try_into().ok()?;
            let since = text("since")?.parse().ok()?;
            let roster = PinnedRoster { version, digest: digest(text("digest")?)?, since };
            Some(((group, digest(text("operator")?)?), roster))
        };
        value.as_array()?.iter().map(entry).collect::<Option<_>>().map(Self)
    }
}

fn group_key(roster: &Roster) -> GroupKey {
    let operator = roster.operator();
    let algorithm = operator.algorithm().cose().to_be_bytes();
    (roster.group(), Digest::of(&[&algorithm, operator.to_bytes().as_ref()]))
}
