//! The querier of private sums: asks a group a query in every epoch, and opens and checks the sums
//! (`docs/design.md`, *Sums*).
//!
//! [`PreparedQuery`] builds a querier from its files and runs a query. The parts of a querier do no
//! I/O: [`Querier`] holds the keys of a query and opens sums, [`Epochs`] collects the shares of the
//! querier's children, and [`Localisation`] finds the edge of the tree at which a sum was
//! falsified. [`run_query()`] runs a query over a link, and [`RowWriter`] writes the results. The
//! querier returns a sum only if the sum is proven to be exact over the participants that it names.

#[cfg(feature = "columnar")]
mod arrow_rows;
mod config;
mod group_result;
mod key_setup;
mod key_table;
mod localise;
mod members;
mod open_epochs;
mod participants;
mod policy_file;
mod prepare;
mod querier;
mod querier_state;
mod row_values;
mod row_writer;
mod run_query;
mod share;
mod stop_queries;

pub use config::{BrokerConfig, QuerierConfig, TreeSource, TreeTables};
pub use group_result::{Bins, GroupResult, ResultValue, Results};
pub use key_setup::{KeyFiles, RenewedRing, add, default_key_groups, renew_masks, setup};
pub use key_table::KeyTable;
pub use localise::{ATTEMPTS, Finding, Localisation, MAX_ASKED, MAX_QUESTIONS};
pub use open_epochs::{Epochs, Failed, MAX_OPEN, Outcome, Received, Row};
pub use participants::Participants;
pub use policy_file::{PolicyFile, sign_policy};
pub use prepare::{Minimums, PreparedQuery};
pub use querier::{
    Accepted, EPOCHS_AFTER, LEAST_FLOOR, MIN_COUNT, PoseError, Querier, Question, Rejection,
    default_floor, default_min_count,
};
pub use querier_state::{AskedQuery, QuerierState, QuerierStateError, RunningQuery};
pub use row_values::RowNames;
pub use row_writer::{RowFormat, RowWriter};
pub use run_query::{Endpoint, Later, RunError, RunOptions, run_query};
pub use share::{Shape, ShareError, Sum};
pub use stop_queries::StopQueries;
