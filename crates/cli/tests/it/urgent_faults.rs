//! Urgent events with faults and dishonest devices: a device and the station of a gateway in one
//! process, without a link.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moteseal_cloud::{Cloud, Config};
use moteseal_core::Digest;
use moteseal_core::cbor::Writer;
use moteseal_core::link::{FrameError, MAX_FRAME};
use moteseal_core::record::{EpochNumber, SealIndex, Sequence};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::Schema;
use moteseal_core::signature::{SecretKey, Signer as _};
use moteseal_device::DurableMote;
use moteseal_device::durable::{MOST_PENDING, UrgentOutcome, UrgentRefused};
use moteseal_gateway::{Gateway, Settings, Station};
use moteseal_net::in_memory::{Faults, Network};
use moteseal_net::{Client, Credential, Options, Token};
use moteseal_seal::UrgentEvent;
use moteseal_seal::wire::{
    Acknowledgement, EventAnswer, EventFrame, MAX_EVENT_ANSWER, Refusal, Uplink,
};
use moteseal_store::{EpochStore, RedbStore, UrgentLimits};
use moteseal_verify::Roster;
use moteseal_verify::issue::NextRoster;

use crate::group::{
    self, FIRST, begin_session, device_id, link_key, mote, next_version, secret, station,
};

const BOUND: u64 = 1 << 26;
const EPOCH: EpochNumber = EpochNumber(FIRST);
/// The number of events that a device may send at once.
const BURST: usize = 60;

fn record(value: u32) -> [u8; 4] {
    value.to_be_bytes()
}

