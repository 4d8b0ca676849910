//! Compact encoding of a set of positions in a list: the participants of a sum in the roster
//! (spec/sums.md, section 5), or the receivers of a broadcast that a receipt names
//! (spec/broadcast.md, section 7).
//!
//! Usually most of the members of a network answer, so a set has long runs of consecutive
//! positions. It is encoded either as the lengths of its runs or as a bitmap, whichever is shorter.
//! Every set has exactly one encoding. The lowest bit of the first integer selects the form.
//! Integers are encoded as LEB128. Positions are below 2^31.

use core::ops::Range;

use crate::cbor::{BufferTooSmall, Writer};

named_errors! {
    /// Why bytes are not a set of positions.
    ParticipationError {
        /// The bytes are not the canonical encoding of a set.
        MalformedParticipation => "the bytes are not the canonical encoding of a set of positions",
        /// A position is not in the list.
        UnknownPosition => "a position is after the last one of the list",
    }
}

/// Returns the maximum length in bytes of an encoded set of positions below `sources`.
#[must_use]
pub const fn max_size(sources: u32) -> usize {
    sources.div_ceil(8) as usize + 5
}

/// An encoded set of positions, which [`decode`](Self::decode) has checked to be canonical.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Participation<'a>(&'a [u8]);

impl<'a> Participation<'a> {
    /// Reads a set of positions below `sources`.
    ///
    /// # Errors
    /// [`ParticipationError`].
    pub fn decode(bytes: &'a [u8], sources: u32) -> Result<Self, ParticipationError> {
        use ParticipationError::MalformedParticipation;
        if bytes.is_empty() {
            return Ok(Self(bytes));
        }
        let mut runs = Runs::new(bytes).ok_or(MalformedParticipation)?;
        let mut size = Size::default();
        let mut before = None;
        for run in &mut runs {
            if before.is_some_and(|end| run.start <= end) || run.is_empty() {
                return Err(MalformedParticipation);
            }
            if run.end > sources {
                return Err(ParticipationError::UnknownPosition);
            }
            size.add(&run);
            before = Some(run.end);
        }
        let is_whole = runs.are_whole() && before.is_some();
        // The encoding is canonical if it has the shorter form, every integer has its shortest
        // encoding, and a bitmap has no zero byte at either end. The length does not prove that a
        // bitmap has no leading zero byte: with such a byte the base is smaller, so the encoding of
        // the base can be one byte shorter. Therefore check the start separately.
        let fits = size.is_bitmap() == runs.is_bitmap()
            && size.bytes() == bytes.len()
            && runs.start_is_canonical(&size);
        if is_whole && fits { Ok(Self(bytes)) } else { Err(MalformedParticipation) }
    }

    /// Writes the set whose members are the set bits of `words`, and returns the length of the
    /// encoding. Position 0 is the lowest bit of the first word. [`max_size`] bytes suffice.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn encode(words: &[u64], out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        write(|| runs_of(words), out)
    }

    /// Writes the set that contains only `position`. A source sends this set.
    ///
    /// # Errors
    /// [`BufferTooSmall`]. Six bytes suffice.
    pub fn encode_one(position: u32, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        write(|| core::iter::once(position..position + 1), out)
    }

    /// Writes the set that consists of the given runs: ascending ranges that are not empty and do not
    /// touch. Returns the length of the encoding.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn encode_runs<R: Iterator<Item = Range<u32>>>(
        runs: impl Fn() -> R,
        out: &mut [u8],
    ) -> Result<usize, BufferTooSmall> {
        write(runs, out)
    }

    /// Returns the encoded bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Returns the runs of consecutive positions, ascending.
    pub fn runs(&self) -> impl Iterator<Item = Range<u32>> + use<'a> {
        Runs::new(self.0).into_iter().flatten()
    }

    /// Returns the number of positions.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.runs().map(|run| run.end - run.start).sum()
    }
}

/// Writes the set that consists of the given runs.
fn write<R: Iterator<Item = Range<u32>>>(
    runs: impl Fn() -> R,
    out: &mut [u8],
) -> Result<usize, BufferTooSmall> {
    let mut size = Size::default();
    runs().for_each(|run| size.add(&run));
    let Some(first) = size.first else { return Ok(0) };
    let length = size.bytes();
    let out = out.get_mut(..length).ok_or(BufferTooSmall)?;
    if size.is_bitmap() {
        let base = first / 8;
        let bytes = (size.end.div_ceil(8) - base) as usize;
        integer(&mut Writer::new(out), u64::from(base) << 1 | 1)?;
        let bitmap = &mut out[length - bytes..];
        bitmap.fill(0);
        runs().flatten().for_each(|at| bitmap[(at / 8 - base) as usize] |= 1 << (at % 8));
    } else {
        let (mut out, mut before) = (Writer::new(out), None);
        for run in runs() {
            integer(
                &mut out,
                before.map_or(u64::from(run.start) << 1, |end: u32| u64::from(run.start - end - 1)),
            )?;
            integer(&mut out, u64::from(run.end - run.start - 1))?;
            before = Some(run.end);
        }
    }
    Ok(length)
}

/// Returns the runs of a bitmap.
pub fn runs_of(words: &[u64]) -> impl Iterator<Item = Range<u32>> {
    Bits { length: words.len() * 8, next: 0, byte: |at: usize| words[at / 8].to_le_bytes()[at % 8] }
}

/// An iterator over the runs of set bits in a sequence of bytes. The search starts at bit `next`.
struct Bits<F> {
    length: usize,
    next: usize,
    byte: F,
}

