/* Moteseal for firmware in C: makes seals, encrypts columns of their events, encrypts values for
 * private sums, receives broadcasts.
 *
 * moteseal-header generates this file from bindings/c/library/src. Edit those sources, then run
 * `cargo run -p moteseal-header -- write` in bindings/c.
 *
 * Rules for every function:
 *  - The caller owns all memory. There is no heap, no clock, no randomness and no global state. No
 *    function blocks or calls back.
 *  - Only one thread at a time may use an object. Different objects are independent.
 *  - A state is an object of an opaque type. Declare it as `moteseal_x state = {0};`, and begin it
 *    before any other use: the comments state which functions begin a state. You choose the size
 *    of a star, a tree, column keys, a cipher and a broadcast receiver: reserve
 *    MOTESEAL_STAR_SIZE(levels), MOTESEAL_GROUPED_STAR_SIZE(digests), MOTESEAL_TREE_SIZE(height),
 *    MOTESEAL_COLUMN_KEYS_SIZE(columns), MOTESEAL_CIPHER_SIZE(columns) or
 *    MOTESEAL_BROADCAST_SIZE(block) bytes, filled with zeros and aligned to 8 bytes. The function
 *    that begins the state checks size and alignment.
 *  - A state contains no pointers. You may move or copy it with memcpy while no function uses it.
 *    Do not copy a permit, a guard, a chain or a cipher: each prevents a number from being used
 *    twice, and with a copy the number could be used twice.
 *  - Every function checks that its pointers are aligned and not null, and that its lengths are in
 *    range. The caller guarantees that memory is as large as stated. Outputs must not overlap
 *    inputs unless the function's comment allows it.
 *  - A function may write to an output buffer up to its capacity; bytes after the returned length
 *    are undefined, and so is the whole buffer after an error.
 *  - The comments name errors as moteseal_error_name and spec/errors.md do: `BufferTooSmall` is the
 *    constant MOTESEAL_ERROR_BUFFER_TOO_SMALL. Every function with pointer arguments may also
 *    return NullPointer or Misaligned.
 *  - Numbers in encodings are big-endian; numbers in these structs have the machine's byte order.
 */

#ifndef MOTESEAL_H
#define MOTESEAL_H

#include <stddef.h>
#include <stdint.h>

// Bytes of memory for a star of a group with at most `levels` levels (1 to 32).
#define MOTESEAL_STAR_SIZE(levels) (104 + 112 * (size_t)(levels))

// Bytes of memory for a star with column groups, with at most `digests` digests: the group's levels (1 to 32) times the column groups (2 to 8).
#define MOTESEAL_GROUPED_STAR_SIZE(digests) (504 + 112 * (size_t)(digests))

// Bytes of memory for a tree of at most 2^height - 1 events (a height of 1 to 32).
#define MOTESEAL_TREE_SIZE(height) (224 + 32 * (size_t)(height))

// Bytes of memory for the keys of at most `columns` encrypted columns (1 to 16).
#define MOTESEAL_COLUMN_KEYS_SIZE(columns) (48 + 1088 * (size_t)(columns))

// Bytes of memory for the encryption of a seal with at most `columns` encrypted columns (1 to 16).
#define MOTESEAL_CIPHER_SIZE(columns) (464 + 120 * (size_t)(columns))

// Bytes of memory for a receiver of chains with at most `block` messages per block (1 to 64).
#define MOTESEAL_BROADCAST_SIZE(block) (328 + 48 * (size_t)(block))

// Ed25519 (RFC 8032): public keys and secrets have 32 bytes, signatures 64 bytes.
#define MOTESEAL_ED25519 1

// ECDSA on P-256 with SHA-256, with `s` in the lower half. Public keys have 65 bytes
// (uncompressed, first byte 4), secret scalars 32 bytes, signatures 64 bytes (`r`, then `s`). All
// numbers are big-endian.
#define MOTESEAL_ESP256 2

// The length of a signature of either algorithm, in bytes.
#define MOTESEAL_SIGNATURE 64

// The maximum length of a raw public key of either algorithm, in bytes.
#define MOTESEAL_MAX_PUBLIC_KEY 65

// Working memory for opening a roster, in bytes, in addition to the roster's own length.
#define MOTESEAL_ROSTER_SCRATCH 64

// The maximum length of an encoded schema, in bytes.
#define MOTESEAL_MAX_SCHEMA 6152

// The length of a chain's record in bytes, a multiple of 8. The mote stores the record in flash.
#define MOTESEAL_CHAIN_RECORD 72

// The length in bytes of the keys of one column in a record.
#define MOTESEAL_COLUMN_KEY 1084

// The length in bytes of a record of keys without the keys of the columns.
#define MOTESEAL_COLUMN_KEYS_OVERHEAD 12

// The maximum length of the message that a seal's signature covers, in bytes.
#define MOTESEAL_MAX_MESSAGE 1144

// The maximum length of an open item, in bytes.
#define MOTESEAL_MAX_OPEN 96

// The maximum length of a part's head and tail together, without the events, in bytes.
#define MOTESEAL_PART_OVERHEAD 848

// The maximum length of a bundle without its schema and its events, in bytes.
#define MOTESEAL_BUNDLE_OVERHEAD 976

// The maximum length of a seal as a separate signed object, in bytes.
#define MOTESEAL_MAX_OBJECT 1280

// The maximum length of the message or the signed object of an urgent event, without the event
// itself, in bytes.
#define MOTESEAL_URGENT_OVERHEAD 448

// The length of a guard's record in bytes, a multiple of 8. The mote stores the record in flash.
#define MOTESEAL_GUARD_RECORD 280

// The length of a partial state record in bytes. The record is an encrypted value, or the sum of
// several encrypted values, as a big-endian number.
#define MOTESEAL_PSR 32

// The maximum number of single serials that a base station can have revoked.
#define MOTESEAL_MAX_REVOKED 8

// A frame with a sender's certificate.
#define MOTESEAL_FRAME_CERTIFICATE 32

// A frame with a base station's revocation.
#define MOTESEAL_FRAME_REVOCATION 33

// A frame with the head of a chain.
#define MOTESEAL_FRAME_HEAD 34

// A frame with a leaf of a chain: a message; the last leaf of a block also announces the next
// block.
#define MOTESEAL_FRAME_LEAF 35

// A frame with a request: the leaves that a node is missing.
#define MOTESEAL_FRAME_WANTED 36

// A frame with a report: a node has all leaves of the chain up to and including this one.
#define MOTESEAL_FRAME_HOLDS 37

// A frame with a whole chain of one message: a live command.
#define MOTESEAL_FRAME_SINGLE 38

// A frame with the sum (XOR) of several leaves.
#define MOTESEAL_FRAME_REPAIR 39

// A leaf that was already received.
#define MOTESEAL_TAKEN_REPEATED 0

// A leaf whose tag matches: you may store and relay it, but do not act on it yet.
#define MOTESEAL_TAKEN_PENDING 1

// A leaf that completes its block: every message of the block is authentic; you may act on them.
#define MOTESEAL_TAKEN_VERIFIED 2

// The maximum length of a receiver's snapshot, in bytes.
#define MOTESEAL_MAX_SNAPSHOT 624

// The maximum length of a request, in bytes.
#define MOTESEAL_MAX_WANTED 32

