//! Tests of the tree of gateways: which trees are rejected, and whether its queries agree with a
//! reference that follows the parent of each node.

use moteseal_core::record::DeviceId;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_verify::Roster;
use moteseal_verify::aggregation::{AggregationTree, MAX_HEIGHT, QUERIER, TreeError, gateway_id};
use moteseal_verify::issue::FirstRoster;
use proptest::prelude::*;

fn roster(names: &[String]) -> Roster {
    let operator = SecretKey::from_seed(Algorithm::Ed25519, &[9; 32]).unwrap();
    let devices: Vec<_> = names.iter().map(|name| (name.as_str(), operator.public())).collect();
    let first =
        FirstRoster { group: "field", epoch_ms: 1000, levels: 8, budget: None, devices: &devices };
    Roster::open(&first.issue(&operator).unwrap(), &operator.public()).unwrap()
}

fn motes(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("mote{n}")).collect()
}

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn tree(gateways: Pairs<'_>, devices: Pairs<'_>) -> Result<AggregationTree, TreeError> {
    AggregationTree::new(&roster(&motes(3)), gateways.iter().copied(), devices.iter().copied())
}

const ALL: Pairs<'static> = &[("mote0", "a"), ("mote1", "a"), ("mote2", "b")];

#[test]
fn rejects_each_invalid_tree_with_its_name() {
    let (top, parent) = (("a", QUERIER), ("b", "a"));
    let long = "x".repeat(48);
    let cases: &[(Pairs<'_>, Pairs<'_>, &str, &str)] = &[
        (&[], ALL, "NoRoot", "querier"),
        (&[("a", "b"), ("b", "a")], ALL, "NoRoot", "querier"),
        (&[top, (QUERIER, "a")], ALL, "ReservedName", "querier"),
        (&[top, ("a/b", "a")], ALL, "InvalidGatewayName", "a/b"),
        (&[top, ("", "a")], ALL, "InvalidGatewayName", "\"\""),
        (&[top, (&long, "a")], ALL, "InvalidGatewayName", &long),
        (&[top, parent, ("b", QUERIER)], ALL, "DuplicateGateway", "\"b\""),
        (&[top, ("b", "c")], ALL, "UnknownParent", "\"c\""),
        (&[top, parent, ("c", "d"), ("d", "c")], ALL, "Cycle", "\"c\""),
        (&[top, parent, ("c", "c")], ALL, "Cycle", "\"c\""),
        (&[top, parent], &[ALL[0], ALL[1], ALL[2], ("mote9", "a")], "UnknownDevice", "mote9"),
        (&[top, parent], &[ALL[0], ALL[1], ALL[2], ("mote0", "b")], "DuplicateDevice", "mote0"),
        (&[top, parent], &[ALL[0], ALL[1], ("mote2", "c")], "UnknownGateway", "\"c\""),
        (&[top, parent], &[ALL[0], ALL[1], ("mote2", QUERIER)], "UnknownGateway", "querier"),
        (&[top, parent], &[ALL[2]], "DevicesMissing", "mote0, mote1;"),
        (&[top, parent, ("c", "a")], ALL, "NoSources", "\"c\""),
    ];
    for (gateways, devices, name, expected) in cases {
        let error = tree(gateways, devices).unwrap_err();
        assert_eq!(error.name(), *name, "{error}");
        let text = error.to_string();
        assert!(
            !text.starts_with(name) && text.contains(expected) && !text.contains('\n'),
            "{text}"
        );
    }
    tree(&[top, parent], ALL).unwrap();
}

#[test]
fn accepts_the_maximum_height_and_no_more() {
    let names: Vec<String> = (0..=MAX_HEIGHT).map(|n| format!("g{n:02}")).collect();
    let chain = |count: usize| {
        let parents = std::iter::once(QUERIER).chain(names.iter().map(String::as_str));
        let gateways: Vec<_> = names.iter().map(String::as_str).zip(parents).take(count).collect();
        let devices: Vec<_> =
            ["mote0", "mote1", "mote2"].iter().map(|name| (*name, gateways[count - 1].0)).collect();
        tree(&gateways, &devices)
    };
    let highest = chain(MAX_HEIGHT as usize).unwrap();
    assert_eq!(highest.height(), MAX_HEIGHT + 1);
    assert_eq!(chain(MAX_HEIGHT as usize + 1).unwrap_err().name(), "TooHigh");
}

#[test]
fn names_only_the_first_missing_devices() {
    let roster = roster(&motes(20));
    let error = AggregationTree::new(&roster, [("a", QUERIER)], [("mote0", "a")]).unwrap_err();
    assert!(error.to_string().contains("mote16 and 11 more;"), "{error}");
}

#[test]
fn gateway_ids_follow_the_specification() {
    // printf 'moteseal/1/gatewaygw-a' | sha256sum
    assert_eq!(gateway_id("gw-a").to_string(), "4b3f5ede1d89b7d6");
}

