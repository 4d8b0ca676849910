//! The parts that every long-running process of Moteseal needs: a listener with limits and TLS,
//! health and metrics pages, a table of metrics, a limit on log lines, and the handling of the
//! signals that stop it.
//!
//! This crate is for authors of services. The cloud serves its HTTP interface with [`Listener`].
//! The gateways serve `/metrics`, `/healthz` and `/readyz` with [`Monitor`]. This crate does not
//! depend on seals or sums.
//!
//! ```
//! use std::sync::Arc;
//! use moteseal_service::{Monitor, Monitored, Table};
//! use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
//!
//! struct Thermometer(Table);
//!
//! impl Monitored for Thermometer {
//!     fn metrics(&self) -> String {
//!         self.0.render()
//!     }
//!     fn trouble(&self) -> Option<&'static str> {
//!         None
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let table = Table::new();
//! table.counter("readings_total", "Temperature readings.").increment(3);
//! let monitor = Monitor::bind("127.0.0.1:0".parse()?).await?;
//! let address = monitor.address();
//! let server = tokio::spawn(monitor.serve(Arc::new(Thermometer(table))));
//!
//! let mut stream = tokio::net::TcpStream::connect(address).await?;
//! stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
//! let mut page = String::new();
//! stream.read_to_string(&mut page).await?;
//! assert!(page.contains("readings_total 3"));
//! server.abort();
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod client_key;
mod descriptors;
mod file_watch;
pub mod health;
pub mod listener;
pub mod log_limit;
pub mod metrics;
pub mod monitor;
mod paced_stream;
pub mod pool;
mod refusals;
mod reloaded;
mod signals;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
pub mod tls;
mod tls_files;

pub use client_key::ClientKey;
pub use descriptors::raise_open_files;
pub use file_watch::{FileState, FileWatch};
pub use health::{Figures, HostHealth};
pub use listener::{ConnectionLimits, ConnectionMetrics, ListenError, Listener};
pub use log_limit::LogLimit;
pub use metrics::Table;
pub use monitor::{MetricsPage, Monitor, Monitored, MoreMetrics};
pub use pool::{Held, Peer, Pool};
pub use refusals::Refusals;
pub use reloaded::Reloaded;
pub use signals::stop_signal;
pub use tls::{TlsError, certificate_key};
pub use tls_files::TlsFiles;
