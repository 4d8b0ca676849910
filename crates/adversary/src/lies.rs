//! The tables of lies. Each entry has a description, the error names with which a verifier may
//! reject the lie, and the error name that a verifier of the explaining form then reports. The
//! child modules contain the code, one module per subject.

use crate::lie::{ExplainLie, Lie, Schemes, lie};

mod budget;
mod cells;
mod choice;
mod explaining;
mod proof;
mod range;
mod readings;
mod statement;
mod stream;

/// Returns the lie with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Lie> {
    LIES.iter().chain(BUDGET_LIES).chain(SCHEMA_2_LIES).find(|lie| lie.name == name)
}

const UNPROVEN: &[&str] = &["NotAuthentic"];
const OTHER: &[&str] = &["NotAsAsked"];
const BLOCK: &str = "BlockDigestMismatch";
const PATH: &str = "PathMismatch";
const STATED: &str = "StatementMismatch";

/// Every lie about an answer.
pub const LIES: &[Lie] = &[
    // Lies about readings.
    lie("altered-reading", "one bit of a reading flipped", UNPROVEN, readings::altered)
        .explained(BLOCK, PATH),
    lie(
        "duplicated-reading",
        "a reading repeated in place of another",
        UNPROVEN,
        readings::duplicated,
    )
    .explained(BLOCK, PATH),
    lie("reordered-readings", "two readings swapped", UNPROVEN, readings::reordered)
        .explained(BLOCK, PATH),
    lie(
        "reading-of-other-epoch",
        "readings of another epoch in this one",
        UNPROVEN,
        readings::of_other_epoch,
    )
    .explained(BLOCK, PATH),
    lie(
        "reading-of-other-device",
        "readings of another device in this device's epoch",
        UNPROVEN,
        readings::of_other_device,
    )
    .explained(BLOCK, PATH),
    lie(
        "sealed-anew",
        "altered readings under a seal that the cloud made",
        UNPROVEN,
        readings::sealed_anew,
    )
    .explained(BLOCK, PATH),
    lie(
        "dropped-reading",
        "a reading left out and the count adjusted",
        &["NotAuthentic", "NotAsAsked"],
        readings::dropped,
    )
    .explained(STATED, STATED),
    lie("added-reading", "a reading invented and the count adjusted", UNPROVEN, readings::added)
        .explained(STATED, STATED),
    lie("short-events", "the last reading cut off", &["EventsLength"], readings::cut_off),
    lie("surplus-events", "one surplus reading", &["EventsLength"], readings::surplus),
    // Lies about the selection.
    lie("other-rate", "every epoch at half the rate", OTHER, choice::other_rate),
    lie("fewer-levels", "one level of one epoch withheld", OTHER, choice::fewer_levels),
    lie("more-levels", "one level more than queried, in one epoch", OTHER, choice::more_levels),
    lie(
        "other-event",
        "one event of the drawn sample replaced by its neighbour",
        OTHER,
        choice::other_event,
    )
    .only(Schemes::Tree),
    lie("drawn-again", "a sample drawn with another seed", OTHER, choice::drawn_again)
        .only(Schemes::Tree),
    // Lies about the range: epochs and devices that are withheld, replayed or were not queried.
    lie("withheld-epoch", "an epoch in the middle withheld", &["Missing"], range::withheld_epoch),
    lie("withheld-first", "the first epoch withheld", &["Missing"], range::withheld_first),
    lie(
        "withheld-tail",
        "the newest epochs withheld",
        &["TailUnknown", "Missing"],
        range::withheld_tail,
    ),
    lie(
        "shortened-epoch",
        "the last part of the newest epoch withheld, and another sample drawn",
        &["TailUnknown"],
        range::shortened_epoch,
    ),
    lie(
        "withheld-boundary",
        "the seal after the range withheld",
        &["TailUnknown", "Missing"],
        range::withheld_boundary,
    ),
    lie(
        "withheld-device",
        "a device withheld",
        &["TailUnknown", "Missing"],
        range::withheld_device,
    ),
    lie("denied-epoch", "an epoch removed without a trace", UNPROVEN, range::denied_epoch)
        .explained(STATED, STATED),
    lie(
        "invented-outage",
        "an epoch removed and passed off as an outage",
        UNPROVEN,
        range::invented_outage,
    )
    .explained(STATED, STATED),
    lie("epoch-before-range", "an epoch before the queried range", OTHER, range::before),
    lie("epoch-behind-range", "an epoch after the queried range", OTHER, range::after),
    lie("replayed-epoch", "an old epoch presented as a newer one", UNPROVEN, range::replayed_epoch)
        .explained(STATED, STATED),
    lie("replayed-run", "a device's epochs repeated", OTHER, range::replayed_run),
    lie(
        "other-devices-run",
        "another device's readings under this device's name",
        UNPROVEN,
        range::other_device,
    )
    .explained(STATED, STATED),
    lie("devices-out-of-order", "two devices swapped", OTHER, range::devices_swapped),
    lie(
        "equivocation",
        "two seals under one index, by a colluding device",
        &["Equivocation", "NotAsAsked"],
        range::equivocation,
    ),
    // Lies about the device's signed statement.
    lie("junk-signature", "random bytes as a signature", UNPROVEN, proof::junk_signature)
        .explained("NotAuthentic", "NotAuthentic"),
    lie(
        "stripped-signature",
        "a run without its signature",
        &["Unsigned"],
        proof::stripped_signature,
    ),
    lie(
        "short-signature",
        "a signature of another length",
        &["MalformedSignature"],
        proof::short_signature,
    ),
    lie(
        "unknown-roster",
        "a roster version that does not exist",
        &["UnknownRoster"],
        statement::roster_version,
    ),
    lie(
        "unknown-device",
        "a device that the roster does not have",
        &["UnknownDevice"],
        statement::unknown_device,
    ),
    lie(
        "forged-prev",
        "another seal named as the predecessor",
        &["NotAuthentic", "PrevMismatch"],
        statement::prev,
    )
    .explained(STATED, STATED),
    lie("forged-count", "more events counted than sealed", UNPROVEN, statement::count)
        .explained(STATED, STATED),
    lie("forged-salt", "another salt, which selects other readings", UNPROVEN, statement::salt)
        .explained(STATED, STATED),
    lie(
        "not-last-in-epoch",
        "a closed epoch presented as open",
        &["NotAuthentic", "EpochClosed"],
        statement::last_in_epoch,
    )
    .explained(STATED, STATED),
    lie("invented-restart", "an invented restart", UNPROVEN, statement::restart)
        .explained(STATED, STATED),
    lie("skipped-index", "an index skipped", &["GapWithoutRestart"], statement::skipped),
    lie(
        "raised-round",
        "levels declared as not kept",
        &["NotAuthentic", "RoundOutOfRange"],
        statement::round,
    )
    .explained(STATED, STATED),
    lie(
        "claimed-lost",
        "readings declared lost",
        &["NotAuthentic", "LostOutOfRange"],
        statement::lost,
    )
    .explained(STATED, STATED),
    lie("withheld-prev", "the predecessor not named", &["PrevUnknown"], statement::withheld_prev),
    lie("other-scheme", "a star passed off as a tree, or the reverse", UNPROVEN, statement::scheme)
        .explained(STATED, STATED),
    lie(
        "shifted-epoch",
        "an epoch presented as the next one",
        &["NotAuthentic", "EpochClosed"],
        statement::epoch,
    )
    .explained(STATED, STATED),
    lie("emptied-epoch", "an epoch presented as empty", UNPROVEN, statement::emptied)
        .explained(STATED, STATED),
    lie(
        "invented-answers",
        "an answer to a query that the device never gave",
        UNPROVEN,
        statement::answered,
    )
    .explained(STATED, STATED),
    lie("far-index", "an index above the maximum", &["IndexOutOfRange"], statement::far_index),
    lie("far-epoch", "an epoch above the maximum", &["EpochOutOfRange"], statement::far_epoch),
    lie(
        "vast-count",
        "a count of four thousand million events",
        &["TooManyEvents"],
        statement::vast_count,
    ),
    lie(
        "impossible-level",
        "a level that the group does not have",
        &["SelectOutOfRange"],
        statement::impossible_level,
    ),
    lie("other-unit", "another unit in the schema", UNPROVEN, statement::unit)
        .explained(STATED, STATED),
    lie("other-scale", "another divisor in the schema", UNPROVEN, statement::scale)
        .explained(STATED, STATED),
    lie("swapped-columns", "the names of two columns swapped", UNPROVEN, statement::columns)
        .explained(STATED, STATED),
    // Lies about the digests of the events that are not served.
    lie("altered-digest", "one bit of a digest flipped", UNPROVEN, proof::altered_digest)
        .explained("EvidenceMismatch", "EvidenceMismatch"),
    lie("surplus-digest", "one surplus digest", &["DigestCount"], proof::surplus_digest),
    lie("missing-digest", "one digest missing", &["DigestCount"], proof::missing_digest),
    // Lies about the form of the stream.
    lie("truncated", "the answer truncated", &["Truncated", "Unsigned"], stream::truncated),
    lie("no-end", "the end item missing", &["Truncated"], stream::no_end),
    lie(
        "end-within-run",
        "the end item before the signature",
        &["Unsigned"],
        stream::end_within_run,
    ),
    lie("after-the-end", "an item after the end", &["TrailingBytes"], stream::after_the_end),
    lie("unknown-item", "an item of an unknown kind", &["UnknownItem"], stream::unknown_item),
    lie(
        "other-encoding",
        "an item in a longer encoding",
        &["NonCanonical"],
        stream::other_encoding,
    ),
    lie("no-schema", "the schema missing", &["SchemaUnknown"], stream::no_schema),
    lie("no-device", "the device item missing", &["NoOpen"], stream::no_device),
    lie("proof-in-answer", "a proof's query in the middle", OTHER, stream::proof_in_answer),
    lie(
        "feigned-problem",
        "a false problem in the middle",
        &["StoreDamaged"],
        stream::feigned_problem,
    ),
    lie(
        "feigned-closed-pipe",
        "a false problem with the text of a closed pipe",
        &["StoreDamaged"],
        stream::feigned_closed_pipe,
    ),
    lie("endless-run", "257 parts before any signature", &["RunTooLong"], stream::endless_run),
    lie("endless-claim", "an item that claims a terabyte", &["Truncated"], stream::endless_claim),
    Lie {
        heavy: true,
        ..lie("endless-item", "an item of 69 MiB", &["RunTooLong"], stream::endless_item)
    },
];

