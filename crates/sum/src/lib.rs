//! Exact private sums (SIES, spec/sums.md). Sources encrypt readings. Aggregators add the encrypted
//! readings; they cannot read them, and the querier detects every alteration. The querier decrypts
//! the sum and checks it.
//!
//! This crate is for firmware that answers sum queries, for gateways that aggregate, and for
//! queriers. It needs neither an operating system nor a heap.
//!
//! It follows Papadopoulos, Kiayias and Papadias, "Secure and Efficient In-Network Processing of
//! Exact SUM Queries" (ICDE 2011), section IV. It extends the paper in four ways: each query,
//! aggregate and epoch has its own keys; an epoch guard prevents a source from answering an epoch
//! twice; each record names its participants; and sources are divided into key groups.
//!
//! In this example two sources encrypt their readings, an aggregator adds the records, and the
//! querier opens the sum:
//!
//! ```
//! use moteseal_core::{DeviceId, GroupId};
//! use moteseal_sum::guard::EpochGuard;
//! use moteseal_sum::query::QueryId;
//! use moteseal_sum::sies::{KeyTotals, Master, Psr, Slot};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (group, query, slot, epoch) = (GroupId([1; 8]), QueryId([9; 16]), Slot(0), 5);
//! // The querier's secret. In practice it is random, and set-up gives each source its own keys.
//! let master = Master::new([7; 32]);
//! let sources = [DeviceId(*b"dev00001"), DeviceId(*b"dev00002")];
//!
//! // At each source. The guard must be durable before the record is sent.
//! let encrypt = |device, reading| -> Result<Psr, Box<dyn std::error::Error>> {
//!     let key = master.source(group, device, 0).for_query(query);
//!     let mut permit = EpochGuard::default().advance(query, 30_000, epoch)?;
//!     Ok(key.encrypt(&mut permit, slot, reading)?)
//! };
//! let records = [encrypt(sources[0], 20)?, encrypt(sources[1], 22)?];
//!
//! // At an aggregator.
//! let sum = records[0].merge(&records[1]);
//!
//! // At the querier, who knows from the share which sources took part.
//! let mut totals = KeyTotals::default();
//! for device in sources {
//!     totals.add(&master.source(group, device, 0).for_query(query), slot, epoch);
//! }
//! let key = master.key_group(group, 0).for_query(query);
//! assert_eq!(totals.open(&sum, &key, slot, epoch, 100)?, 42);
//! # Ok(())
//! # }
//! ```

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod chacha;
pub mod engine;
mod field;
pub mod guard;
pub mod key_file;
pub mod noise;
pub mod policy;
mod querier_name;
pub mod query;
pub mod schedule;
pub mod sies;
pub mod wire;

pub use querier_name::QuerierName;
