//! The on-line solution (section 4 of Gennaro and Rohatgi). The stream is not known beforehand, so
//! each message contains the one-time public key that signs the next. The device only stores the
//! number of its next key.

use moteseal_core::digest::Digest;
use moteseal_core::signature::{PublicKey, SignError, Signer};

use super::one_time::{OneTimeKey, SIGNATURE_BYTES, implied_key};
use super::{prefix, suffices};
use crate::scheme::{self, Ask, Context, OpenError, Row, Scheme, Sealed, Unsupported};
use crate::wire::{Input, put_event, put_u32};

/// A chain of one-time signatures. The device's key signs the first one-time key. The last message
/// states that it is the last.
#[derive(Clone)]
pub struct OnlineChain {
    seed: [u8; 32],
}

impl std::fmt::Debug for OnlineChain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnlineChain(secret)")
    }
}

impl OnlineChain {
    /// Creates a chain with one-time keys that are derived from `seed`. A seed must be used for
    /// only one epoch.
    #[must_use]
    pub const fn new(seed: [u8; 32]) -> Self {
        Self { seed }
    }
}

fn digest(event: Option<&[u8]>, next: &Digest) -> Digest {
    match event {
        Some(event) => Digest::of(&[b"moteseal/research/online/event", &next.0, event]),
        None => Digest::of(&[b"moteseal/research/online/end"]),
    }
}

impl Scheme for OnlineChain {
    fn name(&self) -> &'static str {
        "hash chaining (on-line)"
    }

    /// Seals an epoch. In the result, `digests` are the one-time public keys. `signatures` contains
    /// the device's signature, one signature for each message, and one for the end.
    fn seal(
        &self,
        context: &Context,
        signer: &dyn Signer,
        events: &[Vec<u8>],
    ) -> Result<Sealed, SignError> {
        let keys = (0..=events.len() as u64).map(|number| OneTimeKey::new(&self.seed, number));
        let digests: Vec<Digest> = keys.clone().map(|key| key.public()).collect();
        let mut signatures =
            vec![signer.signature(&context.message("online", &digests[0].0))?.to_vec()];
        for (at, key) in keys.enumerate() {
            let event = events.get(at).map(Vec::as_slice);
            signatures.push(key.sign(&digest(event, digests.get(at + 1).unwrap_or(&Digest::NULL))));
        }
        let overhead = digests.len() * 32 + signatures.iter().map(Vec::len).sum::<usize>();
        Ok(Sealed { digests, overhead, ..Sealed::new(signer, events, signatures) })
    }

    fn serve(
        &self,
        context: &Context,
        sealed: &Sealed,
        ask: &Ask<'_>,
    ) -> Result<Vec<u8>, Unsupported> {
        let count = prefix(sealed.events.len(), ask);
        let mut out = Vec::new();
        put_u32(&mut out, count);
        out.push(u8::from(count == sealed.events.len()));
        out.extend(sealed.digests[0].0);
        for at in 0..count {
            put_event(&mut out, context.framing, &sealed.events[at]);
            out.extend(sealed.digests[at + 1].0);
            out.extend(&sealed.signatures[at + 1]);
        }
        if count == sealed.events.len() {
            out.extend(&sealed.signatures[count + 1]);
        }
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
        let whole = match input.take(1)? {
            [0] => false,
            [1] => true,
            _ => return Err(OpenError::Malformed),
        };
        let first = input.digest()?;
        let mut one_time = first;
        let mut events = Vec::new();
        for _ in 0..count {
            let event = input.event(context.framing)?;
            let next = input.digest()?;
            let signature = input.take(SIGNATURE_BYTES)?;
            if implied_key(&digest(Some(event), &next), signature) != Some(one_time) {
                return Err(OpenError::NotAuthentic);
            }
            events.push(event);
            one_time = next;
        }
        if whole
            && implied_key(&digest(None, &Digest::NULL), input.take(SIGNATURE_BYTES)?)
                != Some(one_time)
        {
            return Err(OpenError::NotAuthentic);
        }
        key.verify(&context.message("online", &first.0), input.signature())
            .map_err(|_| OpenError::NotAuthentic)?;
        suffices(events.len(), whole, ask)?;
        scheme::pick(events, ask)
    }

    /// Returns the size of the next one-time key's number.
    fn device_state(&self, _: u64, _: usize) -> u64 {
        8
    }
}