// The result of a call. `MOTESEAL_ERROR_OK` is 0; every other value is an error. A call that
// returns an error has changed no state, unless the function's comment states otherwise.
//
// `moteseal_error_name` returns an error's name, which is the same in all of Moteseal
// (spec/errors.md). Existing numbers never change between versions, but new ones may be added:
// give every `switch` a default branch.
enum moteseal_error
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Success.
  MOTESEAL_ERROR_OK = 0,
  // A required pointer is null.
  MOTESEAL_ERROR_NULL_POINTER = 1,
  // A pointer is not aligned for its type.
  MOTESEAL_ERROR_MISALIGNED = 2,
  // A length is larger than any object in memory can be.
  MOTESEAL_ERROR_LENGTH_OUT_OF_RANGE = 3,
  // The state was not begun, has already ended, or was wiped; or the pointer points to a state
  // of another type.
  MOTESEAL_ERROR_NOT_BEGUN = 4,
  // A record must be durable before this call, but it was not confirmed: call the function whose
  // name ends in `_persisted` first.
  MOTESEAL_ERROR_NOT_PERSISTED = 5,
  // The chain has no open seal: call moteseal_chain_open first.
  MOTESEAL_ERROR_NOT_OPEN = 6,
  // The chain has an open seal: close and commit it first.
  MOTESEAL_ERROR_ALREADY_OPEN = 7,
  // The star, tree or seal does not belong to the chain's open seal.
  MOTESEAL_ERROR_NOT_OF_THIS_SEAL = 8,
  // An output buffer, a scratch buffer or the memory for a state is too small; call again with a
  // larger one.
  MOTESEAL_ERROR_BUFFER_TOO_SMALL = 9,
  // A stored record is damaged: erased, only partly written, or altered.
  MOTESEAL_ERROR_DAMAGED = 10,
  // An error for which this library has no number; please report it.
  MOTESEAL_ERROR_UNEXPECTED = 11,
  // The input ends before its last item is complete.
  MOTESEAL_ERROR_TRUNCATED = 20,
  // Further bytes follow the item.
  MOTESEAL_ERROR_TRAILING_BYTES = 21,
  // Not deterministic CBOR.
  MOTESEAL_ERROR_NON_CANONICAL = 22,
  // An item has the wrong type, number of elements or length.
  MOTESEAL_ERROR_UNEXPECTED_TYPE = 23,
  // A version of the formats that this library does not support.
  MOTESEAL_ERROR_UNSUPPORTED_VERSION = 24,
  // An item or frame of an unknown kind.
  MOTESEAL_ERROR_UNKNOWN_ITEM = 25,
  // A value outside its range.
  MOTESEAL_ERROR_FIELD_OUT_OF_RANGE = 26,
  // A signed object of the wrong kind.
  MOTESEAL_ERROR_WRONG_TYPE = 27,
  // A critical header that this library does not know.
  MOTESEAL_ERROR_UNKNOWN_CRITICAL = 28,
  // A header that is not allowed here.
  MOTESEAL_ERROR_UNEXPECTED_HEADER = 29,
  // A signature algorithm that is not known or not built in.
  MOTESEAL_ERROR_UNKNOWN_ALGORITHM = 30,
  // A key whose length does not fit its algorithm.
  MOTESEAL_ERROR_KEY_LENGTH = 40,
  // The public key is not a valid point of its curve.
  MOTESEAL_ERROR_INVALID_PUBLIC_KEY = 41,
  // A secret scalar out of range.
  MOTESEAL_ERROR_INVALID_SECRET_KEY = 42,
  // The bytes are not a PKCS#8 or SubjectPublicKeyInfo structure.
  MOTESEAL_ERROR_MALFORMED_DER = 43,
  // The text is not exactly one PEM block.
  MOTESEAL_ERROR_MALFORMED_PEM = 44,
  // A PEM block with the wrong label.
  MOTESEAL_ERROR_WRONG_PEM_LABEL = 45,
  // An ML-DSA key without its seed.
  MOTESEAL_ERROR_SEED_MISSING = 46,
  // A key file whose public key does not belong to its private key.
  MOTESEAL_ERROR_KEY_PAIR_MISMATCH = 47,
  // The signature's algorithm is not the key's.
  MOTESEAL_ERROR_ALGORITHM_MISMATCH = 48,
  // A signature whose length does not fit its algorithm.
  MOTESEAL_ERROR_MALFORMED_SIGNATURE = 49,
  // An ECDSA signature with s in the upper half: see moteseal_esp256_normalize.
  MOTESEAL_ERROR_HIGH_S = 50,
  // The signature is not valid for this key and these bytes.
  MOTESEAL_ERROR_NOT_AUTHENTIC = 51,
  // The signer declined to sign.
  MOTESEAL_ERROR_REFUSED = 52,
  // The roster has no such device.
  MOTESEAL_ERROR_UNKNOWN_DEVICE = 60,
  // A certificate that this operator did not sign.
  MOTESEAL_ERROR_CERTIFICATE_NOT_AUTHENTIC = 61,
  // A certificate of another group or device.
  MOTESEAL_ERROR_CERTIFICATE_MISMATCH = 62,
  // A device without a certificate.
  MOTESEAL_ERROR_CERTIFICATE_MISSING = 63,
  // Certificates that are not sorted by their first index.
  MOTESEAL_ERROR_UNSORTED_CERTIFICATES = 64,
  // A name that is empty, longer than 64 bytes, or has control characters.
  MOTESEAL_ERROR_INVALID_NAME = 65,
  // The group id does not belong to the group's name.
  MOTESEAL_ERROR_GROUP_MISMATCH = 66,
  // A device id does not belong to the device's name.
  MOTESEAL_ERROR_DEVICE_MISMATCH = 67,
  // Two devices have the same id.
  MOTESEAL_ERROR_DUPLICATE_DEVICE = 68,
  // Devices that are not sorted by id.
  MOTESEAL_ERROR_UNSORTED_DEVICES = 69,
  // A roster's list of past versions does not have exactly one digest per version.
  MOTESEAL_ERROR_HISTORY_LENGTH = 70,
  // The number of levels is not 1 to 32, or exceeds the capacity of the star's memory.
  MOTESEAL_ERROR_LEVELS_OUT_OF_RANGE = 71,
  // Epochs of 0 ms, or longer than 2^53 ms.
  MOTESEAL_ERROR_EPOCH_LENGTH_OUT_OF_RANGE = 72,
  // The last epoch is before the first.
  MOTESEAL_ERROR_EPOCH_RANGE_EMPTY = 73,
  // A budget of 0.
  MOTESEAL_ERROR_BUDGET_OUT_OF_RANGE = 74,
  // A schema of more than 64 fields.
  MOTESEAL_ERROR_TOO_MANY_FIELDS = 75,
  // A field's name that is empty, too long, or has control characters.
  MOTESEAL_ERROR_INVALID_FIELD_NAME = 76,
  // Two fields have the same name.
  MOTESEAL_ERROR_DUPLICATE_FIELD = 77,
  // A unit that is not in SenML's list.
  MOTESEAL_ERROR_UNKNOWN_UNIT = 78,
  // An unknown field type.
  MOTESEAL_ERROR_UNKNOWN_FIELD_TYPE = 79,
  // A divisor or offset out of range.
  MOTESEAL_ERROR_SCALE_OUT_OF_RANGE = 80,
  // A field that is not NAME:UNIT:TYPE[/DIVISOR][+OFFSET][?][~][!][@GROUP][#ID].
  MOTESEAL_ERROR_MALFORMED_FIELD = 81,
  // An encoded schema of version 2 that is longer than MOTESEAL_MAX_SCHEMA.
  MOTESEAL_ERROR_SCHEMA_TOO_LONG = 82,
  // A field has a key that this library does not know, and that a reader must understand.
  MOTESEAL_ERROR_UNSUPPORTED_FIELD = 83,
  // A field's id that is not 1 to 65535.
  MOTESEAL_ERROR_INVALID_FIELD_ID = 84,
  // Two fields have the same id.
  MOTESEAL_ERROR_DUPLICATE_FIELD_ID = 85,
  // An enum without valid labels, or labels of another type.
  MOTESEAL_ERROR_INVALID_LABELS = 86,
  // A text whose longest length is not 1 to 254, or such a length of another type.
  MOTESEAL_ERROR_INVALID_TEXT_LENGTH = 87,
  // A record does not have the length that the schema requires.
  MOTESEAL_ERROR_RECORD_LENGTH = 88,
  // A cell of a record is not a value of its column.
  MOTESEAL_ERROR_RECORD_VALUE = 89,
  // The epoch is earlier than the last one that was opened.
  MOTESEAL_ERROR_EPOCH_GOES_BACK = 90,
  // An earlier seal already closed this epoch.
  MOTESEAL_ERROR_EPOCH_CLOSED = 91,
  // The roster does not allow the epoch, or the epoch's start in milliseconds does not fit in 64
  // bits.
  MOTESEAL_ERROR_EPOCH_OUT_OF_RANGE = 92,
  // All 2^32 - 1 indices are used.
  MOTESEAL_ERROR_INDEX_EXHAUSTED = 93,
  // An event whose length is not the schema's record size, or exceeds 65,535 bytes.
  MOTESEAL_ERROR_WRONG_LENGTH = 94,
  // The seal is full: close it and open the next.
  MOTESEAL_ERROR_FULL = 95,
  // The tree is full: close the seal and open the next.
  MOTESEAL_ERROR_TREE_FULL = 97,
  // The number or total length of the events is not what was sealed.
  MOTESEAL_ERROR_EVENTS_LENGTH = 96,
  // The guard has already permitted this epoch of the query, or a later one.
  MOTESEAL_ERROR_EPOCH_ANSWERED = 110,
  // The epoch starts before the guard's floor.
  MOTESEAL_ERROR_TOO_OLD = 111,
  // An earlier call stated another length for this query's epochs.
  MOTESEAL_ERROR_DURATION_MISMATCH = 112,
  // The permit and the key are for different queries.
  MOTESEAL_ERROR_WRONG_QUERY = 113,
  // This slot, or a later one, was already used under the permit.
  MOTESEAL_ERROR_SLOT_USED = 114,
  // The value is 2^96 - 1 or more.
  MOTESEAL_ERROR_VALUE_TOO_LARGE = 115,
  // The keys are for another group.
  MOTESEAL_ERROR_WRONG_GROUP = 116,
  // The keys are for another version of the roster.
  MOTESEAL_ERROR_WRONG_ROSTER = 117,
  // The key file requires masks and a policy, which this library does not support.
  MOTESEAL_ERROR_POLICY_MISSING = 118,
  // The object belongs to another network.
  MOTESEAL_ERROR_WRONG_NETWORK = 130,
  // The object belongs to another sender.
  MOTESEAL_ERROR_WRONG_SENDER = 131,
  // The object is signed with another key of the sender.
  MOTESEAL_ERROR_WRONG_KEY = 132,
  // Another base station issued the object.
  MOTESEAL_ERROR_UNKNOWN_BASE_STATION = 133,
  // The certificate is not valid yet.
  MOTESEAL_ERROR_NOT_YET_VALID = 134,
  // The certificate has expired.
  MOTESEAL_ERROR_EXPIRED = 135,
  // The base station has revoked the certificate.
  MOTESEAL_ERROR_REVOKED = 136,
  // The chain's number is not higher than the highest one accepted so far.
  MOTESEAL_ERROR_CHAIN_GOES_BACK = 137,
  // The chain's blocks have more messages than the receiver's memory can hold.
  MOTESEAL_ERROR_BLOCK_TOO_LARGE = 138,
  // The frame does not contain a chain of exactly one message.
  MOTESEAL_ERROR_NOT_SINGLE = 139,
  // The leaf belongs to another chain.
  MOTESEAL_ERROR_WRONG_CHAIN = 140,
  // The bytes are not what the sender signed.
  MOTESEAL_ERROR_FORGED_LEAF = 141,
  // The leaf belongs to an earlier or a later block.
  MOTESEAL_ERROR_NOT_THIS_BLOCK = 142,
  // The block has no such leaf.
  MOTESEAL_ERROR_INDEX_OUT_OF_RANGE = 143,
  // The leaf is longer than the chain's head allows.
  MOTESEAL_ERROR_LEAF_TOO_LONG = 144,
  // The leaf is too short to contain its trailer.
  MOTESEAL_ERROR_LEAF_TOO_SHORT = 145,
  // All tags of the block match, but the block's digest does not: the receiver discards the
  // block and waits for its leaves again.
  MOTESEAL_ERROR_BLOCK_MISMATCH = 146,
  // The roster's periods are out of order, or there is none.
  MOTESEAL_ERROR_UNSORTED_PERIODS = 147,
  // A period does not start where the epoch before its first one ends.
  MOTESEAL_ERROR_EPOCH_START_MISMATCH = 148,
  // A device is listed since a later version than the roster's.
  MOTESEAL_ERROR_SINCE_OUT_OF_RANGE = 149,
  // A certificate's term ends before it begins.
  MOTESEAL_ERROR_TERM_RANGE_EMPTY = 150,
  // The draft of a first version has content that only later versions can have.
  MOTESEAL_ERROR_NOT_A_FIRST_VERSION = 151,
  // The roster has ended the key of the seal.
  MOTESEAL_ERROR_KEY_ENDED = 152,
  // The seal names a version of the roster that is too early for its epoch.
  MOTESEAL_ERROR_ROSTER_OUTDATED = 153,
  // The revocation does not revoke everything that is already revoked.
  MOTESEAL_ERROR_SUPERSEDED = 154,
  // A schema with encrypted columns whose suite this library does not know.
  MOTESEAL_ERROR_UNKNOWN_SUITE = 155,
  // A schema of more than 16 encrypted columns.
  MOTESEAL_ERROR_TOO_MANY_ENCRYPTED_FIELDS = 156,
  // The device has encrypted columns: a seal and an urgent event need a `moteseal_cipher`.
  MOTESEAL_ERROR_NO_STREAM_SECRET = 157,
  // A field's group that is not 0 to 7.
  MOTESEAL_ERROR_INVALID_GROUP = 158,
  // A schema with column groups and no column in group 0.
  MOTESEAL_ERROR_NO_FIRST_GROUP = 159,
  // A column in a group other than 0 that is not encrypted.
  MOTESEAL_ERROR_PLAIN_GROUP = 160,
  // The device has column groups, which only a `moteseal_grouped_star` seals, or it has none, and
  // needs a `moteseal_star` or a `moteseal_tree`.
  MOTESEAL_ERROR_COLUMN_GROUPS = 161,
  // The epoch is before the base epoch of the stream secret, or more than 2^32 - 1 epochs after
  // it.
  MOTESEAL_ERROR_EPOCH_OUT_OF_KEY_RANGE = 162,
  // The keys of the epoch have been erased, because a later epoch has begun.
  MOTESEAL_ERROR_KEY_ERASED = 163,
  // A stored key is damaged.
  MOTESEAL_ERROR_MALFORMED_KEY = 164,
  // The schema has no encrypted columns.
  MOTESEAL_ERROR_KEY_COUNT = 165,
  // The keys are for other columns than those of the schema.
  MOTESEAL_ERROR_WRONG_COLUMN = 166,
  // An event with this sequence number has been encrypted already, or the seal has had a cipher.
  MOTESEAL_ERROR_SEQUENCE_REUSED = 167,
  // The seal has too many events for AES-128: close it and open the next.
  MOTESEAL_ERROR_KEY_STREAM_END = 168,
  // A column needs AES-128, which is not built in (feature `aes128`).
  MOTESEAL_ERROR_UNSUPPORTED_SUITE = 169,
  // An event of the seal was not encrypted by the seal's cipher.
  MOTESEAL_ERROR_NOT_ENCRYPTED = 170,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum moteseal_error moteseal_error;
