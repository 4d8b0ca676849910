//! The task of one port: the mote that responds at the port, the mote's links, and the queue of
//! frames for the mote.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use moteseal_api::NamedError as _;
use moteseal_broadcast::firmware::UpdateReport;
use moteseal_core::DeviceId;
use moteseal_net::link::State;
use moteseal_net::mqtt::MqttChild;
use moteseal_net::serial::{Counted, Event, Peer, SerialLine};
use moteseal_net::{ChildLink as _, Down, LinkError};
use moteseal_serial::Channel;
use moteseal_service::LogLimit;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::{Port, Shared};

/// How long a link may take to accept a frame of a mote.
const SEND_TIME: Duration = Duration::from_secs(1);
/// A port opens links for a mote at most once in this time. The limit protects the broker against a
/// mote that changes its identity again and again.
const JOIN_TIME: Duration = Duration::from_secs(2);
/// How often a port checks its state.
const TICK: Duration = Duration::from_millis(500);
/// The minimum time between two log lines with the same content, and between any two log lines.
const REPEAT_LOG: Duration = Duration::from_secs(60);
const LOG_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of log lines with reports of a mote about its firmware, and in which time.
const REPORTS: u32 = 12;
const REPORTS_INTERVAL: Duration = Duration::from_secs(60);
/// The maximum number of frames that wait for a mote in one queue. If there are more, the oldest
/// frame is dropped. The coordinator, the aggregator and the signers of the time have separate queues.
const WAITING: usize = 16;

/// The task of one port.
pub(super) struct PortTask {
    number: usize,
    address: String,
    pinned: Option<DeviceId>,
    line: SerialLine,
    shared: Arc<Shared>,
    /// The mote that responds at the port, or that responded last.
    peer: Option<Peer>,
    joined: Option<Joined>,
    joined_at: Option<Instant>,
    downward: Downward,
    allowance: Allowance,
    counted: Counted,
    /// The number of dropped broadcast frames of this port that the metrics already include.
    dropped: u64,
    /// The last log line, and when it was written.
    logged: Option<(&'static str, Instant)>,
    /// Limits the log lines with reports about the mote's firmware.
    reports: LogLimit<()>,
}

/// A mote whose links are open.
struct Joined {
    device: DeviceId,
    coordinator: Option<MqttChild>,
    sums: Option<MqttChild>,
    time: Option<MqttChild>,
}

/// An event that the port's task handles.
enum Happened {
    Line(Event),
    /// The line has room for another frame.
    Room,
    Coordinator(Down),
    Sums(Down),
    Time(Down),
    /// A broadcast frame waits for this port.
    Broadcast,
    /// The state of the line changed, a mote moved to another port, or a tick passed.
    Other,
}

async fn next_of(link: Option<&mut MqttChild>) -> Result<Down, LinkError> {
    match link {
        Some(link) => link.receive().await,
        None => pending().await,
    }
}

impl PortTask {
    pub(super) fn new(number: usize, port: &Port, line: SerialLine, shared: Arc<Shared>) -> Self {
        Self {
            number,
            address: port.line.address.clone(),
            pinned: port.device,
            line,
            shared,
            peer: None,
            joined: None,
            joined_at: None,
            downward: Downward::default(),
            allowance: Allowance::new(port.line.baud),
            counted: Counted::default(),
            dropped: 0,
            logged: None,
            reports: LogLimit::new(REPORTS, REPORTS_INTERVAL),
        }
    }

