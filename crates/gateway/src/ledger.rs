//! The records of a gateway's journal, from which the gateway rebuilds its state after a restart.
//!
//! The state of a [`GroupCoordinator`](crate::GroupCoordinator) depends on the frames that it
//! received, the epochs that it ended, and the order of these frames and ends. The journal starts
//! with the state of the epochs that had already ended. Then it has one record for each later frame
//! and for each later end of an epoch. The first byte of a record is its kind. Numbers are
//! big-endian; their lengths in bytes are in parentheses:
//!
//! - 0: the state of ended epochs, in CBOR: `[1, over / null, rounds, newest, abandoned, schemas,
//!   users]` with
//!   - `rounds`: `[* [epoch, round]]`;
//!   - `newest`, the newest seals: `[* [device, index, digest, epoch, is last]]`;
//!   - `abandoned`, the abandoned seals: `[* [device, index, epoch]]`;
//!   - `schemas`: `[* schema]`;
//!   - `users`, the devices and the places of the schemas that they use: `[* [device, [* place]]]`.
//! - 1: a frame about a seal: the gateway's epoch (8), the seal's epoch (8) and index (4), the
//!   frame.
//! - 2: a frame with a stream schema.
//! - 3: the end of an epoch: the epoch (8).
//! - 4: an urgent event: the length of its stream schema (2), the schema, the signed event.

use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, Round, SealIndex};

use crate::coordinator::{Newest, Standing};

/// A record of the journal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    /// The state of ended epochs.
    Standing(Standing),
    /// A frame, and the seal that it concerns.
    Frame {
        /// The gateway's epoch when the frame arrived.
        now: EpochNumber,
        /// The seal and its epoch; `None` for a schema.
        about: Option<(SealIndex, EpochNumber)>,
        /// The frame as it was received.
        frame: &'a [u8],
    },
    /// The end of an epoch.
    End(EpochNumber),
    /// An urgent event.
    Urgent {
        /// The stream schema, encoded.
        schema: &'a [u8],
        /// The signed event.
        event: &'a [u8],
    },
}

impl<'a> Entry<'a> {
    /// Decodes a record. Returns `None` if the record is invalid.
    pub(crate) fn decode(record: &'a [u8]) -> Option<Self> {
        let (kind, rest) = record.split_first()?;
        match kind {
            0 => decode_standing(rest).ok().map(Self::Standing),
            1 => {
                let (now, rest) = rest.split_first_chunk()?;
                let (epoch, rest) = rest.split_first_chunk()?;
                let (index, frame) = rest.split_first_chunk()?;
                let about = (
                    SealIndex(u32::from_be_bytes(*index)),
                    EpochNumber(u64::from_be_bytes(*epoch)),
                );
                Some(Self::Frame {
                    now: EpochNumber(u64::from_be_bytes(*now)),
                    about: Some(about),
                    frame,
                })
            }
            2 => Some(Self::Frame { now: EpochNumber(0), about: None, frame: rest }),
            3 => Some(Self::End(EpochNumber(u64::from_be_bytes(rest.try_into().ok()?)))),
            4 => {
                let (length, rest) = rest.split_first_chunk()?;
                let length = usize::from(u16::from_be_bytes(*length));
                let (schema, event) = rest.split_at_checked(length)?;
                Some(Self::Urgent { schema, event })
            }
            _ => None,
        }
    }

    /// Encodes the record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Standing(standing) => encode_standing(standing),
            Self::Frame { now, about: Some((index, epoch)), frame } => [
                &[1][..],
                &now.0.to_be_bytes(),
                &epoch.0.to_be_bytes(),
                &index.0.to_be_bytes(),
                frame,
            ]
            .concat(),
            Self::Frame { frame, .. } => [&[2][..], frame].concat(),
            Self::End(epoch) => [&[3][..], &epoch.0.to_be_bytes()].concat(),
            Self::Urgent { schema, event } => {
                // A valid schema is shorter than 2^16 bytes.
                let length = u16::try_from(schema.len()).unwrap_or(0);
                let schema = schema.get(..usize::from(length)).unwrap_or_default();
                [&[4][..], &length.to_be_bytes(), schema, event].concat()
            }
        }
    }
}

