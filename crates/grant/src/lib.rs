//! Grants of confidential readings: who may read which columns of which devices, and when
//! (spec/grants.md).
//!
//! The *owner* of devices keeps the secrets of their streams ([`Owner`]). It makes a *grant* for
//! recipients: the nodes of the key trees that open exactly the columns and epochs that it names
//! ([`Owner::grant`]). The grant is signed by the owner, whose key the roster certifies, and encrypted
//! in the age format. A reader opens it ([`OpenGrant`]) and derives the keys of seals ([`Keys`]).
//!
//! An owner can forget the keys of the past ([`Owner::forget`]) and make backups
//! ([`Owner::backup`], [`Owner::backup_with_shares`]).
//!
//! This crate opens no file and reads no clock. Random numbers come from the operating system.
//! Secrets are erased when they are dropped, and no `Debug` implementation prints one.
//!
//! ```
//! use moteseal_core::confidential::{ColumnId, Nonce, StreamSecret, Suite};
//! use moteseal_core::signature::{Algorithm, SecretKey};
//! use moteseal_core::{DeviceId, EpochNumber, SealIndex};
//! use moteseal_grant::{GrantRequest, Identity, KeyRequest, OpenGrant, Owner, Recipients, Unlock};
//! use moteseal_verify::Roster;
//! use moteseal_verify::issue::{FirstRoster, NextRoster};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In production, take seeds and secrets from a source of randomness.
//! let operator = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32])?;
//! let thermometer = SecretKey::from_seed(Algorithm::Ed25519, &[2; 32])?;
//! let alice = SecretKey::from_seed(Algorithm::Ed25519, &[3; 32])?;
//!
//! // The operator lists the owner in the roster.
//! let first = FirstRoster {
//!     group: "home",
//!     epoch_ms: 3_600_000,
//!     levels: 16,
//!     budget: None,
//!     devices: &[("thermometer", thermometer.public())],
//! };
//! let mut next = NextRoster::after(&first.issue(&operator)?, &operator, &operator.public())?;
//! next.set_owner("alice", &alice.public())?;
//! let roster = Roster::open(&next.issue()?, &operator.public())?;
//!
//! // The owner makes the device's secret and a grant for ten epochs.
//! let device = DeviceId::of("home", "thermometer");
//! let column = ColumnId::of(b"the encoded field");
//! let secret = StreamSecret::new([4; 32], EpochNumber(1000));
//! let mut owner = Owner::new("home", "alice", alice)?;
//! owner.add(device, secret.clone(), &[(column, "temperature")])?;
//! let bob = Identity::generate();
//! let request = GrantRequest {
//!     devices: &[device],
//!     columns: Some(&["temperature"]),
//!     epochs: EpochNumber(1010)..=EpochNumber(1019),
//!     recipients: &Recipients::Keys(vec![bob.recipient().clone()]),
//!     not_after_ms: None,
//!     purpose: "heating study",
//! };
//! let file = owner.grant(&request, &roster, false)?;
//!
//! // The reader opens the grant and derives the key of a seal.
//! let grant = OpenGrant::open(&file, &Unlock::Identities(vec![bob]), &roster, 0)?;
//! let request = KeyRequest {
//!     device,
//!     column,
//!     epoch: EpochNumber(1015),
//!     index: SealIndex(3),
//!     suite: Suite::ChaCha20,
//!     nonce: Nonce([5; 12]),
//! };
//! // The commitment is in the statement of the seal.
//! let epoch_key = secret.column(column).epoch_key(request.epoch)?;
//! let key = epoch_key.seal_key(device, request.index, request.suite, &request.nonce);
//! let commitment = key.commitment();
//! assert!(grant.keys().seal_key(&request, &commitment).is_ok());
//!
//! let later = KeyRequest { epoch: EpochNumber(1020), ..request };
//! let error = grant.keys().seal_key(&later, &commitment).unwrap_err();
//! assert_eq!(error.name(), "NotCovered");
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod backup;
mod device_file;
mod encoding;
mod envelope;
mod grant;
mod open;
mod owner;
mod passphrase;
mod share;
mod stream;

pub use backup::BackupError;
pub use device_file::{decode_stream_secret, encode_stream_secret};
pub use envelope::{
    EnvelopeError, Identity, MAX_CONTENT, MAX_FILE, MAX_IDENTITY_FILE, MAX_RECIPIENTS,
    MAX_WORK_FACTOR, Passphrase, Recipient, Recipients, Unlock, WORK_FACTOR, encrypt,
    needs_passphrase,
};
pub use grant::{Audience, GrantRequest, GrantedTime, MAX_GENERATIONS, MAX_PURPOSE, MakeError};
pub use moteseal_core::confidential::KeyRequest;
pub use open::{Contents, GrantedColumn, Keys, OpenError, OpenGrant, Reader};
pub use owner::{Owner, OwnerError, OwnerFileError};
pub use passphrase::PassphraseTag;
pub use share::{SHARES, Share, ShareError, join, split};
pub use stream::{Column, MAX_COLUMNS, Stream};
