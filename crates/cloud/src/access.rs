//! Decides which request is served: checks the token (RFC 6750), the user's password (RFC 7617) or
//! the client certificate of a request, and which device's seals the client may upload.
//!
//! Every request is checked against the current content of the files of tokens and of users, also on
//! connections that are open. A change of a file therefore takes effect before the next request is
//! served. An upload is checked again when its body has arrived.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use moteseal_api::ProblemType;
use moteseal_core::Digest;
use moteseal_core::record::DeviceId;
use moteseal_core::roster::Directory as _;
use moteseal_service::{ClientKey, Peer, Pool};
use moteseal_verify::Roster;
use tracing::{error, info};
use zeroize::Zeroizing;

use crate::coap::SessionDevice;
use crate::credential_file::{CredentialFile, Unusable};
use crate::password::{LONGEST, PasswordError, PasswordHash};
use crate::refusal::{Challenges, Refusal};
use crate::rights::{Rights, Scope};
use crate::service::StartError;
use crate::state::{Finding, Shared};
use crate::throttle::{Schedule, Throttle};
use crate::token::Tokens;
use crate::users::{User, Users, is_name};
use crate::verified::{Keyed, Verified};

/// The maximum number of passwords that are hashed at the same time.
const HASHES: usize = 2;
/// The maximum number of requests that wait until their password is hashed. One address may have at
/// most half of them, or a tenth while more than half wait.
const QUEUE: u64 = 64;
/// When an address must wait.
const OF_ADDRESS: Schedule = Schedule { free: 5, longest: Duration::from_secs(15 * 60) };
/// When passwords for a name are not checked. The longest wait is short, because anyone can cause
/// it. It does not apply to verified passwords, and not to addresses from which the user has logged
/// in.
const OF_NAME: Schedule = Schedule { free: 10, longest: Duration::from_secs(60) };

/// Who may do what.
#[derive(Debug)]
pub(crate) struct Access {
    tokens: Option<CredentialFile<Tokens>>,
    users: Option<CredentialFile<Users>>,
    verified: Verified,
    addresses: Throttle,
    names: Throttle,
    /// Threads that hash passwords.
    hashes: Arc<Pool>,
    /// Places for requests that wait for one of these threads.
    queue: Arc<Pool>,
}

/// The credential with which a request was permitted.
#[derive(Clone, Debug)]
pub(crate) enum Grant {
    /// None, because this cloud requires none.
    Open,
    /// A token, and its rights.
    Token(Digest, Vec<Arc<Rights>>),
    /// A user.
    User(Arc<str>, Arc<User>),
    /// The device of a DTLS session, which may upload what it has signed.
    Device(DeviceId),
}

/// The credential that a request has.
enum Presented<'r> {
    Nothing,
    Token(&'r [u8]),
    Password(String, Zeroizing<Vec<u8>>),
    Certificate(ClientKey),
    Malformed,
}

impl Access {
    /// Reads the files of tokens and users, if there are any.
    pub(crate) fn open(tokens: Option<&Path>, users: Option<&Path>) -> Result<Self, StartError> {
        let tokens = tokens.map(|path| CredentialFile::open(path.to_owned())).transpose()?;
        let users = users.map(|path| CredentialFile::open(path.to_owned())).transpose()?;
        // A hash occupies a processor. Others need one at the same time.
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let hashes = (cores / 2).clamp(1, HASHES);
        Ok(Self {
            tokens,
            users,
            verified: Verified::new()?,
            addresses: Throttle::new(OF_ADDRESS),
            names: Throttle::new(OF_NAME),
            hashes: Pool::new(hashes as u64, 50, 1),
            queue: Pool::new(QUEUE, 10, 1),
        })
    }

    /// Returns whether clients need a credential.
    pub(crate) const fn is_required(&self) -> bool {
        self.tokens.is_some() || self.users.is_some()
    }

