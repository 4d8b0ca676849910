//! `moteseal gateway sum`: runs an aggregator in the tree of private sums.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use moteseal_client::input::LinkSecret;
use moteseal_client::sum::TreeSource;
use moteseal_core::roster::Directory as _;
use moteseal_core::signature::PublicKey;
use moteseal_gateway::sum::number::NumberFile;
use moteseal_gateway::sum::service::{LoadVersion, SumGateway, Versions};
use moteseal_gateway::sum::{Aggregator, Member};
use moteseal_net::link::until_up;
use moteseal_net::mqtt::MqttParent;
use moteseal_net::{ChildLink as _, ParentLink as _};
use moteseal_service::stop_signal;
use moteseal_verify::{Roster, SumGroup};
use tokio::sync::watch;
use tracing::warn;

use super::{Run, metrics, of_group, valid};
use crate::aggregation;
use crate::cloud::{log, runtime};
use crate::config::{self, link_group, link_options};
use crate::failure::{Exit, Failure};
use crate::files;
use crate::links::{Children, Listen, parent_address};
use crate::process_health;
use crate::progress::count;
use crate::roster_watch::RosterWatch;
use crate::succession::{Succession, record_roster};

/// A gateway's place in the tree and its secrets, which do not depend on the version of the group.
struct Place {
    name: String,
    /// The querier's public key, if the roster does not name it.
    querier: PublicKey,
    children_secret: LinkSecret,
    up_secret: LinkSecret,
    grace: Duration,
    /// The highest number of a query schedule that the gateway accepted before its start.
    number: u64,
}

impl Place {
    fn member<'a>(&'a self, group: &'a SumGroup) -> Member<'a> {
        Member {
            roster: &group.roster,
            tree: &group.tree,
            name: &self.name,
            querier: group.querier_in_roster().unwrap_or(&self.querier),
            children_secret: &self.children_secret,
            up_secret: &self.up_secret,
            grace: self.grace,
            number: self.number,
        }
    }
}

/// Returns the querier's public key in the configuration, or the one in the roster if the
/// configuration names none.
fn querier_key(
    config: &config::Aggregator,
    folder: &Path,
    group: &SumGroup,
) -> Result<PublicKey, Failure> {
    let Some(path) = &config.querier else {
        return group.querier_in_roster().cloned().ok_or_else(|| {
            let what = format_args!(
                "the roster does not name the querier {:?}; name the file with its public key",
                group.tree.querier_name()
            );
            Failure::usage(what)
        });
    };
    files::public_key(&folder.join(path))
}

/// Returns the failure for a configuration that names another querier than the roster.
fn other_querier(roster: &Roster) -> Failure {
    let what = format_args!(
        "version {} of the roster names another querier; leave this key out to use the roster's",
        roster.version()
    );
    Failure::usage(what).with_name("WrongQuerier")
}

