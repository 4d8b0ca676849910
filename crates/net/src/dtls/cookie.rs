//! Cookies: a client shows that it receives datagrams at its address before the server keeps state
//! (RFC 6347, section 4.2.1).

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit as _, Mac as _};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::hello::{COOKIE, ClientHello};

/// A secret is used for new cookies for this time, and accepted for twice this time.
const ROTATION: Duration = Duration::from_secs(60);

type Secret = Zeroizing<[u8; 32]>;

/// The secrets of the cookies. A server forgets them when it stops; clients then repeat their first
/// message.
pub(super) struct Cookies {
    current: Secret,
    previous: Secret,
    since: Instant,
}

impl Cookies {
    /// Creates random secrets.
    pub(super) fn new(now: Instant) -> Result<Self, getrandom::Error> {
        Ok(Self { current: random()?, previous: random()?, since: now })
    }

    /// Returns the cookie of a ClientHello from this address.
    pub(super) fn cookie(
        &mut self,
        now: Instant,
        from: SocketAddr,
        hello: &ClientHello<'_>,
    ) -> [u8; COOKIE] {
        self.rotate(now);
        compute(&self.current, from, hello)
    }

    /// Returns whether the ClientHello has a cookie that this server made for this address and the
    /// same parameters at most two minutes ago.
    pub(super) fn is_valid(
        &mut self,
        now: Instant,
        from: SocketAddr,
        hello: &ClientHello<'_>,
    ) -> bool {
        self.rotate(now);
        let is_of = |secret| bool::from(compute(secret, from, hello)[..].ct_eq(hello.cookie));
        hello.cookie.len() == COOKIE && (is_of(&self.current) || is_of(&self.previous))
    }

    fn rotate(&mut self, now: Instant) {
        let age = now.saturating_duration_since(self.since);
        // If the system has no randomness at the moment, the secrets stay in use.
        if age < ROTATION {
            return;
        }
        let Ok(fresh) = random() else { return };
        let old = std::mem::replace(&mut self.current, fresh);
        self.since = now;
        if age < 2 * ROTATION {
            self.previous = old;
        } else if let Ok(fresh) = random() {
            self.previous = fresh;
        }
    }
}

fn random() -> Result<Secret, getrandom::Error> {
    let mut secret = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *secret)?;
    Ok(secret)
}

#[allow(clippy::expect_used)]
fn compute(secret: &Secret, from: SocketAddr, hello: &ClientHello<'_>) -> [u8; COOKIE] {
    let mut mac =
        Hmac::<sha2::Sha256>::new_from_slice(&secret[..]).expect("HMAC takes keys of any length");
    let address = match from.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    mac.update(&address.octets());
    mac.update(&from.port().to_be_bytes());
    mac.update(&(hello.before.len() as u64).to_be_bytes());
    mac.update(hello.before);
    mac.update(hello.after);
    mac.finalize().into_bytes().into()
}