/// Delivers the urgent events that a device sends, and the answers of the gateway. Returns the
/// answers of the gateway.
fn deliver(mote: &mut DurableMote<SecretKey>, station: &mut Station) -> Vec<Vec<u8>> {
    let now = EpochNumber(FIRST);
    for frame in mote.frames(32).unwrap() {
        let _ = station.receive(&frame, now);
    }
    for frame in mote.urgent_frames(64).unwrap() {
        let _ = station.receive_event(&frame, now, Instant::now());
    }
    let answers = station.commit().unwrap().events;
    for (_, answer) in &answers {
        mote.acknowledged(answer).unwrap().unwrap();
    }
    mote.sync().unwrap();
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Returns a frame of `sender` with an event of `device` that `key` signs.
fn frame(
    roster: &Roster,
    (sender, device): (u8, u8),
    key: &SecretKey,
    (epoch, seq): (u64, u64),
    schema: &[u8],
) -> Vec<u8> {
    let record = record(7);
    let event = UrgentEvent {
        group: roster.group(),
        roster: roster.digest(),
        device: device_id(roster, device),
        index: SealIndex(0),
        epoch: EpochNumber(epoch),
        seq: Sequence(seq),
        schema: Schema::decode(schema).unwrap().digest(),
        keys: None,
        record: &record,
    };
    let mut buffer = [0; 1024];
    let message = event.message(key.algorithm(), &mut buffer).unwrap();
    let signature = key.signature(message).unwrap();
    let mut bytes = [0; 1024];
    let mut out = Writer::new(&mut bytes);
    event.encode(&mut out, key.algorithm(), &signature).unwrap();
    let (sender, mut out_frame) = (device_id(roster, sender), vec![0; MAX_FRAME]);
    let frame = EventFrame { schema, event: out.written() };
    frame.close(sender, &link_key(roster, sender), &mut out_frame).unwrap().to_vec()
}

/// Returns the digests of the events that the device serves to clients.
fn newest(mote: &DurableMote<SecretKey>) -> Vec<Digest> {
    let newest = mote.newest_events();
    newest.iter().map(|newest| UrgentEvent::digest(&newest.event).unwrap()).collect()
}

fn schema(mote: &DurableMote<SecretKey>) -> Vec<u8> {
    mote.mote().profile().schema.to_vec()
}

/// The device repeats an event until the gateway has stored it: the gateway may be silent, and the
/// device may restart. The event that arrives is always the same one.
#[test]
fn a_device_repeats_an_event_across_restarts_until_it_is_stored() {
    let (roster, folder) = (group::roster(2, 100, 60_000), tempfile::tempdir().unwrap());
    let mut station = station(&roster, folder.path(), BOUND);
    let mut device = mote(&roster, 0, folder.path(), 8);
    device.sense(EPOCH, &record(1)).unwrap();
    let (ticket, place) = device.sense_urgent(EPOCH, &record(2)).unwrap().unwrap();
    assert_eq!((place.index, place.seq), (SealIndex(0), Sequence(1)));
    assert!(device.urgent_frames(9).unwrap().is_empty(), "no session yet");
    begin_session(&mut device, &mut station);
    let first = device.urgent_frames(9).unwrap();
    assert_eq!(first.len(), 1);
    assert!(device.urgent_frames(9).unwrap().is_empty(), "it waits for the answer");
    device.timeout();
    assert_eq!(device.urgent_frames(9).unwrap(), first);
    let _ = ticket;
    device.sync().unwrap();
    drop(device);

    // The next process has the same event, also after it has rewritten its journal.
    for _ in 0..2 {
        let mut device = mote(&roster, 0, folder.path(), 8);
        assert_eq!(device.urgent_places().collect::<Vec<_>>(), [place]);
        // Clients of the device get it again.
        assert_eq!(newest(&device), [place.digest]);
        begin_session(&mut device, &mut station);
        assert_eq!(device.urgent_frames(9).unwrap(), first);
        device.timeout();
    }
    let mut device = mote(&roster, 0, folder.path(), 8);
    begin_session(&mut device, &mut station);
    let answers = deliver(&mut device, &mut station);
    let key = link_key(&roster, device_id(&roster, 0));
    let answer = EventAnswer::open(&answers[0], device_id(&roster, 0), &key).unwrap();
    assert_eq!(answer, EventAnswer::Stored { digest: place.digest });
    assert!(
        matches!(&device.urgent_outcomes()[..], [(_, UrgentOutcome::Stored(found))] if *found == place)
    );
    // A late answer changes nothing.
    assert_eq!(device.acknowledged(&answers[0]).unwrap(), Ok(false));
    drop(device);
    let device = mote(&roster, 0, folder.path(), 8);
    assert!(!device.has_urgent());
    // The gateway answers an event that it has in the same way, also after a restart, and the device
    // loses nothing of what it may send: others can repeat its frames.
    drop(station);
    let mut station = group::station(&roster, folder.path(), BOUND);
    let bytes = station.bytes();
    for _ in 0..2 * BURST {
        assert!(!station.receive_event(&first[0], EPOCH, Instant::now()).unwrap().is_new);
    }
    assert!(!station.commit().unwrap().events.is_empty());
    assert_eq!(station.bytes(), bytes, "it is stored once");
}

#[test]
fn a_gateway_rejects_events_that_their_device_did_not_sign() {
    let (roster, folder) = (group::roster(3, 100, 60_000), tempfile::tempdir().unwrap());
    let mut station = station(&roster, folder.path(), BOUND);
    let schema = schema(&mote(&roster, 0, folder.path(), 8));
    let later = next_version(&roster, |next: &mut NextRoster<'_>| {
        next.end("mote-2", None, Some(EpochNumber(FIRST)))
    });
    let own = |seq| frame(&roster, (0, 0), &secret(0), (FIRST, seq), &schema);
    let mut altered = own(0);
    let length = altered.len();
    altered[length - 1] ^= 1;
    let mut refused = |name: &str, is_final: Option<bool>, frame: &[u8]| {
        let error = station.receive_event(frame, EPOCH, Instant::now()).unwrap_err();
        assert_eq!(error.name(), name);
        let events = station.commit().unwrap().events;
        let Some(is_final) = is_final else { return assert!(events.is_empty(), "{name}") };
        let [(device, answer)] = &events[..] else { panic!("{name}: {events:?}") };
        let answer = EventAnswer::open(answer, *device, &link_key(&roster, *device)).unwrap();
        assert!(
            matches!(answer, EventAnswer::Refused { is_final: found, name: of, .. } if (found, of) == (is_final, name)),
            "{name}: {answer:?}"
        );
    };
    // Without the tag of a device, nothing is answered.
    refused("NotAuthentic", None, &altered);
    refused("Malformed", None, b"\x84\x07");
    refused("NotAuthentic", Some(false), &frame(&roster, (0, 0), &secret(1), (FIRST, 0), &schema));
    // A member cannot send the event of another device, even if it is authentic.
    refused("DeviceMismatch", Some(true), &frame(&roster, (1, 0), &secret(0), (FIRST, 0), &schema));
    refused(
        "EpochTooFar",
        Some(false),
        &frame(&roster, (0, 0), &secret(0), (FIRST + 2, 0), &schema),
    );
    let other = Schema::OPAQUE;
    let fake = frame(&roster, (0, 0), &secret(0), (FIRST, 0), &schema);
    let key = link_key(&roster, device_id(&roster, 0));
    let event = EventFrame::open(&fake, &key).unwrap().event.to_vec();
    let mut out = vec![0; MAX_FRAME];
    let swapped = EventFrame { schema: other.as_bytes(), event: &event };
    let swapped = swapped.close(device_id(&roster, 0), &key, &mut out).unwrap();
    refused("SchemaUnknown", Some(true), swapped);
    station.receive_event(&own(0), EPOCH, Instant::now()).unwrap();

    // A device that the roster removed.
    station.load::<moteseal_gateway::StationError>(later.clone(), |_| Ok(())).unwrap();
    let removed = frame(&later, (2, 2), &secret(2), (FIRST, 0), &schema);
    let error = station.receive_event(&removed, EPOCH, Instant::now()).unwrap_err();
    assert_eq!((error.name(), error.is_final()), ("KeyEnded", true));
}

