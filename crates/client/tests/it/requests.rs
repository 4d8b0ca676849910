//! A request becomes the query that its options state.

use moteseal_api::Query;
use moteseal_client::Client;
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_seal::sample::{Choice, Rate};

use crate::support::{Group, everything};

#[test]
fn a_request_becomes_the_query_that_its_options_state() {
    let group = Group::new();
    let cloud = moteseal_net::Client::new("http://127.0.0.1:9", &Default::default()).unwrap();
    let client = Client::new(&cloud, &group.roster);
    let (one, two) = (group.device("mote-1"), group.device("mote-2"));
    let range = |devices: &[DeviceId], since, until: Option<u64>, choice| Query {
        devices: devices.to_vec(),
        since: EpochNumber(since),
        until: until.map(EpochNumber),
        choice,
        columns: Vec::new(),
    };
    let mut all: Vec<DeviceId> = group.roster.devices().map(|device| device.id).collect();
    assert_eq!(client.get().to_query().unwrap(), range(&all, 0, None, everything()));
    all.reverse();
    let get = client.get().devices(all.clone()).at_most(9);
    assert_eq!(get.to_query().unwrap(), range(&all, 0, None, Choice::AtMost(9)));
    let eighth = Rate::new(1, 8).unwrap();
    let get =
        client.get().device("mote-2").since(EpochNumber(3)).until(EpochNumber(5)).rate(eighth);
    let query = range(&[two], 3, Some(5), Choice::Rate(eighth));
    assert_eq!(get.to_query().unwrap(), query);
    assert_eq!(client.query(&query).to_query().unwrap(), query);
    let get = client.get().device("mote-1").device("mote-2").sample(4, [7; 32]);
    let sample = Choice::Sample { count: 4, seed: [7; 32] };
    assert_eq!(get.to_query().unwrap(), range(&[one, two], 0, None, sample));
}

#[test]
fn a_request_that_no_cloud_can_answer_is_an_error() {
    let group = Group::new();
    let cloud = moteseal_net::Client::new("http://127.0.0.1:9", &Default::default()).unwrap();
    let client = Client::new(&cloud, &group.roster);
    for (get, name, text) in [
        (client.get().device("mote-3").device("x"), "UnknownDevice", "mote-1, mote-2"),
        (client.get().device("mote-1").device("mote-1"), "BadQuery", "named twice"),
        (client.get().since(EpochNumber(4)).until(EpochNumber(4)), "BadQuery", "empty"),
        (client.get().sample(0, [7; 32]), "BadQuery", "0 events"),
    ] {
        let error = get.to_query().unwrap_err();
        assert_eq!(error.name(), name);
        assert!(error.to_string().contains(text), "{error}");
    }
}
