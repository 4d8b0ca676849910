//! Update files: an image of a mote's firmware with its manifest, which a base station signs
//! (spec/update.md, section 1).

use moteseal_api::ErrorKind;
use moteseal_broadcast::KeyId;
use moteseal_broadcast::firmware::{
    FirmwareDraft, ImageTagError, UPDATE_PART, UPDATE_SUFFIX, find_tag, manifest_in,
};
use moteseal_core::cose::{Sign1, Typ};
use moteseal_core::digest::Digest;
use moteseal_core::identity::IssueError;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::SecretKey;

/// The longest image, in bytes. It is far more than the flash of a mote.
const MAX_IMAGE: usize = 64 << 20;

/// Why no update file is made of a program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateFileError {
    /// The program is an ELF file without a program for a mote.
    #[error(
        "the ELF file is damaged, or has no program for a board of 32 bits; build the firmware again"
    )]
    NoProgram,
    /// The image is empty or too long.
    #[error("the image has {0} bytes; an image has 1 byte to 64 MiB")]
    BadImageSize(usize),
    /// The image does not state its board and version.
    #[error("{0}; build the firmware for a board with slots (feature `slots`), with one tag")]
    Tag(ImageTagError),
    /// The manifest was not signed.
    #[error(
        "the base station's key cannot sign a manifest for motes: {0}; use a key of the suite ed25519 or esp256"
    )]
    Issue(IssueError),
}

impl UpdateFileError {
    /// Returns the error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NoProgram => "NoProgram",
            Self::BadImageSize(_) => "BadImageSize",
            Self::Tag(error) => error.name(),
            Self::Issue(error) => error.name(),
        }
    }

    /// Returns the error's kind: the arguments are wrong.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}

moteseal_api::named_error!(UpdateFileError);

/// An update file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UpdateFile {
    /// The bytes of the file.
    pub bytes: Vec<u8>,
    /// The board for which the image is built.
    pub board: String,
    /// The version of the image.
    pub version: u32,
    /// The length of the image in bytes.
    pub length: u32,
    /// The SHA-256 of the image.
    pub digest: Digest,
}

impl UpdateFile {
    /// Makes the update file of a program, which is an ELF file or an image. The image states its
    /// board and version. `base` is the base station's key.
    ///
    /// # Errors
    /// [`UpdateFileError`].
    pub fn sign(
        program: &[u8],
        network: NetworkId,
        base: &SecretKey,
    ) -> Result<Self, UpdateFileError> {
        let image = if program.starts_with(b"\x7fELF") {
            image_of(program).ok_or(UpdateFileError::NoProgram)?
        } else {
            program.to_vec()
        };
        if image.is_empty() || image.len() > MAX_IMAGE {
            return Err(UpdateFileError::BadImageSize(image.len()));
        }
        let length =
            u32::try_from(image.len()).map_err(|_| UpdateFileError::BadImageSize(image.len()))?;
        let (board, version) = find_tag(&image).map_err(UpdateFileError::Tag)?;
        let digest = Digest::of(&[&image]);
        let draft = FirmwareDraft {
            network,
            base: KeyId::of(&base.public()),
            board,
            version,
            length,
            digest: digest.0,
        };
        let part = draft.issue_part(base).map_err(UpdateFileError::Issue)?;
        let bytes = [&part[..], &image].concat();
        Ok(Self { bytes, board: board.to_owned(), version, length, digest })
    }

    /// Returns whether a file that starts with these bytes is an update file: its first part has a
    /// manifest, whose signature is not checked.
    #[must_use]
    pub fn is_claimed(start: &[u8]) -> bool {
        let part = start.get(..UPDATE_PART).unwrap_or_default();
        manifest_in(part).and_then(|manifest| Sign1::decode(manifest, Typ::Firmware)).is_ok()
    }

    /// Returns the usual name of the file, which is the label of its chain.
    #[must_use]
    pub fn file_name(&self) -> String {
        format!("{}-{}{UPDATE_SUFFIX}", self.board, self.version)
    }
}