/// A gateway or a device of an earlier version drops the frames of urgent events, like every frame of
/// an unknown kind.
#[test]
fn an_earlier_version_drops_the_frames_of_urgent_events() {
    let (roster, folder) = (group::roster(1, 100, 60_000), tempfile::tempdir().unwrap());
    let schema = schema(&mote(&roster, 0, folder.path(), 8));
    let (device, event) =
        (device_id(&roster, 0), frame(&roster, (0, 0), &secret(0), (FIRST, 0), &schema));
    let key = link_key(&roster, device);
    assert_eq!(Uplink::open(&event, &key), Err(FrameError::Malformed));
    let digest = Digest::NULL;
    let mut out = [0; MAX_EVENT_ANSWER];
    for answer in [
        EventAnswer::Stored { digest },
        EventAnswer::Refused { digest, is_final: true, name: "KeyEnded" },
    ] {
        let answer = answer.close(device, &key, &mut out).unwrap();
        assert_eq!(Acknowledgement::open(answer, device, &key), Err(FrameError::Malformed));
        assert_eq!(Refusal::open(answer, device, &key), Err(FrameError::Malformed));
    }
}

/// A member that floods the gateway with urgent events is refused. Another device is not affected,
/// and the flooding device's repetitions of a stored event do not count.
#[test]
fn a_device_that_floods_is_refused_and_others_are_not_affected() {
    let (roster, folder) = (group::roster(2, 100, 60_000), tempfile::tempdir().unwrap());
    let mut station = station(&roster, folder.path(), BOUND);
    let schema = schema(&mote(&roster, 0, folder.path(), 8));
    let start = Instant::now();
    let own =
        |device: u8, seq| frame(&roster, (device, device), &secret(device), (FIRST, seq), &schema);
    let mut accepted = 0;
    for seq in 0..300 {
        accepted += usize::from(station.receive_event(&own(0, seq), EPOCH, start).is_ok());
        station.receive_event(&own(0, 0), EPOCH, start).unwrap();
    }
    assert_eq!(accepted, BURST);
    let events = station.commit().unwrap().events;
    let of_refused = events.iter().filter(|(_, frame)| frame.starts_with(&[0x85, 19])).count();
    assert_eq!(of_refused, 1, "one refusal for each device and commit");
    station.receive_event(&own(1, 0), EPOCH, start).unwrap();
    let refused = station.receive_event(&own(0, 299), EPOCH, start).unwrap_err();
    assert_eq!((refused.name(), refused.is_final()), ("TooManyUrgent", false));
    let later = start + Duration::from_secs(1);
    station.receive_event(&own(0, 299), EPOCH, later).unwrap();
}

