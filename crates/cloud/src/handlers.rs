//! The HTTP handlers, one module for each subject.

pub(crate) mod bundles;
pub(crate) mod events;
pub(crate) mod listings;
pub(crate) mod manifests;
pub(crate) mod query;
pub(crate) mod summary;
