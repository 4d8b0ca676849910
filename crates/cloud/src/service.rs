//! A running cloud. It listens, serves requests, and finishes the requests in progress before it
//! stops.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use hyper_util::service::TowerToHyperService;
use moteseal_api::ErrorKind;
use moteseal_net::Client;
use moteseal_service::log_limit::log_suppressed;
use moteseal_service::metrics::UPKEEP;
use moteseal_service::{ConnectionLimits, ListenError, Listener};
use moteseal_store::EpochStore;
use moteseal_verify::Roster;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::access::Access;
use crate::coap::{CoapError, Listen, Sockets};
use crate::config::Config;
use crate::follow::Follower;
use crate::limits::Limits;
use crate::password::PasswordError;
use crate::queue::Queue;
use crate::router;
use crate::state::Shared;
use crate::token::TokensError;
use crate::users::UsersError;

/// The maximum length of a request's head, in bytes.
const HEAD_BYTES: usize = 128 << 10;

/// Why a cloud does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The cloud cannot use the address or the TLS files.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The cloud cannot use the file of tokens.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// The cloud cannot use the table of users.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// The cloud cannot listen for CoAP.
    #[error(transparent)]
    Coap(#[from] CoapError),
    /// The system has no random bytes.
    #[error(transparent)]
    Random(#[from] PasswordError),
}

impl StartError {
    /// Returns the error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Listen(error) => error.name(),
            Self::Tokens(_) => "BadFile",
            Self::Users(error) => error.name(),
            Self::Coap(error) => error.name(),
            Self::Random(error) => error.name(),
        }
    }

    /// Returns the kind, which states whether the configuration is wrong or the machine failed.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Listen(error) => error.kind(),
            Self::Tokens(error) => error.kind(),
            Self::Users(error) => error.kind(),
            Self::Coap(error) => error.kind(),
            Self::Random(error) => error.kind(),
        }
    }
}

moteseal_api::named_error!(StartError);

/// A cloud that listens on its address but does not serve requests yet.
pub struct Cloud {
    listener: Listener,
    sockets: Sockets,
    router: Router,
    shared: Arc<Shared>,
    rosters: Option<watch::Receiver<Arc<Roster>>>,
    followers: Vec<Follower>,
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cloud").field("url", &self.url()).finish_non_exhaustive()
    }
}

impl Cloud {
    /// Checks the configuration and listens on its address. Call [`run`](Self::run) to serve
    /// requests.
    ///
    /// # Errors
    /// [`StartError`] if the cloud cannot use the address, the TLS files, the file of tokens or the
    /// table of users.
    pub async fn bind(config: Config, store: Arc<dyn EpochStore>) -> Result<Self, StartError> {
        let access = Access::open(config.tokens.as_deref(), config.users.as_deref())?;
        let listener = Listener::bind(config.listen, config.tls.as_ref()).await?;
        let shared = Arc::new(Shared::new(config.roster, store, access, config.limits));
        let router = router::router(Arc::clone(&shared));
        Ok(Self {
            listener,
            sockets: Sockets::default(),
            router,
            shared,
            rosters: None,
            followers: Vec::new(),
        })
    }

    /// Makes the cloud listen for CoAP, too.
    ///
    /// # Errors
    /// `Coap` if the cloud cannot use an address.
    pub fn with_coap(self, listen: Listen) -> Result<Self, StartError> {
        let sockets = listen.open(&self.shared, &self.router)?;
        Ok(Self { sockets, ..self })
    }

    /// Tells the cloud that its uploads go through a queue, and whether it accepts uploads and serves
    /// reads.
    #[must_use]
    pub fn with_queue(self, queue: Queue) -> Self {
        // A cloud that was just bound has no queue.
        let _ = self.shared.queue.set(queue);
        self
    }

    /// Makes the cloud continue with each later version of the roster that `rosters` has while it
    /// runs. The sender has checked that each version succeeds the one before it.
    #[must_use]
    pub fn with_rosters(self, rosters: watch::Receiver<Arc<Roster>>) -> Self {
        Self { rosters: Some(rosters), ..self }
    }

    /// Makes the cloud follow other clouds: it fetches what they have and it does not, verifies it
    /// with its own roster and stores it. It asks each of them for news at the interval `every`.
    #[must_use]
    pub fn with_followed(mut self, clouds: Vec<Client>, every: Duration) -> Self {
        let follower = |(number, client)| Follower::new(&self.shared, number, client, every);
        self.followers = clouds.into_iter().enumerate().map(follower).collect();
        self
    }

    /// Returns the address on which the cloud listens, with the actual port.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Returns the URL for clients.
    #[must_use]
    pub fn url(&self) -> String {
        self.listener.url()
    }

    /// Returns the URLs for clients over CoAP.
    #[must_use]
    pub fn coap_urls(&self) -> &[String] {
        &self.sockets.urls
    }

    /// Serves requests until `stop` completes. Then the cloud accepts no more connections, lets
    /// requests in progress finish within [`Limits::stop_time`], and returns.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        let Self { listener, sockets, router, shared, mut rosters, followers } = self;
        let credentials = shared.access.is_required();
        info!(url = listener.url(), tls = listener.is_tls(), credentials, "serving");
        if credentials && !listener.is_tls() && !listener.address().ip().is_loopback() {
            warn!(
                "clients send tokens and passwords unencrypted, unless a proxy terminates TLS; use \
                 --tls-cert, or listen on the loopback interface"
            );
        }
        for url in &sockets.urls {
            info!(url, "serving");
        }
        let service = TowerToHyperService::new(router);
        let limits = connection_limits(&shared.limits);
        let stop = async {
            stop.await;
            shared.stopping.store(true, Ordering::Relaxed);
            // Clients that wait for urgent events receive their answers now.
            shared.urgent.send_modify(|count| *count = count.wrapping_add(1));
        };
        let upkeep = async {
            let mut interval = tokio::time::interval(UPKEEP);
            loop {
                interval.tick().await;
                shared.metrics.upkeep();
                shared.metrics.credential_files_unusable.set(shared.access.unusable_files());
                shared.metrics.set_refused(&sockets.refused());
                log_suppressed(&shared.log.suppressed());
                log_suppressed(&shared.findings_log.suppressed());
            }
        };
        let load = async {
            while let Some(rosters) = &mut rosters
                && rosters.changed().await.is_ok()
            {
                let roster = Arc::clone(&rosters.borrow_and_update());
                info!(version = roster.version(), "loaded a later version of the roster");
                shared.load(roster);
            }
            std::future::pending::<()>().await;
        };
        let follow = async {
            let mut running: JoinSet<()> = followers.into_iter().map(Follower::run).collect();
            while running.join_next().await.is_some() {}
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = load => {}
            () = follow => {}
            () = listener.serve(service, &limits, Some(&shared.metrics.connections), stop) => {}
            () = upkeep => {}
        }
        drop(sockets);
        log_suppressed(&shared.log.finish());
        log_suppressed(&shared.findings_log.finish());
    }
}

fn connection_limits(limits: &Limits) -> ConnectionLimits {
    ConnectionLimits {
        connections: limits.connections,
        peer_percent: limits.peer_percent,
        head_time: limits.head_time,
        head_bytes: HEAD_BYTES,
        connection_time: None,
        write_stall: limits.write_stall,
        write_rate: limits.write_rate,
        stop_time: limits.stop_time,
    }
}
