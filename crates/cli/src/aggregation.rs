//! `tree.toml`: the tree of gateways that adds up private sums, read for gateways and the querier alike.

use std::collections::BTreeMap;
use std::path::Path;

use moteseal_verify::{AggregationTree, Roster};
use serde::Deserialize;

use crate::config;
use crate::failure::Failure;

/// The file: `[gateways]` with `NAME = "PARENT"`, another gateway or `querier`; `[devices]` with `NAME = "GATEWAY"`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tree {
    gateways: BTreeMap<String, String>,
    devices: BTreeMap<String, String>,
}

/// Reads a tree over the devices of a roster.
pub(crate) fn tree(path: &Path, roster: &Roster) -> Result<AggregationTree, Failure> {
    fn pairs(table: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
        table.iter().map(|(name, above)| (name.as_str(), above.as_str()))
    }
    let (tree, _): (Tree, _) = config::load(path)?;
    AggregationTree::new(roster, pairs(&tree.gateways), pairs(&tree.devices))
        .map_err(|error| Failure::usage(format_args!("{}: {error}", error.name())).about(path))
}
