//! Decentralised authorisation of NATS: the nkeys of an operator, of the account of the stream and of the
//! system account, and the JWTs that they sign.
//!
//! The servers have only public keys and JWTs. The operator signs the accounts, and the account signs its
//! users, so a user is added without a change of the servers. A user is revoked in the account's JWT, which
//! [`push_account`](crate::push_account) passes to the running servers and
//! [`fetch_account`](crate::fetch_account) reads from them. Format: NATS's `jwt` version 2,
//! signed with Ed25519 (`alg: ed25519-nkey`).

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use nkeys::{KeyPair, KeyPairType};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::error::StreamError;
use crate::permissions::{Duty, Permissions};

/// The most revoked users of an account. Its JWT must fit into one message of NATS.
pub const MAX_REVOKED: usize = 4096;

/// The subject at which the servers receive the JWT of an account.
pub(crate) const UPDATE: &str = "$SYS.REQ.CLAIMS.UPDATE";

/// Returns the subject at which the servers return the JWT of an account.
pub(crate) fn lookup(account: &str) -> String {
    format!("$SYS.REQ.ACCOUNT.{account}.CLAIMS.LOOKUP")
}

/// The name of the system account and of its user.
const SYSTEM: &str = "system";

const USER_JWT: &str = "NATS USER JWT";
const USER_SEED: &str = "USER NKEY SEED";

/// The secret keys of an operator, of the account of the stream and of the system account.
pub struct Authority {
    operator: KeyPair,
    account: KeyPair,
    system: KeyPair,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("account", &self.account()).finish_non_exhaustive()
    }
}

impl Authority {
    /// Generates new keys.
    #[must_use]
    pub fn generate() -> Self {
        Self {
            operator: KeyPair::new_operator(),
            account: KeyPair::new_account(),
            system: KeyPair::new_account(),
        }
    }

    /// Returns the authority with the seeds that [`seeds`](Self::seeds) returned.
    ///
    /// # Errors
    /// `Usage` if one of them is not the seed of an nkey of its kind.
    pub fn from_seeds(operator: &str, account: &str, system: &str) -> Result<Self, StreamError> {
        let key = |seed: &str, kind: KeyPairType, what: &str| {
            KeyPair::from_seed(seed.trim())
                .ok()
                .filter(|key| key.key_pair_type() == kind)
                .ok_or_else(|| {
                    StreamError::BadSetting(format!("the key of the {what} is not an nkey's seed"))
                })
        };
        Ok(Self {
            operator: key(operator, KeyPairType::Operator, "operator")?,
            account: key(account, KeyPairType::Account, "account")?,
            system: key(system, KeyPairType::Account, "system account")?,
        })
    }

    /// Returns the seeds of the operator, of the account and of the system account. They are secret.
    ///
    /// # Errors
    /// `Usage` if a key has no seed.
    pub fn seeds(&self) -> Result<[Zeroizing<String>; 3], StreamError> {
        Ok([seed(&self.operator)?, seed(&self.account)?, seed(&self.system)?])
    }

    /// Returns the public key of the account of the stream.
    #[must_use]
    pub fn account(&self) -> String {
        self.account.public_key()
    }

    /// Returns the public key of the system account.
    #[must_use]
    pub fn system(&self) -> String {
        self.system.public_key()
    }

    /// Returns the JWT of the operator. `at` is the Unix time in seconds.
    ///
    /// # Errors
    /// `Usage` if it cannot be signed.
    pub fn operator_jwt(&self, at: u64) -> Result<String, StreamError> {
        let nats = json!({ "type": "operator", "version": 2, "system_account": self.system() });
        sign(&self.operator, &self.operator.public_key(), "moteseal", at, &nats)
    }

    /// Returns the JWT of the system account.
    ///
    /// # Errors
    /// `Usage` if it cannot be signed.
    pub fn system_jwt(&self, at: u64) -> Result<String, StreamError> {
        sign(&self.operator, &self.system(), SYSTEM, at, &system_claims())
    }

    /// Returns the JWT of the account of the stream. `revoked` are public keys of users; their JWTs of
    /// these Unix times and before are not valid any more.
    ///
    /// # Errors
    /// `Usage` if more than [`MAX_REVOKED`] users are revoked.
    pub fn account_jwt(
        &self,
        name: &str,
        revoked: &BTreeMap<String, u64>,
        at: u64,
    ) -> Result<String, StreamError> {
        if revoked.len() > MAX_REVOKED {
            return Err(StreamError::BadSetting(format!(
                "the account has more than {MAX_REVOKED} revoked users; write the policy into a new \
                 folder, which has a new account, and give its files to the servers and processes"
            )));
        }
        sign(&self.operator, &self.account(), name, at, &account_claims(revoked))
    }

