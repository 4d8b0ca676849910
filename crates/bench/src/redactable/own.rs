//! Column groups of a seal as a malleable signature. A message is a seal of one reading whose fields are
//! encrypted columns, each in a column group. A mote's message has one encrypted column.

use moteseal_core::confidential::{EpochKey, KeyStream, Nonce, Path, StreamSecret};
use moteseal_core::record::{DeviceId, EpochNumber, Framing, Scheme, SealIndex, Sequence};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, GroupLayout, Groups, MAX_GROUPS, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};
use moteseal_lab::redactable::{FIELDS, Properties};
use moteseal_seal::encryption::SealCipher;
use moteseal_seal::follow::Limits;
use moteseal_seal::level::SaltKey;
use moteseal_seal::star::{GroupedStar, root};
use moteseal_seal::stream::{Open, Selection};
use moteseal_seal::{MAX_MESSAGE, Seal, Statement};
use moteseal_verify::redaction::{merge, redact};
use moteseal_verify::{Event, ReadError, Roster, StreamReader, write};

use super::schemes::{Redactable, content, text};
use crate::group_of_one::{DEVICE, GROUP, group_of_one};

/// The properties with both algorithms.
pub(super) const OWN: [Properties; 2] =
    [own("Moteseal, column groups, ES256"), own("Moteseal, column groups, Ed25519")];

const fn own(name: &'static str) -> Properties {
    Properties {
        name,
        hidden: "columns, not their names; what stays, from readers without a key",
        redactor: "anyone",
        linked: "forms of one seal, by the signature",
    }
}

const EPOCH: EpochNumber = EpochNumber(7);

/// The group of a field. Group 0 is always shown.
fn group(field: usize) -> u8 {
    1 + (field % (MAX_GROUPS - 1)) as u8
}

/// The columns of a mote's message. The firmware of motes has at most two groups.
const OF_A_MOTE: [&str; 2] = ["a::i16", "b::u16!@1"];

/// Returns a seal of one reading of [`OF_A_MOTE`], without the schema. It has 16 levels and an Ed25519
/// signature, as in the footprint of motes.
pub(super) fn of_a_mote() -> Result<Vec<u8>, String> {
    let (device, prepared) = (Device::new(Algorithm::Ed25519, 16)?, Prepared::new(&OF_A_MOTE)?);
    let mut stream = device.seal::<16>(&prepared, vec![0, 1, 2, 3])?;
    device.verify(&stream)?;
    Ok(stream.split_off(prepared.schema_item().len()))
}

/// The device, and what it computes for its messages.
pub(super) struct Own {
    device: Device,
    /// For messages of [`FIELDS`] fields, and of twice as many.
    prepared: [Prepared; 2],
}

/// What a device computes before its first seal: its schema, and the keys of an epoch.
struct Prepared {
    schema: Vec<u8>,
    layout: GroupLayout,
    framing: Framing,
    keys: Vec<EpochKey>,
}

impl Prepared {
    /// Prepares messages with this number of fields, after a byte in group 0.
    fn with_fields(fields: usize) -> Result<Self, String> {
        let names = (0..fields).map(|field| format!("f{field}::u64!@{}", group(field)));
        let names: Vec<String> = ["kind::u8".to_owned()].into_iter().chain(names).collect();
        Self::new(&names)
    }

    fn new(names: &[impl AsRef<str>]) -> Result<Self, String> {
        let columns: Result<Vec<_>, _> =
            names.iter().map(|name| Field::parse(name.as_ref())).collect();
        let mut buffer = [0; MAX_SCHEMA];
        let schema = Schema::encode(&columns.map_err(text)?, &mut buffer).map_err(text)?;
        let secret = StreamSecret::new([7; 32], EpochNumber(0));
        let keys = schema.encrypted_columns().map(|(_, column)| {
            Path::new(&secret.column(column), EPOCH).map(|path| path.epoch_key())
        });
        Ok(Self {
            layout: GroupLayout::new(&schema, schema.groups()).ok_or("no groups")?,
            framing: schema.record_size().and_then(Framing::fixed).ok_or("no size")?,
            keys: keys.collect::<Result<_, _>>().map_err(text)?,
            schema: schema.as_bytes().to_vec(),
        })
    }

    /// Returns the item of the schema, with which a stream begins.
    fn schema_item(&self) -> Vec<u8> {
        let mut item = Vec::new();
        write::schema(&mut item, &self.schema);
        item
    }
}

/// A device and what a reader knows of it.
struct Device {
    roster: Roster,
    key: SecretKey,
    salts: SaltKey,
}

impl Device {
    fn new(algorithm: Algorithm, levels: u8) -> Result<Self, String> {
        let (roster, key) = group_of_one(algorithm, levels).map_err(text)?;
        Ok(Self { roster, key, salts: SaltKey::new([2; 32]) })
    }

