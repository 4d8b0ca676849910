//! An owner of confidential readings: its signing key, and the secrets of its devices' streams
//! (spec/grants.md, section 2).

use std::fmt;

use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader};
use moteseal_core::confidential::{ColumnId, Commitment, KeyAccessError, KeyRequest, StreamSecret};
use moteseal_core::identity::{MAX_DER, decode_secret_der, encode_secret_der};
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_core::roster::{MAX_NAME, owner_id};
use moteseal_core::signature::{KeyError, PublicKey, SecretKey};
use zeroize::Zeroizing;

use crate::encoding::{checksum, encode, is_plain};
use crate::envelope::MAX_CONTENT;
use crate::stream::Stream;

/// The version of the files that this crate writes and reads.
const VERSION: u64 = 1;

moteseal_core::named_errors! {
    /// Why the file of an owner's secrets was rejected.
    OwnerFileError {
        /// The file was written by a newer version of this software.
        UnsupportedVersion => "the owner's file was written by a newer version of this software",
        /// The content does not have its check value.
        Damaged => "the owner's file is damaged; restore it from a backup",
        /// A stream occurs twice.
        DuplicateStream {
            /// The device.
            device: DeviceId
        } => "the owner's file has two secrets of one generation for device {device}",
        /// The file is longer than a backup can be.
        FileTooLong => "the owner's file is too long",
        /// The bytes are not those of an owner's file.
        Decode(error: DecodeError) => from,
        /// The signing key was rejected.
        Key(error: KeyError) => from,
    }
}

moteseal_core::named_errors! {
    /// Why the secrets of an owner were not changed.
    OwnerError {
        /// The name of the owner or of a column is invalid.
        InvalidName => "a name must be 1 to 64 bytes of UTF-8 without control characters",
        /// The owner has no secret of the device.
        NotOwned {
            /// The device.
            device: DeviceId
        } => "the owner has no stream secret of device {device}",
        /// A new secret must have a column, and at most 256.
        ColumnCount => "a stream must have 1 to 256 encrypted columns, in at most 256 batches",
        /// The device has a secret whose base epoch is not before that of the new one.
        BaseNotLater {
            /// The device.
            device: DeviceId
        } => "device {device} has a secret already; write its copy again with `moteseal owner \
              copy`, add columns with `moteseal owner add-columns`, or make a secret that begins later with \
              `moteseal owner add --from TIME`",
        /// The device's own copy of its secret cannot be written again.
        NoCopy {
            /// The device.
            device: DeviceId
        } => "keys of device {device} were forgotten, or columns were added to it; make it a new \
              secret: moteseal owner add --from TIME",
        /// The device derives the keys of a column from another start than the owner has recorded.
        ColumnMoved {
            /// The device.
            device: DeviceId
        } => "device {device} has begun this column from another secret than before, for example because it lost its keys and started from its stream secret again",
        /// The epoch is outside the range of a secret.
        Access(error: KeyAccessError) => from,
        /// The file would be longer than allowed.
        FileTooLong => "the owner's file would be too long",
        /// The signing key cannot be encoded.
        Key(error: KeyError) => from,
    }
}

impl From<BufferTooSmall> for OwnerError {
    fn from(_: BufferTooSmall) -> Self {
        Self::FileTooLong
    }
}

/// An owner: who signs grants, and keeps the secrets from which they are made. `Debug` prints no
/// secret.
pub struct Owner {
    group_name: String,
    name: String,
    key: SecretKey,
    /// Sorted by device and generation.
    streams: Vec<Stream>,
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner")
            .field("group", &self.group_name)
            .field("name", &self.name)
            .field("streams", &self.streams)
            .finish_non_exhaustive()
    }
}

impl Owner {
    /// Creates an owner of devices of the group called `group_name`. The roster must certify the
    /// public key of `key` for this name.
    ///
    /// # Errors
    /// `InvalidName`.
    pub fn new(group_name: &str, name: &str, key: SecretKey) -> Result<Self, OwnerError> {
        if !is_name(group_name) || !is_name(name) {
            return Err(OwnerError::InvalidName);
        }
        let (group_name, name) = (group_name.to_owned(), name.to_owned());
        Ok(Self { group_name, name, key, streams: Vec::new() })
    }

    /// Returns the name of the group.
    #[must_use]
    pub fn group_name(&self) -> &str {
        &self.group_name
    }

