//! Allows a parent that restarted to resume the session that the broker kept (MQTT 5).
//!
//! Without a stored state, the client library refuses to publish in a resumed session, because a
//! packet with QoS 2 may have been half delivered. Moteseal uses only QoS 1 in these sessions, for
//! which a broker keeps no such state (MQTT 5, section 4.1), and the protocol of the frames repeats
//! frames that were in transit. This module therefore gives the library the same state for every
//! session: nothing is in transit.

use std::pin::Pin;

use rumqttc_v5::{
    PersistedAckMode, PersistedSession, SessionStore, SessionStoreError, SessionStoreKey,
};

/// A session store which always returns that nothing is in transit.
#[derive(Debug)]
pub(super) struct NothingInTransit {
    /// The maximum number of packets in transit. It must be the same as in the client's options.
    pub(super) in_flight: u16,
    /// Whether the caller acknowledges messages itself. It must be the same as in the client's
    /// options.
    pub(super) is_manual: bool,
}

type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, SessionStoreError>> + Send + 'a>>;

impl SessionStore for NothingInTransit {
    fn load<'a>(&'a self, key: &'a SessionStoreKey) -> Reply<'a, Option<PersistedSession>> {
        let session = PersistedSession {
            format_version: 1,
            client_id: key.client_id().to_owned(),
            clean_start: false,
            session_expiry_interval: None,
            outgoing_inflight_upper_limit: Some(self.in_flight),
            ack_mode: if self.is_manual {
                PersistedAckMode::Manual
            } else {
                PersistedAckMode::Automatic
            },
            last_pkid: 0,
            last_puback: 0,
            replay: Vec::new(),
            incoming_qos2: Vec::new(),
        };
        Box::pin(async { Ok(Some(session)) })
    }

    fn save<'a>(&'a self, _: &'a SessionStoreKey, _: &'a PersistedSession) -> Reply<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn clear<'a>(&'a self, _: &'a SessionStoreKey) -> Reply<'a, ()> {
        Box::pin(async { Ok(()) })
    }
}
