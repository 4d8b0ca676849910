//! Tests of the resources with a device's newest reading, without a network.

use std::time::{Duration, Instant};

use moteseal_core::DeviceId;
use moteseal_core::confidential::StreamSecret;
use moteseal_core::record::{EpochNumber, Scheme, SealIndex, Sequence};
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_device::Profile;
use moteseal_device::column_keys::ColumnKeys;
use moteseal_device::sensors::{SENSORS, Sensed, Sensors};
use moteseal_net::coap::{Code, Format, Request, Response};
use moteseal_verify::Roster;
use moteseal_verify::issue::FirstRoster;
use moteseal_verify::reading::Reading;

const UNIX_MS: u64 = 1_700_000_000_250;

pub(crate) fn secret() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap()
}

pub(crate) fn roster() -> Roster {
    let operator = SecretKey::from_seed(Algorithm::Ed25519, &[9; 32]).unwrap();
    let other = SecretKey::from_seed(Algorithm::Ed25519, &[2; 32]).unwrap();
    let devices = [("dev1", secret().public()), ("dev2", other.public())];
    let first =
        FirstRoster { group: "home", epoch_ms: 1000, levels: 8, budget: None, devices: &devices };
    Roster::open(&first.issue(&operator).unwrap(), &operator.public()).unwrap()
}

fn with_columns(columns: &[&str]) -> Sensors<SecretKey> {
    let mut buffer = [0; MAX_SCHEMA];
    let fields: Vec<Field<'_>> = columns.iter().map(|text| Field::parse(text).unwrap()).collect();
    let schema = Schema::encode(&fields, &mut buffer).unwrap();
    let stream = StreamSecret::new([5; 32], EpochNumber(0));
    let keys = ColumnKeys::new(&schema, &stream, EpochNumber(0)).unwrap();
    let profile = match keys {
        Some(keys) => Profile::with_columns(&roster(), "dev1", Scheme::Star, &schema, keys),
        None => Profile::new(&roster(), "dev1", Scheme::Star, &schema),
    };
    Sensors::new(&profile.unwrap(), secret())
}

pub(crate) fn sensors() -> Sensors<SecretKey> {
    with_columns(&["temperature:Cel:i16/100", "humidity:%RH:u16/100"])
}

/// Returns the reading with this sequence number: a temperature of 27.97 and a humidity of 41.50.
pub(crate) fn sensed(seq: u64) -> Sensed {
    Sensed {
        roster: roster().digest(),
        index: SealIndex(3),
        epoch: EpochNumber(7),
        seq: Sequence(seq),
        unix_ms: UNIX_MS + seq * 1000,
        record: vec![0x0a, 0xed, 0x10, 0x36].into(),
    }
}

pub(crate) fn request(path: &str, query: &[&str], accept: Option<Format>) -> Request {
    let query = query.iter().map(|argument| (*argument).to_owned()).collect();
    Request { query, accept, ..Request::new(Code::GET, path) }
}

fn get(sensors: &mut Sensors<SecretKey>, path: &str, query: &[&str]) -> Response {
    sensors.respond(Instant::now(), &request(path, query, None)).unwrap()
}

fn open(response: &Response) -> Reading {
    Reading::open(response.format.unwrap().0, &response.body, &roster()).unwrap()
}

#[test]
fn every_signed_form_verifies_and_states_the_place_of_the_reading_in_its_seal() {
    let mut sensors = sensors();
    sensors.take(Instant::now(), sensed(42));
    for query in [&[][..], &["sig=cose"], &["sig=cose", "ct=112"], &["sig=json"]] {
        for path in [SENSORS, "/sensors/temperature"] {
            let reading = open(&get(&mut sensors, path, query));
            assert_eq!(reading.device, DeviceId::of("home", "dev1"));
            assert_eq!((reading.index, reading.epoch.0, reading.seq.0), (SealIndex(3), 7, 42));
            assert_eq!(reading.pack.unix_ms, Some(UNIX_MS + 42_000));
            let values: Vec<(&str, String)> = reading
                .pack
                .values
                .iter()
                .map(|value| (value.name.as_str(), value.value.to_string()))
                .collect();
            let both = [("temperature", "27.97".to_owned()), ("humidity", "41.50".to_owned())];
            assert_eq!(values, &both[..if path == SENSORS { 2 } else { 1 }], "{query:?}");
        }
    }
}

