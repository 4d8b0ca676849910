//! The user and the password of a connection, and the authorities that it trusts: where they come from, and their
//! renewal while a store is open.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use moteseal_core::digest::Digest;
use tracing::{info, warn};

use crate::address::{Address, Authorities, PASSWORD, PASSWORD_FILE, Password, USER_FILE};
use crate::connect::{self, Access};
use crate::error::OpenError;
use crate::store::Table;

/// The interval at which the files are read again. A role that was dropped keeps its permissions for up to
/// `permissions_validity`, 2 s by default, so that a process changes to its new role in time.
const INTERVAL: Duration = Duration::from_secs(1);

impl Address {
    /// Returns the address with its user and password, which a store reads in the same way when it is opened.
    ///
    /// # Errors
    /// `TableUser` or `TablePassword` if one of them cannot be read, `PasswordInClear` if the password would be sent to
    /// another machine without TLS.
    pub fn with_login(&self) -> Result<Self, OpenError> {
        complete(self)
    }
}

/// Returns the address with its user and password. A URL without a user takes it from the file that
/// `MOTESEAL_CASSANDRA_USER_FILE` names; without that variable, clients do not log in.
pub(crate) fn complete(address: &Address) -> Result<Address, OpenError> {
    let mut address = address.clone();
    if address.user.is_none()
        && let Some(file) = std::env::var_os(USER_FILE)
    {
        let user = read(&file).map_err(|what| OpenError::User { what })?;
        let is_user = !user.is_empty() && !user.chars().any(char::is_control);
        let what = || format!("{}: it has no name of a user", Path::new(&file).display());
        address.user =
            Some(is_user.then_some(user).ok_or_else(|| OpenError::User { what: what() })?);
    }
    address.keeps_password()?;
    if let (Some(user), None) = (&address.user, &address.password) {
        address.password = Some(Password(password(user)?));
    }
    Ok(address)
}

/// Returns the password of a user.
pub(crate) fn password(user: &str) -> Result<String, OpenError> {
    if let Ok(password) = std::env::var(PASSWORD) {
        return Ok(password);
    }
    let unread = |what| OpenError::Password { user: user.to_owned(), what };
    let file = std::env::var_os(PASSWORD_FILE)
        .ok_or_else(|| unread(format!("neither {PASSWORD} nor {PASSWORD_FILE} is set")))?;
    read(&file).map_err(unread)
}

/// Returns the content of a file without the end of its line.
fn read(file: &OsStr) -> Result<String, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("{}: {error}", Path::new(file).display()))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Returns a digest of the user, the password and the file with the authorities. Fails if this file cannot be read.
pub(crate) fn digest(address: &Address) -> io::Result<Digest> {
    let user = address.user.as_deref().unwrap_or_default();
    let password = address.password.as_ref().map_or("", |password| &password.0);
    let authorities = match &address.authorities {
        Some(Authorities::File(file)) => std::fs::read(file)?,
        Some(Authorities::System) | None => Vec::new(),
    };
    let parts = [user.as_bytes(), password.as_bytes(), &authorities];
    Ok(Digest::of(&parts.map(|part| Digest::of(&[part]).0).each_ref().map(<[u8; 32]>::as_slice)))
}

/// Returns whether the user, the password or the authorities of an address are in a file, and so may change.
pub(crate) fn may_change(address: &Address) -> bool {
    let is_set = |name| std::env::var_os(name).is_some();
    let user = address.user.is_none() && is_set(USER_FILE);
    let password = address.password.is_none() && !is_set(PASSWORD) && is_set(PASSWORD_FILE);
    user || password || matches!(address.authorities, Some(Authorities::File(_)))
}

/// Reads the files of an address again and again. If they have changed, connects with the new user, password or
/// authorities, and lets `table` use this connection. While that fails, the connection of before stays. `used` is
/// the [`digest`] of what `table` uses, or `None` if it is unknown.
pub(crate) async fn renew(
    address: Address,
    mut used: Option<Digest>,
    access: Access,
    table: Arc<RwLock<Arc<Table>>>,
) {
    let mut failed = None;
    loop {
        tokio::time::sleep(INTERVAL).await;
        // A file that is missing for a moment is being replaced.
        let Ok(new) = complete(&address) else { continue };
        let Ok(of_new) = digest(&new) else { continue };
        if used == Some(of_new) {
            failed = None;
            continue;
        }
        match connect::open(&new, access).await {
            Ok(opened) => {
                let opened = Arc::new(Table::new(opened, &new));
                *table.write().unwrap_or_else(PoisonError::into_inner) = opened;
                (used, failed) = (Some(of_new), None);
                info!(url = %new, "connected to Cassandra with the new user, password or authorities");
            }
            Err(error) => {
                if failed != Some(of_new) {
                    warn!(%error, "the new user, password or authorities of Cassandra cannot be used yet; trying again");
                }
                failed = Some(of_new);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_new_user_password_or_authority_has_another_digest() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, "old").unwrap();
        let url = format!("cassandra://user@db/k?ca={}", file.display());
        let address = Address::parse(&url).unwrap();
        let with = |user: &str, password: &str| {
            let (user, password) = (Some(user.to_owned()), Some(Password(password.to_owned())));
            digest(&Address { user, password, ..address.clone() }).unwrap()
        };
        let first = with("user", "password");
        assert_eq!(with("user", "password"), first);
        assert_ne!(with("other", "password"), first);
        assert_ne!(with("user", "other"), first);
        assert_ne!(with("userpass", "word"), first, "each has its place");

        std::fs::write(&file, "new").unwrap();
        let second = with("user", "password");
        assert_ne!(second, first);
        // As a rename does, which replaces the file.
        std::fs::write(folder.path().join("next"), "old").unwrap();
        std::fs::rename(folder.path().join("next"), &file).unwrap();
        assert_eq!(with("user", "password"), first);

        std::fs::remove_file(&file).unwrap();
        assert!(digest(&address).is_err(), "it is being replaced");
        let plain = Address { authorities: None, ..address.clone() };
        assert_ne!(digest(&plain).unwrap(), first);
        assert!(may_change(&address) && !may_change(&Address::parse("cassandra://db/k").unwrap()));
    }
}
