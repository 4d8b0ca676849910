//! The querier of private sums: it asks a group a question every epoch, and opens and checks what comes back (DESIGN section 7).
//!
//! [`Querier`] holds a query's keys and opens answers, [`Walk`] finds the edge where one went wrong, [`Epochs`] waits for those who have
//! not spoken: none of them does any I/O. [`follow()`] runs a query over a link, and [`RowWriter`] writes what came of its epochs.
//! Nothing that is not proven to be the exact sum over named participants gets out of any of them.

mod epochs;
mod follow;
mod keys;
mod number;
mod open;
mod output;
mod participants;
mod share;
mod walk;

pub use epochs::{Epochs, Failed, Heard, MAX_OPEN, Outcome, Row};
pub use follow::{Asking, FollowError, Run, follow};
pub use keys::KeyTable;
pub use number::{NumberError, Numbers};
pub use open::{
    Accepted, EPOCHS_BEHIND, LEAST_FLOOR, PoseError, Querier, Question, Refusal, default_floor,
};
pub use output::{RowFormat, RowNames, RowWriter};
pub use participants::Participants;
pub use share::{Shape, ShareError, Sum};
pub use walk::{ATTEMPTS, Finding, MAX_ASKED, MAX_QUESTIONS, Walk};
