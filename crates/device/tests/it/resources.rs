//! Tests of the resources with a device's urgent events and its seals, without a network.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use moteseal_core::cbor::Writer;
use moteseal_core::record::{EpochNumber, SealIndex, Sequence};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};
use moteseal_device::durable::SignedEvent;
use moteseal_device::mote::EndedEpoch;
use moteseal_device::resources::{CORE, EVENT, Resources, SEAL};
use moteseal_net::coap::{Code, Format, Request, Response};
use moteseal_seal::UrgentEvent;
use moteseal_verify::urgent::{UrgentStream, read};

use crate::sensors::{request, roster, secret, sensed, sensors};

/// Returns an urgent event that a key signed, with the record of a temperature of 27.97 and a humidity
/// of 41.50.
pub(crate) fn signed(key: &SecretKey, seq: u64) -> SignedEvent {
    let fields = ["temperature:Cel:i16/100", "humidity:%RH:u16/100"];
    let fields: Vec<Field<'_>> = fields.iter().map(|text| Field::parse(text).unwrap()).collect();
    let mut buffer = [0; MAX_SCHEMA];
    let schema = Schema::encode(&fields, &mut buffer).unwrap();
    let roster = roster();
    let event = UrgentEvent {
        group: roster.group(),
        roster: roster.digest(),
        device: roster.id("dev1").unwrap(),
        index: SealIndex(3),
        epoch: EpochNumber(7),
        seq: Sequence(seq),
        schema: schema.digest(),
        keys: None,
        record: &[0x0a, 0xed, 0x10, 0x36],
    };
    let mut message = [0; 512];
    let message = event.message(key.algorithm(), &mut message).unwrap();
    let signature = key.signature(message).unwrap();
    let mut bytes = [0; 512];
    let mut out = Writer::new(&mut bytes);
    event.encode(&mut out, key.algorithm(), &signature).unwrap();
    SignedEvent {
        schema: Bytes::copy_from_slice(schema.as_bytes()),
        event: Bytes::copy_from_slice(out.written()),
    }
}

pub(crate) fn events(stream: &[u8]) -> Vec<u64> {
    let UrgentStream { events, void } = read(stream, &roster(), (64, true), &mut || ()).unwrap();
    assert_eq!(void, 0);
    events.iter().map(|event| event.seq().0).collect()
}

fn resources() -> Resources<SecretKey> {
    Resources::new(sensors())
}

fn get(resources: &mut Resources<SecretKey>, path: &str, accept: Option<Format>) -> Response {
    let request = Request { observes: true, ..request(path, &[], accept) };
    resources.respond(Instant::now(), &request)
}

#[test]
fn the_events_are_a_stream_that_a_client_verifies_with_the_roster_alone() {
    let mut resources = resources();
    let none = get(&mut resources, EVENT, None);
    assert_eq!((none.code, none.format), (Code::CONTENT, Some(Format::CBOR_SEQ)));
    assert!(none.accepts_observer, "a client can wait for the first event");
    assert_eq!(events(&none.body), [0; 0]);

    let kept: Vec<SignedEvent> = (0..3).map(|seq| signed(&secret(), seq)).collect();
    assert_eq!(resources.take_events(&kept), [EVENT]);
    let some = get(&mut resources, EVENT, Some(Format::CBOR_SEQ));
    assert_eq!(events(&some.body), [0, 1, 2]);
    assert_ne!(some.etag, none.etag);
    assert_eq!(get(&mut resources, EVENT, None), some);

    let newest = get(&mut resources, EVENT, Some(Format::COSE_SIGN1));
    assert_eq!((newest.format, &newest.body), (Some(Format::COSE_SIGN1), &kept[2].event));
    assert_ne!(newest.etag, some.etag);
}

#[test]
fn an_event_that_another_key_signed_or_that_was_changed_is_refused_by_name() {
    let mut resources = resources();
    let other = SecretKey::from_seed(Algorithm::Ed25519, &[2; 32]);
    resources.take_events(&[signed(&other.unwrap(), 0)]);
    let forged = get(&mut resources, EVENT, None).body;
    let name = |stream: &[u8]| read(stream, &roster(), (64, true), &mut || ()).unwrap_err().name();
    assert_eq!(name(&forged), "NotAuthentic");
    resources.take_events(&[signed(&secret(), 0)]);
    let stream = get(&mut resources, EVENT, None).body;
    for at in 0..stream.len() {
        let mut changed = stream.to_vec();
        changed[at] ^= 0x20;
        assert!(read(&changed, &roster(), (64, true), &mut || ()).is_err(), "byte {at}");
    }
    assert_eq!(name(&stream[..stream.len() - 2]), "Truncated");
}

