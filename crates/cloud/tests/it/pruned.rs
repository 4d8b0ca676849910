//! A group with a budget. The cloud accepts a pruned bundle once the manifest of its epoch is
//! stored, keeps it, and serves it at every rate for which it has the levels.

use crate::testbed::{
    LEVELS, Running, budgeted, coordinator, group, manifest, problem, query, verified,
};
use moteseal_api::{Receipt, paths};
use moteseal_cloud::Config;
use moteseal_core::Digest;
use moteseal_core::record::Scheme::{Star, Tree};
use moteseal_core::record::{DeviceId, Round, SealIndex};
use moteseal_seal::engine::Scalar;
use moteseal_seal::sample::choice::EpochCounts;
use moteseal_seal::sample::existing;
use moteseal_seal::sample::permutation::{Swap, scratch_for};
use moteseal_seal::sample::{Choice, Rate};
use moteseal_seal::stream::Item;
use moteseal_store::EpochStore;
use moteseal_verify::Roster;

async fn put_manifest(
    cloud: &Running,
    roster: &Roster,
    epoch: u64,
    round: u8,
    seals: &[(DeviceId, Vec<Digest>)],
) {
    let manifest = manifest(roster, &coordinator(), epoch, round, seals);
    assert_eq!(cloud.put_manifest(manifest).await.status(), 200);
}

fn rate(text: &str) -> Choice {
    Choice::Rate(text.parse().unwrap())
}

#[tokio::test]
async fn a_pruned_bundle_is_accepted_once_its_manifest_is_stored() {
    let (roster, mut motes) = budgeted(&["a", "b"], 50);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let events: Vec<u32> = (0..200).collect();
    let before = motes[0].clone();
    let (bundle, digest) = motes[0].seal_from(2, 3, true, &events);

    let rejected = problem(cloud.put(bundle.clone()).await).await;
    assert_eq!((rejected.name(), rejected.status), ("ManifestMissing", 409));
    assert!(
        rejected.detail.contains("/v1/manifests") && rejected.detail.contains("epoch 3"),
        "{}",
        rejected.detail
    );

    // A manifest of another epoch is not enough.
    put_manifest(&cloud, &roster, 4, 2, &[(before.id, vec![digest])]).await;
    assert_eq!(problem(cloud.put(bundle.clone()).await).await.name(), "ManifestMissing");

    put_manifest(&cloud, &roster, 3, 2, &[(before.id, vec![digest])]).await;
    let fewer = problem(cloud.put(before.fork_from(3, 3, true, &events)).await).await;
    assert_eq!((fewer.name(), fewer.status), ("NotWhole", 422));
    assert!(fewer.detail.contains("ended at round 2"), "{}", fewer.detail);
    assert_eq!(
        cloud.store.seals(before.id, SealIndex(0), 9).unwrap().len(),
        0,
        "nothing must be stored"
    );
    let receipt: Receipt = cloud.put(bundle.clone()).await.json().await.unwrap();
    assert_eq!((receipt.stored, receipt.known), (1, 0));
    let receipt: Receipt = cloud.put(bundle).await.json().await.unwrap();
    assert_eq!((receipt.stored, receipt.known), (0, 1));

    // A bundle with more levels replaces a stored bundle with fewer levels, but never the reverse.
    // The cloud also accepts a late seal, which the manifest does not list.
    let receipt: Receipt =
        cloud.put(before.fork_from(1, 3, true, &events)).await.json().await.unwrap();
    assert_eq!((receipt.stored, receipt.known), (1, 0));
    let receipt: Receipt =
        cloud.put(before.fork_from(2, 3, true, &events)).await.json().await.unwrap();
    assert_eq!((receipt.stored, receipt.known), (0, 1));
    let stored = &cloud.store.seals(before.id, SealIndex(0), 9).unwrap()[0];
    assert_eq!((stored.kept_from().0, stored.key().digest), (1, digest));
    let (late, _) = motes[1].seal_from(2, 3, true, &events);
    assert_eq!(cloud.put(late).await.status(), 200);

    // In a group without a budget, the cloud accepts only complete bundles.
    let tree = motes[1].seal(Tree, 4, true, &events);
    assert_eq!(cloud.put(tree).await.status(), 200);
    cloud.stop().await;
    let (roster, mut motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster)).await;
    let rejected = problem(cloud.put(motes[0].seal_from(2, 3, true, &events).0).await).await;
    assert_eq!((rejected.name(), rejected.status), ("NotWhole", 422));
    cloud.stop().await;
}

