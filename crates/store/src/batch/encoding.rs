//! The encoding of a batch in a store's journal and in a stream: a version, the schemas that the batch needs, its
//! bundles, from version 2 on its manifests, and in version 3 its urgent events. Each of them contains
//! its key. All
//! numbers are big-endian.
//!
//! A record is decoded only after the checksum of its frame, or its digest, was verified. Decoding is strict
//! nevertheless: it rejects bytes that are not exactly one batch, and heads or bodies that do not
//! belong to their keys.

use std::sync::Arc;

use moteseal_core::record::EpochNumber;
use moteseal_verify::SchemaEntry;

use crate::batch::Batch;
use crate::bundle::{Bundle, SealKey};
use crate::manifest::{ManifestKey, StoredManifest};
use crate::stored::{self, StoredSeal};
use crate::urgent::{StoredUrgent, UrgentKey};

/// The version of a batch that has only bundles.
const VERSION: u8 = 1;
/// The version of a batch with manifests.
const WITH_MANIFESTS: u8 = 2;
/// The version of a batch with urgent events, and perhaps manifests.
const WITH_EVENTS: u8 = 3;

/// Encodes a batch. Returns `None` if it has more than 2^32 - 1 bundles, or if a field of a bundle
/// is longer than 2^32 - 1 bytes.
pub(super) fn encode(batch: &Batch) -> Option<Vec<u8>> {
    let Batch { bundles: batch, manifests, events } = batch;
    let mut schemas: Vec<&Arc<SchemaEntry>> = Vec::new();
    let mut bundles = Vec::with_capacity(
        batch.iter().map(|bundle| bundle.stored_bytes() + SealKey::LENGTH + 12).sum::<usize>()
            + 256,
    );
    for bundle in batch {
        let number = number_of(&mut schemas, &bundle.schema);
        bundles.extend_from_slice(&u32::try_from(number).ok()?.to_be_bytes());
        bundles.extend_from_slice(&bundle.key.to_bytes());
        put(&mut bundles, &bundle.head)?;
        put(&mut bundles, &bundle.body)?;
    }
    let mut encoded_events = Vec::new();
    for event in events {
        let number = number_of(&mut schemas, &event.schema);
        encoded_events.extend_from_slice(&u32::try_from(number).ok()?.to_be_bytes());
        encoded_events.extend_from_slice(&event.key.to_bytes());
        encoded_events.extend_from_slice(&event.epoch.0.to_be_bytes());
        put(&mut encoded_events, &event.bytes)?;
    }
    let mut record = Vec::with_capacity(
        13 + encoded_events.len()
            + schemas.iter().map(|schema| 4 + schema.bytes.len()).sum::<usize>()
            + bundles.len(),
    );
    record.push(match (manifests.is_empty(), events.is_empty()) {
        (true, true) => VERSION,
        (false, true) => WITH_MANIFESTS,
        (_, false) => WITH_EVENTS,
    });
    record.extend_from_slice(&u32::try_from(schemas.len()).ok()?.to_be_bytes());
    for schema in schemas {
        put(&mut record, &schema.bytes)?;
    }
    record.extend_from_slice(&u32::try_from(batch.len()).ok()?.to_be_bytes());
    record.extend_from_slice(&bundles);
    if !manifests.is_empty() || !events.is_empty() {
        record.extend_from_slice(&u32::try_from(manifests.len()).ok()?.to_be_bytes());
        for manifest in manifests {
            record.extend_from_slice(&manifest.key.to_bytes());
            put(&mut record, &manifest.bytes)?;
        }
    }
    if !events.is_empty() {
        record.extend_from_slice(&u32::try_from(events.len()).ok()?.to_be_bytes());
        record.extend_from_slice(&encoded_events);
    }
    Some(record)
}

/// Returns the number of a schema in a batch, to which it is added if it is not in it.
fn number_of<'b>(schemas: &mut Vec<&'b Arc<SchemaEntry>>, schema: &'b Arc<SchemaEntry>) -> usize {
    let known = schemas.iter().position(|known| known.digest == schema.digest);
    known.unwrap_or_else(|| {
        schemas.push(schema);
        schemas.len() - 1
    })
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    out.extend_from_slice(&u32::try_from(bytes.len()).ok()?.to_be_bytes());
    out.extend_from_slice(bytes);
    Some(())
}