    /// Returns the name of the owner.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the id for which the roster certifies the owner's key.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        owner_id(&self.group_name, &self.name)
    }

    /// Returns the public key that verifies the owner's grants.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        self.key.public()
    }

    pub(crate) const fn key(&self) -> &SecretKey {
        &self.key
    }

    /// Returns the streams, sorted by device and generation.
    #[must_use]
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// Returns the streams of a device, by ascending generation.
    #[must_use]
    pub fn streams_of(&self, device: DeviceId) -> &[Stream] {
        let first = self.streams.partition_point(|stream| stream.device() < device);
        let end = self.streams.partition_point(|stream| stream.device() <= device);
        &self.streams[first..end]
    }

    /// Adds a secret for a device, with the device's encrypted columns. If the device has a secret
    /// already, the new one is its next generation. `secret` must be new and uniformly random.
    ///
    /// # Errors
    /// `BaseNotLater`, `ColumnCount`, `InvalidName`. The owner is then unchanged.
    pub fn add(
        &mut self,
        device: DeviceId,
        secret: StreamSecret,
        columns: &[(ColumnId, &str)],
    ) -> Result<&Stream, OwnerError> {
        let last = self.streams_of(device).last();
        if last.is_some_and(|last| last.base() >= secret.base()) {
            return Err(OwnerError::BaseNotLater { device });
        }
        let generation = last.map_or(0, |last| last.generation() + 1);
        let mut stream = Stream::new(device, generation, secret);
        check_names(columns)?;
        if stream.add_columns(columns) != Some(true) {
            return Err(OwnerError::ColumnCount);
        }
        let place = self.streams.partition_point(|stream| stream.device() <= device);
        self.streams.insert(place, stream);
        Ok(&self.streams[place])
    }

    /// Adds columns to the newest stream of a device. Columns that it has already are ignored.
    ///
    /// # Errors
    /// `NotOwned`, `ColumnCount`, `InvalidName`. The owner is then unchanged.
    pub fn add_columns(
        &mut self,
        device: DeviceId,
        columns: &[(ColumnId, &str)],
    ) -> Result<(), OwnerError> {
        check_names(columns)?;
        let stream = self.streams.iter_mut().rev().find(|stream| stream.device() == device);
        let added = stream.ok_or(OwnerError::NotOwned { device })?.add_columns(columns);
        added.map(|_| ()).ok_or(OwnerError::ColumnCount)
    }

    /// Returns the public key that verifies the owner's grants from now on: that of `key`, which replaces
    /// the signing key. As soon as the roster lists it, grants that were made before are no longer accepted
    /// (`OwnerKeyChanged`).
    pub fn rotate_key(&mut self, key: SecretKey) -> PublicKey {
        self.key = key;
        self.public_key()
    }

    /// Adds an encrypted column of an authentic seal to the stream from which the device has derived the
    /// column's key, as the commitment in the seal shows. Returns whether anything was changed.
    ///
    /// # Errors
    /// `NotOwned`, `ColumnCount`, `InvalidName`. `ColumnMoved` if the owner has the column in another batch:
    /// [`add_columns`](Self::add_columns) has added it to another one than the device, or the device has
    /// begun it again from another secret. Seals of both batches cannot be granted together. `WrongKey` if
    /// the device has derived the key from none of the owner's secrets, or from one that the owner has
    /// forgotten. `EpochOutOfKeyRange` if no secret covers the epoch. The owner is then unchanged.
    pub fn add_sealed_column(
        &mut self,
        seal: &KeyRequest,
        commitment: &Commitment,
        name: &str,
    ) -> Result<bool, OwnerError> {
        self.add_or_move(seal, commitment, name, false)
    }

    /// Like [`add_sealed_column`](Self::add_sealed_column), but moves a column that the owner has in another
    /// batch. Seals of the batch before can then no longer be granted.
    ///
    /// # Errors
    /// As of [`add_sealed_column`](Self::add_sealed_column), without `ColumnMoved`.
    pub fn move_sealed_column(
        &mut self,
        seal: &KeyRequest,
        commitment: &Commitment,
        name: &str,
    ) -> Result<bool, OwnerError> {
        self.add_or_move(seal, commitment, name, true)
    }

    fn add_or_move(
        &mut self,
        seal: &KeyRequest,
        commitment: &Commitment,
        name: &str,
        may_move: bool,
    ) -> Result<bool, OwnerError> {
        check_names(&[(seal.column, name)])?;
        let device = seal.device;
        if self.streams_of(device).is_empty() {
            return Err(OwnerError::NotOwned { device });
        }
        let mut error = KeyAccessError::EpochOutOfKeyRange;
        let streams = self.streams.iter_mut().rev().filter(|stream| stream.device() == device);
        for stream in streams.filter(|stream| stream.covers(seal.epoch)) {
            match stream.add_sealed(seal, commitment, name, may_move) {
                Err(OwnerError::Access(other)) => error = other,
                result => return result,
            }
        }
        Err(error.into())
    }

    /// Returns the device's own copy of the secret that it uses in an epoch: of those that begin at the
    /// epoch or before, the newest one; of the first one if there is none.
    ///
    /// # Errors
    /// `NotOwned`; `NoCopy` if keys of the secret were forgotten, or if columns were added to it later. The
    /// device would derive the keys of these columns from the wrong secret.
    pub fn copy_of(
        &self,
        device: DeviceId,
        epoch: EpochNumber,
    ) -> Result<&StreamSecret, OwnerError> {
        let streams = self.streams_of(device);
        let begun = streams.iter().rfind(|stream| stream.base() <= epoch);
        let stream = begun.or(streams.first()).ok_or(OwnerError::NotOwned { device })?;
        stream.copy().ok_or(OwnerError::NoCopy { device })
    }

    /// Erases the keys of the epochs before `epoch`, of the given devices or of all. Grants and backups
    /// that were made before still open them. Returns the number of streams from which keys were
    /// erased.
    ///
    /// # Errors
    /// `NotOwned`; `EpochOutOfKeyRange` if the epoch is after all epochs of a secret. Nothing is then
    /// erased.
    pub fn forget(
        &mut self,
        epoch: EpochNumber,
        devices: Option<&[DeviceId]>,
    ) -> Result<usize, OwnerError> {
        for &device in devices.unwrap_or_default() {
            if self.streams_of(device).is_empty() {
                return Err(OwnerError::NotOwned { device });
            }
        }
        let is_chosen =
            |stream: &&mut Stream| devices.is_none_or(|devices| devices.contains(&stream.device()));
        let mut chosen: Vec<&mut Stream> = self.streams.iter_mut().filter(is_chosen).collect();
        if chosen.iter().any(|stream| epoch > stream.last()) {
            return Err(KeyAccessError::EpochOutOfKeyRange.into());
        }
        let mut changed = 0;
        for stream in &mut chosen {
            changed += usize::from(stream.forget(epoch)?);
        }
        Ok(changed)
    }

    /// Returns the bytes of the owner's file: `[1, content, check value]`. They are secret.
    ///
    /// # Errors
    /// `FileTooLong`, and the errors of the encoding of the signing key.
    pub fn encode(&self) -> Result<Zeroizing<Vec<u8>>, OwnerError> {
        let mut der = Zeroizing::new([0; MAX_DER]);
        let der = encode_secret_der(&self.key, &mut *der)?;
        let names = self.group_name.len() + self.name.len();
        let streams = self.streams.iter().map(Stream::bound).sum::<usize>();
        let content = encode(64 + names + der.len() + streams, |out| {
            out.array(4)?.text(&self.group_name)?.text(&self.name)?.bytes(der)?;
            out.array(self.streams.len() as u64)?;
            self.streams.iter().try_for_each(|stream| stream.write(out))
        })?;
        let file = encode(content.len() + 64, |out| {
            out.array(3)?.uint(VERSION)?.bytes(&content)?.bytes(&checksum(&content))?;
            Ok(())
        })?;
        if file.len() > MAX_CONTENT { Err(OwnerError::FileTooLong) } else { Ok(file) }
    }

    /// Reads the bytes of an owner's file.
    ///
    /// # Errors
    /// [`OwnerFileError`]: the first check of spec/grants.md, section 2.1, that fails.
    pub fn decode(bytes: &[u8]) -> Result<Self, OwnerFileError> {
        if bytes.len() > MAX_CONTENT {
            return Err(OwnerFileError::FileTooLong);
        }
        let mut reader = Reader::new(bytes)?;
        let fields = reader.array_any()?;
        if reader.u64()? != VERSION {
            return Err(OwnerFileError::UnsupportedVersion);
        }
        if fields != 3 {
            return Err(DecodeError::UnexpectedType.into());
        }
        let (content, check) = (reader.bytes()?, reader.fixed::<32>()?);
        if checksum(content) != check {
            return Err(OwnerFileError::Damaged);
        }
        let mut reader = Reader::new(content)?;
        reader.array(4)?;
        let (group_name, name) = (reader.text()?.to_owned(), reader.text()?.to_owned());
        let der = reader.bytes()?;
        let mut streams = Vec::<Stream>::new();
        for _ in 0..reader.array_any()? {
            let stream = Stream::read(&mut reader)?;
            let device = stream.device();
            let last = streams.last().map(|last| (last.device(), last.generation()));
            if last == Some((device, stream.generation())) {
                return Err(OwnerFileError::DuplicateStream { device });
            }
            if last > Some((device, stream.generation())) {
                return Err(DecodeError::FieldOutOfRange.into());
            }
            streams.push(stream);
        }
        if !is_name(&group_name) || !is_name(&name) {
            return Err(DecodeError::FieldOutOfRange.into());
        }
        Ok(Self { group_name, name, key: decode_secret_der(der)?, streams })
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && is_plain(name, MAX_NAME)
}

fn check_names(columns: &[(ColumnId, &str)]) -> Result<(), OwnerError> {
    let are_valid = columns.iter().all(|(_, name)| is_name(name));
    if are_valid { Ok(()) } else { Err(OwnerError::InvalidName) }
}
