//! The health of this machine: the counters of the kernel's network stack, of the interfaces, and the
//! sensors of temperature and battery.
//!
//! A value that the machine does not report is unknown. The offset of the clock is not the machine's: a
//! device compares its clock with its gateway's ([`Figures::clock_offset`]).

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use moteseal_core::health::{Health, Item};

/// The file that counts the starts.
const STARTS: &str = "health.starts";

/// The start of a process, from which its health counts.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    boot: u32,
    at: Instant,
}

impl Start {
    /// Counts this start in the state folder.
    ///
    /// # Errors
    /// The errors of the operating system for the file that counts the starts. If its content is not a
    /// number, counting starts again from 1.
    pub fn count(state: &Path) -> io::Result<Self> {
        moteseal_files::create_folder(state)?;
        let file = state.join(STARTS);
        let before = match fs::read_to_string(&file) {
            Ok(text) => text.trim().parse().unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0_u32,
            Err(error) => return Err(error),
        };
        let boot = before.wrapping_add(1);
        moteseal_files::replace(&file, format!("{boot}\n").as_bytes(), moteseal_files::PRIVATE)?;
        Ok(Self { boot, at: Instant::now() })
    }

    /// Returns a record without values.
    #[must_use]
    pub fn record(&self) -> Health {
        let seconds = u32::try_from(self.at.elapsed().as_secs()).unwrap_or(u32::MAX);
        Health::new(self.boot, seconds)
    }
}

/// The health of this machine since this process started.
#[derive(Debug)]
pub struct HostHealth {
    start: Start,
    sources: Sources,
    counted: Mutex<Counted>,
}

/// What the kernel's counters have counted since the start of the process. They count since the machine's
/// start, and those of interfaces come and go.
#[derive(Debug, Default)]
struct Counted {
    /// The counters that the kernel reported last.
    last: HashMap<String, u64>,
    /// The total of each item of [`COUNTERS`].
    totals: [u64; COUNTERS.len()],
}

impl Counted {
    /// Adds what was counted since the last call. A counter that was not there before begins now; one
    /// that has fallen was reset.
    fn add(&mut self, now: HashMap<String, u64>) {
        for ((_, names), total) in COUNTERS.iter().zip(&mut self.totals) {
            for (key, value) in now.iter().filter(|(key, _)| names.contains(&name_of(key))) {
                let Some(before) = self.last.get(key) else { continue };
                *total = total.wrapping_add(value.checked_sub(*before).unwrap_or(*value));
            }
        }
        self.last = now;
    }

    /// Returns whether the kernel reports one of these counters.
    fn has(&self, names: &[&str]) -> bool {
        self.last.keys().any(|key| names.contains(&name_of(key)))
    }
}

/// Returns the name of a counter without its interface.
fn name_of(key: &str) -> &str {
    key.split_once('@').map_or(key, |(name, _)| name)
}

impl HostHealth {
    /// Counts this start in the state folder, and reads the totals from which the process counts.
    ///
    /// # Errors
    /// The errors of the operating system for the file that counts the starts. If its content is not a
    /// number, counting starts again from 1.
    pub fn open(state: &Path) -> io::Result<Self> {
        Self::open_at(state, Sources { proc: "/proc".into(), sys: "/sys".into() })
    }

    fn open_at(state: &Path, sources: Sources) -> io::Result<Self> {
        let start = Start::count(state)?;
        let counted = Counted { last: sources.counters(), ..Counted::default() };
        Ok(Self { start, sources, counted: Mutex::new(counted) })
    }

    /// Returns the health now.
    #[must_use]
    pub fn sample(&self) -> Health {
        let mut health = self.start.record();
        let counters = self.sources.counters();
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.add(counters);
        for ((item, names), total) in COUNTERS.iter().zip(&counted.totals) {
            if counted.has(names) {
                // Totals are stored modulo 2^32.
                #[allow(clippy::cast_possible_wrap)]
                health.set(*item, *total as i64);
            }
        }
        drop(counted);
        self.sources.sensors(&mut health);
        health
    }
}

/// Where the kernel reports.
#[derive(Debug)]
struct Sources {
    proc: PathBuf,
    sys: PathBuf,
}

