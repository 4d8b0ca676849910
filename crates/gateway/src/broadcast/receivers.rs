//! A sender's list of receivers, and the secret from which their keys derive (spec/broadcast.md,
//! section 7.1).
//!
//! The position of a receiver in the list never changes, and a name is never used again. The entry
//! of a removed receiver therefore stays in the list.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use moteseal_broadcast::MAX_RECEIVERS;
use moteseal_broadcast::receipt::{
    KeyFileError, ReceiverKey, ReceiverTag, check_receiver_name, decode_hex,
};
use moteseal_core::record::{DeviceId, NetworkId};
use zeroize::Zeroizing;

/// The first line of the file.
const TITLE: &str = "moteseal receivers 1";

/// Why a list of receivers cannot be read or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiversError {
    /// The file is not a list of receivers.
    #[error("line {line} is not that of a list of receivers; restore the file from a backup")]
    NotAReceiverList {
        /// The number of the line, from 1.
        line: usize,
    },
    /// The name is not allowed.
    #[error("{name:?}: {}", KeyFileError::BadReceiverName)]
    BadReceiverName {
        /// The name.
        name: String,
    },
    /// The list has, or had, a receiver with this name.
    #[error("{name} is, or was, in the list; names are not used again, so choose another name")]
    NameUsed {
        /// The name.
        name: String,
    },
    /// The list has no receiver with this name.
    #[error("{name} is not in the list; `moteseal broadcast receivers list` prints the names")]
    UnknownReceiver {
        /// The name.
        name: String,
    },
    /// The list is full.
    #[error("the list has {MAX_RECEIVERS} entries, the maximum; certify another sender")]
    TooManyReceivers,
}

impl ReceiversError {
    /// Returns the error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NotAReceiverList { .. } => "NotAReceiverList",
            Self::BadReceiverName { .. } => "BadReceiverName",
            Self::NameUsed { .. } => "NameUsed",
            Self::UnknownReceiver { .. } => "UnknownReceiver",
            Self::TooManyReceivers => "TooManyReceivers",
        }
    }

    /// Returns [`Usage`](moteseal_api::ErrorKind::Usage) for every error.
    #[must_use]
    pub const fn kind(&self) -> moteseal_api::ErrorKind {
        moteseal_api::ErrorKind::Usage
    }
}

moteseal_api::named_error!(ReceiversError);

/// An entry of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// The receiver's name.
    pub name: String,
    /// Whether the receiver was removed: no receipt is expected from it.
    pub is_removed: bool,
}

/// A sender's list of receivers. `Debug` does not print the secret.
#[derive(Clone)]
pub struct Receivers {
    network: NetworkId,
    sender: DeviceId,
    secret: Zeroizing<[u8; 32]>,
    entries: Vec<Receiver>,
    /// The key of each entry.
    keys: Vec<ReceiverKey>,
    /// The position of each name.
    positions: HashMap<String, u32>,
    /// The positions of the members of each group, in ascending order.
    groups: BTreeMap<String, Vec<u32>>,
}

impl std::fmt::Debug for Receivers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receivers").field("entries", &self.entries).finish_non_exhaustive()
    }
}

impl Receivers {
    /// Creates an empty list for a sender of a network. `secret` are 32 random bytes.
    #[must_use]
    pub fn new(network: NetworkId, sender: DeviceId, secret: Zeroizing<[u8; 32]>) -> Self {
        let (entries, keys, positions) = (Vec::new(), Vec::new(), HashMap::new());
        Self { network, sender, secret, entries, keys, positions, groups: BTreeMap::new() }
    }