    /// Returns whether a JWT is the current one of the account: it has this name and these revocations.
    #[must_use]
    pub fn is_account_jwt(&self, jwt: &str, name: &str, revoked: &BTreeMap<String, u64>) -> bool {
        claims(jwt, &self.operator).is_some_and(|claims| {
            claims["sub"] == self.account().as_str()
                && claims["name"] == name
                && claims["nats"] == account_claims(revoked)
        })
    }

    /// Returns what a JWT of the account states, or `None` if it is of another account or this operator has
    /// not signed it.
    #[must_use]
    pub fn read_account(&self, jwt: &str) -> Option<IssuedAccount> {
        let claims = claims(jwt, &self.operator)?;
        if claims["sub"] != self.account().as_str() {
            return None;
        }
        let revoked = match &claims["nats"]["revocations"] {
            Value::Null => BTreeMap::new(),
            revoked => serde_json::from_value(revoked.clone()).ok()?,
        };
        Some(IssuedAccount { issued_at: claims["iat"].as_u64()?, revoked })
    }

    /// Issues credentials of the account with these permissions. With earlier credentials, the key stays the same.
    ///
    /// # Errors
    /// `Usage` if the earlier credentials have no key of a user.
    pub fn user(
        &self,
        name: &str,
        permissions: &Permissions,
        earlier: Option<&Credentials>,
        at: u64,
    ) -> Result<Credentials, StreamError> {
        let key = earlier.map_or_else(|| Ok(KeyPair::new_user()), Credentials::key)?;
        let jwt = sign(&self.account, &key.public_key(), name, at, &user_claims(permissions))?;
        Ok(Credentials { jwt, seed: seed(&key)? })
    }

    /// Issues credentials of the system account that may read the account's JWT from the servers and pass
    /// JWTs to them, and nothing else.
    ///
    /// # Errors
    /// `Usage` if they cannot be signed.
    pub fn system_user(&self, at: u64) -> Result<Credentials, StreamError> {
        let key = KeyPair::new_user();
        let claims = user_claims(&self.system_permissions());
        let jwt = sign(&self.system, &key.public_key(), SYSTEM, at, &claims)?;
        Ok(Credentials { jwt, seed: seed(&key)? })
    }

    /// Returns whether the system account issued the credentials, with the permissions of
    /// [`system_user`](Self::system_user).
    #[must_use]
    pub fn is_system_user(&self, user: &Credentials) -> bool {
        claims(&user.jwt, &self.system)
            .is_some_and(|claims| claims["nats"] == user_claims(&self.system_permissions()))
    }

    fn system_permissions(&self) -> Permissions {
        Permissions {
            publish: [UPDATE.to_owned(), lookup(&self.account())].into(),
            subscribe: [format!("{}.>", Duty::Admin.inbox())].into(),
        }
    }

    /// Returns whether this account issued the credentials, for this name and these permissions.
    #[must_use]
    pub fn is_user(&self, user: &Credentials, name: &str, permissions: &Permissions) -> bool {
        claims(&user.jwt, &self.account).is_some_and(|claims| {
            claims["name"] == name && claims["nats"] == user_claims(permissions)
        })
    }

    /// Returns the lines for the configuration of each server. `account` and `system` are the JWTs of the
    /// accounts, and `folder` is where the server stores JWTs that are pushed later. A server asks another one of
    /// its cluster for later JWTs every 2 s, first 2 s after its start: for this long, a server that was down
    /// accepts users who were revoked meanwhile.
    #[must_use]
    pub fn server_lines(
        &self,
        operator: &str,
        account: &str,
        system: &str,
        folder: &str,
    ) -> String {
        let (own, of_system) = (self.account(), self.system());
        format!(
            "operator: {operator}\nsystem_account: {of_system}\n\
             resolver: {{ type: full, dir: {}, allow_delete: false, interval: \"2s\" }}\n\
             resolver_preload: {{\n  {own}: {account}\n  {of_system}: {system}\n}}\n",
            json!(folder)
        )
    }
}

/// What a JWT of the account states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedAccount {
    /// The Unix time at which it was issued.
    pub issued_at: u64,
    /// The revoked users by their public key. Their JWTs of this Unix time and before are not valid.
    pub revoked: BTreeMap<String, u64>,
}