#else
typedef int32_t moteseal_error;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A receiver of one chain whose blocks have at most `block` messages (1 to 64). It occupies
// `MOTESEAL_BROADCAST_SIZE(block)` bytes of the caller's memory:
//
//     uint64_t memory[MOTESEAL_BROADCAST_SIZE(8) / 8] = {0};
//     moteseal_broadcast *broadcast = (moteseal_broadcast *)memory;
typedef struct moteseal_broadcast moteseal_broadcast;

// The encryption of an open seal. It occupies `MOTESEAL_CIPHER_SIZE(columns)` bytes of the caller's
// memory:
//
//     uint64_t memory[MOTESEAL_CIPHER_SIZE(2) / 8] = {0};
//     moteseal_cipher *cipher = (moteseal_cipher *)memory;
//
// Do not store it: after a restart, the open seal is abandoned, and the next seal has other keys.
// End it with `moteseal_cipher_wipe` when the seal is closed.
typedef struct moteseal_cipher moteseal_cipher;

// The keys of the encrypted columns of a schema. It occupies `MOTESEAL_COLUMN_KEYS_SIZE(columns)`
// bytes of the caller's memory:
//
//     uint64_t memory[MOTESEAL_COLUMN_KEYS_SIZE(2) / 8] = {0};
//     moteseal_column_keys *keys = (moteseal_column_keys *)memory;
//
// The state is secret. End it with `moteseal_column_keys_wipe`.
typedef struct moteseal_column_keys moteseal_column_keys;

// A star of a schema with column groups. Programs that do not get a group can still verify the rest
// of a seal. It occupies `MOTESEAL_GROUPED_STAR_SIZE(digests)` bytes of the caller's memory, for
// `digests = levels * groups`:
//
//     uint64_t memory[MOTESEAL_GROUPED_STAR_SIZE(16 * 2) / 8] = {0};
//     moteseal_grouped_star *star = (moteseal_grouped_star *)memory;
typedef struct moteseal_grouped_star moteseal_grouped_star;

// A star for a group of at most `levels` levels (1 to 32). It occupies
// `MOTESEAL_STAR_SIZE(levels)` bytes of the caller's memory:
//
//     uint64_t memory[MOTESEAL_STAR_SIZE(16) / 8] = {0};
//     moteseal_star *star = (moteseal_star *)memory;
typedef struct moteseal_star moteseal_star;

// A tree for a seal of at most `2^height - 1` events (a height of 1 to 32). It occupies
// `MOTESEAL_TREE_SIZE(height)` bytes of the caller's memory:
//
//     uint64_t memory[MOTESEAL_TREE_SIZE(10) / 8] = {0};
//     moteseal_tree *tree = (moteseal_tree *)memory;
typedef struct moteseal_tree moteseal_tree;

// The properties that all seals of a device have in common. This is plain data: fill it in with
// `moteseal_device_from_roster` and `moteseal_device_set_schema`, either on the mote or when you
// build its firmware; or set each field from the operator's data.
typedef struct {
  // The group's id.
  uint8_t group[8];
  // The device's id.
  uint8_t device[8];
  // The digest of the device's roster.
  uint8_t roster[32];
  // The digest of the device's first certificate. The device's first seal states it as the
  // digest of its predecessor.
  uint8_t certificate[32];
  // The digest of the schema.
  uint8_t schema[32];
  // The length of an epoch, in milliseconds.
  uint64_t epoch_ms;
  // The start of the first epoch that may be sealed, in milliseconds since
  // 1970-01-01T00:00:00Z. Epoch `e` starts `(e - first_epoch) * epoch_ms` after it.
  uint64_t start_ms;
  // The first epoch that may be sealed: the first one of the newest period of the roster.
  uint64_t first_epoch;
  // The last epoch that may be sealed; `UINT64_MAX` if there is no last one.
  uint64_t last_epoch;
  // The roster's version.
  uint32_t roster_version;
  // The length of an event in bytes; 0 if events may have any length up to 65,535 bytes.
  uint16_t record_size;
  // The group's number of levels, 1 to 32.
  uint8_t levels;
  // The algorithm of the device's signatures: `MOTESEAL_ED25519` or `MOTESEAL_ESP256`.
  uint8_t algorithm;
  // The number of encrypted columns of the schema. If it is not 0, a seal and an urgent event need
  // a `moteseal_cipher`.
  uint8_t encrypted;
  // The column groups of the schema: bit `g` is group `g`. If it is not 0, a seal needs a
  // `moteseal_grouped_star`.
  uint8_t column_groups;
  // Zeros.
  uint8_t reserved[6];
} moteseal_device;

// A device's chain of seals: the next index, the last epoch that was opened, and the predecessor
// of the next seal.
//
// Begin it with `moteseal_chain_start` if the device has never sealed anything, and otherwise with
// `moteseal_chain_restore`. It contains no secrets. Declare it as `moteseal_chain chain = {0};`.
typedef struct {
  uint64_t opaque[16];
} moteseal_chain;

// A secret signing key. Declare it as `moteseal_signing_key key = {0};` and end it with
// `moteseal_signing_key_wipe`.
typedef struct {
  uint64_t opaque[32];
} moteseal_signing_key;

// The query epochs that a device answered since its last seal. The device's next seal must state
// all of them: otherwise an aggregator can claim that the device did not answer. Declare it as
// `moteseal_answers answers = {0};`: zeros mean that the set is empty.
typedef struct {
  uint64_t opaque[42];
} moteseal_answers;

// The unsigned seal of a closed star or tree. Declare it as `moteseal_seal seal = {0};`.
typedef struct {
  uint64_t opaque[150];
} moteseal_seal;

// The properties of a seal. Plain data.
typedef struct {
  // The seal's digest. The next seal refers to it as its predecessor.
  uint8_t digest[32];
  // The epoch.
  uint64_t epoch;
  // The index.
  uint32_t index;
  // The number of events.
  uint32_t events;
  // The group's number of levels.
  uint8_t levels;
  // 1 for a tree, 0 for a star.
  uint8_t is_tree;
  // `MOTESEAL_ED25519` or `MOTESEAL_ESP256`.
  uint8_t algorithm;
  // 1 if no further seal covers the epoch.
  uint8_t last_in_epoch;
  // 1 if the device restarted since the previous seal.
  uint8_t restart;
  // Zeros.
  uint8_t reserved[3];
} moteseal_seal_info;

// The long-term secrets of a source. Declare it as `moteseal_sum_source source = {0};` and end it
// with `moteseal_sum_source_wipe`.
typedef struct {
  uint64_t opaque[9];
} moteseal_sum_source;

// A source's keys for one query. Declare it as `moteseal_sum_key key = {0};` and end it with
// `moteseal_sum_key_wipe`.
typedef struct {
  uint64_t opaque[11];
} moteseal_sum_key;

// The guard that lets a source answer each epoch of a query only once. Two values encrypted for
// the same query, slot and epoch reveal a secret that all sources of a key group share. Declare it
// as `moteseal_guard guard = {0};`.
//
// Begin it with `moteseal_guard_start` if the source's keys are new, with `moteseal_guard_restore`
// after each reboot, and with `moteseal_guard_start_at` if the guard's record was lost.
typedef struct {
  uint64_t opaque[42];
} moteseal_guard;

// The permission to encrypt the values of one query and epoch: one value for each slot, in
// ascending order of slot numbers. Declare it as `moteseal_permit permit = {0};` and never copy
// it.
typedef struct {
  uint64_t opaque[6];
} moteseal_permit;

// A base station, whose certificates the mote accepts. Declare it as `moteseal_base base = {0};`.
// It contains no secrets.
typedef struct {
  uint64_t opaque[28];
} moteseal_base;

// A sender whose certificate was checked. Declare it as `moteseal_sender sender = {0};`. It
// contains no secrets.
typedef struct {
  uint64_t opaque[30];
} moteseal_sender;

// What a base station has revoked. Zeros mean that nothing is revoked.
typedef struct {
  // All serials below this one are revoked.
  uint64_t minimum;
  // Single serials that are revoked, in ascending order; the first `count` places are used.
  uint64_t serials[MOTESEAL_MAX_REVOKED];
  // The number of single serials.
  uint64_t count;
} moteseal_revoked;

// The content of a chain of one message. `message` and `label` point into the frame's bytes.
typedef struct {
  // The chain's number. Make it durable as the sender's new floor before you act on the message.
  uint64_t number;
  // The message.
  const uint8_t *message;
  // The message's length in bytes.
  size_t message_length;
  // The chain's label: UTF-8 without control characters, not terminated by a zero byte; may be
  // empty.
  const uint8_t *label;
  // The label's length in bytes, at most 64.
  size_t label_length;
  // The first second in which the message may be delivered, in Unix time.
  uint64_t not_before;
  // The first second in which it may not be delivered any more, in Unix time; 2^64-1 for no end.
  // Obey a command (kind 3) only if you know the time, and only within its window.
  uint64_t not_after;
  // 0 for an announcement, 1 for a file, 2 for a query schedule, 3 for a command.
  uint8_t kind;
  // Zeros.
  uint8_t reserved[7];
} moteseal_single;

