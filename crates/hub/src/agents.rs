//! Agents: programs that deliver the readings of sensors to the hub (spec/agents.md).
//!
//! An agent arrives as a package that the group's operator has signed ([`package`]). The
//! [`Store`] unpacks it so that a crash at any moment leaves the old version or the new one, and
//! never goes back below the highest version that it has accepted. [`Agents`] starts the programs,
//! passes the lines of their standard output to the hub, starts them again with a growing delay,
//! replaces them when a version is installed, and goes back to the version before when the new one
//! does not come up. A [`launcher`] confines each program before it runs. [`Commands`] keeps the
//! commands to actuators, which arrive only as signed broadcasts.

pub mod broadcasts;
pub mod commands;
pub mod configuration;
mod data_folder;
mod error;
mod inbox;
pub mod launcher;
pub mod manifest;
mod output;
pub mod package;
mod process;
pub mod status;
mod store;
mod supervisor;
#[cfg(target_os = "linux")]
mod system_calls;
mod unpack;
mod usage;

pub use commands::Commands;
pub use configuration::{AgentSettings, Confinement, Settings, Timing};
pub use error::{AgentError, PackageError};
pub use inbox::{INBOX, is_package_name};
pub use manifest::{Limits, Manifest, PackedFile};
pub use status::{Status, StopReason};
pub use store::{Active, Installed, Record, Store};
pub use supervisor::{Agents, Receivers};