/// The items of the network stack, and the counters of `/proc/net` whose sum each is.
const COUNTERS: [(Item, &[&str]); 27] = [
    (Item::IpReceived, &["Ip6InReceives", "Ip.InReceives"]),
    (Item::IpSent, &["Ip6OutRequests", "Ip.OutRequests"]),
    (Item::IpForwarded, &["Ip6OutForwDatagrams", "Ip.ForwDatagrams"]),
    (
        Item::IpDropped,
        &[
            "Ip6InDiscards",
            "Ip6OutDiscards",
            "Ip6InHdrErrors",
            "Ip.InDiscards",
            "Ip.OutDiscards",
            "Ip.InHdrErrors",
        ],
    ),
    (Item::IcmpReceived, &["Icmp6InMsgs", "Icmp.InMsgs"]),
    (Item::IcmpDropped, &["Icmp6InErrors", "Icmp.InErrors"]),
    (Item::IcmpSent, &["Icmp6OutMsgs", "Icmp.OutMsgs"]),
    (Item::UdpReceived, &["Udp6InDatagrams", "Udp.InDatagrams"]),
    (Item::UdpSent, &["Udp6OutDatagrams", "Udp.OutDatagrams"]),
    (Item::UdpDropped, &["Udp6InErrors", "Udp.InErrors"]),
    (Item::UdpBadChecksum, &["Udp6InCsumErrors", "Udp.InCsumErrors"]),
    (Item::TcpReceived, &["Tcp.InSegs"]),
    (Item::TcpSent, &["Tcp.OutSegs"]),
    (Item::TcpDropped, &["Tcp.InErrs"]),
    (Item::TcpReset, &["Tcp.EstabResets"]),
    (Item::TcpAckErrors, &["TcpExt.TCPACKSkippedSeq"]),
    (Item::TcpBadChecksum, &["Tcp.InCsumErrors"]),
    (Item::TcpRetransmitted, &["Tcp.RetransSegs"]),
    (Item::TcpSynDrops, &["TcpExt.ListenDrops"]),
    (Item::TcpSynResets, &["Tcp.OutRsts"]),
    (
        Item::Nd6Sent,
        &["Icmp6OutNeighborSolicits", "Icmp6OutNeighborAdvertisements", "Icmp6OutRouterSolicits"],
    ),
    (
        Item::Nd6Received,
        &[
            "Icmp6InNeighborSolicits",
            "Icmp6InNeighborAdvertisements",
            "Icmp6InRouterAdvertisements",
        ],
    ),
    // The interfaces, without loopback.
    (Item::LinkSent, &["link.tx_packets"]),
    (Item::LinkReceived, &["link.rx_packets"]),
    (Item::LinkBadCrc, &["link.rx_crc_errors"]),
    (Item::LinkBadSync, &["link.rx_frame_errors"]),
    (Item::LinkCollisions, &["link.collisions"]),
];

impl Sources {
    /// Returns the counters that the kernel reports now. The name of an interface follows the counter's.
    fn counters(&self) -> HashMap<String, u64> {
        let mut counters = HashMap::new();
        for name in ["snmp", "netstat"] {
            tables(&self.text(&self.proc, &format!("net/{name}")), &mut counters);
        }
        for line in self.text(&self.proc, "net/snmp6").lines() {
            if let Some((name, value)) = line.split_once(char::is_whitespace) {
                add(&mut counters, name, value);
            }
        }
        self.interfaces(&mut counters);
        counters
    }

    fn text(&self, root: &Path, name: &str) -> String {
        fs::read_to_string(root.join(name)).unwrap_or_default()
    }

    fn interfaces(&self, counters: &mut HashMap<String, u64>) {
        for interface in folders(&self.sys.join("class/net")) {
            if interface.ends_with("lo") {
                continue;
            }
            let of = interface.file_name().unwrap_or_default().to_string_lossy().into_owned();
            for (_, names) in COUNTERS {
                for name in names.iter().filter_map(|name| name.strip_prefix("link.")) {
                    let value = self.text(&interface, &format!("statistics/{name}"));
                    add(counters, &format!("link.{name}@{of}"), &value);
                }
            }
        }
    }

