//! The URL of a keyspace: `cassandra://[user@]host[:port][,host[:port]...]/keyspace[?ca=FILE|system]`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use moteseal_api::ErrorKind;

use crate::error::OpenError;

const SCHEME: &str = "cassandra://";
/// The beginning of [`SCHEME`]. A text with it is no path, also with other letters or without the slashes.
const BEGINNING: &str = "cassandra:";
/// The environment variable with the password of the user in the URL.
pub(crate) const PASSWORD: &str = "MOTESEAL_CASSANDRA_PASSWORD";
/// The environment variable with the path of a file that contains the password.
pub(crate) const PASSWORD_FILE: &str = "MOTESEAL_CASSANDRA_PASSWORD_FILE";
/// The environment variable with the path of a file that contains the user, if the URL names none.
pub(crate) const USER_FILE: &str = "MOTESEAL_CASSANDRA_USER_FILE";

/// Which certificates a client accepts from Cassandra.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authorities {
    /// Those that the authorities in a file (PEM) have signed.
    File(PathBuf),
    /// Those that the authorities of the operating system have signed.
    System,
}

/// The address of a keyspace. It contains no password: the environment variable
/// `MOTESEAL_CASSANDRA_PASSWORD` has it, or the file that `MOTESEAL_CASSANDRA_PASSWORD_FILE` names. An open store
/// reads the files again, so that replacing them renews its user and password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The user. With `None`, the file that `MOTESEAL_CASSANDRA_USER_FILE` names has it; without that variable,
    /// the clients do not log in.
    pub user: Option<String>,
    /// The nodes to connect to first, as `host:port`. The driver learns the others from them.
    pub hosts: Vec<String>,
    /// The keyspace.
    pub keyspace: String,
    /// With authorities the connections use TLS, without they do not.
    pub authorities: Option<Authorities>,
    /// The password, if the environment does not have it. [`parse`](Self::parse) never sets it.
    pub password: Option<Password>,
}

/// A password. Its `Debug` output does not contain it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// Why a URL is not an [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url}: {what}; write cassandra://[user@]host:port[,host:port]/keyspace[?ca=FILE]")]
pub struct AddressError {
    url: String,
    what: &'static str,
}

impl AddressError {
    /// Returns the error's stable name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        "TableAddress"
    }

    /// Returns [`ErrorKind::Usage`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}

impl Address {
    /// Returns whether a text is meant to be the address of a keyspace, and not a path. This includes every URL
    /// and misspelt ones, which [`parse`](Self::parse) refuses: a path in their place would be a new file.
    #[must_use]
    pub fn is_address(text: &str) -> bool {
        text.contains("://") || begins(text, BEGINNING)
    }

    /// Parses a URL.
    ///
    /// # Errors
    /// [`AddressError`]. The message does not contain a password that was written into the URL.
    pub fn parse(url: &str) -> Result<Self, AddressError> {
        let shown = without_password(url);
        let wrong = |what| AddressError { url: shown.clone(), what };
        let rest = url.strip_prefix(SCHEME).ok_or_else(|| {
            wrong(if begins(url, "scylla:") {
                "the scheme of ScyllaDB is cassandra, too"
            } else if begins(url, BEGINNING) {
                "it does not begin with cassandra:// in lower case"
            } else {
                "the scheme is not cassandra"
            })
        })?;
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(a, b)| (a, Some(b)));
        let (hosts, keyspace) = rest.split_once('/').ok_or_else(|| wrong("it has no keyspace"))?;
        let (user, hosts) = hosts.rsplit_once('@').map_or((None, hosts), |(a, b)| (Some(a), b));
        if user.is_some_and(|user| user.contains(':')) {
            return Err(wrong(
                "a password in a URL is visible to other users of the machine; set \
                 MOTESEAL_CASSANDRA_PASSWORD or MOTESEAL_CASSANDRA_PASSWORD_FILE",
            ));
        }
        if user == Some("") {
            return Err(wrong("the user is empty"));
        }
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if keyspace.is_empty()
            || keyspace.len() > 48
            || !keyspace.chars().all(is_name)
            || !keyspace.starts_with(|c: char| c.is_ascii_lowercase())
        {
            return Err(wrong(
                "a keyspace has 1 to 48 lower-case letters, digits and underscores, and starts \
                 with a letter",
            ));
        }
        let authorities = match query.map(|query| query.split_once('=')) {
            None => None,
            Some(Some(("ca", "system"))) => Some(Authorities::System),
            Some(Some(("ca", file))) if !file.is_empty() => {
                Some(Authorities::File(PathBuf::from(file)))
            }
            Some(_) => return Err(wrong("the only parameter is ca=FILE or ca=system")),
        };
        let hosts = hosts.split(',').map(|host| {
            let bare = host.rsplit_once(':').map_or(host, |(name, _)| name);
            let port = host.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
            match port {
                _ if bare.is_empty() => Err(wrong("a host is empty")),
                None => Ok(format!("{host}:9042")),
                Some(Ok(_)) => Ok(host.to_owned()),
                Some(Err(_)) => Err(wrong("a port is not a number below 65536")),
            }
        });
        Ok(Self {
            hosts: hosts.collect::<Result<_, _>>()?,
            user: user.map(str::to_owned),
            keyspace: keyspace.to_owned(),
            authorities,
            password: None,
        })
    }

    /// Checks that the password of the user is sent to this machine only, or over TLS.
    pub(crate) fn keeps_password(&self) -> Result<(), OpenError> {
        let other = self.hosts.iter().find(|host| !is_this_machine(host));
        match (&self.user, other) {
            (Some(user), Some(host)) if self.authorities.is_none() => {
                Err(OpenError::InClear { user: format!("the user {user}"), host: host.clone() })
            }
            _ => Ok(()),
        }
    }
}

