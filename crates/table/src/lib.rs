//! An epoch store on Apache Cassandra, for clouds that consist of more than one process or machine.
//!
//! - [`TableStore`] implements [`EpochStore`](moteseal_store::EpochStore). Any number of processes
//!   may use one keyspace at the same time.
//! - [`init`] creates the keyspace and its tables, and migrates them to the current version.
//! - [`Address`] is the URL of a keyspace.
//! - [`role_statements`] creates the roles of its users, and [`attempts`] finds out what a user may do by
//!   trying it.
//!
//! The store is a grow-only set, so every write commutes with every other write. There are no
//! lightweight transactions, no deletions and no updates: a row is written once, and may be written
//! again with the same content. Rows with different content have different keys. The timestamps of
//! writes therefore have no effect, and the clocks of the machines may differ.
//!
//! `docs/decisions/0031-a-table-on-cassandra.md` has the tables and the reasons. `docs/scale.md`
//! describes how to operate a cluster.

#![forbid(unsafe_code)]

mod address;
mod connect;
mod error;
mod fault;
mod guard;
mod init;
mod known;
mod login;
mod manifests;
mod order;
mod outage;
mod queue;
mod reads;
mod roles;
mod since;
mod statements;
mod store;
mod tables;
mod urgent;
mod writes;

pub use address::{Address, AddressError, Authorities, Password};
pub use connect::Access;
pub use error::OpenError;
pub use init::{Initialized, init};
pub use roles::{
    Attempt, LOGIN, REVOCATION_S, Rights, Role, accepts_plain_text, apply_roles, attempts,
    check_revocation, cql, role_statements,
};
pub use store::{Options, TableStore};
