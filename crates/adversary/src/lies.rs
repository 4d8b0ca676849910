//! The lies, by what they are about.

pub(crate) mod budget;
pub(crate) mod choice;
pub(crate) mod explaining;
pub(crate) mod proof;
pub(crate) mod range;
pub(crate) mod readings;
pub(crate) mod statement;
pub(crate) mod stream;
