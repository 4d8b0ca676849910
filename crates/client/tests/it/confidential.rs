//! Devices that encrypt columns, and readers with the keys of some of them.

use moteseal_client::decrypt::{Column, KeyRequest, SealKeys};
use moteseal_client::output::OutputError;
use moteseal_client::{Report, Rows, Session, Sink};
use moteseal_core::confidential::{
    ColumnId, Commitment, EncryptedColumns, KeyAccessError, KeyCommitments, KeyStream, Node, Nodes,
    Nonce, SealKey, StreamSecret,
};
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_seal::Position;
use moteseal_seal::encryption::SealCipher;

use crate::support::{EPOCH, Group, Sealed, everything};

/// Two columns of fixed width, of both suites, around a plain one, and a text.
pub(crate) const FIELDS: [&str; 4] =
    ["temperature:Cel:i16/100?!", "seen::u8", "open::bool!aes", "place::text9!"];
/// The base epoch of all secrets.
pub(crate) const BASE: EpochNumber = EpochNumber(EPOCH - 40);

pub(crate) fn encode(fields: &[&str]) -> Vec<u8> {
    let fields: Vec<_> = fields.iter().map(|field| Field::parse(field).unwrap()).collect();
    Schema::encode(&fields, &mut [0; MAX_SCHEMA]).unwrap().as_bytes().to_vec()
}

/// Returns the ids of the encrypted columns.
pub(crate) fn columns(schema: &Schema<'_>) -> Vec<ColumnId> {
    schema.encrypted_columns().map(|(_, column)| column).collect()
}

pub(crate) fn secret_of(name: &str) -> StreamSecret {
    let mut bytes = [9; 32];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    StreamSecret::new(bytes, BASE)
}

/// Returns a record in plaintext of [`FIELDS`].
pub(crate) fn record(temperature: i16, seen: u8, open: bool, place: &str) -> Vec<u8> {
    let mut record = temperature.to_be_bytes().to_vec();
    record.extend([seen, open.into(), place.len() as u8]);
    record.extend(place.as_bytes());
    record
}

/// Returns the key streams of a seal of a device, as the device derives them.
pub(crate) fn streams(
    schema: &Schema<'_>,
    device: DeviceId,
    (epoch, index): (EpochNumber, SealIndex),
    (secret, nonce): (&StreamSecret, Nonce),
) -> Vec<KeyStream> {
    let stream = |(field, column): (Field<'_>, ColumnId)| {
        let key = secret.column(column).epoch_key(epoch).unwrap();
        KeyStream::new(key.seal_key(device, index, field.suite.unwrap(), &nonce))
    };
    schema.encrypted_columns().map(stream).collect()
}

/// Encrypts records as a device does.
pub(crate) fn encrypted(
    schema: &Schema<'_>,
    records: &[Vec<u8>],
    nonce: Nonce,
    streams: Vec<KeyStream>,
) -> (Vec<Vec<u8>>, KeyCommitments) {
    let mut cipher = SealCipher::new(schema, nonce, streams).unwrap();
    let mut sealed = records.to_vec();
    for (seq, record) in (0..).map(Sequence).zip(&mut sealed) {
        cipher.encrypt(seq, record).unwrap();
    }
    (sealed, cipher.commitments())
}

/// Encrypts records without checking them.
pub(crate) fn unchecked(
    schema: &Schema<'_>,
    records: &[Vec<u8>],
    nonce: Nonce,
    mut streams: Vec<KeyStream>,
) -> (Vec<Vec<u8>>, KeyCommitments) {
    let keys = KeyCommitments::new(nonce, streams.iter().map(KeyStream::key)).unwrap();
    let mut sealed = records.to_vec();
    for (seq, record) in (0..).map(Sequence).zip(&mut sealed) {
        EncryptedColumns::of(schema).encrypt(seq, record, &mut streams).unwrap();
    }
    (sealed, keys)
}

/// The index of a device's next seal.
pub(crate) fn next_index(position: &Position) -> SealIndex {
    SealIndex(position.last.map_or(0, |(index, _)| index.0 + 1))
}

