//! The error codes that all functions of the library return. spec/errors.md lists their names.

use moteseal_core::cbor::{BufferTooSmall, DecodeError};
use moteseal_core::identity::CertificateError;
use moteseal_core::roster::RosterError;
use moteseal_core::schema::{RecordError, SchemaError};
use moteseal_core::signature::{KeyError, SignError, SignatureError};

/// The result of a call. `MOTESEAL_ERROR_OK` is 0; every other value is an error. A call that
/// returns an error has changed no state, unless the function's comment states otherwise.
///
/// `moteseal_error_name` returns an error's name, which is the same in all of Moteseal
/// (spec/errors.md). Existing numbers never change between versions, but new ones may be added:
/// give every `switch` a default branch.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum moteseal_error {
    /// Success.
    Ok = 0,

    // Wrong use of a function.
    /// A required pointer is null.
    NullPointer = 1,
    /// A pointer is not aligned for its type.
    Misaligned = 2,
    /// A length is larger than any object in memory can be.
    LengthOutOfRange = 3,
    /// The state was not begun, has already ended, or was wiped; or the pointer points to a state
    /// of another type.
    NotBegun = 4,
    /// A record must be durable before this call, but it was not confirmed: call the function whose
    /// name ends in `_persisted` first.
    NotPersisted = 5,
    /// The chain has no open seal: call moteseal_chain_open first.
    NotOpen = 6,
    /// The chain has an open seal: close and commit it first.
    AlreadyOpen = 7,
    /// The star, tree or seal does not belong to the chain's open seal.
    NotOfThisSeal = 8,
    /// An output buffer, a scratch buffer or the memory for a state is too small; call again with a
    /// larger one.
    BufferTooSmall = 9,
    /// A stored record is damaged: erased, only partly written, or altered.
    Damaged = 10,
    /// An error for which this library has no number; please report it.
    Unexpected = 11,

    // Decoding.
    /// The input ends before its last item is complete.
    Truncated = 20,
    /// Further bytes follow the item.
    TrailingBytes = 21,
    /// Not deterministic CBOR.
    NonCanonical = 22,
    /// An item has the wrong type, number of elements or length.
    UnexpectedType = 23,
    /// A version of the formats that this library does not support.
    UnsupportedVersion = 24,
    /// An item or frame of an unknown kind.
    UnknownItem = 25,
    /// A value outside its range.
    FieldOutOfRange = 26,
    /// A signed object of the wrong kind.
    WrongType = 27,
    /// A critical header that this library does not know.
    UnknownCritical = 28,
    /// A header that is not allowed here.
    UnexpectedHeader = 29,
    /// A signature algorithm that is not known or not built in.
    UnknownAlgorithm = 30,

    // Keys and signatures.
    /// A key whose length does not fit its algorithm.
    KeyLength = 40,
    /// The public key is not a valid point of its curve.
    InvalidPublicKey = 41,
    /// A secret scalar out of range.
    InvalidSecretKey = 42,
    /// The bytes are not a PKCS#8 or SubjectPublicKeyInfo structure.
    MalformedDer = 43,
    /// The text is not exactly one PEM block.
    MalformedPem = 44,
    /// A PEM block with the wrong label.
    WrongPemLabel = 45,
    /// An ML-DSA key without its seed.
    SeedMissing = 46,
    /// A key file whose public key does not belong to its private key.
    KeyPairMismatch = 47,
    /// The signature's algorithm is not the key's.
    AlgorithmMismatch = 48,
    /// A signature whose length does not fit its algorithm.
    MalformedSignature = 49,
    /// An ECDSA signature with s in the upper half: see moteseal_esp256_normalize.
    HighS = 50,
    /// The signature is not valid for this key and these bytes.
    NotAuthentic = 51,
    /// The signer declined to sign.
    Refused = 52,

    // Rosters, devices and schemas.
    /// The roster has no such device.
    UnknownDevice = 60,
    /// A certificate that this operator did not sign.
    CertificateNotAuthentic = 61,
    /// A certificate of another group or device.
    CertificateMismatch = 62,
    /// A device without a certificate.
    CertificateMissing = 63,
    /// Certificates that are not sorted by their first index.
    UnsortedCertificates = 64,
    /// A name that is empty, longer than 64 bytes, or has control characters.
    InvalidName = 65,
    /// The group id does not belong to the group's name.
    GroupMismatch = 66,
    /// A device id does not belong to the device's name.
    DeviceMismatch = 67,
    /// Two devices have the same id.
    DuplicateDevice = 68,
    /// Devices that are not sorted by id.
    UnsortedDevices = 69,
    /// A roster's list of past versions does not have exactly one digest per version.
    HistoryLength = 70,
    /// The number of levels is not 1 to 32, or exceeds the capacity of the star's memory.
    LevelsOutOfRange = 71,
    /// Epochs of 0 ms, or longer than 2^53 ms.
    EpochLengthOutOfRange = 72,
    /// The last epoch is before the first.
    EpochRangeEmpty = 73,
    /// A budget of 0.
    BudgetOutOfRange = 74,
    /// A schema of more than 64 fields.
    TooManyFields = 75,
    /// A field's name that is empty, too long, or has control characters.
    InvalidFieldName = 76,
    /// Two fields have the same name.
    DuplicateField = 77,
    /// A unit that is not in SenML's list.
    UnknownUnit = 78,
    /// An unknown field type.
    UnknownFieldType = 79,
    /// A divisor or offset out of range.
    ScaleOutOfRange = 80,
    /// A field that is not NAME:UNIT:TYPE[/DIVISOR][+OFFSET][?][~][!][@GROUP][#ID].
    MalformedField = 81,
    /// An encoded schema of version 2 that is longer than MOTESEAL_MAX_SCHEMA.
    SchemaTooLong = 82,
    /// A field has a key that this library does not know, and that a reader must understand.
    UnsupportedField = 83,
    /// A field's id that is not 1 to 65535.
    InvalidFieldId = 84,
    /// Two fields have the same id.
    DuplicateFieldId = 85,
    /// An enum without valid labels, or labels of another type.
    InvalidLabels = 86,
    /// A text whose longest length is not 1 to 254, or such a length of another type.
    InvalidTextLength = 87,
    /// A record does not have the length that the schema requires.
    RecordLength = 88,
    /// A cell of a record is not a value of its column.
    RecordValue = 89,

    // Seals.
    /// The epoch is earlier than the last one that was opened.
    EpochGoesBack = 90,
    /// An earlier seal already closed this epoch.
    EpochClosed = 91,
    /// The roster does not allow the epoch, or the epoch's start in milliseconds does not fit in 64
    /// bits.
    EpochOutOfRange = 92,
    /// All 2^32 - 1 indices are used.
    IndexExhausted = 93,
    /// An event whose length is not the schema's record size, or exceeds 65,535 bytes.
    WrongLength = 94,
    /// The seal is full: close it and open the next.
    Full = 95,
    /// The tree is full: close the seal and open the next.
    TreeFull = 97,
    /// The number or total length of the events is not what was sealed.
    EventsLength = 96,

    // Private sums.
    /// The guard has already permitted this epoch of the query, or a later one.
    EpochAnswered = 110,
    /// The epoch starts before the guard's floor.
    TooOld = 111,
    /// An earlier call stated another length for this query's epochs.
    DurationMismatch = 112,
    /// The permit and the key are for different queries.
    WrongQuery = 113,
    /// This slot, or a later one, was already used under the permit.
    SlotUsed = 114,
    /// The value is 2^96 - 1 or more.
    ValueTooLarge = 115,
    /// The keys are for another group.
    WrongGroup = 116,
    /// The keys are for another version of the roster.
    WrongRoster = 117,
    /// The key file requires masks and a policy, which this library does not support.
    PolicyMissing = 118,

    // Broadcasts.
    /// The object belongs to another network.
    WrongNetwork = 130,
    /// The object belongs to another sender.
    WrongSender = 131,
    /// The object is signed with another key of the sender.
    WrongKey = 132,
    /// Another base station issued the object.
    UnknownBaseStation = 133,
    /// The certificate is not valid yet.
    NotYetValid = 134,
    /// The certificate has expired.
    Expired = 135,
    /// The base station has revoked the certificate.
    Revoked = 136,
    /// The chain's number is not higher than the highest one accepted so far.
    ChainGoesBack = 137,
    /// The chain's blocks have more messages than the receiver's memory can hold.
    BlockTooLarge = 138,
    /// The frame does not contain a chain of exactly one message.
    NotSingle = 139,
    /// The leaf belongs to another chain.
    WrongChain = 140,
    /// The bytes are not what the sender signed.
    ForgedLeaf = 141,
    /// The leaf belongs to an earlier or a later block.
    NotThisBlock = 142,
    /// The block has no such leaf.
    IndexOutOfRange = 143,
    /// The leaf is longer than the chain's head allows.
    LeafTooLong = 144,
    /// The leaf is too short to contain its trailer.
    LeafTooShort = 145,
    /// All tags of the block match, but the block's digest does not: the receiver discards the
    /// block and waits for its leaves again.
    BlockMismatch = 146,
    /// The roster's periods are out of order, or there is none.
    UnsortedPeriods = 147,
    /// A period does not start where the epoch before its first one ends.
    EpochStartMismatch = 148,
    /// A device is listed since a later version than the roster's.
    SinceOutOfRange = 149,
    /// A certificate's term ends before it begins.
    TermRangeEmpty = 150,
    /// The draft of a first version has content that only later versions can have.
    NotAFirstVersion = 151,
    /// The roster has ended the key of the seal.
    KeyEnded = 152,
    /// The seal names a version of the roster that is too early for its epoch.
    RosterOutdated = 153,
    /// The revocation does not revoke everything that is already revoked.
    Superseded = 154,
    /// A schema with encrypted columns whose suite this library does not know.
    UnknownSuite = 155,
    /// A schema of more than 16 encrypted columns.
    TooManyEncryptedFields = 156,
    /// The device has encrypted columns: a seal and an urgent event need a `moteseal_cipher`.
    NoStreamSecret = 157,
    /// A field's group that is not 0 to 7.
    InvalidGroup = 158,
    /// A schema with column groups and no column in group 0.
    NoFirstGroup = 159,
    /// A column in a group other than 0 that is not encrypted.
    PlainGroup = 160,
    /// The device has column groups, which only a `moteseal_grouped_star` seals, or it has none, and
    /// needs a `moteseal_star` or a `moteseal_tree`.
    ColumnGroups = 161,

    // Encrypted columns.
    /// The epoch is before the base epoch of the stream secret, or more than 2^32 - 1 epochs after
    /// it.
    EpochOutOfKeyRange = 162,
    /// The keys of the epoch have been erased, because a later epoch has begun.
    KeyErased = 163,
    /// A stored key is damaged.
    MalformedKey = 164,
    /// The schema has no encrypted columns.
    KeyCount = 165,
    /// The keys are for other columns than those of the schema.
    WrongColumn = 166,
    /// An event with this sequence number has been encrypted already, or the seal has had a cipher.
    SequenceReused = 167,
    /// The seal has too many events for AES-128: close it and open the next.
    KeyStreamEnd = 168,
    /// A column needs AES-128, which is not built in (feature `aes128`).
    UnsupportedSuite = 169,
    /// An event of the seal was not encrypted by the seal's cipher.
    NotEncrypted = 170,
}

