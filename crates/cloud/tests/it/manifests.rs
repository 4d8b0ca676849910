//! Manifests: the cloud verifies them before it stores them, keeps all of them, and lists them by
//! epoch.

use crate::testbed::{LEVELS, Running, budgeted, coordinator, group, manifest, problem, query};
use moteseal_api::{CBOR_SEQ, ManifestReceipt, ROSTER_VERSION, paths};
use moteseal_cloud::{Config, Limits};
use moteseal_core::Digest;
use moteseal_core::record::EpochNumber;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_seal::follow::Limits as SealLimits;
use moteseal_seal::sample::Choice;
use moteseal_verify::issue::{NextRoster, PeriodChange};
use moteseal_verify::{Event, ReadError, Roster, StreamReader};

/// Returns the manifests that the cloud lists, byte for byte.
async fn listed(cloud: &Running, roster: &Roster, since: u64, until: Option<u64>) -> Vec<Vec<u8>> {
    let answer = cloud.get(&paths::manifests(EpochNumber(since), until.map(EpochNumber))).await;
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["content-type"]),
        (200, &CBOR_SEQ.parse().unwrap())
    );
    let bytes = answer.bytes().await.unwrap();
    let (mut found, mut ended) = (Vec::new(), false);
    let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
        assert!(!ended);
        match event {
            Event::Manifest(_, bytes) => found.push(bytes.to_vec()),
            Event::End => ended = true,
            other => panic!("{other:?}"),
        }
        Ok(())
    };
    let mut reader = StreamReader::new(roster, SealLimits::default());
    reader.feed(&bytes, &mut visit).unwrap();
    reader.finish(&mut visit).unwrap();
    assert!(ended);
    found
}

#[tokio::test]
async fn a_manifest_is_stored_once_and_listed_by_epoch() {
    let (roster, motes) = budgeted(&["a", "b"], 100);
    let directory = tempfile::tempdir().unwrap();
    let of = |epoch: u64, round| {
        let seals = [
            (motes[0].id, vec![Digest([1; 32]), Digest([2; 32])]),
            (motes[1].id, vec![Digest([epoch as u8; 32])]),
        ];
        manifest(&roster, &coordinator(), epoch, round, &seals)
    };
    let made: Vec<Vec<u8>> = [3, 5, 9].map(|epoch| of(epoch, 2)).to_vec();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    for manifest in made.iter().rev() {
        let receipt: ManifestReceipt =
            cloud.put_manifest(manifest.clone()).await.json().await.unwrap();
        assert_eq!(receipt, ManifestReceipt { stored: 1, known: 0, queued: 0, conflict: false });
        let receipt: ManifestReceipt =
            cloud.put_manifest(manifest.clone()).await.json().await.unwrap();
        assert_eq!(receipt, ManifestReceipt { stored: 0, known: 1, queued: 0, conflict: false });
    }
    cloud.stop().await;
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    assert_eq!(listed(&cloud, &roster, 0, None).await, made);
    assert_eq!(listed(&cloud, &roster, 3, Some(9)).await, made[..2]);
    assert_eq!(listed(&cloud, &roster, 4, Some(5)).await, Vec::<Vec<u8>>::new());
    // The cloud also stores a second manifest of the epoch, because it is evidence against the
    // coordinator.
    let other = of(5, 3);
    let receipt: ManifestReceipt = cloud.put_manifest(other.clone()).await.json().await.unwrap();
    assert_eq!(receipt, ManifestReceipt { stored: 1, known: 0, queued: 0, conflict: true });
    let mut both = listed(&cloud, &roster, 5, Some(6)).await;
    both.sort();
    let mut expected = vec![made[1].clone(), other];
    expected.sort();
    assert_eq!(both, expected);
    let metrics = cloud.get(paths::METRICS).await.text().await.unwrap();
    for line in ["moteseal_manifests_stored_total 1", "moteseal_manifests_doubled_total 1"] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    cloud.stop().await;
}

#[tokio::test]
async fn rejects_manifests_that_the_coordinator_did_not_sign() {
    let (roster, motes) = budgeted(&["a"], 100);
    let stranger = SecretKey::from_seed(Algorithm::Ed25519, &[5; 32]).unwrap();
    let seals = [(motes[0].id, vec![Digest([1; 32])])];
    let good = manifest(&roster, &coordinator(), 3, 2, &seals);
    let (other_group, _) = budgeted(&["a", "b"], 7);
    let unknown_roster = manifest(&other_group, &coordinator(), 3, 2, &seals);
    let mut flipped = good.clone();
    let last = flipped.len() - 1;
    flipped[last] ^= 1;
    let cases = [
        (manifest(&roster, &stranger, 3, 2, &seals), "NotAuthentic", 422),
        (flipped, "NotAuthentic", 422),
        (good[..last].to_vec(), "Truncated", 422),
        ([&good[..], b"\0"].concat(), "TrailingBytes", 422),
        (Vec::new(), "Truncated", 422),
        (unknown_roster, "UnknownRoster", 409),
        (manifest(&roster, &coordinator(), 3, LEVELS + 1, &seals), "RoundOutOfRange", 422),
        (manifest(&roster, &coordinator(), 3, 2, &[(motes[0].id, vec![])]), "UnsortedDevices", 422),
    ];
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    for (body, name, status) in cases {
        let rejected = problem(cloud.put_manifest(body).await).await;
        assert_eq!((rejected.name(), rejected.status), (name, status), "{rejected}");
    }
    // At the highest possible round, no event was kept.
    let nothing = manifest(&roster, &coordinator(), 4, LEVELS, &seals);
    assert_eq!(cloud.put_manifest(nothing.clone()).await.status(), 200);
    assert_eq!(listed(&cloud, &roster, 0, None).await, [nothing]);
    cloud.stop().await;

    let (roster, _) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let rejected = problem(cloud.put_manifest(good).await).await;
    assert_eq!((rejected.name(), rejected.status), ("NoCoordinator", 422));
    assert!(listed(&cloud, &roster, 0, None).await.is_empty());
    cloud.stop().await;
}

