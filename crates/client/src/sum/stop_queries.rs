//! Stops running queries, whether or not their processes still run.

use moteseal_core::signature::SecretKey;
use moteseal_net::ParentLink as _;
use moteseal_net::link::until_up_within;
use moteseal_net::mqtt::{MqttParent, Options};
use moteseal_sum::key_file::Circle;
use moteseal_sum::query::QueryId;
use moteseal_verify::Roster;

use super::config::QuerierConfig;
use super::prepare::{REACHED_WITHIN, check_signer, querier_keys, querier_state, state_error};
use super::querier_state::{AskedQuery, QuerierState};
use super::run_query::{FAREWELL, RunError};
use crate::input::{self, InputError};
use crate::time_server::unix_ms;

/// Queries that can be stopped.
#[derive(Debug)]
pub struct StopQueries {
    state: QuerierState,
    circle: Circle,
    signer: SecretKey,
    link: Options,
    queries: Vec<(QueryId, AskedQuery)>,
}

impl StopQueries {
    /// Reads the files of a configuration, and finds the queries whose ids begin with these
    /// hexadecimal digits.
    ///
    /// # Errors
    /// [`InputError`], which names the wrong key of the configuration: `UnknownQuery` if the
    /// querier's state does not have exactly one query for each of `ids`.
    pub fn new(
        ids: &[String],
        roster: &Roster,
        config: &QuerierConfig,
    ) -> Result<Self, InputError> {
        let at = |key: &'static str| move |error: InputError| error.at(key);
        let signer = input::secret_key(&config.key).map_err(at("key"))?;
        let keys = querier_keys(&config.keys, roster).map_err(at("keys"))?;
        check_signer(&keys, roster, &signer.public(), &config.key)?;
        let sources = u32::try_from(roster.sources().len()).unwrap_or(u32::MAX);
        let state = querier_state(config)?;
        let found = ids.iter().map(|digits| state.find(digits));
        let mut queries: Vec<_> =
            found.collect::<Result<_, _>>().map_err(|error| state_error(&error))?;
        queries.sort_by_key(|(id, _)| id.0);
        queries.dedup_by_key(|(id, _)| id.0);
        let set_up = keys.name.set_up_digest(&keys.circle.roster);
        let circle = Circle { sources, roster: set_up, ..keys.circle };
        Ok(Self {
            state,
            circle,
            signer,
            link: config.link.options(roster, keys.name.as_str())?,
            queries,
        })
    }

    /// Returns the queries.
    #[must_use]
    pub fn queries(&self) -> &[(QueryId, AskedQuery)] {
        &self.queries
    }

    /// Stops the queries. If devices still answer one of them, announces a query schedule without
    /// them over the broker. The processes that run them end within a few seconds.
    ///
    /// # Errors
    /// [`RunError`] if the broker cannot be reached, or the state cannot be written. If the broker
    /// cannot be reached, the state has not changed.
    pub async fn run(self) -> Result<(), RunError> {
        let Self { state, circle, signer, link, queries } = self;
        let is_asked = queries.iter().any(|(_, query)| query.is_asked(unix_ms()));
        let link = if is_asked {
            let link = MqttParent::one_of_several(&link, [], "stop")?;
            until_up_within(link.state(), REACHED_WITHIN).await?;
            Some(link)
        } else {
            None
        };
        for (id, _) in queries {
            let schedule = state.withdraw(&circle, id, &signer, unix_ms())?;
            if let Some(link) = &link {
                link.announce(schedule.into()).await?;
            }
        }
        if link.is_some() {
            tokio::time::sleep(FAREWELL).await;
        }
        Ok(())
    }
}