#[tokio::test]
async fn an_answer_begins_with_the_manifests_and_has_the_surviving_events() {
    let (roster, mut motes) = budgeted(&["a"], 50);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let events: Vec<u32> = (0..300).collect();
    let mote = &mut motes[0];
    let mut counts = Vec::new();
    for (epoch, round) in [(3, 2), (4, 3), (5, LEVELS)] {
        let (bundle, digest) = mote.seal_from(round, epoch, true, &events);
        put_manifest(&cloud, &roster, epoch, round, &[(mote.id, vec![digest])]).await;
        assert_eq!(cloud.put(bundle).await.status(), 200);
        let seal = cloud
            .store
            .seals_since(mote.id, moteseal_core::EpochNumber(epoch), 1)
            .unwrap()
            .remove(0);
        counts.push(seal.seal().statement().counters);
    }
    let id = mote.id;
    let ask = |since: u64, until: u64, choice: Choice| {
        let query = query(&[id], since, Some(until), choice);
        let (cloud, roster) = (&cloud, &roster);
        async move { verified(roster, &cloud.ask(&query).await.bytes().await.unwrap()).unwrap() }
    };
    let from =
        |epoch: usize, level: usize| counts[epoch].as_slice()[level..].iter().sum::<u32>() as usize;

    let read = ask(3, 5, rate("1/8")).await;
    assert_eq!(
        (&read.manifests[..], read.parts.len(), read.ended),
        (&[(3, 2), (4, 3)][..], 2, true)
    );
    assert_eq!(read.rows.len(), from(0, 3) + from(1, 3));
    assert!(read.rows.iter().all(|&(_, _, seq, value)| seq == u64::from(value)));
    // The answer has all kept levels, because they have fewer events than the maximum, and no level
    // below the round.
    let read = ask(3, 4, Choice::AtMost(1000)).await;
    assert_eq!((read.rows.len(), &read.manifests[..]), (from(0, 2), &[(3, 2)][..]));
    let read = ask(5, 6, Choice::AtMost(1000)).await;
    assert_eq!(
        (read.rows.len(), read.parts.len(), &read.manifests[..]),
        (0, 1, &[(5, LEVELS)][..])
    );
    // An audit sends this query. The answer has no events, but every seal and every manifest.
    let read = ask(3, 6, Choice::AtMost(0)).await;
    assert_eq!((read.rows.len(), read.parts.len(), read.manifests.len()), (0, 3, 3));

    // The cloud rejects a rate that needs discarded levels, and states the highest available rate.
    for (since, choice, detail) in [
        (3, Choice::Rate(Rate::ALL), "round 2 on: the highest available rate is 1/4"),
        (4, rate("1/4"), "round 3 on: the highest available rate is 1/8"),
        (3, rate("3/8"), "round 2"),
        (5, rate("1/128"), "no rate is available"),
    ] {
        let rejected =
            problem(cloud.ask(&query(&[mote.id], since, Some(since + 1), choice)).await).await;
        assert_eq!((rejected.name(), rejected.status), ("RateUnavailable", 422), "{rejected}");
        assert!(rejected.detail.contains(detail), "{}", rejected.detail);
    }
    // Finding F7 of the review: whichever seal of the query lacks a level first, the error states
    // the highest rate of the whole query.
    let highest = "index 1: epoch 4 was kept from round 3 on: the highest available rate is 1/8";
    for asked in ["1", "1/2"] {
        let both = query(&[mote.id], 3, Some(5), rate(asked));
        let rejected = problem(cloud.ask(&both).await).await;
        assert_eq!((rejected.name(), rejected.status), ("RateUnavailable", 422), "{rejected}");
        assert!(rejected.detail.ends_with(highest), "{}", rejected.detail);
    }
    let both = query(&[mote.id], 3, Some(5), rate("1/4"));
    let read = verified(&roster, &cloud.ask(&both).await.bytes().await.unwrap()).unwrap();
    let (name, detail) = read.problem.unwrap();
    assert!(name == "RateUnavailable" && detail.ends_with(highest), "{name}: {detail}");
    assert_eq!((read.parts.len(), read.ended), (1, false));
    // The cloud also rejects the rate if the device, and not the coordinator, discarded the levels.
    mote.own_round = 3;
    assert_eq!(cloud.put(mote.seal(Star, 6, true, &events)).await.status(), 200);
    let rejected = problem(cloud.ask(&query(&[mote.id], 6, Some(7), rate("1/4"))).await).await;
    assert_eq!((rejected.name(), rejected.status), ("RateUnavailable", 422), "{rejected}");
    assert!(
        rejected.detail.contains("round 3 on: the highest available rate is 1/8"),
        "{}",
        rejected.detail
    );
    let seal = cloud.store.seals_since(id, moteseal_core::EpochNumber(6), 1).unwrap().remove(0);
    let kept: u32 = seal.seal().statement().counters.as_slice()[3..].iter().sum();
    assert_eq!(ask(6, 7, rate("1/8")).await.rows.len(), kept as usize);
    cloud.stop().await;
}