#[test]
fn the_seals_are_those_of_the_newest_epoch_or_it_is_said_why_there_are_none() {
    let mut resources = resources();
    let refused = |response: &Response| {
        assert_eq!((response.code, response.accepts_observer), (Code::SERVICE_UNAVAILABLE, false));
        String::from_utf8(response.body.to_vec()).unwrap()
    };
    let none = "the device has no epoch that has ended since its start";
    assert_eq!(refused(&get(&mut resources, SEAL, None)), none);
    let ended = |epoch, stream: Option<&'static [u8]>| {
        Arc::new(EndedEpoch { epoch: EpochNumber(epoch), stream: stream.map(Bytes::from_static) })
    };
    assert_eq!(resources.take_ended(Some(&ended(7, Some(b"seals")))), [SEAL]);
    let first = get(&mut resources, SEAL, None);
    assert_eq!((first.format, &first.body[..]), (Some(Format::CBOR_SEQ), &b"seals"[..]));
    assert!(first.accepts_observer);
    resources.take_ended(Some(&ended(8, Some(b"other seals"))));
    assert_ne!(get(&mut resources, SEAL, Some(Format::CBOR_SEQ)).etag, first.etag);
    resources.take_ended(Some(&ended(9, None)));
    let text = refused(&get(&mut resources, SEAL, None));
    assert!(text.starts_with("the seals of epoch 9 have more than 1048576 bytes"), "{text}");
    resources.take_ended(None);
    assert_eq!(refused(&get(&mut resources, SEAL, None)), none);
}

#[test]
fn other_formats_methods_and_paths_are_refused() {
    let mut resources = resources();
    for (path, accept) in [(EVENT, Format::JSON), (SEAL, Format::COSE_SIGN1)] {
        assert_eq!(get(&mut resources, path, Some(accept)).code, Code::NOT_ACCEPTABLE);
    }
    let none = get(&mut resources, EVENT, Some(Format::COSE_SIGN1));
    assert_eq!((none.code, none.accepts_observer), (Code::SERVICE_UNAVAILABLE, false));
    for path in [EVENT, SEAL, CORE] {
        let put = Request::new(Code::PUT, path);
        let code = resources.respond(Instant::now(), &put).code;
        assert_eq!(code, Code::METHOD_NOT_ALLOWED, "{path}");
    }
    for path in ["/", "/events", "/event/1", "/seal/7", "/sensors/pressure"] {
        assert_eq!(get(&mut resources, path, None).code, Code::NOT_FOUND, "{path}");
    }
}

#[test]
fn the_list_of_resources_has_each_one_and_is_filtered_by_attributes() {
    let mut resources = resources();
    resources.take_reading(Instant::now(), sensed(0));
    let attributes = "rt=\"moteseal.reading\";ct=\"62 50 110 112\";obs";
    let readings = format!(
        "</sensors>;{attributes},</sensors/temperature>;{attributes};title=\"Cel\",\
         </sensors/humidity>;{attributes};title=\"%RH\""
    );
    let event = "</event>;rt=\"moteseal.event\";ct=\"63 18\";obs";
    let seal = "</seal>;rt=\"moteseal.seal\";ct=\"63\";obs";
    let all = format!("{readings},{event},{seal}");
    let links = |filter: &str| resources.links(&[filter.to_owned()]);
    assert_eq!(resources.links(&[]), all);
    assert_eq!(links("rt=moteseal.*"), all);
    assert_eq!(links("obs"), all);
    assert_eq!(links("rt=moteseal.reading"), readings);
    assert_eq!(links("ct=112"), readings);
    assert_eq!(links("ct=63"), format!("{event},{seal}"));
    assert_eq!(links("ct=18"), event);
    assert_eq!(links("rt=other"), "");
    assert_eq!(
        links("href=/sensors/h*"),
        format!("</sensors/humidity>;{attributes};title=\"%RH\"")
    );
    let core = get(&mut resources, CORE, None);
    assert_eq!((core.format, &core.body[..]), (Some(Format::LINKS), all.as_bytes()));
}
