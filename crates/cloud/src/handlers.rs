//! The handlers of the routes, by subject.

pub(crate) mod bundles;
pub(crate) mod listings;
pub(crate) mod manifests;
pub(crate) mod query;
