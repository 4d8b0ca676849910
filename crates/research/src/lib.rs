//! What the papers compare with, and what they themselves propose to the letter: nothing a product needs.
//!
//! Every scheme seals an epoch, serves a part of it and opens what was served behind one interface, [`Scheme`], so that a table of
//! costs compares like with like. The schemes of `core` stand behind it too ([`EpochSeal`]).
//!
//! | scheme | source | what it cannot do |
//! |---|---|---|
//! | [`SignEach`] | Li et al. 2019, section IV.A | show that an event is missing, or that a choice was fair; one signature an event |
//! | [`Concatenate`] | section IV.A | prove less than all |
//! | [`OfflineChain`] | Gennaro and Rohatgi 2001, section 3 | start sending before the end; leave out an event before the last wanted |
//! | [`OnlineChain`] | Gennaro and Rohatgi 2001, section 4 | leave out an event before the last wanted; 2 KiB of signature an event |
//! | [`PaperStar`] | Li et al., section IV.C | sample equal readings independently; say which event of the epoch a row is |
//! | [`PaperTree`] | Li et al., section IV.B | show that a level is whole; tell an event from an inner node |
//! | [`paper_seal`] | sections IV, VII and VIII: the same over MD5, SHA-1 or SHA-256, with as little room as one likes | as the two above |
//!
//! And of secure sums inside a network, as Papadopoulos et al. 2011 compare them:
//!
//! | scheme | source | what it cannot do |
//! |---|---|---|
//! | [`cmt`] | Castelluccia et al. 2005 | notice that a sum was bent |
//! | [`sies_paper`] | Papadopoulos et al. 2011, section IV | survive a second answer in one epoch, or one leaked key; notice a source that is claimed silent |
//! | [`secoa`] | Nath et al. 2009 | give an exact sum, or a secret one; **patented in the United States, for comparison only** |
//!
//! And of authenticated broadcast, as Liu et al. 2012 compare them:
//!
//! | scheme | source | what it cannot do |
//! |---|---|---|
//! | [`sigs`] | Liu et al. 2012, section V | tell an old message from a new one; be paid for by a mote, message by message |
//! | [`hmac_broadcast`] | section V | survive one opened node |
//! | [`paper_broadcast`] | section III | tell an old chain from a new one; sort out forged fragments; say where a message ends; bound what strangers make it do |
//! | [`secp160r1`] | SEC 2 version 1 | more than 80 bits of security; **variable time, for comparison only** |
//!
//! None of this is hardened for use: there are no seals, chains of seals, rosters or schemas here, only what is needed to
//! compare, and messages carry tags that no product accepts.

#![forbid(unsafe_code)]

pub mod chain;
pub mod cmt;
mod concatenate;
pub mod content;
mod each;
mod epoch_seal;
pub mod hmac_broadcast;
pub mod paper_broadcast;
pub mod paper_seal;
mod paper_star;
mod paper_tree;
pub mod prf;
mod scheme;
pub mod secoa;
pub mod secp160r1;
pub mod sies_paper;
pub mod sigs;
mod wire;

pub use chain::{OfflineChain, OnlineChain};
pub use concatenate::Concatenate;
pub use each::SignEach;
pub use epoch_seal::EpochSeal;
pub use paper_star::{PaperStar, RunningStar};
pub use paper_tree::PaperTree;
pub use scheme::{Ask, Context, OpenError, Row, Scheme, Sealed, Unsupported};
