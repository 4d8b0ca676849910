//! The table of users: who may read and write with a password (RFC 7617) or a client certificate.
//!
//! The table is a file of its own, outside the store, which only grows. `moteseal cloud user`
//! changes it, also while the cloud runs. Each line is a user: the name, the scopes, the binding,
//! and the credentials. The last line is the digest of the lines before it, so that a file that was
//! cut or changed is not used:
//!
//! ```text
//! moteseal users 1
//! gateway write group=0123456789abcdef password=$argon2id$v=19$m=19456,t=2,p=1$...$...
//! sensor write device=0123456789abcdef certificate=5c9d...
//! sha256 7b0e...
//! ```

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use moteseal_api::{ErrorKind, parse_id};
use moteseal_core::Digest;
use moteseal_service::ClientKey;
use zeroize::Zeroizing;

use crate::credential_file::{Credentials, read_at_most};
use crate::password::PasswordHash;
use crate::rights::{Binding, Rights, Scopes};

/// The first line of a table.
const HEADER: &str = "moteseal users 1";
/// The start of the first line of a table of any version.
const ANY_HEADER: &str = "moteseal users ";
/// The maximum size of a table in bytes, enough for more than 10,000 users.
const MAX_FILE: u64 = 4 << 20;
/// The maximum length of a user's name.
const MAX_NAME: usize = 64;
/// How long a command waits for another command that changes the same table.
const LOCKED_FOR: Duration = Duration::from_secs(10);
/// How long to wait before the lock is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// Why a table of users cannot be used or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsersError {
    /// There is no table.
    #[error("there is no table of users {}; make it with `moteseal cloud user add`", .0.display())]
    Missing(PathBuf),
    /// The file cannot be read.
    #[error("cannot read the users in {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write the users to {}: {error}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The file is another file, or it is damaged.
    #[error("{}: {damage}; restore the file from a backup, or remove it and add its users again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        damage: Damage,
    },
    /// Another process has locked the table for ten seconds.
    #[error("another command is changing {}; try again", .0.display())]
    Busy(PathBuf),
    /// The name has characters that are not allowed.
    #[error(
        "{0:?} is not a user's name; use 1 to {MAX_NAME} letters, digits and the characters - _ . @"
    )]
    Name(String),
    /// The table has a user with this name.
    #[error("there is a user {0} already; revoke it first, or replace it with --replace")]
    Exists(String),
    /// The table has no user with this name.
    #[error("there is no user {0}; `moteseal cloud user list` shows the users")]
    Unknown(String),
    /// Another user has this certificate's key.
    #[error("the certificate's key belongs to the user {0} already; each user needs its own key")]
    SameKey(String),
    /// The table would be longer than the maximum.
    #[error("{} would be longer than {MAX_FILE} bytes; revoke users, or bind a user to fewer devices", .0.display())]
    TooLong(PathBuf),
}

impl UsersError {
    /// Returns the error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Missing(_) | Self::Unreadable { .. } | Self::Unwritable { .. } => "BadFile",
            Self::Damaged { .. } => "UsersDamaged",
            Self::Busy(_) => "UsersBusy",
            Self::Name(_) => "BadUserName",
            Self::Exists(_) => "UserExists",
            Self::Unknown(_) => "UnknownUser",
            Self::SameKey(_) => "CertificateInUse",
            Self::TooLong(_) => "TooManyUsers",
        }
    }

    /// Returns [`ErrorKind::Internal`] if the file cannot be written, otherwise
    /// [`ErrorKind::Usage`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Unwritable { .. } => ErrorKind::Internal,
            _ => ErrorKind::Usage,
        }
    }
}

moteseal_api::named_error!(UsersError);