use moteseal_error as Error;

impl Error {
    /// Every code, with its name.
    const ALL: &'static [(Self, &'static core::ffi::CStr)] = &[
        (Self::Ok, c"Ok"),
        (Self::NullPointer, c"NullPointer"),
        (Self::Misaligned, c"Misaligned"),
        (Self::LengthOutOfRange, c"LengthOutOfRange"),
        (Self::NotBegun, c"NotBegun"),
        (Self::NotPersisted, c"NotPersisted"),
        (Self::NotOpen, c"NotOpen"),
        (Self::AlreadyOpen, c"AlreadyOpen"),
        (Self::NotOfThisSeal, c"NotOfThisSeal"),
        (Self::BufferTooSmall, c"BufferTooSmall"),
        (Self::Damaged, c"Damaged"),
        (Self::Unexpected, c"Unexpected"),
        (Self::Truncated, c"Truncated"),
        (Self::TrailingBytes, c"TrailingBytes"),
        (Self::NonCanonical, c"NonCanonical"),
        (Self::UnexpectedType, c"UnexpectedType"),
        (Self::UnsupportedVersion, c"UnsupportedVersion"),
        (Self::UnknownItem, c"UnknownItem"),
        (Self::FieldOutOfRange, c"FieldOutOfRange"),
        (Self::WrongType, c"WrongType"),
        (Self::UnknownCritical, c"UnknownCritical"),
        (Self::UnexpectedHeader, c"UnexpectedHeader"),
        (Self::UnknownAlgorithm, c"UnknownAlgorithm"),
        (Self::KeyLength, c"KeyLength"),
        (Self::InvalidPublicKey, c"InvalidPublicKey"),
        (Self::InvalidSecretKey, c"InvalidSecretKey"),
        (Self::MalformedDer, c"MalformedDer"),
        (Self::MalformedPem, c"MalformedPem"),
        (Self::WrongPemLabel, c"WrongPemLabel"),
        (Self::SeedMissing, c"SeedMissing"),
        (Self::KeyPairMismatch, c"KeyPairMismatch"),
        (Self::AlgorithmMismatch, c"AlgorithmMismatch"),
        (Self::MalformedSignature, c"MalformedSignature"),
        (Self::HighS, c"HighS"),
        (Self::NotAuthentic, c"NotAuthentic"),
        (Self::Refused, c"Refused"),
        (Self::UnknownDevice, c"UnknownDevice"),
        (Self::CertificateNotAuthentic, c"CertificateNotAuthentic"),
        (Self::CertificateMismatch, c"CertificateMismatch"),
        (Self::CertificateMissing, c"CertificateMissing"),
        (Self::UnsortedCertificates, c"UnsortedCertificates"),
        (Self::InvalidName, c"InvalidName"),
        (Self::GroupMismatch, c"GroupMismatch"),
        (Self::DeviceMismatch, c"DeviceMismatch"),
        (Self::DuplicateDevice, c"DuplicateDevice"),
        (Self::UnsortedDevices, c"UnsortedDevices"),
        (Self::HistoryLength, c"HistoryLength"),
        (Self::LevelsOutOfRange, c"LevelsOutOfRange"),
        (Self::EpochLengthOutOfRange, c"EpochLengthOutOfRange"),
        (Self::EpochRangeEmpty, c"EpochRangeEmpty"),
        (Self::BudgetOutOfRange, c"BudgetOutOfRange"),
        (Self::TooManyFields, c"TooManyFields"),
        (Self::InvalidFieldName, c"InvalidFieldName"),
        (Self::DuplicateField, c"DuplicateField"),
        (Self::UnknownUnit, c"UnknownUnit"),
        (Self::UnknownFieldType, c"UnknownFieldType"),
        (Self::ScaleOutOfRange, c"ScaleOutOfRange"),
        (Self::MalformedField, c"MalformedField"),
        (Self::SchemaTooLong, c"SchemaTooLong"),
        (Self::UnsupportedField, c"UnsupportedField"),
        (Self::InvalidFieldId, c"InvalidFieldId"),
        (Self::DuplicateFieldId, c"DuplicateFieldId"),
        (Self::InvalidLabels, c"InvalidLabels"),
        (Self::InvalidTextLength, c"InvalidTextLength"),
        (Self::RecordLength, c"RecordLength"),
        (Self::RecordValue, c"RecordValue"),
        (Self::EpochGoesBack, c"EpochGoesBack"),
        (Self::EpochClosed, c"EpochClosed"),
        (Self::EpochOutOfRange, c"EpochOutOfRange"),
        (Self::IndexExhausted, c"IndexExhausted"),
        (Self::WrongLength, c"WrongLength"),
        (Self::Full, c"Full"),
        (Self::TreeFull, c"TreeFull"),
        (Self::EventsLength, c"EventsLength"),
        (Self::EpochAnswered, c"EpochAnswered"),
        (Self::TooOld, c"TooOld"),
        (Self::DurationMismatch, c"DurationMismatch"),
        (Self::WrongQuery, c"WrongQuery"),
        (Self::SlotUsed, c"SlotUsed"),
        (Self::ValueTooLarge, c"ValueTooLarge"),
        (Self::WrongGroup, c"WrongGroup"),
        (Self::WrongRoster, c"WrongRoster"),
        (Self::PolicyMissing, c"PolicyMissing"),
        (Self::WrongNetwork, c"WrongNetwork"),
        (Self::WrongSender, c"WrongSender"),
        (Self::WrongKey, c"WrongKey"),
        (Self::UnknownBaseStation, c"UnknownBaseStation"),
        (Self::NotYetValid, c"NotYetValid"),
        (Self::Expired, c"Expired"),
        (Self::Revoked, c"Revoked"),
        (Self::ChainGoesBack, c"ChainGoesBack"),
        (Self::BlockTooLarge, c"BlockTooLarge"),
        (Self::NotSingle, c"NotSingle"),
        (Self::WrongChain, c"WrongChain"),
        (Self::ForgedLeaf, c"ForgedLeaf"),
        (Self::NotThisBlock, c"NotThisBlock"),
        (Self::IndexOutOfRange, c"IndexOutOfRange"),
        (Self::LeafTooLong, c"LeafTooLong"),
        (Self::LeafTooShort, c"LeafTooShort"),
        (Self::BlockMismatch, c"BlockMismatch"),
        (Self::UnsortedPeriods, c"UnsortedPeriods"),
        (Self::EpochStartMismatch, c"EpochStartMismatch"),
        (Self::SinceOutOfRange, c"SinceOutOfRange"),
        (Self::TermRangeEmpty, c"TermRangeEmpty"),
        (Self::NotAFirstVersion, c"NotAFirstVersion"),
        (Self::KeyEnded, c"KeyEnded"),
        (Self::RosterOutdated, c"RosterOutdated"),
        (Self::Superseded, c"Superseded"),
        (Self::UnknownSuite, c"UnknownSuite"),
        (Self::TooManyEncryptedFields, c"TooManyEncryptedFields"),
        (Self::NoStreamSecret, c"NoStreamSecret"),
        (Self::InvalidGroup, c"InvalidGroup"),
        (Self::NoFirstGroup, c"NoFirstGroup"),
        (Self::PlainGroup, c"PlainGroup"),
        (Self::ColumnGroups, c"ColumnGroups"),
        (Self::EpochOutOfKeyRange, c"EpochOutOfKeyRange"),
        (Self::KeyErased, c"KeyErased"),
        (Self::MalformedKey, c"MalformedKey"),
        (Self::KeyCount, c"KeyCount"),
        (Self::WrongColumn, c"WrongColumn"),
        (Self::SequenceReused, c"SequenceReused"),
        (Self::KeyStreamEnd, c"KeyStreamEnd"),
        (Self::UnsupportedSuite, c"UnsupportedSuite"),
        (Self::NotEncrypted, c"NotEncrypted"),
    ];

    /// Returns the code of the error with this name.
    pub(crate) fn named(name: &str) -> Self {
        let code = Self::ALL.iter().find(|(_, known)| known.to_bytes() == name.as_bytes());
        code.map_or(Self::Unexpected, |(code, _)| *code)
    }
}

/// Implements the conversion of the protocol crates' errors to error codes, by the errors' names.
macro_rules! by_name {
    ($($error:ty),+ $(,)?) => {
        $(impl From<$error> for $crate::error::moteseal_error {
            fn from(error: $error) -> Self {
                Self::named(error.name())
            }
        })+
    };
}
pub(crate) use by_name;

by_name!(
    CertificateError,
    DecodeError,
    KeyError,
    RecordError,
    RosterError,
    SchemaError,
    SignError,
    SignatureError
);

impl From<BufferTooSmall> for Error {
    fn from(_: BufferTooSmall) -> Self {
        Self::BufferTooSmall
    }
}

/// Returns the name of an error code, for example `BufferTooSmall`, or `Unknown` if the number is
/// not an error code. The text is ASCII, ends with a zero byte, and is static: do not free it.
#[unsafe(no_mangle)]
pub extern "C" fn moteseal_error_name(code: i32) -> *const core::ffi::c_char {
    let known = Error::ALL.iter().find(|(known, _)| *known as i32 == code);
    known.map_or(c"Unknown", |(_, name)| name).as_ptr()
}
