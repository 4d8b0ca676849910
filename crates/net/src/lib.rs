//! Links between the rooms: for now the HTTP client of the [`moteseal_api`] contract.
//!
//! A [`Client`] speaks to one cloud. It waits and tries again where the cloud asks it to, follows no redirects (an untrusted
//! cloud must not send a token elsewhere), and its errors say which address failed, how, and what to do.

#![forbid(unsafe_code)]

mod client;
mod error;
mod tls;

pub use client::{Answer, Client, Options, Retry, Token};
pub use error::NetError;