/// What is wrong with the text of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The first line is not that of a table.
    #[error("this is not a table of users")]
    NotATable,
    /// The table has a later version.
    #[error("a later version of moteseal has written this table of users")]
    LaterVersion,
    /// The digest in the last line is missing or does not match.
    #[error("the table of users is not complete, or was changed by another program")]
    Digest,
    /// A line is malformed.
    #[error("line {0} is not a user")]
    Line(usize),
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// What the user may do.
    pub rights: Rights,
    /// The hash of the user's password, if the user has one.
    pub password: Option<PasswordHash>,
    /// The key of the user's client certificate, if the user has one.
    pub certificate: Option<ClientKey>,
}

/// A table of users. An empty table is valid: then no user is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    by_name: BTreeMap<String, Arc<User>>,
    /// The name of the user whose certificate has the key.
    by_key: BTreeMap<ClientKey, String>,
}

impl Users {
    /// Reads a table.
    ///
    /// # Errors
    /// [`UsersError`] names the file and what is wrong.
    pub fn read(path: &Path) -> Result<Self, UsersError> {
        Self::of_file(path, &Self::bytes(path)?)
    }

    /// Parses the bytes of a table. Each table has only one valid form.
    ///
    /// # Errors
    /// [`Damage`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Damage> {
        let head = &bytes[..bytes.len().min(HEADER.len() + 1)];
        if head.strip_suffix(b"\n") != Some(HEADER.as_bytes()) {
            let is_later = bytes.starts_with(ANY_HEADER.as_bytes());
            return Err(if is_later { Damage::LaterVersion } else { Damage::NotATable });
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Damage::Digest)?;
        let lines = text.strip_suffix('\n').ok_or(Damage::Digest)?;
        let (_, last) = lines.rsplit_once('\n').ok_or(Damage::Digest)?;
        let content = &text[..lines.len() - last.len()];
        if last != digest_line(content) {
            return Err(Damage::Digest);
        }
        let mut users = Self::default();
        for (number, line) in (1..).zip(content.lines()).skip(1) {
            let (name, user) = parse_user(line).ok_or(Damage::Line(number))?;
            let last = users.by_name.last_key_value();
            let is_in_order = last.is_none_or(|(last, _)| last.as_str() < name);
            if !is_in_order || users.add(name, user, false).is_err() {
                return Err(Damage::Line(number));
            }
        }
        if users.to_text() == text { Ok(users) } else { Err(Damage::Digest) }
    }

    /// Returns the text of the table.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("{HEADER}\n");
        for (name, user) in &self.by_name {
            // Writing to a string does not fail.
            let _ = write!(text, "{name} {}", user.rights.scopes);
            if user.rights.binding != Binding::Any {
                let _ = write!(text, " {}", user.rights.binding);
            }
            if let Some(password) = &user.password {
                let _ = write!(text, " password={password}");
            }
            if let Some(certificate) = &user.certificate {
                let _ = write!(text, " certificate={certificate}");
            }
            text.push('\n');
        }
        let last = digest_line(&text);
        text.push_str(&last);
        text.push('\n');
        text
    }

    /// Returns the users with their names, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &User)> {
        self.by_name.iter().map(|(name, user)| (name.as_str(), &**user))
    }

    /// Returns the user with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// Returns the user whose certificate has this key, and the user's name.
    #[must_use]
    pub fn with_key(&self, key: &ClientKey) -> Option<(&str, &Arc<User>)> {
        let name = self.by_key.get(key)?;
        Some((name, self.by_name.get(name)?))
    }

    /// Adds a user. With `replace`, replaces a user with the same name.
    ///
    /// # Errors
    /// `Name`, `Exists` or `SameKey`. The table has not changed.
    pub fn add(&mut self, name: &str, user: User, replace: bool) -> Result<(), UsersError> {
        if !is_name(name) {
            return Err(UsersError::Name(name.to_owned()));
        }
        if !replace && self.by_name.contains_key(name) {
            return Err(UsersError::Exists(name.to_owned()));
        }
        let same_key = user.certificate.as_ref().and_then(|key| self.with_key(key));
        if let Some((other, _)) = same_key.filter(|(other, _)| *other != name) {
            return Err(UsersError::SameKey(other.to_owned()));
        }
        if let Some(key) = self.by_name.get(name).and_then(|user| user.certificate) {
            self.by_key.remove(&key);
        }
        self.by_key.extend(user.certificate.map(|key| (key, name.to_owned())));
        self.by_name.insert(name.to_owned(), Arc::new(user));
        Ok(())
    }

    /// Removes a user.
    ///
    /// # Errors
    /// `Unknown` if there is no user with this name.
    pub fn revoke(&mut self, name: &str) -> Result<(), UsersError> {
        let user = self.by_name.remove(name).ok_or_else(|| UsersError::Unknown(name.to_owned()))?;
        user.certificate.map(|key| self.by_key.remove(&key));
        Ok(())
    }

    /// Reads the table in a file, changes it, and replaces the file, which only its owner may read.
    /// A command that changes the same table at the same time waits. With `creates`, a table that
    /// does not exist is made.
    ///
    /// # Errors
    /// [`UsersError`]. The file has not changed.
    pub fn change(
        path: &Path,
        creates: bool,
        change: impl FnOnce(&mut Self) -> Result<(), UsersError>,
    ) -> Result<(), UsersError> {
        let unwritable = |error| UsersError::Unwritable { path: path.to_owned(), error };
        // The file that a link names is replaced, not the link.
        let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let _lock = lock(path)?;
        let mut users = match Self::read(path) {
            Err(UsersError::Missing(_)) if creates => Self::default(),
            read => read?,
        };
        change(&mut users)?;
        let text = users.to_text();
        if text.len() as u64 > MAX_FILE {
            return Err(UsersError::TooLong(path.clone()));
        }
        moteseal_files::remove_abandoned(path);
        moteseal_files::replace(path, text.as_bytes(), moteseal_files::PRIVATE).map_err(unwritable)
    }
}

