//! The policy by which a node reports, as a client reads and sets it.

use std::fmt;

use bytes::Bytes;
use moteseal_core::cbor::{DecodeError, Reader, Writer};
use moteseal_core::health::{Policy, PolicyError};
use serde_json::{Value, json};

use crate::coap::Format;

/// Why a policy was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfError {
    /// The body is not CBOR of the right form.
    Cbor(DecodeError),
    /// The body is not a JSON object with these members.
    Json,
    /// The node cannot follow the policy.
    Policy(PolicyError),
}

impl ConfError {
    /// Returns the error's name (spec/errors.md).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Cbor(error) => error.name(),
            Self::Json => "BadPolicy",
            Self::Policy(error) => error.name(),
        }
    }
}

impl fmt::Display for ConfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cbor(error) => error.fmt(f),
            Self::Json => f.write_str(
                "the policy is not an object such as {\"period\":30,\"min\":30,\"threshold\":4}",
            ),
            Self::Policy(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ConfError {}

/// Returns the representation of a policy.
#[must_use]
pub fn encode_policy(policy: Policy, format: Format) -> Bytes {
    let Policy { period_s, min_s, threshold } = policy;
    if format == Format::JSON {
        let object = json!({ "period": period_s, "min": min_s, "threshold": threshold });
        return object.to_string().into();
    }
    let mut buffer = [0; 64];
    let mut out = Writer::new(&mut buffer);
    // The keys are in the order of their encodings. The buffer is long enough.
    let written = (|| {
        out.map(3)?.text("min")?.uint(min_s)?.text("period")?.uint(period_s)?;
        out.text("threshold")?.uint(threshold).map(|_| ())
    })();
    debug_assert!(written.is_ok());
    Bytes::copy_from_slice(out.written())
}

/// Reads a policy from the body of a request. What is left out stays as in `policy`.
///
/// # Errors
/// [`ConfError`]; the limits of the node are not checked.
pub fn decode_policy(
    body: &[u8],
    format: Option<Format>,
    policy: Policy,
) -> Result<Policy, ConfError> {
    let mut policy = policy;
    let mut set = |name: &str, value: u32| {
        let place = match name {
            "period" => &mut policy.period_s,
            "min" => &mut policy.min_s,
            "threshold" => &mut policy.threshold,
            _ => return false,
        };
        *place = value;
        true
    };
    if format == Some(Format::JSON) || (format.is_none() && body.first() == Some(&b'{')) {
        let object: Value = serde_json::from_slice(body).map_err(|_| ConfError::Json)?;
        for (name, value) in object.as_object().ok_or(ConfError::Json)? {
            let value = value.as_u64().and_then(|value| u32::try_from(value).ok());
            if !value.is_some_and(|value| set(name, value)) {
                return Err(ConfError::Json);
            }
        }
        return Ok(policy);
    }
    let mut read = || {
        let mut reader = Reader::new(body)?;
        for _ in 0..reader.map()? {
            let (name, value) = (reader.text()?, reader.uint()?);
            if !set(name, value) {
                return Err(DecodeError::FieldOutOfRange);
            }
        }
        Ok(())
    };
    read().map_err(ConfError::Cbor)?;
    Ok(policy)
}
