//! Reads `tree.toml`, the tree of gateways that aggregates private sums.

use std::path::Path;

use moteseal_client::sum::TreeSource;
use moteseal_verify::{AggregationTree, Roster};

use crate::client_error;
use crate::failure::Failure;

/// Reads a tree whose leaves are the devices of a roster.
pub(crate) fn tree(path: &Path, roster: &Roster) -> Result<AggregationTree, Failure> {
    TreeSource::File(path.to_owned()).open(roster).map_err(|error| client_error::input(&error))
}
