//! The sections `sum` of a device's configuration: how it takes part in the private sums of each
//! querier.

use std::collections::BTreeMap;
use std::path::Path;

use futures_util::future::join_all;
use moteseal_api::NamedError as _;
use moteseal_core::DeviceId;
use moteseal_core::link::LinkKey;
use moteseal_core::roster::Directory as _;
use moteseal_device::answerer::Membership;
use moteseal_device::answerers::{Answerers, MAX_MEMBERSHIPS};
use moteseal_net::ParentAddress;
use moteseal_net::link::State;
use moteseal_sum::QuerierName;
use moteseal_sum::key_file::SourceKeys;
use moteseal_verify::Roster;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::config::{self, link_group};
use crate::failure::{Exit, Failure};
use crate::files;
use crate::links;
use crate::policy_watch::PolicyWatch;

/// Reads the device's keys for private sums. `key` is the key of the configuration `file` that names
/// their file.
pub(super) fn source_keys(
    path: &Path,
    (file, key): (&Path, &str),
    roster: &Roster,
    device: DeviceId,
) -> Result<SourceKeys, Failure> {
    let in_key = |failure: Failure| failure.about_key(file, key);
    let wrong = |failure: Failure| in_key(failure.about(path));
    let keys = SourceKeys::decode(&files::read(path).map_err(in_key)?)
        .map_err(|error| wrong(Failure::named(Exit::Usage, error.named())))?;
    keys.circle
        .check(roster.group(), &roster.first_digest())
        .map_err(|error| wrong(Failure::named(Exit::Usage, error.named())))?;
    if keys.device != device {
        let whose = roster.name(keys.device).unwrap_or("another device");
        let what = format_args!("these are the keys of {whose}");
        return Err(wrong(Failure::usage(what).with_name("WrongDevice")));
    }
    if !keys.querier_name.is_default() {
        return Ok(keys);
    }
    Ok(SourceKeys { querier: files::querier(roster, keys.querier.clone(), path), ..keys })
}

/// The state with which the device takes part in the private sums of a querier.
pub(super) struct Sums {
    pub(super) membership: Membership,
    pub(super) link: ParentAddress,
    pub(super) policy: Option<PolicyWatch>,
}

/// Reads the keys and policies of all queriers, and checks that their sections can be used together.
pub(super) fn read_all(
    config: &config::Device,
    file: &Path,
    folder: &Path,
    roster: &Roster,
    device: DeviceId,
) -> Result<Vec<Sums>, Failure> {
    if config.sum.0.len() > MAX_MEMBERSHIPS {
        let what = format_args!("a device has at most {MAX_MEMBERSHIPS} queriers");
        return Err(Failure::usage(what).about_key(file, "sum"));
    }
    let read = |(section, member): (String, _)| {
        Sums::read(&section, member, config, file, folder, roster, device)
    };
    let all = config.sum.named().map(read).collect::<Result<Vec<_>, _>>()?;
    let (mut names, mut parents) = (BTreeMap::new(), BTreeMap::new());
    for ((section, _), sums) in config.sum.named().zip(&all) {
        let Sums { membership: of, link, .. } = sums;
        let clash = |key: &str, what: String| {
            Err(Failure::usage(what).about_key(file, &format!("{section}.{key}")))
        };
        if let Some(other) = names.insert(of.querier_name.id(), section.clone()) {
            let name = of.querier_name;
            let what = format!(
                "{other} also has keys for the querier {name}; set up the sums of another querier with another name: `moteseal sum setup --name`"
            );
            return clash("key", what);
        }
        if let Some(other) = parents.insert((link.url(), link.group()), section.clone()) {
            let what = format!(
                "{other} has the same parent; the gateways in the trees of two queriers need different names"
            );
            return clash("parent", what);
        }
    }
    Ok(all)
}

/// Checks that the device may give exact answers to all queriers. A device that runs continues otherwise,
/// and does not answer these queries.
pub(super) fn check_policies(all: &[Sums], file: &Path) -> Result<(), Failure> {
    let memberships = all.iter().map(|sums| &sums.membership);
    let Some((one, other)) = Answerers::differing(memberships) else { return Ok(()) };
    let [one, other] = [one, other].map(|place| all[place].membership.querier_name);
    let what = format_args!(
        "exact answers to the queriers {one} and {other} would differ by few readings: use the same epoch and the same range for the same column in both policies, and make masks for the same devices in both set-ups"
    );
    Err(Failure::usage(what).with_name("PoliciesDiffer").about_key(file, "sum"))
}

impl Sums {
    fn read(
        section: &str,
        member: &config::Member,
        config: &config::Device,
        file: &Path,
        folder: &Path,
        roster: &Roster,
        device: DeviceId,
    ) -> Result<Self, Failure> {
        let in_key = |key: &'static str| {
            move |failure: Failure| failure.about_key(file, &format!("{section}.{key}"))
        };
        let key = format!("{section}.key");
        let keys = source_keys(&folder.join(&member.key), (file, &key), roster, device)?;
        let secret = files::link_secret(&folder.join(&member.link_secret), roster, Some(device))
            .map_err(in_key("link_secret"))?;
        let link = links::parent_address(
            member.link.as_ref().unwrap_or(&config.link),
            ("link", file, folder),
            link_group(roster, Some(&member.parent)),
            &secret,
        )?;
        let SourceKeys {
            circle,
            position,
            querier_name,
            querier,
            secret: source,
            masks,
            needs_policy,
            ..
        } = keys;
        // File systems may not distinguish names by case.
        let record = folder.join(&config.state).join(if querier_name.is_default() {
            "policy.cbor".to_owned()
        } else {
            format!("policy-{}.cbor", querier_name.id())
        });
        let policy = member.policy.as_ref().map(|path| {
            let operator = folder.join(&config.operator);
            PolicyWatch::open(folder.join(path), roster, operator, record.clone())
        });
        let policy = policy.transpose().map_err(in_key("policy"))?;
        if policy.is_none() && (needs_policy || record.exists()) {
            let text = "the device answers only under a policy, because the set-up made masks or it had \
                        a policy before; sign one with `moteseal sum policy sign` and name it here";
            return Err(in_key("policy")(Failure::usage(text).with_name("PolicyMissing")));
        }
        let membership = Membership {
            querier_name,
            group: circle.group,
            set_up: querier_name.set_up_digest(&circle.roster),
            key_group: circle.key_group,
            position,
            secret: source,
            masks,
            needs_policy,
            policy: policy.as_ref().map(PolicyWatch::payload),
            querier,
            link: LinkKey::new(&secret),
        };
        Ok(Self { membership, link, policy })
    }
}

/// Logs when the links for sums go down and up. A broker that refuses one of them does not end the
/// device: it continues to seal, and to answer the other queriers. Does not return.
pub(super) async fn log_links(links: Vec<(QuerierName, watch::Receiver<State>)>) {
    let all = links.into_iter().map(|(querier, mut state)| async move {
        let mut was_up = true;
        loop {
            match &*state.borrow_and_update() {
                State::Up if !was_up => {
                    was_up = true;
                    info!(%querier, "the link for sums is up");
                }
                State::Down { cause, .. } if was_up => {
                    was_up = false;
                    warn!(%querier, cause = %cause.named(), "no query is answered: the link for sums is down");
                }
                _ => {}
            }
            if state.changed().await.is_err() {
                return;
            }
        }
    });
    join_all(all).await;
    std::future::pending::<()>().await;
}
