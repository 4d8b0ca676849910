//! What the servers know of the account and the folder does not.
//!
//! A folder that was restored from a backup lacks the revocations since the backup, and a server accepts an
//! older JWT of the account in place of a newer one. The folder therefore takes over the revocations in the
//! JWT that the servers have, before its own JWT is passed to them: what was revoked stays revoked.

use std::collections::BTreeMap;

use moteseal_stream::{Authority, Duty, StreamError, fetch_account};

use super::config::{Policy, Stream};
use super::folder::{Folder, Writer};
use crate::cloud::runtime;
use crate::failure::{Exit, Failure};

/// The account with the revocations of the folder and of the servers.
pub(super) struct Merged {
    /// The JWT to pass to the servers, or why no server returned the account that it has. Then none may get another
    /// one, which could lack a revocation.
    pub(super) jwt: Result<String, StreamError>,
    /// The number of revocations that the folder lacked.
    pub(super) added: usize,
}

/// Adds the revocations of the servers to those of the folder, which is locked.
pub(super) fn merge(policy: &Policy, stream: &Stream, folder: &Folder) -> Result<Merged, Failure> {
    for name in ["keys/account.jwt", "nats.conf"] {
        folder.must_read(name)?;
    }
    let mut writer = Writer::open(folder)?;
    let authority = writer.authority()?;
    writer.system_user(&authority)?;
    let credentials = folder.path("keys/system.creds");
    let settings = stream.settings(Some(credentials), Duty::Admin.inbox());
    let found = match runtime()?.block_on(fetch_account(settings, &authority.account())) {
        Ok(found) => found,
        Err(error @ StreamError::BadSetting(_)) => return Err(error.into()),
        Err(error) => return Ok(Merged { jwt: Err(error), added: 0 }),
    };
    let own = folder.must_read("keys/account.jwt")?;
    let others = found.iter().map(String::as_str).filter(|jwt| *jwt != own.trim());
    let (after, revoked) = read(&authority, others)?;
    let added =
        revoked.into_iter().filter(|(user, until)| writer.revocations.add(user.clone(), *until));
    let added = added.count();
    if added > 0 {
        writer.save()?;
    }
    let jwt = writer.servers(&authority, stream, after)?;
    if policy.keyspace.is_some() && !folder.revoked(policy, &writer.revocations)?.is_empty() {
        writer.roles(policy)?;
    }
    Ok(Merged { jwt: Ok(jwt), added })
}

/// Returns the latest time of JWTs of the account, and all their revocations.
fn read<'a>(
    authority: &Authority,
    jwts: impl Iterator<Item = &'a str>,
) -> Result<(Option<u64>, BTreeMap<String, u64>), Failure> {
    let (mut latest, mut revoked) = (None, BTreeMap::new());
    for jwt in jwts {
        let Some(account) = authority.read_account(jwt) else {
            let what = "the operator key of this folder has not signed the account that the NATS servers \
                        have; use the folder that belongs to these servers";
            return Err(Failure::new(Exit::Refused, what));
        };
        latest = latest.max(Some(account.issued_at));
        for (user, until) in account.revoked {
            let known = revoked.entry(user).or_insert(until);
            *known = until.max(*known);
        }
    }
    Ok((latest, revoked))
}
