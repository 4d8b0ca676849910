//! The frames between a source or aggregator and its parent: shares of a sum, and questions for
//! fault localisation (spec/sums.md, section 4).
//!
//! The frames are authenticated with the link's key, so that an outsider cannot pose as a child.
//! The link also identifies the child. Only the querier can check the sums in the frames.

use crate::sies::{Psr, PsrError};
use moteseal_core::cbor::{BufferTooSmall, Reader, Writer};
use moteseal_core::link::{Direction, FrameError, LinkKey, closed, opened};
use moteseal_core::record::DeviceId;

/// A frame of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumUplink<'a> {
    /// Its share of an epoch.
    Share(Share<'a>),
    /// The shares of an aggregator's children, in answer to a question.
    Children(Children<'a>),
}

/// The partial state records of an epoch, and the participants whose values they contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share<'a> {
    /// The query: the first four bytes of its id.
    pub query: u32,
    /// The epoch of the query.
    pub epoch: u64,
    /// The participants: an encoded [`Participation`](crate::participation::Participation), not
    /// decoded here.
    pub participation: &'a [u8],
    /// The records.
    pub psrs: Psrs<'a>,
}

/// Partial state records: for each key group that has a participant, in ascending order, one record
/// for each slot of the query, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Psrs<'a>(&'a [u8]);

/// Some of the children of an aggregator, with their shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Children<'a> {
    /// The query: the first four bytes of its id.
    pub query: u32,
    /// The epoch of the query.
    pub epoch: u64,
    /// The aggregator.
    pub node: DeviceId,
    /// The index of the first of them among its children.
    pub first: u32,
    /// The number of its children that sent a share in this epoch.
    pub total: u32,
    /// The children, encoded: see [`shares`](Self::shares).
    pub shares: &'a [u8],
}

/// A question to an aggregator: which shares its children sent in an epoch. It travels down the
/// tree to the aggregator, and the answer travels back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explain {
    /// The query: the first four bytes of its id.
    pub query: u32,
    /// The epoch of the query.
    pub epoch: u64,
    /// The aggregator that the question is for.
    pub node: DeviceId,
    /// The index of the first requested child.
    pub first: u32,
}

impl<'a> Psrs<'a> {
    /// Reads an array of records. Each record is checked by [`iter`](Self::iter).
    fn read(reader: &mut Reader<'a>) -> Result<Self, FrameError> {
        let item = reader.raw()?;
        let mut each = Reader::new(item)?;
        (0..each.array_any()?).try_for_each(|_| each.bytes().map(|_| ()))?;
        Ok(Self(item))
    }

    fn write(out: &mut Writer<'_>, psrs: &[Psr]) -> Result<(), BufferTooSmall> {
        out.array(psrs.len() as u64)?;
        psrs.iter().try_for_each(|psr| out.bytes(&psr.to_bytes()).map(|_| ()))
    }

    /// Returns the records, in order.
    pub fn iter(&self) -> impl Iterator<Item = Result<Psr, PsrError>> + use<'a> {
        let mut reader = Reader::new(self.0).ok();
        let mut left =
            reader.as_mut().and_then(|reader| reader.array_any().ok()).unwrap_or_default();
        core::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            Some(Psr::from_bytes(reader.as_mut()?.bytes().ok()?))
        })
    }
}

impl<'a> SumUplink<'a> {
    /// Opens a frame of a child.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn open(frame: &'a [u8], key: &LinkKey) -> Result<Self, FrameError> {
        let mut reader = Reader::new(opened(frame, key, Direction::Up)?)?;
        let fields = reader.array_any()?;
        Ok(match (reader.u64()?, fields) {
            (4, 5) => Self::Share(Share {
                query: query(&mut reader)?,
                epoch: reader.u64()?,
                participation: reader.bytes()?,
                psrs: Psrs::read(&mut reader)?,
            }),
            (5, 7) => {
                let (query, epoch, node) =
                    (query(&mut reader)?, reader.u64()?, DeviceId(reader.fixed()?));
                let (first, total, shares) = (reader.uint()?, reader.uint()?, reader.raw()?);
                let mut each = Reader::new(shares)?;
                (0..each.array_any()?).try_for_each(|_| child(&mut each).map(|_| ()))?;
                Self::Children(Children { query, epoch, node, first, total, shares })
            }
            _ => return Err(FrameError::Malformed),
        })
    }
}

fn query(reader: &mut Reader<'_>) -> Result<u32, FrameError> {
    Ok(u32::from_be_bytes(reader.fixed()?))
}