impl Credentials for Users {
    type Error = UsersError;
    const WHAT: &str = "users";

    fn bytes(path: &Path) -> Result<Zeroizing<Vec<u8>>, UsersError> {
        read_at_most(path, MAX_FILE).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => UsersError::Missing(path.to_owned()),
            _ => UsersError::Unreadable { path: path.to_owned(), error },
        })
    }

    fn of_file(path: &Path, bytes: &[u8]) -> Result<Self, UsersError> {
        Self::parse(bytes).map_err(|damage| UsersError::Damaged { path: path.to_owned(), damage })
    }
}

/// Waits until no other process changes the table. The lock is on a file of its own, because the
/// table's file is replaced.
fn lock(table: &Path) -> Result<File, UsersError> {
    let mut path = table.as_os_str().to_owned();
    path.push(".lock");
    let path = PathBuf::from(path);
    let fail = |error| UsersError::Unwritable { path: path.clone(), error };
    let file = moteseal_files::private().read(true).write(true).create(true).open(&path);
    let file = file.map_err(fail)?;
    let end = Instant::now() + LOCKED_FOR;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < end => std::thread::sleep(TRY_AGAIN),
            Err(TryLockError::WouldBlock) => return Err(UsersError::Busy(table.to_owned())),
            // The file system has no locks.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                return Ok(file);
            }
            Err(TryLockError::Error(error)) => return Err(fail(error)),
        }
    }
}

/// Returns whether a text is a valid name of a user.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(is_allowed)
}

fn digest_line(content: &str) -> String {
    format!("sha256 {}", ClientKey(Digest::of(&[content.as_bytes()]).0))
}

fn parse_user(line: &str) -> Option<(&str, User)> {
    let mut words: Vec<&str> = line.split(' ').collect();
    let certificate = take(&mut words, "certificate=").map(parse_key);
    let password = take(&mut words, "password=").map(PasswordHash::parse);
    let [name, scopes, binding @ ..] = &words[..] else { return None };
    let is_malformed = !is_name(name)
        || certificate == Some(None)
        || password == Some(None)
        || (certificate.is_none() && password.is_none());
    if is_malformed {
        return None;
    }
    let binding = Binding::parse(binding.iter().copied())?;
    let rights = Rights::new(Scopes::parse(scopes)?, binding)?;
    let user = User { rights, password: password.flatten(), certificate: certificate.flatten() };
    Some((name, user))
}