    /// Encrypts a record and seals it in a star of `L` levels. Returns a stream.
    fn seal<const L: usize>(
        &self,
        prepared: &Prepared,
        mut record: Vec<u8>,
    ) -> Result<Vec<u8>, String> {
        let levels = u8::try_from(L).map_err(text)?;
        let Prepared { schema, layout, framing, keys } = prepared;
        let (device, index) = (DeviceId::of(GROUP, DEVICE), SealIndex(0));
        let schema = Schema::decode(schema).map_err(text)?;
        let (salt, nonce) = (self.salts.salt(device, index), Nonce([3; 12]));
        let streams = schema.encrypted_columns().zip(keys).filter_map(|((field, _), key)| {
            Some(KeyStream::new(key.seal_key(device, index, field.suite?, &nonce)))
        });
        let streams: Vec<_> = streams.collect();
        let mut cipher = SealCipher::new(&schema, nonce, streams).map_err(text)?;
        cipher.encrypt(Sequence(0), &mut record).map_err(text)?;
        let of_records = (*layout, *framing);
        let star = GroupedStar::<L, MAX_GROUPS>::new(device, index, &salt, of_records, levels);
        let mut star = star.ok_or("no star")?;
        star.push(&record).map_err(text)?;
        let (counters, blocks) = star.close();
        let roster = &self.roster;
        let mut statement =
            Statement::new(Scheme::Star, roster.group(), roster.digest(), device, levels);
        (statement.index, statement.epoch, statement.last_in_epoch) = (index, EPOCH, true);
        (statement.schema, statement.salt) = (schema.digest(), salt);
        (statement.keys, statement.groups) = (Some(cipher.commitments()), schema.groups());
        statement.prev = roster.first_prev(device).ok_or("no such device")?;
        statement.counters = counters;
        let selection = Selection::Levels(statement.surviving());
        let seal = Seal::new(statement, root(&counters, &blocks), self.key.algorithm());
        let message = &mut [0; MAX_MESSAGE];
        let signature = self.key.signature(seal.message(message)).map_err(text)?;
        let mut stream = Vec::new();
        write::schema(&mut stream, schema.as_bytes());
        write::open(&mut stream, &Open { device, roster_version: 0, prev: None, last: None });
        write::part(&mut stream, &seal, selection, &[], &record, Some(&signature));
        Ok(stream)
    }

    fn verify(&self, signed: &[u8]) -> Result<(), String> {
        let mut reader = StreamReader::new(&self.roster, Limits::default());
        let mut seals = 0;
        let mut visit = |event: Event<'_>| {
            seals += u32::from(matches!(event, Event::Proven(_)));
            Ok::<_, ReadError>(())
        };
        reader.feed(signed, &mut visit).map_err(text)?;
        reader.finish(&mut visit).map_err(text)?;
        if seals == 1 { Ok(()) } else { Err("the stream does not have the seal".to_owned()) }
    }
}

impl Own {
    pub(super) fn new(algorithm: Algorithm) -> Result<Self, String> {
        Ok(Self {
            device: Device::new(algorithm, 1)?,
            prepared: [Prepared::with_fields(FIELDS)?, Prepared::with_fields(2 * FIELDS)?],
        })
    }
}

impl Redactable for Own {
    type Signed = Vec<u8>;

    fn sign(&self, fields: usize) -> Result<Vec<u8>, String> {
        let [short, long] = &self.prepared;
        let mut record = vec![1];
        (0..fields).for_each(|field| record.extend_from_slice(content(field).as_bytes()));
        self.device.seal::<1>(if fields == FIELDS { short } else { long }, record)
    }

    fn redact(&self, signed: &Vec<u8>, field: usize) -> Result<Vec<u8>, String> {
        let dropped = Groups::NONE.with(group(field));
        let mut less = Vec::new();
        let checked = (&self.device.roster, Limits::default());
        redact(&mut less, signed, checked, &mut |schema| schema.groups().without(dropped))
            .map_err(text)?;
        Ok(less)
    }

    fn verify(&self, signed: &Vec<u8>) -> Result<(), String> {
        self.device.verify(signed)
    }

    fn merge(&self, one: &Vec<u8>, other: &Vec<u8>) -> Option<Result<Vec<u8>, String>> {
        let mut merged = Vec::new();
        let checked = (&self.device.roster, Limits::default());
        let result = merge(&mut merged, (one, other), checked);
        Some(result.map(|()| merged).map_err(text))
    }

    /// The bytes without the schema, which a stream has once for all its seals.
    fn length(&self, signed: &Vec<u8>) -> usize {
        let items = self.prepared.each_ref().map(Prepared::schema_item);
        let item = items.iter().find(|item| signed.starts_with(item));
        signed.len() - item.map_or(0, Vec::len)
    }
}
