//! `moteseal gateway sum`: runs an aggregator in the tree of private sums.

use std::io::Write as _;

use moteseal_gateway::sum::number::NumberFile;
use moteseal_gateway::sum::service::SumGateway;
use moteseal_gateway::sum::{Aggregator, Member};
use moteseal_net::link::until_up;
use moteseal_net::mqtt::{MqttChild, MqttParent};
use moteseal_net::{ChildLink as _, ParentLink as _};
use moteseal_service::stop_signal;

use super::{Run, metrics, of_group, valid};
use crate::aggregation;
use crate::cloud::{log, runtime};
use crate::config::{self, aggregator_options};
use crate::failure::{Exit, Failure};
use crate::files;
use crate::progress::count;

pub(super) fn serve(arguments: &Run) -> Result<(), Failure> {
    let file = &arguments.config;
    let (config, folder): (config::Aggregator, _) = config::load(file)?;
    let in_key = |key: &'static str| move |failure: Failure| failure.about_key(file, key);
    let roster = files::roster(&folder.join(&config.roster), &folder.join(&config.operator))
        .map_err(in_key("roster"))?;
    let querier = files::public_key(&folder.join(&config.querier)).map_err(in_key("querier"))?;
    let tree = aggregation::tree(&folder.join(&config.tree), &roster).map_err(in_key("tree"))?;
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
    let id = aggregator.id().ok_or_else(unknown)?;
    let up_secret = files::link_secret(&folder.join(&config.up_secret), &roster, Some(id))
        .map_err(in_key("up_secret"))?;
    files::check_querier(&roster, &querier).map_err(in_key("querier"))?;
    let link = aggregator_options(&config.link, "link", file, &folder, &roster, &config.name)?;
    let (up_table, up_link) =
        config.up_link.as_ref().map_or(("link", &config.link), |up| ("up_link", up));
    let up_link_options = aggregator_options(up_link, up_table, file, &folder, &roster, parent)?;
    let members: Vec<[u8; 8]> = aggregator.children().iter().map(|child| child.id.0).collect();
    let state = folder.join(&config.state);
    if state.exists() && !state.is_dir() {
        return Err(in_key("state")(Failure::usage(format_args!(
            "{} is a file; name a folder",
            state.display()
        ))));
    }
    if arguments.check {
        // This reads the brokers' addresses and files but sends nothing, because the links' tasks
        // do not run.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::new(Exit::Internal, error))?;
        runtime.block_on(async {
            MqttParent::new(&link, members)
                .map(drop)
                .map_err(|error| Failure::from(error).about_key(file, "link"))?;
            let up = MqttChild::new(&up_link_options, id.0).map(drop);
            up.map_err(|error| Failure::from(error).about_key(file, up_table))
        })?;
        let gateways = aggregator.children().iter().filter(|child| child.is_gateway).count() as u64;
        let devices = aggregator.children().len() as u64 - gateways;
        let beneath: u64 = aggregator.children().iter().map(|child| u64::from(child.sources)).sum();
        let waits = config.grace.as_millis() * u128::from(aggregator.height());
        return valid(&[
            ("group", of_group(&roster)),
            ("gateway", format!("{} ({id}), {} beneath it", config.name, count(beneath, "device"))),
            (
                "children",
                format!("{} and {}", count(gateways, "gateway"), count(devices, "device")),
            ),
            ("link", format!("{} as {}", config.link.url, link.group)),
            ("above", format!("{parent}, {} as {}", up_link.url, up_link_options.group)),
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
    }
    log(arguments.log);
    let (number_file, number) = NumberFile::open(&state)?;
    let member = Member {
        roster: &roster,
        tree: &tree,
        name: &config.name,
        querier: &querier,
        children_secret: &children_secret,
        up_secret: &up_secret,
        grace: config.grace,
        number,
    };
    let aggregator = Aggregator::new(&member).ok_or_else(unknown)?;
    runtime()?.block_on(async move {
        let children = MqttParent::new(&link, members)?;
        let up = MqttChild::new(&up_link_options, id.0)?;
        let bound = SumGateway::bind(aggregator, number_file, config.listen).await;
        let gateway = bound?;
        if let Some(address) = gateway.address() {
            // A closed stdout does not stop the service.
            let _ = writeln!(std::io::stdout(), "http://{address}");
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
        let ended = gateway.run(children, up, stop).await;
        match refusal {
            Some(error) => Err(error.into()),
            None => ended.map_err(Failure::from),
        }
    })
}
