//! Makes the bundles of random tables that a device in C has sealed, from the same inputs, and compares each
//! byte. Levels, roots and records are computed here in the slow way of the specification: whole blocks of
//! a star (spec/objects.md, section 6.3), a recursive tree (6.4), the digests of column groups (spec/groups.md,
//! section 3).

use std::error::Error;

use moteseal_core::DeviceId;
use moteseal_core::cbor::Writer;
use moteseal_core::confidential::{
    EncryptedColumns, KeyCommitments, KeyStream, Nonce, StreamSecret,
};
use moteseal_core::digest::{Digest, tag};
use moteseal_core::identity::decode_public_pem;
use moteseal_core::record::{EpochNumber, Framing, Level, Scheme, SealIndex, Sequence};
use moteseal_core::roster::{Directory as _, Roster};
use moteseal_core::schema::{GroupLayout, Schema};
use moteseal_seal::level::{Counters, SaltKey};
use moteseal_seal::stream::{self, Open, Selection};
use moteseal_seal::tree::geometry;
use moteseal_seal::{Position, Seal, Statement, star, tree};

/// The secrets of the device in `random.c`.
const SALT_KEY: [u8; 3] = [1, 2, 3];
const STREAM_SECRET: [u8; 3] = [4, 5, 6];

/// The numbers of seals that were compared.
#[derive(Debug, Default)]
struct Counts {
    stars: u32,
    grouped: u32,
    trees: u32,
    /// The seals of each scheme with encrypted columns, and the events of all seals.
    encrypted_stars: u32,
    encrypted_trees: u32,
    events: usize,
}

/// What a device seals as one bundle.
struct Table<'a> {
    scheme: Scheme,
    is_last: bool,
    epoch: EpochNumber,
    schema: &'a [u8],
    nonce: Nonce,
    /// The events in plaintext.
    events: Vec<Vec<u8>>,
    signature: &'a [u8],
    bundle: &'a [u8],
}

/// Compares all tables of a file. Returns the number of the events, and describes the seals.
pub(crate) fn compare(
    roster: &str,
    operator: &str,
    name: &str,
    path: &str,
) -> Result<String, Box<dyn Error>> {
    let (bytes, operator, file) =
        (std::fs::read(roster)?, std::fs::read(operator)?, std::fs::read(path)?);
    let mut scratch = vec![0; bytes.len() + 64];
    let roster = Roster::open(&bytes, &decode_public_pem(&operator)?, &mut scratch)?;
    let device = roster.device_named(name).ok_or("the roster has no such device")?.id;
    let prev = roster.first_prev(device).ok_or("the device has no certificate")?;
    let mut position = Position::start(prev);
    let (mut rest, mut index, mut counts) = (&file[..], SealIndex(0), Counts::default());
    while !rest.is_empty() {
        let table = Table::read(&mut rest)?;
        let (bundle, after) = table.sealed(&roster, device, index, position, &mut counts)?;
        if bundle != table.bundle {
            let at = bundle.iter().zip(table.bundle).take_while(|(a, b)| a == b).count();
            return Err(format!("seal {} differs from byte {at} on", index.0).into());
        }
        (position, index) = (after, SealIndex(index.0 + 1));
    }
    let Counts { stars, grouped, trees, encrypted_stars, encrypted_trees, events } = counts;
    if [stars, grouped, trees, encrypted_stars, encrypted_trees].contains(&0) {
        return Err(format!("not every kind of seal: {counts:?}").into());
    }
    Ok(events.to_string())
}

/// Splits the next item off, without its length.
fn item<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Box<dyn Error>> {
    let (length, after) = rest.split_first_chunk().ok_or("the file is truncated")?;
    let length = usize::try_from(u32::from_be_bytes(*length))?;
    let (item, after) = after.split_at_checked(length).ok_or("the file is truncated")?;
    *rest = after;
    Ok(item)
}

impl<'a> Table<'a> {
    fn read(rest: &mut &'a [u8]) -> Result<Self, Box<dyn Error>> {
        let [flags] = *item(rest)? else { return Err("not the flags".into()) };
        let (epoch, schema) = (u64::from_be_bytes(item(rest)?.try_into()?), item(rest)?);
        let (nonce, mut plain) = (Nonce(item(rest)?.try_into()?), item(rest)?);
        let mut events = Vec::new();
        while let Some((event, after)) =
            Framing::Prefixed.split_first(plain).filter(|_| !plain.is_empty())
        {
            events.push(event.to_vec());
            plain = after;
        }
        Ok(Self {
            scheme: if flags & 1 == 1 { Scheme::Tree } else { Scheme::Star },
            is_last: flags & 2 == 2,
            epoch: EpochNumber(epoch),
            schema,
            nonce,
            events,
            signature: item(rest)?,
            bundle: item(rest)?,
        })
    }

