//! Builds a querier from its files, so that it is ready to announce one query and to run it.

use std::path::Path;
use std::time::Duration;

use moteseal_api::NamedError as _;
use moteseal_core::record::DeviceId;
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::{PublicKey, SecretKey};
use moteseal_core::signed_time::TimeSigner;
use moteseal_lanes::Host;
use moteseal_net::ParentLink as _;
use moteseal_net::link::until_up_within;
use moteseal_net::mqtt::{MqttParent, Options};
use moteseal_sum::key_file::{Circle, Masked, QuerierKeys};
use moteseal_sum::query::{MAX_PLAN, Plan};
use moteseal_verify::{Roster, SumGroup};
use tokio::sync::watch;

use super::config::{QuerierConfig, narrow};
use super::open_epochs::Row;
use super::participants::Participants;
use super::policy_file::PolicyFile;
use super::querier::{PoseError, Querier, Question, default_floor, default_min_count};
use super::querier_state::{AskedQuery, QuerierState, QuerierStateError, RunningQuery};
use super::row_values::RowNames;
use super::run_query::{Endpoint, Later, RunError, RunOptions, run_query};
use crate::error::OutputError;
use crate::input::{self, InputError, LinkSecret};
use crate::time_server::{TimeServer, time_members, time_topic, unix_ms};

/// The maximum time to reach the broker.
pub(super) const REACHED_WITHIN: Duration = Duration::from_secs(10);
/// If a querier stops without withdrawing its query, the query ends after this time.
const LEASE: Duration = Duration::from_secs(3600);

/// The minimums that a result must reach. A minimum that is `None` has its default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Minimums {
    /// The number of participants for which a sum is opened; the default is more than half of the
    /// sources.
    pub participants: Option<u32>,
    /// The number of readings for which results are not withheld; the default is that of
    /// [`default_min_count`].
    pub readings: Option<u32>,
}

/// A query that is ready to be announced.
#[derive(Debug)]
pub struct PreparedQuery {
    querier: Querier<Host>,
    group: SumGroup,
    keys: QuerierKeys,
    /// The minimum number of participants, if it is not the default.
    floor: Option<u32>,
    signer: SecretKey,
    link_secret: LinkSecret,
    link: Options,
    state: QuerierState,
    running: RunningQuery,
    /// The query that is continued, if it was asked before.
    continued: Option<AskedQuery>,
    names: RowNames,
    grace: Duration,
    plan: String,
}

