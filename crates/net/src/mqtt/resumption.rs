//! How a parent that was restarted takes up the session that the broker kept (MQTT 5).
//!
//! The client refuses to publish in a session that it has no memory of, since a packet of QoS 2 may be half delivered. Ours are of
//! QoS 1, of which a broker remembers nothing (MQTT 5, section 4.1), and what was on its way is said again by the protocol above. So
//! the memory of every session is the same: nothing was on its way.

use std::pin::Pin;

use rumqttc_v5::{
    PersistedAckMode, PersistedSession, SessionStore, SessionStoreError, SessionStoreKey,
};

/// Remembers of every session that nothing was on its way.
#[derive(Debug)]
pub(super) struct NothingOnItsWay {
    /// What the client's options say, too.
    pub(super) in_flight: u16,
}

type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, SessionStoreError>> + Send + 'a>>;

impl SessionStore for NothingOnItsWay {
    fn load<'a>(&'a self, key: &'a SessionStoreKey) -> Reply<'a, Option<PersistedSession>> {
        let session = PersistedSession {
            format_version: 1,
            client_id: key.client_id().to_owned(),
            clean_start: false,
            session_expiry_interval: None,
            outgoing_inflight_upper_limit: Some(self.in_flight),
            ack_mode: PersistedAckMode::Automatic,
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