fn encode_standing(standing: &Standing) -> Vec<u8> {
    let Standing { over, rounds, sealed, abandoned, schemas, shown } = standing;
    let shown_bytes: usize = shown.values().map(|places| 24 + 5 * places.len()).sum();
    // Upper bounds in bytes: a CBOR head takes 9, an entry of `rounds` 12, an entry of `newest` 60,
    // and an entry of `abandoned` 24.
    let schema_bytes: usize = schemas.iter().map(|schema| 9 + schema.len()).sum();
    let mut buffer = vec![
        0;
        64 + rounds.len() * 24
            + sealed.len() * 64
            + abandoned.len() * 32
            + schema_bytes
            + shown_bytes
    ];
    let mut out = Writer::new(&mut buffer);
    let mut write = || -> Result<(), BufferTooSmall> {
        out.raw(&[0])?.array(7)?.uint(1u8)?;
        out.optional(*over, |out, over| out.uint(over.0))?;
        out.array(rounds.len() as u64)?;
        for (epoch, round) in rounds {
            out.array(2)?.uint(epoch.0)?.uint(round.0)?;
        }
        out.array(sealed.len() as u64)?;
        for (device, newest) in sealed {
            out.array(5)?.bytes(&device.0)?.uint(newest.index.0)?.bytes(&newest.digest.0)?;
            out.uint(newest.epoch.0)?.bool(newest.is_last)?;
        }
        out.array(abandoned.len() as u64)?;
        for (device, (index, epoch)) in abandoned {
            out.array(3)?.bytes(&device.0)?.uint(index.0)?.uint(epoch.0)?;
        }
        out.array(schemas.len() as u64)?;
        for schema in schemas {
            out.bytes(schema)?;
        }
        out.array(shown.len() as u64)?;
        for (device, places) in shown {
            out.array(2)?.bytes(&device.0)?.array(places.len() as u64)?;
            for place in places {
                out.uint(*place)?;
            }
        }
        Ok(())
    };
    let written = write();
    debug_assert!(written.is_ok(), "the buffer is large enough for the longest encoding");
    out.written().to_vec()
}

fn decode_standing(bytes: &[u8]) -> Result<Standing, DecodeError> {
    let mut reader = Reader::new(bytes)?;
    let mut standing = Standing::default();
    reader.array(7)?;
    reader.version()?;
    standing.over = reader.optional(Reader::u64)?.map(EpochNumber);
    for _ in 0..reader.array_any()? {
        reader.array(2)?;
        standing.rounds.insert(EpochNumber(reader.u64()?), Round(reader.uint()?));
    }
    for _ in 0..reader.array_any()? {
        reader.array(5)?;
        let device = DeviceId(reader.fixed()?);
        let (index, digest) = (SealIndex(reader.uint()?), Digest(reader.fixed()?));
        let newest =
            Newest { index, digest, epoch: EpochNumber(reader.u64()?), is_last: reader.bool()? };
        standing.sealed.insert(device, newest);
    }
    for _ in 0..reader.array_any()? {
        reader.array(3)?;
        let device = DeviceId(reader.fixed()?);
        standing.abandoned.insert(device, (SealIndex(reader.uint()?), EpochNumber(reader.u64()?)));
    }
    for _ in 0..reader.array_any()? {
        standing.schemas.push(reader.bytes()?.to_vec());
    }
    for _ in 0..reader.array_any()? {
        reader.array(2)?;
        let device = DeviceId(reader.fixed()?);
        let mut places = Vec::new();
        for _ in 0..reader.array_any()? {
            places.push(reader.uint()?);
        }
        standing.shown.insert(device, places);
    }
    Ok(standing)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn records_read_back_as_they_were_written() {
        let (a, b) = (DeviceId([7; 8]), DeviceId([9; 8]));
        let newest = |index, byte, epoch, is_last| Newest {
            index: SealIndex(index),
            digest: Digest([byte; 32]),
            epoch: EpochNumber(epoch),
            is_last,
        };
        let standing = Standing {
            over: Some(EpochNumber(u64::MAX)),
            rounds: [(EpochNumber(3), Round(0)), (EpochNumber(u64::MAX), Round(32))].into(),
            sealed: [(a, newest(u32::MAX, 1, u64::MAX, true)), (b, newest(0, 2, 0, false))].into(),
            abandoned: [(a, (SealIndex(u32::MAX), EpochNumber(u64::MAX)))].into(),
            schemas: vec![vec![1, 2, 3], vec![0; 300]],
            shown: [(a, vec![1, 0]), (b, vec![u32::MAX])].into(),
        };
        let about = Some((SealIndex(4), EpochNumber(5)));
        for entry in [
            Entry::Standing(standing),
            Entry::Standing(Standing::default()),
            Entry::Frame { now: EpochNumber(6), about, frame: &[1, 2, 3] },
            Entry::Frame { now: EpochNumber(0), about: None, frame: &[4] },
            Entry::End(EpochNumber(8)),
            Entry::Urgent { schema: &[1, 2], event: &[3] },
        ] {
            assert_eq!(Entry::decode(&entry.encode()).unwrap(), entry);
        }
        for record in [&[][..], &[4], &[4, 0, 2, 1], &[5], &[3, 1], &[1; 20], &[0, 0x80]] {
            assert_eq!(Entry::decode(record), None);
        }
    }
}