    /// Runs until a link is closed.
    pub(super) async fn run(mut self) -> Result<(), LinkError> {
        let shared = Arc::clone(&self.shared);
        let outgoing = &shared.outgoing[self.number];
        let (mut state, mut moves) = (self.line.state(), shared.claims.moves());
        let mut tick = tokio::time::interval(TICK);
        loop {
            let has_work = self.peer.is_some()
                && self.joined.is_some()
                && !(self.downward.is_empty() && outgoing.is_empty());
            let links = self.joined.as_mut().map(|joined| {
                (joined.coordinator.as_mut(), joined.sums.as_mut(), joined.time.as_mut())
            });
            let (coordinator, sums, time) = links.unwrap_or_default();
            let happened = tokio::select! {
                event = self.line.receive() => Happened::Line(event?),
                room = self.line.ready(), if has_work => room.map(|()| Happened::Room)?,
                down = next_of(coordinator) => Happened::Coordinator(down?),
                down = next_of(sums) => Happened::Sums(down?),
                down = next_of(time) => Happened::Time(down?),
                () = outgoing.arrival(), if !has_work => Happened::Broadcast,
                changed = state.changed() => changed.map(|()| Happened::Other).map_err(|_| LinkError::Closed)?,
                _ = moves.changed() => Happened::Other,
                _ = tick.tick() => Happened::Other,
            };
            match happened {
                Happened::Line(Event::Opened(peer)) => self.opened(peer),
                Happened::Line(Event::Body(channel, body)) => self.pass_up(channel, body).await?,
                Happened::Room => self.pass_down().await?,
                Happened::Coordinator(Down::Announcement(announcement)) => {
                    self.downward.coordinator.announce(announcement);
                }
                Happened::Sums(Down::Announcement(schedule)) => {
                    self.downward.sums.announce(schedule);
                }
                Happened::Coordinator(Down::Frame(frame)) => {
                    self.put_down(Channel::Coordinator, frame);
                }
                Happened::Sums(Down::Frame(frame)) => self.put_down(Channel::Sums, frame),
                Happened::Time(Down::Frame(frame)) => self.put_down(Channel::Time, frame),
                // The signers of the time announce nothing.
                Happened::Time(Down::Announcement(_)) | Happened::Broadcast => {}
                Happened::Other => self.update(&state.borrow_and_update().clone()),
            }
        }
    }

    /// Handles a HELLO: a mote has identified itself, or has restarted.
    fn opened(&mut self, peer: Peer) {
        // Mark the port as open at once, so that another port cannot claim a mote that this port
        // has just claimed.
        if !self.metrics().set_open(true) {
            self.logged = None;
        }
        if self.should_log("opened") {
            info!(port = self.address, device = %peer.device, "a mote responds");
        }
        self.peer = Some(peer);
        self.downward.repeat();
        if self.joined.as_ref().is_some_and(|joined| joined.device != peer.device) {
            self.part();
        }
        if let Err((name, why)) = self.join() {
            self.refuse(name, why);
        }
    }

