//! Uploaded events are returned for every kind of selection, over real HTTP. The answers verify,
//! and their events are those that a slow reference implementation selects.

use crate::testbed::{LEVELS, Mote, Read, Running, group, problem, query, verified};
use moteseal_api::{DeviceList, Receipt, SealList, paths};
use moteseal_cloud::{Config, Response};
use moteseal_core::record::Scheme::{self, Star, Tree};
use moteseal_core::record::{DeviceId, EpochNumber, Level, SealIndex, Sequence};
use moteseal_seal::level::SaltKey;
use moteseal_seal::sample::permutation::{self, Swap};
use moteseal_seal::sample::{Choice, Rate};

/// A seal and its events, as the device made them.
struct Sealed {
    device: DeviceId,
    index: u32,
    epoch: u64,
    events: Vec<u32>,
}

impl Sealed {
    fn level(&self, seq: usize) -> Level {
        SaltKey::new([3; 32])
            .salt(self.device, SealIndex(self.index))
            .level(Sequence(seq as u64), LEVELS)
    }

    fn rows(&self, chosen: impl Fn(usize) -> bool) -> Vec<(DeviceId, u32, u64, u32)> {
        let rows = self.events.iter().enumerate().filter(|(seq, _)| chosen(*seq));
        rows.map(|(seq, value)| (self.device, self.index, seq as u64, *value)).collect()
    }
}

/// Seals and uploads events of epochs 10 to 14, with one scheme per device. Epoch 12 has two parts
/// and epoch 13 has no events.
async fn filled(cloud: &Running, motes: &mut [Mote], schemes: &[Scheme]) -> Vec<Sealed> {
    let mut all = Vec::new();
    let mut body = Vec::new();
    for (mote, scheme) in motes.iter_mut().zip(schemes) {
        for (index, (epoch, last, count)) in (0..).zip([
            (10, true, 300),
            (11, true, 7),
            (12, false, 600),
            (12, true, 80),
            (13, true, 0),
            (14, true, 50),
        ]) {
            let events: Vec<u32> = (0..count).map(|i| i * 3 + epoch as u32 * 1000).collect();
            body.extend(mote.seal(*scheme, epoch, last, &events));
            all.push(Sealed { device: mote.id, index, epoch, events });
        }
    }
    let receipt: Receipt = cloud.put(body).await.json().await.unwrap();
    assert_eq!(receipt, Receipt { stored: all.len() as u64, ..Receipt::default() });
    all
}

async fn asked(
    cloud: &Running,
    roster: &moteseal_verify::Roster,
    query: &moteseal_api::Query,
) -> Read {
    let response = cloud.ask(query).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], moteseal_api::CBOR_SEQ);
    let read = verified(roster, &response.bytes().await.unwrap()).unwrap();
    assert!(read.ended && read.problem.is_none(), "{read:?}");
    read
}

