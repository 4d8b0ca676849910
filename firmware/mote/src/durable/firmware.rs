//! The record of the firmware (spec/mote.md, section 3.3).

use moteseal_broadcast::ChainRef;
use moteseal_broadcast::receipt::ReceiverTag;

use super::fields::Content;
use super::{Durable, FIRMWARE, Memory};
use crate::flash::Flash;
use crate::journal::JournalError;

/// The length of the record's content in bytes.
pub(super) const LENGTH: usize = 116;

/// What the journal states about the mote's firmware. The value is the content of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirmwareState(pub(super) [u8; LENGTH]);

/// The places of the fields.
mod at {
    pub(super) const VERSION: usize = 0;
    pub(super) const STAGED_VERSION: usize = 4;
    pub(super) const STAGED_LENGTH: usize = 8;
    pub(super) const NEXT_BLOCK: usize = 12;
    pub(super) const OWED_VERSION: usize = 16;
    pub(super) const STAGED_CHAIN: usize = 20;
    pub(super) const STAGED_DIGEST: usize = 28;
    pub(super) const NEXT_DIGEST: usize = 60;
    pub(super) const OWED_CHAIN: usize = 92;
    pub(super) const OWED_TAG: usize = 100;
}

impl FirmwareState {
    pub(super) const NEW: Self = Self([0; LENGTH]);

    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
    }

    fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.get(at))
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        self.0.iter_mut().skip(at).zip(bytes).for_each(|(place, byte)| *place = *byte);
    }

    /// Returns the highest version that was confirmed; 0 if there is none.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.number(at::VERSION)
    }

    /// Records that a version was confirmed.
    pub fn set_version(&mut self, version: u32) {
        self.set(at::VERSION, &version.to_be_bytes());
    }

    /// Returns the version, the length in bytes and the SHA-256 of the image that the staging slot
    /// has, completely or up to a page. The version is 0 if the slot has no image.
    #[must_use]
    pub fn staged(&self) -> (u32, usize, [u8; 32]) {
        let length = self.number(at::STAGED_LENGTH) as usize;
        (self.number(at::STAGED_VERSION), length, self.get(at::STAGED_DIGEST))
    }

    /// Records the chain that brings the image.
    pub fn set_staged_chain(&mut self, chain: ChainRef) {
        self.set(at::STAGED_CHAIN, &chain.0);
    }

    /// Records the image that is to be received.
    pub fn set_staged(&mut self, version: u32, length: u32, digest: &[u8; 32]) {
        self.set(at::STAGED_VERSION, &version.to_be_bytes());
        self.set(at::STAGED_LENGTH, &length.to_be_bytes());
        self.set(at::STAGED_DIGEST, digest);
    }

    /// Records that the staging slot has no image.
    pub fn drop_staged(&mut self) {
        self.set(at::STAGED_VERSION, &[0; 4]);
        self.set(at::NEXT_BLOCK, &[0; 4]);
    }

    /// Returns the chain of the image in the staging slot, the first block whose message is not in
    /// the slot, and the digest of this block. The block is 0 if the image is complete and was
    /// checked, and if there is none.
    #[must_use]
    pub fn next(&self) -> (ChainRef, u32, [u8; 32]) {
        let chain = ChainRef(self.get(at::STAGED_CHAIN));
        (chain, self.number(at::NEXT_BLOCK), self.get(at::NEXT_DIGEST))
    }

    /// Records the first block whose message is not in the staging slot. Make the record durable
    /// before you write or erase anything from this message on.
    pub fn set_next(&mut self, block: u32, digest: &[u8; 32]) {
        self.set(at::NEXT_BLOCK, &block.to_be_bytes());
        self.set(at::NEXT_DIGEST, digest);
    }

    /// Returns the receipt of the newest command to install an image: the version of the image, the
    /// chain, and the tag. The receipt is owed when this version is confirmed.
    #[must_use]
    pub fn owed(&self) -> (u32, ChainRef, ReceiverTag) {
        let chain = ChainRef(self.get(at::OWED_CHAIN));
        (self.number(at::OWED_VERSION), chain, self.get(at::OWED_TAG))
    }

    /// Records the receipt of a command to install an image. `None` if there is no key for it.
    pub fn set_owed(&mut self, version: u32, receipt: Option<(ChainRef, ReceiverTag)>) {
        self.set(at::OWED_VERSION, &if receipt.is_some() { version } else { 0 }.to_be_bytes());
        let (chain, tag) = receipt.unwrap_or((ChainRef([0; 8]), [0; 16]));
        self.set(at::OWED_CHAIN, &chain.0);
        self.set(at::OWED_TAG, &tag);
    }
}

impl Memory {
    /// Returns what is recorded about the firmware.
    #[must_use]
    pub const fn firmware(&self) -> &FirmwareState {
        &self.firmware
    }
}

impl<F: Flash> Durable<F> {
    /// Changes what is recorded about the firmware.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn set_firmware(&mut self, state: &FirmwareState) -> Result<(), JournalError> {
        self.record(FIRMWARE, Content::new().put(&state.0)?)
    }
}
