//! Tests devices that are at different epochs. A device that is ahead of the others, or claims to
//! be, neither delays their rounds nor ends their epochs.

use crate::group;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::group::{FIRST, secret};
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, Round};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, Schema};
use moteseal_core::signature::SecretKey;
use moteseal_device::mote::Mote;
use moteseal_device::seal::{Chain, Profile};
use moteseal_gateway::{Gateway, Settings, Station, Time};
use moteseal_net::in_memory::{Faults, Network};
use moteseal_net::{ChildLink as _, Client, Options};
use moteseal_seal::device_session::DeviceSession;
use moteseal_seal::level::SaltKey;
use moteseal_seal::sample::Announcement;
use moteseal_verify::Roster;
use tokio::sync::oneshot;

const BUDGET: u64 = 100;

fn mote(roster: &Roster, device: u8) -> Mote<SecretKey> {
    let mut buffer = [0; 256];
    let schema = Schema::encode(&[Field::parse("reading::u32").unwrap()], &mut buffer).unwrap();
    let profile = Profile::new(roster, &format!("mote-{device}"), Scheme::Star, &schema).unwrap();
    let (link, chain) =
        (group::link_key(roster, profile.device), Chain::start(profile.certificate));
    let session = DeviceSession::new(profile.device, link, 1);
    Mote::new(profile, secret(device), SaltKey::new([device; 32]), session, chain, Vec::new(), 8)
}

/// Returns the frames with a schema and the first event of a seal.
fn first_frames(roster: &Roster, device: u8, index: u32, epoch: u64) -> [Vec<u8>; 2] {
    let device = group::device_id(roster, device);
    let key = group::link_key(roster, device);
    let event = group::forward_frame((device, &key), (index, epoch), 0..1, 0);
    [group::schema_frame(device, &key), event]
}

/// Lets three devices sense an epoch. Returns the number of bytes that they forward. If `is_ahead`
/// is true, a fourth device is already at the next epoch.
fn forwarded(roster: &Roster, station: &mut Station, is_ahead: bool) -> usize {
    let mut motes: Vec<_> = (0..3).map(|device| mote(roster, device)).collect();
    let now = EpochNumber(FIRST);
    if is_ahead {
        for frame in first_frames(roster, 3, 0, FIRST + 1) {
            let _ = station.receive(&frame, now).unwrap();
        }
    }
    station.announce_next(now);
    let mut bytes = 0;
    for reading in 0..800u32 {
        motes.iter_mut().for_each(|mote| mote.sense(now, &reading.to_be_bytes()).unwrap());
        if reading % 20 != 19 {
            continue;
        }
        for frame in motes.iter_mut().flat_map(|mote| mote.frames(64).unwrap()).collect::<Vec<_>>()
        {
            bytes += frame.len();
            let _ = station.receive(&frame, now).unwrap();
        }
        let committed = station.commit().unwrap();
        for (device, frame) in committed.acknowledgements {
            for mote in motes.iter_mut().filter(|mote| mote.profile().device == device) {
                mote.acknowledged(&frame).unwrap();
            }
        }
        if let Some(announcement) = committed.announcement {
            let announcement = Announcement::open(
                &announcement,
                roster.group(),
                roster.newest_period().coordinator.as_ref().unwrap(),
            )
            .unwrap();
            motes.iter_mut().for_each(|mote| _ = mote.announced(&announcement));
        }
    }
    assert!(station.coordinator().round(now) >= Round(4));
    bytes
}

#[test]
fn a_device_that_is_ahead_does_not_delay_the_rounds_of_other_devices() {
    let roster = group::roster(4, BUDGET, 1000);
    let bytes = [false, true].map(|is_ahead| {
        let folder = tempfile::tempdir().unwrap();
        forwarded(&roster, &mut group::station(&roster, folder.path(), 1 << 30), is_ahead)
    });
    println!("bytes forwarded {bytes:?}");
    assert!(bytes[1] < bytes[0] + bytes[0] / 20, "{bytes:?}");
}