/// Decodes a batch. Returns `None` if the bytes are not exactly one batch.
pub(super) fn decode(record: &[u8]) -> Option<Batch> {
    let (&version, rest) = record.split_first()?;
    if !matches!(version, VERSION | WITH_MANIFESTS | WITH_EVENTS) {
        return None;
    }
    let mut rest = Rest(rest);
    let mut schemas = Vec::new();
    for _ in 0..rest.number()? {
        schemas.push(Arc::new(SchemaEntry::decode(rest.bytes()?).ok()?));
    }
    let mut batch = Vec::new();
    for _ in 0..rest.number()? {
        let schema = Arc::clone(schemas.get(rest.number()? as usize)?);
        let key = SealKey::from_bytes(rest.take(SealKey::LENGTH)?.try_into().ok()?);
        let (head, body) = (rest.bytes()?.to_vec(), rest.bytes()?.to_vec());
        let epoch = stored::epoch(&head)?;
        let seal = StoredSeal::decode(&key, &head)?;
        // Without this check, a head with its body appended would also pass.
        let sound = seal.body_length() == body.len() as u64
            && seal.seal().statement().schema == schema.digest
            && seal.framing() == schema.framing
            && (body.is_empty() || seal.inline_body().is_none());
        if !sound {
            return None;
        }
        batch.push(Bundle {
            key,
            epoch,
            kept: seal.kept(),
            from: seal.kept_from(),
            tree_from: seal.tree_from(),
            schema,
            head,
            body,
        });
    }
    let mut manifests = Vec::new();
    if version != VERSION {
        for _ in 0..rest.number()? {
            let key = ManifestKey::from_bytes(rest.take(ManifestKey::LENGTH)?.try_into().ok()?);
            manifests.push(StoredManifest { key, bytes: rest.bytes()?.to_vec() });
        }
    }
    let mut events = Vec::new();
    if version == WITH_EVENTS {
        for _ in 0..rest.number()? {
            let schema = Arc::clone(schemas.get(rest.number()? as usize)?);
            let key = UrgentKey::from_bytes(rest.take(UrgentKey::LENGTH)?.try_into().ok()?);
            let epoch = EpochNumber(u64::from_be_bytes(rest.take(8)?.try_into().ok()?));
            events.push(StoredUrgent { key, epoch, schema, bytes: rest.bytes()?.to_vec() });
        }
    }
    rest.0.is_empty().then_some(Batch { bundles: batch, manifests, events })
}

/// The bytes not yet decoded.
struct Rest<'r>(&'r [u8]);

impl<'r> Rest<'r> {
    fn take(&mut self, length: usize) -> Option<&'r [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<&'r [u8]> {
        let length = self.number()?;
        self.take(usize::try_from(length).ok()?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use moteseal_core::record::Scheme;

    use super::{Batch, StoredManifest, decode, encode};
    use crate::conformance::{Mote, manifest};

    fn batch() -> Batch {
        let (mut plain, mut opaque) = (Mote::new("plain", false), Mote::new("opaque", true));
        let mut bundles = Vec::new();
        for (epoch, n) in [(0, 0), (1, 3), (2, 300)] {
            for scheme in [Scheme::Star, Scheme::Tree] {
                bundles.push(plain.seal_some(scheme, epoch, n).bundle);
                let whole = opaque.seal_some(scheme, epoch, n);
                if n == 300 && scheme == Scheme::Star {
                    bundles.push(whole.pruned(3, opaque.schema()).bundle);
                }
                bundles.push(whole.bundle);
            }
        }
        bundles.into()
    }

    fn manifests() -> Vec<StoredManifest> {
        let made = Mote::new("plain", false).seal_some(Scheme::Star, 0, 3);
        vec![manifest(0, 1, &[&made]), manifest(1, 16, &[])]
    }

    #[test]
    fn a_batch_survives_encoding_and_decoding() {
        let with_manifests = Batch { manifests: manifests(), ..batch() };
        for batch in [Batch::default(), batch(), manifests().into(), with_manifests] {
            let back = decode(&encode(&batch).unwrap()).unwrap();
            assert_eq!(back.bundles.len(), batch.bundles.len());
            for (back, put) in back.bundles.iter().zip(&batch.bundles) {
                assert_eq!(
                    (back.key, back.epoch, back.kept, &back.schema),
                    (put.key, put.epoch, put.kept, &put.schema)
                );
                assert!(back.rows() == put.rows());
            }
            assert_eq!(back.manifests, batch.manifests);
        }
    }

    #[test]
    fn rejects_bytes_that_are_not_exactly_one_batch() {
        for batch in [batch(), manifests().into()] {
            let record = encode(&batch).unwrap();
            for length in (0..record.len()).step_by(7) {
                assert!(decode(&record[..length]).is_none(), "{length} of {} bytes", record.len());
            }
            assert!(decode(&[&record[..], b"\0"].concat()).is_none(), "a byte too many");
        }
        // The key contains the digest of the head, and the head contains the length of the body. A
        // changed record can therefore be decoded only if the change is in the events. The checksum
        // of the frame detects such a change.
        let one = batch().bundles.swap_remove(0);
        let key = one.key;
        let other = encode(&vec![one].into()).unwrap();
        for at in 0..other.len() {
            let mut modified = other.clone();
            modified[at] ^= 1;
            let same = |back: Batch| {
                back.bundles.len() == 1 && back.bundles[0].key == key && back.manifests.is_empty()
            };
            assert!(decode(&modified).is_none_or(same), "byte {at}");
        }
    }
}