/// Where a query comes from.
enum Source<'a> {
    Text(&'a str),
    Asked(&'a AskedQuery),
}

impl PreparedQuery {
    /// Reads the files of a configuration and derives the keys of the query. `progress` is called
    /// with the number of sources whose keys were derived since the last call.
    ///
    /// # Errors
    /// [`InputError`], which names the wrong key of the configuration. A mistake in the text of the
    /// query has a [`column`](InputError::column).
    pub fn new(
        text: &str,
        roster: &Roster,
        config: &QuerierConfig,
        minimums: Minimums,
        progress: &(dyn Fn(usize) + Sync),
    ) -> Result<Self, InputError> {
        let state = querier_state(config)?;
        Self::prepare(&Source::Text(text), state, roster, config, minimums, progress)
    }

    /// Like [`new`](Self::new), but continues the query whose id begins with these hexadecimal
    /// digits, after the process that ran it was killed. Minimums that are `None` are those of the
    /// query.
    ///
    /// # Errors
    /// [`InputError`]: `UnknownQuery` if the querier's state has no such query, and `QuerierBusy` if
    /// another process runs it.
    pub fn attach(
        digits: &str,
        roster: &Roster,
        config: &QuerierConfig,
        minimums: Minimums,
        progress: &(dyn Fn(usize) + Sync),
    ) -> Result<Self, InputError> {
        let state = querier_state(config)?;
        let (_, query) = state.find(digits).map_err(|error| state_error(&error))?;
        let minimums = Minimums {
            participants: minimums.participants.or(query.floor),
            readings: minimums.readings.or(Some(query.min_count)),
        };
        Self::prepare(&Source::Asked(&query), state, roster, config, minimums, progress)
    }

    fn prepare(
        source: &Source<'_>,
        state: QuerierState,
        roster: &Roster,
        config: &QuerierConfig,
        minimums: Minimums,
        progress: &(dyn Fn(usize) + Sync),
    ) -> Result<Self, InputError> {
        let at = |key: &'static str| move |error: InputError| error.at(key);
        let mut buffer = [0; MAX_SCHEMA];
        let schema = schema(&config.columns, &mut buffer).map_err(at("columns"))?;
        let mut plan = match source {
            Source::Text(text) => Plan::parse(text, &schema)
                .map_err(|error| InputError::usage(error.name(), error).column_at(error.column))?,
            Source::Asked(query) => {
                let plan = Plan::decode(&query.plan).map_err(InputError::internal)?;
                let bound = plan.bind(&schema);
                bound.map_err(|error| InputError::usage(error.name(), error).at("columns"))?;
                plan
            }
        };
        let signer = input::secret_key(&config.key).map_err(at("key"))?;
        let keys = querier_keys(&config.keys, roster).map_err(at("keys"))?;
        check_signer(&keys, roster, &signer.public(), &config.key)?;
        let policy = config.policy.as_ref();
        let policy = policy.map(|path| PolicyFile::read(path, roster, &config.operator));
        let policy = policy.transpose().map_err(at("policy"))?;
        // Devices refuse other ranges than those of the policy, except with noise.
        let declare = |plan: &mut Plan<'_>, is_due: bool| {
            if let Some(policy) = policy.as_ref().filter(|_| is_due) {
                policy.declare_ranges(&signer.public(), plan);
            }
        };
        let sources = u32::try_from(roster.sources().len()).unwrap_or(u32::MAX);
        if let Source::Text(_) = source {
            let has_noise = plan.has_noise();
            declare(&mut plan, has_noise);
            narrow_all(&mut plan, &schema, config)?;
            declare(&mut plan, !has_noise);
            plan.fit(sources);
        }
        let masked = match &policy {
            Some(policy) => {
                let permitted =
                    policy.policy()?.permit(&signer.public(), &plan, largest_ring(&keys));
                let permitted =
                    permitted.map_err(|error| InputError::usage(error.name(), error).at("policy"));
                permitted?.is_masked().then(|| with_masks(&keys, sources))
            }
            None => None,
        };
        let group = SumGroup::new(roster.clone(), config.tree.open(roster)?);
        check_name(&keys, &group)?;
        let link_secret =
            LinkSecret::read(&config.link_secret, roster, None).map_err(at("link_secret"))?;
        let link = config.link.options(roster, keys.name.as_str())?;

        let sources = group.sources_at(unix_ms());
        let floor = minimums.participants;
        if let Some(floor) = floor.filter(|floor| *floor > sources) {
            return Err(pose_error(&PoseError::FloorOutOfRange { floor, sources }));
        }
        let mut bytes = [0; MAX_PLAN];
        let encoded = plan.encode(&mut bytes).map_err(InputError::internal)?.to_vec();
        let (mut nonce, mut continued) = ([0; 16], None);
        match source {
            Source::Text(_) => random(&mut nonce)?,
            Source::Asked(query) => {
                nonce = query.nonce;
                continued = Some((*query).clone());
            }
        }
        let question = Question {
            group: keys.circle.group,
            roster: keys.name.set_up_digest(&keys.circle.roster),
            nonce,
            plan: encoded,
            key_group: keys.circle.key_group,
            floor: floor.unwrap_or_else(|| default_floor(sources)),
            masked,
            min_count: minimums.readings.unwrap_or_else(|| default_min_count(&plan)),
        };
        let devices: Vec<DeviceId> = roster.sources().iter().map(|device| device.id).collect();
        let querier = Querier::new(question, &keys.master, &devices, Host::detect(), progress);
        let querier = querier.map_err(|error| pose_error(&error))?;
        let names = RowNames::new(&plan, &schema);
        let running = state.reserve(querier.id()).map_err(|error| state_error(&error))?;
        let (grace, plan) = (config.grace, plan.to_string());
        Ok(Self {
            querier,
            group,
            keys,
            floor,
            signer,
            link_secret,
            link,
            state,
            running,
            continued,
            names,
            grace,
            plan,
        })
    }

    /// Returns the query's id as hexadecimal digits.
    #[must_use]
    pub fn id(&self) -> String {
        self.querier.id().to_string()
    }

    /// Returns the query in canonical form.
    #[must_use]
    pub fn plan(&self) -> &str {
        &self.plan
    }

    /// Returns the minimum number of participants for which a sum is opened.
    #[must_use]
    pub const fn floor(&self) -> u32 {
        self.querier.question().floor
    }

    /// Returns the minimum number of readings for which results are not withheld.
    #[must_use]
    pub const fn min_count(&self) -> u32 {
        self.querier.question().min_count
    }

    /// Returns the number of devices that are asked now.
    #[must_use]
    pub fn sources(&self) -> u32 {
        self.group.sources_at(unix_ms())
    }

    /// Returns the group: the version of the roster, and its tree.
    #[must_use]
    pub const fn group(&self) -> &SumGroup {
        &self.group
    }

    /// Returns the names that a [`RowWriter`](super::RowWriter) needs.
    #[must_use]
    pub fn names(&self) -> RowNames {
        self.names.clone()
    }

    /// Runs the query over the broker until `epochs` epochs have ended (without a limit if `None`), the
    /// query is stopped, or `stop` completes. A query that is continued keeps its limit if `epochs` is
    /// `None`. Calls `started` once the broker is reached. Loads the later versions of
    /// the group that `later` delivers; their sender has checked them. Returns how many epochs have
    /// no row, as [`run_query()`] does.
    ///
    /// # Errors
    /// [`RunError`], if the link, the querier's state or the output fails.
    pub async fn run(
        self,
        epochs: Option<u64>,
        later: Option<watch::Receiver<SumGroup>>,
        started: impl FnOnce(),
        rows: &mut dyn FnMut(&Row) -> Result<(), OutputError>,
        stop: impl Future<Output = ()>,
    ) -> Result<u64, RunError> {
        let Self {
            querier,
            group,
            keys,
            floor,
            signer,
            link_secret,
            link: broker,
            state,
            running,
            continued,
            grace,
            ..
        } = self;
        let members: Vec<[u8; 8]> =
            group.tree.querier().children().iter().map(|child| child.id.0).collect();
        let mut stop = std::pin::pin!(stop);
        let link = MqttParent::named(&broker, members, &format!("query-{}", running.place()))?;
        tokio::select! {
            reached = until_up_within(link.state(), REACHED_WITHIN) => reached?,
            () = &mut stop => return Ok(0),
        }
        started();
        let time_link = Options { group: time_topic(keys.circle.group), ..broker };
        // Other clients of this link are motes, the operator, and `moteseal time serve`.
        let client = format!("of-{}", keys.name);
        let time_link =
            MqttParent::one_of_several(&time_link, time_members(&group.roster), &client)?;
        let (members, changes) = watch::channel(time_members(&group.roster));
        let time = TimeServer::new(keys.circle.group, TimeSigner::Querier, &signer, &unix_ms);
        let endpoint = Endpoint {
            link: &link,
            link_secret: &link_secret,
            master: &keys.master,
            signer: &signer,
            state: &state,
            unix_ms: &unix_ms,
        };
        let has_default_floor = floor.is_none();
        let options = RunOptions { epochs, continued, grace, has_default_floor, lease: LEASE };
        let querier_key = signer.public();
        let versions = later.clone();
        let later = later.map(|newest| Later { newest, querier: querier_key });
        tokio::select! {
            ended = run_query(endpoint, group, querier, options, later, rows, stop) => ended,
            failed = time.serve(&time_link, changes) => match failed? {},
            () = follow_members(versions, members) => Ok(0),
        }
    }
}