// A broadcast frame, decoded but not authenticated: anyone may have sent it. Its pointers point
// into the datagram.
typedef struct {
  // The kind of frame: one of the constants `MOTESEAL_FRAME_...`.
  uint8_t kind;
  // In a frame of the kind `MOTESEAL_FRAME_LEAF` or `MOTESEAL_FRAME_HOLDS`: the leaf's position
  // in its block, counted from 0.
  uint8_t index;
  // Zeros.
  uint8_t reserved[2];
  // The number of the block, counted from 1, if the frame refers to one. 0 in a request for the
  // chain's head and certificate, and in a report of a node that has only the head.
  uint32_t block;
  // The chain's reference, if the frame refers to a chain.
  uint8_t chain[8];
  // In a frame of the kind `MOTESEAL_FRAME_WANTED` or `MOTESEAL_FRAME_REPAIR`: the leaves that
  // are requested or combined, bit `j` for leaf `j`. In a request for block 0, bit 0 is the head
  // and bit 1 the certificate.
  uint64_t mask;
  // The certificate, revocation, head or leaf that the frame contains; the head if the kind is
  // `MOTESEAL_FRAME_SINGLE`; the XOR of the leaves if it is `MOTESEAL_FRAME_REPAIR`.
  const uint8_t *body;
  // The body's length in bytes.
  size_t body_length;
  // In a frame of the kind `MOTESEAL_FRAME_SINGLE`: the leaf. Otherwise empty.
  const uint8_t *second;
  // The length of `second` in bytes.
  size_t second_length;
} moteseal_frame;

// The properties of a chain, as stated in its head. `label` points into the head's bytes.
typedef struct {
  // The chain's number. Make it durable as the sender's new floor before you act on any message
  // of the chain.
  uint64_t number;
  // The chain's reference, which every frame of the chain contains.
  uint8_t chain[8];
  // The chain's label: UTF-8 without control characters, not terminated by a zero byte; may be
  // empty.
  const uint8_t *label;
  // The label's length in bytes, at most 64.
  size_t label_length;
  // The number of messages in the chain.
  uint32_t messages;
  // The number of blocks in the chain.
  uint32_t blocks;
  // The first second in which the messages may be delivered, in Unix time.
  uint64_t not_before;
  // The first second in which they may not be delivered any more, in Unix time; 2^64-1 for no end.
  // Obey a command (kind 3) only if you know the time, and only within its window.
  uint64_t not_after;
  // 0 for announcements, 1 for the pieces of one file, 2 for a query schedule, 3 for commands.
  uint8_t kind;
  // Zeros.
  uint8_t reserved[7];
} moteseal_head_info;

// The result of accepting a leaf. `message` points into the frame's bytes.
typedef struct {
  // The leaf's message; null for a repeated leaf.
  const uint8_t *message;
  // The message's length in bytes.
  size_t message_length;
  // The number of the leaf's block, counted from 1.
  uint32_t block;
  // One of the constants `MOTESEAL_TAKEN_...`.
  uint8_t what;
  // 1 if the chain is now complete.
  uint8_t is_last;
  // Zeros.
  uint8_t reserved[2];
} moteseal_taken;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the name of an error code, for example `BufferTooSmall`, or `Unknown` if the number is
// not an error code. The text is ASCII, ends with a zero byte, and is static: do not free it.
const char *moteseal_error_name(int32_t code);

// Reads a roster file (`moteseal roster new`), checks every signature in it, and returns the
// properties of the device `name`.
//
// A roster has no schema: `record_size` is 0 and `schema` is the digest of the schema of opaque
// records until you call `moteseal_device_set_schema`.
//
// @param roster, roster_length  The file's bytes.
// @param operator_algorithm, operator_key, operator_key_length  The operator's raw public key,
//        which the caller must know and trust.
// @param name  The device's name, UTF-8, terminated by a zero byte.
// @param scratch, scratch_capacity  Working memory: `roster_length + MOTESEAL_ROSTER_SCRATCH`
//        bytes suffice.
// @param device  Written on success only.
// @return `UnknownDevice` if the roster has no device of that name; `BufferTooSmall` if the
//         scratch memory is too small; `InvalidName`; or an error of rosters, certificates, keys
//         or signatures.
moteseal_error moteseal_device_from_roster(const uint8_t *roster,
                                           size_t roster_length,
                                           uint8_t operator_algorithm,
                                           const uint8_t *operator_key,
                                           size_t operator_key_length,
                                           const char *name,
                                           uint8_t *scratch,
                                           size_t scratch_capacity,
                                           moteseal_device *device);

// Encodes a schema: the fields of a record, in the notation of `moteseal seal --column`.
//
// Fields are packed in the given order, big-endian. Types: u8 i8 u16 i16 u32 i32 u64 i64 f32 f64
// time (milliseconds since the start of the epoch, in 4 bytes), bool, enum(off,on) with 1 to 254
// labels, timestamp (milliseconds since 1970, in 8 bytes), point (latitude and longitude in 10^-7
// degrees, in 4 bytes each), text32 with the length of the longest text. Texts come after all other
// cells of a record, each with its length in one byte. `?` marks a field that may be null, `~` one
// whose values another device reported, `!` one that is encrypted with ChaCha20 and `!aes` one with
// AES-128 (`moteseal_cipher`), `#` an id other than the position. spec/objects.md, section
// 5, defines the cells and their nulls.
//
// @param fields, count  An array of texts `NAME:UNIT:TYPE[/DIVISOR][+OFFSET][?][~][!][@GROUP][#ID]`, for
//        example "temperature:Cel:i16/100", each terminated by a zero byte; at most 64. With no fields,
//        the result is the schema of opaque records.
// @param out, capacity  Receives the schema; `MOTESEAL_MAX_SCHEMA` bytes always suffice; 16 bytes
//        plus the length of all field texts nearly always suffice.
// @param length  Receives the number of bytes written.
// @return `MalformedField` and the other errors of schemas; `BufferTooSmall`.
moteseal_error moteseal_schema_encode(const char *const *fields,
                                      size_t count,
                                      uint8_t *out,
                                      size_t capacity,
                                      size_t *length);

// Checks an encoded schema and sets a device's schema digest, record size, number of encrypted
// columns and column groups.
//
// @param device  The device, already filled in; only `schema`, `record_size`, `encrypted` and
//        `column_groups` change. A schema with texts sets `record_size` to 0: records then have
//        different lengths, as without fields.
// @param schema, schema_length  The encoded schema, from `moteseal_schema_encode` or another tool.
// @return An error of schemas or of decoding; `WrongLength` if records are longer than 65,535
//         bytes.
moteseal_error moteseal_device_set_schema(moteseal_device *device,
                                          const uint8_t *schema,
                                          size_t schema_length);

// Checks a record against an encoded schema. Call this before you seal a record with columns of
// the types bool, enum, point or text: verifiers reject a seal with a record that does not pass.
//
// @param schema, schema_length  The encoded schema.
// @param record, record_length  The record.
// @return An error of schemas or of decoding; `RecordLength`, `RecordValue`.
moteseal_error moteseal_record_check(const uint8_t *schema,
                                     size_t schema_length,
                                     const uint8_t *record,
                                     size_t record_length);

// Returns the epoch of a time in milliseconds since 1970.
//
// @return `EpochLengthOutOfRange` if `epoch_ms` is 0, `EpochOutOfRange` if the time is before
// `start_ms`.
moteseal_error moteseal_device_epoch(const moteseal_device *device,
                                     uint64_t unix_ms,
                                     uint64_t *epoch);

// Begins the chain of a device that has never sealed anything, because its keys are new. Never
// call it on a device that may have sealed before and has lost its record: the device would reuse
// indices. Give that device a new name, or restore a record with a higher index.
//
// @return `NullPointer`, `Misaligned`.
moteseal_error moteseal_chain_start(moteseal_chain *chain, const moteseal_device *device);

// Begins a chain from its record. If a seal was open when the record was written, it is abandoned,
// and the next seal states that the device restarted.
//
// @param record, length  The newest stored record, `MOTESEAL_CHAIN_RECORD` bytes.
// @return `Damaged` if the record was erased, only partly written, or altered; `Truncated` or
//         `TrailingBytes` if it has another length; `UnsupportedVersion`; `FieldOutOfRange`.
moteseal_error moteseal_chain_restore(moteseal_chain *chain, const uint8_t *record, size_t length);

// Opens the next seal, for events of `epoch`. The seal gets the next index, which is never used
// again.
//
// Make `record` durable, read it back and pass it to `moteseal_chain_persisted`. Until then, no
// star or tree can begin.
//
// @param epoch  The epoch of the events (see `moteseal_device_epoch`). It must not be earlier than
//        the last epoch that was opened, and no earlier seal may have closed it (`last_in_epoch`).
// @param record  `MOTESEAL_CHAIN_RECORD` bytes to make durable.
// @return `AlreadyOpen`, `EpochGoesBack`, `EpochOutOfRange`, `EpochClosed`, `IndexExhausted`.
//         After an error, nothing has changed.
moteseal_error moteseal_chain_open(moteseal_chain *chain,
                                   const moteseal_device *device,
                                   uint64_t epoch,
                                   uint8_t *record);

// Confirms that the record that `moteseal_chain_open` wrote is durable.
//
// @param record, length  The record, as read back from the memory that stores it.
// @return `Damaged` if it differs from what `moteseal_chain_open` wrote: write the record again,
//         at another address; `NotOpen`.
moteseal_error moteseal_chain_persisted(moteseal_chain *chain,
                                        const uint8_t *record,
                                        size_t length);

// Abandons the open seal: its events are never sealed, its index is not used again, and the next
// seal states that the device restarted.
//
// @return `NotOpen`.
moteseal_error moteseal_chain_abandon(moteseal_chain *chain);

// Writes the current record of a chain.
//
// @param record  `MOTESEAL_CHAIN_RECORD` bytes.
moteseal_error moteseal_chain_record(const moteseal_chain *chain, uint8_t *record);

// Begins a signing key from its secret bytes. Wipe your own copy of the bytes.
//
// @param algorithm_number  `MOTESEAL_ED25519` or `MOTESEAL_ESP256`.
// @param secret, length  32 bytes: the Ed25519 secret (RFC 8032), or the P-256 scalar, big-endian.
// @return `UnknownAlgorithm`, `KeyLength`, `InvalidSecretKey`.
moteseal_error moteseal_signing_key_from_bytes(moteseal_signing_key *key,
                                               uint8_t algorithm_number,
                                               const uint8_t *secret,
                                               size_t length);

// Begins a signing key from a key file: one PEM block of unencrypted PKCS#8, as `moteseal key new`
// and `openssl genpkey` write it.
//
// @return `MalformedPem`, `WrongPemLabel`, `MalformedDer`, `UnknownAlgorithm`, `InvalidSecretKey`,
//         `KeyPairMismatch`.
moteseal_error moteseal_signing_key_from_pem(moteseal_signing_key *key,
                                             const uint8_t *pem,
                                             size_t length);

// Reads a public key file: one PEM block of a SubjectPublicKeyInfo, as `moteseal key new` and
// `openssl pkey -pubout` write it.
//
// @param out, capacity  Receives the raw key: `MOTESEAL_MAX_PUBLIC_KEY` bytes suffice.
// @param key_algorithm  Receives `MOTESEAL_ED25519` or `MOTESEAL_ESP256`.
// @return `MalformedPem`, `WrongPemLabel`, `MalformedDer`, `UnknownAlgorithm`, `InvalidPublicKey`,
//         `BufferTooSmall`.
moteseal_error moteseal_public_key_from_pem(const uint8_t *pem,
                                            size_t pem_length,
                                            uint8_t *out,
                                            size_t capacity,
                                            size_t *length,
                                            uint8_t *key_algorithm);

