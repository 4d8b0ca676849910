//! Passwords that have been verified, so that the next request with the same password costs
//! microseconds instead of a hash.
//!
//! A password is kept as a digest that is keyed with a random secret of the process. It is valid
//! only for the hash with which it was verified: a user that was revoked, or whose password was
//! changed, is not served from here.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use moteseal_core::Digest;
use moteseal_service::Peer;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::password::{PasswordError, PasswordHash};
use crate::users::Users;

/// The number of addresses that are kept for each user.
const PEERS: usize = 8;

pub(crate) struct Verified {
    secret: Zeroizing<[u8; 32]>,
    /// At most one entry for each user of the table.
    users: Mutex<HashMap<String, Login>>,
}

struct Login {
    hash: PasswordHash,
    keyed: Keyed,
    /// The addresses from which the user has logged in, the newest last.
    peers: VecDeque<Peer>,
}

/// The keyed digest of a name and a password.
pub(crate) struct Keyed(Digest);

impl fmt::Debug for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verified(secret)")
    }
}

impl Verified {
    pub(crate) fn new() -> Result<Self, PasswordError> {
        let mut secret = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *secret).map_err(|error| PasswordError::Failed(error.to_string()))?;
        Ok(Self { secret, users: Mutex::default() })
    }

    /// Returns the keyed digest of a password. Its parts have a fixed length or, like the name, no
    /// zero byte, so that no two inputs are the same bytes.
    pub(crate) fn keyed(&self, name: &str, password: &[u8]) -> Keyed {
        Keyed(Digest::of(&[&*self.secret, name.as_bytes(), &[0], password]))
    }

    /// Returns whether this password was verified with this hash.
    pub(crate) fn has(&self, name: &str, hash: &PasswordHash, keyed: &Keyed) -> bool {
        self.lock().get(name).is_some_and(|login| {
            login.hash == *hash && bool::from(login.keyed.0.0.ct_eq(&keyed.0.0))
        })
    }

    /// Returns whether the user has logged in from this address, possibly with an earlier password.
    pub(crate) fn knows(&self, name: &str, peer: Peer) -> bool {
        self.lock().get(name).is_some_and(|login| login.peers.contains(&peer))
    }

    /// Keeps a verified password. Removes the users that are not in the table.
    pub(crate) fn add(
        &self,
        users: &Users,
        name: &str,
        hash: PasswordHash,
        keyed: Keyed,
        peer: Peer,
    ) {
        let mut known = self.lock();
        known.retain(|name, _| users.get(name).is_some());
        let mut peers = known.remove(name).map(|login| login.peers).unwrap_or_default();
        peers.retain(|known| *known != peer);
        peers.push_back(peer);
        while peers.len() > PEERS {
            peers.pop_front();
        }
        known.insert(name.to_owned(), Login { hash, keyed, peers });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Login>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