/// Reads an answer, and returns the version of the roster that it states.
async fn version(answer: reqwest::Response) -> String {
    let version = answer.headers()[ROSTER_VERSION].to_str().unwrap().to_owned();
    answer.bytes().await.unwrap();
    version
}

#[tokio::test]
async fn outdated_manifests_are_kept_and_not_listed() {
    let (first, motes) = budgeted(&["a"], 100);
    let directory = tempfile::tempdir().unwrap();
    let seals = [(motes[0].id, vec![Digest([1; 32])])];
    let of = |roster: &Roster, epoch| manifest(roster, &coordinator(), epoch, 2, &seals);
    let cloud = Running::start(directory.path(), Config::new(first.clone())).await;
    let (before, outdated) = (of(&first, 4), of(&first, 5));
    for manifest in [&before, &outdated] {
        assert_eq!(cloud.put_manifest(manifest.clone()).await.status(), 200);
    }
    let list = paths::manifests(EpochNumber(0), None);
    assert_eq!(version(cloud.get(&list).await).await, "0");
    cloud.stop().await;

    // The second version begins a period at epoch 5.
    let operator = SecretKey::from_seed(Algorithm::Ed25519, &[77; 32]).unwrap();
    let mut next = NextRoster::after(first.bytes(), &operator, &operator.public()).unwrap();
    let change = PeriodChange { levels: Some(LEVELS + 1), ..PeriodChange::default() };
    next.begin_period(EpochNumber(5), &change).unwrap();
    let second = Roster::open(&next.issue().unwrap(), &operator.public()).unwrap();
    let cloud = Running::start(directory.path(), Config::new(second.clone())).await;
    let rejected = problem(cloud.put_manifest(of(&first, 6)).await).await;
    assert_eq!(rejected.name(), "RosterOutdated");
    let new = of(&second, 6);
    assert_eq!(cloud.put_manifest(new.clone()).await.status(), 200);
    assert_eq!(listed(&cloud, &second, 0, None).await, [before, new]);
    let everything = query(&[motes[0].id], 0, None, Choice::AtMost(0));
    for answer in [cloud.get(&list).await, cloud.ask(&everything).await] {
        assert_eq!(answer.status(), 200);
        assert_eq!(version(answer).await, "1");
    }
    cloud.stop().await;
    let path = directory.path().join("epochs.redb");
    let report = moteseal_store::check::check(&path, &second, &mut |_| {}).unwrap();
    assert_eq!((report.is_clean(), report.manifests, report.outdated), (true, 3, 1));
}

#[tokio::test]
async fn manifests_have_the_limits_of_uploads_and_queries() {
    let (roster, motes) = budgeted(&["a"], 100);
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    std::fs::write(&tokens, "read 4q9mB0xJ2kTqvYfB\nwrite Zr7Qd0cM5hU1nWxK\n").unwrap();
    let limits = Limits { body_bytes: 1000, query_epochs: 10, ..Limits::default() };
    let cloud = Running::start(
        directory.path(),
        Config { limits, tokens: Some(tokens), ..Config::new(roster.clone()) },
    )
    .await;
    let put = |token: &'static str, media_type: &'static str, body: Vec<u8>| {
        let request = cloud
            .http
            .put(cloud.at(paths::MANIFESTS))
            .header("content-type", media_type)
            .bearer_auth(token);
        async { request.body(body).send().await.unwrap() }
    };
    let get = |token: &'static str, path: &str| {
        let request = cloud.http.get(cloud.at(path)).bearer_auth(token);
        async { request.send().await.unwrap() }
    };
    let (read, write) = ("4q9mB0xJ2kTqvYfB", "Zr7Qd0cM5hU1nWxK");
    let made = manifest(&roster, &coordinator(), 3, 2, &[(motes[0].id, vec![Digest([1; 32])])]);
    let typed = "application/cose; cose-type=\"cose-sign1\"";
    assert_eq!(put(write, typed, made.clone()).await.status(), 200);
    assert_eq!(problem(put(read, typed, made.clone()).await).await.name(), "Forbidden");
    assert_eq!(
        problem(put(write, CBOR_SEQ, made.clone()).await).await.name(),
        "UnsupportedMediaType"
    );
    assert_eq!(problem(put(write, typed, vec![0; 1001]).await).await.name(), "BodyTooLarge");
    assert_eq!(get(read, "/v1/manifests?since=0&until=10").await.status(), 200);
    assert_eq!(
        problem(get(write, "/v1/manifests?since=0&until=10").await).await.name(),
        "Forbidden"
    );
    assert_eq!(
        problem(get(read, "/v1/manifests?since=0&until=11").await).await.name(),
        "QueryTooLarge"
    );
    assert_eq!(problem(get(read, "/v1/manifests").await).await.name(), "QueryTooLarge");
    for bad in ["?since=4&until=4", "?since=x", "?epoch=3"] {
        assert_eq!(
            problem(get(read, &format!("/v1/manifests{bad}")).await).await.name(),
            "BadQuery",
            "{bad}"
        );
    }
    cloud.stop().await;
}
