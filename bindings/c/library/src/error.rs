//! What can go wrong, as numbers: one enum for all calls, whose names are those of spec/errors.md.

use moteseal_core::cbor::{BufferTooSmall, DecodeError};
use moteseal_core::identity::CertificateError;
use moteseal_core::roster::RosterError;
use moteseal_core::schema::SchemaError;
use moteseal_core::signature::{KeyError, SignError, SignatureError};

/// What a call says. `MOTESEAL_ERROR_OK` is 0, everything else a refusal that changed nothing unless the function says so.
///
/// The names are those that the whole of Moteseal uses: `moteseal_error_name` gives them, spec/errors.md says more. Numbers do not
/// change between versions; new ones may come, so have a default branch.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum moteseal_error {
    /// Done.
    Ok = 0,

    // The call itself.
    /// A pointer that must lead somewhere is null.
    NullPointer = 1,
    /// A pointer is not aligned as its type demands.
    Misaligned = 2,
    /// A length that no memory has.
    LengthOutOfRange = 3,
    /// The state was not begun, is over, or was wiped; or memory of another type.
    NotBegun = 4,
    /// What must be durable first was not shown to be: see the function that confirms it.
    NotPersisted = 5,
    /// The chain has no open seal: moteseal_chain_open comes first.
    NotOpen = 6,
    /// The chain has an open seal: close and commit it first.
    AlreadyOpen = 7,
    /// The chain stands elsewhere than this star, tree or seal.
    NotOfThisSeal = 8,
    /// An output or scratch buffer is too small; nothing was lost, call again with a larger one.
    BufferTooSmall = 9,
    /// Bytes that were kept are not what was written: erased, torn or altered.
    Damaged = 10,
    /// An error that this library has no name for; please report it.
    Unexpected = 11,

    // Bytes.
    /// The input ends within an item.
    Truncated = 20,
    /// Bytes are left after the item.
    TrailingBytes = 21,
    /// Not deterministic CBOR.
    NonCanonical = 22,
    /// Another type, number of elements or length than this place has.
    UnexpectedType = 23,
    /// Made by a newer version of the formats.
    UnsupportedVersion = 24,
    /// An item or frame of an unknown kind.
    UnknownItem = 25,
    /// A value outside its range.
    FieldOutOfRange = 26,
    /// A signed object of another kind.
    WrongType = 27,
    /// A critical header that is not understood.
    UnknownCritical = 28,
    /// A header that does not belong here.
    UnexpectedHeader = 29,
    /// A signature algorithm that is not known or not built in.
    UnknownAlgorithm = 30,

    // Keys and signatures.
    /// A key of another length than its algorithm's.
    KeyLength = 40,
    /// No usable point of the curve.
    InvalidPublicKey = 41,
    /// A secret scalar out of range.
    InvalidSecretKey = 42,
    /// Not PKCS#8 or SubjectPublicKeyInfo.
    MalformedDer = 43,
    /// Not one PEM block.
    MalformedPem = 44,
    /// A PEM block of another kind.
    WrongPemLabel = 45,
    /// An ML-DSA key without its seed.
    SeedMissing = 46,
    /// A key file whose public part is not that of its private part.
    KeyPairMismatch = 47,
    /// Signed with another algorithm than the key's.
    AlgorithmMismatch = 48,
    /// A signature of another length than its algorithm's.
    MalformedSignature = 49,
    /// An ECDSA signature with s in the upper half: see moteseal_esp256_normalize.
    HighS = 50,
    /// Not a signature of that key over these bytes.
    NotAuthentic = 51,
    /// The key's holder did not sign.
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
    /// Certificates that are not by ascending first index.
    UnsortedCertificates = 64,
    /// A name that is empty, longer than 64 bytes, or has control characters.
    InvalidName = 65,
    /// The group id is not that of the group's name.
    GroupMismatch = 66,
    /// A device id is not that of the device's name.
    DeviceMismatch = 67,
    /// Two devices with one id.
    DuplicateDevice = 68,
    /// Devices that are not by ascending id.
    UnsortedDevices = 69,
    /// Not as many past digests as there were versions.
    HistoryLength = 70,
    /// Not 1 to 32 levels, or more than this type of star has.
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
    /// A field type that does not exist.
    UnknownFieldType = 79,
    /// A divisor or offset that a field cannot have.
    ScaleOutOfRange = 80,
    /// A field that is not NAME:UNIT:TYPE[/DIVISOR][+OFFSET].
    MalformedField = 81,

    // Seals.
    /// An epoch before one that was opened.
    EpochGoesBack = 90,
    /// A further seal of an epoch that was closed.
    EpochClosed = 91,
    /// An epoch that the roster does not allow, or that 64 bits of milliseconds do not hold.
    EpochOutOfRange = 92,
    /// All 2^32 - 1 indices are used.
    IndexExhausted = 93,
    /// An event that is not of the schema's record size, or longer than 65,535 bytes.
    WrongLength = 94,
    /// The seal takes no more events: close it and open the next.
    Full = 95,
    /// The tree takes no more events: close the seal and open the next.
    TreeFull = 97,
    /// Other events than were sealed.
    EventsLength = 96,

    // Private sums.
    /// This epoch of the query, or a later one, was permitted before.
    EpochAnswered = 110,
    /// The epoch starts before what is remembered of answered queries.
    TooOld = 111,
    /// The query had epochs of another length before.
    DurationMismatch = 112,
    /// The permit is for another query than the key.
    WrongQuery = 113,
    /// This slot, or a later one, was used under the permit.
    SlotUsed = 114,
    /// A value of 2^96 - 1 or more.
    ValueTooLarge = 115,
    /// Keys for another group.
    WrongGroup = 116,
    /// Keys for another version of the roster.
    WrongRoster = 117,

    // Broadcasts.
    /// Of another network.
    WrongNetwork = 130,
    /// Of another sender.
    WrongSender = 131,
    /// Under another key of the sender.
    WrongKey = 132,
    /// Of a base station that is not this one.
    UnknownBaseStation = 133,
    /// The certificate's time has not come.
    NotYetValid = 134,
    /// The certificate's time is over.
    Expired = 135,
    /// The certificate's serial is below the base station's minimum.
    Revoked = 136,
    /// The chain's number is not above those of chains that were accepted.
    ChainGoesBack = 137,
    /// The chain's blocks have more messages than this type of receiver holds.
    BlockTooLarge = 138,
    /// Not the frame of a chain of one message.
    NotSingle = 139,
    /// A leaf of another chain.
    WrongChain = 140,
    /// The bytes are not what the sender signed.
    ForgedLeaf = 141,
    /// Of an earlier or a later block.
    NotThisBlock = 142,
    /// The block has no such leaf.
    IndexOutOfRange = 143,
    /// Longer than any leaf of the chain.
    LeafTooLong = 144,
    /// Too short for its trailer.
    LeafTooShort = 145,
    /// All tags of the block fit and its digest does not: the block starts again.
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

    /// The code of an error's name.
    pub(crate) fn named(name: &str) -> Self {
        let code = Self::ALL.iter().find(|(_, known)| known.to_bytes() == name.as_bytes());
        code.map_or(Self::Unexpected, |(code, _)| *code)
    }
}

/// Errors of core that go by their names.
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

/// The name of a code, such as `BufferTooSmall`: ASCII, ended by a zero byte, valid for ever. `Unknown` for a number that is no code.
#[unsafe(no_mangle)]
pub extern "C" fn moteseal_error_name(code: i32) -> *const core::ffi::c_char {
    let known = Error::ALL.iter().find(|(known, _)| *known as i32 == code);
    known.map_or(c"Unknown", |(_, name)| name).as_ptr()
}
