//! Writes stream items to a `Vec`: the functions of [`moteseal_seal::stream`] with an allocated
//! buffer.

use moteseal_core::cbor::{BufferTooSmall, Writer};
use moteseal_core::digest::Digest;
use moteseal_core::schema::Groups;
use moteseal_seal::Seal;
use moteseal_seal::stream::{self, Open, PART_OVERHEAD, Selection};

/// Appends the output of `write`, which is at most `bound` bytes.
fn append(
    out: &mut Vec<u8>,
    bound: usize,
    write: impl FnOnce(&mut Writer<'_>) -> Result<(), BufferTooSmall>,
) {
    let start = out.len();
    out.resize(start + bound, 0);
    let mut writer = Writer::new(&mut out[start..]);
    let result = write(&mut writer);
    let length = writer.position();
    debug_assert!(result.is_ok(), "the bound holds");
    out.truncate(start + length);
}

/// Appends a schema item.
pub fn schema(out: &mut Vec<u8>, schema: &[u8]) {
    append(out, schema.len() + 16, |writer| stream::encode_schema(writer, schema));
}

/// Appends an open item.
pub fn open(out: &mut Vec<u8>, open: &Open) {
    append(out, 96, |writer| open.encode(writer));
}

/// Returns an upper bound on the length of a part item, in bytes, given the lengths of its digests
/// and of its events.
#[must_use]
pub const fn part_bound(selection: Selection<'_>, digests: usize, events: usize) -> usize {
    let gaps = match selection {
        Selection::Levels(_) => 0,
        // The sequence numbers under a seal are below 2^32, so each takes at most 5 bytes.
        Selection::Events(sequence) => sequence.len() * 5,
    };
    PART_OVERHEAD + gaps + digests + events
}

/// Appends a part of `seal`: the selected events in the encoding of a part, and the digests that
/// replace the other events.
pub fn part<S>(
    out: &mut Vec<u8>,
    seal: &Seal<S>,
    selection: Selection<'_>,
    digests: &[u8],
    events: &[u8],
    signature: Option<&[u8]>,
) {
    part_head(out, seal, selection, digests, events.len());
    out.extend_from_slice(events);
    part_tail(out, signature);
}

/// Appends the head of a part, which ends before its events. `events` is the number of bytes of
/// these events.
pub fn part_head<S>(
    out: &mut Vec<u8>,
    seal: &Seal<S>,
    selection: Selection<'_>,
    digests: &[u8],
    events: usize,
) {
    append(out, part_bound(selection, digests.len(), 0), |writer| {
        stream::encode_part_head(writer, seal, selection, digests, events)
    });
}

/// Appends a copy of a received star's part, with another selection of its events and the digests
/// for this selection.
pub fn rebuilt_part(
    out: &mut Vec<u8>,
    part: &stream::Part<'_>,
    levels: u32,
    digests: &[u8],
    events: &[u8],
) {
    let bound = part_bound(Selection::Levels(levels), digests.len(), 0);
    append(out, bound, |writer| part.encode_head(writer, levels, digests, events.len()));
    out.extend_from_slice(events);
    part_tail(out, part.signature);
}

/// Appends a copy of a received part that shows the column groups `shown`, with the digests and events
/// that show them.
pub fn part_showing(
    out: &mut Vec<u8>,
    part: &stream::Part<'_>,
    shown: Groups,
    digests: &[u8],
    events: &[u8],
) {
    let append = |out: &mut Vec<u8>| out.extend_from_slice(events);
    part_showing_with(out, part, shown, digests, (events.len(), append));
}

/// As [`part_showing`], but the events are those that a function appends. The number of their bytes is given.
pub(crate) fn part_showing_with(
    out: &mut Vec<u8>,
    part: &stream::Part<'_>,
    shown: Groups,
    digests: &[u8],
    (length, append_events): (usize, impl FnOnce(&mut Vec<u8>)),
) {
    let gaps = match &part.select {
        stream::Select::Levels(_) => 0,
        stream::Select::Events(gaps) => gaps.len() as usize * 5,
    };
    let head = PART_OVERHEAD + gaps + digests.len();
    out.reserve(head + length + PART_OVERHEAD);
    append(out, head, |writer| part.encode_head_showing(writer, shown, digests, length));
    let start = out.len();
    append_events(out);
    debug_assert_eq!(out.len() - start, length, "the length is that of the events");
    part_tail(out, part.signature);
}

/// Appends the head of a part of `seal` that shows the column groups `shown` only. Otherwise as
/// [`part_head`].
pub fn part_head_showing<S>(
    out: &mut Vec<u8>,
    seal: &Seal<S>,
    shown: Groups,
    selection: Selection<'_>,
    digests: &[u8],
    events: usize,
) {
    append(out, part_bound(selection, digests.len(), 0), |writer| {
        stream::encode_part_head_showing(writer, seal, shown, selection, digests, events)
    });
}

/// Appends the end of a part, after its events.
pub fn part_tail(out: &mut Vec<u8>, signature: Option<&[u8]>) {
    append(out, PART_OVERHEAD, |writer| stream::encode_part_tail(writer, signature));
}

/// Appends the end item.
pub fn end(out: &mut Vec<u8>) {
    append(out, 8, stream::encode_end);
}

/// Appends a problem item.
pub fn problem(out: &mut Vec<u8>, name: &str, detail: &str) {
    append(out, name.len() + detail.len() + 32, |writer| {
        stream::encode_problem(writer, name, detail)
    });
}

/// Appends the first item of a proof file.
pub fn proof(out: &mut Vec<u8>, query: &str) {
    append(out, query.len() + 32, |writer| stream::encode_proof(writer, query));
}

/// Appends an explain item.
pub fn explain(out: &mut Vec<u8>, seal: &[u8], digests: &[Digest]) {
    let joined: Vec<u8> = digests.iter().flat_map(|digest| digest.0).collect();
    append(out, seal.len() + joined.len() + 32, |writer| {
        stream::encode_explain(writer, seal, &joined)
    });
}

/// Appends a manifest item: `manifest` is a tagged `COSE_Sign1`.
pub fn manifest(out: &mut Vec<u8>, manifest: &[u8]) {
    append(out, manifest.len() + 32, |writer| stream::encode_manifest(writer, manifest));
}

/// Appends a sanitised item: `statement` is a tagged `COSE_Sign1`.
pub fn sanitised(out: &mut Vec<u8>, statement: &[u8], cells: &[u8]) {
    append(out, statement.len() + 32, |writer| {
        stream::encode_sanitised_head(writer, statement, cells.len())
    });
    out.extend_from_slice(cells);
}

/// Returns the complete signed object of a seal, a tagged `COSE_Sign1`.
pub fn sign1<S>(seal: &Seal<S>, signature: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    append(&mut out, moteseal_seal::MAX_MESSAGE + signature.len() + 64, |writer| {
        seal.encode(writer, signature)
    });
    out
}

/// Returns the concatenated digests that a star's part with the levels `mask` contains. `blocks`
/// has `D_i` of all levels.
#[must_use]
pub fn star_evidence<S>(seal: &Seal<S>, blocks: &[Digest], mask: u32) -> Vec<u8> {
    let mut digests = [Digest::NULL; moteseal_core::record::MAX_LEVELS];
    let count = moteseal_seal::star::star_evidence(seal.statement(), blocks, mask, &mut digests);
    digests[..count].iter().flat_map(|digest| digest.0).collect()
}

/// Returns the same as [`star_evidence`] if only the digests `D_i` from a level `b` on are known.
/// `from` is the pair of `b` and `A_{b-1}`.
#[must_use]
pub fn pruned_evidence<S>(
    seal: &Seal<S>,
    from: (u8, Digest),
    blocks: &[Digest],
    mask: u32,
) -> Vec<u8> {
    let mut digests = [Digest::NULL; moteseal_core::record::MAX_LEVELS];
    let count =
        moteseal_seal::star::pruned_evidence(seal.statement(), from, blocks, mask, &mut digests);
    digests[..count].iter().flat_map(|digest| digest.0).collect()
}
