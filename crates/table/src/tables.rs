//! The tables of a keyspace, by version.
//!
//! `kind` of `listing` is what the row is about: the first bytes of device ids ([`DEVICES`]), those
//! of devices with equivocations ([`EQUIVOCATIONS`]), or spans of epochs with manifests
//! ([`MANIFESTS`]). A listing reads this small partition first, then only partitions that have rows.

/// The version that this program reads and writes.
pub(crate) const VERSION: i32 = 2;

pub(crate) const DEVICES: i16 = 0;
pub(crate) const EQUIVOCATIONS: i16 = 1;
pub(crate) const MANIFESTS: i16 = 2;
/// A row of this kind is written when a store is opened, to find out whether the user may write.
pub(crate) const PROBE: i16 = -1;

/// The statements that lead from one version to the next. Each can be repeated.
pub(crate) const MIGRATIONS: &[&[&str]] = &[
    &[
        "CREATE TABLE IF NOT EXISTS schema_version (
            one tinyint, version int, PRIMARY KEY ((one), version))
            WITH comment = 'the versions of the tables; the highest counts'",
        "CREATE TABLE IF NOT EXISTS listing (
            kind smallint, item blob, PRIMARY KEY ((kind), item))
            WITH comment = 'the partitions of other tables that have rows'",
        "CREATE TABLE IF NOT EXISTS devices (
            shard smallint, device blob, PRIMARY KEY ((shard), device))
            WITH comment = 'every device, by the first byte of its id'",
        "CREATE TABLE IF NOT EXISTS spans (
            device blob, span int, PRIMARY KEY ((device), span))
            WITH comment = 'the partitions of seals that may have rows'",
        "CREATE TABLE IF NOT EXISTS seals (
            device blob, span int, seal_index bigint, digest blob, kept bigint, variant blob, epoch blob,
            head blob, PRIMARY KEY ((device, span), seal_index, digest, kept, variant))
            WITH CLUSTERING ORDER BY (seal_index ASC, digest ASC, kept DESC, variant ASC)
            AND comment = 'heads of seals, with bodies up to 8 KiB; written last'",
        "CREATE TABLE IF NOT EXISTS pieces (
            owner blob, part int, number int, data blob, PRIMARY KEY ((owner, part), number))
            WITH comment = 'longer bodies and manifests, in pieces of 64 KiB'",
        "CREATE TABLE IF NOT EXISTS schemas (digest blob PRIMARY KEY, encoding blob)
            WITH comment = 'the schemas of readings'",
        "CREATE TABLE IF NOT EXISTS equivocations (
            shard smallint, device blob, seal_index bigint, PRIMARY KEY ((shard), device, seal_index))
            WITH comment = 'the indices with more than one seal'",
        "CREATE TABLE IF NOT EXISTS unordered (device blob PRIMARY KEY, one tinyint)
            WITH comment = 'the devices whose epochs do not ascend with their indices'",
        "CREATE TABLE IF NOT EXISTS manifests (
            span blob, epoch blob, digest blob, manifest blob, PRIMARY KEY ((span), epoch, digest))
            WITH comment = 'manifests of coordinators'",
        "CREATE TABLE IF NOT EXISTS urgent (
            device blob, span int, seal_index bigint, seq blob, digest blob, event blob,
            PRIMARY KEY ((device, span), seal_index, seq, digest))
            WITH comment = 'urgent events'",
        "CREATE TABLE IF NOT EXISTS urgent_sizes (
            device blob, seal_index bigint, seq blob, digest blob, size bigint,
            PRIMARY KEY ((device), seal_index, seq, digest))
            WITH comment = 'the lengths of urgent events, to sum up'",
        "CREATE TABLE IF NOT EXISTS urgent_order (
            bucket bigint, number bigint, digest blob, place blob, PRIMARY KEY ((bucket), number, digest))
            WITH comment = 'urgent events in the order of their arrival'",
        "CREATE TABLE IF NOT EXISTS urgent_placed (
            device blob, span int, seal_index bigint, seq blob, digest blob, number bigint,
            PRIMARY KEY ((device, span), seal_index, seq, digest, number))
            WITH comment = 'the places of urgent events that were confirmed'",
    ],
    // Of a partition of `seals`: whether `devices` and `spans` have the rows through which readers find it,
    // and whether the device has later partitions. Both are 1 or absent, and never change back.
    &["ALTER TABLE seals ADD IF NOT EXISTS (listed tinyint STATIC, followed tinyint STATIC)"],
];