fn child<'a>(reader: &mut Reader<'a>) -> Result<(DeviceId, &'a [u8], Psrs<'a>), FrameError> {
    reader.array(3)?;
    Ok((DeviceId(reader.fixed()?), reader.bytes()?, Psrs::read(reader)?))
}

/// Writes the frame of a share.
///
/// # Errors
/// [`BufferTooSmall`].
pub fn close_share<'o>(
    query: u32,
    epoch: u64,
    participation: &[u8],
    psrs: &[Psr],
    key: &LinkKey,
    out: &'o mut [u8],
) -> Result<&'o [u8], BufferTooSmall> {
    let mut out = Writer::new(out);
    out.array(5)?.uint(4u8)?.bytes(&query.to_be_bytes())?.uint(epoch)?.bytes(participation)?;
    Psrs::write(&mut out, psrs)?;
    closed(out, key, Direction::Up)
}

impl<'a> Children<'a> {
    /// For each child: its id, its participants, and its records.
    pub fn shares(&self) -> impl Iterator<Item = (DeviceId, &'a [u8], Psrs<'a>)> + use<'a> {
        let mut reader = Reader::new(self.shares).ok();
        let mut left =
            reader.as_mut().and_then(|reader| reader.array_any().ok()).unwrap_or_default();
        core::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            child(reader.as_mut()?).ok()
        })
    }

    /// Writes the frame of an answer to `asked`: as many children, starting with the one asked for,
    /// as fit in `out`. Every child's share must fit in a frame.
    ///
    /// # Errors
    /// [`BufferTooSmall`] if not even one fits.
    pub fn close<'o>(
        asked: &Explain,
        children: &[(DeviceId, &[u8], &[Psr])],
        key: &LinkKey,
        out: &'o mut [u8],
    ) -> Result<&'o [u8], BufferTooSmall> {
        let from = children.get(asked.first as usize..).unwrap_or_default();
        // Kind, query, epoch, node, numbers, heads and the tag need less than this.
        let mut room = out.len().saturating_sub(80);
        let fitting = from.iter().take_while(|(_, participation, psrs)| {
            let size = 24 + participation.len() + 34 * psrs.len();
            let fits = size <= room;
            room = room.saturating_sub(size);
            fits
        });
        let page = &from[..fitting.count()];
        if page.is_empty() && !from.is_empty() {
            return Err(BufferTooSmall);
        }
        let mut out = Writer::new(out);
        out.array(7)?
            .uint(5u8)?
            .bytes(&asked.query.to_be_bytes())?
            .uint(asked.epoch)?
            .bytes(&asked.node.0)?;
        out.uint(asked.first)?.uint(children.len() as u64)?.array(page.len() as u64)?;
        for (id, participation, psrs) in page {
            out.array(3)?.bytes(&id.0)?.bytes(participation)?;
            Psrs::write(&mut out, psrs)?;
        }
        closed(out, key, Direction::Up)
    }

    /// Writes the same answer as a frame for this aggregator's own parent.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn relay<'o>(&self, key: &LinkKey, out: &'o mut [u8]) -> Result<&'o [u8], BufferTooSmall> {
        let mut out = Writer::new(out);
        out.array(7)?
            .uint(5u8)?
            .bytes(&self.query.to_be_bytes())?
            .uint(self.epoch)?
            .bytes(&self.node.0)?;
        out.uint(self.first)?.uint(self.total)?.raw(self.shares)?;
        closed(out, key, Direction::Up)
    }
}

impl Explain {
    /// Opens a frame of the parent above.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn open(frame: &[u8], key: &LinkKey) -> Result<Self, FrameError> {
        let mut reader = Reader::new(opened(frame, key, Direction::Down)?)?;
        reader.array(5)?;
        if reader.u64()? != 18 {
            return Err(FrameError::Malformed);
        }
        Ok(Self {
            query: query(&mut reader)?,
            epoch: reader.u64()?,
            node: DeviceId(reader.fixed()?),
            first: reader.uint()?,
        })
    }

    /// Writes the frame.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn close<'o>(&self, key: &LinkKey, out: &'o mut [u8]) -> Result<&'o [u8], BufferTooSmall> {
        let mut out = Writer::new(out);
        out.array(5)?
            .uint(18u8)?
            .bytes(&self.query.to_be_bytes())?
            .uint(self.epoch)?
            .bytes(&self.node.0)?
            .uint(self.first)?;
        closed(out, key, Direction::Down)
    }
}