/// Returns the content of flash of an ELF file of 32 bits, little-endian: its loadable segments, by
/// their load address. Gaps between them have the value of erased flash.
fn image_of(elf: &[u8]) -> Option<Vec<u8>> {
    let word = |at: usize| {
        let word = elf.get(at..)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*word)).ok()
    };
    let half = |at: usize| Some(usize::from(u16::from_le_bytes(*elf.get(at..)?.first_chunk()?)));
    if elf.get(4..6)? != [1, 1] {
        return None;
    }
    let (table, size, count) = (word(28)?, half(42)?, half(44)?);
    let mut segments = Vec::new();
    for header in (0..count).map(|number| number.checked_mul(size)?.checked_add(table)) {
        let header = header?;
        let (kind, offset, address, length) =
            (word(header)?, word(header + 4)?, word(header + 12)?, word(header + 16)?);
        if kind == 1 && length > 0 {
            segments.push((address, elf.get(offset..offset.checked_add(length)?)?));
        }
    }
    segments.sort_by_key(|(address, _)| *address);
    let start = segments.first()?.0;
    let mut image: Vec<u8> = Vec::new();
    for (address, bytes) in segments {
        let at = address - start;
        if at < image.len() || at.saturating_add(bytes.len()) > MAX_IMAGE {
            return None;
        }
        image.resize(at, 0xff);
        image.extend_from_slice(bytes);
    }
    Some(image)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use moteseal_broadcast::firmware::{FirmwareManifest, image_tag};
    use moteseal_core::signature::Algorithm;

    use super::*;

    const NETWORK: NetworkId = NetworkId([13; 8]);

    fn key(suite: Algorithm) -> SecretKey {
        SecretKey::from_seed(suite, &[14; 32]).unwrap()
    }

    /// Returns an ELF file with segments: the load address and the content of each.
    fn elf(segments: &[(u32, &[u8])]) -> Vec<u8> {
        let mut file = vec![0; 52];
        file[..6].copy_from_slice(b"\x7fELF\x01\x01");
        file[28..32].copy_from_slice(&52_u32.to_le_bytes());
        file[42..44].copy_from_slice(&32_u16.to_le_bytes());
        file[44..46].copy_from_slice(&u16::try_from(segments.len()).unwrap().to_le_bytes());
        let mut offset = u32::try_from(52 + 32 * segments.len()).unwrap();
        for (address, content) in segments {
            let length = u32::try_from(content.len()).unwrap();
            for word in [1, offset, *address, *address, length, length, 5, 4] {
                file.extend(word.to_le_bytes());
            }
            offset += length;
        }
        segments.iter().for_each(|(_, content)| file.extend_from_slice(content));
        file
    }

    #[test]
    fn signs_the_image_of_an_elf_file_for_the_board_and_version_that_it_states() {
        let tag = image_tag("mps2-an385", 7);
        let program = elf(&[(0x2101_1064, &tag), (0x2101_1000, &[1; 96])]);
        let file = UpdateFile::sign(&program, NETWORK, &key(Algorithm::Ed25519)).unwrap();
        assert_eq!(file.file_name(), "mps2-an385-7.firmware");
        assert!(UpdateFile::is_claimed(&file.bytes));
        let (part, image) = file.bytes.split_at(UPDATE_PART);
        assert_eq!(image, [&[1; 96][..], &[0xff; 4], &tag].concat());
        let base = key(Algorithm::Ed25519).public();
        let manifest = FirmwareManifest::open_part(part, NETWORK, &base).unwrap();
        assert_eq!((manifest.board, manifest.version), ("mps2-an385", 7));
        assert_eq!(manifest.length as usize, image.len());
        assert_eq!(manifest.digest, Digest::of(&[image]).0);
        // The image itself gives the same file.
        let again = UpdateFile::sign(image, NETWORK, &key(Algorithm::Ed25519)).unwrap();
        assert_eq!(again.bytes, file.bytes);
    }

    #[test]
    fn refuses_programs_without_an_image_or_a_tag() {
        let name = |program: &[u8]| {
            UpdateFile::sign(program, NETWORK, &key(Algorithm::Ed25519)).unwrap_err().name()
        };
        let program = elf(&[(0, &image_tag("b", 1))]);
        assert_eq!(name(b""), "BadImageSize");
        assert_eq!(name(b"no image"), "NoImageTag");
        assert_eq!(name(&elf(&[])), "NoProgram");
        assert_eq!(name(&elf(&[(0, &[1; 8]), (4, &[2; 8])])), "NoProgram", "overlapping segments");
        assert_eq!(name(&elf(&[(0, &[1; 8]), (u32::MAX - 8, &[2; 8])])), "NoProgram");
        for length in 4..program.len() {
            assert_eq!(name(&program[..length]), "NoProgram", "{length}");
        }
        let with_large_signature =
            UpdateFile::sign(&image_tag("b", 1), NETWORK, &key(Algorithm::MlDsa44));
        assert_eq!(with_large_signature.unwrap_err().name(), "BufferTooSmall");
    }
}
