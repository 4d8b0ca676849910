//! The secret of one device's stream, as its owner keeps it (spec/grants.md, section 2).

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::confidential::{
    ColumnId, Commitment, KeyAccessError, KeyRequest, Node, Nodes, StreamSecret,
};
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_core::roster::MAX_NAME;
use zeroize::Zeroizing;

use crate::encoding::{MAX_NODES, NODE, is_plain, read_nodes, write_nodes};
use crate::owner::OwnerError;

/// The largest number of columns of a stream.
pub const MAX_COLUMNS: usize = 256;

/// The number of batches of columns. Each batch has a column.
const MAX_BATCH: u32 = 256;

/// A column of a stream.
pub struct Column {
    /// The column's id.
    pub id: ColumnId,
    /// The name of its field, by which a grant is asked for.
    pub name: String,
    /// The number of times that columns had been added to the stream before this one.
    batch: u32,
    /// The nodes that are left after the owner forgot the keys of the past; `None` if the column's
    /// root is derived from the secret.
    nodes: Option<Vec<Node>>,
}

impl fmt::Debug for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.id)
    }
}

/// The keys of one device's stream. `Debug` prints no key.
pub struct Stream {
    device: DeviceId,
    generation: u32,
    /// The secret from which the columns of batch `step` and later are derived. It is in memory of its own,
    /// because a list of streams that grows would leave copies of secrets behind.
    secret: Box<StreamSecret>,
    /// The number of times that the secret was replaced by its successor
    /// ([`StreamSecret::next`]): the columns of earlier batches have nodes.
    step: u32,
    forgotten: Option<EpochNumber>,
    columns: Vec<Column>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("device", &self.device)
            .field("generation", &self.generation)
            .field("base", &self.base())
            .field("forgotten", &self.forgotten)
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}

impl Stream {
    /// Creates a stream without columns.
    pub(crate) fn new(device: DeviceId, generation: u32, secret: StreamSecret) -> Self {
        let (secret, columns) = (Box::new(secret), Vec::new());
        Self { device, generation, secret, step: 0, forgotten: None, columns }
    }

    /// Returns the device.
    #[must_use]
    pub const fn device(&self) -> DeviceId {
        self.device
    }

    /// Returns the number of secrets that the device had before this one.
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the first epoch that the keys cover.
    #[must_use]
    pub fn base(&self) -> EpochNumber {
        self.secret.base()
    }

    /// Returns the last epoch that the keys cover.
    #[must_use]
    pub fn last(&self) -> EpochNumber {
        EpochNumber(self.base().0.saturating_add(u32::MAX.into()))
    }

    /// Returns the first epoch whose keys the owner still has, if the owner forgot earlier ones.
    #[must_use]
    pub const fn forgotten(&self) -> Option<EpochNumber> {
        self.forgotten
    }

    /// Returns the columns, sorted by id.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns the secret, for the device's own copy; `None` after the owner forgot keys of the past.
    #[must_use]
    pub fn secret(&self) -> Option<&StreamSecret> {
        (self.step == 0).then_some(self.secret.as_ref())
    }

    /// Returns the secret for a device that has derived no column's key yet: `None` after the owner forgot
    /// keys of the past, and if a column is derived from a successor.
    pub(crate) fn copy(&self) -> Option<&StreamSecret> {
        let is_first = self.columns.iter().all(|column| column.batch == 0);
        self.secret().filter(|_| is_first)
    }

    /// Returns whether the owner has keys of an epoch.
    pub(crate) fn covers(&self, epoch: EpochNumber) -> bool {
        (self.forgotten.unwrap_or(self.base())..=self.last()).contains(&epoch)
    }

