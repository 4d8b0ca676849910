//! The names of a group's queriers.

use core::fmt;

use moteseal_core::digest::Digest;
use moteseal_core::link::{MAX_NODE_NAME, is_node_name};
use moteseal_core::record::DeviceId;

/// The name of a querier (spec/sums.md, section 8). A group's only or first querier has the default
/// name, `querier`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct QuerierName {
    bytes: [u8; MAX_NODE_NAME],
    length: u8,
}

impl QuerierName {
    /// Takes a name; `None` if [`is_node_name`] is false for it.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let mut bytes = [0; MAX_NODE_NAME];
        let length = u8::try_from(name.len()).ok().filter(|_| is_node_name(name))?;
        bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        Some(Self { bytes, length })
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..usize::from(self.length)).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Returns whether this is the default name. Only the querier with this name can be replaced by
    /// the querier that a later version of the roster states.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the digest that stands for the set-up of this querier in query schedules and in ids of
    /// queries. `roster` is the digest of version 0 of the group's roster; for the default name, it is
    /// the result. Devices thus refuse another querier's query schedule, and the queries of two queriers
    /// have different ids.
    #[must_use]
    pub fn set_up_digest(&self, roster: &Digest) -> Digest {
        if self.is_default() {
            return *roster;
        }
        Digest::of(&[b"moteseal/1/sum/set-up", &roster.0, self.as_str().as_bytes()])
    }

    /// Returns the id of the name: the first eight bytes of `SHA-256("moteseal/1/querier" || name)`.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        let digest = Digest::of(&[b"moteseal/1/querier", self.as_str().as_bytes()]);
        let mut id = [0; 8];
        id.copy_from_slice(&digest.0[..8]);
        DeviceId(id)
    }
}

impl Default for QuerierName {
    fn default() -> Self {
        let mut bytes = [0; MAX_NODE_NAME];
        bytes[..7].copy_from_slice(b"querier");
        Self { bytes, length: 7 }
    }
}

impl fmt::Display for QuerierName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for QuerierName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}