#[tokio::test]
async fn bundles_explanations_and_listings_state_what_is_kept() {
    let (roster, mut motes) = budgeted(&["a"], 50);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let events: Vec<u32> = (0..300).collect();
    let mote = &mut motes[0];
    assert_eq!(cloud.put(mote.seal(Star, 2, true, &events)).await.status(), 200);
    let (bundle, digest) = mote.seal_from(2, 3, true, &events);
    put_manifest(&cloud, &roster, 3, 2, &[(mote.id, vec![digest])]).await;
    assert_eq!(cloud.put(bundle.clone()).await.status(), 200);

    let whole = cloud.get(&paths::bundle(mote.id, SealIndex(0))).await.bytes().await.unwrap();
    assert!(verified(&roster, &whole).unwrap().manifests.is_empty());
    let pruned = cloud.get(&paths::bundle(mote.id, SealIndex(1))).await.bytes().await.unwrap();
    let read = verified(&roster, &pruned).unwrap();
    assert_eq!((&read.manifests[..], read.ended), (&[(3, 2)][..], true));
    assert_eq!(read.rows, verified(&roster, &bundle).unwrap().rows);

    let stored = cloud.store.seals_at(mote.id, SealIndex(1)).unwrap().remove(0);
    let explained = cloud.get(&paths::explain(mote.id, SealIndex(1))).await.bytes().await.unwrap();
    let (Item::Explain { digests, .. }, _) = Item::decode(&explained).unwrap() else {
        panic!("an explain item")
    };
    assert_eq!(digests.len(), 32 * (1 + usize::from(LEVELS)));
    assert_eq!(digests[..32], stored.above().1.0);
    assert_eq!(digests[32..96], [0; 64], "two levels are not kept");

    let listed: moteseal_api::SealList =
        cloud.get(&paths::seals(mote.id, SealIndex(0), 9)).await.json().await.unwrap();
    assert_eq!(listed.seals.iter().map(|seal| seal.kept_from).collect::<Vec<_>>(), [0, 2]);
    cloud.stop().await;
}