    /// Reads the temperature of the hottest zone, the battery with the lowest charge, and the first
    /// wireless interface.
    fn sensors(&self, health: &mut Health) {
        let number = |folder: &Path, name: &str| self.text(folder, name).trim().parse::<i64>().ok();
        let zones = folders(&self.sys.join("class/thermal"));
        // In thousandths of a degree.
        if let Some(hottest) = zones.iter().filter_map(|zone| number(zone, "temp")).max() {
            health.set(Item::Temperature, hottest / 100);
        }
        let supplies = folders(&self.sys.join("class/power_supply"));
        let charge = |supply: &&PathBuf| number(supply, "capacity");
        if let Some(battery) =
            supplies.iter().filter(|supply| charge(supply).is_some()).min_by_key(charge)
        {
            if let Some(percent) = charge(&battery) {
                health.set(Item::Battery, percent);
            }
            // In millionths of a volt.
            if let Some(voltage) = number(battery, "voltage_now") {
                health.set(Item::BatteryMv, voltage / 1000);
            }
        }
        let wireless = self.text(&self.proc, "net/wireless");
        let interface = wireless.lines().nth(2).and_then(|line| line.split_once(':'));
        let fields = interface.map(|(_, rest)| rest.split_whitespace().collect::<Vec<_>>());
        let value = |at: usize| {
            let text = fields.as_ref()?.get(at)?;
            text.trim_end_matches('.').parse::<i64>().ok()
        };
        if let Some(quality) = value(1) {
            health.set(Item::Lqi, quality);
        }
        if let Some(level) = value(2) {
            health.set(Item::Rssi, level);
        }
    }
}

/// Returns the folders in a folder, in the order of their names.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort_unstable();
    paths
}

fn add(counters: &mut HashMap<String, u64>, name: &str, value: &str) {
    if let Ok(value) = value.trim().parse::<u64>() {
        let sum = counters.entry(name.to_owned()).or_default();
        *sum = sum.wrapping_add(value);
    }
}

/// Reads tables whose rows are pairs of lines, `Name: column column` and `Name: value value`.
fn tables(text: &str, counters: &mut HashMap<String, u64>) {
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (Some((table, names)), Some((_, values))) =
            (names.split_once(':'), values.split_once(':'))
        else {
            continue;
        };
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            add(counters, &format!("{table}.{name}"), value);
        }
    }
}

/// What a role counts and measures itself: the items of the group `queue`, and the offset of the clock.
#[derive(Debug, Default)]
pub struct Figures {
    /// What waits for the next node.
    pub waiting: AtomicU32,
    /// Urgent events that wait.
    pub urgent_waiting: AtomicU32,
    /// Readings or events taken.
    pub readings: AtomicU32,
    /// Readings given up.
    pub given_up: AtomicU32,
    /// Readings or frames refused.
    pub refused: AtomicU32,
    acknowledged: Mutex<Option<Instant>>,
    /// How far the clock is ahead of the next node's, in milliseconds.
    clock_offset: Mutex<Option<i64>>,
    /// What the role does not count: it is unknown, not 0.
    unknown: &'static [Item],
}

impl Figures {
    /// Creates the figures of a role that does not count these items.
    #[must_use]
    pub fn without(unknown: &'static [Item]) -> Self {
        Self { unknown, ..Self::default() }
    }

    /// Notes that the next node acknowledged something now.
    pub fn acknowledged(&self) {
        *self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Notes how far the clock is ahead of that of the next node, in milliseconds.
    pub fn clock_offset(&self, ahead_ms: i64) {
        *self.clock_offset.lock().unwrap_or_else(PoisonError::into_inner) = Some(ahead_ms);
    }

    /// Writes the sums of the figures of several devices into a record, and the time since one of them
    /// received an acknowledgement.
    pub fn write_sums(of: &[Arc<Self>], health: &mut Health) {
        for figures in of {
            let mut own = Health::new(0, 0);
            figures.write(&mut own);
            for (item, value) in own.values() {
                let before = health.get(item);
                let merged = match item {
                    Item::Acknowledged => before.map_or(value, |before| before.min(value)),
                    // It is that of one clock, so that any device states it.
                    Item::ClockOffset => value,
                    _ => before.unwrap_or_default() + value,
                };
                health.set(item, merged);
            }
        }
    }

    /// Writes the figures into a record.
    pub fn write(&self, health: &mut Health) {
        for (item, figure) in [
            (Item::Waiting, &self.waiting),
            (Item::UrgentWaiting, &self.urgent_waiting),
            (Item::Readings, &self.readings),
            (Item::GivenUp, &self.given_up),
            (Item::Refused, &self.refused),
        ] {
            if !self.unknown.contains(&item) {
                health.set(item, figure.load(Ordering::Relaxed).into());
            }
        }
        let at = *self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = at {
            let seconds = i64::try_from(at.elapsed().as_secs()).unwrap_or(i64::MAX);
            health.set(Item::Acknowledged, seconds);
        }
        let offset = *self.clock_offset.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ahead_ms) = offset {
            health.set(Item::ClockOffset, ahead_ms);
        }
    }
}

/// Adds to a figure, modulo 2^32.
#[allow(clippy::cast_possible_truncation)]
pub fn increase(figure: &AtomicU32, more: u64) {
    figure.fetch_add(more as u32, Ordering::Relaxed);
}