/// The lies that are possible only about readings whose schema has version 2, with labels, texts and
/// nullable columns, in addition to [`LIES`].
pub const SCHEMA_2_LIES: &[Lie] = &[
    lie("cell-to-null", "a value changed to null", UNPROVEN, cells::to_null).explained(BLOCK, PATH),
    lie("label-out-of-range", "a label that does not exist", &["RecordValue"], cells::label),
    lie(
        "text-takes-next-cell",
        "a text's length that includes the next cell",
        &["RecordLength"],
        cells::longer_text,
    ),
];

/// The lies that are possible only for the cloud of a group with a budget, in addition to [`LIES`].
pub const BUDGET_LIES: &[Lie] = &[
    lie("withheld-manifest", "the manifest of an epoch withheld", OTHER, budget::withheld_manifest),
    lie(
        "feigned-absence",
        "an epoch presented as one without a manifest",
        &["ManifestMissing"],
        budget::feigned_absence,
    ),
    lie(
        "manifest-of-other-epoch",
        "another epoch's manifest in place of this one's",
        OTHER,
        budget::of_other_epoch,
    ),
    lie("manifests-out-of-order", "two manifests swapped", OTHER, budget::out_of_order),
    lie("altered-manifest", "one bit of a manifest flipped", UNPROVEN, budget::altered),
    lie("forged-manifest", "a manifest that the cloud signed", UNPROVEN, budget::forged),
    lie(
        "second-manifest",
        "two manifests of one epoch, by a colluding coordinator",
        &["TwoManifests"],
        budget::second_manifest,
    ),
    lie(
        "withheld-listed-seal",
        "the newest seal of a device withheld although a manifest lists it",
        &["Missing"],
        budget::withheld_listed,
    ),
    lie(
        "fewer-levels-than-the-round",
        "a level withheld that the round keeps",
        OTHER,
        budget::fewer_levels,
    ),
    lie(
        "more-levels-than-the-round",
        "a level served that the round removed",
        OTHER,
        budget::more_levels,
    ),
];

/// The lies about an explaining form. Each is applied after the lie [`altered-reading`](LIES),
/// which makes a client request the explaining form.
pub const EXPLAIN_LIES: &[ExplainLie] = &[
    ExplainLie {
        name: "withheld-explanation",
        what: "the explaining form withheld",
        expected: &["ExplanationWithheld"],
        schemes: Schemes::Both,
        alter: explaining::withheld,
    },
    ExplainLie {
        name: "explained-by-another-seal",
        what: "another seal shown as the explanation",
        expected: &["StatementMismatch"],
        schemes: Schemes::Both,
        alter: explaining::another_seal,
    },
    ExplainLie {
        name: "made-up-explanation",
        what: "an explanation that the device never signed",
        expected: &["NotAuthentic"],
        schemes: Schemes::Both,
        alter: explaining::made_up,
    },
    ExplainLie {
        name: "explained-by-other-digests",
        what: "digests that do not lead to the root",
        expected: &["RootMismatch"],
        schemes: Schemes::Both,
        alter: explaining::other_digests,
    },
    ExplainLie {
        name: "explained-by-fewer-digests",
        what: "one digest of the explanation missing",
        expected: &["DigestCount"],
        schemes: Schemes::Both,
        alter: explaining::fewer_digests,
    },
];