/// The credentials of a user: a JWT and the secret seed of its key.
#[derive(Clone)]
pub struct Credentials {
    jwt: String,
    seed: Zeroizing<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user()).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Parses a credentials file. Returns `None` if it has no JWT or no seed of a user's key.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let part = |kind: &str| {
            let begin = format!("-----BEGIN {kind}-----");
            let rest = text.split_once(&begin)?.1;
            let (part, _) = rest.split_once("\n-----")?;
            Some(part.trim().to_owned())
        };
        let found = Self { jwt: part(USER_JWT)?, seed: Zeroizing::new(part(USER_SEED)?) };
        found.key().is_ok().then_some(found)
    }

    /// Returns the text of a credentials file.
    #[must_use]
    pub fn text(&self) -> Zeroizing<String> {
        Zeroizing::new(format!(
            "-----BEGIN {USER_JWT}-----\n{}\n------END {USER_JWT}------\n\n\
             -----BEGIN {USER_SEED}-----\n{}\n------END {USER_SEED}------\n",
            self.jwt, *self.seed
        ))
    }

    /// Returns the user's public key.
    #[must_use]
    pub fn user(&self) -> String {
        self.key().map(|key| key.public_key()).unwrap_or_default()
    }

    /// Returns the Unix time at which the JWT was issued, or 0 if it does not state one.
    #[must_use]
    pub fn issued_at(&self) -> u64 {
        body(&self.jwt).and_then(|claims| claims["iat"].as_u64()).unwrap_or(0)
    }

    /// Returns the JWT and the signature of a server's nonce.
    pub(crate) fn answer(&self, nonce: &[u8]) -> Result<(String, Vec<u8>), String> {
        let key = self.key().map_err(|error| error.to_string())?;
        let signature = key.sign(nonce).map_err(|error| error.to_string())?;
        Ok((self.jwt.clone(), signature))
    }

    fn key(&self) -> Result<KeyPair, StreamError> {
        KeyPair::from_seed(&self.seed)
            .ok()
            .filter(|key| key.key_pair_type() == KeyPairType::User)
            .ok_or_else(|| StreamError::BadSetting("the credentials have no key of a user".into()))
    }
}

/// Returns the Unix time at which a JWT was issued, or 0 if it states none.
#[must_use]
pub fn jwt_issued_at(jwt: &str) -> u64 {
    body(jwt).and_then(|claims| claims["iat"].as_u64()).unwrap_or(0)
}

fn account_claims(revoked: &BTreeMap<String, u64>) -> Value {
    let mut claims = limits();
    for name in ["mem_storage", "disk_storage", "streams", "consumer", "max_ack_pending"] {
        claims["limits"][name] = json!(-1);
    }
    if !revoked.is_empty() {
        claims["revocations"] = json!(revoked);
    }
    claims
}

fn system_claims() -> Value {
    limits()
}

fn limits() -> Value {
    json!({
        "limits": { "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1,
            "wildcards": true, "conn": -1, "leaf": -1 },
        "type": "account",
        "version": 2,
    })
}

