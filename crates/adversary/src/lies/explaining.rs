//! Lies about the explaining form of a seal.

use moteseal_core::record::{DeviceId, SealIndex};

use crate::lie::{Context, Explanation};
use crate::lies::range::neighbour;

pub(crate) fn withheld(
    _: &Explanation,
    _: DeviceId,
    _: SealIndex,
    _: &Context<'_>,
) -> Option<Explanation> {
    None
}

pub(crate) fn another_seal(
    _: &Explanation,
    device: DeviceId,
    index: SealIndex,
    context: &Context<'_>,
) -> Option<Explanation> {
    let other = neighbour(context, device, index)?;
    Some(Explanation { seal: other.sign1(), digests: other.explaining() })
}

pub(crate) fn made_up(
    honest: &Explanation,
    _: DeviceId,
    _: SealIndex,
    _: &Context<'_>,
) -> Option<Explanation> {
    let mut forged = honest.clone();
    // The last byte belongs to the signature.
    if let Some(byte) = forged.seal.last_mut() {
        *byte ^= 1;
    }
    Some(forged)
}

/// Returns the digests of an explaining form. They are optional for a tree; if the honest
/// explaining form has none, they are computed from the holdings.
fn digests(
    honest: &Explanation,
    device: DeviceId,
    index: SealIndex,
    context: &Context<'_>,
) -> Vec<u8> {
    if honest.digests.is_empty() {
        return context
            .holdings
            .get(device, index)
            .map_or_else(Vec::new, super::super::holdings::Held::explaining);
    }
    honest.digests.clone()
}

pub(crate) fn other_digests(
    honest: &Explanation,
    device: DeviceId,
    index: SealIndex,
    context: &Context<'_>,
) -> Option<Explanation> {
    let mut digests = digests(honest, device, index, context);
    if let Some(byte) = digests.last_mut() {
        *byte ^= 0x10;
    }
    Some(Explanation { digests, ..honest.clone() })
}

pub(crate) fn fewer_digests(
    honest: &Explanation,
    device: DeviceId,
    index: SealIndex,
    context: &Context<'_>,
) -> Option<Explanation> {
    let mut digests = digests(honest, device, index, context);
    digests.truncate(digests.len().saturating_sub(32));
    Some(Explanation { digests, ..honest.clone() })
}