    /// Opens the links of the mote that responds, if it may use this port. Otherwise returns the
    /// name of the reason and an explanation.
    fn join(&mut self) -> Result<(), (&'static str, &'static str)> {
        let Some(Peer { device, .. }) = self.peer.filter(|_| self.joined.is_none()) else {
            return Ok(());
        };
        let shared = Arc::clone(&self.shared);
        let Some(mote) = shared.motes.get(&device) else {
            return Err((
                "UnknownDevice",
                "the roster has no such device: check that the mote belongs to this group, and that the gateway has the newest roster",
            ));
        };
        if self.pinned.is_some_and(|pinned| pinned != device) {
            return Err((
                "WrongDevice",
                "the port is configured for another device: exchange the motes, or change `device` of the port",
            ));
        }
        // A HELLO is not authenticated. A device that claims to be the mote must not keep the mote
        // away from the port that is configured for it.
        if self.pinned.is_none() && shared.pinned.contains(&Some(device)) {
            return Err((
                "DeviceElsewhere",
                "another port is configured for this device: exchange the motes, or change `device` of that port",
            ));
        }
        if self.joined_at.is_some_and(|at| at.elapsed() < JOIN_TIME) {
            return Ok(());
        }
        if !shared.claims.take(device, self.number, |port| shared.ports[port].is_open()) {
            return Err((
                "DeviceElsewhere",
                "the device also responds at another port: configure `device` for each port",
            ));
        }
        self.joined_at = Some(Instant::now());
        let link = |options| MqttChild::new(options, device.0);
        let links = (
            shared.coordinator.as_ref().map(link).transpose(),
            mote.sums.as_ref().map(link).transpose(),
            shared.time.as_ref().map(link).transpose(),
        );
        match links {
            (Ok(coordinator), Ok(sums), Ok(time)) => {
                info!(port = self.address, device = mote.name, "joined");
                self.joined = Some(Joined { device, coordinator, sums, time });
                self.metrics().set_joined(true);
                shared.outgoing[self.number].open(true);
            }
            (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => {
                shared.claims.give_back(device, self.number);
                warn!(port = self.address, error = %error.named(), "the links of the mote cannot be opened");
            }
        }
        Ok(())
    }

    /// Closes the links of the port's mote.
    fn part(&mut self) {
        if let Some(joined) = self.joined.take() {
            self.shared.claims.give_back(joined.device, self.number);
            self.shared.outgoing[self.number].open(false);
            self.downward = Downward::default();
            self.metrics().set_joined(false);
            self.metrics().set_cut_off(false);
        }
    }

    /// Updates the state of the port, its metrics and the mote's links.
    fn update(&mut self, state: &State) {
        let is_open = *state == State::Up;
        let was_open = self.metrics().set_open(is_open);
        match state {
            State::Down { cause, again_in } if was_open || self.should_log("down") => {
                warn!(port = self.address, cause = %cause.named(), ?again_in, "the serial line is down");
            }
            State::Up if !was_open => self.logged = None,
            _ => {}
        }
        let (shared, number) = (Arc::clone(&self.shared), self.number);
        if self.joined.as_ref().is_some_and(|joined| !shared.claims.has(joined.device, number)) {
            info!(port = self.address, "the mote now responds at another port");
            self.part();
        }
        // A mote that was rejected at its HELLO may be allowed now. The rejection was logged at the
        // HELLO, so do not log it again.
        let _ = self.join();
        let counted = self.line.counted();
        let misfit = counted.misfit.filter(|misfit| self.counted.misfit != Some(*misfit));
        let dropped = self.shared.outgoing[number].dropped();
        self.metrics().lost.increment(dropped - self.dropped);
        self.dropped = dropped;
        self.shared.ports[number].count(&counted, &mut self.counted);
        if let Some(misfit) = misfit {
            self.refuse(misfit.name(), "the other end of the line is not a mote of this version");
        }
        let links = self
            .joined
            .as_ref()
            .map(|joined| [&joined.coordinator, &joined.sums, &joined.time].map(Option::as_ref))
            .unwrap_or_default();
        let states = links.map(|link| link.map(|link| link.state().borrow().clone()));
        self.metrics().set_cut_off(states.iter().flatten().any(|state| *state != State::Up));
        for state in states.into_iter().flatten() {
            if let State::Down { cause, .. } = state
                && self.should_log("cut off")
            {
                warn!(port = self.address, cause = %cause.named(), "a link between the mote and its coordinator, its aggregator or the signers of the time is down");
            }
        }
    }

    fn metrics(&self) -> &super::PortMetrics {
        &self.shared.ports[self.number]
    }

    /// Counts a rejection. Logs it unless it was logged recently.
    fn refuse(&mut self, name: &'static str, why: &'static str) {
        self.shared.metrics.refused(self.metrics(), name);
        let device = self.peer.map(|peer| peer.device.to_string()).unwrap_or_default();
        if self.should_log(name) {
            warn!(port = self.address, device, name, "{why}");
        }
    }

    /// Returns whether to write a log line. At most one line is written per second, and the same
    /// line at most once per minute.
    fn should_log(&mut self, what: &'static str) -> bool {
        let is_time = self.logged.is_none_or(|(logged, at)| {
            at.elapsed() >= if logged == what { REPEAT_LOG } else { LOG_INTERVAL }
        });
        if is_time {
            self.logged = Some((what, Instant::now()));
        }
        is_time
    }

    /// Forwards a frame from the mote.
    async fn pass_up(&mut self, channel: Channel, body: Bytes) -> Result<(), LinkError> {
        let Some(joined) = &self.joined else {
            self.shared.metrics.refused(self.metrics(), "NotJoined");
            return Ok(());
        };
        let link = match channel {
            Channel::Coordinator => joined.coordinator.as_ref(),
            Channel::Sums => joined.sums.as_ref(),
            Channel::Time => joined.time.as_ref(),
            Channel::Broadcast => {
                if !self.allowance.spend(body.len()) {
                    self.refuse("TooFast", "the mote broadcasts more than half of what its line carries; the excess is dropped");
                    return Ok(());
                }
                let sent = timeout(SEND_TIME, self.shared.broadcast(body, Some(self.number))).await;
                return self.sent(channel, sent);
            }
            Channel::Firmware => {
                if self.report(&body) {
                    self.shared.metrics.passed(self.metrics(), channel, true);
                }
                return Ok(());
            }
            Channel::CoordinatorAnnouncement | Channel::SumsAnnouncement => {
                self.refuse("WrongDirection", "a mote sent a frame that only a gateway may send");
                return Ok(());
            }
        };
        let Some(link) = link else {
            self.refuse(
                "NoLink",
                "the mote sent a frame to a coordinator, an aggregator or a signer of the time that is not configured for this mote",
            );
            return Ok(());
        };
        if let State::Down { .. } = *link.state().borrow() {
            // Do not queue the frame. It would be outdated when the broker is reachable again, and
            // the mote repeats it.
            self.metrics().lost.increment(1);
            return Ok(());
        }
        let sent = timeout(SEND_TIME, link.send(body)).await;
        self.sent(channel, sent)
    }

    /// Logs what the mote reports about its firmware. Nothing depends on it. Returns whether the
    /// report has a known form.
    fn report(&mut self, body: &[u8]) -> bool {
        let Ok(report) = UpdateReport::decode(body) else {
            self.refuse(
                "Malformed",
                "the mote sent a report about its firmware that has no known form",
            );
            return false;
        };
        let device = self.peer.map(|peer| peer.device.to_string()).unwrap_or_default();
        if !self.reports.allows(()) {
            return true;
        }
        match report {
            UpdateReport::Refused(version, error) => {
                warn!(
                    port = self.address,
                    device,
                    version,
                    name = error.name(),
                    "the mote does not run this version of its firmware: {error}"
                );
            }
            report => info!(port = self.address, device, %report, "firmware of the mote"),
        }
        true
    }

    fn sent(
        &self,
        channel: Channel,
        sent: Result<Result<(), LinkError>, tokio::time::error::Elapsed>,
    ) -> Result<(), LinkError> {
        match sent {
            Ok(Ok(())) => self.shared.metrics.passed(self.metrics(), channel, true),
            Ok(Err(LinkError::Closed)) => return Err(LinkError::Closed),
            lost => {
                self.metrics().lost.increment(1);
                debug!(port = self.address, ?lost, "a frame was not sent");
            }
        }
        Ok(())
    }

    fn put_down(&mut self, channel: Channel, frame: Bytes) {
        let lane = match channel {
            Channel::Coordinator => &mut self.downward.coordinator,
            Channel::Time => &mut self.downward.time,
            _ => &mut self.downward.sums,
        };
        if lane.put(frame) {
            self.metrics().lost.increment(1);
        }
    }

    /// Sends the next frame to the mote.
    async fn pass_down(&mut self) -> Result<(), LinkError> {
        let outgoing = &self.shared.outgoing[self.number];
        let Some((channel, body)) = self.downward.take(|| outgoing.take()) else { return Ok(()) };
        let longest = self.peer.map_or(0, |peer| peer.longest_body);
        if body.len() > longest {
            self.metrics().lost.increment(1);
            self.refuse(
                "BodyTooLong",
                "a frame was dropped because it is longer than the mote accepts",
            );
            return Ok(());
        }
        self.shared.metrics.passed(self.metrics(), channel, false);
        self.line.send(channel, body).await
    }
}

/// The queues of frames for a mote, without broadcast frames, which wait in `Shared`.
#[derive(Debug, Default)]
struct Downward {
    coordinator: Lane,
    sums: Lane,
    time: Lane,
    /// The index of the channel whose turn is next.
    turn: usize,
}

/// The queue of messages from the coordinator, from the aggregator of private sums, or from the
/// signers of the time.
#[derive(Debug, Default)]
struct Lane {
    /// The newest announcement, and whether it must still be sent.
    announcement: Option<Bytes>,
    is_due: bool,
    frames: VecDeque<Bytes>,
}

impl Lane {
    fn announce(&mut self, announcement: Bytes) {
        // Coordinators and aggregators repeat their announcements. Send an announcement only if the
        // mote does not have it.
        self.is_due |= self.announcement.as_ref() != Some(&announcement);
        self.announcement = Some(announcement);
    }

