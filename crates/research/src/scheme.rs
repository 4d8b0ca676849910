//! The common interface of all sealing schemes: a device seals an epoch, a cloud serves a part of
//! it, and an application verifies and opens this part.

use std::fmt;

use moteseal_core::digest::Digest;
use moteseal_core::named_errors;
use moteseal_core::record::{DeviceId, EpochNumber, Framing};
use moteseal_core::signature::{Algorithm, PublicKey, SignError, Signer};
use moteseal_seal::level::Salt;
use moteseal_seal::sample::Rate;

/// The device, the epoch and the framing of events.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The device.
    pub device: DeviceId,
    /// The epoch.
    pub epoch: EpochNumber,
    /// How events are delimited: records of fixed size have no prefix, and others have a length
    /// prefix.
    pub framing: Framing,
    /// The device's salt. Only [`EpochSeal`](crate::EpochSeal) uses it. An application reads it
    /// from the served bytes.
    pub salt: Salt,
}

/// The query of an application for an epoch.
#[derive(Clone, Copy, Debug)]
pub enum Ask<'a> {
    /// Every event.
    All,
    /// A uniform sample at this rate.
    Rate(Rate),
    /// The events with these sequence numbers, ascending and not empty.
    Events(&'a [u64]),
}

/// The data that a device sends to the cloud: its events and the scheme's signatures and digests.
#[derive(Clone, Debug)]
pub struct Sealed {
    /// The suite of the signatures.
    pub algorithm: Algorithm,
    /// The events, in order.
    pub events: Vec<Vec<u8>>,
    /// The signatures: one for the epoch, or one for each event.
    pub signatures: Vec<Vec<u8>>,
    /// The digests that only the device can compute.
    pub digests: Vec<Digest>,
    /// The number of bytes sent in addition to the events.
    pub overhead: usize,
}

impl Sealed {
    /// Returns events that only these signatures prove, without digests.
    #[must_use]
    pub fn new(signer: &dyn Signer, events: &[Vec<u8>], signatures: Vec<Vec<u8>>) -> Self {
        let overhead = signatures.iter().map(Vec::len).sum();
        let (algorithm, events) = (signer.algorithm(), events.to_vec());
        Self { algorithm, events, signatures, digests: Vec::new(), overhead }
    }
}

/// An event that an application received.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The event's position in the epoch, if the scheme proves it.
    pub seq: Option<u64>,
    /// The event.
    pub event: Vec<u8>,
}

/// The error if the scheme cannot serve the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsupported;

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the scheme cannot serve this query")
    }
}

impl std::error::Error for Unsupported {}

named_errors! {
    /// Why an application rejects the served bytes.
    OpenError {
        /// The bytes are not in the scheme's encoding.
        Malformed => "the bytes are not in the scheme's encoding",
        /// The signature does not prove the served events.
        NotAuthentic => "the signature does not prove the served events",
        /// The data is authentic, but does not answer the query.
        NotAsAsked => "the data is authentic, but does not answer the query",
        /// The scheme cannot prove the answer to the query.
        Unsupported => "the scheme cannot prove the answer to this query",
    }
}

/// A way to sign an epoch's events.
pub trait Scheme {
    /// Returns the scheme's name in tables.
    fn name(&self) -> &'static str;

    /// Seals an epoch on the device.
    ///
    /// # Errors
    /// The errors of the signer.
    fn seal(
        &self,
        context: &Context,
        signer: &dyn Signer,
        events: &[Vec<u8>],
    ) -> Result<Sealed, SignError>;

    /// Returns the bytes that the cloud serves for the query: as few as the scheme allows. Sequence
    /// numbers in the query must be below the number of events.
    ///
    /// # Errors
    /// [`Unsupported`].
    fn serve(
        &self,
        context: &Context,
        sealed: &Sealed,
        ask: &Ask<'_>,
    ) -> Result<Vec<u8>, Unsupported>;

    /// Verifies the served bytes in the application. Returns the rows that are proven and that the
    /// query selects.
    ///
    /// # Errors
    /// [`OpenError`].
    fn open(
        &self,
        context: &Context,
        key: &PublicKey,
        served: &[u8],
        ask: &Ask<'_>,
    ) -> Result<Vec<Row>, OpenError>;

    /// Returns the number of bytes that the device must store after `events` events of `size`
    /// bytes, in addition to its keys.
    fn device_state(&self, events: u64, size: usize) -> u64;
}

impl Context {
    /// Returns the message to sign for `digest`. It contains a tag that no product accepts.
    pub(crate) fn message(&self, scheme: &str, digest: &[u8]) -> Vec<u8> {
        let mut message = b"moteseal/research/".to_vec();
        message.extend(scheme.as_bytes());
        message.push(0);
        message.extend(self.device.0);
        message.extend(self.epoch.0.to_be_bytes());
        message.extend(digest);
        message
    }
}

/// Selects the rows of a query from all events of the epoch, as an application that has received
/// all of them does.
pub(crate) fn pick(events: Vec<&[u8]>, ask: &Ask<'_>) -> Result<Vec<Row>, OpenError> {
    let row = |seq: u64, event: &[u8]| Row { seq: Some(seq), event: event.to_vec() };
    let wanted: Box<dyn Fn(u64) -> bool> = match ask {
        Ask::All => Box::new(|_| true),
        Ask::Rate(rate) => {
            let mask = rate.levels(crate::content_levels::LEVELS).ok_or(OpenError::Unsupported)?;
            Box::new(move |seq| mask >> crate::content_levels::level(&seq.to_be_bytes()) & 1 == 1)
        }
        Ask::Events(chosen) => {
            if chosen.last().is_none_or(|&last| last >= events.len() as u64) {
                return Err(OpenError::NotAsAsked);
            }
            Box::new(|seq| chosen.binary_search(&seq).is_ok())
        }
    };
    Ok((0..)
        .zip(events)
        .filter(|&(seq, _)| wanted(seq))
        .map(|(seq, event)| row(seq, event))
        .collect())
}
