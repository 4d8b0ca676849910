//! A proof of bundles (`spec/answers.md`, section 7.1). A bundle has the same parts as the answer of a cloud,
//! but no query, and nothing after its last seal shows that the device sealed no more. So the proof is a
//! redacted one, whatever the bundles have. Its devices and its range of epochs are those of the bundles.

use std::io::{self, Read};
use std::vec;

use moteseal_verify::{Roster, write};

use super::merge::Merger;
use super::output::Encoder;
use super::part::OwnedPart;
use crate::error::Error;
use crate::proof::Scope;

/// Makes a proof of bundles (`.mseal`), for [`redact`](super::redact()).
///
/// ```no_run
/// # fn example(roster: &moteseal_verify::Roster) -> Result<(), Box<dyn std::error::Error>> {
/// use std::path::Path;
///
/// use moteseal_client::bundles::StreamFile;
/// use moteseal_client::redact::{BundleProof, Keep, redact};
///
/// let path = Path::new("dev1-0000000000.mseal");
/// let mut bundles = BundleProof::new(roster);
/// bundles.add(StreamFile::open(path)?)?;
/// let keep = Keep { columns: vec!["temperature".to_owned()], ..Keep::default() };
/// redact(bundles.finish()?, path, roster, &keep, Path::new("temperature.mproof"))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BundleProof<'r> {
    merger: Merger<'r>,
}

impl<'r> BundleProof<'r> {
    /// Starts a proof of bundles of the devices of `roster`.
    #[must_use]
    pub fn new(roster: &'r Roster) -> Self {
        Self { merger: Merger::new(roster) }
    }

    /// Verifies a file of bundles, and adds its seals. The files may be in any order, and may have the
    /// same seal. The order of the devices in the proof is that of their first seals here.
    ///
    /// # Errors
    /// [`Error`] if the file is rejected or cannot be read; if it has another seal under an index than
    /// the files before it ([`RedactError::NotOneOriginal`](super::RedactError::NotOneOriginal)); or if
    /// the files are too large. The proof must then be discarded.
    pub fn add(&mut self, source: impl Read) -> Result<(), Error> {
        self.merger.read_bundles(source)
    }

    /// Returns the proof. Its encoding is made while it is read.
    ///
    /// # Errors
    /// [`Error`] if no file was added, or if the seals of a device contradict each other.
    pub fn finish(self) -> Result<BundleProofReader<'r>, Error> {
        let roster = self.merger.roster;
        let (extent, runs) = self.merger.finish()?;
        let parts: Vec<OwnedPart> = runs.into_iter().flatten().map(|(part, _)| part).collect();
        let encoder = Encoder::new(&Scope::Redacted(extent), roster);
        Ok(BundleProofReader { encoder, parts: parts.into_iter(), given: 0, is_ended: false })
    }
}

/// The bytes of a proof of bundles.
#[derive(Debug)]
pub struct BundleProofReader<'r> {
    encoder: Encoder<'r>,
    /// The parts that are not encoded yet.
    parts: vec::IntoIter<OwnedPart>,
    /// The number of encoded bytes that have been read.
    given: usize,
    is_ended: bool,
}

impl Read for BundleProofReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.given == self.encoder.bytes.len() && !self.is_ended {
            self.encoder.bytes.clear();
            self.given = 0;
            match self.parts.next() {
                Some(part) => self.encoder.part(&part),
                None => {
                    write::end(&mut self.encoder.bytes);
                    self.is_ended = true;
                }
            }
        }
        let read = (&self.encoder.bytes[self.given..]).read(buffer)?;
        self.given += read;
        Ok(read)
    }
}
