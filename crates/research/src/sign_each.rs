//! Sign-each: a signature for every event (Li et al., section IV.A).

use moteseal_core::signature::{PublicKey, SignError, Signer};

use crate::scheme::{Ask, Context, OpenError, Row, Scheme, Sealed, Unsupported};
use crate::wire::{Input, put_event, put_u32};
use crate::{content_levels, scheme};

/// Signs each event by itself. A cloud can omit any event, because nothing links the events.
#[derive(Clone, Copy, Debug, Default)]
pub struct SignEach;

fn message(context: &Context, seq: u64, event: &[u8]) -> Vec<u8> {
    context.message("each", &[&seq.to_be_bytes(), event].concat())
}

impl Scheme for SignEach {
    fn name(&self) -> &'static str {
        "sign-each"
    }

    fn seal(
        &self,
        context: &Context,
        signer: &dyn Signer,
        events: &[Vec<u8>],
    ) -> Result<Sealed, SignError> {
        let sign = |(seq, event): (u64, &Vec<u8>)| {
            Ok(signer.signature(&message(context, seq, event))?.to_vec())
        };
        let signatures: Vec<Vec<u8>> =
            (0..).zip(events).map(sign).collect::<Result<_, SignError>>()?;
        Ok(Sealed::new(signer, events, signatures))
    }

    fn serve(
        &self,
        context: &Context,
        sealed: &Sealed,
        ask: &Ask<'_>,
    ) -> Result<Vec<u8>, Unsupported> {
        let events = sealed.events.iter().map(Vec::as_slice).collect();
        let rows = scheme::pick(events, ask).map_err(|_| Unsupported)?;
        let mut out = Vec::new();
        for (seq, row) in rows.iter().filter_map(|row| Some((usize::try_from(row.seq?).ok()?, row)))
        {
            put_u32(&mut out, seq);
            put_event(&mut out, context.framing, &row.event);
            out.extend(&sealed.signatures[seq]);
        }
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
        let mut rows: Vec<Row> = Vec::new();
        while !input.0.is_empty() {
            let seq = u64::from(input.u32()?);
            let event = input.event(context.framing)?;
            let signature = input.take(key.algorithm().signature_length())?;
            key.verify(&message(context, seq, event), signature)
                .map_err(|_| OpenError::NotAuthentic)?;
            if rows.last().is_some_and(|last| last.seq >= Some(seq)) {
                return Err(OpenError::NotAsAsked);
            }
            rows.push(Row { seq: Some(seq), event: event.to_vec() });
        }
        // No other check is possible: the number of events is not signed.
        let as_asked = match ask {
            Ask::All => rows.iter().zip(0..).all(|(row, seq)| row.seq == Some(seq)),
            Ask::Rate(rate) => rate.levels(content_levels::LEVELS).is_some(),
            Ask::Events(chosen) => {
                rows.iter().map(|row| row.seq).eq(chosen.iter().map(|&seq| Some(seq)))
            }
        };
        if as_asked { Ok(rows) } else { Err(OpenError::NotAsAsked) }
    }

    fn device_state(&self, _: u64, _: usize) -> u64 {
        8
    }
}
