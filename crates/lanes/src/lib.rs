//! Multi-lane hashing for hosts, behind the same functions as core.
