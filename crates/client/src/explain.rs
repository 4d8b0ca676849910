//! Locates the fault in a run that is not proven, by comparing the response with the store's
//! explaining form (`spec/answers.md`, section 8). The explaining form is trusted only as far as
//! the device's signature covers it. [`moteseal_verify::explain`] implements the comparison; this
//! module fetches the data.

use std::fmt;

use moteseal_api::{CBOR_SEQ, NamedError as _, paths};
use moteseal_core::record::{DeviceId, EpochNumber, Framing, SealIndex};
use moteseal_lanes::Host;
use moteseal_net::{Client as Cloud, NetError};
use moteseal_seal::follow::Limits;
use moteseal_seal::stream::Item;
use moteseal_seal::{Seal, tree};
use moteseal_verify::{Event, Explained, ReadError, Roster, StreamReader, Suspect};

/// The maximum length of a seal's explaining form, in bytes. The largest signature, statement and
/// digests together have 5 KiB.
const MAX_EXPLANATION: usize = 16 << 10;
/// The maximum length of a bundle that is fetched to explain a tree, in bytes.
const MAX_BUNDLE: usize = 80 << 20;

/// The first difference between a part and its seal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disagreement {
    /// The part is not what the device sealed, or the explaining form is not what the device
    /// signed.
    Differs(moteseal_verify::Finding),
    /// Only the signature in the response is wrong.
    Signature,
    /// The store did not send the explaining form.
    Withheld {
        /// What the store did instead.
        cause: String,
    },
}

/// The fault in a run, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The device.
    pub device: DeviceId,
    /// The seal's index.
    pub index: SealIndex,
    /// The seal's epoch.
    pub epoch: EpochNumber,
    /// The fault.
    pub what: Disagreement,
}

impl Finding {
    /// Returns the stable name of the finding (`spec/errors.md`).
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
            Disagreement::Differs(finding) => write!(f, "{finding}")?,
            Disagreement::Signature => {
                f.write_str("the signature is not the device's; all other data is as sealed")?;
            }
            Disagreement::Withheld { cause } => {
                write!(f, "the store does not show what the device signed ({cause})")?;
            }
        }
        write!(f, " (device {device}, index {index}, epoch {epoch})")
    }
}

/// Compares the parts of a run that is not proven with their explaining forms, oldest part first,
/// and returns the first difference.
pub(crate) async fn explain(
    cloud: &Cloud,
    roster: &Roster,
    suspects: &[Suspect],
) -> Option<Finding> {
    for suspect in suspects {
        let statement = suspect.seal.statement();
        let (device, index, epoch) = (statement.device, statement.index, statement.epoch);
        if let Some(what) = disagreement(cloud, roster, suspect).await {
            return Some(Finding { device, index, epoch, what });
        }
    }
    let statement = suspects.last()?.seal.statement();
    let (device, index, epoch) = (statement.device, statement.index, statement.epoch);
    Some(Finding { device, index, epoch, what: Disagreement::Signature })
}

/// Compares one part with its explaining form. Returns `None` if the part is what the device
/// sealed.
async fn disagreement(cloud: &Cloud, roster: &Roster, suspect: &Suspect) -> Option<Disagreement> {
    let (device, index) = (suspect.seal.statement().device, suspect.seal.statement().index);
    let explained = match fetch(cloud, &paths::explain(device, index), MAX_EXPLANATION)
        .await
        .map(|response| explanation(&response))
    {
        Ok(Ok(explained)) => explained,
        Ok(Err(what)) => return Some(what),
        Err(error) => return Some(Disagreement::Withheld { cause: error.named().to_string() }),
    };
    let found = examine(suspect, roster, &explained).err()?;
    if found != (moteseal_verify::Finding::Path { seq: None }) {
        return Some(Disagreement::Differs(found));
    }
    // Either the events or the digests of a tree are wrong. The whole bundle, if it is available,
    // shows which of them.
    let bundle = fetch(cloud, &paths::bundle(device, index), MAX_BUNDLE).await.ok();
    let digests =
        bundle.and_then(|bundle| leaves(roster, &explained, &bundle, suspect.schema.framing));
    let precise = digests
        .and_then(|digests| examine(suspect, roster, &Explained { digests, ..explained }).err());
    Some(Disagreement::Differs(precise.unwrap_or(found)))
}

async fn fetch(cloud: &Cloud, path: &str, limit: usize) -> Result<Vec<u8>, NetError> {
    cloud.get(path).await?.expect(CBOR_SEQ)?.bytes(limit).await
}

/// Decodes a store's response to a request for an explaining form.
fn explanation(response: &[u8]) -> Result<Explained, Disagreement> {
    let withheld = |cause| Err(Disagreement::Withheld { cause });
    match Item::decode(response) {
        Ok((Item::Explain { seal, digests }, _)) => {
            Ok(Explained { seal: seal.to_vec(), digests: digests.to_vec() })
        }
        Ok((Item::Problem { name, .. }, _)) => {
            withheld(name.chars().filter(char::is_ascii_alphanumeric).take(64).collect())
        }
        Ok(_) => withheld("the store sent an item of another type".into()),
        Err(error) => Err(Disagreement::Differs(error.into())),
    }
}

/// Compares a part with its explaining form. Returns `Ok` if the part is what the device sealed.
fn examine(
    suspect: &Suspect,
    roster: &Roster,
    explained: &Explained,
) -> Result<(), moteseal_verify::Finding> {
    // These bytes were decoded as a part before, so they contain a part.
    let Ok((Item::Part(part), _)) = Item::decode(&suspect.item) else { return Ok(()) };
    moteseal_verify::explain::explain(
        roster,
        &suspect.seal,
        &suspect.blocks,
        &part,
        suspect.schema.framing,
        explained,
    )
}

/// Returns the concatenated leaf hashes of a tree, computed from the whole bundle of the seal in
/// `explained`. Returns `None` if the bundle is of another seal, or if the seal has column groups, whose
/// trees have different leaves.
fn leaves(
    roster: &Roster,
    explained: &Explained,
    bundle: &[u8],
    framing: Framing,
) -> Option<Vec<u8>> {
    let (seal, _) = Seal::decode(&explained.seal).ok()?;
    if !seal.statement().groups.is_empty() {
        return None;
    }
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