    /// Reads the content of a list's file.
    ///
    /// # Errors
    /// `NotAReceiverList`, `BadReceiverName`, `NameUsed`, `TooManyReceivers`.
    pub fn parse(text: &str) -> Result<Self, ReceiversError> {
        let mut lines = text.lines();
        let mut field = |line: usize, name: &str| {
            let rest = lines.next().and_then(|line| line.strip_prefix(name));
            rest.ok_or(ReceiversError::NotAReceiverList { line })
        };
        field(1, TITLE)?;
        let network = hex(field(2, "network ")?, 2)?;
        let sender = hex(field(3, "sender ")?, 3)?;
        let secret = Zeroizing::new(hex(field(4, "secret ")?, 4)?);
        let mut list = Self::new(NetworkId(network), DeviceId(sender), secret);
        for (line, entry) in (5..).zip(lines) {
            let (name, is_removed) = match entry.split_once(' ') {
                Some(("group", group)) => {
                    list.parse_group(group).ok_or(ReceiversError::NotAReceiverList { line })?;
                    continue;
                }
                Some(("receiver", name)) => (name, false),
                Some(("removed", name)) => (name, true),
                _ => return Err(ReceiversError::NotAReceiverList { line }),
            };
            let position = list.add(name)?.position() as usize;
            if let Some(entry) = list.entries.get_mut(position) {
                entry.is_removed = is_removed;
            }
        }
        Ok(list)
    }