    /// Adds a column to the batch whose key for a seal has the commitment. If `may_move`, moves a known
    /// column to it. Returns whether anything was changed. The caller checks the name, and that the stream
    /// covers the epoch.
    ///
    /// # Errors
    /// `WrongKey` if no batch gives the key; `ColumnMoved`; `ColumnCount`.
    pub(crate) fn add_sealed(
        &mut self,
        seal: &KeyRequest,
        commitment: &Commitment,
        name: &str,
        may_move: bool,
    ) -> Result<bool, OwnerError> {
        let KeyRequest { device, column: id, epoch, index, suite, nonce } = *seal;
        let check = |nodes: &Nodes<'_>| {
            nodes.epoch_key(epoch)?.seal_key(device, index, suite, &nonce).check(commitment)
        };
        let known = self.columns.iter().position(|column| column.id == id);
        if let Some(Column { nodes: Some(nodes), .. }) = known.map(|at| &self.columns[at]) {
            check(&Nodes::new(id, self.base(), nodes))?;
            return Ok(false);
        }
        let secrets =
            std::iter::successors(Some((*self.secret).clone()), |secret| Some(secret.next()));
        let mut batches = (self.step..MAX_BATCH).zip(secrets);
        let found = batches.find(|(_, secret)| check(&secret.column(id).nodes()).is_ok());
        let (batch, _) = found.ok_or(KeyAccessError::WrongKey)?;
        if let Some(at) = known {
            let column = &mut self.columns[at];
            let is_moved = column.batch != batch;
            if is_moved && !may_move {
                return Err(OwnerError::ColumnMoved { device });
            }
            column.batch = batch;
            return Ok(is_moved);
        }
        if self.columns.len() == MAX_COLUMNS {
            return Err(OwnerError::ColumnCount);
        }
        self.columns.push(Column { id, name: name.to_owned(), batch, nodes: None });
        self.columns.sort_by_key(|column| column.id);
        Ok(true)
    }

    /// Adds columns. Columns that are added together are a batch; the keys of the first batch are
    /// derived from the stream secret, those of each later batch from the secret's successor
    /// ([`StreamSecret::next`]), so that the device need not keep a secret that opens the past.
    /// Columns that the stream has already are ignored. Returns whether a column was added, or `None`
    /// if there would be too many columns or batches; the stream is then unchanged. The caller checks
    /// the names.
    pub(crate) fn add_columns(&mut self, columns: &[(ColumnId, &str)]) -> Option<bool> {
        let new: BTreeMap<ColumnId, &str> = columns
            .iter()
            .copied()
            .filter(|(id, _)| self.columns.iter().all(|column| column.id != *id))
            .collect();
        if self.columns.len() + new.len() > MAX_COLUMNS {
            return None;
        }
        let last = self.columns.iter().map(|column| column.batch).max();
        let batch = last.map_or(self.step, |last| (last + 1).max(self.step));
        let is_changed = !new.is_empty();
        if is_changed && batch >= MAX_BATCH {
            return None;
        }
        for (id, name) in new {
            self.columns.push(Column { id, name: name.to_owned(), batch, nodes: None });
        }
        self.columns.sort_by_key(|column| column.id);
        Some(is_changed)
    }

    /// Returns the nodes of a column that open exactly the epochs of the range that the keys cover, by
    /// ascending epoch. The column must be one of this stream.
    pub(crate) fn cover(&self, column: &Column, epochs: RangeInclusive<EpochNumber>) -> Vec<Node> {
        // A list that grew would leave copies of its nodes behind.
        let mut cover = Vec::with_capacity(MAX_NODES);
        match &column.nodes {
            Some(nodes) => cover.extend(Nodes::new(column.id, self.base(), nodes).cover(epochs)),
            None => {
                let steps = self.step..column.batch;
                let secret = steps.fold((*self.secret).clone(), |secret, _| secret.next());
                cover.extend(secret.column(column.id).cover(epochs));
            }
        }
        cover
    }

    /// Erases the keys of the epochs before `epoch`, or before those that were forgotten earlier if these are
    /// later: columns that were added since then have keys of them. Seals of these epochs can then be opened
    /// only with grants and backups that were made before. Returns whether anything was erased.
    ///
    /// The keys of columns that the device has and the owner has not added are not erased: the secret stays for
    /// them.
    ///
    /// # Errors
    /// `EpochOutOfKeyRange` if `epoch` is after the last epoch.
    pub(crate) fn forget(&mut self, epoch: EpochNumber) -> Result<bool, KeyAccessError> {
        if epoch > self.last() {
            return Err(KeyAccessError::EpochOutOfKeyRange);
        }
        let before = self.forgotten.unwrap_or(self.base());
        let epoch = epoch.max(before);
        let is_added = self.keeps_forgotten();
        if self.columns.is_empty() || (epoch == before && !is_added) {
            return Ok(false);
        }
        let left = |column: &Column| self.cover(column, epoch..=self.last());
        let nodes: Vec<Vec<Node>> = self.columns.iter().map(left).collect();
        let batches = self.columns.iter().map(|column| column.batch + 1);
        let step = batches.max().unwrap_or(0).max(self.step);
        *self.secret = (self.step..step).fold((*self.secret).clone(), |secret, _| secret.next());
        self.step = step;
        for (column, nodes) in self.columns.iter_mut().zip(nodes) {
            column.nodes = Some(nodes);
        }
        self.forgotten = Some(epoch);
        Ok(true)
    }

    /// Returns whether the owner has keys of epochs that were forgotten: those of columns that were added since.
    #[must_use]
    pub fn keeps_forgotten(&self) -> bool {
        self.forgotten.is_some() && self.columns.iter().any(|column| column.nodes.is_none())
    }

    /// Returns an upper bound on the encoded length.
    pub(crate) fn bound(&self) -> usize {
        let nodes = |column: &Column| column.nodes.as_ref().map_or(0, |nodes| nodes.len() * NODE);
        let columns = self.columns.iter().map(|column| 48 + column.name.len() + nodes(column));
        128 + columns.sum::<usize>()
    }

    /// Writes `[device, generation, base, step, secret, forgotten / null, [columns]]`.
    pub(crate) fn write(&self, out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        out.array(7)?.bytes(&self.device.0)?.uint(self.generation)?.uint(self.base().0)?;
        out.uint(self.step)?.bytes(self.secret.expose())?;
        out.optional(self.forgotten, |out, epoch| out.uint(epoch.0))?;
        out.array(self.columns.len() as u64)?;
        for Column { id, name, batch, nodes } in &self.columns {
            out.array(4)?.bytes(&id.0)?.text(name)?.uint(*batch)?;
            match nodes {
                Some(nodes) => write_nodes(out, nodes)?,
                None => drop(out.null()?),
            }
        }
        Ok(())
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.array(7)?;
        let (device, generation) = (DeviceId(reader.fixed()?), reader.uint()?);
        let (base, step) = (EpochNumber(reader.u64()?), reader.uint()?);
        let secret = Zeroizing::new(reader.fixed()?);
        let secret = Box::new(StreamSecret::new(*secret, base));
        let forgotten = reader.optional(Reader::u64)?.map(EpochNumber);
        let mut columns = Vec::new();
        for _ in 0..reader.array_any()? {
            reader.array(4)?;
            let (id, name) = (ColumnId(reader.fixed()?), reader.text()?.to_owned());
            let (batch, nodes) = (reader.uint()?, reader.optional(read_nodes)?);
            columns.push(Column { id, name, batch, nodes });
        }
        let stream = Self { device, generation, secret, step, forgotten, columns };
        if stream.is_valid() { Ok(stream) } else { Err(DecodeError::FieldOutOfRange) }
    }

    /// Checks the rules of spec/grants.md, section 2.1, for one stream.
    fn is_valid(&self) -> bool {
        let starts = self.forgotten.map(|epoch| epoch.0.checked_sub(self.base().0));
        let starts = match starts {
            None => Some(0),
            Some(None | Some(0)) => None,
            Some(Some(offset)) => u32::try_from(offset).ok(),
        };
        let Some(first) = starts else { return false };
        let is_valid = |column: &Column| {
            let nodes_start = column.nodes.as_ref().and_then(|nodes| nodes.first());
            !column.name.is_empty()
                && is_plain(&column.name, MAX_NAME)
                && column.batch < MAX_BATCH
                && column.nodes.is_some() == (column.batch < self.step)
                && nodes_start.is_none_or(|node| *node.offsets().start() >= first)
        };
        self.step <= MAX_BATCH
            && (self.step > 0) == self.forgotten.is_some()
            && self.columns.len() <= MAX_COLUMNS
            && self.columns.is_sorted_by(|one, other| one.id < other.id)
            && self.columns.iter().all(is_valid)
    }
}
