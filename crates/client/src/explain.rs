//! What exactly was wrong with a run that is not proven: the answer beside the store's explaining form (spec/formats.md,
//! section 6). The explanation is believed as far as the device's own signature goes, and no further. The comparison itself is
//! [`moteseal_verify::explain`]; here is what the store is asked for, and what its silence is called.

use std::fmt;

use moteseal_core::record::{DeviceId, EpochNumber, Framing, SealIndex};
use moteseal_lanes::Host;
use moteseal_seal::follow::Limits;
use moteseal_seal::stream::Item;
use moteseal_seal::{Seal, tree};
use moteseal_verify::explain::explain;
use moteseal_verify::{Event, Explained, ReadError, Roster, StreamReader, Suspect};

/// The first disagreement between a part and its seal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disagreement {
    /// The part is not what the device sealed, or the explanation is not what the device signed.
    Differs(moteseal_verify::Finding),
    /// Everything is as the device sealed it, but for the signature that came with it.
    Signature,
    /// The store does not explain.
    Withheld {
        /// What it did instead.
        cause: String,
    },
}

/// What was wrong with a run, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The device.
    pub device: DeviceId,
    /// The seal's index.
    pub index: SealIndex,
    /// Its epoch.
    pub epoch: EpochNumber,
    /// What was wrong.
    pub what: Disagreement,
}

impl Finding {
    /// The finding's name: spec/errors.md.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match &self.what {
            Disagreement::Differs(finding) => finding.name(),
            Disagreement::Signature => "NotAuthentic",
            Disagreement::Withheld { .. } => "ExplanationWithheld",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, index, epoch, .. } = self;
        match &self.what {
            Disagreement::Differs(finding) => write!(f, "{}: {finding}", finding.name())?,
            Disagreement::Signature => {
                f.write_str(
                    "NotAuthentic: the signature is not the device's; all else is as it was sealed",
                )?;
            }
            Disagreement::Withheld { cause } => {
                write!(
                    f,
                    "ExplanationWithheld: the store does not show what the device signed ({cause})"
                )?;
            }
        }
        write!(f, " (device {device}, index {index}, epoch {epoch})")
    }
}

/// The explanation in a store's answer to a request for one.
pub(crate) fn explanation(answer: &[u8]) -> Result<Explained, Disagreement> {
    let withheld = |cause| Err(Disagreement::Withheld { cause });
    match Item::decode(answer) {
        Ok((Item::Explain { seal, digests }, _)) => {
            Ok(Explained { seal: seal.to_vec(), digests: digests.to_vec() })
        }
        Ok((Item::Problem { name, .. }, _)) => {
            withheld(name.chars().filter(char::is_ascii_alphanumeric).take(64).collect())
        }
        Ok(_) => withheld("it answers with something else".into()),
        Err(error) => Err(Disagreement::Differs(error.into())),
    }
}

/// Compares a part with its explanation; `Ok` if the part is what the device sealed.
pub(crate) fn examine(
    suspect: &Suspect,
    roster: &Roster,
    explained: &Explained,
) -> Result<(), moteseal_verify::Finding> {
    // The part was rebuilt from these bytes, so that they hold one.
    let Ok((Item::Part(part), _)) = Item::decode(&suspect.item) else { return Ok(()) };
    explain(roster, &suspect.seal, &suspect.blocks, &part, suspect.schema.framing, explained)
}

/// The leaf hashes of a tree, joined, from the whole bundle of the seal that `explained` shows; `None` if it is not that.
pub(crate) fn leaves(
    roster: &Roster,
    explained: &Explained,
    bundle: &[u8],
    framing: Framing,
) -> Option<Vec<u8>> {
    let (seal, _) = Seal::decode(&explained.seal).ok()?;
    let mut leaves = Vec::new();
    let engine = Host::detect();
    let mut reader = StreamReader::new(roster, Limits::default());
    let fed = reader.feed::<ReadError>(bundle, &mut |event| {
        if let Event::Proven(proven) = event
            && proven.seal.digest() == seal.digest()
            && proven.schema.framing == framing
        {
            proven
                .sample
                .for_each(&engine, |_, _, record| leaves.extend_from_slice(&tree::leaf(record).0));
        }
        Ok(())
    });
    (fed.is_ok() && leaves.len() as u64 == seal.statement().counters.total() * 32).then_some(leaves)
}