/// The credential of the gateway permits uploads of one of its devices. The event of the other one
/// waits, also if the cloud has stored events of the first one since, and holds back no other event.
/// An event that is uploaded is recognised when its frame is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_the_cloud_rejects_holds_back_no_other_event() {
    let (roster, folder) = (group::roster(2, 100, 60_000), tempfile::tempdir().unwrap());
    let mut station = station(&roster, folder.path(), BOUND);
    let schema = schema(&mote(&roster, 0, folder.path(), 8));
    let own =
        |device: u8, seq| frame(&roster, (device, device), &secret(device), (FIRST, seq), &schema);
    for (device, seq) in [(1, 0), (0, 0), (1, 1), (0, 1)] {
        station.receive_event(&own(device, seq), EPOCH, Instant::now()).unwrap();
    }
    let _ = station.commit().unwrap();

    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, format!("write device={} 4q9mB0xJ2kTqvYfB\n", device_id(&roster, 0)))
        .unwrap();
    let credential = folder.path().join("token");
    std::fs::write(&credential, "4q9mB0xJ2kTqvYfB\n").unwrap();
    let store =
        RedbStore::open(&folder.path().join("epochs.redb"), moteseal_store::Options::default());
    let store = Arc::new(store.unwrap());
    let config = Config { tokens: Some(tokens), ..Config::new(roster.clone()) };
    let cloud = Cloud::bind(config, Arc::clone(&store) as Arc<dyn EpochStore>).await.unwrap();
    let credential = Some(Credential::Token(Token::read(&credential).unwrap()));
    let options = Options { credential, ..Options::default() };
    let client = Client::new(&cloud.url(), &options).unwrap();
    tokio::spawn(cloud.run(std::future::pending()));
    let settings = Settings { first_pause: Duration::from_millis(20), ..Settings::default() };
    let gateway = Gateway::bind(station, settings, Some(client)).await.unwrap();
    let stored = || {
        let limits = UrgentLimits { read: 100, events: 100, bytes: 1 << 20 };
        let page = store.urgent(None, limits, &|_, _| true).unwrap();
        page.events.iter().map(|(key, _)| key.device).collect::<Vec<_>>()
    };
    let all_stored = async {
        let start = Instant::now();
        while stored().len() < 2 {
            assert!(start.elapsed() < Duration::from_secs(20), "{:?}", stored());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    gateway.run(Network::new(1, Faults::default()).parent(), all_stored).await.unwrap();
    assert_eq!(stored(), [device_id(&roster, 0); 2]);
}

/// A device keeps a bounded number of events. It refuses another urgent reading, and does not record
/// it.
#[test]
fn a_device_keeps_a_bounded_number_of_events() {
    let (roster, folder) = (group::roster(1, 100, 60_000), tempfile::tempdir().unwrap());
    let mut device = mote(&roster, 0, folder.path(), 8);
    for value in 0..MOST_PENDING {
        device.sense_urgent(EPOCH, &record(value as u32)).unwrap().unwrap();
    }
    let before = device.mote().newest_place();
    let refused = device.sense_urgent(EPOCH, &record(99)).unwrap().unwrap_err();
    assert_eq!(refused, UrgentRefused::TooManyUrgent);
    assert_eq!(device.mote().newest_place(), before);
    device.sync().unwrap();
    drop(device);
    let mut device = mote(&roster, 0, folder.path(), 8);
    let mut station = station(&roster, folder.path(), BOUND);
    begin_session(&mut device, &mut station);
    // The gateway accepts as many at once as it permits, and the others later.
    deliver(&mut device, &mut station);
    assert_eq!(device.urgent_places().count(), MOST_PENDING - BURST);
    assert_eq!(device.newest_events().len(), 16, "clients get the newest ones");
}

/// A device whose state is an old copy learns from the gateway that its places may have been used.
/// It records the urgent readings that it has not sent under another index, so that it never signs
/// two events for one place.
#[test]
fn a_device_with_an_old_state_signs_no_second_event_for_a_place() {
    let (roster, folder) = (group::roster(1, 100, 60_000), tempfile::tempdir().unwrap());
    let mut station = station(&roster, folder.path(), BOUND);
    let copy = tempfile::tempdir().unwrap();
    drop(mote(&roster, 0, folder.path(), 8));
    let from = folder.path().join("mote-0");
    let to = copy.path().join("mote-0");
    std::fs::create_dir_all(&to).unwrap();
    for entry in std::fs::read_dir(&from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    let mut device = mote(&roster, 0, folder.path(), 8);
    begin_session(&mut device, &mut station);
    let (_, used) = device.sense_urgent(EPOCH, &record(1)).unwrap().unwrap();
    deliver(&mut device, &mut station);
    drop(device);

    let mut device = mote(&roster, 0, copy.path(), 8);
    let (_, place) = device.sense_urgent(EPOCH, &record(2)).unwrap().unwrap();
    assert_eq!((place.index, place.seq), (used.index, used.seq), "the place is used");
    device.sync().unwrap();
    // The event is not sent before the gateway has answered, and the process ends.
    assert!(device.urgent_frames(8).unwrap().is_empty());
    drop(device);
    let mut device = mote(&roster, 0, copy.path(), 8);
    assert_eq!(device.urgent_places().collect::<Vec<_>>(), [place]);
    for frame in device.frames(8).unwrap() {
        let _ = station.receive(&frame, EPOCH).unwrap();
    }
    for (_, answer) in station.commit().unwrap().acknowledgements {
        device.acknowledged(&answer).unwrap().unwrap();
    }
    assert_eq!(device.rollbacks(), 1);
    let again: Vec<_> = device.urgent_places().collect();
    assert_eq!(again.len(), 1);
    assert!(again[0].index > used.index, "{again:?}");
    assert_eq!(newest(&device), [again[0].digest], "clients get only the new event");
    deliver(&mut device, &mut station);
    assert!(
        matches!(&device.urgent_outcomes()[..], [(_, UrgentOutcome::Stored(stored))] if *stored == again[0])
    );
}