#[tokio::test]
async fn a_rate_selects_exactly_its_levels_of_stars_and_trees() {
    let (roster, mut motes) = group(&["a", "b"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let all = filled(&cloud, &mut motes, &[Star, Tree]).await;
    let devices = [motes[1].id, motes[0].id];
    for text in ["1", "1/2", "1/8", "5/8", "3/128"] {
        let rate: Rate = text.parse().unwrap();
        let mask = rate.levels(LEVELS).unwrap();
        let read = asked(&cloud, &roster, &query(&devices, 10, Some(14), Choice::Rate(rate))).await;
        let of = |device| {
            all.iter().filter(move |sealed: &&Sealed| sealed.device == device && sealed.epoch < 14)
        };
        let expected: Vec<_> = devices
            .iter()
            .flat_map(|&device| {
                of(device)
                    .flat_map(|sealed| sealed.rows(|seq| mask >> sealed.level(seq).0 & 1 == 1))
            })
            .collect();
        assert_eq!(read.rows, expected, "rate {text}");
        // The last epoch is closed by its own seal, so the answer needs no later seal. Each device
        // has five seals and one signature.
        assert_eq!(read.parts.len(), 10);
        assert_eq!(read.parts.iter().filter(|(.., signed)| *signed).count(), 2);
    }
    cloud.stop().await;
}

#[tokio::test]
async fn at_most_selects_whole_levels_from_the_coarsest_over_all_parts_of_an_epoch() {
    let (roster, mut motes) = group(&["a", "b"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let all = filled(&cloud, &mut motes, &[Star, Tree]).await;
    for most in [0, 1, 20, 100, 400, 10_000] {
        let devices = [motes[0].id, motes[1].id];
        let read = asked(&cloud, &roster, &query(&devices, 0, None, Choice::AtMost(most))).await;
        let mut expected = Vec::new();
        for device in devices {
            for epoch in 10..=14 {
                let parts: Vec<_> = all
                    .iter()
                    .filter(|sealed| sealed.device == device && sealed.epoch == epoch)
                    .collect();
                let mut left = most as usize;
                let mut mask = 0;
                for level in 0..LEVELS {
                    let at = |sealed: &&&Sealed| {
                        (0..sealed.events.len()).filter(|&seq| sealed.level(seq).0 == level).count()
                    };
                    let count: usize = parts.iter().map(|sealed| at(&sealed)).sum();
                    if count <= left {
                        left -= count;
                        mask |= 1 << level;
                    }
                }
                expected.extend(
                    parts
                        .iter()
                        .flat_map(|sealed| sealed.rows(|seq| mask >> sealed.level(seq).0 & 1 == 1)),
                );
            }
        }
        assert_eq!(read.rows, expected, "at most {most}");
        assert_eq!(read.parts.len(), 12);
    }
    cloud.stop().await;
}

#[tokio::test]
async fn a_sample_has_the_events_of_the_permutation_and_needs_a_tree() {
    let (roster, mut motes) = group(&["a", "b"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let all = filled(&cloud, &mut motes, &[Tree, Star]).await;
    let (device, seed) = (motes[0].id, [9; 32]);
    for count in [1, 33, 680, 5000] {
        let read =
            asked(&cloud, &roster, &query(&[device], 11, Some(15), Choice::Sample { count, seed }))
                .await;
        let mut expected = Vec::new();
        for epoch in 11..15 {
            let parts: Vec<_> = all
                .iter()
                .filter(|sealed| sealed.device == device && sealed.epoch == epoch)
                .collect();
            let total: usize = parts.iter().map(|sealed| sealed.events.len()).sum();
            let mut chosen = vec![0; total.min(count as usize)];
            let mut scratch = vec![Swap::FREE; permutation::scratch_for(chosen.len())];
            permutation::choose(
                &seed,
                device,
                EpochNumber(epoch),
                total as u64,
                &mut chosen,
                &mut scratch,
            )
            .unwrap();
            let mut start = 0;
            for sealed in parts {
                expected.extend(sealed.rows(|seq| chosen.contains(&(start + seq as u64))));
                start += sealed.events.len() as u64;
            }
        }
        assert_eq!(read.rows, expected, "sample {count}");
    }
    let rejected = problem(
        cloud.ask(&query(&[motes[1].id], 10, Some(11), Choice::Sample { count: 3, seed })).await,
    )
    .await;
    assert_eq!((rejected.name(), rejected.status), ("SchemeMismatch", 422));
    cloud.stop().await;
}

#[tokio::test]
async fn a_range_without_a_closing_seal_ends_with_the_next_seal() {
    let (roster, mut motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    filled(&cloud, &mut motes, &[Star]).await;
    let mote = &mut motes[0];
    // No epoch from 15 to 19 has a seal, and epoch 20 is still open.
    let receipt: Receipt =
        cloud.put(mote.seal(Star, 20, false, &[1, 2, 3])).await.json().await.unwrap();
    assert_eq!(receipt.stored, 1);
    let all = Choice::Rate(Rate::ALL);
    let indices = |read: &Read| read.parts.iter().map(|(_, index, ..)| *index).collect::<Vec<_>>();
    let mut cases = Vec::new();
    for (since, until, expected, rows) in [
        // Ranges that end in epochs without seals. The answer ends with the next seal, without
        // events. Its `prev` proves that no seal was omitted.
        (15, Some(20), vec![6], 0),
        (16, Some(17), vec![6], 0),
        (14, Some(18), vec![5, 6], 50),
        // The range is before the first seal.
        (0, Some(10), vec![0], 0),
        // The last seal of the range states that it is the last of its epoch, so no further seal is
        // needed.
        (14, Some(15), vec![5], 50),
        // The range includes the tail: epoch 20 is open and no later seal exists.
        (20, Some(21), vec![6], 3),
        (20, None, vec![6], 3),
        (21, Some(30), vec![], 0),
        (12, Some(13), vec![2, 3], 680),
    ] {
        let read = asked(&cloud, &roster, &query(&[mote.id], since, until, all)).await;
        cases.push((indices(&read), read.rows.len()));
        assert_eq!(cases.last().unwrap(), &(expected, rows), "{since}..{until:?}");
    }
    cloud.stop().await;
}

#[tokio::test]
async fn long_answers_have_runs_of_64_parts_with_one_signature_each() {
    let (roster, mut motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let body: Vec<u8> =
        (0..150).flat_map(|epoch| motes[0].seal(Star, epoch, true, &[epoch as u32; 5])).collect();
    assert_eq!(cloud.put(body).await.status(), 200);
    let read =
        asked(&cloud, &roster, &query(&[motes[0].id], 0, None, Choice::Rate(Rate::ALL))).await;
    let signed: Vec<u32> =
        read.parts.iter().filter(|(.., signed)| *signed).map(|(_, index, ..)| *index).collect();
    assert_eq!((read.parts.len(), signed), (150, vec![63, 127, 149]));
    cloud.stop().await;
}

#[tokio::test]
async fn a_missing_seal_ends_the_run_and_the_client_reports_it() {
    let (roster, mut motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    for epoch in 0..5 {
        let bundle = motes[0].seal(Tree, epoch, true, &[7; 20]);
        if epoch != 2 {
            assert_eq!(cloud.put(bundle).await.status(), 200);
        }
    }
    let read =
        asked(&cloud, &roster, &query(&[motes[0].id], 0, Some(5), Choice::Rate(Rate::ALL))).await;
    let parts: Vec<_> = read.parts.iter().map(|(_, index, _, signed)| (*index, *signed)).collect();
    assert_eq!(parts, [(0, false), (1, true), (3, false), (4, true)]);
    cloud.stop().await;
}

#[tokio::test]
async fn bundles_listings_and_explanations_match_the_uploads() {
    let (roster, mut motes) = group(&["a", "quiet"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let all = filled(&cloud, &mut motes[..1], &[Star]).await;
    let device = motes[0].id;

    let list: DeviceList = cloud.get(paths::DEVICES).await.json().await.unwrap();
    assert_eq!((list.group.as_str(), list.roster_version, list.devices.len()), ("home", 0, 2));
    assert_eq!(list.roster_digest, roster.digest().to_string());
    let entry = |name: &str| list.devices.iter().find(|device| device.name == name).unwrap();
    let newest = entry("a").newest.clone().unwrap();
    assert_eq!(
        (newest.index, newest.epoch, newest.digest),
        (5, 14, motes[0].position.prev.to_string())
    );
    assert_eq!(
        (entry("quiet").newest.clone(), &entry("quiet").id),
        (None, &motes[1].id.to_string())
    );

    for only in ["a", "quiet"] {
        let id = entry(only).id.clone();
        let path = format!("{}?device={id}", paths::DEVICES);
        let list: DeviceList = cloud.get(&path).await.json().await.unwrap();
        let [found] = &list.devices[..] else { panic!("{only}: {:?}", list.devices) };
        assert_eq!((&found.id, &found.newest), (&id, &entry(only).newest));
    }
    for (id, status) in [("0", 400), ("0000000000000000", 404), ("ffffffffffffffff", 404)] {
        let response = cloud.get(&format!("{}?device={id}", paths::DEVICES)).await;
        assert_eq!(response.status(), status, "{id}");
    }

    let mut from = Some(SealIndex(0));
    let mut seals = Vec::new();
    while let Some(next) = from {
        let page: SealList = cloud.get(&paths::seals(device, next, 4)).await.json().await.unwrap();
        assert!(page.seals.len() <= 4 && !page.seals.is_empty());
        seals.extend(page.seals);
        from = page.next.map(SealIndex);
    }
    let listed: Vec<_> = seals
        .iter()
        .map(|seal| (seal.index, seal.epoch, seal.events as usize, seal.conflict))
        .collect();
    let expected: Vec<_> =
        all.iter().map(|sealed| (sealed.index, sealed.epoch, sealed.events.len(), false)).collect();
    assert_eq!(listed, expected);
    assert!(seals.windows(2).all(|pair| pair[1].prev == pair[0].digest));

    let bundle = cloud.get(&paths::bundle(device, SealIndex(2))).await.bytes().await.unwrap();
    let read = verified(&roster, &bundle).unwrap();
    assert_eq!((read.rows, read.ended), (all[2].rows(|_| true), true));
    // A bundle that the cloud returned can be uploaded again; the cloud reports it as known.
    let receipt: Receipt = cloud.put(bundle.to_vec()).await.json().await.unwrap();
    assert_eq!((receipt.stored, receipt.known), (0, 1));

    let explained = cloud.get(&paths::explain(device, SealIndex(2))).await.bytes().await.unwrap();
    let (item, length) = moteseal_seal::stream::Item::decode(&explained).unwrap();
    let moteseal_seal::stream::Item::Explain { seal, digests } = item else {
        panic!("an explain item")
    };
    let (seal, _) = moteseal_seal::Seal::decode(seal).unwrap();
    assert_eq!(seal.digest().to_string(), seals[2].digest);
    assert_eq!(digests.len(), 32 * usize::from(LEVELS));
    assert_eq!(&explained[length..], [0x81, 0x03]);

    for path in [paths::bundle(device, SealIndex(99)), paths::explain(device, SealIndex(99))] {
        assert_eq!(problem(cloud.get(&path).await).await.name(), "NotFound");
    }
    for path in [
        "/v1/devices/zz/seals",
        "/v1/devices/zz/bundles/0",
        "/v1/devices/%ff/seals",
        "/v1/devices/%ff/bundles/%fe",
    ] {
        assert_eq!(problem(cloud.get(path).await).await.name(), "BadQuery");
    }
    let stranger = DeviceId([1; 8]);
    assert_eq!(
        problem(cloud.get(&paths::seals(stranger, SealIndex(0), 1)).await).await.name(),
        "NotFound"
    );
    assert_eq!(
        problem(cloud.get(&format!("/v1/devices/{device}/bundles/-1")).await).await.name(),
        "BadQuery"
    );
    assert_eq!(
        problem(cloud.get(&format!("/v1/devices/{device}/seals?form=1")).await).await.name(),
        "BadQuery"
    );
    cloud.stop().await;
}

#[tokio::test]
async fn levels_that_a_device_did_not_keep_are_an_error() {
    let (roster, mut motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let mote = &mut motes[0];
    let events: Vec<u32> = (0..400).collect();
    let mut body = mote.seal(Star, 1, true, &events);
    mote.own_round = 2;
    body.extend(mote.seal(Star, 2, true, &events));
    assert_eq!(cloud.put(body).await.status(), 200);
    let sealed = |index| Sealed { device: mote.id, index, epoch: 0, events: events.clone() };
    let read = asked(
        &cloud,
        &roster,
        &query(&[mote.id], 1, Some(3), Choice::Rate("1/4".parse().unwrap())),
    )
    .await;
    let kept = |sealed: &Sealed| sealed.rows(|seq| sealed.level(seq).0 >= 2);
    assert_eq!(read.rows, [kept(&sealed(0)), kept(&sealed(1))].concat());
    // The store has all levels of the first epoch, but not of the second epoch.
    let rejected =
        cloud.ask(&query(&[mote.id], 1, Some(3), Choice::Rate("1/2".parse().unwrap()))).await;
    let read = verified(&roster, &rejected.bytes().await.unwrap()).unwrap();
    assert_eq!((read.parts.len(), read.ended), (1, false));
    let (name, detail) = read.problem.unwrap();
    assert!(name == "RateUnavailable" && detail.contains("index 1"), "{detail}");
    let rejected =
        problem(cloud.ask(&query(&[mote.id], 2, Some(3), Choice::Rate(Rate::ALL))).await).await;
    assert_eq!((rejected.name(), rejected.status), ("RateUnavailable", 422));
    let read = asked(&cloud, &roster, &query(&[mote.id], 2, Some(3), Choice::AtMost(1000))).await;
    assert_eq!(read.rows, kept(&sealed(1)));
    cloud.stop().await;
}

/// A client that asked for an unavailable rate closes the connection. The seals that the error would
/// have considered are not read.
#[tokio::test]
async fn an_unavailable_rate_reads_no_seals_for_a_client_that_is_gone() {
    let (roster, mut motes) = group(&["a", "b"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let mut body = Vec::new();
    for mote in &mut motes {
        mote.own_round = 2;
        body.extend((1..50).flat_map(|epoch| mote.seal(Star, epoch, true, &[7; 100])));
    }
    assert_eq!(cloud.put(body).await.status(), 200);
    let query = query(&[motes[0].id, motes[1].id], 1, None, Choice::Rate(Rate::ALL));
    for wanted in [0, 1, 30, usize::MAX] {
        let mut calls = 0;
        let gate = |_| {
            calls += 1;
            calls <= wanted
        };
        let items = Response::new(&*cloud.store, &roster, query.clone()).with_gate(gate).count();
        let expected = if wanted == usize::MAX { (2 * 49, 1) } else { (wanted + 1, 0) };
        assert!(
            calls >= expected.0 && items == expected.1,
            "{wanted}: {calls} calls, {items} items"
        );
        assert!(wanted == usize::MAX || calls == expected.0, "{calls} calls after {wanted}");
    }
    cloud.stop().await;
}

#[tokio::test]
async fn a_long_listing_states_its_length() {
    let (roster, mut motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster)).await;
    let body: Vec<u8> = (0..200).flat_map(|epoch| motes[0].seal(Star, epoch, true, &[1])).collect();
    assert_eq!(cloud.put(body).await.status(), 200);
    let listing = cloud.get(&paths::seals(motes[0].id, SealIndex(0), 200)).await;
    let stated = listing.headers()["content-length"].to_str().unwrap().parse::<usize>().unwrap();
    let bytes = listing.bytes().await.unwrap();
    assert!(bytes.len() > 16 << 10, "{} bytes", bytes.len());
    assert_eq!(bytes.len(), stated);
    cloud.stop().await;
}

/// Long parts wait for memory that all answers share. Many concurrent answers are slower, but none
/// is rejected or truncated.
#[tokio::test]
async fn long_parts_share_bounded_memory() {
    let (roster, mut motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let mut config = Config::new(roster.clone());
    config.limits.answer_bytes = 1 << 20;
    let cloud = Running::start(directory.path(), config).await;
    let events: Vec<u32> = (0..300_000).collect();
    for (epoch, scheme) in [(1, Star), (2, Tree), (3, Star)] {
        assert_eq!(cloud.put(motes[0].seal(scheme, epoch, true, &events)).await.status(), 200);
    }
    for rate in [Rate::ALL, "1/2".parse().unwrap()] {
        let query = query(&[motes[0].id], 0, None, Choice::Rate(rate));
        let mut answers = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let (http, url, body) = (cloud.http.clone(), cloud.at(paths::QUERY), query.to_json());
            answers.spawn(async move {
                http.post(url).body(body).send().await.unwrap().bytes().await.unwrap()
            });
        }
        let answers = answers.join_all().await;
        let read = verified(&roster, &answers[0]).unwrap();
        let rows = read.rows.len();
        assert!(
            read.ended
                && if rate == Rate::ALL {
                    rows == 900_000
                } else {
                    (440_000..460_000).contains(&rows)
                },
            "{rows}"
        );
        assert!(answers.iter().all(|answer| *answer == answers[0]));
    }
    cloud.stop().await;
}
