//! The prepared statements. All are idempotent: a write that is repeated changes nothing.

use scylla::client::session::Session;
use scylla::errors::PrepareError;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;

macro_rules! statements {
    ($($name:ident: $text:literal,)+) => {
        /// The prepared statements, by name.
        #[derive(Debug)]
        pub(crate) struct Statements {
            $(pub(crate) $name: PreparedStatement,)+
        }

        impl Statements {
            /// Prepares all statements.
            pub(crate) async fn prepare(session: &Session) -> Result<Self, PrepareError> {
                Ok(Self { $($name: prepare(session, $text).await?,)+ })
            }
        }
    };
}

async fn prepare(session: &Session, text: &str) -> Result<PreparedStatement, PrepareError> {
    let mut statement = session.prepare(text).await?;
    statement.set_is_idempotent(true);
    statement.set_consistency(Consistency::LocalQuorum);
    statement.set_use_cached_result_metadata(true);
    Ok(statement)
}

statements! {
    list: "INSERT INTO listing (kind, item) VALUES (?, ?)",
    listed: "SELECT item FROM listing WHERE kind = ? AND item >= ? LIMIT ?",

    add_device: "INSERT INTO devices (shard, device) VALUES (?, ?)",
    devices_after: "SELECT device FROM devices WHERE shard = ? AND device > ? LIMIT ?",

    add_span: "INSERT INTO spans (device, span) VALUES (?, ?)",
    spans_from: "SELECT span FROM spans WHERE device = ? AND span >= ? ORDER BY span ASC LIMIT ?",
    spans_to: "SELECT span FROM spans WHERE device = ? AND span <= ? ORDER BY span DESC LIMIT ?",

    add_seal: "INSERT INTO seals (device, span, seal_index, digest, kept, variant, epoch, head) \
        VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    add_listed_seal: "INSERT INTO seals \
        (device, span, seal_index, digest, kept, variant, epoch, head, listed) \
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1)",
    add_listed: "INSERT INTO seals (device, span, listed) VALUES (?, ?, 1)",
    add_followed: "INSERT INTO seals (device, span, followed) VALUES (?, ?, 1)",
    seals_from: "SELECT seal_index, digest, kept, variant, head FROM seals \
        WHERE device = ? AND span = ? AND (seal_index, digest) > (?, ?) LIMIT ?",
    seals_at: "SELECT seal_index, digest, kept, variant, head FROM seals \
        WHERE device = ? AND span = ? AND seal_index = ?",
    keys_in: "SELECT seal_index, digest, kept FROM seals \
        WHERE device = ? AND span = ? AND seal_index >= ? AND seal_index <= ?",
    seals_in: "SELECT seal_index, digest, epoch FROM seals \
        WHERE device = ? AND span = ? AND seal_index >= ? AND seal_index <= ?",
    newest: "SELECT seal_index, digest, epoch, listed, followed FROM seals \
        WHERE device = ? AND span = ? AND seal_index >= 0 \
        ORDER BY seal_index DESC, digest DESC, kept ASC, variant DESC LIMIT ?",
    last_before: "SELECT seal_index, digest, epoch FROM seals \
        WHERE device = ? AND span = ? AND seal_index < ? \
        ORDER BY seal_index DESC, digest DESC, kept ASC, variant DESC LIMIT 1",
    first_after: "SELECT seal_index, digest, epoch FROM seals \
        WHERE device = ? AND span = ? AND seal_index > ? LIMIT 1",
    epochs_from: "SELECT seal_index, digest, epoch FROM seals \
        WHERE device = ? AND span = ? AND seal_index >= ? LIMIT ?",

    add_piece: "INSERT INTO pieces (owner, part, number, data) VALUES (?, ?, ?, ?)",
    piece: "SELECT data FROM pieces WHERE owner = ? AND part = ? AND number = ?",

    add_schema: "INSERT INTO schemas (digest, encoding) VALUES (?, ?)",
    schema: "SELECT encoding FROM schemas WHERE digest = ?",

    add_equivocation: "INSERT INTO equivocations (shard, device, seal_index) VALUES (?, ?, ?)",
    equivocations_after: "SELECT device, seal_index FROM equivocations \
        WHERE shard = ? AND (device, seal_index) > (?, ?) LIMIT ?",
    add_unordered: "INSERT INTO unordered (device, one) VALUES (?, 1)",
    unordered: "SELECT device FROM unordered WHERE device = ?",

    add_manifest: "INSERT INTO manifests (span, epoch, digest, manifest) VALUES (?, ?, ?, ?)",
    manifests_after: "SELECT epoch, digest, manifest FROM manifests \
        WHERE span = ? AND (epoch, digest) > (?, ?) LIMIT ?",
    manifests_of: "SELECT digest FROM manifests WHERE span = ? AND epoch = ?",

    add_urgent: "INSERT INTO urgent (device, span, seal_index, seq, digest, event) \
        VALUES (?, ?, ?, ?, ?, ?)",
    urgent: "SELECT event FROM urgent \
        WHERE device = ? AND span = ? AND seal_index = ? AND seq = ? AND digest = ?",
    urgent_at: "SELECT digest FROM urgent WHERE device = ? AND span = ? AND seal_index = ? AND seq = ?",
    urgent_events_at: "SELECT digest, event FROM urgent \
        WHERE device = ? AND span = ? AND seal_index = ? AND seq = ? LIMIT ?",
    add_urgent_size: "INSERT INTO urgent_sizes (device, seal_index, seq, digest, size) \
        VALUES (?, ?, ?, ?, ?)",
    urgent_bytes: "SELECT sum(size), count(size) FROM urgent_sizes WHERE device = ?",
    place_urgent: "INSERT INTO urgent_order (bucket, number, digest, place) VALUES (?, ?, ?, ?)",
    places_after: "SELECT number, digest, place FROM urgent_order \
        WHERE bucket = ? AND (number, digest) > (?, ?) LIMIT ?",
    place_at: "SELECT number FROM urgent_order WHERE bucket = ? AND number = ? AND digest = ?",
    numbers_after: "SELECT number, digest FROM urgent_order \
        WHERE bucket = ? AND (number, digest) > (?, ?) LIMIT ?",
    confirm_urgent: "INSERT INTO urgent_placed (device, span, seal_index, seq, digest, number) \
        VALUES (?, ?, ?, ?, ?, ?)",
    confirmed: "SELECT number FROM urgent_placed \
        WHERE device = ? AND span = ? AND seal_index = ? AND seq = ? AND digest = ?",
}