/// Stores a number in a figure, modulo 2^32.
#[allow(clippy::cast_possible_truncation)]
pub fn store(figure: &AtomicU32, value: u64) {
    figure.store(value as u32, Ordering::Relaxed);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Writes the files of a machine below a folder.
    fn machine(root: &Path, sent: u32) -> Sources {
        let (proc, sys) = (root.join("proc"), root.join("sys"));
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            proc.join("net/snmp"),
            &format!("Ip: InReceives OutRequests\nIp: 10 {sent}\nTcp: InSegs\nTcp: 5\n"),
        );
        write(proc.join("net/snmp6"), "Ip6InReceives  \t7\nIp6OutRequests 1\nbroken\n");
        write(proc.join("net/wireless"), "a\nb\n wlan0: 0000   54.  -56.  -256        0\n");
        for interface in ["eth0", "eth1", "lo"] {
            let statistics = sys.join("class/net").join(interface).join("statistics");
            write(statistics.join("rx_crc_errors"), "3\n");
            write(statistics.join("tx_packets"), "100\n");
        }
        write(sys.join("class/thermal/thermal_zone0/temp"), "48350\n");
        write(sys.join("class/thermal/thermal_zone1/temp"), "51000\n");
        write(sys.join("class/power_supply/BAT0/capacity"), "81\n");
        write(sys.join("class/power_supply/BAT0/voltage_now"), "12100000\n");
        fs::create_dir_all(sys.join("class/power_supply/AC")).unwrap();
        Sources { proc, sys }
    }

    #[test]
    fn totals_count_from_the_start_of_the_process_and_gauges_are_as_they_are() {
        let root = tempfile::tempdir().unwrap();
        let host =
            HostHealth::open_at(&root.path().join("state"), machine(root.path(), 40)).unwrap();
        let first = host.sample();
        assert_eq!((first.boot, first.get(Item::IpSent)), (1, Some(0)));
        machine(root.path(), 90);
        let health = host.sample();
        assert_eq!(health.get(Item::IpSent), Some(50));
        assert_eq!(health.get(Item::LinkBadCrc), Some(0));
        let gauges = [Item::Temperature, Item::Battery, Item::BatteryMv, Item::Rssi, Item::Lqi];
        assert_eq!(
            gauges.map(|item| health.get(item)),
            [Some(510), Some(81), Some(12_100), Some(-56), Some(54)]
        );
        // The machine does not report it.
        assert_eq!(health.get(Item::UdpSent), None);
        assert_eq!(health.get(Item::ClockOffset), None);
    }

    #[test]
    fn an_interface_that_disappears_or_appears_counts_nothing() {
        let root = tempfile::tempdir().unwrap();
        let host =
            HostHealth::open_at(&root.path().join("state"), machine(root.path(), 1)).unwrap();
        let interface = |name: &str| root.path().join("sys/class/net").join(name);
        let sent = |name: &str, count: u32| {
            fs::write(interface(name).join("statistics/tx_packets"), format!("{count}\n")).unwrap();
        };
        let counted = || host.sample().get(Item::LinkSent);
        sent("eth0", 110);
        sent("eth1", 300_000);
        assert_eq!(counted(), Some(10 + 299_900));
        fs::remove_dir_all(interface("eth1")).unwrap();
        assert_eq!(counted(), Some(10 + 299_900));
        fs::create_dir_all(interface("usb0").join("statistics")).unwrap();
        sent("usb0", 5000);
        assert_eq!(counted(), Some(10 + 299_900));
        sent("usb0", 5001);
        // A counter that was reset.
        sent("eth0", 4);
        assert_eq!(counted(), Some(10 + 299_900 + 1 + 4));
    }

    #[test]
    fn starts_are_counted_and_a_broken_count_begins_again() {
        let root = tempfile::tempdir().unwrap();
        let state = root.path().join("state");
        let boot = || HostHealth::open_at(&state, machine(root.path(), 1)).unwrap().sample().boot;
        assert_eq!([boot(), boot(), boot()], [1, 2, 3]);
        fs::write(state.join(STARTS), "x").unwrap();
        assert_eq!(boot(), 1);
        fs::write(state.join(STARTS), u32::MAX.to_string()).unwrap();
        assert_eq!(boot(), 0);
    }

    #[test]
    fn this_machine_reports_its_network() {
        let state = tempfile::tempdir().unwrap();
        let host = HostHealth::open(state.path()).unwrap();
        let health = host.sample();
        assert!(health.get(Item::IpSent).is_some() && health.get(Item::UdpReceived).is_some());
    }
}