    /// Returns the content of the list's file. It contains the secret.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let Self { network, sender, .. } = self;
        // The text has its final capacity from the start, so that no copy of the secret is left in
        // memory.
        let names: usize = self.entries.iter().map(|entry| entry.name.len() + 10).sum();
        let mut text = Zeroizing::new(String::with_capacity(256 + names));
        // Writing to a string never fails.
        _ = write!(text, "{TITLE}\nnetwork {network}\nsender {sender}\nsecret ");
        self.secret.iter().for_each(|byte| _ = write!(text, "{byte:02x}"));
        text.push('\n');
        for Receiver { name, is_removed } in &self.entries {
            _ = writeln!(text, "{} {name}", if *is_removed { "removed" } else { "receiver" });
        }
        for (name, members) in &self.groups {
            _ = write!(text, "group {name}");
            members.iter().for_each(|position| _ = write!(text, ",{}", self.label(*position)));
            text.push('\n');
        }
        text
    }

    /// Adds a receiver, and returns its key.
    ///
    /// # Errors
    /// `BadReceiverName`, `NameUsed`, `TooManyReceivers`.
    pub fn add(&mut self, name: &str) -> Result<&ReceiverKey, ReceiversError> {
        let name = name.to_owned();
        if check_receiver_name(&name).is_err() {
            return Err(ReceiversError::BadReceiverName { name });
        }
        if self.positions.contains_key(&name) || self.groups.contains_key(&name) {
            return Err(ReceiversError::NameUsed { name });
        }
        let position = u32::try_from(self.entries.len()).unwrap_or(MAX_RECEIVERS);
        if position >= MAX_RECEIVERS {
            return Err(ReceiversError::TooManyReceivers);
        }
        let key = ReceiverKey::derive(&self.secret, self.network, self.sender, position, &name);
        self.positions.insert(name.clone(), position);
        self.entries.push(Receiver { name, is_removed: false });
        Ok(self.keys.push_mut(key))
    }

    /// Removes a receiver. Its position and name stay reserved.
    ///
    /// # Errors
    /// `UnknownReceiver`.
    pub fn remove(&mut self, name: &str) -> Result<(), ReceiversError> {
        let position = self.position(name)?;
        if let Some(entry) = self.entries.get_mut(position as usize) {
            entry.is_removed = true;
        }
        Ok(())
    }

    /// Reads the line of a group: its name and the names of its members, separated by commas.
    fn parse_group(&mut self, line: &str) -> Option<()> {
        let mut names = line.split(',');
        let name = names.next().filter(|name| check_receiver_name(name).is_ok())?;
        let members = names.map(|name| self.positions.get(name).copied());
        let members: Vec<u32> = members.collect::<Option<_>>()?;
        let is_sorted = members.is_sorted_by(|one, other| one < other) && !members.is_empty();
        let is_free = !self.positions.contains_key(name) && !self.groups.contains_key(name);
        (is_sorted && is_free).then(|| _ = self.groups.insert(name.to_owned(), members))
    }

    /// Sets the members of a group. Without members, deletes the group.
    ///
    /// # Errors
    /// `BadReceiverName`; `NameUsed` if a receiver has, or had, this name; `UnknownReceiver` for a
    /// member that is not in the list.
    pub fn set_group(&mut self, name: &str, members: &[String]) -> Result<(), ReceiversError> {
        let owned = || name.to_owned();
        if check_receiver_name(name).is_err() {
            return Err(ReceiversError::BadReceiverName { name: owned() });
        }
        if self.positions.contains_key(name) {
            return Err(ReceiversError::NameUsed { name: owned() });
        }
        if members.is_empty() {
            let removed = self.groups.remove(name);
            return removed.map(drop).ok_or(ReceiversError::UnknownReceiver { name: owned() });
        }
        let members = members.iter().map(|member| self.position(member));
        let mut members = members.collect::<Result<Vec<_>, _>>()?;
        members.sort_unstable();
        members.dedup();
        self.groups.insert(owned(), members);
        Ok(())
    }

    /// Returns the groups, each with the names of those of its members that were not removed.
    pub fn groups(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        self.groups.iter().map(|(name, members)| {
            let current = members.iter().filter(|position| self.key(**position).is_some());
            (&**name, current.map(|position| self.label(*position)).collect())
        })
    }

    /// Returns the network of the sender.
    #[must_use]
    pub const fn network(&self) -> NetworkId {
        self.network
    }

    /// Returns the sender.
    #[must_use]
    pub const fn sender(&self) -> DeviceId {
        self.sender
    }

    /// Returns the secret from which the keys derive.
    pub(super) fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    /// Returns the entries by position.
    #[must_use]
    pub fn entries(&self) -> &[Receiver] {
        &self.entries
    }

    /// Returns the positions of the receivers that were not removed.
    pub fn current(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.entries).filter(|(_, entry)| !entry.is_removed).map(|(at, _)| at)
    }

    /// Returns the positions of the receivers with these names, in ascending order. The name of a
    /// group stands for those of its members that were not removed.
    ///
    /// # Errors
    /// `UnknownReceiver` for a name that is not in the list, or was removed, and for a group of which
    /// all members were removed.
    pub fn positions(&self, names: &[String]) -> Result<Vec<u32>, ReceiversError> {
        let mut positions = Vec::new();
        for name in names {
            let members = self.groups.get(name).into_iter().flatten().copied();
            let before = positions.len();
            positions.extend(members.filter(|position| self.key(*position).is_some()));
            if positions.len() == before {
                positions.push(self.position(name)?);
            }
        }
        positions.sort_unstable();
        positions.dedup();
        Ok(positions)
    }

    /// Returns the name of the receiver at a position; an empty string if there is none.
    #[must_use]
    pub fn label(&self, position: u32) -> &str {
        self.entries.get(position as usize).map_or("", |entry| &entry.name)
    }

    /// Returns the key of the receiver at a position, unless it was removed.
    #[must_use]
    pub fn key(&self, position: u32) -> Option<&ReceiverKey> {
        let entry = self.entries.get(position as usize)?;
        if entry.is_removed { None } else { self.keys.get(position as usize) }
    }

    /// Returns the receipts of all entries for the chain with this head, also of removed
    /// receivers: a relay may have combined them with others.
    pub(super) fn receipts(&self, head: &[u8]) -> Vec<ReceiverTag> {
        self.keys.iter().map(|key| key.receipt(head)).collect()
    }

    fn position(&self, name: &str) -> Result<u32, ReceiversError> {
        let position = self.positions.get(name).copied();
        position
            .filter(|position| self.key(*position).is_some())
            .ok_or_else(|| ReceiversError::UnknownReceiver { name: name.to_owned() })
    }
}