    /// Queues a frame. Returns whether the oldest frame was dropped to make room.
    fn put(&mut self, frame: Bytes) -> bool {
        self.frames.push_back(frame);
        self.frames.len() > WAITING && self.frames.pop_front().is_some()
    }

    fn take_announcement(&mut self) -> Option<Bytes> {
        self.announcement.clone().filter(|_| std::mem::take(&mut self.is_due))
    }

    fn is_empty(&self) -> bool {
        !self.is_due && self.frames.is_empty()
    }
}

impl Downward {
    fn is_empty(&self) -> bool {
        self.coordinator.is_empty() && self.sums.is_empty() && self.time.is_empty()
    }

    /// Marks the newest announcements to be sent again.
    fn repeat(&mut self) {
        for lane in [&mut self.coordinator, &mut self.sums] {
            lane.is_due = lane.announcement.is_some();
        }
    }

    /// Returns the next frame. The channels take turns.
    fn take(&mut self, broadcast: impl Fn() -> Option<Bytes>) -> Option<(Channel, Bytes)> {
        for _ in 0..Channel::ALL.len() {
            let channel = Channel::ALL[self.turn % Channel::ALL.len()];
            self.turn = (self.turn + 1) % Channel::ALL.len();
            let body = match channel {
                Channel::Coordinator => self.coordinator.frames.pop_front(),
                Channel::CoordinatorAnnouncement => self.coordinator.take_announcement(),
                Channel::Sums => self.sums.frames.pop_front(),
                Channel::SumsAnnouncement => self.sums.take_announcement(),
                Channel::Broadcast => broadcast(),
                Channel::Time => self.time.frames.pop_front(),
                // On this channel only the mote sends.
                Channel::Firmware => None,
            };
            if let Some(body) = body {
                return Some((channel, body));
            }
        }
        None
    }
}

/// Limits the broadcasts of a mote to half of what its line carries. The limit leaves room for
/// other frames on the lines of the other motes.
#[derive(Debug)]
struct Allowance {
    per_second: f64,
    left: f64,
    at: Instant,
}

/// The maximum number of bytes that a mote may broadcast in one burst.
const BURST: f64 = 32_768.0;

impl Allowance {
    fn new(baud: u32) -> Self {
        Self { per_second: f64::from(baud) / 20.0, left: BURST, at: Instant::now() }
    }

