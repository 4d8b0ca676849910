//! Leaves out outdated seals: the newest seals of a chain, if they name an earlier version of the
//! roster than the version that introduced the period of their epoch. No verifier accepts them. The
//! chain continues after the newest seal that is not outdated, and the next seal states a restart
//! (spec/objects.md, section 6.1).

use std::fs;
use std::path::{Path, PathBuf};

use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_seal::Position;
use moteseal_seal::stream::{Item, Open};
use moteseal_verify::Roster;

use super::{EXTENSION, Outbox, OutboxError, at};
use crate::seal::Chain;

/// What is appended to the file names of outdated bundles, which no upload finds then.
const OUTDATED: &str = "outdated";

/// An outdated bundle.
struct Outdated {
    path: PathBuf,
    index: SealIndex,
    /// The position before the bundle's seal.
    before: Position,
}

impl Outbox {
    /// Returns the bundles that [`open`](Self::open) renamed, because a later version of the roster
    /// has made them outdated. Their readings must be sealed again.
    #[must_use]
    pub fn outdated(&self) -> &[PathBuf] {
        &self.outdated
    }

    /// Renames the outdated bundles at the end of the chain, and returns the chain without them.
    /// `newest` is the directory that the state names.
    pub(super) fn leave_outdated(
        &mut self,
        roster: &Roster,
        mut chain: Chain,
        newest: &Path,
    ) -> Result<Chain, OutboxError> {
        let mut found: Vec<Outdated> = Vec::new();
        for directory in [newest, &self.directory] {
            // A directory that was moved has no bundles here.
            let bundles = self.bundles_in(directory).unwrap_or_default().into_iter().rev();
            let outdated = bundles.map_while(|(_, path)| outdated(path, roster, self.device));
            for bundle in outdated {
                // Both paths may name one directory.
                if found.iter().all(|known| known.index != bundle.index) {
                    found.push(bundle);
                }
            }
        }
        if found.is_empty() {
            return Ok(chain);
        }
        while let Some((last, _)) = chain.position.last
            && let Some(bundle) = found.iter().find(|bundle| bundle.index == last)
        {
            let position = bundle.before;
            let epoch = position.last.map(|(_, epoch)| epoch);
            chain = Chain { position, epoch, readings: 0, covered: None, ..chain };
        }
        // If the process is killed before all bundles are renamed, the next call renames the rest.
        self.persist(&chain)?;
        for Outdated { path, .. } in found {
            let renamed = path.with_extension(format!("{EXTENSION}.{OUTDATED}"));
            fs::rename(&path, &renamed).map_err(at(&path))?;
            self.outdated.push(renamed);
        }
        self.outdated.sort_unstable();
        Ok(chain)
    }
}

/// Reads a bundle. Returns it if its seal is outdated.
fn outdated(path: PathBuf, roster: &Roster, device: DeviceId) -> Option<Outdated> {
    let bytes = fs::read(&path).ok()?;
    let (mut at, mut open): (usize, Option<Open>) = (0, None);
    while at < bytes.len() {
        let (item, length) = Item::decode(&bytes[at..]).ok()?;
        at += length;
        match item {
            Item::Open(item) => open = Some(item),
            Item::Part(part) => {
                let open = open.filter(|open| open.device == device)?;
                let (next, epoch) = match open.last {
                    Some((index, epoch)) => (index.0.checked_add(1)?, epoch.0),
                    None => (0, 0),
                };
                let index = SealIndex(next.checked_add(part.skipped)?);
                let epoch = EpochNumber(epoch.checked_add(part.advance)?);
                let prev = open.prev?;
                // The outdated seal is of a later epoch than the seal before it, which is not
                // outdated. More readings of that epoch would be late.
                let before = Position { prev, last: open.last, epoch_closed: open.last.is_some() };
                return roster.is_outdated(open.roster_version, epoch).then_some(Outdated {
                    path,
                    index,
                    before,
                });
            }
            _ => {}
        }
    }
    None
}