/// Passes on the devices of each later version of the roster. Does not return.
async fn follow_members(
    versions: Option<watch::Receiver<SumGroup>>,
    members: watch::Sender<Vec<[u8; 8]>>,
) {
    if let Some(mut versions) = versions {
        while versions.changed().await.is_ok() {
            members.send_replace(time_members(&versions.borrow_and_update().roster));
        }
    }
    std::future::pending::<()>().await;
}

pub(super) fn querier_state(config: &QuerierConfig) -> Result<QuerierState, InputError> {
    QuerierState::open(&config.state).map_err(|error| state_error(&error))
}

pub(super) fn state_error(error: &QuerierStateError) -> InputError {
    InputError::new(error.name(), error.kind(), error).at("state")
}

/// Fills a buffer with random bytes from the operating system.
pub(super) fn random(bytes: &mut [u8]) -> Result<(), InputError> {
    getrandom::fill(bytes).map_err(|error| {
        InputError::internal(format_args!("cannot get random bytes from the system: {error}"))
    })
}

/// Parses columns in the notation of `moteseal seal` and returns their schema.
fn schema<'b>(
    columns: &[String],
    buffer: &'b mut [u8; MAX_SCHEMA],
) -> Result<Schema<'b>, InputError> {
    let fields = columns.iter().map(|column| {
        Field::parse(column).map_err(|error| {
            let what = format_args!(
                "{error}; a column is NAME:UNIT:TYPE, for example temperature:Cel:i16/100"
            );
            InputError::usage(error.name(), what).at(format_args!("{column:?}"))
        })
    });
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    if fields.is_empty() {
        return Err(InputError::argument(
            "name the columns that the devices seal, for example \"temperature:Cel:i16/100\"",
        ));
    }
    Schema::encode(&fields, buffer).map_err(|error| InputError::usage(error.name(), error))
}

