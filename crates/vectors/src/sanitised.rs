//! Runs the operation of the vectors for sanitised column groups (spec/sanitised.md) with the product's
//! code.

use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::Limits;
use moteseal_verify::sanitised::WaitingStatements;
use moteseal_verify::{Event, ReadError, Roster, SanitisedError, StreamReader};
use serde_json::json;

use crate::ops::{Verdict, bytes};

/// Why a stream is refused.
enum Refused {
    Read(ReadError),
    Sanitised(SanitisedError),
}

impl Refused {
    fn name(&self) -> String {
        match self {
            Self::Read(error) => error.name().to_owned(),
            Self::Sanitised(error) => error.name().to_owned(),
        }
    }
}

impl From<ReadError> for Refused {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

/// Reads a stream with its sanitised items. Returns the items of each part, with the new records.
pub fn read(roster: &Roster, limits: Limits, input: &serde_json::Value) -> Verdict {
    let (mut waiting, mut sanitised) = (WaitingStatements::default(), Vec::new());
    let mut visit = |event: Event<'_>| {
        match event {
            Event::Sanitised(signed, cells) => waiting.push((signed, cells), roster),
            Event::End => waiting.finish(),
            Event::Proven(proven) => waiting.take(&proven, roster).map(|taken| {
                for of in taken {
                    let mut records = of.records();
                    let mut rows = Vec::new();
                    proven.sample.for_each(&Scalar, |seq, _, _| {
                        rows.push(json!([seq.0, hex::encode(records.next().unwrap_or_default())]));
                    });
                    sanitised.push(json!({
                        "index": of.statement().index.0,
                        "group": of.group(),
                        "by": of.by(),
                        "policy": of.statement().policy,
                        "rows": rows,
                    }));
                }
            }),
            _ => Ok(()),
        }
        .map_err(Refused::Sanitised)
    };
    let mut reader = StreamReader::new(roster, limits);
    let read =
        reader.feed(&bytes(input, "bytes"), &mut visit).and_then(|()| reader.finish(&mut visit));
    read.map_err(|refused| refused.name())?;
    waiting.finish().map_err(|error| error.name().to_owned())?;
    Ok(json!({ "sanitised": sanitised }))
}