impl<F: Fn(usize) -> u8> Bits<F> {
    /// Returns the index of the next bit with the value `set`, starting at `from`; the number of
    /// bits if there is none.
    fn edge(&self, from: usize, set: bool) -> usize {
        let flip = if set { 0 } else { 0xff };
        let mut at = from;
        while at < self.length * 8 {
            let byte = ((self.byte)(at / 8) ^ flip) >> (at % 8);
            if byte != 0 {
                return at + byte.trailing_zeros() as usize;
            }
            at = (at / 8 + 1) * 8;
        }
        self.length * 8
    }
}

impl<F: Fn(usize) -> u8> Iterator for Bits<F> {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        let start = self.edge(self.next, true);
        self.next = self.edge(start, false);
        let run = u32::try_from(start).ok()?..u32::try_from(self.next).ok()?;
        (!run.is_empty()).then_some(run)
    }
}

/// The lengths of a set in both forms, used to choose the shorter one.
#[derive(Default)]
struct Size {
    first: Option<u32>,
    end: u32,
    runs: usize,
}

impl Size {
    fn add(&mut self, run: &Range<u32>) {
        self.runs += match self.first {
            None => integer_size(u64::from(run.start) << 1),
            Some(_) => integer_size(u64::from(run.start - self.end - 1)),
        };
        self.runs += integer_size(u64::from(run.end - run.start - 1));
        self.first = self.first.or(Some(run.start));
        self.end = run.end;
    }

    fn bitmap(&self) -> usize {
        let base = self.first.unwrap_or_default() / 8;
        integer_size(u64::from(base) << 1 | 1) + (self.end.div_ceil(8) - base) as usize
    }

    fn is_bitmap(&self) -> bool {
        self.bitmap() < self.runs
    }

    fn bytes(&self) -> usize {
        self.runs.min(self.bitmap())
    }
}

const fn integer_size(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// An iterator over the runs of an encoded set, which need not be canonical.
enum Runs<'a> {
    /// The form with lengths. `rest` is the unread bytes. `before` is `Ok` with the end of the
    /// previous run, or `Err` with the start of the first run.
    Lengths { rest: &'a [u8], before: Result<u32, u32>, has_failed: bool },
    /// A bitmap whose first bit is position `base`.
    Bitmap { bytes: &'a [u8], next: usize, base: u32 },
}

impl<'a> Runs<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = split_integer(bytes)?;
        if head & 1 == 0 {
            return Some(Self::Lengths { rest, before: Err(head >> 1), has_failed: false });
        }
        // A bitmap with positions of 2^32 or more is invalid.
        let base = (head >> 1).checked_mul(8)?;
        u32::try_from(rest.len()).ok()?.checked_mul(8)?.checked_add(base)?;
        Some(Self::Bitmap { bytes: rest, next: 0, base })
    }

    const fn is_bitmap(&self) -> bool {
        matches!(self, Self::Bitmap { .. })
    }

    /// Returns whether a bitmap starts with the byte that contains its first member.
    fn start_is_canonical(&self, size: &Size) -> bool {
        match self {
            Self::Lengths { .. } => true,
            Self::Bitmap { base, .. } => size.first.is_some_and(|first| base / 8 == first / 8),
        }
    }

    /// Returns whether all bytes were read without an error.
    const fn are_whole(&self) -> bool {
        match self {
            Self::Lengths { rest, has_failed, .. } => !*has_failed && rest.is_empty(),
            Self::Bitmap { .. } => true,
        }
    }
}

/// Returns the next run and the remaining bytes. The run starts at `before` if that is `Err`,
/// otherwise after the gap that follows the previous run's end.
fn split_run(rest: &[u8], before: Result<u32, u32>) -> Option<(Range<u32>, &[u8])> {
    let (start, rest) = match before {
        Err(start) => (start, rest),
        Ok(end) => {
            let (gap, rest) = split_integer(rest)?;
            (end.checked_add(gap)?.checked_add(1)?, rest)
        }
    };
    let (length, rest) = split_integer(rest)?;
    Some((start..start.checked_add(length)?.checked_add(1)?, rest))
}

impl Iterator for Runs<'_> {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        match self {
            Self::Lengths { rest, before, has_failed } => {
                if *has_failed || (before.is_ok() && rest.is_empty()) {
                    return None;
                }
                let split = split_run(rest, *before);
                *has_failed = split.is_none();
                let (run, tail) = split?;
                (*rest, *before) = (tail, Ok(run.end));
                Some(run)
            }
            Self::Bitmap { bytes, next, base } => {
                let mut bits =
                    Bits { length: bytes.len(), next: *next, byte: |at: usize| bytes[at] };
                let run = bits.next();
                *next = bits.next;
                run.map(|run| *base + run.start..*base + run.end)
            }
        }
    }
}

/// Splits a LEB128 integer of at most 32 bits off the start of `bytes`.
fn split_integer(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let mut value = 0_u64;
    for (i, byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some((u32::try_from(value).ok()?, &bytes[i + 1..]));
        }
    }
    None
}

/// Writes an integer in LEB128.
fn integer(out: &mut Writer<'_>, value: u64) -> Result<(), BufferTooSmall> {
    let mut value = value;
    loop {
        #[allow(clippy::cast_possible_truncation)]
        let low = (value & 0x7f) as u8;
        value >>= 7;
        out.raw(&[if value == 0 { low } else { low | 0x80 }])?;
        if value == 0 {
            return Ok(());
        }
    }
}