// Returns the raw public key: 32 bytes for Ed25519, 65 bytes for P-256.
//
// @return `NotBegun`, `BufferTooSmall`.
moteseal_error moteseal_signing_key_public(const moteseal_signing_key *key,
                                           uint8_t *out,
                                           size_t capacity,
                                           size_t *length);

// Signs a message. Signing is deterministic: it needs no randomness, and the same message always
// gives the same signature.
//
// @param signature  `MOTESEAL_SIGNATURE` bytes.
// @return `NotBegun`.
moteseal_error moteseal_sign(const moteseal_signing_key *key,
                             const uint8_t *message,
                             size_t message_length,
                             uint8_t *signature);

// Overwrites a signing key with zeros. Null is allowed.
void moteseal_signing_key_wipe(moteseal_signing_key *key);

// Changes an ECDSA signature from a secure element into the form that verifiers accept: `s` in the
// lower half of the curve's order. Both forms are valid ECDSA signatures of the same message;
// about half of the signatures that most secure elements return have the other form.
//
// @param signature  `MOTESEAL_SIGNATURE` bytes, `r` then `s`, big-endian; changed in place.
// @return `MalformedSignature` if `r` or `s` is 0 or not below the order; `UnknownAlgorithm` if
//         P-256 is not built in.
moteseal_error moteseal_esp256_normalize(uint8_t *signature);

// Begins the keys of a schema's encrypted columns from the stream secret of the device.
//
// The secret opens all epochs of the device. Call this function once, where the device is
// provisioned, store the record (`moteseal_column_keys_record`), and erase the secret from the
// device. Without the secret, the device cannot open the epochs before `epoch`, and neither can a
// thief of the device.
//
// @param keys, size  Memory for the keys, aligned to 8 bytes, and its size in bytes:
//        `MOTESEAL_COLUMN_KEYS_SIZE(columns)` or more.
// @param schema, schema_length  The device's encoded schema.
// @param secret  The secret, 32 bytes: `NAME.stream.key` contains it as hexadecimal digits, then
//        the base epoch and the device's id.
// @param base_epoch  The base epoch of the secret.
// @param epoch  The first epoch that will be sealed. An epoch before the base epoch counts as the
//        base epoch.
// @return `KeyCount` (the schema has no encrypted columns), `BufferTooSmall` (it has more than
//         `size` has room for), `UnsupportedSuite` (a column needs AES-128, and the feature
//         `aes128` is not built in), `EpochOutOfKeyRange`, an error of schemas or of decoding. After
//         an error, the keys are not begun.
moteseal_error moteseal_column_keys_begin(moteseal_column_keys *keys,
                                          size_t size,
                                          const uint8_t *schema,
                                          size_t schema_length,
                                          const uint8_t *secret,
                                          uint64_t base_epoch,
                                          uint64_t epoch);

// Begins the keys from a stored record.
//
// @param keys, size  As in `moteseal_column_keys_begin`.
// @param schema, schema_length  The device's encoded schema.
// @param record, length  The newest stored record.
// @return `Damaged` if the record was erased, only partly written, or altered;
//         `UnsupportedVersion`; `WrongColumn` if the record is for other columns than those of the
//         schema; `MalformedKey`; `KeyCount`, `BufferTooSmall`, `UnsupportedSuite`, an error of
//         schemas or of decoding. After an error, the keys are not begun.
moteseal_error moteseal_column_keys_restore(moteseal_column_keys *keys,
                                            size_t size,
                                            const uint8_t *schema,
                                            size_t schema_length,
                                            const uint8_t *record,
                                            size_t length);

// Writes the record of the keys. It is secret.
//
// Store the record when the keys were begun, and again after each `moteseal_cipher_begin` for a
// later epoch. Then erase the record before it: a party that reads it can decrypt the epochs that have
// passed.
//
// @param out, capacity  `MOTESEAL_COLUMN_KEYS_OVERHEAD + columns * MOTESEAL_COLUMN_KEY` bytes.
// @param length  Receives the number of bytes written.
// @return `NotBegun`, `BufferTooSmall`.
moteseal_error moteseal_column_keys_record(const moteseal_column_keys *keys,
                                           uint8_t *out,
                                           size_t capacity,
                                           size_t *length);

// Returns the first epoch whose keys the state has. The keys of earlier epochs are erased.
//
// @return `NotBegun`.
moteseal_error moteseal_column_keys_epoch(const moteseal_column_keys *keys, uint64_t *epoch);

// Overwrites keys with zeros. Null is allowed.
//
// @param size  The size of the keys' memory in bytes.
void moteseal_column_keys_wipe(moteseal_column_keys *keys, size_t size);

// Begins the encryption of the chain's open seal, and erases the keys of all earlier epochs from
// `keys`. Afterwards store the record of the keys (`moteseal_column_keys_record`), and erase the
// record before it.
//
// @param cipher, size  Memory for the cipher, aligned to 8 bytes, and its size in bytes:
//        `MOTESEAL_CIPHER_SIZE(columns)` or more.
// @param keys  The keys of the device's encrypted columns.
// @param device  The device.
// @param chain  A chain with an open seal. `moteseal_chain_persisted` must have confirmed its
//        record.
// @param schema, schema_length  The device's encoded schema.
// @param nonce  12 random bytes, other ones for every seal. A mote without a generator gets 12
//        random bytes each time it is provisioned, and combines them by exclusive or with a number
//        that it increments in flash at each start, and with the seal's index. If its flash is
//        restored from a copy, it may use a key stream twice, which shows the differences of
//        readings to others.
// @return `NotBegun`, `NotOpen`, `NotPersisted`, `BufferTooSmall`, `NotOfThisSeal` (the schema is not
//         the device's), `WrongColumn` (the keys are for another schema), `SequenceReused` (a cipher
//         of this seal was begun with these keys before, so events would be encrypted twice),
//         `KeyErased` (the keys of the epoch have been erased), `EpochOutOfKeyRange`, an error of
//         schemas or of decoding. After an error, the cipher is not begun.
moteseal_error moteseal_cipher_begin(moteseal_cipher *cipher,
                                     size_t size,
                                     moteseal_column_keys *keys,
                                     const moteseal_device *device,
                                     moteseal_chain *chain,
                                     const uint8_t *schema,
                                     size_t schema_length,
                                     const uint8_t *nonce);

// Encrypts the encrypted columns of an event, in place. Then push the event to the star or tree,
// and store it: everything but your own reading of it is ciphertext from now on.
//
// Check an event with columns of the types bool, enum, point or text before
// (`moteseal_record_check`).
//
// @param sequence  The sequence number that the event gets in the seal, counted from 0: the number
//        of events pushed before it. All events of a seal are encrypted, in order, each once.
// @param event, length  The event in the schema's format.
// @return `NotBegun`, `WrongLength`, `SequenceReused`, `NotEncrypted` (the event before was not
//         encrypted), `RecordLength` (a text extends past the event), `KeyStreamEnd` (the seal has
//         too many events for AES-128). After `WrongLength`, `SequenceReused` and `NotEncrypted`,
//         nothing has changed. After another error, do not push the event, and close the seal.
moteseal_error moteseal_cipher_encrypt(moteseal_cipher *cipher,
                                       uint32_t sequence,
                                       uint8_t *event,
                                       size_t length);

// Overwrites a cipher with zeros. Null is allowed.
//
// @param size  The size of the cipher's memory in bytes.
void moteseal_cipher_wipe(moteseal_cipher *cipher, size_t size);

// Begins the star of the chain's open seal.
//
// @param star, size  Memory for the star, aligned to 8 bytes, and its size in bytes:
//        `MOTESEAL_STAR_SIZE(device->levels)` or more.
// @param chain  A chain with an open seal. `moteseal_chain_persisted` must have confirmed its
//        record.
// @param salt_key  32 secret bytes, uniformly random, for this device only and independent of its
//        signing key. `moteseal key new` writes them to `NAME.salt.key`, as hexadecimal digits. An
//        attacker who knows them can choose which events are sampled. The star keeps no copy of
//        them.
// @return `BufferTooSmall` (`size` is less than `MOTESEAL_STAR_SIZE(1)`), `NotOpen`,
//         `NotPersisted`, `LevelsOutOfRange` (the device has no valid number of levels, or more
//         than `size` has room for), `UnknownAlgorithm`, `ColumnGroups` (the device has column groups:
//         use a `moteseal_grouped_star`).
moteseal_error moteseal_star_begin(moteseal_star *star,
                                   size_t size,
                                   const moteseal_device *device,
                                   moteseal_chain *chain,
                                   const uint8_t *salt_key);

// Adds the next event. The star keeps digests only: store the event itself elsewhere if you want
// to send it.
//
// @param event, length  The event in the schema's format: `record_size` bytes, or 0 to 65,535
//        bytes if `record_size` is 0.
// @param level  May be null. Receives the event's level, which is secret until the seal is sent.
// @return `NotBegun`, `WrongLength`, `Full` (2^32 - 1 events). After an error, nothing
//         has changed.
moteseal_error moteseal_star_push(moteseal_star *star,
                                  const uint8_t *event,
                                  size_t length,
                                  uint8_t *level);

// Returns the number of events in the star.
moteseal_error moteseal_star_count(const moteseal_star *star, uint32_t *events);

// Ends the star and begins its seal, which you sign next.
//
// @param last_in_epoch  1 if no further seal will cover this epoch, 0 if one may.
// @param answers  May be null. The query epochs that the device has answered and that no earlier
//        seal states.
// @param cipher  The cipher of this seal if the device has encrypted columns; otherwise null.
// @param seal  Begun on success. The function then also wipes the star; use its memory for the
//        next seal.
// @return `NotBegun`, `NotOpen`, `NotOfThisSeal` (the chain has another open seal, or the cipher is
//         for another one), `NoStreamSecret` (the cipher is missing), `NotEncrypted` (the cipher has
//         encrypted fewer events than were pushed), `FieldOutOfRange` (`last_in_epoch`). After an
//         error, nothing has changed.
moteseal_error moteseal_star_close(moteseal_star *star,
                                   const moteseal_device *device,
                                   moteseal_chain *chain,
                                   uint8_t last_in_epoch,
                                   const moteseal_answers *answers,
                                   const moteseal_cipher *cipher,
                                   moteseal_seal *seal);

// Overwrites a star with zeros. Null is allowed.
//
// @param size  The size of the star's memory in bytes.
void moteseal_star_wipe(moteseal_star *star, size_t size);

