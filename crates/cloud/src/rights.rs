//! What a credential permits: reading, writing, and for which devices it may write.
//!
//! The files of tokens and of users contain rights as words: the scopes, such as `read,write`, and
//! a binding, such as `device=0123456789abcdef` or `group=0123456789abcdef`.

use std::collections::BTreeSet;
use std::fmt;

use moteseal_api::parse_id;
use moteseal_core::record::{DeviceId, GroupId};

/// The scope that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Queries, listings, bundles and metrics.
    Read,
    /// Uploads of bundles and manifests.
    Write,
}

impl Scope {
    const ALL: [Self; 2] = [Self::Read, Self::Write];

    /// Returns the scope's name in files and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// The scopes of a credential, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scopes(BTreeSet<Scope>);

impl Scopes {
    /// Parses the names of scopes, separated by commas. Returns `None` if a name is unknown.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let named = |name: &str| Scope::ALL.into_iter().find(|scope| scope.name() == name);
        text.split(',').map(named).collect::<Option<_>>().map(Self)
    }

    /// Returns whether `scope` is one of the scopes.
    #[must_use]
    pub fn has(&self, scope: Scope) -> bool {
        self.0.contains(&scope)
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|scope| scope.name()).collect();
        f.write_str(&names.join(","))
    }
}

/// Whose seals a credential may upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Binding {
    /// Those of all devices, and manifests.
    #[default]
    Any,
    /// Those of all devices of this group, and its manifests. A cloud serves one group, so this
    /// prevents the use of the credential at the clouds of other groups.
    Group(GroupId),
    /// Those of these devices, at least one, and no manifests.
    Devices(BTreeSet<DeviceId>),
}

impl Binding {
    /// Parses the words of a binding: none for [`Any`](Self::Any), `group=ID`, or one or more of
    /// `device=ID,ID`. Returns `None` if they are malformed.
    #[must_use]
    pub fn parse<'t>(words: impl IntoIterator<Item = &'t str>) -> Option<Self> {
        let mut binding = Self::Any;
        for word in words {
            match (word.split_once('=')?, &mut binding) {
                (("group", group), Self::Any) => {
                    binding = Self::Group(GroupId(parse_id(group.as_bytes())?));
                }
                (("device", devices), Self::Any | Self::Devices(_)) => {
                    let more =
                        devices.split(',').map(|device| parse_id(device.as_bytes()).map(DeviceId));
                    let more: BTreeSet<DeviceId> = more.collect::<Option<_>>()?;
                    match &mut binding {
                        Self::Devices(devices) => devices.extend(more),
                        _ => binding = Self::Devices(more),
                    }
                }
                _ => return None,
            }
        }
        Some(binding)
    }
}

impl fmt::Display for Binding {
    /// Writes the words of the binding, separated by spaces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => Ok(()),
            Self::Group(group) => write!(f, "group={group}"),
            Self::Devices(devices) => {
                let ids: Vec<String> = devices.iter().map(DeviceId::to_string).collect();
                write!(f, "device={}", ids.join(","))
            }
        }
    }
}

/// What a credential permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The kinds of requests.
    pub scopes: Scopes,
    /// Whose seals may be uploaded.
    pub binding: Binding,
}

impl Rights {
    /// Creates rights. Returns `None` if a binding limits uploads that the scopes do not permit.
    #[must_use]
    pub fn new(scopes: Scopes, binding: Binding) -> Option<Self> {
        let is_consistent = binding == Binding::Any || scopes.has(Scope::Write);
        is_consistent.then_some(Self { scopes, binding })
    }

    /// Returns whether the binding permits uploads to the cloud of this group.
    #[must_use]
    pub fn permits_group(&self, group: GroupId) -> bool {
        !matches!(&self.binding, Binding::Group(bound) if *bound != group)
    }

    /// Returns whether the binding permits the upload of this device's seals.
    #[must_use]
    pub fn permits_device(&self, device: DeviceId) -> bool {
        !matches!(&self.binding, Binding::Devices(devices) if !devices.contains(&device))
    }

    /// Returns whether the binding permits the upload of manifests, which are of a whole group.
    #[must_use]
    pub const fn permits_manifests(&self) -> bool {
        !matches!(self.binding, Binding::Devices(_))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const A: DeviceId = DeviceId([0xaa; 8]);
    const B: DeviceId = DeviceId([0xbb; 8]);

    fn rights(scopes: &str, words: &str) -> Option<Rights> {
        Rights::new(Scopes::parse(scopes)?, Binding::parse(words.split_whitespace())?)
    }

    #[test]
    fn a_binding_limits_the_uploads_to_devices_or_to_a_group() {
        let any = rights("write", "").unwrap();
        let group = rights("read,write", &format!("group={}", GroupId([7; 8]))).unwrap();
        let device = rights("write", &format!("device={A}")).unwrap();
        let both = rights("write", &format!("device={B} device={A}")).unwrap();
        assert!(any.permits_device(A) && any.permits_manifests());
        assert!(any.permits_group(GroupId([1; 8])));
        assert!(group.permits_device(B) && group.permits_manifests());
        assert!(group.permits_group(GroupId([7; 8])) && !group.permits_group(GroupId([8; 8])));
        assert!(device.permits_device(A) && !device.permits_device(B));
        assert!(!device.permits_manifests());
        assert!(both.permits_device(A) && both.permits_device(B));
        assert_eq!(both.binding.to_string(), format!("device={A},{B}"));
    }

    #[test]
    fn malformed_rights_are_rejected() {
        for (scopes, words) in [
            ("", ""),
            ("red", ""),
            ("read,", ""),
            ("write", "device="),
            ("write", "device=AAAAAAAAAAAAAAAA"),
            ("write", "device=+aaaaaaaaaaaaaaa"),
            ("write", "device=aaaaaaaaaaaaaaa"),
            ("write", "group=aaaaaaaaaaaaaaaa group=aaaaaaaaaaaaaaaa"),
            ("write", "group=aaaaaaaaaaaaaaaa device=aaaaaaaaaaaaaaaa"),
            ("write", "aaaaaaaaaaaaaaaa"),
            // A binding without uploads would have no effect.
            ("read", "device=aaaaaaaaaaaaaaaa"),
        ] {
            assert_eq!(rights(scopes, words), None, "{scopes} {words}");
        }
    }
}