#[test]
fn open_epochs_are_announced_in_turn() {
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(4, BUDGET, 1000);
    let mut station = group::station(&roster, folder.path(), 1 << 30);
    forwarded(&roster, &mut station, true);
    let newest = EpochNumber(FIRST + 1);
    let announced: Vec<_> = (0..4)
        .map(|_| {
            station.announce_next(newest);
            let announcement = station.commit().unwrap().announcement.unwrap();
            let announcement = Announcement::open(
                &announcement,
                roster.group(),
                roster.newest_period().coordinator.as_ref().unwrap(),
            )
            .unwrap();
            (announcement.epoch().0, announcement.round())
        })
        .collect();
    let round = station.coordinator().round(EpochNumber(FIRST));
    for expected in [(FIRST, round), (FIRST + 1, Round(0))] {
        assert_eq!(
            announced.iter().filter(|epoch| **epoch == expected).count(),
            2,
            "{announced:?}"
        );
    }
    assert_eq!(station.commit().unwrap().announcement, None);
}

async fn epochs_ended(watch: &Client) -> u64 {
    let text = watch.get("metrics").await.unwrap().bytes(1 << 20).await.unwrap();
    let text = String::from_utf8(text).unwrap();
    let line =
        text.lines().find_map(|line| line.strip_prefix("moteseal_gateway_epochs_ended_total "));
    line.map_or(0, |value| value.parse().unwrap())
}

fn serve(roster: &Roster, folder: &Path) -> Station {
    group::station(roster, folder, 1 << 30)
}

#[test]
fn in_recorded_time_a_device_that_jumps_ahead_ends_no_epochs_of_other_devices() {
    // On a busy machine this process may be stopped for longer than the grace time.
    assert!((0..10).any(|_| jump_ahead()), "the machine is too busy for this test");
}

/// Returns `false` if the devices did not send often enough to keep their epoch open.
fn jump_ahead() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(3, BUDGET, 1000);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let network = Network::new(1, Faults::default());
        let settings = Settings {
            grace: Duration::from_millis(600),
            time: Time::Recorded,
            listen: Some("127.0.0.1:0".parse().unwrap()),
            ..Settings::default()
        };
        let gateway = Gateway::bind(serve(&roster, folder.path()), settings, None).await.unwrap();
        let watch =
            Client::new(&format!("http://{}", gateway.address().unwrap()), &Options::default())
                .unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let parent = network.parent();
        let running = tokio::spawn(async move {
            gateway.run(parent, async { drop(stopped.await) }).await.unwrap();
        });
        let links = [0, 1, 2].map(|device| network.child(group::device_id(&roster, device).0));
        let send = async |device: u8, index, epoch| {
            for frame in first_frames(&roster, device, index, epoch) {
                links[usize::from(device)].send(frame.into()).await.unwrap();
            }
        };
        // Two devices are at the same epoch. The third jumps ahead of them repeatedly.
        let (mut sent_at, mut longest) = (Instant::now(), Duration::ZERO);
        for jump in 0..30 {
            longest = longest.max(sent_at.elapsed());
            sent_at = Instant::now();
            send(0, 0, FIRST).await;
            send(1, 0, FIRST).await;
            send(2, jump, FIRST + u64::from(jump) * 1000).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let ended = epochs_ended(&watch).await;
        longest = longest.max(sent_at.elapsed());
        if longest > Duration::from_millis(300) {
            return false;
        }
        assert_eq!(ended, 0);
        // When most devices are at the next epoch, the previous epoch ends after the grace time.
        for _ in 0..100 {
            send(0, 1, FIRST + 1).await;
            send(1, 1, FIRST + 1).await;
            if epochs_ended(&watch).await > 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(epochs_ended(&watch).await, 1);
        let _ = stop.send(());
        running.await.unwrap();
        true
    })
}