// Begins the star of the chain's open seal, for a device with column groups.
//
// @param star, size  Memory for the star, aligned to 8 bytes, and its size in bytes:
//        `MOTESEAL_GROUPED_STAR_SIZE(levels * groups)` or more.
// @param chain  A chain with an open seal. `moteseal_chain_persisted` must have confirmed its
//        record.
// @param salt_key  32 secret bytes, as for `moteseal_star_begin`.
// @param schema, schema_length  The device's encoded schema.
// @return `BufferTooSmall` (`size` is less than `MOTESEAL_GROUPED_STAR_SIZE(1)`), `NotOpen`,
//         `NotPersisted`, `LevelsOutOfRange` (the device has no valid number of levels, or `size` has
//         no room for a digest for each level and group), `UnknownAlgorithm`, `NotOfThisSeal` (the
//         schema is not the device's), `ColumnGroups` (the schema has no column groups), an error of
//         schemas or of decoding.
moteseal_error moteseal_grouped_star_begin(moteseal_grouped_star *star,
                                           size_t size,
                                           const moteseal_device *device,
                                           moteseal_chain *chain,
                                           const uint8_t *salt_key,
                                           const uint8_t *schema,
                                           size_t schema_length);

// Adds the next event. The star keeps digests only: store the event itself elsewhere if you want
// to send it.
//
// @param event, length  The event in the schema's format, encrypted with `moteseal_cipher_encrypt`:
//        `record_size` bytes, or up to 65,535 bytes if `record_size` is 0.
// @param level  May be null. Receives the event's level, which is secret until the seal is sent.
// @return `NotBegun`, `WrongLength`, `Full` (2^32 - 1 events). After an error, nothing
//         has changed.
moteseal_error moteseal_grouped_star_push(moteseal_grouped_star *star,
                                          const uint8_t *event,
                                          size_t length,
                                          uint8_t *level);

// Returns the number of events in the star.
moteseal_error moteseal_grouped_star_count(const moteseal_grouped_star *star, uint32_t *events);

// Ends the star and begins its seal, which you sign next.
//
// @param last_in_epoch, answers, cipher, seal  As for `moteseal_star_close`.
// @return As `moteseal_star_close`; also `NotOfThisSeal` if the device has another schema. After an
//         error, nothing has changed.
moteseal_error moteseal_grouped_star_close(moteseal_grouped_star *star,
                                           const moteseal_device *device,
                                           moteseal_chain *chain,
                                           uint8_t last_in_epoch,
                                           const moteseal_answers *answers,
                                           const moteseal_cipher *cipher,
                                           moteseal_seal *seal);

// Overwrites a star with zeros. Null is allowed.
//
// @param size  The size of the star's memory in bytes.
void moteseal_grouped_star_wipe(moteseal_grouped_star *star, size_t size);

// Begins the tree of the chain's open seal.
//
// @param tree, size  Memory for the tree, aligned to 8 bytes, and its size in bytes:
//        `MOTESEAL_TREE_SIZE(height)`.
// @param chain  A chain with an open seal. `moteseal_chain_persisted` must have confirmed its
//        record.
// @param salt_key  32 secret bytes, uniformly random, for this device only and independent of its
//        signing key. `moteseal key new` writes them to `NAME.salt.key`, as hexadecimal digits. An
//        attacker who knows them can choose which events are sampled. The tree keeps no copy of
//        them.
// @return `BufferTooSmall` (`size` is less than `MOTESEAL_TREE_SIZE(1)`), `NotOpen`,
//         `NotPersisted`, `LevelsOutOfRange`, `UnknownAlgorithm`, `ColumnGroups` (the device has
//         column groups: use a `moteseal_grouped_star`).
moteseal_error moteseal_tree_begin(moteseal_tree *tree,
                                   size_t size,
                                   const moteseal_device *device,
                                   moteseal_chain *chain,
                                   const uint8_t *salt_key);

// Adds the next event. The tree keeps digests only: store the event itself elsewhere if you want
// to send it.
//
// @param event, length  The event in the schema's format: `record_size` bytes, or 0 to 65,535
//        bytes if `record_size` is 0.
// @param level  May be null. Receives the event's level, which is secret until the seal is sent.
// @return `NotBegun`, `WrongLength`, `TreeFull` (2^height - 1 events). After an error, nothing
//         has changed.
moteseal_error moteseal_tree_push(moteseal_tree *tree,
                                  const uint8_t *event,
                                  size_t length,
                                  uint8_t *level);

// Returns the number of events in the tree.
moteseal_error moteseal_tree_count(const moteseal_tree *tree, uint32_t *events);

// Ends the tree and begins its seal, which you sign next.
//
// @param last_in_epoch  1 if no further seal will cover this epoch, 0 if one may.
// @param answers  May be null. The query epochs that the device has answered and that no earlier
//        seal states.
// @param cipher  The cipher of this seal if the device has encrypted columns; otherwise null.
// @param seal  Begun on success. The function then also wipes the tree; use its memory for the
//        next seal.
// @return `NotBegun`, `NotOpen`, `NotOfThisSeal` (the chain has another open seal, or the cipher is
//         for another one), `NoStreamSecret` (the cipher is missing), `NotEncrypted` (the cipher has
//         encrypted fewer events than were pushed), `FieldOutOfRange` (`last_in_epoch`). After an
//         error, nothing has changed.
moteseal_error moteseal_tree_close(moteseal_tree *tree,
                                   const moteseal_device *device,
                                   moteseal_chain *chain,
                                   uint8_t last_in_epoch,
                                   const moteseal_answers *answers,
                                   const moteseal_cipher *cipher,
                                   moteseal_seal *seal);

// Overwrites a tree with zeros. Null is allowed.
//
// @param size  The size of the tree's memory in bytes.
void moteseal_tree_wipe(moteseal_tree *tree, size_t size);

// Adds a query epoch that the device answered. `moteseal_permit_info` returns its query and epoch.
//
// @param query  16 bytes.
// @return `Full` if the set already holds as many answers as one seal can state: close the seal,
//         clear the set, and add the answer again.
moteseal_error moteseal_answers_add(moteseal_answers *answers,
                                    const uint8_t *query,
                                    uint64_t epoch);

// Removes all answers, once the seal that states them is durable. Null is allowed.
void moteseal_answers_clear(moteseal_answers *answers);

// Returns the properties of a seal.
//
// @return `NotBegun`.
moteseal_error moteseal_seal_info_of(const moteseal_seal *seal, moteseal_seal_info *info);

// Returns the level of an event. The part of a star contains the events of the highest level
// first, then those of the next lower level, and so on; within a level, events are in the order in
// which they were pushed.
//
// @param sequence  The event's sequence number in the seal, counted from 0.
// @return `NotBegun`, `FieldOutOfRange` if there is no such event.
moteseal_error moteseal_seal_level(const moteseal_seal *seal, uint32_t sequence, uint8_t *level);

// Writes the bytes to sign: pass them to `moteseal_sign`, a secure element or another signer. If a
// secure element for P-256 expects a digest, pass it the SHA-256 digest of these bytes. Ed25519
// signs the bytes themselves.
//
// @param out, capacity  `MOTESEAL_MAX_MESSAGE` bytes suffice.
// @return `NotBegun`, `BufferTooSmall`.
moteseal_error moteseal_seal_message(const moteseal_seal *seal,
                                     uint8_t *out,
                                     size_t capacity,
                                     size_t *length);

// Checks a signature of the seal with a public key. Do this once for each new signer, to detect a
// faulty signer before verifiers reject its seals.
//
// @param key, key_length  The raw public key, of the device's algorithm.
// @param signature, signature_length  The signature from the signer.
// @return `KeyLength`, `InvalidPublicKey`, `AlgorithmMismatch`, `MalformedSignature`, `HighS` (use
//         `moteseal_esp256_normalize`), `NotAuthentic`.
moteseal_error moteseal_seal_check(const moteseal_seal *seal,
                                   uint8_t key_algorithm,
                                   const uint8_t *key,
                                   size_t key_length,
                                   const uint8_t *signature,
                                   size_t signature_length);

// Advances the chain past a signed seal. Make `record` durable together with the data to send, and
// send the data only afterwards. A mote that sends a seal and then loses the record would make
// another seal with the same index.
//
// @param record  `MOTESEAL_CHAIN_RECORD` bytes to make durable.
// @return `NotBegun`, `NotOpen`, `NotOfThisSeal`. After an error, nothing has changed.
moteseal_error moteseal_seal_commit(const moteseal_seal *seal,
                                    moteseal_chain *chain,
                                    uint8_t *record);

// Writes a schema item. It is the first item of a bundle, and the first item to send to a receiver
// that does not have the schema.
//
// @param schema, schema_length  The encoded schema that `moteseal_device_set_schema` checked; this
//        function does not read it.
// @param out, capacity  The length of the schema plus 16 bytes suffices.
// @return `BufferTooSmall`.
moteseal_error moteseal_schema_item(const uint8_t *schema,
                                    size_t schema_length,
                                    uint8_t *out,
                                    size_t capacity,
                                    size_t *length);

// Writes the seal's open item, which is the second item of a bundle: it states the device and its
// chain's position before this seal.
//
// @param out, capacity  `MOTESEAL_MAX_OPEN` bytes suffice.
// @return `NotBegun`, `BufferTooSmall`.
moteseal_error moteseal_open_item(const moteseal_seal *seal,
                                  uint8_t *out,
                                  size_t capacity,
                                  size_t *length);

// Writes the head of the seal's part item: everything before its events. A mote that streams the
// events from flash sends the head, then the events, then the tail.
//
// Send the same bytes of each event that were pushed; if `record_size` is 0, send the event's
// length before it (two bytes, big-endian). Send the events of a tree in the order in which they
// were pushed, and those of a star level by level, the highest level first
// (`moteseal_seal_level`).
//
// @param events_length  The total length of all events in bytes, including their length fields.
// @param out, capacity  `MOTESEAL_PART_OVERHEAD` bytes suffice.
// @return `NotBegun`, `EventsLength` if the sealed events cannot have this total length,
//         `BufferTooSmall`.
moteseal_error moteseal_part_head(const moteseal_seal *seal,
                                  size_t events_length,
                                  uint8_t *out,
                                  size_t capacity,
                                  size_t *length);

// Writes the end of the seal's part item, which contains the signature over the bytes that
// `moteseal_seal_message` returned.
//
// @param signature, signature_length  `MOTESEAL_SIGNATURE` bytes.
// @param out, capacity  `MOTESEAL_SIGNATURE + 8` bytes suffice.
// @return `NotBegun`, `MalformedSignature`, `BufferTooSmall`.
moteseal_error moteseal_part_tail(const moteseal_seal *seal,
                                  const uint8_t *signature,
                                  size_t signature_length,
                                  uint8_t *out,
                                  size_t capacity,
                                  size_t *length);