/// Narrows the values of the columns of a query to the configured ranges.
fn narrow_all(
    plan: &mut Plan<'_>,
    schema: &Schema<'_>,
    config: &QuerierConfig,
) -> Result<(), InputError> {
    for (column, range) in &config.ranges {
        let at = |error: InputError| error.at(format_args!("ranges.{column}"));
        if schema.field(column).is_none() {
            return Err(at(InputError::usage("UnknownColumn", "`columns` lacks this column")));
        }
        narrow(plan, column, range).map_err(at)?;
    }
    Ok(())
}

/// Returns the devices of a roster with `sources` devices that have masks.
pub(super) fn with_masks(keys: &QuerierKeys, sources: u32) -> Participants {
    let mut all = Participants::none(sources);
    keys.masked.iter().flat_map(Masked::runs).for_each(|run| all.insert(run));
    all
}

/// Returns the number of devices in the largest ring; `None` without masks. Devices of smaller rings
/// check a query themselves.
fn largest_ring(keys: &QuerierKeys) -> Option<u32> {
    keys.masked.as_ref()?;
    let Circle { sources, key_group, .. } = keys.circle;
    let masked = with_masks(keys, sources);
    let starts = (0..sources).step_by(key_group as usize);
    starts.map(|start| masked.count_in(&keys.circle.ring(start))).max()
}

/// Checks that devices accept query schedules of this key, which is in the file `path`.
pub(super) fn check_signer(
    keys: &QuerierKeys,
    roster: &Roster,
    signer: &PublicKey,
    path: &Path,
) -> Result<(), InputError> {
    if keys.name.is_default() && roster.querier().is_some() {
        return input::check_querier(roster, signer).map_err(|error| error.at("key"));
    }
    if keys.querier == *signer {
        return Ok(());
    }
    let what = format_args!(
        "{} is not the key that `sum setup` was called with, so no device would answer; use that key",
        path.display()
    );
    Err(InputError::usage("WrongQuerier", what).at("key"))
}

/// Checks that the tree is that of the querier in the key file.
pub(super) fn check_name(keys: &QuerierKeys, group: &SumGroup) -> Result<(), InputError> {
    let found = group.tree.querier_name();
    if found == keys.name.as_str() {
        return Ok(());
    }
    let what = format_args!(
        "this is the tree of the querier {found:?}, and the keys are those of {:?}; use its tree, or \
         write querier = {:?} at the start of the file",
        keys.name, keys.name
    );
    Err(InputError::usage("WrongQuerier", what).at("tree"))
}

/// Reads the querier's keys and checks that they belong to this group.
pub(super) fn querier_keys(path: &Path, roster: &Roster) -> Result<QuerierKeys, InputError> {
    let keys = QuerierKeys::decode(&input::read(path)?)
        .map_err(|error| InputError::usage(error.name(), error).in_file(path))?;
    keys.circle
        .check(roster.group(), &roster.first_digest())
        .map_err(|error| InputError::usage(error.name(), error).in_file(path))?;
    Ok(keys)
}

fn pose_error(error: &PoseError) -> InputError {
    match error {
        PoseError::FloorOutOfRange { .. } => InputError::usage(error.name(), error),
        PoseError::Overflow(_) => InputError::usage(
            error.name(),
            format_args!("{error}: narrow its values with [ranges] in the configuration"),
        ),
        PoseError::Plan(_) => InputError::internal(error.named()),
    }
}
