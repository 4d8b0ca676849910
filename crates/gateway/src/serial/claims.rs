//! Records which mote is connected at which port. A device can have only one connection to a
//! broker. If two ports opened links for the same mote, each of them would make the broker close
//! the links of the other.

use std::collections::HashMap;

use moteseal_core::DeviceId;
use tokio::sync::watch;

/// The port of each mote.
#[derive(Debug, Default)]
pub(super) struct Claims(watch::Sender<HashMap<DeviceId, usize>>);

impl Claims {
    /// Assigns a mote to a port, unless it is assigned to another port for which `is_open` returns
    /// true. Returns whether the mote is now assigned to `port`.
    pub(super) fn take(
        &self,
        device: DeviceId,
        port: usize,
        is_open: impl Fn(usize) -> bool,
    ) -> bool {
        self.0.send_if_modified(|claims| match claims.get(&device) {
            Some(holder) if *holder != port && is_open(*holder) => false,
            Some(holder) if *holder == port => false,
            _ => {
                claims.insert(device, port);
                true
            }
        });
        self.has(device, port)
    }

    /// Returns whether a mote is assigned to a port.
    pub(super) fn has(&self, device: DeviceId, port: usize) -> bool {
        self.0.borrow().get(&device) == Some(&port)
    }

    /// Ends the assignment of a mote, if it is assigned to this port.
    pub(super) fn give_back(&self, device: DeviceId, port: usize) {
        self.0.send_if_modified(|claims| {
            let is_ours = claims.get(&device) == Some(&port);
            if is_ours {
                claims.remove(&device);
            }
            is_ours
        });
    }

    /// Returns a receiver that is notified when assignments change.
    pub(super) fn moves(&self) -> watch::Receiver<HashMap<DeviceId, usize>> {
        self.0.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOTE: DeviceId = DeviceId([7; 8]);

    #[test]
    fn a_mote_is_at_one_port_until_that_port_is_down() {
        let claims = Claims::default();
        assert!(claims.take(MOTE, 1, |_| true) && claims.take(MOTE, 1, |_| true));
        assert!(!claims.take(MOTE, 2, |_| true) && claims.has(MOTE, 1));
        assert!(claims.take(MOTE, 2, |port| port != 1) && !claims.has(MOTE, 1));
        claims.give_back(MOTE, 1);
        assert!(claims.has(MOTE, 2));
        claims.give_back(MOTE, 2);
        assert!(claims.take(MOTE, 1, |_| true));
    }
}
