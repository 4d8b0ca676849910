//! Tests of signed readings and urgent events that a client gets from a device over CoAP.

use std::time::Duration;

use moteseal_api::ErrorKind;
use moteseal_client::PinnedSeals;
use moteseal_client::reading::{Credentials, Events, Expected, Source, Unverified, check};
use moteseal_core::cbor::Writer;
use moteseal_core::record::{EpochNumber, Scheme, SealIndex, Sequence};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};
use moteseal_device::Profile;
use moteseal_device::coap::CoapServer;
use moteseal_device::durable::SignedEvent;
use moteseal_device::published::{Publisher, channels};
use moteseal_device::resources::Resources;
use moteseal_device::sensors::{Sensed, Sensors};
use moteseal_net::coap::{Address, Security};
use moteseal_seal::UrgentEvent;
use moteseal_verify::Roster;
use moteseal_verify::issue::FirstRoster;

fn key(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

fn roster(group: &str) -> Roster {
    let devices = [("dev1", key(1).public()), ("dev2", key(2).public())];
    let first = FirstRoster { group, epoch_ms: 1000, levels: 8, budget: None, devices: &devices };
    Roster::open(&first.issue(&key(9)).unwrap(), &key(9).public()).unwrap()
}

fn sensors(byte: u8) -> Sensors<SecretKey> {
    let mut buffer = [0; MAX_SCHEMA];
    let fields = [Field::parse("temperature:Cel:i16/100").unwrap()];
    let schema = Schema::encode(&fields, &mut buffer).unwrap();
    let profile = Profile::new(&roster("home"), "dev1", Scheme::Star, &schema).unwrap();
    Sensors::new(&profile, key(byte))
}

fn sensed(index: u32, seq: u64) -> Sensed {
    Sensed {
        roster: roster("home").digest(),
        index: SealIndex(index),
        epoch: EpochNumber(7),
        seq: Sequence(seq),
        unix_ms: 1_700_000_000_000,
        record: vec![0x0a, 0xed].into(),
    }
}

struct Served {
    url: String,
    publisher: Publisher,
}

/// Serves the readings of `dev1`, signed with this key, until `publisher` is dropped.
fn serve(byte: u8) -> Served {
    serve_with(byte, Security::Plain, "coap")
}

fn serve_with(byte: u8, security: Security, scheme: &str) -> Served {
    let mut server = CoapServer::new(Resources::new(sensors(byte)));
    let address = server.listen(([127, 0, 0, 1], 0).into(), security).unwrap();
    let (publisher, published) = channels();
    tokio::spawn(server.serve(published, None));
    Served { url: format!("{scheme}://{address}/sensors"), publisher }
}

impl Served {
    async fn sense(&self, index: u32, seq: u64) {
        self.publisher.reading(sensed(index, seq));
        // The server's task takes the reading.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    async fn source(&self, query: &str) -> Source {
        let address = Address::parse(&format!("{}{query}", self.url)).unwrap();
        Source::new(address, Credentials::None).await.unwrap()
    }
}

#[tokio::test]
async fn a_client_gets_and_observes_verified_readings() {
    let served = serve(1);
    served.sense(0, 0).await;
    let roster = roster("home");
    for query in ["", "?ct=112", "?sig=json"] {
        let response = served.source(query).await.get().await.unwrap();
        let reading = check(&response, &roster, None).unwrap();
        assert_eq!(reading.pack.values[0].value.to_string(), "27.97");
        let saved = Unverified::of_file(response.bytes.clone());
        let response = Unverified { max_age: None, ..response };
        assert_eq!(saved, response, "a saved response shows its content format");
    }
    let mut source = served.source("").await;
    let mut pinned = PinnedSeals::new();
    for seq in 0..5 {
        served.sense(0, seq).await;
        let reading = check(&source.next().await.unwrap(), &roster, Some(&mut pinned)).unwrap();
        assert_eq!(reading.seq, Sequence(seq));
    }
}

#[tokio::test]
async fn an_earlier_reading_is_refused_also_by_a_later_process() {
    let folder = tempfile::tempdir().unwrap();
    let (path, roster) = (folder.path().join("pinned.json"), roster("home"));
    let served = serve(1);
    let mut kept = Vec::new();
    for (index, seq) in [(3, 7), (3, 8), (4, 0)] {
        served.sense(index, seq).await;
        kept.push(served.source("").await.get().await.unwrap());
    }
    let mut pinned = PinnedSeals::open(&path).unwrap();
    for response in &kept {
        check(response, &roster, Some(&mut pinned)).unwrap();
        check(response, &roster, Some(&mut pinned)).expect("the same reading again");
    }
    pinned.save_if_changed().unwrap();
    let mut pinned = PinnedSeals::open(&path).unwrap();
    for response in &kept[..2] {
        let error = check(response, &roster, Some(&mut pinned)).unwrap_err();
        assert_eq!((error.name(), error.kind()), ("OlderReading", ErrorKind::Refused));
        assert!(error.to_string().contains("dev1") && error.to_string().contains("pinned.json"));
        check(response, &roster, None).expect("without pinned readings it verifies");
    }
    check(&kept[2], &roster, Some(&mut pinned)).unwrap();
    // A process that has read the file before does not save an older reading over a newer one.
    let mut behind = PinnedSeals::new();
    check(&kept[0], &roster, Some(&mut behind)).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("\"readings\""), "{text}");
}

