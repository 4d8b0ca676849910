//! Reads `tree.toml`, the tree of gateways that aggregates private sums, and follows the versions of
//! a group while a party of private sums runs.

use std::path::Path;

use moteseal_client::sum::TreeSource;
use moteseal_verify::{AggregationTree, Roster, SumGroup};
use tokio::sync::watch;

use crate::client_error;
use crate::failure::Failure;
use crate::roster_watch::RosterWatch;

/// Reads a tree whose leaves are the devices of a roster.
pub(crate) fn tree(path: &Path, roster: &Roster) -> Result<AggregationTree, Failure> {
    TreeSource::File(path.to_owned()).open(roster).map_err(|error| client_error::input(&error))
}

/// Follows a roster and the tree of its devices. Each version that `accept` accepts goes to
/// `newest`. Runs until the returned future is dropped.
pub(crate) async fn follow(
    watch: RosterWatch,
    tree: TreeSource,
    newest: watch::Sender<SumGroup>,
    mut accept: impl FnMut(&SumGroup) -> Result<(), Failure>,
) {
    let accept = |roster: &Roster| {
        let tree = tree.open(roster).map_err(|error| client_error::input(&error))?;
        let group = SumGroup::new(roster.clone(), tree);
        let (name, before) =
            (group.tree.querier_name(), newest.borrow().tree.querier_name().to_owned());
        if name != before {
            return Err(Failure::usage(format_args!(
                "the tree of the querier {before:?} is now that of {name:?}; a set-up keeps its name"
            )));
        }
        accept(&group)?;
        newest.send_replace(group);
        Ok(())
    };
    watch.run(accept).await;
}