/// Removes the last word and returns the rest of it, if it starts with `key`.
fn take<'l>(words: &mut Vec<&'l str>, key: &str) -> Option<&'l str> {
    let value = words.last()?.strip_prefix(key)?;
    words.pop();
    Some(value)
}

fn parse_key(text: &str) -> Option<ClientKey> {
    let mut key = [0; 32];
    let (halves, rest) = text.as_bytes().as_chunks::<16>();
    if halves.len() != 4 || !rest.is_empty() {
        return None;
    }
    for (bytes, digits) in key.chunks_mut(8).zip(halves) {
        bytes.copy_from_slice(&parse_id(digits)?);
    }
    Some(ClientKey(key))
}

impl fmt::Display for User {
    /// Writes what the user may do and how it logs in, without the hash of the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.rights.scopes)?;
        if self.rights.binding != Binding::Any {
            write!(f, " {}", self.rights.binding)?;
        }
        if self.password.is_some() {
            f.write_str(" password")?;
        }
        match &self.certificate {
            Some(certificate) => write!(f, " certificate={certificate}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt as _;

    use moteseal_core::record::{DeviceId, GroupId};
    use proptest::prelude::*;

    use super::*;

    fn user(words: &str, password: bool, certificate: Option<u8>) -> User {
        let mut words = words.split(' ').filter(|word| !word.is_empty());
        let scopes = Scopes::parse(words.next().unwrap()).unwrap();
        User {
            rights: Rights::new(scopes, Binding::parse(words).unwrap()).unwrap(),
            password: password.then_some(PasswordHash::NONE),
            certificate: certificate.map(|byte| ClientKey([byte; 32])),
        }
    }

    fn some_user() -> impl Strategy<Value = User> {
        let binding = prop_oneof![
            Just(Binding::Any),
            any::<[u8; 8]>().prop_map(|id| Binding::Group(GroupId(id))),
            prop::collection::btree_set(any::<[u8; 8]>().prop_map(DeviceId), 1..4)
                .prop_map(Binding::Devices),
        ];
        (binding, any::<bool>(), any::<bool>(), any::<Option<[u8; 32]>>()).prop_map(
            |(binding, reads, has_password, certificate)| User {
                rights: Rights::new(
                    Scopes::parse(if reads { "read,write" } else { "write" }).unwrap(),
                    binding,
                )
                .unwrap(),
                password: (has_password || certificate.is_none()).then_some(PasswordHash::NONE),
                certificate: certificate.map(ClientKey),
            },
        )
    }

    fn some_users() -> impl Strategy<Value = Users> {
        prop::collection::btree_map("[a-zA-Z0-9_.@-]{1,64}", some_user(), 0..5).prop_map(|users| {
            let mut table = Users::default();
            for (name, user) in users {
                // A key that two users share is refused.
                let _ = table.add(&name, user, false);
            }
            table
        })
    }

    proptest! {
        #[test]
        fn a_table_is_read_as_it_was_written(users in some_users()) {
            prop_assert_eq!(Users::parse(users.to_text().as_bytes()), Ok(users));
        }

        #[test]
        fn a_table_that_was_cut_or_changed_is_refused(
            users in some_users(),
            at in any::<prop::sample::Index>(),
            bits in 1..=255_u8,
        ) {
            let mut bytes = users.to_text().into_bytes();
            let at = at.index(bytes.len());
            prop_assert!(Users::parse(&bytes[..at]).is_err());
            bytes[at] ^= bits;
            prop_assert!(Users::parse(&bytes).is_err());
        }

        #[test]
        fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Users::parse(&bytes).is_err());
            let lines = [HEADER.as_bytes(), b"\n", &bytes, b"\n"].concat();
            let content = String::from_utf8_lossy(&lines).into_owned();
            let table = format!("{content}{}\n", digest_line(&content));
            if let Ok(users) = Users::parse(table.as_bytes()) {
                prop_assert_eq!(users.to_text(), table);
            }
        }
    }

