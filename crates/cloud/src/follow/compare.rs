//! Compares the fingerprints of two clouds block by block, and fetches from the blocks that differ.

use moteseal_api::summary::{BLOCK, BlockSummary, DeviceSummary, Fingerprint};
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_net::replica::{BlockWalk, BlocksOf, DeviceWalk};
use tracing::warn;

use super::{Failure, Follower};
use crate::state::Finding;

/// The maximum number of seals in the listing of a block. A block has 1,024 indices, and more seals
/// only if a device signed several seals under one index.
const MOST_LISTED: usize = 1 << 13;

impl Follower {
    /// Compares all blocks. Returns the number of objects that were fetched and stored.
    pub(super) async fn compare(&mut self) -> Result<u64, Failure> {
        let (mut fetched, mut differing) = (0, 0);
        let mut walk = BlockWalk::new(BlocksOf::Manifests);
        while let Some(blocks) = walk.next(&self.replica).await? {
            for (block, own) in self.differing(None, blocks).await? {
                differing += 1;
                let (since, until) = (block.first, block.first.checked_add(BLOCK));
                let stored =
                    self.fetch_manifests(EpochNumber(since), until.map(EpochNumber)).await?;
                self.remember(None, &block, own, stored);
                fetched += stored;
            }
        }
        let mut walk = DeviceWalk::default();
        while let Some(devices) = walk.next(&self.replica).await? {
            let ids: Vec<DeviceId> = devices.iter().map(|entry| entry.device).collect();
            let own = self
                .own(move |own| ids.iter().map(|device| own.device(*device)).collect::<Vec<_>>())
                .await?;
            for (DeviceSummary { device, seals }, own) in devices.into_iter().zip(own) {
                if own == seals || self.devices.get(&device) == Some(&(own, seals)) {
                    continue;
                }
                if self.shared.roster().device(device).is_none() {
                    self.report_unknown(device);
                    continue;
                }
                let (stored, blocks) = self.compare_device(device).await?;
                if stored == 0 {
                    self.devices.insert(device, (own, seals));
                }
                fetched += stored;
                differing += blocks;
            }
        }
        self.metrics.differing.set(f64::from(differing));
        Ok(fetched)
    }

    /// Compares the blocks of a device. Returns the number of bundles that were stored, and the
    /// number of blocks that differ.
    async fn compare_device(&mut self, device: DeviceId) -> Result<(u64, u32), Failure> {
        let (mut fetched, mut differing) = (0, 0);
        let mut walk = BlockWalk::new(BlocksOf::Seals(device));
        while let Some(blocks) = walk.next(&self.replica).await? {
            for (block, own) in self.differing(Some(device), blocks).await? {
                differing += 1;
                let listed = self.replica.seals_of_block(device, block.first, MOST_LISTED).await?;
                let stored = self.fetch(listed).await?;
                self.remember(Some(device), &block, own, stored);
                fetched += stored;
            }
        }
        Ok((fetched, differing))
    }

    /// Returns the blocks that differ from the own ones, with the own fingerprints, except those
    /// from which nothing can be fetched.
    async fn differing(
        &self,
        device: Option<DeviceId>,
        blocks: Vec<BlockSummary>,
    ) -> Result<Vec<(BlockSummary, Fingerprint)>, Failure> {
        let firsts: Vec<u64> = blocks.iter().map(|block| block.first).collect();
        let own = self.own(move |own| own.blocks(device, &firsts)).await?;
        let differs = |(block, own): &(BlockSummary, Fingerprint)| {
            *own != block.entries
                && self.blocks.get(&(device, block.first)) != Some(&(*own, block.entries))
        };
        Ok(blocks.into_iter().zip(own).filter(differs).collect())
    }

    /// Remembers a block from which nothing was fetched: this cloud has more, or it refuses what the
    /// other cloud has.
    fn remember(
        &mut self,
        device: Option<DeviceId>,
        block: &BlockSummary,
        own: Fingerprint,
        stored: u64,
    ) {
        if stored == 0 {
            self.blocks.insert((device, block.first), (own, block.entries));
        }
    }

    /// Reports a device that this cloud's roster does not have, once.
    pub(super) fn report_unknown(&mut self, device: DeviceId) {
        if self.unknown.insert(device, ())
            && self.shared.findings_log.allows(Finding::Followed(self.number))
        {
            let cloud = self.replica.client().base();
            warn!(cloud, %device, "skipped a device that the roster of this cloud does not have");
        }
    }
}