/// Reads the hexadecimal digits of a line.
fn hex<const N: usize>(text: &str, line: usize) -> Result<[u8; N], ReceiversError> {
    decode_hex(text).ok_or(ReceiversError::NotAReceiverList { line })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn list() -> Receivers {
        let (network, sender) = (NetworkId(*b"network1"), DeviceId(*b"sender 1"));
        Receivers::new(network, sender, Zeroizing::new([7; 32]))
    }

    #[test]
    fn positions_keys_and_names_stay_the_same_when_receivers_leave() {
        let mut list = list();
        for name in ["valve 1", "valve 2", "valve 3"] {
            list.add(name).unwrap();
        }
        let before = list.key(2).unwrap().receipt(b"head");
        list.remove("valve 2").unwrap();
        let read = Receivers::parse(&list.to_text()).unwrap();
        assert_eq!(read.entries(), list.entries());
        assert_eq!(read.current().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(read.key(2).unwrap().receipt(b"head"), before);
        assert!(read.key(1).is_none() && read.key(3).is_none());
        let mut read = read;
        assert_eq!(read.add("valve 2").unwrap_err().name(), "NameUsed");
        assert_eq!(read.add("valve 4").unwrap().position(), 3);
        assert_eq!(read.remove("valve 2").unwrap_err().name(), "UnknownReceiver");
        let unknown = read.positions(&["valve 2".to_owned()]);
        assert_eq!(unknown.unwrap_err().name(), "UnknownReceiver");
    }

    #[test]
    fn the_name_of_a_group_stands_for_its_members() {
        let names = |of: &[&str]| of.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut list = list();
        for name in ["a", "b", "c", "d"] {
            list.add(name).unwrap();
        }
        list.set_group("north", &names(&["c", "a", "c"])).unwrap();
        list.set_group("south", &names(&["b"])).unwrap();
        let mut list = Receivers::parse(&list.to_text()).unwrap();
        assert_eq!(list.positions(&names(&["north", "a", "d"])).unwrap(), [0, 2, 3]);
        assert_eq!(list.add("north").unwrap_err().name(), "NameUsed");
        assert_eq!(list.set_group("a", &names(&["b"])).unwrap_err().name(), "NameUsed");
        assert_eq!(list.set_group("x", &names(&["y"])).unwrap_err().name(), "UnknownReceiver");
        assert_eq!(list.set_group("x,", &names(&["a"])).unwrap_err().name(), "BadReceiverName");
        list.remove("a").unwrap();
        list.remove("b").unwrap();
        let mut list = Receivers::parse(&list.to_text()).unwrap();
        assert_eq!(list.positions(&names(&["north"])).unwrap(), [2]);
        assert_eq!(list.groups().next().unwrap(), ("north", vec!["c"]));
        let empty = list.positions(&names(&["south"])).unwrap_err();
        assert_eq!(empty.name(), "UnknownReceiver", "a group without members");
        list.set_group("north", &[]).unwrap();
        assert_eq!(list.set_group("north", &[]).unwrap_err().name(), "UnknownReceiver");
        assert!(!list.to_text().contains("north"));
        for group in ["", "a,b", "g", "g,", "g,c,b", "g,e", "g,c\ngroup g,c"] {
            let text = format!("{}group {group}\n", *list.to_text());
            assert_eq!(Receivers::parse(&text).unwrap_err().name(), "NotAReceiverList", "{group}");
        }
    }

    #[test]
    fn damaged_lists_are_refused() {
        let mut list = list();
        list.add("valve 1").unwrap();
        let text = list.to_text();
        for (from, to, name) in [
            ("moteseal receivers 1", "moteseal receivers 2", "NotAReceiverList"),
            ("network 6e", "network 6", "NotAReceiverList"),
            ("secret 07", "secret +7", "NotAReceiverList"),
            ("receiver valve 1", "receiver  valve 1", "BadReceiverName"),
            ("receiver valve 1", "receiver a,b", "BadReceiverName"),
            ("receiver valve 1", "valve 1", "NotAReceiverList"),
            ("receiver valve 1", "receiver valve 1\nremoved valve 1", "NameUsed"),
        ] {
            assert!(text.contains(from), "{from}");
            assert_eq!(Receivers::parse(&text.replace(from, to)).unwrap_err().name(), name, "{to}");
        }
    }
}