    #[test]
    fn lines_that_are_no_users_are_refused_also_with_a_right_digest() {
        let hash = PasswordHash::NONE;
        let key = ClientKey([0xab; 32]);
        for line in [
            String::new(),
            "a write".to_owned(),
            format!("a b write password={hash}"),
            format!("a write  password={hash}"),
            format!("a password={hash}"),
            format!("a:b write password={hash}"),
            format!("a read group=0123456789abcdef password={hash}"),
            format!("a write certificate={key} password={hash}"),
            format!("a write certificate={}", key.to_string().to_uppercase()),
            format!("a write password={hash}\na write password={hash}"),
            format!("b write password={hash}\na write password={hash}"),
            format!("a write certificate={key}\nb write certificate={key}"),
        ] {
            let content = format!("{HEADER}\n{line}\n");
            let table = format!("{content}{}\n", digest_line(&content));
            assert!(matches!(Users::parse(table.as_bytes()), Err(Damage::Line(2 | 3))), "{line:?}");
        }
        assert_eq!(Users::parse(b"moteseal users 2\n"), Err(Damage::LaterVersion));
        assert_eq!(Users::parse(b"read 4q9mB0xJ2kTqvYfB\n"), Err(Damage::NotATable));
    }

    #[test]
    fn users_are_added_replaced_and_revoked() {
        let mut users = Users::default();
        users.add("gateway", user("write", true, Some(1)), false).unwrap();
        let again = users.add("gateway", user("read", true, None), false);
        assert_eq!(again.unwrap_err().name(), "UserExists");
        let same_key = users.add("other", user("write", false, Some(1)), false);
        assert_eq!(same_key.unwrap_err().name(), "CertificateInUse");
        assert_eq!(users.with_key(&ClientKey([1; 32])).unwrap().0, "gateway");
        users.add("gateway", user("read", false, Some(1)), true).unwrap();
        assert_eq!(users.get("gateway").unwrap().rights.scopes.to_string(), "read");
        for name in ["", "a b", "a:b", "\u{e4}", &"x".repeat(65)] {
            let refused = users.add(name, user("read", true, None), false).unwrap_err();
            assert_eq!(refused.name(), "BadUserName", "{name}");
        }
        users.revoke("gateway").unwrap();
        assert_eq!(users.revoke("gateway").unwrap_err().name(), "UnknownUser");
    }

    #[test]
    fn changes_at_the_same_time_lose_no_user_and_only_the_owner_may_read_the_table() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("epochs.redb-users");
        let missing = Users::change(&path, false, |_| Ok(())).unwrap_err();
        assert!(matches!(missing, UsersError::Missing(_)), "{missing}");
        std::thread::scope(|scope| {
            for number in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    let name = format!("user{number}");
                    Users::change(path, true, |users| {
                        users.add(&name, user("write", true, None), false)
                    })
                    .unwrap();
                });
            }
        });
        assert_eq!(Users::read(&path).unwrap().iter().count(), 8);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // A change that fails leaves the table as it was, and so does a damaged table.
        let before = std::fs::read(&path).unwrap();
        Users::change(&path, true, |users| users.revoke("nobody")).unwrap_err();
        assert_eq!(std::fs::read(&path).unwrap(), before);
        std::fs::write(&path, &before[..before.len() - 1]).unwrap();
        let damaged = Users::change(&path, true, |_| Ok(())).unwrap_err();
        assert_eq!(damaged.name(), "UsersDamaged");
        assert_eq!(std::fs::read(&path).unwrap(), &before[..before.len() - 1]);
    }

    #[test]
    fn a_link_to_a_table_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("users"), folder.path().join("link"));
        let add = |path: &Path, name: &str| {
            Users::change(path, true, |users| users.add(name, user("read", true, None), false))
        };
        add(&path, "a").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        add(&link, "b").unwrap();
        assert!(link.is_symlink());
        assert_eq!(Users::read(&path).unwrap().iter().count(), 2);
    }
}
