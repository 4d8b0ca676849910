//! The data application: fetch, verify, hand out rows.
