//! The errors of all calls as one enum of numbers; their names are those of spec/errors.md.

use moteseal_core::cbor::{BufferTooSmall, DecodeError};
use moteseal_core::identity::CertificateError;
use moteseal_core::roster::RosterError;
use moteseal_core::schema::SchemaError;
use moteseal_core::signature::{KeyError, SignError, SignatureError};

/// The result of a call. `MOTESEAL_ERROR_OK` is 0; every other value is an error that changed
/// nothing unless the function's comment states otherwise.
///
/// `moteseal_error_name` returns the name, which is the same in all of Moteseal (spec/errors.md).
/// Numbers do not change between versions; new ones may be added, so have a default branch.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum moteseal_error {
    /// Success.
    Ok = 0,

    // The call itself.
    /// A required pointer is null.
    NullPointer = 1,
    /// A pointer is not aligned for its type.
    Misaligned = 2,
    /// A length larger than any memory.
    LengthOutOfRange = 3,
    /// The state was not begun, has ended or was wiped; or it is memory of another type.
    NotBegun = 4,
    /// A record that must be durable first was not confirmed: see the function that confirms it.
    NotPersisted = 5,
    /// The chain has no open seal: moteseal_chain_open comes first.
    NotOpen = 6,
    /// The chain has an open seal: close and commit it first.
    AlreadyOpen = 7,
    /// The star, tree or seal does not belong to the chain's open seal.
    NotOfThisSeal = 8,
    /// An output buffer, a scratch buffer or the memory for a state is too small; call again with a
    /// larger one.
    BufferTooSmall = 9,
    /// A kept record is not as it was written: erased, torn or altered.
    Damaged = 10,
    /// An error that this library has no number for; please report it.
    Unexpected = 11,

    // Bytes.
    /// The input ends within an item.
    Truncated = 20,
    /// Bytes are left after the item.
    TrailingBytes = 21,
    /// Not deterministic CBOR.
    NonCanonical = 22,
    /// A wrong type, number of elements or length at this place.
    UnexpectedType = 23,
    /// A version of the formats that this library does not support.
    UnsupportedVersion = 24,
    /// An item or frame of an unknown kind.
    UnknownItem = 25,
    /// A value outside its range.
    FieldOutOfRange = 26,
    /// A signed object of the wrong kind.
    WrongType = 27,
    /// A critical header that is not understood.
    UnknownCritical = 28,
    /// A header that is not allowed here.
    UnexpectedHeader = 29,
    /// A signature algorithm that is not known or not built in.
    UnknownAlgorithm = 30,

    // Keys and signatures.
    /// A key whose length does not fit its algorithm.
    KeyLength = 40,
    /// Not a valid point of the curve.
    InvalidPublicKey = 41,
    /// A secret scalar out of range.
    InvalidSecretKey = 42,
    /// Not PKCS#8 or SubjectPublicKeyInfo.
    MalformedDer = 43,
    /// Not one PEM block.
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
    /// Not a signature of that key over these bytes.
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
    /// Two devices with one id.
    DuplicateDevice = 68,
    /// Devices that are not sorted by id.
    UnsortedDevices = 69,
    /// The number of past digests is not the number of past versions.
    HistoryLength = 70,
    /// Not 1 to 32 levels, or more than the star's memory has room for.
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
    /// Two fields of one name.
    DuplicateField = 77,
    /// A unit that is not in SenML's list.
    UnknownUnit = 78,
    /// An unknown field type.
    UnknownFieldType = 79,
    /// A divisor or offset out of range.
    ScaleOutOfRange = 80,
    /// A field that is not NAME:UNIT:TYPE[/DIVISOR][+OFFSET].
    MalformedField = 81,

    // Seals.
    /// The epoch is before one that was opened.
    EpochGoesBack = 90,
    /// The epoch was closed by an earlier seal.
    EpochClosed = 91,
    /// The roster does not allow the epoch, or its time does not fit 64 bits of milliseconds.
    EpochOutOfRange = 92,
    /// All 2^32 - 1 indices are used.
    IndexExhausted = 93,
    /// An event that is not of the schema's record size, or longer than 65,535 bytes.
    WrongLength = 94,
    /// The seal is full: close it and open the next.
    Full = 95,
    /// The tree is full: close the seal and open the next.
    TreeFull = 97,
    /// Not the events that were sealed.
    EventsLength = 96,

    // Private sums.
    /// This epoch of the query, or a later one, was already permitted.
    EpochAnswered = 110,
    /// The epoch starts before the guard's floor.
    TooOld = 111,
    /// The query previously had epochs of another length.
    DurationMismatch = 112,
    /// The permit is for a different query from the key's.
    WrongQuery = 113,
    /// This slot, or a later one, was already used under the permit.
    SlotUsed = 114,
    /// A value of 2^96 - 1 or more.
    ValueTooLarge = 115,
    /// The keys are for another group.
    WrongGroup = 116,
    /// The keys are for another version of the roster.
    WrongRoster = 117,

    // Broadcasts.
    /// The object is of another network.
    WrongNetwork = 130,
    /// The object is of another sender.
    WrongSender = 131,
    /// The object is signed under another key of the sender.
    WrongKey = 132,
    /// The object is of another base station.
    UnknownBaseStation = 133,
    /// The certificate is not valid yet.
    NotYetValid = 134,
    /// The certificate has expired.
    Expired = 135,
    /// The certificate's serial is below the base station's minimum.
    Revoked = 136,
    /// The chain's number is not above the highest accepted one.
    ChainGoesBack = 137,
    /// The chain's blocks have more messages than the receiver's memory has room for.
    BlockTooLarge = 138,
    /// Not a frame with a chain of one message.
    NotSingle = 139,
    /// The leaf is of another chain.
    WrongChain = 140,
    /// The bytes are not what the sender signed.
    ForgedLeaf = 141,
    /// The leaf is of an earlier or a later block.
    NotThisBlock = 142,
    /// The block has no such leaf.
    IndexOutOfRange = 143,
    /// The leaf is longer than any of the chain.
    LeafTooLong = 144,
    /// The leaf is too short for its trailer.
    LeafTooShort = 145,
    /// All tags of the block match but its digest does not: the block starts again.
    BlockMismatch = 146,
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
    ];

    /// The code with an error's name.
    pub(crate) fn named(name: &str) -> Self {
        let code = Self::ALL.iter().find(|(_, known)| known.to_bytes() == name.as_bytes());
        code.map_or(Self::Unexpected, |(code, _)| *code)
    }
}

/// Converts errors of the protocol crates by their names.
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

/// Returns the name of a code, for example `BufferTooSmall`: ASCII, terminated by a zero byte,
/// never freed. `Unknown` for any other number.
#[unsafe(no_mangle)]
pub extern "C" fn moteseal_error_name(code: i32) -> *const core::ffi::c_char {
    let known = Error::ALL.iter().find(|(known, _)| *known as i32 == code);
    known.map_or(c"Unknown", |(_, name)| name).as_ptr()
}