    fn spend(&mut self, bytes: usize) -> bool {
        let now = Instant::now();
        self.left =
            (self.left + now.duration_since(self.at).as_secs_f64() * self.per_second).min(BURST);
        self.at = now;
        let bytes = bytes as f64;
        let is_enough = bytes <= self.left;
        if is_enough {
            self.left -= bytes;
        }
        is_enough
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn channels_take_turns_and_an_announcement_is_sent_once_until_the_mote_restarts() {
        let mut downward = Downward::default();
        let body = Bytes::from_static;
        for number in 0..3_u8 {
            assert!(!downward.coordinator.put(Bytes::copy_from_slice(&[number])));
        }
        downward.coordinator.announce(body(b"round"));
        downward.sums.announce(body(b"schedule"));
        let mut taken = || {
            std::iter::from_fn(|| downward.take(|| None))
                .map(|(channel, _)| channel)
                .collect::<Vec<_>>()
        };
        use Channel::{Coordinator, CoordinatorAnnouncement, SumsAnnouncement};
        assert_eq!(
            taken(),
            [Coordinator, CoordinatorAnnouncement, SumsAnnouncement, Coordinator, Coordinator]
        );
        downward.coordinator.announce(body(b"round"));
        assert!(downward.is_empty());
        downward.coordinator.announce(body(b"next round"));
        assert_eq!(downward.take(|| None), Some((CoordinatorAnnouncement, body(b"next round"))));
        downward.repeat();
        assert_eq!(downward.take(|| None), Some((SumsAnnouncement, body(b"schedule"))));
        assert_eq!(downward.take(|| None), Some((CoordinatorAnnouncement, body(b"next round"))));
        // A time statement is sent once, also to a mote that restarts.
        assert!(!downward.time.put(body(b"statement")));
        assert_eq!(downward.take(|| None), Some((Channel::Time, body(b"statement"))));
        downward.repeat();
        assert!((0..2).all(|_| downward.take(|| None).unwrap().0 != Channel::Time));
        assert!(downward.is_empty());
        assert_eq!(
            downward.take(|| Some(body(b"from elsewhere"))),
            Some((Channel::Broadcast, body(b"from elsewhere")))
        );
    }

    const MOTE: DeviceId = DeviceId([7; 8]);

    /// Creates one task for each entry of `pinned`. An entry is the device that the port is
    /// reserved for, if any.
    fn tasks(pinned: &[Option<DeviceId>]) -> Vec<PortTask> {
        let options = || moteseal_net::serial::Options::gateway("tcp://127.0.0.1:9".to_owned());
        let ports: Vec<Port> =
            pinned.iter().map(|device| Port { line: options(), device: *device }).collect();
        let motes = [(MOTE, crate::serial::Mote { name: "mote".to_owned(), sums: None })].into();
        let settings = crate::serial::Settings {
            ports,
            motes,
            coordinator: None,
            time: None,
            broadcast: None,
            listen: None,
        };
        let ports = settings.ports.clone();
        let shared = Arc::new(Shared::new(settings));
        let task = |(number, port): (usize, &Port)| {
            PortTask::new(number, port, SerialLine::new(&port.line).unwrap(), shared.clone())
        };
        ports.iter().enumerate().map(task).collect()
    }

    const CLAIMS_MOTE: Peer = Peer { device: MOTE, session: 1, longest_body: 1000 };

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn an_earlier_claim_does_not_keep_a_mote_from_the_port_that_is_pinned_to_it() {
        runtime().block_on(async {
            let mut tasks = tasks(&[None, Some(MOTE)]);
            tasks[0].opened(CLAIMS_MOTE);
            assert!(tasks[0].joined.is_none());
            tasks[1].opened(CLAIMS_MOTE);
            assert!(tasks[1].joined.is_some() && tasks[0].joined.is_none());
            assert!(tasks[0].shared.metrics.render().contains("name=\"DeviceElsewhere\""));
        });
    }

    #[test]
    fn the_first_of_two_unpinned_ports_has_the_mote_as_soon_as_it_responds() {
        runtime().block_on(async {
            let mut tasks = tasks(&[None, None]);
            tasks[0].opened(CLAIMS_MOTE);
            tasks[1].opened(CLAIMS_MOTE);
            assert!(tasks[0].shared.claims.has(MOTE, 0) && tasks[1].joined.is_none());
        });
    }

    #[test]
    fn keeps_the_newest_frames_of_a_coordinator() {
        let mut lane = Lane::default();
        let dropped =
            (0..100_u8).filter(|number| lane.put(Bytes::copy_from_slice(&[*number]))).count();
        assert_eq!((dropped, lane.frames.len()), (100 - WAITING, WAITING));
        assert_eq!(lane.frames.back(), Some(&Bytes::from_static(&[99])));
    }

    #[test]
    fn a_mote_broadcasts_a_burst_and_then_half_of_what_its_line_carries() {
        let mut allowance = Allowance::new(115_200);
        allowance.per_second = 0.0;
        assert_eq!((0..100).filter(|_| allowance.spend(1024)).count(), 32);
        allowance.per_second = f64::from(115_200) / 20.0;
        allowance.at -= Duration::from_secs(1);
        let more = (0..100).filter(|_| allowance.spend(1024)).count();
        assert!((5..=6).contains(&more), "{more}");
    }
}
