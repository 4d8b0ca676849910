//! The querier of private sums: it asks a group a question every epoch, and opens and checks what comes back (DESIGN section 7).
//!
//! [`Querier`] holds a query's keys and opens answers, [`Localisation`] finds the edge where one went wrong, [`Epochs`] waits for those who have
//! not spoken: none of them does any I/O. [`follow()`] runs a query over a link, and [`RowWriter`] writes what came of its epochs.
//! Nothing that is not proven to be the exact sum over named participants gets out of any of them.

mod config;
mod key_setup;
mod key_table;
mod localise;
mod open_epochs;
mod participants;
mod prepare;
mod querier;
mod row_writer;
mod run_query;
mod schedule_numbers;
mod share;

pub use config::{BrokerConfig, QuerierConfig, TreeSource, TreeTables};
pub use key_setup::{KeyFiles, setup};
pub use key_table::KeyTable;
pub use localise::{ATTEMPTS, Finding, Localisation, MAX_ASKED, MAX_QUESTIONS};
pub use open_epochs::{Epochs, Failed, MAX_OPEN, Outcome, Received, Row};
pub use participants::Participants;
pub use prepare::PreparedQuery;
pub use querier::{
    Accepted, EPOCHS_AFTER, LEAST_FLOOR, PoseError, Querier, Question, Rejection, default_floor,
};
pub use row_writer::{RowFormat, RowNames, RowWriter};
pub use run_query::{Endpoint, RunError, RunOptions, run_query};
pub use schedule_numbers::{ScheduleNumberError, ScheduleNumbers};
pub use share::{Shape, ShareError, Sum};