impl Group {
    /// Encrypts records with the secret of a device, and seals them as an epoch.
    pub(crate) fn seal_secretly(
        &self,
        name: &str,
        position: &mut Position,
        epoch: u64,
        fields: &[&str],
        records: &[Vec<u8>],
    ) -> Sealed {
        let bytes = encode(fields);
        let schema = Schema::decode(&bytes).unwrap();
        let index = next_index(position);
        let nonce = Nonce([epoch as u8 ^ index.0 as u8; 12]);
        let place = (EpochNumber(epoch), index);
        let streams = streams(&schema, self.device(name), place, (&secret_of(name), nonce));
        let (sealed, keys) = encrypted(&schema, records, nonce, streams);
        self.seal_encrypted(name, position, (epoch, true), fields, (&sealed, Some(keys)))
    }

    /// Verifies an answer about all readings of devices, with keys.
    pub(crate) fn read(
        &self,
        names: &[&str],
        keys: Option<&mut dyn SealKeys>,
        answer: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<Report, String> {
        let mut session = Session::new(&self.roster, self.query(names, None, everything()), None);
        if let Some(keys) = keys {
            session = session.with_keys(keys);
        }
        let name = |stop| moteseal_client::Error::from(stop).name().to_owned();
        session.feed(answer, sink).map_err(name)?;
        session.finish(sink).map(|(report, _)| report).map_err(name)
    }
}

/// Returns the text of a value, or the name of the reason why a column is null.
pub(crate) type Cell = Result<String, &'static str>;

/// Collects the cells of rows, by row.
#[derive(Debug, Default)]
pub(crate) struct Cells(pub(crate) Vec<(DeviceId, EpochNumber, Sequence, Vec<Cell>)>);

impl Sink for Cells {
    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        let columns: Vec<_> = rows.columns().collect();
        rows.for_each(|seq, _, record| {
            let cell = |column: &Column<'_>| -> Cell {
                let readable = column.readable().map_err(|withheld| withheld.name())?;
                Ok(readable.read(record).unwrap().to_string())
            };
            let cells = columns.iter().map(cell).collect();
            self.0.push((rows.device(), rows.statement().epoch, seq, cells));
        });
        Ok(())
    }
}

/// The keys that a reader was granted: nodes of columns of devices.
#[derive(Debug, Default)]
pub(crate) struct Granted {
    nodes: Vec<(DeviceId, ColumnId, Vec<Node>)>,
    /// The number of requests for a key.
    pub(crate) requests: usize,
}

impl Granted {
    pub(crate) fn add(
        &mut self,
        device: DeviceId,
        (secret, column): (&StreamSecret, ColumnId),
        (first, last): (u64, u64),
    ) {
        let root = secret.column(column);
        let nodes = root.cover(EpochNumber(first)..=EpochNumber(last)).collect();
        self.nodes.push((device, column, nodes));
    }
}

impl SealKeys for Granted {
    fn seal_key(
        &mut self,
        request: &KeyRequest,
        commitment: &Commitment,
    ) -> Result<SealKey, KeyAccessError> {
        self.requests += 1;
        let KeyRequest { device, column, epoch, index, suite, nonce } = *request;
        let mut result = Err(KeyAccessError::NotCovered);
        for (_, _, nodes) in self.nodes.iter().filter(|of| (of.0, of.1) == (device, column)) {
            let Ok(key) = Nodes::new(column, BASE, nodes).epoch_key(epoch) else { continue };
            let key = key.seal_key(device, index, suite, &nonce);
            result = key.check(commitment).map(|()| key);
            if result.is_ok() {
                break;
            }
        }
        result
    }
}

/// A source whose keys are what a function returns.
pub(crate) struct Source<F>(pub(crate) F);

impl<F> SealKeys for Source<F>
where
    F: FnMut(&KeyRequest) -> Result<SealKey, KeyAccessError> + Send,
{
    fn seal_key(
        &mut self,
        request: &KeyRequest,
        _: &Commitment,
    ) -> Result<SealKey, KeyAccessError> {
        (self.0)(request)
    }
}