/// Generates a tree as two lists: the parent of each gateway (an earlier gateway, or `None` for the
/// querier), and the gateway of each device.
fn shapes() -> impl Strategy<Value = (Vec<Option<usize>>, Vec<usize>)> {
    let gateways = prop::collection::vec(any::<prop::sample::Index>(), 0..12).prop_map(|parents| {
        let above =
            |(at, parent): (usize, prop::sample::Index)| parent.index(at + 1).checked_sub(1);
        std::iter::once(None).chain((1..).zip(parents).map(above)).collect::<Vec<_>>()
    });
    (gateways, prop::collection::vec(any::<prop::sample::Index>(), 0..40)).prop_map(
        |(parents, more)| {
            // Each gateway gets one of the first devices, because a gateway needs a device. The
            // other devices are distributed at random.
            let devices =
                (0..parents.len()).chain(more.iter().map(|at| at.index(parents.len()))).collect();
            (parents, devices)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn an_aggregators_children_match_the_parents_of_every_node((parents, devices) in shapes()) {
        let names: Vec<String> = (0..parents.len()).map(|n| format!("gw{n}")).collect();
        let motes = motes(devices.len());
        let roster = roster(&motes);
        let parent = |at: usize| parents[at].map_or(QUERIER, |parent| names[parent].as_str());
        let tree = AggregationTree::new(
            &roster,
            (0..names.len()).map(|at| (names[at].as_str(), parent(at))),
            motes.iter().map(String::as_str).zip(devices.iter().map(|at| names[*at].as_str())),
        ).unwrap();
        prop_assert_eq!(tree.sources() as usize, devices.len());
        let mut tallest = 0;
        for aggregator in (0..names.len()).map(Some).chain([None]) {
            let name = aggregator.map_or(QUERIER, |at| &names[at]);
            let found = tree.aggregator(name).unwrap();
            prop_assert_eq!(found.name(), name);
            prop_assert_eq!(found.id(), aggregator.map(|at| gateway_id(&names[at])));
            // Returns the gateways from `from` up to the aggregator's child, if the aggregator is
            // above `from`.
            let up = |from: usize| {
                let mut way = vec![from];
                while parents[way[way.len() - 1]] != aggregator {
                    way.push(parents[way[way.len() - 1]]?);
                }
                Some(way)
            };
            let mut height = 0;
            for (position, device) in roster.devices().enumerate() {
                let gateway = devices[motes.iter().position(|mote| *mote == device.name).unwrap()];
                let way = if Some(gateway) == aggregator { Some(vec![]) } else { up(gateway) };
                let child = way
                    .as_ref()
                    .map(|way| way.last().map_or(device.id, |at| gateway_id(&names[*at])));
                let owner = found.owner(u32::try_from(position).unwrap());
                prop_assert_eq!(owner.map(|owner| found.children()[owner].id), child);
                prop_assert_eq!(tree.position(device.id), Some(u32::try_from(position).unwrap()));
                prop_assert_eq!(
                    tree.gateway_of(u32::try_from(position).unwrap()),
                    Some(names[gateway].as_str())
                );
                height = height.max(way.map_or(0, |way| way.len() + 1));
            }
            prop_assert_eq!(found.height() as usize, height);
            tallest = tallest.max(height);
            for (at, gateway) in names.iter().enumerate() {
                let next = up(at).map(|way| gateway_id(&names[way[way.len() - 1]]));
                let hop = found.next_hop(gateway_id(gateway));
                prop_assert_eq!(hop.map(|child| found.children()[child].id), next);
            }
            let mut counted = vec![0; found.children().len()];
            for position in 0..tree.sources() {
                for (child, counted) in counted.iter_mut().enumerate() {
                    let is_beneath = found.are_beneath(position..position + 1, child);
                    prop_assert_eq!(is_beneath, found.owner(position) == Some(child));
                    *counted += u32::from(is_beneath);
                }
            }
            for (child, counted) in found.children().iter().zip(counted) {
                prop_assert_eq!(child.sources, counted);
                prop_assert_eq!(found.child(child.id).map(|at| &found.children()[at]), Some(child));
                let is_gateway = names.iter().any(|name| gateway_id(name) == child.id);
                prop_assert_eq!(child.is_gateway, is_gateway);
                prop_assert_eq!(tree.name(child.id), Some(child.name.as_str()));
            }
            prop_assert!(!found.are_beneath(0..tree.sources() + 1, 0));
            prop_assert!(found.owner(tree.sources()).is_none());
        }
        prop_assert_eq!(tree.height() as usize, tallest);
        let unknown = tree.aggregator("unknown");
        prop_assert_eq!(unknown.map(|aggregator| aggregator.name().to_owned()), None);
        prop_assert_eq!(tree.name(DeviceId([0; 8])), None);
    }
}