// Writes the bundle of a seal, a `.mseal` file for `moteseal verify` and `moteseal push`: the
// schema, the open item, and the part with all events and the signature.
//
// @param schema, schema_length  The schema of the device.
// @param records, records_length  All events in the order in which they were pushed, without gaps.
//        If `record_size` is 0, each event has its length before it (two bytes, big-endian).
// @param signature, signature_length  The signature over the bytes that `moteseal_seal_message`
//        returned.
// @param out, capacity  `MOTESEAL_BUNDLE_OVERHEAD + schema_length + records_length` bytes suffice.
//        It must not overlap the records.
// @return `NotBegun`, `MalformedSignature`, `EventsLength` if the number of events is not what was
//         sealed, `NotOfThisSeal` if the schema is not the seal's, `BufferTooSmall`. The function
//         does not check that the records are the events that were pushed.
moteseal_error moteseal_bundle(const moteseal_seal *seal,
                               const uint8_t *schema,
                               size_t schema_length,
                               const uint8_t *records,
                               size_t records_length,
                               const uint8_t *signature,
                               size_t signature_length,
                               uint8_t *out,
                               size_t capacity,
                               size_t *length);

// Writes a seal without its events as a signed object: a tagged COSE_Sign1 (RFC 9052).
//
// @param out, capacity  `MOTESEAL_MAX_OBJECT` bytes suffice.
// @return `NotBegun`, `MalformedSignature`, `BufferTooSmall`.
moteseal_error moteseal_seal_object(const moteseal_seal *seal,
                                    const uint8_t *signature,
                                    size_t signature_length,
                                    uint8_t *out,
                                    size_t capacity,
                                    size_t *length);

// Overwrites a seal with zeros. Null is allowed.
void moteseal_seal_wipe(moteseal_seal *seal);

// Writes the bytes to sign for an urgent event that is part of the chain's open seal.
//
// @param cipher  The cipher of the open seal if the device has encrypted columns; otherwise null.
//        It must have encrypted the event.
// @param sequence  The event's sequence number in the seal, counted from 0: the number of events
//        pushed before it. You must also push the event, so that it gets this number.
// @param out, capacity  `MOTESEAL_URGENT_OVERHEAD + event_length` bytes suffice.
// @return `NotOpen`, `NotPersisted`, `NoStreamSecret`, `NotOfThisSeal` (the cipher is for another
//         seal), `NotEncrypted` (the cipher has not encrypted the event), `WrongLength`,
//         `BufferTooSmall`.
moteseal_error moteseal_urgent_message(const moteseal_device *device,
                                       moteseal_chain *chain,
                                       const moteseal_cipher *cipher,
                                       uint32_t sequence,
                                       const uint8_t *event,
                                       size_t event_length,
                                       uint8_t *out,
                                       size_t capacity,
                                       size_t *length);

// Writes a signed urgent event, ready to be sent: a tagged COSE_Sign1 (RFC 9052).
//
// @param signature, signature_length  The signature over `moteseal_urgent_message` with the same
//        arguments.
// @param out, capacity  `MOTESEAL_URGENT_OVERHEAD + event_length` bytes suffice.
// @return `NotOpen`, `NotPersisted`, `NoStreamSecret`, `NotOfThisSeal`, `NotEncrypted`,
//         `WrongLength`, `MalformedSignature`, `BufferTooSmall`.
moteseal_error moteseal_urgent_object(const moteseal_device *device,
                                      moteseal_chain *chain,
                                      const moteseal_cipher *cipher,
                                      uint32_t sequence,
                                      const uint8_t *event,
                                      size_t event_length,
                                      const uint8_t *signature,
                                      size_t signature_length,
                                      uint8_t *out,
                                      size_t capacity,
                                      size_t *length);

// Begins a source from its key file (`NAME.sum.key`, which `moteseal sum setup` writes).
//
// @param device  The device. The key file must be for this device.
// @param pem, length  The file's bytes. Wipe your copy afterwards.
// @return `MalformedPem`, `WrongPemLabel`, `WrongGroup`, `UnknownDevice` (another device's file),
//         `PolicyMissing` (the set-up made masks, which this library does not support), or
//         an error of decoding or of keys.
moteseal_error moteseal_sum_source_from_key_file(moteseal_sum_source *source,
                                                 const moteseal_device *device,
                                                 const uint8_t *pem,
                                                 size_t length);

// Begins a source from its 64 secret bytes: the device's secret (32 bytes), then the secret of the
// device's key group (32 bytes). Wipe your own copy.
//
// @return `KeyLength`.
moteseal_error moteseal_sum_source_from_bytes(moteseal_sum_source *source,
                                              const uint8_t *secret,
                                              size_t length);

// Overwrites a source's secrets with zeros. Null is allowed.
void moteseal_sum_source_wipe(moteseal_sum_source *source);

// Derives the source's keys for a query. Call it once for each query.
//
// @param query  The query's id: 16 bytes.
// @return `NotBegun`.
moteseal_error moteseal_sum_key_begin(moteseal_sum_key *key,
                                      const moteseal_sum_source *source,
                                      const uint8_t *query);

// Overwrites a query's keys with zeros. Null is allowed.
void moteseal_sum_key_wipe(moteseal_sum_key *key);

// Begins the guard of a source that has never answered a query, because its keys are new.
moteseal_error moteseal_guard_start(moteseal_guard *guard);

// Begins the guard of a source that may have answered queries but has lost its guard's record. The
// guard permits no epoch that starts before `floor_ms`, in milliseconds since 1970. Use the
// present time if no attacker can set the clock back.
moteseal_error moteseal_guard_start_at(moteseal_guard *guard, uint64_t floor_ms);

// Begins a guard from its record.
//
// @param bytes_of_record, length  The newest stored record, `MOTESEAL_GUARD_RECORD` bytes. With an
//        older record, the guard would permit an epoch twice.
// @return `Damaged` if the record was erased, only partly written, or altered; `Truncated` or
//         `TrailingBytes` if it has another length; `UnsupportedVersion`, `NonCanonical`.
moteseal_error moteseal_guard_restore(moteseal_guard *guard,
                                      const uint8_t *bytes_of_record,
                                      size_t length);

// Permits one epoch of a query. The guard never again permits this epoch or an earlier one.
//
// Make the guard's record durable, read it back and pass it to `moteseal_permit_persisted`. Until
// then, `moteseal_sum_encrypt` fails.
//
// @param query  16 bytes.
// @param duration_ms  The length of the query's epochs in milliseconds: epoch `e` starts at `e *
//        duration_ms`.
// @param record_out  `MOTESEAL_GUARD_RECORD` bytes to make durable.
// @return `EpochAnswered`, `TooOld`, `DurationMismatch`, `EpochOutOfRange`. After an error,
//         nothing has changed.
moteseal_error moteseal_guard_advance(moteseal_guard *guard,
                                      const uint8_t *query,
                                      uint64_t duration_ms,
                                      uint64_t epoch,
                                      moteseal_permit *permit,
                                      uint8_t *record_out);

// Confirms that the guard's record, which contains the permitted epoch, is durable.
//
// @param guard  The guard that gave the permit. It must not have changed since.
// @param bytes_of_record, length  The record, as read back from the memory that stores it.
// @return `Damaged` if the bytes are not the guard's current record: write the record again, at
//         another address.
moteseal_error moteseal_permit_persisted(moteseal_permit *permit,
                                         const moteseal_guard *guard,
                                         const uint8_t *bytes_of_record,
                                         size_t length);

// Returns the query and the epoch of a permit. Pass them to `moteseal_answers_add` once the epoch
// is answered.
//
// @param query  Receives 16 bytes.
moteseal_error moteseal_permit_info(const moteseal_permit *permit, uint8_t *query, uint64_t *epoch);

// Encrypts the value of one slot: `value_high * 2^64 + value_low`, below 2^96 - 1.
//
// @param slot  The slot's number in the query, counted from 0. A source answers every slot of a
//        query, with the value 0 if its reading does not match the query.
// @param psr  Receives `MOTESEAL_PSR` bytes.
// @return `NotBegun`, `NotPersisted`, `WrongQuery`, `ValueTooLarge`, `SlotUsed`. After an error,
//         nothing was encrypted.
moteseal_error moteseal_sum_encrypt(const moteseal_sum_key *key,
                                    moteseal_permit *permit,
                                    uint8_t slot,
                                    uint32_t value_high,
                                    uint64_t value_low,
                                    uint8_t *psr);

// Adds one partial state record to another. Only a mote that aggregates the records of other
// sources needs this.
//
// @param sum  `MOTESEAL_PSR` bytes, changed in place. Begin with zeros: they are the empty sum.
// @param psr  `MOTESEAL_PSR` bytes.
// @return `NonCanonical` if `sum` or `psr` is not a valid record.
moteseal_error moteseal_psr_add(uint8_t *sum, const uint8_t *psr);

// Overwrites a permit with zeros. It then permits nothing. Null is allowed.
void moteseal_permit_wipe(moteseal_permit *permit);

// Begins a base station from its public key.
//
// @param key, key_length  The raw key.
// @param network  The network's id, 8 bytes; null if the network has only this base station.
// @return `UnknownAlgorithm`, `KeyLength`, `InvalidPublicKey`.
moteseal_error moteseal_base_begin(moteseal_base *base,
                                   uint8_t key_algorithm,
                                   const uint8_t *key,
                                   size_t key_length,
                                   const uint8_t *network);

// Checks a sender's certificate and begins the sender.
//
// @param certificate, length  The certificate (`moteseal key certify`, or the body of a
//        certificate frame).
// @param now  Seconds since 1970; 0 if there is no clock: the function then checks only the
//        serial, not the dates.
// @param revoked  What the base station has revoked, as `moteseal_revocation_open` returned it
//        last, or NULL if there was no revocation.
// @return `WrongNetwork`, `UnknownBaseStation`, `NotAuthentic`, `NotYetValid`, `Expired`,
//         `Revoked`, or an error of decoding or of keys.
moteseal_error moteseal_sender_open(moteseal_sender *sender,
                                    const moteseal_base *base,
                                    const uint8_t *certificate,
                                    size_t length,
                                    uint64_t now,
                                    const moteseal_revoked *revoked);

// Returns the identity of a sender.
//
// @param id  Receives the sender's id: 8 bytes.
// @param serial  Receives the serial of the sender's certificate.
moteseal_error moteseal_sender_info(const moteseal_sender *sender, uint8_t *id, uint64_t *serial);

// Checks a revocation.
//
// @param revoked  What the base station has revoked so far: zeros at first. Receives what it has
//        revoked now. Store it durably before you act on it.
// @return `WrongNetwork`, `UnknownBaseStation`, `NotAuthentic`, a decoding error, or
//         `Superseded` if the revocation is older than the one in `revoked`.
moteseal_error moteseal_revocation_open(const moteseal_base *base,
                                        const uint8_t *revocation,
                                        size_t length,
                                        moteseal_revoked *revoked);

