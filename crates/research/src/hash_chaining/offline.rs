//! The off-line solution (section 3 of Gennaro and Rohatgi). The stream is known beforehand, and
//! each message contains the digest of the next.

use moteseal_core::digest::Digest;
use moteseal_core::signature::{PublicKey, SignError, Signer};

use super::{prefix, suffices};
use crate::scheme::{self, Ask, Context, OpenError, Row, Scheme, Sealed, Unsupported};
use crate::wire::{Input, put_event, put_u32};

/// A chain of digests `D_i = H(e_i || D_{i+1})`, which is built from its end. The device signs
/// `D_0`.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfflineChain;

/// The digest that follows the last event.
const END: Digest = Digest(*b"moteseal/research/chain/end\0\0\0\0\0");

fn link(context: &Context, event: &[u8], next: &Digest) -> Digest {
    let mut bytes = Vec::with_capacity(event.len() + 34);
    put_event(&mut bytes, context.framing, event);
    bytes.extend(next.0);
    Digest::of(&[&bytes])
}

fn head<'a>(
    context: &Context,
    events: impl DoubleEndedIterator<Item = &'a [u8]>,
    end: Digest,
) -> Digest {
    events.rfold(end, |next, event| link(context, event, &next))
}

impl Scheme for OfflineChain {
    fn name(&self) -> &'static str {
        "hash chaining (off-line)"
    }

    fn seal(
        &self,
        context: &Context,
        signer: &dyn Signer,
        events: &[Vec<u8>],
    ) -> Result<Sealed, SignError> {
        let head = head(context, events.iter().map(Vec::as_slice), END);
        let signature = signer.signature(&context.message("offline", &head.0))?.to_vec();
        Ok(Sealed::new(signer, events, vec![signature]))
    }

    /// Serves every event up to the last selected one, and the digest of the remaining events.
    fn serve(
        &self,
        context: &Context,
        sealed: &Sealed,
        ask: &Ask<'_>,
    ) -> Result<Vec<u8>, Unsupported> {
        let (sent, rest) = sealed.events.split_at(prefix(sealed.events.len(), ask));
        let mut out = Vec::new();
        put_u32(&mut out, sent.len());
        sent.iter().for_each(|event| put_event(&mut out, context.framing, event));
        out.extend(head(context, rest.iter().map(Vec::as_slice), END).0);
        out.extend(&sealed.signatures[0]);
        Ok(out)
    }

    fn open(
        &self,
        context: &Context,
        key: &PublicKey,
        served: &[u8],
        ask: &Ask<'_>,
    ) -> Result<Vec<Row>, OpenError> {
        let mut input = Input(served);
        let count = input.u32()?;
        let events = input.events(context.framing, count)?;
        let next = input.digest()?;
        let head = head(context, events.iter().copied(), next);
        key.verify(&context.message("offline", &head.0), input.signature())
            .map_err(|_| OpenError::NotAuthentic)?;
        suffices(events.len(), next == END, ask)?;
        scheme::pick(events, ask)
    }

    /// Returns the size of all events: the chain is built from its end, so the device stores every
    /// event until the epoch ends.
    fn device_state(&self, events: u64, size: usize) -> u64 {
        events * size as u64
    }
}