/// The manifest does not determine which levels of a late seal a gateway keeps. The cloud accepts
/// and keeps the seal, and serves it at every rate for which it has the levels.
#[tokio::test]
async fn a_late_seal_may_be_pruned_at_any_round() {
    let (roster, mut motes) = budgeted(&["a", "b"], 50);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let events: Vec<u32> = (0..300).collect();
    let (listed, digest) = motes[0].seal_from(1, 3, true, &events);
    put_manifest(&cloud, &roster, 3, 1, &[(motes[0].id, vec![digest])]).await;
    assert_eq!(cloud.put(listed).await.status(), 200);

    // The manifest does not list this seal, so the seal may be pruned at round 4.
    let before = motes[1].clone();
    let (late, _) = motes[1].seal_from(4, 3, true, &events);
    assert_eq!(cloud.put(late).await.status(), 200);
    let stored = cloud.store.seals(before.id, SealIndex(0), 9).unwrap().remove(0);
    assert_eq!(stored.kept_from().0, 4);
    // A client that has more levels of the seal can still send them. A later upload with fewer
    // levels does not remove levels from the store.
    for (from, kept) in [(3, 3), (5, 3)] {
        assert_eq!(cloud.put(before.fork_from(from, 3, true, &events)).await.status(), 200);
        assert_eq!(cloud.store.seals(before.id, SealIndex(0), 9).unwrap()[0].kept_from().0, kept);
    }
    // If another manifest of the epoch lists a seal, an upload of this seal must have every level
    // from that manifest's round on.
    put_manifest(&cloud, &roster, 4, 0, &[]).await;
    let other = motes[1].clone();
    let (_, digest) = motes[1].seal_from(0, 4, true, &events);
    put_manifest(&cloud, &roster, 4, 1, &[(other.id, vec![digest])]).await;
    let rejected = problem(cloud.put(other.fork_from(2, 4, true, &events)).await).await;
    assert_eq!((rejected.name(), rejected.status), ("NotWhole", 422));

    // If the epoch has no manifest, the sender must state that the epoch will have none.
    let (pruned, _) = motes[0].seal_from(2, 5, true, &events);
    assert_eq!(problem(cloud.put(pruned.clone()).await).await.name(), "ManifestMissing");
    let send = |path: &str| {
        let request = cloud
            .http
            .put(cloud.at(path))
            .header("content-type", moteseal_api::CBOR_SEQ)
            .body(pruned.clone());
        request.send()
    };
    assert_eq!(problem(send("/v1/bundles?late=perhaps").await.unwrap()).await.name(), "BadQuery");
    assert_eq!(send(paths::LATE_BUNDLES).await.unwrap().status(), 200);
    assert_eq!(cloud.store.seals(motes[0].id, SealIndex(1), 9).unwrap()[0].kept_from().0, 2);

    // A query for levels that the store does not have is rejected with a reason. A query for levels
    // that it has is served.
    let ask = |choice: Choice| query(&[before.id], 3, Some(4), choice);
    for choice in [rate("1/2"), Choice::AtMost(200)] {
        let rejected = problem(cloud.ask(&ask(choice)).await).await;
        assert_eq!((rejected.name(), rejected.status), ("RateUnavailable", 422), "{rejected}");
        assert!(rejected.detail.contains("round 3"), "{}", rejected.detail);
    }
    let counters = stored.seal().statement().counters;
    let from = |level: usize| counters.as_slice()[level..].iter().sum::<u32>();
    for choice in [rate("1/8"), Choice::AtMost(from(3).into())] {
        let read =
            verified(&roster, &cloud.ask(&ask(choice)).await.bytes().await.unwrap()).unwrap();
        assert_eq!(read.rows.len(), from(3) as usize, "{choice:?}");
    }
    cloud.stop().await;
}

