//! Concatenate: one signature over the digest of all events of an epoch (Li et al., section IV.A).

use moteseal_core::digest::Digest;
use moteseal_core::signature::{PublicKey, SignError, Signer};

use crate::scheme::{self, Ask, Context, OpenError, Row, Scheme, Sealed, Unsupported};
use crate::wire::{Input, put_event, put_u32};

/// One digest over all events, signed once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Concatenate;

fn message<'a>(context: &Context, events: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    events.for_each(|event| put_event(&mut bytes, context.framing, event));
    context.message("concatenate", &Digest::of(&[&bytes]).0)
}

impl Scheme for Concatenate {
    fn name(&self) -> &'static str {
        "concatenate"
    }

    fn seal(
        &self,
        context: &Context,
        signer: &dyn Signer,
        events: &[Vec<u8>],
    ) -> Result<Sealed, SignError> {
        let signature =
            signer.signature(&message(context, events.iter().map(Vec::as_slice)))?.to_vec();
        Ok(Sealed::new(signer, events, vec![signature]))
    }

    /// Serves every event for every query, because fewer events prove nothing.
    fn serve(
        &self,
        context: &Context,
        sealed: &Sealed,
        _: &Ask<'_>,
    ) -> Result<Vec<u8>, Unsupported> {
        let mut out = Vec::new();
        put_u32(&mut out, sealed.events.len());
        sealed.events.iter().for_each(|event| put_event(&mut out, context.framing, event));
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
        key.verify(&message(context, events.iter().copied()), input.signature())
            .map_err(|_| OpenError::NotAuthentic)?;
        scheme::pick(events, ask)
    }

    /// Returns the size of all events: the paper's device buffers every event until it signs. With
    /// an incremental hash it would not need to.
    fn device_state(&self, events: u64, size: usize) -> u64 {
        events * size as u64
    }
}