    /// Returns the files that cannot be used at the moment, and looks them up.
    pub(crate) fn unusable_files(&self) -> u32 {
        u32::from(self.tokens().is_err()) + u32::from(self.users().is_err())
    }

    fn tokens(&self) -> Result<Option<Arc<Tokens>>, Unusable> {
        self.tokens.as_ref().map(CredentialFile::current).transpose()
    }

    fn users(&self) -> Result<Option<Arc<Users>>, Unusable> {
        self.users.as_ref().map(CredentialFile::current).transpose()
    }

    /// Returns the current entry of a user.
    fn user(&self, name: &str) -> Result<Option<Arc<User>>, Refusal> {
        let users = self.users().map_err(|Unusable| unusable("users"))?;
        Ok(users.and_then(|users| users.get(name).cloned()))
    }

    fn unauthorized(&self, detail: &str) -> Refusal {
        let challenges = Challenges { bearer: self.tokens.is_some(), basic: self.users.is_some() };
        Refusal::unauthorized(detail, challenges)
    }

    /// Returns the scheme of `Authorization` that the cloud expects, for messages.
    fn expected(&self) -> &'static str {
        match (self.tokens.is_some(), self.users.is_some()) {
            (_, false) => "send a known token as \"Authorization: Bearer TOKEN\"",
            (false, true) => "send a user name and a password, or a client certificate",
            (true, true) => {
                "send a known token, a user name and a password, or a client certificate"
            }
        }
    }
}

impl Grant {
    /// Returns the name of the user, for the log.
    pub(crate) fn user(&self) -> Option<&str> {
        match self {
            Self::User(name, _) => Some(name),
            Self::Open | Self::Token(..) | Self::Device(_) => None,
        }
    }

    fn permits(&self, permits: impl Fn(&Rights) -> bool) -> bool {
        match self {
            Self::Open => true,
            Self::Token(_, rights) => rights.iter().any(|rights| permits(rights)),
            Self::User(_, user) => permits(&user.rights),
            Self::Device(_) => false,
        }
    }

    /// Checks that the credential is still valid, before an upload is verified and stored.
    pub(crate) fn check_current(&self, shared: &Shared) -> Result<(), Refusal> {
        let access = &shared.access;
        let is_current = match self {
            // The roster decides about a device: its seals are verified with its key.
            Self::Open | Self::Device(_) => true,
            Self::Token(digest, rights) => {
                let tokens = access.tokens().map_err(|Unusable| unusable("tokens"))?;
                tokens.is_some_and(|tokens| {
                    let now = tokens.rights_of(digest);
                    rights.iter().all(|held| now.contains(held))
                })
            }
            Self::User(name, user) => access.user(name)?.as_ref() == Some(user),
        };
        if is_current {
            return Ok(());
        }
        Err(access.unauthorized(
            "the credential was changed or revoked while the request arrived; nothing was stored",
        ))
    }

    /// Checks that the credential permits uploads of this device's seals and urgent events.
    pub(crate) fn check_device(&self, roster: &Roster, device: DeviceId) -> Result<(), Refusal> {
        self.check_group(roster)?;
        let is_own = matches!(self, Self::Device(own) if *own == device);
        if is_own || self.permits(|rights| rights.permits_device(device)) {
            return Ok(());
        }
        let name = roster.name(device).map_or_else(String::new, |name| format!("{name} "));
        Err(Refusal::new(
            ProblemType::FORBIDDEN,
            format!(
                "this credential may not upload data of the device {name}({device}); nothing of the \
                 upload was stored; use a credential of that device or of the group"
            ),
        ))
    }

    /// Checks that the credential permits uploads of the group's manifests.
    pub(crate) fn check_manifests(&self, roster: &Roster) -> Result<(), Refusal> {
        self.check_group(roster)?;
        if self.permits(Rights::permits_manifests) {
            return Ok(());
        }
        Err(Refusal::new(
            ProblemType::FORBIDDEN,
            "this credential is bound to devices and may not upload manifests, which are of the \
             whole group; use a credential of the group",
        ))
    }