/// Returns whether a host, with a port or without, is on this machine.
fn is_this_machine(host: &str) -> bool {
    let host = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((host, _)) => host,
        None => host.split_once(':').map_or(host, |(host, _)| host),
    };
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Returns whether a text has this beginning, in any case.
fn begins(text: &str, beginning: &str) -> bool {
    text.get(..beginning.len()).is_some_and(|text| text.eq_ignore_ascii_case(beginning))
}

/// Removes a password from a URL, also from a misspelt one.
fn without_password(url: &str) -> String {
    let scheme = match url.find("://") {
        Some(end) => end + "://".len(),
        None if begins(url, BEGINNING) => BEGINNING.len(),
        None => 0,
    };
    let (scheme, rest) = url.split_at(scheme);
    rest.rsplit_once('@').map_or_else(
        || url.to_owned(),
        |(user, hosts)| {
            let user = user.split(':').next().unwrap_or_default();
            format!("{scheme}{user}@{hosts}")
        },
    )
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        write!(f, "{}/{}", self.hosts.join(","), self.keyspace)?;
        match &self.authorities {
            Some(Authorities::System) => f.write_str("?ca=system"),
            Some(Authorities::File(file)) => write!(f, "?ca={}", file.display()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_reads_back() {
        for url in [
            "cassandra://localhost:9042/k",
            "cassandra://worker@10.0.0.1:9042,10.0.0.2:9043/moteseal_1",
            "cassandra://[::1]:9042/k?ca=/etc/ca.pem",
            "cassandra://db:1/k?ca=system",
        ] {
            assert_eq!(Address::parse(url).unwrap().to_string(), url);
        }
        assert_eq!(Address::parse("cassandra://db/k").unwrap().hosts, ["db:9042"]);
    }

    #[test]
    fn a_wrong_address_is_explained_without_its_password() {
        for (url, what) in [
            ("redis://db/k", "scheme"),
            ("redis://me:secret@db/k", "the scheme is not cassandra"),
            ("scylla://me:secret@db/k", "cassandra, too; write cassandra://"),
            ("CASSANDRA://db/k", "in lower case; write cassandra://"),
            ("cassandra:me:secret@db/k", "it does not begin with cassandra://"),
            ("cassandra:/db/k", "it does not begin with cassandra://"),
            ("cassandra://db", "no keyspace"),
            ("cassandra://db/", "1 to 48"),
            ("cassandra://db/K", "lower-case"),
            ("cassandra://db/k;drop", "lower-case"),
            ("cassandra://db:70000/k", "port"),
            ("cassandra://,db/k", "a host is empty"),
            ("cassandra://@db/k", "user is empty"),
            ("cassandra://db/k?tls=no", "the only parameter"),
            ("cassandra://me:secret@db/k", "MOTESEAL_CASSANDRA_PASSWORD"),
        ] {
            assert!(Address::is_address(url), "{url}");
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_path_is_no_address() {
        for path in ["epochs.redb", "cassandra", "./cassandra:k", "data/c:d", "127.0.0.1:9042"] {
            assert!(!Address::is_address(path), "{path}");
        }
    }

    #[test]
    fn a_password_goes_to_another_machine_over_tls_only() {
        for url in [
            "cassandra://me@localhost/k",
            "cassandra://me@127.0.0.1:9042,[::1]:9042,127.0.0.2/k",
            "cassandra://me@10.0.0.1/k?ca=ca.pem",
            "cassandra://10.0.0.1/k",
        ] {
            Address::parse(url).unwrap().keeps_password().unwrap();
        }
        for (url, host) in [
            ("cassandra://me@10.0.0.1/k", "10.0.0.1:9042"),
            ("cassandra://me@localhost,db:1/k", "db:1"),
            ("cassandra://me@[2001:db8::1]:9042/k", "[2001:db8::1]:9042"),
        ] {
            let error = Address::parse(url).unwrap().keeps_password().unwrap_err();
            assert_eq!(error.name(), "PasswordInClear", "{url}");
            assert!(error.to_string().contains(&format!("to {host} unencrypted")), "{error}");
        }
    }
}
