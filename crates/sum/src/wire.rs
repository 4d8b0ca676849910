//! The frames between a source or aggregator and its parent (spec/sums.md, section 4). They carry
//! shares of a sum, and the questions and answers of fault localisation.
//!
//! Frames are authenticated with the key of the link, so an outsider cannot impersonate a child.
//! The link also identifies the child. Only the querier can check the sums in the frames.

use crate::query::QueryId;
use crate::sies::{Psr, PsrError, SourceSecret};
use moteseal_core::cbor::{BufferTooSmall, Reader, Writer};
use moteseal_core::link::{Direction, FrameError, LinkKey, closed, opened};
use moteseal_core::record::DeviceId;

/// A frame of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumUplink<'a> {
    /// The child's share of an epoch.
    Share(Share<'a>),
    /// The shares of an aggregator's children, in answer to a question.
    Children(Children<'a>),
    /// A source's statement that it does not answer a query.
    Refusal(Refusal<'a>),
}

/// The maximum length of the name of a reason in a [`Refusal`], in bytes.
pub const MAX_REASON: usize = 40;
/// The minimum time between two refusals of a query by a source, in milliseconds (spec/sums.md,
/// section 4.1).
pub const REFUSE_AGAIN_MS: u64 = 30_000;

/// A source's statement that it does not answer an epoch of a query, and why. Aggregators pass it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// The query: the first four bytes of its id.
    pub query: u32,
    /// The epoch that the source does not answer.
    pub epoch: u64,
    /// The source's position.
    pub position: u32,
    /// The stable name of an error (spec/errors.md): 1 to [`MAX_REASON`] ASCII letters and digits.
    pub reason: &'a str,
    /// The tag, which only the source and the querier can compute
    /// ([`refusal_tag`](crate::sies::SourceSecret::refusal_tag)).
    pub tag: [u8; 8],
}

/// The partial state records of an epoch, and the participants whose values they contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share<'a> {
    /// The query: the first four bytes of its id.
    pub query: u32,
    /// The epoch of the query.
    pub epoch: u64,
    /// The participants, as an encoded [`Participation`](moteseal_core::participation::Participation). This
    /// module does not decode it.
    pub participation: &'a [u8],
    /// The records.
    pub psrs: Psrs<'a>,
}

/// Encoded partial state records. For each key group with a participant, in ascending order, there
/// is one record per slot of the query, in slot order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Psrs<'a>(&'a [u8]);

/// The shares of some of an aggregator's children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Children<'a> {
    /// The query: the first four bytes of its id.
    pub query: u32,
    /// The epoch of the query.
    pub epoch: u64,
    /// The aggregator.
    pub node: DeviceId,
    /// The index of the first of these children among all children that sent a share in this epoch.
    pub first: u32,
    /// The number of the aggregator's children that sent a share in this epoch.
    pub total: u32,
    /// The encoded shares of the children; [`shares`](Self::shares) decodes them.
    pub shares: &'a [u8],
}

/// A question to an aggregator: which shares did its children send in an epoch? Parents pass the
/// question down the tree to the aggregator, and pass the answer back up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explain {
    /// The query: the first four bytes of its id.
    pub query: u32,
    /// The epoch of the query.
    pub epoch: u64,
    /// The aggregator to which the question is addressed.
    pub node: DeviceId,
    /// The index of the first requested child.
    pub first: u32,
}

impl<'a> Psrs<'a> {
    /// Reads an array of records. [`iter`](Self::iter) checks each record.
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
            (6, 6) => {
                let refusal = Refusal {
                    query: query(&mut reader)?,
                    epoch: reader.u64()?,
                    position: reader.uint()?,
                    reason: reader.text()?,
                    tag: reader.fixed()?,
                };
                let is_name = (1..=MAX_REASON).contains(&refusal.reason.len())
                    && refusal.reason.bytes().all(|byte| byte.is_ascii_alphanumeric());
                if !is_name {
                    return Err(FrameError::Malformed);
                }
                Self::Refusal(refusal)
            }
            _ => return Err(FrameError::Malformed),
        })
    }
}

impl<'a> Refusal<'a> {
    /// Makes the statement of the source with these secrets.
    #[must_use]
    pub fn by(
        secret: &SourceSecret,
        position: u32,
        query: QueryId,
        epoch: u64,
        reason: &'a str,
    ) -> Self {
        let tag = secret.refusal_tag(query, epoch, reason);
        Self { query: query.reference(), epoch, position, reason, tag }
    }

    /// Writes the frame. The source uses the key of its link, and an aggregator that of the link to its
    /// parent.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn close<'o>(&self, key: &LinkKey, out: &'o mut [u8]) -> Result<&'o [u8], BufferTooSmall> {
        let mut out = Writer::new(out);
        out.array(6)?.uint(6u8)?.bytes(&self.query.to_be_bytes())?.uint(self.epoch)?;
        out.uint(self.position)?.text(self.reason)?.bytes(&self.tag)?;
        closed(out, key, Direction::Up)
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
    /// Returns the id, the participants and the records of each child.
    pub fn shares(&self) -> impl Iterator<Item = (DeviceId, &'a [u8], Psrs<'a>)> + use<'a> {
        let mut reader = Reader::new(self.shares).ok();
        let mut left =
            reader.as_mut().and_then(|reader| reader.array_any().ok()).unwrap_or_default();
        core::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            child(reader.as_mut()?).ok()
        })
    }

    /// Writes the frame that answers `asked`. It contains as many children as fit in `out`,
    /// starting with the first requested one. Every child's share must fit in a frame.
    ///
    /// # Errors
    /// [`BufferTooSmall`] if not even one child fits.
    pub fn close<'o>(
        asked: &Explain,
        children: &[(DeviceId, &[u8], &[Psr])],
        key: &LinkKey,
        out: &'o mut [u8],
    ) -> Result<&'o [u8], BufferTooSmall> {
        let from = children.get(asked.first as usize..).unwrap_or_default();
        // The other parts of the frame (kind, query, epoch, node, numbers, CBOR heads and tag) need
        // fewer than 80 bytes.
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

    /// Writes an answer that arrived from a child as a frame to the caller's parent.
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
    /// Opens a frame of the parent.
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