// Checks a live command: a frame that contains a whole chain of one message. The check verifies
// one signature.
//
// @param sender  The sender that must have signed the frame.
// @param datagram, length  The whole frame.
// @param floor  The highest chain number accepted so far under this sender's key; null if there is
//        none.
// @param single  Receives the message; its pointers point into `datagram`. Make `single->number`
//        durable as the new floor before you act on the message.
// @return `NotSingle`, `WrongNetwork`, `WrongSender`, `WrongKey`, `NotAuthentic`, `ForgedLeaf`,
//         `ChainGoesBack`, `UnknownItem` (the message is encrypted for named receivers; this library
//         does not decrypt), or a decoding error.
moteseal_error moteseal_single_open(const moteseal_sender *sender,
                                    const uint8_t *datagram,
                                    size_t length,
                                    const uint64_t *floor,
                                    moteseal_single *single);

// Decodes the frame in a datagram. The function checks the frame's encoding only, not its
// signatures or digests.
//
// @param frame  Its pointers point into `datagram`, which must stay unchanged as long as you use
//        the frame.
// @return A decoding error; `UnknownItem` if the datagram is not a frame of a known kind, or is one
//         of a receiver that shares a key with the sender, which this library does not support.
moteseal_error moteseal_frame_read(const uint8_t *datagram, size_t length, moteseal_frame *frame);

// Checks the head of a chain, including its signature, and begins the chain's receiver. Make
// `info->number` durable as the sender's new floor, read it back and pass it to
// `moteseal_broadcast_persisted`. Until then, the receiver accepts no leaf.
//
// @param broadcast, size  Memory for the receiver, aligned to 8 bytes, and its size in bytes:
//        `MOTESEAL_BROADCAST_SIZE(block)`.
// @param sender  The sender that must have signed the head.
// @param head, length  The body of a head frame.
// @param floor  The highest chain number accepted so far under this sender's key; null if there is
//        none.
// @param info  Receives the chain's properties; `info->label` points into `head`.
// @return `BufferTooSmall` (`size` is less than `MOTESEAL_BROADCAST_SIZE(1)`), `ChainGoesBack`
//         (found before the signature is checked), `WrongNetwork`, `WrongSender`, `WrongKey`,
//         `NotAuthentic`, `BlockTooLarge` (the chain's blocks have more messages than fit in
//         `size`), `UnknownItem` (the chain is encrypted for named receivers; this library does not
//         decrypt), or a decoding error. After an error, nothing has changed.
moteseal_error moteseal_broadcast_begin(moteseal_broadcast *broadcast,
                                        size_t size,
                                        const moteseal_sender *sender,
                                        const uint8_t *head,
                                        size_t length,
                                        const uint64_t *floor,
                                        moteseal_head_info *info);

// Confirms that the chain's number is durable.
//
// @param number  The number, as read back from the memory that stores the floor.
// @return `Damaged` if it is not the chain's number.
moteseal_error moteseal_broadcast_persisted(moteseal_broadcast *broadcast, uint64_t number);

// Checks a leaf; this computes one hash. The leaves of a block may arrive in any order; blocks
// must arrive in order.
//
// @param frame  A leaf frame, from `moteseal_frame_read`.
// @param taken  Receives the result; `taken->message` points into the frame's bytes.
// @return `NotPersisted`, `UnknownItem` (not a leaf frame), `WrongChain`, `NotThisBlock`,
//         `IndexOutOfRange`, `LeafTooLong`, `LeafTooShort`, `ForgedLeaf`: nothing has changed.
//         `BlockMismatch`: discard all stored leaves of the block.
moteseal_error moteseal_broadcast_take(moteseal_broadcast *broadcast,
                                       const moteseal_frame *frame,
                                       moteseal_taken *taken);

// Returns which leaves are missing.
//
// @param block  Receives the number of the current block, counted from 1. When the chain is
//        complete, this is the number of its blocks plus 1.
// @param mask  Receives the missing leaves of that block: bit `j` for leaf `j`. 0 if the chain is
//        complete.
moteseal_error moteseal_broadcast_missing(const moteseal_broadcast *broadcast,
                                          uint32_t *block,
                                          uint64_t *mask);

// Writes the frame that requests the missing leaves. Send it rarely, after a random delay, and not
// if another node has just requested the same leaves.
//
// @param out, capacity  `MOTESEAL_MAX_WANTED` bytes suffice.
moteseal_error moteseal_broadcast_wanted(const moteseal_broadcast *broadcast,
                                         uint8_t *out,
                                         size_t capacity,
                                         size_t *length);

// Writes a snapshot with which the receiver can continue after a reboot: its position after the
// last verified block. A snapshot is not authenticated: store it where no other device can write.
//
// @param out, capacity  `MOTESEAL_MAX_SNAPSHOT` bytes suffice.
// @return `NotBegun`, `NotPersisted`, `BufferTooSmall`.
moteseal_error moteseal_broadcast_save(const moteseal_broadcast *broadcast,
                                       uint8_t *out,
                                       size_t capacity,
                                       size_t *length);

// Begins a receiver at the position of a snapshot.
//
// @param broadcast, size  As for `moteseal_broadcast_begin`.
// @return `BufferTooSmall`; a decoding error; `FieldOutOfRange` if the chain's blocks have more
//         messages than fit in `size`. After an error the receiver is not begun.
moteseal_error moteseal_broadcast_restore(moteseal_broadcast *broadcast,
                                          size_t size,
                                          const uint8_t *snapshot,
                                          size_t length);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* MOTESEAL_H */

/* The sizes and alignments with which the library was compiled. Compilation fails if your compiler lays out the structs differently. */
#if defined(__cplusplus)
#define MOTESEAL_ASSERT(condition, text) static_assert(condition, text)
#define MOTESEAL_ALIGNOF(type) alignof(type)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define MOTESEAL_ASSERT(condition, text) _Static_assert(condition, text)
#define MOTESEAL_ALIGNOF(type) _Alignof(type)
#endif
#ifdef MOTESEAL_ASSERT
MOTESEAL_ASSERT(sizeof(moteseal_device) == (sizeof(void *) == 8 ? 160 : 160), "moteseal_device");
MOTESEAL_ASSERT(MOTESEAL_ALIGNOF(moteseal_device) == (sizeof(void *) == 8 ? 8 : 8), "moteseal_device");
MOTESEAL_ASSERT(sizeof(moteseal_chain) == (sizeof(void *) == 8 ? 128 : 128), "moteseal_chain");
MOTESEAL_ASSERT(MOTESEAL_ALIGNOF(moteseal_chain) == (sizeof(void *) == 8 ? 8 : 8), "moteseal_chain");
MOTESEAL_ASSERT(sizeof(moteseal_signing_key) == (sizeof(void *) == 8 ? 256 : 256), "moteseal_signing_key");
MOTESEAL_ASSERT(MOTESEAL_ALIGNOF(moteseal_signing_key) == (sizeof(void *) == 8 ? 8 : 8), "moteseal_signing_key");
MOTESEAL_ASSERT(sizeof(moteseal_answers) == (sizeof(void *) == 8 ? 336 : 336), "moteseal_answers");
MOTESEAL_ASSERT(MOTESEAL_ALIGNOF(moteseal_answers) == (sizeof(void *) == 8 ? 8 : 8), "moteseal_answers");
MOTESEAL_ASSERT(sizeof(moteseal_seal) == (sizeof(void *) == 8 ? 1200 : 1200), "moteseal_seal");
MOTESEAL_ASSERT(MOTESEAL_ALIGNOF(moteseal_seal) == (sizeof(void *) == 8 ? 8 : 8), "moteseal_seal");
MOTESEAL_ASSERT(sizeof(moteseal_sum_source) == (sizeof(void *) == 8 ? 72 : 72), "moteseal_sum_source");
MOTESEAL_ASSERT(MOTESEAL_ALIGNOF(moteseal_sum_source) == (sizeof(void *) == 8 ? 8 : 8), "moteseal_sum_source");
MOTESEAL_ASSERT(sizeof(moteseal_sum_key) == (sizeof(void *) == 8 ? 88 : 88), "moteseal_sum_key");
MOTESEAL_ASSERT(MOTESEAL_ALIGNOF(moteseal_sum_key) == (sizeof(void *) == 8 ? 8 : 8), "moteseal_sum_key");
MOTESEAL_ASSERT(sizeof(moteseal_guard) == (sizeof(void *) == 8 ? 336 : 336), "moteseal_guard");
MOTESEAL_ASSERT(MOTESEAL_ALIGNOF(moteseal_guard) == (sizeof(void *) == 8 ? 8 : 8), "moteseal_guard");
MOTESEAL_ASSERT(sizeof(moteseal_permit) == (sizeof(void *) == 8 ? 48 : 48), "moteseal_permit");
MOTESEAL_ASSERT(MOTESEAL_ALIGNOF(moteseal_permit) == (sizeof(void *) == 8 ? 8 : 8), "moteseal_permit");
MOTESEAL_ASSERT(sizeof(moteseal_base) == (sizeof(void *) == 8 ? 224 : 224), "moteseal_base");
MOTESEAL_ASSERT(MOTESEAL_ALIGNOF(moteseal_base) == (sizeof(void *) == 8 ? 8 : 8), "moteseal_base");
MOTESEAL_ASSERT(sizeof(moteseal_sender) == (sizeof(void *) == 8 ? 240 : 240), "moteseal_sender");
MOTESEAL_ASSERT(MOTESEAL_ALIGNOF(moteseal_sender) == (sizeof(void *) == 8 ? 8 : 8), "moteseal_sender");
MOTESEAL_ASSERT(sizeof(moteseal_frame) == (sizeof(void *) == 8 ? 56 : 40), "moteseal_frame");
MOTESEAL_ASSERT(MOTESEAL_ALIGNOF(moteseal_frame) == (sizeof(void *) == 8 ? 8 : 8), "moteseal_frame");
MOTESEAL_ASSERT(sizeof(moteseal_head_info) == (sizeof(void *) == 8 ? 64 : 56), "moteseal_head_info");
MOTESEAL_ASSERT(MOTESEAL_ALIGNOF(moteseal_head_info) == (sizeof(void *) == 8 ? 8 : 8), "moteseal_head_info");
MOTESEAL_ASSERT(sizeof(moteseal_taken) == (sizeof(void *) == 8 ? 24 : 16), "moteseal_taken");
MOTESEAL_ASSERT(MOTESEAL_ALIGNOF(moteseal_taken) == (sizeof(void *) == 8 ? 8 : 4), "moteseal_taken");
MOTESEAL_ASSERT(sizeof(moteseal_single) == (sizeof(void *) == 8 ? 64 : 48), "moteseal_single");
MOTESEAL_ASSERT(MOTESEAL_ALIGNOF(moteseal_single) == (sizeof(void *) == 8 ? 8 : 8), "moteseal_single");
MOTESEAL_ASSERT(sizeof(moteseal_seal_info) == (sizeof(void *) == 8 ? 56 : 56), "moteseal_seal_info");
MOTESEAL_ASSERT(MOTESEAL_ALIGNOF(moteseal_seal_info) == (sizeof(void *) == 8 ? 8 : 8), "moteseal_seal_info");
#endif
