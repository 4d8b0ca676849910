//! The first item of a proof: what the proof states that it shows, with the digest of the roster under
//! which it was verified (`spec/answers.md`, section 7). The digest only serves to report that a wrong
//! roster was given; no check depends on it.

use moteseal_api::{Query, strict_json};
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_seal::sample::{Choice, Rate};
use moteseal_verify::Roster;
use serde_json::{Value, json};

/// What a proof states that it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The whole answer to a query.
    Answer(Query),
    /// What a redactor left of one or more answers.
    Redacted(Extent),
}

/// The devices and the range of epochs of a redacted proof. What the proof shows of them was chosen by
/// the redactor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The devices, in the order of the proof: at least one, without repetitions.
    pub devices: Vec<DeviceId>,
    /// The first epoch.
    pub since: EpochNumber,
    /// The epoch after the last one, greater than `since`. `None` if the range has no end.
    pub until: Option<EpochNumber>,
}

impl Extent {
    /// Returns whether an epoch of a device is in the extent.
    pub(crate) fn has(&self, device: DeviceId, epoch: EpochNumber) -> bool {
        let until = self.until.unwrap_or(EpochNumber(u64::MAX));
        (self.since..until).contains(&epoch) && self.devices.contains(&device)
    }

    /// Checks that the devices and the range are those of a valid query.
    ///
    /// # Errors
    /// A message that states what is wrong.
    pub(crate) fn check(self) -> Result<Self, String> {
        let Self { devices, since, until } = self;
        let query =
            Query { devices, since, until, choice: Choice::Rate(Rate::ALL), columns: Vec::new() };
        query.check().map(Self::from).map_err(|error| error.to_string())
    }
}

impl From<Query> for Extent {
    fn from(Query { devices, since, until, .. }: Query) -> Self {
        Self { devices, since, until }
    }
}

impl Scope {
    /// Returns the devices, in the order of the proof.
    #[must_use]
    pub fn devices(&self) -> &[DeviceId] {
        match self {
            Self::Answer(query) => &query.devices,
            Self::Redacted(extent) => &extent.devices,
        }
    }

    /// Returns the first epoch, and the epoch after the last one.
    #[must_use]
    pub const fn range(&self) -> (EpochNumber, Option<EpochNumber>) {
        match self {
            Self::Answer(Query { since, until, .. })
            | Self::Redacted(Extent { since, until, .. }) => (*since, *until),
        }
    }

    /// Returns the choice of the query, or `None` if a redactor chose.
    #[must_use]
    pub const fn choice(&self) -> Option<Choice> {
        match self {
            Self::Answer(query) => Some(query.choice),
            Self::Redacted(_) => None,
        }
    }

    /// Returns whether a redactor chose what the proof shows.
    #[must_use]
    pub const fn is_redacted(&self) -> bool {
        matches!(self, Self::Redacted(_))
    }

    /// Returns the scope as JSON: the query, or the devices and the range with `"redacted": true`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Self::Answer(query) => serde_json::from_str(&query.to_json()).unwrap_or_default(),
            Self::Redacted(Extent { devices, since, until }) => json!({
                "devices": devices.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "since": since.0,
                "until": until.map(|until| until.0),
                "redacted": true,
            }),
        }
    }

    /// Encodes the first item of a proof.
    pub(crate) fn encode(&self, roster: &Roster) -> String {
        let mut text = self.to_json();
        if let Some(text) = text.as_object_mut() {
            text.insert("roster".to_owned(), roster.digest().to_string().into());
        }
        text.to_string()
    }

    /// Decodes the first item of a proof: the scope, and the roster's digest if there is one.
    ///
    /// # Errors
    /// A message that states what is wrong with the item.
    pub(crate) fn decode(text: &str) -> Result<(Self, Option<String>), String> {
        let mut text = strict_json::parse(text.as_bytes())
            .map_err(|error| format!("its query is not JSON ({error})"))?;
        let object = text.as_object_mut().ok_or("its query is not an object")?;
        let roster = match object.remove("roster") {
            None => None,
            Some(Value::String(digest))
                if digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
            {
                Some(digest)
            }
            Some(_) => return Err("its roster is not a digest".to_owned()),
        };
        let invalid = |error: &dyn std::fmt::Display| format!("its query is invalid ({error})");
        let scope = match object.remove("redacted") {
            None | Some(Value::Null) => {
                Self::Answer(Query::from_value(text).map_err(|error| invalid(&error))?)
            }
            Some(Value::Bool(true)) => {
                let is_given = |choice| object.get(choice).is_some_and(|value| !value.is_null());
                if ["rate", "at_most", "sample", "readings", "columns"].into_iter().any(is_given) {
                    return Err(invalid(&"a redacted proof has no choice and no columns"));
                }
                // The devices and the range follow the rules of a query.
                object.insert("rate".to_owned(), Rate::ALL.to_string().into());
                let query = Query::from_value(text).map_err(|error| invalid(&error))?;
                Self::Redacted(query.into())
            }
            Some(_) => return Err(invalid(&"redacted is not true")),
        };
        Ok((scope, roster))
    }
}
