//! Fuzzes streams. For any bytes, a reader must terminate and must not return a row that was not
//! sealed.

use moteseal_core::record::Framing;
use moteseal_core::schema::{GroupLayout, RecordCheck, Schema};
use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::{Limits, Rebuilt, Shape};
use moteseal_seal::stream::{Item, MAX_RUN_PARTS};
use moteseal_seal::{Authentic, Follower, Seal};

use crate::fixture::{self, Row};

/// Reads the stream as a client does, and checks that every verified row was sealed.
pub fn run(bytes: &[u8]) {
    for row in rows(bytes) {
        assert!(fixture::rows().contains(&row), "a row that was never sealed: {row:?}");
    }
}

/// Returns responses with several selections of levels of both devices, single events, and the
/// explaining form.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for history in fixture::sealed() {
        for (first, mask) in [(0, 0xf), (0, 0xe), (1, 0x5), (2, 0xf), (2, 0)] {
            seeds.push(fixture::stream(history, first, mask));
        }
    }
    seeds.push(fixture::single_events(&fixture::sealed()[1][1]));
    seeds.push(fixture::explanation(&fixture::sealed()[0][1]));
    seeds
}

/// Returns the rows of every run that verifies, until the first error.
pub fn rows(bytes: &[u8]) -> Vec<Row> {
    let limits = Limits { max_events: 1 << 12 };
    let mut follower = Follower::new(fixture::directory(), Scalar, limits);
    let (mut at, mut shape, mut pending, mut rows) = (0, None, Vec::new(), Vec::new());
    let (mut check, mut encrypted, mut layout) = (None, 0, None);
    while at < bytes.len() {
        let Ok((item, length)) = Item::decode(&bytes[at..]) else { break };
        assert!(
            length > 0 && length <= bytes.len() - at,
            "an item of {length} bytes in {}",
            bytes.len() - at
        );
        at += length;
        match item {
            Item::Schema(encoded) => {
                let Ok(schema) = Schema::decode(encoded) else { break };
                let framing = schema.record_size().map_or(Some(Framing::Prefixed), Framing::fixed);
                check = RecordCheck::of(&schema);
                encrypted = schema.encrypted_count();
                layout = GroupLayout::new(&schema, schema.groups());
                shape = framing.map(|framing| (schema.digest(), framing));
            }
            Item::Open(open) if !pending.is_empty() || follower.open(&open, |_| None).is_err() => {
                break;
            }
            Item::Open(_) => {}
            Item::Part(part) => {
                let shape = shape.map(|(digest, framing)| Shape {
                    digest,
                    framing,
                    check: check.as_ref(),
                    encrypted,
                    groups: layout.as_ref(),
                });
                let Ok(rebuilt) = follower.part(&part, shape.as_ref()) else { break };
                pending.push(rebuilt);
                match part.signature {
                    Some(signature) => match prove(std::mem::take(&mut pending), signature) {
                        Some(proven) => rows.extend(proven),
                        None => break,
                    },
                    None if pending.len() == MAX_RUN_PARTS => break,
                    None => {}
                }
            }
            Item::Explain { seal, digests } => {
                assert!(digests.len() <= bytes.len());
                if let Ok((seal, signature)) = Seal::decode(seal) {
                    let ours = fixture::sealed()
                        .iter()
                        .flatten()
                        .any(|sealed| sealed.seal.digest() == seal.digest());
                    assert!(
                        seal.verify(fixture::directory(), signature).is_err() || ours,
                        "a seal that was never signed verifies"
                    );
                }
            }
            _ => {}
        }
    }
    rows
}

/// Proves a run, starting from the signature of its last seal and going back. Returns the rows.
fn prove(run: Vec<Rebuilt<'_>>, signature: &[u8]) -> Option<Vec<Row>> {
    let mut rows = Vec::new();
    let mut successor: Option<Seal<Authentic>> = None;
    for Rebuilt { seal, sample, .. } in run.into_iter().rev() {
        let (device, index) = (seal.statement().device, seal.statement().index);
        let seal = match &successor {
            Some(successor) => seal.proven_by(successor).ok()?,
            None => seal.verify(fixture::directory(), signature).ok()?,
        };
        let mut found = Vec::new();
        sample.proven(&seal)?.for_each(&Scalar, |seq, _, record| {
            found.push((device, index.0, seq.0, record.to_vec()));
        });
        rows.extend(found);
        successor = Some(seal);
    }
    Some(rows)
}
