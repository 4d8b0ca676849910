//! The content of objects: streams that a cloud accepts as uploads, and what they contain.

use moteseal_api::summary::Fingerprint;
use moteseal_core::digest::Digest;
use moteseal_net::replica::ListedSeal;
use moteseal_seal::follow::Limits;
use moteseal_seal::stream::Item;
use moteseal_verify::urgent;
use moteseal_verify::{Bundles, Event, ReadError, Roster, StreamReader, manifest};

/// The size after which an object of several bundles ends, in bytes.
pub(super) const FULL: usize = 32 << 20;
/// The maximum number of bundles in an object.
pub(super) const BUNDLES: usize = 4096;
/// The maximum number of urgent events in an object.
pub(super) const EVENTS: usize = 1024;
/// The size after which an object of urgent events ends, in bytes.
pub(super) const FULL_EVENTS: usize = 4 << 20;
/// The maximum size of one bundle, in bytes.
pub(super) const MOST_BUNDLE: usize = 64 << 20;
/// The maximum size of an object, in bytes.
pub(super) const MOST_OBJECT: u64 = (FULL + MOST_BUNDLE) as u64;

/// Verifies bundles and returns what they contain.
pub(super) fn seals(roster: &Roster, stream: &[u8]) -> Result<Vec<ListedSeal>, ReadError> {
    let events = Limits::default().max_events;
    let limits = Bundles { parts: BUNDLES, events: u64::from(events) * BUNDLES as u64 };
    let mut reader = StreamReader::new(roster, Limits::default()).of_bundles(limits);
    let mut seals = Vec::new();
    let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
        if let Event::Proven(proven) = event {
            let statement = proven.seal.statement();
            seals.push(ListedSeal {
                device: statement.device,
                index: statement.index,
                digest: proven.seal.digest(),
                kept_from: proven.whole_from().map_or(u8::MAX, |round| round.0),
                epoch: Some(statement.epoch),
            });
        }
        Ok(())
    };
    reader.feed(stream, &mut visit)?;
    reader.finish(&mut visit)?;
    Ok(seals)
}

/// Returns the fingerprint of a seal.
pub(super) fn fingerprint(seal: &ListedSeal) -> Fingerprint {
    let kept_from = moteseal_core::record::Round(seal.kept_from);
    Fingerprint::of_seal(seal.device, seal.index, &seal.digest, kept_from)
}

/// Verifies a manifest. Returns its epoch and fingerprint, or the name of the error.
pub(super) fn manifest(roster: &Roster, bytes: &[u8]) -> Result<(u64, Fingerprint), &'static str> {
    let opened = manifest::open(bytes, roster).map_err(|error| error.name())?;
    let (epoch, digest) = (opened.epoch().0, opened.digest());
    Ok((epoch, Fingerprint::of_entry(&[&epoch.to_be_bytes(), &digest.0])))
}

/// Returns the manifests of an object.
pub(super) fn manifests(stream: &[u8]) -> Option<Vec<&[u8]>> {
    let (mut manifests, mut rest) = (Vec::new(), stream);
    while !rest.is_empty() {
        let (Item::Manifest(manifest), length) = Item::decode(rest).ok()? else { return None };
        manifests.push(manifest);
        rest = &rest[length..];
    }
    Some(manifests)
}

/// Verifies urgent events and returns the fingerprint of each, or the name of the error.
pub(super) fn events(roster: &Roster, stream: &[u8]) -> Result<Vec<Fingerprint>, &'static str> {
    let read = urgent::read(stream, roster, (EVENTS, false), &mut || ());
    let read = read.map_err(|error| error.name())?;
    Ok(read.events.iter().map(event).collect())
}

/// Returns the fingerprint of an urgent event.
pub(super) fn event(event: &urgent::Urgent) -> Fingerprint {
    let Digest(digest) = event.digest();
    let (index, seq) = (event.index().0.to_be_bytes(), event.seq().0.to_be_bytes());
    Fingerprint::of_entry(&[&event.device().0, &index, &seq, &digest])
}
