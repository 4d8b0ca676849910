//! The metrics of a gateway for serial lines. Most of them are counted for each port.

use std::sync::atomic::{AtomicBool, Ordering};

use metrics::{Counter, Gauge, Label};
use moteseal_net::serial::Counted;
use moteseal_serial::Channel;
use moteseal_service::Table;

const REJECTED: &str = "moteseal_serial_refused_total";
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

#[derive(Debug)]
pub(super) struct SerialMetrics {
    table: Table,
    pub(super) broadcasts_too_long: Counter,
}

/// The metrics of one port.
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

/// Returns the label of a channel.
const fn name(channel: Channel) -> &'static str {
    match channel {
        Channel::Coordinator => "coordinator",
        Channel::CoordinatorAnnouncement => "coordinator_announcement",
        Channel::Sums => "sums",
        Channel::SumsAnnouncement => "sums_announcement",
        Channel::Broadcast => "broadcast",
        Channel::Time => "time",
        Channel::Firmware => "firmware",
    }
}

impl SerialMetrics {
    pub(super) fn new() -> Self {
        let table = Table::new();
        let counter = |name, about| table.describe_counter(name, about);
        counter(REJECTED, "Rejected HELLOs and frames of motes, by port and name of the reason.");
        counter(UP, "Frames forwarded from motes, by port and channel.");
        counter(DOWN, "Frames forwarded to motes, by port and channel.");
        counter(LOST, "Frames that a link or the mote did not accept, by port.");
        counter(
            OPENED,
            "How often a mote opened the line, by port; a mote does so after each restart.",
        );
        counter(CONNECTIONS, "How often the port was opened, by port.");
        counter(DROPPED, "Invalid packets, by port; most are noise.");
        counter(REPEATED, "Packets sent again, by port.");
        table.describe_gauge(OPEN, "1 while a mote responds at the port.");
        table.describe_gauge(JOINED, "1 while the mote at the port is joined to the links.");
        let too_long =
            "Broadcast frames that were dropped because they are too long for a serial line.";
        Self { broadcasts_too_long: table.counter(TOO_LONG, too_long), table }
    }

    /// Returns the metrics of the port with this address.
    pub(super) fn port(&self, address: &str) -> PortMetrics {
        let labels = || vec![Label::new("port", address.to_owned())];
        let counter = |name| self.table.counter_with(name, labels());
        let gauge = |name| self.table.gauge_with(name, labels());
        PortMetrics {
            name: address.to_owned(),
            open: gauge(OPEN),
            joined: gauge(JOINED),
            lost: counter(LOST),
            opened: counter(OPENED),
            connections: counter(CONNECTIONS),
            dropped: counter(DROPPED),
            repeated: counter(REPEATED),
            is_open: AtomicBool::new(false),
            is_cut_off: AtomicBool::new(false),
        }
    }

    /// Counts a rejection at a port. The reasons are a fixed set, so the number of labels is
    /// bounded.
    pub(super) fn refused(&self, port: &PortMetrics, reason: &'static str) {
        let labels = vec![Label::new("port", port.name.clone()), Label::new("name", reason)];
        self.table.counter_with(REJECTED, labels).increment(1);
    }

    /// Counts a forwarded frame.
    pub(super) fn passed(&self, port: &PortMetrics, channel: Channel, is_up: bool) {
        let what = if is_up { UP } else { DOWN };
        let channel = Label::new("channel", name(channel));
        let labels = vec![Label::new("port", port.name.clone()), channel];
        self.table.counter_with(what, labels).increment(1);
    }

    /// Returns all metrics in the Prometheus text format.
    pub(super) fn render(&self) -> String {
        self.table.render()
    }

    pub(super) fn upkeep(&self) {
        self.table.upkeep();
    }
}

impl PortMetrics {
    /// Returns whether a mote responds at the port.
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Returns whether a link of the port's mote is down.
    pub(super) fn is_cut_off(&self) -> bool {
        self.is_cut_off.load(Ordering::Relaxed)
    }

    /// Records whether a mote responds. Returns the previous value.
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

    /// Adds what the line has counted since `reported` to the metrics, and updates `reported`.
    pub(super) fn count(&self, counted: &Counted, reported: &mut Counted) {
        let more = |now: u32, before: u32| u64::from(now.saturating_sub(before));
        let (line, before) = (counted.line, reported.line);
        self.lost
            .increment(more(line.lost, before.lost) + more(counted.too_long, reported.too_long));
        self.opened.increment(more(line.opened, before.opened));
        self.connections.increment(more(counted.connections, reported.connections));
        self.dropped.increment(more(line.dropped, before.dropped));
        self.repeated.increment(more(line.repeated, before.repeated));
        *reported = *counted;
    }
}
