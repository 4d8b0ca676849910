//! What an operator watches of a gateway for serial lines, in Prometheus' text format; most of it
//! by port.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use moteseal_net::serial::Counted;
use moteseal_serial::Channel;

const REFUSED: &str = "moteseal_serial_refused_total";
const UP: &str = "moteseal_serial_frames_up_total";
const DOWN: &str = "moteseal_serial_frames_down_total";
const LOST: &str = "moteseal_serial_frames_lost_total";
const OPEN: &str = "moteseal_serial_line_open";
const JOINED: &str = "moteseal_serial_joined";
const OPENED: &str = "moteseal_serial_opened_total";
const CONNECTIONS: &str = "moteseal_serial_connections_total";
const DROPPED: &str = "moteseal_serial_packets_dropped_total";
const REPEATED: &str = "moteseal_serial_packets_repeated_total";
const TOO_LONG: &str = "moteseal_serial_broadcasts_too_long_total";

pub(super) struct SerialMetrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    pub(super) broadcasts_too_long: Counter,
}

/// Those of one port.
pub(super) struct PortMetrics {
    name: String,
    open: Gauge,
    joined: Gauge,
    pub(super) lost: Counter,
    opened: Counter,
    connections: Counter,
    dropped: Counter,
    repeated: Counter,
    is_open: AtomicBool,
    is_cut_off: AtomicBool,
}

/// What a channel is called.
const fn name(channel: Channel) -> &'static str {
    match channel {
        Channel::Coordinator => "coordinator",
        Channel::CoordinatorAnnouncement => "coordinator_announcement",
        Channel::Sums => "sums",
        Channel::SumsAnnouncement => "sums_announcement",
        Channel::Broadcast => "broadcast",
        Channel::Time => "time",
    }
}

impl SerialMetrics {
    pub(super) fn new() -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        let broadcasts_too_long = metrics::with_local_recorder(&recorder, || {
            describe_counter!(
                REFUSED,
                "HELLOs and frames of motes that were refused, by port and by the name of the reason."
            );
            describe_counter!(UP, "Frames of motes that were passed on, by port and channel.");
            describe_counter!(DOWN, "Frames that were passed on to motes, by port and channel.");
            describe_counter!(
                LOST,
                "Frames that were lost here, by port: a link did not take them, or the mote did not."
            );
            describe_gauge!(OPEN, "1 while a mote answers at the port.");
            describe_gauge!(JOINED, "1 while the mote at the port is joined to the group's links.");
            describe_counter!(
                OPENED,
                "How often the line was opened, by port: more than once where a mote starts anew."
            );
            describe_counter!(CONNECTIONS, "How often the port was opened, by port.");
            describe_counter!(DROPPED, "Packets that were none, by port: noise, most of all.");
            describe_counter!(REPEATED, "Packets that were sent again, by port.");
            describe_counter!(
                TOO_LONG,
                "Broadcast frames that are longer than any serial line carries."
            );
            counter!(TOO_LONG)
        });
        Self { recorder, handle, broadcasts_too_long }
    }

    /// The metrics of the port at an address.
    pub(super) fn port(&self, address: &str) -> PortMetrics {
        let name = address.to_owned();
        let counted = |what: &'static str| counter!(what, "port" => name.clone());
        let measured = |what: &'static str| gauge!(what, "port" => name.clone());
        metrics::with_local_recorder(&self.recorder, || PortMetrics {
            open: measured(OPEN),
            joined: measured(JOINED),
            lost: counted(LOST),
            opened: counted(OPENED),
            connections: counted(CONNECTIONS),
            dropped: counted(DROPPED),
            repeated: counted(REPEATED),
            is_open: AtomicBool::new(false),
            is_cut_off: AtomicBool::new(false),
            name: name.clone(),
        })
    }

    /// Counts what was refused at a port. Names are ours, so there are few.
    pub(super) fn refused(&self, port: &PortMetrics, reason: &'static str) {
        let count =
            || counter!(REFUSED, "port" => port.name.clone(), "name" => reason).increment(1);
        metrics::with_local_recorder(&self.recorder, count);
    }

    /// Counts a frame that was passed on.
    pub(super) fn passed(&self, port: &PortMetrics, channel: Channel, is_up: bool) {
        let what = if is_up { UP } else { DOWN };
        let count =
            || counter!(what, "port" => port.name.clone(), "channel" => name(channel)).increment(1);
        metrics::with_local_recorder(&self.recorder, count);
    }

    pub(super) fn render(&self) -> String {
        self.handle.render()
    }

    pub(super) fn upkeep(&self) {
        self.handle.run_upkeep();
    }
}

impl PortMetrics {
    /// Whether a mote answers there.
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Whether a joined mote has a link that is down.
    pub(super) fn is_cut_off(&self) -> bool {
        self.is_cut_off.load(Ordering::Relaxed)
    }

    /// Says whether a mote answers; whether it did before.
    pub(super) fn set_open(&self, is_open: bool) -> bool {
        self.open.set(f64::from(u8::from(is_open)));
        self.is_open.swap(is_open, Ordering::Relaxed)
    }

    pub(super) fn set_joined(&self, is_joined: bool) {
        self.joined.set(f64::from(u8::from(is_joined)));
    }

    pub(super) fn set_cut_off(&self, is_cut_off: bool) {
        self.is_cut_off.store(is_cut_off, Ordering::Relaxed);
    }

    /// What the line has counted.
    pub(super) fn count(&self, counted: &Counted, told: &mut Counted) {
        let more = |now: u32, before: u32| u64::from(now.saturating_sub(before));
        let (line, before) = (counted.line, told.line);
        self.lost.increment(more(line.lost, before.lost) + more(counted.too_long, told.too_long));
        self.opened.increment(more(line.opened, before.opened));
        self.connections.increment(more(counted.connections, told.connections));
        self.dropped.increment(more(line.dropped, before.dropped));
        self.repeated.increment(more(line.repeated, before.repeated));
        *told = *counted;
    }
}

impl fmt::Debug for SerialMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SerialMetrics")
    }
}