    fn check_group(&self, roster: &Roster) -> Result<(), Refusal> {
        if matches!(self, Self::Device(_))
            || self.permits(|rights| rights.permits_group(roster.group()))
        {
            return Ok(());
        }
        Err(Refusal::new(
            ProblemType::FORBIDDEN,
            format!(
                "this credential may not upload to the group {} ({}); use a credential of this group",
                roster.group_name(),
                roster.group()
            ),
        ))
    }
}

/// Checks the credential of a request that needs `scope`.
pub(crate) async fn check(
    shared: &Arc<Shared>,
    peer: Peer,
    (client, session): (Option<ClientKey>, Option<SessionDevice>),
    headers: &HeaderMap,
    scope: Scope,
) -> Result<Grant, Refusal> {
    let access = &shared.access;
    if !access.is_required() {
        return Ok(Grant::Open);
    }
    if let Some(SessionDevice(device)) = session {
        if scope == Scope::Write {
            return Ok(Grant::Device(device));
        }
        let detail = "a device may upload what it has signed, and nothing else";
        return Err(Refusal::new(ProblemType::FORBIDDEN, detail));
    }
    let authorization = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let grant = match presented(authorization, client) {
        Presented::Token(token) if access.tokens.is_some() => {
            let tokens = access.tokens().map_err(|Unusable| unusable("tokens"))?;
            let rights = tokens.map(|tokens| tokens.rights(token)).unwrap_or_default();
            if rights.is_empty() {
                return Err(access.unauthorized(access.expected()));
            }
            let rights = rights.into_iter().filter(|rights| rights.scopes.has(scope)).collect();
            Grant::Token(Digest::of(&[token]), rights)
        }
        Presented::Password(name, password) if access.users.is_some() => {
            let user = password_login(shared, peer, &name, password).await?;
            Grant::User(name.into(), user)
        }
        Presented::Certificate(key) if access.users.is_some() => {
            let users = access.users().map_err(|Unusable| unusable("users"))?;
            let found = users.as_ref().and_then(|users| users.with_key(&key));
            let Some((name, user)) = found else {
                return Err(access.unauthorized(
                    "no user has the key of this client certificate; ask the operator to add it",
                ));
            };
            Grant::User(name.into(), Arc::clone(user))
        }
        Presented::Malformed => {
            return Err(access.unauthorized("the Authorization header is malformed"));
        }
        _ => return Err(access.unauthorized(access.expected())),
    };
    if grant.permits(|rights| rights.scopes.has(scope)) {
        return Ok(grant);
    }
    let what = if grant.user().is_some() { "user" } else { "token" };
    Err(Refusal::new(
        ProblemType::FORBIDDEN,
        format!("this {what} does not have the scope {}; use one that has it", scope.name()),
    ))
}

fn unusable(what: &str) -> Refusal {
    Refusal::new(
        ProblemType::CREDENTIALS_UNAVAILABLE,
        format!(
            "the cloud cannot read its {what}, so it serves nobody who needs them; its log states why"
        ),
    )
}

/// Reads the credential of a request. A certificate counts if there is no `Authorization` header.
fn presented(authorization: Option<&[u8]>, client: Option<ClientKey>) -> Presented<'_> {
    let Some(value) = authorization else {
        return client.map_or(Presented::Nothing, Presented::Certificate);
    };
    if let Some(token) = of_scheme(value, b"bearer ") {
        return Presented::Token(token);
    }
    match of_scheme(value, b"basic ") {
        Some(encoded) => basic(encoded).unwrap_or(Presented::Malformed),
        None => Presented::Nothing,
    }
}

fn of_scheme<'v>(value: &'v [u8], scheme: &[u8]) -> Option<&'v [u8]> {
    let (found, rest) = value.split_at_checked(scheme.len())?;
    found.eq_ignore_ascii_case(scheme).then(|| rest.trim_ascii())
}