pub(super) fn serve(arguments: &Run) -> Result<(), Failure> {
    let file = &arguments.config;
    let (config, folder): (config::Aggregator, _) = config::load(file)?;
    let in_key = |key: &'static str| move |failure: Failure| failure.about_key(file, key);
    let (roster_path, operator) = (folder.join(&config.roster), folder.join(&config.operator));
    let (roster_watch, roster) =
        RosterWatch::open(roster_path.clone(), operator.clone()).map_err(in_key("roster"))?;
    let tree_path = folder.join(&config.tree);
    let roster_watch = roster_watch.with_tree(tree_path.clone());
    let tree = aggregation::tree(&tree_path, &roster).map_err(in_key("tree"))?;
    let group = SumGroup::new(roster.clone(), tree.clone());
    let querier_key = querier_key(&config, &folder, &group).map_err(in_key("querier"))?;
    let differs = group.querier_in_roster().is_some_and(|querier| *querier != querier_key);
    if differs && arguments.check {
        return Err(other_querier(&roster)).map_err(in_key("querier"));
    }
    let children_secret = files::link_secret(&folder.join(&config.link_secret), &roster, None)
        .map_err(in_key("link_secret"))?;
    let unknown = || {
        let names = tree.gateways().take(8).collect::<Vec<_>>().join(", ");
        in_key("name")(Failure::usage(format_args!(
            "UnknownGateway: the tree has no gateway {:?}; it has {names}",
            config.name
        )))
    };
    let (parent, aggregator) =
        tree.parent(&config.name).zip(tree.aggregator(&config.name)).ok_or_else(unknown)?;
    let parent = parent.to_owned();
    let id = aggregator.id().ok_or_else(unknown)?;
    let up_secret = files::link_secret(&folder.join(&config.up_secret), &roster, Some(id))
        .map_err(in_key("up_secret"))?;
    let listen = Listen {
        coap: arguments.listen_coap.or(config.listen_coap),
        coaps: arguments.listen_coaps.or(config.listen_coaps),
        certificates: config.coaps.as_ref(),
    };
    listen.check(config.link.as_ref(), file)?;
    let own_group = link_group(&roster, Some(&config.name));
    let link = config.link.as_ref();
    let link = link.map(|link| link_options(link, "link", file, &folder, own_group.clone()));
    let link = link.transpose()?;
    let (up_table, up_link) = match (&config.up_link, &config.link) {
        (Some(up), _) => ("up_link", up),
        (None, Some(link)) => ("link", link),
        (None, None) => {
            let what =
                "name the broker or the address of this gateway's parent in the table [up_link]";
            return Err(in_key("up_link")(Failure::usage(what)));
        }
    };
    let up_group = link_group(&roster, Some(&parent));
    let up = parent_address(up_link, (up_table, file, &folder), up_group, &up_secret)?;
    let members: Vec<[u8; 8]> = aggregator.children().iter().map(|child| child.id.0).collect();
    let state = folder.join(&config.state);
    if state.exists() && !state.is_dir() {
        return Err(in_key("state")(Failure::usage(format_args!(
            "{} is a file; name a folder",
            state.display()
        ))));
    }
    config.health.refuse_streams(file)?;
    let folder_key = [("state", config.health.state.is_some())];
    config.health.refuse(file, &folder_key, "the key state of the gateway names the folder")?;
    config.health.policy(file)?;
    let record = state.join("roster");
    let succession = Succession::check(record.clone(), &roster, &roster_path, &operator)
        .map_err(in_key("roster"))?;
    if arguments.check {
        // This reads the brokers' addresses and files but sends nothing, because the links' tasks
        // do not run.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::new(Exit::Internal, error))?;
        runtime.block_on(async {
            link.as_ref()
                .map(|link| MqttParent::new(link, members))
                .transpose()
                .map_err(|error| Failure::from(error).about_key(file, "link"))?;
            up.open(id.0).map(drop).map_err(|error| Failure::from(error).about_key(file, up_table))
        })?;
        let gateways = aggregator.children().iter().filter(|child| child.is_gateway).count() as u64;
        let devices = aggregator.children().len() as u64 - gateways;
        let beneath: u64 = aggregator.children().iter().map(|child| u64::from(child.sources)).sum();
        let waits = config.grace.as_millis() * u128::from(aggregator.height());
        let mut rows = vec![
            ("group", of_group(&roster)),
            ("gateway", format!("{} ({id}), {} beneath it", config.name, count(beneath, "device"))),
            (
                "children",
                format!("{} and {}", count(gateways, "gateway"), count(devices, "device")),
            ),
        ];
        rows.extend(
            config.link.iter().map(|link| ("link", format!("{} as {own_group}", link.url))),
        );
        rows.extend(listen.urls().into_iter().map(|url| ("link", format!("{url} as {own_group}"))));
        rows.extend([
            ("above", format!("{parent}, {} as {}", up.url(), up.group())),
            ("secret", children_secret.parent().unwrap_or_default().to_owned()),
            ("up_secret", up_secret.parent().unwrap_or("unknown").to_owned()),
            ("state", state.display().to_string()),
            (
                "epochs",
                format!(
                    "are forwarded when all children have answered, at the latest {waits} ms after their end"
                ),
            ),
            ("listen", metrics(config.listen)),
        ]);
        return valid(&rows);
    }
    log(arguments.log);
    if differs {
        warn!("{}; the roster's is used", other_querier(&roster).about_key(file, "querier"));
    }
    let (number_file, number) = NumberFile::open(&state)?;
    succession.record()?;
    let health = process_health::open(&config.name, (&config.health, file), &state, |_| {})?;
    let configured_querier = querier_key.clone();
    let link_secret = children_secret.clone();
    let place = Place {
        name: config.name.clone(),
        querier: querier_key,
        children_secret,
        up_secret,
        grace: config.grace,
        number,
    };
    let aggregator = Aggregator::new(&place.member(&group)).ok_or_else(unknown)?;
    let (newest, versions) = watch::channel(group);
    let load: LoadVersion =
        Box::new(move |aggregator, group| aggregator.load(&place.member(group)).is_some());
    let versions = Versions { newest: versions, load };
    let accept = |group: &SumGroup| {
        let now = group.tree.parent(&config.name).ok_or_else(|| {
            let what = format_args!("the tree no longer has the gateway {:?}", config.name);
            Failure::usage(what).about(&tree_path)
        })?;
        if now != parent {
            let what = format_args!(
                "the tree moves {:?} from {parent:?} to {now:?}; give it the link secret of its new parent, and restart it",
                config.name
            );
            return Err(Failure::usage(what).about(&tree_path));
        }
        if config.querier.is_some()
            && group.querier_in_roster().is_some_and(|querier| *querier != configured_querier)
        {
            warn!(
                "{}; the roster's is used",
                other_querier(&group.roster).about_key(file, "querier")
            );
        }
        record_roster(&record, &group.roster)
    };
    runtime()?.block_on(async {
        let of = Children { group: roster.group(), name: own_group, members, secret: &link_secret };
        let (children, urls) = listen.open(link.as_ref(), of, (file, &folder), None)?;
        let up = up.open(id.0)?;
        let bound = SumGateway::bind(aggregator, number_file, config.listen).await;
        let gateway = bound?
            .with_versions(versions)
            .with_more_metrics(process_health::metrics(&health, "aggregator"));
        let served = process_health::serve(config.health.listen, &health)?;
        if let Some(address) = gateway.address() {
            // A closed stdout does not stop the service.
            let _ = writeln!(std::io::stdout(), "http://{address}");
        }
        for url in urls.into_iter().chain(served.as_ref().map(|(_, url)| url.clone())) {
            let _ = writeln!(std::io::stdout(), "{url}");
        }
        let refused = |state| async move {
            // Give up if a broker refuses the login; keep waiting if it is unreachable.
            match until_up(state).await {
                Err(error) if error.is_refusal() => error,
                _ => std::future::pending().await,
            }
        };
        let (children_refused, up_refused) = (refused(children.state()), refused(up.state()));
        // Stop cleanly in both cases: after a signal and after a refusal.
        let mut refusal = None;
        let stop = async {
            tokio::select! {
                _ = stop_signal() => {}
                error = children_refused => refusal = Some(error),
                error = up_refused => refusal = Some(error),
            }
        };
        let ended = tokio::select! {
            ended = gateway.run(children, up, stop) => ended,
            () = health.run() => Ok(()),
            () = aggregation::follow(roster_watch, TreeSource::File(tree_path.clone()), newest, accept) => Ok(()),
        };
        match refusal {
            Some(error) => Err(error.into()),
            None => ended.map_err(Failure::from),
        }
    })
}