#[test]
fn the_representations_are_senml_and_a_flat_json_object() {
    let mut sensors = sensors();
    sensors.take(Instant::now(), sensed(0));
    let device = DeviceId::of("home", "dev1");
    let senml = format!(
        r#"[{{"bn":"urn:moteseal:device:{device}:","bt":1700000000.25,"n":"temperature","u":"Cel","v":27.97}},{{"n":"humidity","u":"%RH","v":41.50}}]"#
    );
    let unsigned = get(&mut sensors, SENSORS, &["sig=none"]);
    assert_eq!(unsigned.format, Some(Format::SENML_JSON));
    assert_eq!(unsigned.body, senml.as_bytes());
    let json = get(&mut sensors, "/sensors/temperature", &["sig=json"]);
    assert_eq!(json.format, Some(Format::JSON));
    let text = str::from_utf8(&json.body).unwrap();
    assert!(
        text.starts_with(r#"{"_time":1700000000.25,"temperature":27.97,"signature":""#)
            && text.ends_with("\"}"),
        "{text}"
    );
}

#[test]
fn an_encrypted_column_is_refused_by_name_and_left_out_of_the_whole_reading() {
    let mut sensors = with_columns(&["temperature:Cel:i16/100!", "humidity:%RH:u16/100"]);
    sensors.take(Instant::now(), sensed(0));
    for query in [&[][..], &["sig=json"], &["sig=none"]] {
        let refused = get(&mut sensors, "/sensors/temperature", query);
        assert_eq!(refused.code, Code::FORBIDDEN, "{query:?}");
        assert!(str::from_utf8(&refused.body).unwrap().starts_with("ColumnEncrypted: "));
        let whole = get(&mut sensors, SENSORS, query);
        assert_eq!(whole.code, Code::CONTENT);
        let contains = |text: &[u8]| whole.body.windows(text.len()).any(|window| window == text);
        assert!(contains(b"humidity") && !contains(b"temperature") && !contains(b"27.97"));
    }
    let paths: Vec<String> = sensors.paths().collect();
    assert_eq!(paths, [SENSORS, "/sensors/humidity"]);

    let mut sensors = with_columns(&["temperature:Cel:i16/100!", "humidity:%RH:u16/100!"]);
    sensors.take(Instant::now(), sensed(0));
    assert_eq!(get(&mut sensors, SENSORS, &[]).code, Code::FORBIDDEN);
    assert_eq!(sensors.signatures(), 0);
}

#[test]
fn nulls_are_left_out_and_other_types_have_their_senml_values() {
    let mut sensors = with_columns(&[
        "temperature:Cel:i16/100?",
        "door::bool?",
        "mode::enum(off,on)",
        "place::point?",
        "note::text9",
    ]);
    let mut record = vec![0x80, 0, 1, 1];
    record.extend(593_300_000_i32.to_be_bytes());
    record.extend((-180_700_000_i32).to_be_bytes());
    record.extend(*b"\x03a\"b");
    sensors.take(Instant::now(), Sensed { record: record.into(), ..sensed(0) });
    let unsigned = get(&mut sensors, SENSORS, &["sig=none"]);
    let values = concat!(
        r#""n":"door","vb":true},{"n":"mode","vs":"on"},"#,
        r#"{"n":"place/lat","u":"lat","v":59.3300000},"#,
        r#"{"n":"place/lon","u":"lon","v":-18.0700000},{"n":"note","vs":"a\"b"}]"#
    );
    let text = str::from_utf8(&unsigned.body).unwrap();
    assert!(text.ends_with(values), "{text}");
    for query in [&["sig=cose"][..], &["sig=cose", "ct=112"], &["sig=json"]] {
        let values = open(&get(&mut sensors, SENSORS, query)).pack.values;
        let values: Vec<String> = values.iter().map(|value| value.value.to_string()).collect();
        assert_eq!(values, ["true", "on", "59.3300000", "-18.0700000", "a\"b"], "{query:?}");
    }
    let null = get(&mut sensors, "/sensors/temperature", &[]);
    assert_eq!(null.code, Code::SERVICE_UNAVAILABLE);
    assert_eq!(null.body, "the value is null");
}

#[test]
fn a_reading_without_a_signature_must_be_asked_for() {
    let mut sensors = sensors();
    sensors.take(Instant::now(), sensed(0));
    let now = Instant::now();
    for (query, accept, expected) in [
        (&[][..], None, Ok(Format::MULTIPART)),
        (&[][..], Some(Format::MULTIPART), Ok(Format::MULTIPART)),
        (&[][..], Some(Format::SENML_JSON), Err(Code::NOT_ACCEPTABLE)),
        (&["sig=cose"], Some(Format::SENML_CBOR), Err(Code::NOT_ACCEPTABLE)),
        (&["sig=none"], None, Ok(Format::SENML_JSON)),
        (&["sig=none"], Some(Format::SENML_JSON), Ok(Format::SENML_JSON)),
        (&["sig=none"], Some(Format::SENML_CBOR), Ok(Format::SENML_CBOR)),
        (&["sig=none"], Some(Format::MULTIPART), Err(Code::NOT_ACCEPTABLE)),
        (&["sig=json"], None, Ok(Format::JSON)),
        (&["sig=json"], Some(Format::SENML_JSON), Err(Code::NOT_ACCEPTABLE)),
        (&["sig=xml"], None, Err(Code::BAD_REQUEST)),
        (&["sig=cose", "ct=50"], None, Err(Code::BAD_REQUEST)),
    ] {
        let response = sensors.respond(now, &request(SENSORS, query, accept)).unwrap();
        let found = if response.code.is_success() {
            Ok(response.format.unwrap())
        } else {
            Err(response.code)
        };
        assert_eq!(found, expected, "{query:?} {accept:?}");
    }
}

#[test]
fn a_flood_of_requests_costs_one_signature_for_each_reading_and_form() {
    let mut sensors = sensors();
    for seq in 0..3 {
        sensors.take(Instant::now(), sensed(seq));
        for _ in 0..500 {
            for query in [&[][..], &["ct=112"], &["sig=json"], &["sig=none"]] {
                get(&mut sensors, SENSORS, query);
            }
        }
        assert_eq!(sensors.signatures(), (seq + 1) * 3);
    }
}

#[test]
fn the_version_and_the_freshness_follow_the_readings() {
    let mut sensors = sensors();
    let start = Instant::now();
    let seconds = |seconds: u64| start + Duration::from_secs(seconds);
    let at = |sensors: &mut Sensors<SecretKey>, now| {
        let response = sensors.respond(now, &request(SENSORS, &[], None)).unwrap();
        (response.etag.unwrap(), response.max_age.unwrap())
    };
    sensors.take(start, sensed(0));
    let (first, fresh) = at(&mut sensors, seconds(1));
    assert_eq!(fresh, 59, "the cadence is not known");
    sensors.take(seconds(10), sensed(1));
    let (second, fresh) = at(&mut sensors, seconds(13));
    assert_eq!(fresh, 7, "the next reading is due in 7 seconds");
    assert_ne!(first, second);
    assert_eq!(at(&mut sensors, seconds(14)).0, second);
    assert_eq!(at(&mut sensors, seconds(30)).1, 0, "the reading is late");
}

#[test]
fn other_requests_are_refused_by_name() {
    let mut sensors = sensors();
    let now = Instant::now();
    let code = |sensors: &mut Sensors<SecretKey>, request: &Request| {
        sensors.respond(now, request).map(|response| response.code)
    };
    let all = request(SENSORS, &[], None);
    assert_eq!(code(&mut sensors, &all), Some(Code::SERVICE_UNAVAILABLE), "no reading yet");
    sensors.take(now, sensed(0));
    assert_eq!(code(&mut sensors, &all), Some(Code::CONTENT));
    for path in ["/", "/sensor", "/sensorstemperature", "/sensors/", "/sensors/pressure", "/seals"]
    {
        assert_eq!(code(&mut sensors, &request(path, &[], None)), None, "{path}");
    }
    for method in [Code::POST, Code::PUT, Code::DELETE] {
        let request = Request { code: method, ..all.clone() };
        assert_eq!(code(&mut sensors, &request), Some(Code::METHOD_NOT_ALLOWED));
    }
}

#[test]
fn a_column_whose_name_senml_does_not_allow_has_its_position_as_name() {
    let mut sensors =
        with_columns(&["chip temp::u8", "signature::u8", "_x::u8", "a/b::u8", "t:mV:u8"]);
    sensors.take(Instant::now(), Sensed { record: vec![1, 2, 3, 4, 5].into(), ..sensed(0) });
    let paths: Vec<String> = sensors.paths().collect();
    let expected = ["-0", "-1", "-2", "a/b", "t"].map(|name| format!("{SENSORS}/{name}"));
    assert_eq!(paths[1..], expected);
    for (path, value) in expected.iter().zip(1_u8..) {
        for query in [&["sig=json"][..], &[], &["ct=112"]] {
            let reading = open(&get(&mut sensors, path, query));
            assert_eq!(reading.pack.values[0].value.to_string(), value.to_string());
        }
    }
    let text = get(&mut sensors, "/sensors/t", &["sig=none"]).body;
    assert!(text.starts_with(b"[{\"bver\":26,"), "a secondary unit needs the version: {text:?}");
}

#[test]
fn a_change_of_any_byte_of_a_response_is_rejected() {
    let mut sensors = sensors();
    sensors.take(Instant::now(), sensed(0));
    let roster = roster();
    for query in [&[][..], &["ct=112"], &["sig=json"]] {
        let response = get(&mut sensors, SENSORS, query);
        let format = response.format.unwrap().0;
        for at in 0..response.body.len() {
            for flip in [1, 0x20, 0x80] {
                let mut bytes = response.body.to_vec();
                bytes[at] ^= flip;
                assert!(Reading::open(format, &bytes, &roster).is_err(), "{query:?}: byte {at}");
            }
            assert!(Reading::open(format, &response.body[..at], &roster).is_err());
        }
    }
}

#[test]
fn a_signature_of_another_reading_or_column_is_rejected() {
    use moteseal_seal::ReadingFormat::SenmlJson;
    use moteseal_verify::reading::multipart;
    let mut sensors = sensors();
    let roster = roster();
    let parts = |response: &Response| {
        let mut reader = moteseal_core::cbor::Reader::new(&response.body).unwrap();
        reader.array(4).unwrap();
        reader.u64().unwrap();
        let representation = reader.bytes().unwrap().to_vec();
        reader.u64().unwrap();
        (representation, reader.bytes().unwrap().to_vec())
    };
    sensors.take(Instant::now(), sensed(0));
    let before = parts(&get(&mut sensors, SENSORS, &[]));
    sensors.take(Instant::now(), sensed(1));
    let all = parts(&get(&mut sensors, SENSORS, &[]));
    let one = parts(&get(&mut sensors, "/sensors/humidity", &[]));
    for (representation, signature) in
        [(&before.0, &all.1), (&all.0, &before.1), (&all.0, &one.1), (&one.0, &all.1)]
    {
        let moved = multipart(SenmlJson, representation, signature);
        let error = Reading::open(62, &moved, &roster).unwrap_err();
        assert_eq!(error.name(), "NotAuthentic");
    }
}

/// The number of blocks of a response.
fn blocks(length: usize, size: usize) -> usize {
    length.div_ceil(size)
}

#[test]
fn the_sizes_of_the_forms_are_those_of_the_documentation() {
    let mut sensors = sensors();
    sensors.take(Instant::now(), sensed(42));
    let mut table = String::new();
    for (form, query, accept) in [
        ("`?sig=none`, SenML in JSON", "sig=none", None),
        ("`?sig=none`, SenML in CBOR", "sig=none", Some(Format::SENML_CBOR)),
        ("`?sig=json`", "sig=json", None),
        ("`?sig=cose`", "sig=cose", None),
        ("`?sig=cose&ct=112`", "ct=112", None),
    ] {
        let response =
            sensors.respond(Instant::now(), &request(SENSORS, &[query], accept)).unwrap();
        let length = response.body.len();
        table +=
            &format!("| {form} | {length} | {} | {} |\n", blocks(length, 64), blocks(length, 1024));
    }
    let page = include_str!("../../../../docs/readings.md");
    assert!(page.contains(&table), "docs/readings.md must have\n{table}");
}