/// The cloud also serves the kept records of a tree at every rate for which it has the levels. Each
/// answer has its own proof.
#[tokio::test]
async fn a_pruned_tree_is_accepted_kept_and_served() {
    let (roster, mut motes) = budgeted(&["a"], 50);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let events: Vec<u32> = (0..3000).collect();
    let mote = &mut motes[0];
    for (epoch, own_round, round) in [(3, 0, 2), (4, 1, 3), (5, 2, 2), (6, 0, LEVELS)] {
        mote.own_round = own_round;
        let before = mote.clone();
        let (bundle, digest) = mote.seal_scheme_from(Tree, round, epoch, true, &events);
        if own_round < round {
            assert_eq!(problem(cloud.put(bundle.clone()).await).await.name(), "ManifestMissing");
        }
        put_manifest(&cloud, &roster, epoch, round, &[(mote.id, vec![digest])]).await;
        if round < LEVELS {
            let fewer =
                problem(cloud.put(before.fork_tree_from(round + 1, epoch, true, &events)).await)
                    .await;
            assert_eq!(fewer.name(), "NotWhole");
        }
        let receipt: Receipt = cloud.put(bundle.clone()).await.json().await.unwrap();
        assert_eq!((receipt.stored, receipt.known), (1, 0));
        let receipt: Receipt = cloud.put(bundle.clone()).await.json().await.unwrap();
        assert_eq!((receipt.stored, receipt.known), (0, 1));

        let seal = cloud
            .store
            .seals_since(mote.id, moteseal_core::EpochNumber(epoch), 1)
            .unwrap()
            .remove(0);
        let statement = seal.seal().statement().clone();
        assert_eq!(
            (statement.own_round.0, seal.kept_from().0),
            (own_round, if own_round < round { round } else { 0 })
        );
        let from = |level: u8| {
            statement.counters.as_slice()[usize::from(level)..].iter().sum::<u32>() as usize
        };
        let ask = async |choice: Choice| {
            cloud.ask(&query(&[mote.id], epoch, Some(epoch + 1), choice)).await
        };
        // The bundle is returned as it was uploaded. The epoch's manifest precedes it if the bundle
        // lacks levels that the device kept.
        let fetched =
            cloud.get(&paths::bundle(mote.id, statement.index)).await.bytes().await.unwrap();
        let (fetched, sent) =
            (verified(&roster, &fetched).unwrap(), verified(&roster, &bundle).unwrap());
        assert_eq!(fetched.rows, sent.rows);
        assert_eq!(fetched.manifests.len(), usize::from(own_round < round));
        for level in 1..LEVELS {
            let asked = Choice::Rate(Rate::new(1, 1 << level).unwrap());
            if level < round {
                let rejected = problem(ask(asked).await).await;
                assert_eq!(
                    (rejected.name(), rejected.status),
                    ("RateUnavailable", 422),
                    "{rejected}"
                );
            } else {
                let read = verified(&roster, &ask(asked).await.bytes().await.unwrap()).unwrap();
                assert_eq!(
                    (read.rows.len(), read.ended),
                    (from(level), true),
                    "level {level} of epoch {epoch}"
                );
                let as_sealed = |&(_, _, seq, value): &(_, _, u64, u32)| {
                    seq == u64::from(value)
                        && statement.salt.level(moteseal_core::Sequence(seq), LEVELS).0 >= level
                };
                assert!(read.rows.iter().all(as_sealed));
            }
        }
        for most in [0, 10, 100, 400, 3000] {
            let read =
                verified(&roster, &ask(Choice::AtMost(most)).await.bytes().await.unwrap()).unwrap();
            assert!(read.rows.len() as u64 <= most.min(from(round.min(LEVELS - 1)) as u64));
            assert!(
                most < 3000 || round == LEVELS || read.rows.len() == from(round),
                "all kept events"
            );
        }
        // A bundle with more levels replaces the stored bundle with fewer levels.
        if own_round == 0 && round < LEVELS {
            let more = before.fork_tree_from(1, epoch, true, &events);
            let receipt: Receipt = cloud.put(more).await.json().await.unwrap();
            assert_eq!((receipt.stored, receipt.known), (1, 0));
            let read = verified(&roster, &ask(rate("1/2")).await.bytes().await.unwrap()).unwrap();
            assert_eq!(read.rows.len(), from(1));
            assert_eq!(cloud.put(bundle).await.json::<Receipt>().await.unwrap().known, 1);
        }
    }
    cloud.stop().await;
}