    /// Encrypts and seals the events. Returns the bundle, and the position after it.
    fn sealed(
        &self,
        roster: &Roster<'_>,
        device: DeviceId,
        index: SealIndex,
        position: Position,
        counts: &mut Counts,
    ) -> Result<(Vec<u8>, Position), Box<dyn Error>> {
        let schema = Schema::decode(self.schema)?;
        let levels = roster.period(self.epoch).levels;
        let mut statement =
            Statement::new(self.scheme, roster.group(), roster.digest(), device, levels);
        (statement.index, statement.epoch) = (index, self.epoch);
        (statement.prev, statement.last) = (position.prev, position.last);
        statement.last_in_epoch = self.is_last;
        (statement.schema, statement.groups) = (schema.digest(), schema.groups());
        statement.salt = SaltKey::new(padded(&SALT_KEY)).salt(device, index);
        let events = self.encrypted(roster, &schema, &mut statement)?;
        let level = |seq: usize| statement.salt.level(Sequence(seq as u64), levels);
        let mut counters = Counters::new(levels);
        for seq in 0..events.len() {
            counters.as_mut_slice()[usize::from(level(seq).0)] += 1;
        }
        statement.counters = counters;

        let framing = schema.record_size().and_then(Framing::fixed).unwrap_or(Framing::Prefixed);
        let mut records = Vec::new();
        let root = match self.scheme {
            Scheme::Tree => {
                events.iter().for_each(|event| frame(framing, event, &mut records));
                tree_root(&events)
            }
            Scheme::Star => {
                let mut digests = vec![Digest::NULL; levels.into()];
                for of_level in (0..levels).rev().map(Level) {
                    let of_block = |(seq, event)| (level(seq) == of_level).then_some(event);
                    let block: Vec<&Vec<u8>> =
                        events.iter().enumerate().filter_map(of_block).collect();
                    block.iter().for_each(|event| frame(framing, event, &mut records));
                    if !block.is_empty() {
                        let place = (device, index, of_level);
                        digests[usize::from(of_level.0)] =
                            block_digest(place, &schema, framing, &block);
                    }
                }
                star::root(&statement.counters, &digests)
            }
        };
        let kind = match self.scheme {
            Scheme::Tree => &mut counts.trees,
            Scheme::Star if statement.groups.is_empty() => &mut counts.stars,
            Scheme::Star => &mut counts.grouped,
        };
        *kind += 1;
        if statement.keys.is_some() {
            match self.scheme {
                Scheme::Tree => counts.encrypted_trees += 1,
                Scheme::Star => counts.encrypted_stars += 1,
            }
        }
        counts.events += events.len();

        let (certificate, key) = roster
            .device(device)
            .ok_or("the roster has no such device")?
            .key(index, self.epoch)
            .map_err(|_| "the seal has no key")?;
        let seal = Seal::new(statement, root, certificate.algorithm);
        seal.signed_by(&key, self.signature).map_err(|error| error.name())?;
        let roster_version = roster.version();
        let open = Open { device, roster_version, prev: Some(position.prev), last: position.last };
        let mut out = vec![0; self.schema.len() + records.len() + 4096];
        let mut writer = Writer::new(&mut out);
        stream::encode_schema(&mut writer, self.schema)?;
        open.encode(&mut writer)?;
        let selection = Selection::Levels(seal.statement().surviving());
        stream::encode_part_head(&mut writer, &seal, selection, &[], records.len())?;
        writer.raw(&records)?;
        stream::encode_part_tail(&mut writer, Some(self.signature))?;
        Ok((writer.finish().to_vec(), seal.position()))
    }

    /// Encrypts the events, and states the keys.
    fn encrypted(
        &self,
        roster: &Roster<'_>,
        schema: &Schema<'_>,
        statement: &mut Statement,
    ) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
        let secret = StreamSecret::new(padded(&STREAM_SECRET), roster.first_epoch());
        let mut streams = Vec::new();
        for (field, column) in schema.encrypted_columns() {
            let key = secret.column(column).epoch_key(self.epoch)?;
            let suite = field.suite.ok_or("the column is not encrypted")?;
            let (device, index) = (statement.device, statement.index);
            streams.push(KeyStream::new(key.seal_key(device, index, suite, &self.nonce)));
        }
        let mut events = self.events.clone();
        for (seq, event) in (0..).map(Sequence).zip(&mut events) {
            schema.check_plain_record(event)?;
            EncryptedColumns::of(schema).encrypt(seq, event, &mut streams)?;
        }
        statement.keys = KeyCommitments::new(self.nonce, streams.iter().map(KeyStream::key));
        Ok(events)
    }
}

fn padded(bytes: &[u8; 3]) -> [u8; 32] {
    let mut out = [0; 32];
    out[..3].copy_from_slice(bytes);
    out
}

fn frame(framing: Framing, event: &[u8], out: &mut Vec<u8>) {
    framing.frame(event, |bytes| out.extend_from_slice(bytes));
}

/// Returns the digest of a level that has events.
fn block_digest(
    (device, index, level): (DeviceId, SealIndex, Level),
    schema: &Schema<'_>,
    framing: Framing,
    block: &[&Vec<u8>],
) -> Digest {
    let Some(layout) = GroupLayout::new(schema, schema.groups()) else {
        let mut bytes = Vec::new();
        block.iter().for_each(|event| frame(framing, event, &mut bytes));
        return star::block_digest(device, index, level, &bytes);
    };
    let mut digests: Vec<u8> = tag::<32>(b"moteseal/2/star/level").to_vec();
    for group in schema.groups().iter() {
        let mut bytes = tag::<32>(b"moteseal/2/star/group").to_vec();
        bytes.extend(device.0);
        bytes.extend(index.0.to_be_bytes());
        bytes.extend(u32::from(level.0).to_be_bytes());
        bytes.extend(u32::from(group).to_be_bytes());
        bytes.extend([0; 12 + 64]);
        for event in block {
            layout.cells(group).frame(event, |cells| bytes.extend_from_slice(cells));
        }
        digests.extend(Digest::of(&[&bytes]).0);
    }
    Digest::of(&[&digests])
}

/// Returns the root of the tree over these events (RFC 9162, section 2.1.1).
fn tree_root(events: &[Vec<u8>]) -> Digest {
    match events {
        [] => tree::empty_root(),
        [event] => Digest::of(&[&[0], event]),
        events => {
            let (left, right) = events.split_at(geometry::split(events.len() as u64) as usize);
            Digest::of(&[&[1], &tree_root(left).0, &tree_root(right).0])
        }
    }
}