#[tokio::test]
async fn a_reading_that_is_not_the_devices_is_rejected() {
    let served = serve(2);
    served.sense(0, 0).await;
    let response = served.source("").await.get().await.unwrap();
    let error = check(&response, &roster("home"), None).unwrap_err();
    assert_eq!((error.name(), error.kind()), ("NotAuthentic", ErrorKind::Refused));

    let served = serve(1);
    served.sense(0, 0).await;
    let response = served.source("").await.get().await.unwrap();
    assert_eq!(check(&response, &roster("away"), None).unwrap_err().name(), "WrongGroup");
    let unsigned = served.source("?sig=none").await.get().await.unwrap();
    assert_eq!(check(&unsigned, &roster("home"), None).unwrap_err().name(), "NoSignature");
    let links = Unverified { format: 40, bytes: "</sensors>".into(), max_age: None };
    assert_eq!(check(&links, &roster("home"), None).unwrap_err().name(), "UnknownFormat");
}

#[tokio::test]
async fn a_device_without_the_resource_is_reported() {
    let served = serve(1);
    let error = served.source("").await.get().await.unwrap_err();
    assert_eq!((error.name(), error.kind()), ("NoReading", ErrorKind::Unreachable));
    assert!(error.to_string().contains("there is no reading yet"), "{error}");
    served.sense(0, 0).await;
    let address = Address::parse(&format!("{}/pressure", served.url)).unwrap();
    let source = Source::new(address, Credentials::None).await.unwrap();
    let error = source.get().await.unwrap_err();
    assert_eq!((error.name(), error.kind()), ("NoReading", ErrorKind::Usage), "{error}");
}

/// Returns an urgent event that a key signed, with a temperature in hundredths.
fn signed(byte: u8, seq: u64, temperature: i16) -> SignedEvent {
    let mut buffer = [0; MAX_SCHEMA];
    let fields = [Field::parse("temperature:Cel:i16/100").unwrap()];
    let schema = Schema::encode(&fields, &mut buffer).unwrap();
    let (roster, key) = (roster("home"), key(byte));
    let event = UrgentEvent {
        group: roster.group(),
        roster: roster.digest(),
        device: roster.id("dev1").unwrap(),
        index: SealIndex(3),
        epoch: EpochNumber(7),
        seq: Sequence(seq),
        schema: schema.digest(),
        keys: None,
        record: &temperature.to_be_bytes(),
    };
    let mut message = [0; 512];
    let message = event.message(key.algorithm(), &mut message).unwrap();
    let signature = key.signature(message).unwrap();
    let mut bytes = [0; 512];
    let mut out = Writer::new(&mut bytes);
    event.encode(&mut out, key.algorithm(), &signature).unwrap();
    let schema = schema.as_bytes().to_vec().into();
    SignedEvent { schema, event: out.written().to_vec().into() }
}

#[tokio::test]
async fn a_client_observes_each_urgent_event_once_and_reports_conflicts() {
    let served = serve(1);
    let address = Address::parse(&served.url.replace("/sensors", "/event")).unwrap();
    let mut source = Source::new(address.clone(), Credentials::None).await.unwrap();
    let roster = roster("home");
    let mut events = Events::new(&roster);
    let response = source.next().await.unwrap();
    assert!(response.has_events());
    assert!(
        events.check(&response, &Expected::default()).unwrap().events.is_empty(),
        "there is no event yet"
    );
    let mut all = Vec::new();
    // Two events of one notification, then one that is signed for the place of an earlier one.
    for (new, conflicts) in [(vec![(4, 1), (5, 2)], 0), (vec![(6, 3)], 0), (vec![(5, 9)], 1)] {
        all.extend(new.iter().map(|(seq, temperature)| signed(1, *seq, *temperature)));
        served.publisher.events(all.clone());
        let response = source.next().await.unwrap();
        let response = Unverified { max_age: None, ..response };
        assert_eq!(Unverified::of_file(response.bytes.clone()), response);
        let found = events.check(&response, &Expected::default()).unwrap();
        let seqs: Vec<u64> = found.events.iter().map(|event| event.seq().0).collect();
        assert_eq!(seqs, new.iter().map(|(seq, _)| *seq).collect::<Vec<_>>());
        assert_eq!(found.conflicts.len(), conflicts);
    }
    all.push(signed(2, 7, 0));
    served.publisher.events(all);
    let error = events.check(&source.next().await.unwrap(), &Expected::default()).unwrap_err();
    assert_eq!((error.name(), error.kind()), ("NotAuthentic", ErrorKind::Refused));
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn a_client_with_the_devices_link_secret_reads_over_dtls() {
    use moteseal_core::DeviceId;
    use moteseal_core::link::LinkKey;
    use moteseal_net::dtls::Psk;

    let (device, secret) = (DeviceId::of("home", "dev1"), [7; 32]);
    let security = moteseal_device::coap::security(device, LinkKey::dtls_psk(&secret)).unwrap();
    let served = serve_with(1, security, "coaps");
    served.sense(0, 0).await;
    let address = Address::parse(&served.url).unwrap();
    let source = async |device: DeviceId, secret: [u8; 32]| {
        let psk = Psk::new(device.0, LinkKey::dtls_psk(&secret));
        Source::new(address.clone(), Credentials::Psk(psk)).await.unwrap()
    };
    let mut trusted = source(device, secret).await;
    check(&trusted.get().await.unwrap(), &roster("home"), None).unwrap();
    check(&trusted.next().await.unwrap(), &roster("home"), None).unwrap();
    served.sense(0, 1).await;
    let next = check(&trusted.next().await.unwrap(), &roster("home"), None).unwrap();
    assert_eq!(next.seq, Sequence(1));

    let none = Source::new(address.clone(), Credentials::None).await.unwrap_err();
    assert_eq!((none.name(), none.kind()), ("BadAddress", ErrorKind::Usage));
}