fn user_claims(permissions: &Permissions) -> Value {
    json!({ "pub": { "allow": permissions.publish }, "sub": { "allow": permissions.subscribe },
        "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2 })
}

fn seed(key: &KeyPair) -> Result<Zeroizing<String>, StreamError> {
    key.seed().map(Zeroizing::new).map_err(|_| unsigned())
}

fn unsigned() -> StreamError {
    StreamError::BadSetting("a key has no seed, so nothing can be signed with it".to_owned())
}

/// Returns a JWT about the public key `subject`.
fn sign(
    signer: &KeyPair,
    subject: &str,
    name: &str,
    at: u64,
    nats: &Value,
) -> Result<String, StreamError> {
    let mut id = [0; 16];
    getrandom::fill(&mut id)
        .map_err(|error| StreamError::BadSetting(format!("no random numbers: {error}")))?;
    let claims = json!({ "jti": hex::encode(id), "iat": at, "iss": signer.public_key(),
        "name": name, "sub": subject, "nats": nats });
    let head = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let signed =
        format!("{}.{}", BASE64.encode(head.to_string()), BASE64.encode(claims.to_string()));
    let signature = signer.sign(signed.as_bytes()).map_err(|_| unsigned())?;
    Ok(format!("{signed}.{}", BASE64.encode(signature)))
}

/// Returns the claims of a JWT if this key signed it.
fn claims(jwt: &str, signer: &KeyPair) -> Option<Value> {
    let (signed, signature) = jwt.trim().rsplit_once('.')?;
    signer.verify(signed.as_bytes(), &BASE64.decode(signature).ok()?).ok()?;
    body(jwt)
}

/// Returns the claims of a JWT without a check of its signature.
fn body(jwt: &str) -> Option<Value> {
    serde_json::from_slice(&BASE64.decode(jwt.trim().split('.').nth(1)?).ok()?).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn keys_and_credentials_read_back_and_are_not_shown() {
        let authority = Authority::generate();
        let [operator, account, system] = authority.seeds().unwrap();
        let again = Authority::from_seeds(&operator, &account, &system).unwrap();
        assert_eq!((again.account(), again.system()), (authority.account(), authority.system()));
        assert!(Authority::from_seeds(&account, &account, &system).is_err());

        let permissions = Permissions::of("s", &[Duty::Serve]);
        let user = authority.user("serve1", &permissions, None, 5).unwrap();
        let read = Credentials::parse(&user.text()).unwrap();
        assert_eq!((read.user(), read.issued_at()), (user.user(), 5));
        assert!(again.is_user(&read, "serve1", &permissions));
        assert!(!again.is_user(&read, "serve2", &permissions));
        assert!(!again.is_user(&read, "serve1", &Permissions::of("s", &[Duty::Worker])));
        assert!(!Authority::generate().is_user(&read, "serve1", &permissions));
        let later = authority.user("serve1", &permissions, Some(&read), 6).unwrap();
        assert_eq!(later.user(), user.user());
        for shown in [format!("{authority:?}"), format!("{user:?}")] {
            for secret in [&*operator, &*account, &*user.seed] {
                assert!(!shown.contains(secret), "{shown}");
            }
        }
        for text in ["", "nonsense", &later.text().replace("SU", "XX")] {
            assert!(Credentials::parse(text).is_none());
        }
    }

    #[test]
    fn an_account_has_its_revocations_and_at_most_so_many() {
        let authority = Authority::generate();
        let revoked = BTreeMap::from([("UABC".to_owned(), 7)]);
        let jwt = authority.account_jwt("own", &revoked, 9).unwrap();
        assert!(authority.is_account_jwt(&jwt, "own", &revoked));
        assert!(!authority.is_account_jwt(&jwt, "own", &BTreeMap::new()));
        assert_eq!(jwt_issued_at(&jwt), 9);
        let many = (0..=MAX_REVOKED as u64).map(|n| (n.to_string(), n)).collect();
        assert!(authority.account_jwt("own", &many, 9).is_err());
    }

    #[test]
    fn a_jwt_of_the_account_is_read_only_if_this_operator_signed_it() {
        let authority = Authority::generate();
        let revoked = BTreeMap::from([("UABC".to_owned(), 7), ("UDEF".to_owned(), 8)]);
        let jwt = authority.account_jwt("own", &revoked, 9).unwrap();
        let issued = IssuedAccount { issued_at: 9, revoked };
        assert_eq!(authority.read_account(&format!("{jwt}\n")), Some(issued));
        let none = authority.account_jwt("own", &BTreeMap::new(), 10).unwrap();
        let issued = IssuedAccount { issued_at: 10, revoked: BTreeMap::new() };
        assert_eq!(authority.read_account(&none), Some(issued));

        let [_, account, system] = authority.seeds().unwrap();
        let stranger = Authority::generate();
        let [operator, ..] = stranger.seeds().unwrap();
        let other = Authority::from_seeds(&operator, &account, &system).unwrap();
        let by_other = other.account_jwt("own", &BTreeMap::new(), 11).unwrap();
        let altered = jwt.replacen('.', ".x", 1);
        let of_system = authority.system_jwt(9).unwrap();
        for refused in [&*by_other, &altered, &of_system, "", "a.b.c"] {
            assert_eq!(authority.read_account(refused), None, "{refused}");
        }
    }

    #[test]
    fn credentials_of_the_system_account_without_the_permissions_are_recognised() {
        let authority = Authority::generate();
        assert!(authority.is_system_user(&authority.system_user(5).unwrap()));
        assert!(!Authority::generate().is_system_user(&authority.system_user(5).unwrap()));
        // What an earlier version has issued.
        let permissions = Permissions {
            publish: [UPDATE.to_owned()].into(),
            subscribe: [format!("{}.>", Duty::Admin.inbox())].into(),
        };
        let key = KeyPair::new_user();
        let claims = user_claims(&permissions);
        let jwt = sign(&authority.system, &key.public_key(), SYSTEM, 5, &claims).unwrap();
        let earlier = Credentials { jwt, seed: seed(&key).unwrap() };
        assert!(!authority.is_system_user(&earlier));
    }
}
