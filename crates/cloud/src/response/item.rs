//! The items of a response, which own their data.

use moteseal_core::record::{Scheme, Sequence};
use moteseal_core::schema::Groups;
use moteseal_lanes::Host;
use moteseal_seal::engine::Engine;
use moteseal_seal::stream::{Open, Selection};
use moteseal_store::{EpochStore, ReadError, StoredSeal};
use moteseal_verify::redaction::{Content, RedactionError, hide};
use moteseal_verify::{Roster, SchemaEntry, write};

/// One item of a response.
#[derive(Clone, Debug)]
pub enum ResponseItem {
    /// The encoded schema of the parts that follow.
    Schema(Vec<u8>),
    /// The device of the parts that follow, and the position in its chain of seals.
    Open(Open),
    /// The coordinator's manifest of an epoch: a tagged `COSE_Sign1`.
    Manifest(Vec<u8>),
    /// One seal, with the selected events.
    Part(Box<PartOutput>),
    /// The response cannot continue. This is the last item.
    Problem {
        /// The error's name.
        name: &'static str,
        /// What happened, where, and what to do.
        detail: String,
    },
    /// The response is complete. This is the last item.
    End,
}

/// One part of a response, with all data that its encoding needs.
#[derive(Clone, Debug)]
pub struct PartOutput {
    /// The seal and its signature.
    pub seal: StoredSeal,
    /// Which events are selected.
    pub selection: Selected,
    /// The digests that are needed to compute the root from the selected events: 32 bytes each,
    /// concatenated.
    pub digests: Vec<u8>,
    /// The records of the selected events, concatenated.
    pub events: Vec<u8>,
    /// The column groups whose cells are in the records; empty if the schema has no groups.
    pub shown: Groups,
    /// Whether the part includes the signature, which ends a run.
    pub signed: bool,
}

/// Which events of a part are selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selected {
    /// All events of these levels: bit `i` selects level `i`.
    Levels(u32),
    /// These events of a tree: at least one, in ascending order.
    Events(Vec<Sequence>),
}

impl ResponseItem {
    /// Appends the encoding of the item to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Schema(schema) => write::schema(out, schema),
            Self::Open(open) => write::open(out, open),
            Self::Manifest(manifest) => write::manifest(out, manifest),
            Self::Part(part) => part.write(out),
            Self::Problem { name, detail } => write::problem(out, name, detail),
            Self::End => write::end(out),
        }
    }
}

impl PartOutput {
    /// Reads the selected events of a stored seal.
    ///
    /// # Errors
    /// [`ReadError`] if the store cannot be read.
    pub fn read(
        store: &dyn EpochStore,
        seal: StoredSeal,
        selection: Selected,
        signed: bool,
    ) -> Result<Self, ReadError> {
        let statement = seal.seal().statement();
        let (digests, events) = match (&selection, statement.scheme) {
            (Selected::Levels(mask), Scheme::Star) => {
                let events =
                    if *mask == 0 { Vec::new() } else { store.star_blocks(&seal, *mask)? };
                (seal.evidence(*mask), events)
            }
            (Selected::Levels(mask), Scheme::Tree) if *mask == seal.kept() => {
                let part = store.kept_part(&seal)?;
                (part.siblings, part.records)
            }
            (Selected::Levels(mask), Scheme::Tree) => {
                let part = store.tree_part(&seal, &members(&seal, *mask))?;
                (part.siblings, part.records)
            }
            (Selected::Events(sequence), _) => {
                let part = store.tree_part(&seal, sequence)?;
                (part.siblings, part.records)
            }
        };
        let shown = statement.groups;
        Ok(Self { seal, selection, digests, events, shown, signed })
    }

    /// Leaves out the cells of the column groups that are not in `kept`. `schema` is that of the seal.
    ///
    /// # Errors
    /// [`RedactionError`] if the stored digests and events do not belong together.
    pub fn show_only(&mut self, schema: &SchemaEntry, kept: Groups) -> Result<(), RedactionError> {
        let Some(layout) = schema.groups.as_deref() else { return Ok(()) };
        if layout.all().is_subset(kept) {
            return Ok(());
        }
        if self.selection != Selected::Levels(0) {
            let statement = self.seal.seal().statement();
            let of_tree = match &self.selection {
                Selected::Levels(mask) if statement.scheme == Scheme::Tree => {
                    Some(members(&self.seal, *mask))
                }
                _ => None,
            };
            let selection =
                of_tree.as_deref().map_or(self.selection.as_written(), Selection::Events);
            let content =
                Content { digests: (&self.digests[..]).into(), events: (&self.events[..]).into() };
            let view = (layout, schema.framing);
            let Content { digests, events } = hide(statement, view, selection, &content, kept)?;
            let shown = (digests.into_owned(), events.into_owned());
            (self.digests, self.events) = shown;
        }
        self.shown = kept;
        Ok(())
    }

    /// Returns an upper bound on the size of the encoded part, in bytes.
    pub(super) fn most_bytes(&self) -> usize {
        write::part_bound(self.selection.as_written(), self.digests.len(), self.events.len())
    }

    /// Appends the encoding of the part to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_head(out);
        out.extend_from_slice(&self.events);
        self.write_tail(out);
    }

    /// Appends the part's encoding up to the events to `out`.
    pub(crate) fn write_head(&self, out: &mut Vec<u8>) {
        write::part_head_showing(
            out,
            self.seal.seal(),
            self.shown,
            self.selection.as_written(),
            &self.digests,
            self.events.len(),
        );
    }

    /// Appends the part's encoding after the events to `out`.
    pub(crate) fn write_tail(&self, out: &mut Vec<u8>) {
        write::part_tail(out, self.signed.then(|| self.seal.signature()));
    }
}

impl Selected {
    fn as_written(&self) -> Selection<'_> {
        match self {
            Self::Levels(mask) => Selection::Levels(*mask),
            Self::Events(sequence) => Selection::Events(sequence),
        }
    }
}

/// Returns the events of a tree at the levels `mask`, in ascending order.
fn members(seal: &StoredSeal, mask: u32) -> Vec<Sequence> {
    let statement = seal.seal().statement();
    let total = if mask == 0 { 0 } else { statement.counters.total() };
    let (engine, levels) = (Host::detect(), statement.counters.levels());
    let mut members = Vec::new();
    let mut chunk = [0; 1024];
    let mut first = 0;
    while first < total {
        #[allow(clippy::cast_possible_truncation)]
        let length = (total - first).min(chunk.len() as u64) as usize;
        engine.levels(&statement.salt, levels, first, &mut chunk[..length]);
        let selected =
            (first..).zip(&chunk[..length]).filter(|(_, level)| mask >> **level & 1 == 1);
        members.extend(selected.map(|(seq, _)| Sequence(seq)));
        first += length as u64;
    }
    members
}

/// Returns the open item that precedes a stored seal. Returns `None` if the seal was made under a
/// roster that is not a version of `roster`.
pub(crate) fn open_before(roster: &Roster, seal: &StoredSeal) -> Option<Open> {
    let statement = seal.seal().statement();
    let roster_version = roster.version_of(&statement.roster)?;
    Some(Open {
        device: statement.device,
        roster_version,
        prev: Some(statement.prev),
        last: statement.last,
    })
}