/// Decodes a user name and a password (RFC 7617, section 2).
fn basic(encoded: &[u8]) -> Option<Presented<'static>> {
    // The longest name, the colon and the longest password, with some room.
    if encoded.len() > (LONGEST + 256) / 3 * 4 {
        return None;
    }
    let decoded = Zeroizing::new(STANDARD.decode(encoded).ok()?);
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let name = std::str::from_utf8(&decoded[..colon]).ok().filter(|name| is_name(name))?;
    let password = Zeroizing::new(decoded[colon + 1..].to_vec());
    Some(Presented::Password(name.to_owned(), password))
}

/// Checks a user's password. A password that was verified before costs microseconds. Otherwise it
/// is hashed, also if there is no such user, so that the time does not tell which users exist.
async fn password_login(
    shared: &Arc<Shared>,
    peer: Peer,
    name: &str,
    password: Zeroizing<Vec<u8>>,
) -> Result<Arc<User>, Refusal> {
    let access = &shared.access;
    let keyed = access.verified.keyed(name, &password);
    if let Some(user) = verified(access, name, &keyed)? {
        return Ok(user);
    }
    throttled(shared, peer, name)?;
    let Some(place) = access.queue.take(peer, 1) else {
        return Err(Refusal::busy("too many passwords wait to be checked; try again shortly"));
    };
    let thread = access.hashes.wait(peer, 1).await;
    // Meanwhile, another request may have verified the same password, or others may have failed.
    if let Some(user) = verified(access, name, &keyed)? {
        return Ok(user);
    }
    throttled(shared, peer, name)?;
    let user = access.user(name)?;
    let (of, shared_there) = (name.to_owned(), Arc::clone(shared));
    // If the client closes the connection, the check still runs to its end and is counted.
    let checked = tokio::task::spawn_blocking(move || {
        let _held = (thread, place);
        check_password(&shared_there, peer, &of, user.as_ref(), &password, keyed)
    });
    let failed = |error: String| {
        if shared.findings_log.allows(Finding::Failure) {
            error!(%error, "a password could not be checked");
        }
        Refusal::busy("the password could not be checked; try again shortly")
    };
    match checked.await {
        Ok(Ok(Some(user))) => Ok(user),
        Ok(Ok(None)) => Err(access.unauthorized("the user name or the password is wrong")),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Returns the user if this password was verified and the user has not changed since.
fn verified(access: &Access, name: &str, keyed: &Keyed) -> Result<Option<Arc<User>>, Refusal> {
    let user = access.user(name)?;
    Ok(user.filter(|user| {
        user.password.as_ref().is_some_and(|hash| access.verified.has(name, hash, keyed))
    }))
}

/// Rejects a password that would be checked too soon after others that were wrong.
fn throttled(shared: &Shared, peer: Peer, name: &str) -> Result<(), Refusal> {
    let access = &shared.access;
    let of_name = || access.names.wait(&name).filter(|_| !access.verified.knows(name, peer));
    let Some(wait) = access.addresses.wait(&peer).max(of_name()) else { return Ok(()) };
    shared.metrics.logins_throttled.increment(1);
    Err(Refusal::later(
        ProblemType::TOO_MANY_FAILURES,
        "too many wrong passwords from this address or for this name; this one was not checked",
        wait,
    ))
}

/// Hashes a password and compares the hash with that of the user.
fn check_password(
    shared: &Shared,
    peer: Peer,
    name: &str,
    user: Option<&Arc<User>>,
    password: &[u8],
    keyed: Keyed,
) -> Result<Option<Arc<User>>, PasswordError> {
    let access = &shared.access;
    let hash = user.and_then(|user| user.password.as_ref()).unwrap_or(&PasswordHash::NONE);
    shared.metrics.password_hashes.increment(1);
    shared.metrics.password_hashes_running.increment(1);
    let is_right = hash.is_of(password);
    shared.metrics.password_hashes_running.decrement(1);
    let is_right = is_right?;
    // A password that a user of the table does not have may still be that of something else: log
    // only names that are in the table, and never a password.
    let shown = if user.is_some() { name } else { "(unknown)" };
    // The user may have been revoked meanwhile.
    let users = access.users().ok().flatten();
    let now = users.as_ref().and_then(|users| users.get(name));
    if let (true, Some(users), Some(user)) =
        (is_right, &users, now.filter(|now| Some(*now) == user))
    {
        access.verified.add(users, name, hash.clone(), keyed, peer);
        if shared.log.allows(peer) {
            info!(user = shown, %peer, "verified the password");
        }
        return Ok(Some(Arc::clone(user)));
    }
    access.addresses.failed(&peer);
    access.names.failed(&name);
    if shared.log.allows(peer) {
        info!(user = shown, %peer, "the password is wrong");
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn password(value: &str) -> Option<(String, Vec<u8>)> {
        match presented(Some(value.as_bytes()), None) {
            Presented::Password(name, password) => Some((name, password.to_vec())),
            _ => None,
        }
    }

    #[test]
    fn reads_the_examples_of_rfc_7617() {
        let of = |name: &str, password: &str| Some((name.to_owned(), password.into()));
        // Sections 2 and 2.1.
        let value = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
        assert_eq!(password(value), of("Aladdin", "open sesame"));
        assert_eq!(password("basic  dGVzdDoxMjPCow=="), of("test", "123\u{a3}"));
        // The password may have colons; the name may not.
        assert_eq!(password("BASIC YTpiOmM="), of("a", "b:c"));
    }

    #[test]
    fn malformed_credentials_are_not_checked() {
        for value in ["Basic ", "Basic ***", "Basic QQ==", "Basic OnBhc3N3b3Jk", "Basic YSBiOmM="] {
            assert!(matches!(presented(Some(value.as_bytes()), None), Presented::Malformed));
        }
        let long = format!("Basic {}", STANDARD.encode(format!("a:{}", "x".repeat(600))));
        assert!(matches!(presented(Some(long.as_bytes()), None), Presented::Malformed));
        for value in ["", "Basic", "Digest x", "Bearer"] {
            assert!(matches!(presented(Some(value.as_bytes()), None), Presented::Nothing));
        }
        let key = Some(ClientKey([1; 32]));
        assert!(matches!(presented(None, key), Presented::Certificate(_)));
        assert!(matches!(presented(Some(b"Bearer x"), key), Presented::Token(b"x")));
    }

    /// Returns for which share of a day a user who has never logged in must wait, and the longest wait in
    /// seconds, while an attacker at some addresses guesses its password whenever one is checked.
    async fn lock_out(hosts: u32) -> (f64, u64) {
        const DAY: u32 = 86_400;
        let (addresses, names) = (Throttle::new(OF_ADDRESS), Throttle::new(OF_NAME));
        let (mut locked, mut longest) = (0_u32, Duration::ZERO);
        for _ in 0..DAY {
            for host in 0..hosts {
                if addresses.wait(&host).is_none() && names.wait(&"user").is_none() {
                    addresses.failed(&host);
                    names.failed(&"user");
                }
            }
            if let Some(wait) = names.wait(&"user") {
                locked += 1;
                longest = longest.max(wait);
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        (f64::from(locked) / f64::from(DAY), longest.as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn an_attacker_at_one_address_cannot_lock_out_a_user() {
        let (of_one, longest) = lock_out(1).await;
        let (of_many, longest_of_many) = lock_out(50).await;
        println!(
            "1 address: {of_one:.2} of a day, {longest} s; 50: {of_many:.2}, {longest_of_many} s"
        );
        assert!(of_one < 0.3 && longest <= 60, "{of_one} of a day, {longest} s");
        assert!(longest_of_many <= 60, "{longest_of_many} s");
    }
}