/// A sample by seed is drawn from the events that exist at the epoch's round. Levels below the
/// round that the store also has do not change the sample.
#[tokio::test]
async fn a_sample_of_a_pruned_tree_is_drawn_from_the_existing_events() {
    let (roster, mut motes) = budgeted(&["a", "b"], 50);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let events: Vec<u32> = (0..2000).collect();
    // Each device seals the epoch in two parts; for the second part the device itself keeps only
    // the levels from round 3 on. The store has the first device's levels from round 2 on, which is
    // the manifest's round, and the second device's levels from round 1 on.
    let mut rows = Vec::new();
    for (at, from) in [(0, 2), (1, 1)] {
        let mote = &mut motes[at];
        let mut digests = Vec::new();
        let (mut bundles, mut parts) = (Vec::new(), Vec::new());
        for (own_round, last, events) in [(0, false, &events[..]), (3, true, &events[..700])] {
            mote.own_round = own_round;
            let (bundle, digest) = mote.seal_scheme_from(Tree, from, 3, last, events);
            bundles.push(bundle);
            digests.push(digest);
            parts.push(events.len() as u64);
        }
        if at == 0 {
            put_manifest(&cloud, &roster, 3, 2, &[(mote.id, digests)]).await;
        }
        for bundle in bundles {
            assert_eq!(cloud.put(bundle).await.status(), 200);
        }
        let seals = cloud.store.seals(mote.id, SealIndex(0), 9).unwrap();
        let statements = || seals.iter().map(|seal| seal.seal().statement());
        for count in [1_u32, 40, 300, 5000] {
            let choice = Choice::Sample { count, seed: [8; 32] };
            let response = cloud.ask(&query(&[mote.id], 3, Some(4), choice)).await;
            let read = verified(&roster, &response.bytes().await.unwrap()).unwrap();
            assert_eq!(
                (read.parts.len(), read.ended, &read.manifests[..]),
                (2, true, &[(3, 2)][..])
            );
            let mut counts = EpochCounts::at_round(LEVELS, Round(2));
            statements().for_each(|part| counts.add(part));
            let count = usize::try_from(counts.existing().min(count.into())).unwrap();
            let (mut chosen, mut scratch) = (vec![0; count], vec![Swap::FREE; scratch_for(count)]);
            let drawn = existing::draw(
                &Scalar,
                statements(),
                counts.surviving(),
                &[8; 32],
                &mut chosen,
                &mut scratch,
            )
            .unwrap();
            let served: Vec<u64> = read
                .rows
                .iter()
                .map(|(_, index, seq, _)| seq + parts[..*index as usize].iter().sum::<u64>())
                .collect();
            assert_eq!(served, *drawn, "{count} of device {at}");
            rows.push(served.len());
        }
    }
    assert!(rows.iter().all(|&rows| rows > 0));

    // For an epoch without a manifest, the answer has no events. If a late seal lacks the levels of
    // drawn events, the error states the round from which its levels are stored.
    let (whole, _) = motes[0].seal_scheme_from(Tree, 0, 4, true, &events);
    assert_eq!(cloud.put(whole).await.status(), 200);
    let choice = Choice::Sample { count: 40, seed: [8; 32] };
    let response = cloud.ask(&query(&[motes[0].id], 4, Some(5), choice)).await;
    let read = verified(&roster, &response.bytes().await.unwrap()).unwrap();
    assert_eq!((read.rows.len(), read.parts.len(), read.ended), (0, 1, true));
    motes[1].own_round = 0;
    let (late, _) = motes[1].seal_scheme_from(Tree, 5, 5, true, &events);
    put_manifest(&cloud, &roster, 5, 2, &[]).await;
    assert_eq!(cloud.put(late).await.status(), 200);
    let rejected = problem(cloud.ask(&query(&[motes[1].id], 5, Some(6), choice)).await).await;
    assert_eq!((rejected.name(), rejected.status), ("RateUnavailable", 422), "{rejected}");
    assert!(rejected.detail.contains("round 5"), "{}", rejected.detail);
    cloud.stop().await;
}
