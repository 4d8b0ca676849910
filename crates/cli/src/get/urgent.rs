//! `moteseal get --events urgent`: gets urgent events, verifies each of them, and can wait for new
//! ones.

use std::io::Write as _;
use std::time::Duration;

use moteseal_api::NamedError as _;
use moteseal_client::bundles::device_name;
use moteseal_client::output::{AtomicFile, UrgentText};
use moteseal_client::{Client, Error, UrgentAnswer, UrgentCheck, UrgentConflict, UrgentRequest};
use moteseal_net::NetError;
use moteseal_verify::Roster;
use serde_json::json;
use tokio::time::sleep;

use super::Arguments;
use crate::client_error;
use crate::cloud::runtime;
use crate::cloud_query::report_newer_roster;
use crate::failure::{Exit, Failure};
use crate::progress::count;
use crate::terminal::{Stdout, diagnostic, is_json};

/// How long the cloud waits for the next event before it answers.
const WAIT: Duration = Duration::from_secs(20);
/// The first pause after the cloud could not be reached. Each later one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The pause after an answer without events, if the cloud did not wait.
const IDLE: Duration = Duration::from_millis(200);

/// Where the events are written.
enum Target {
    Stdout,
    File(AtomicFile),
}

impl Target {
    fn write(&mut self, text: &str) -> Result<(), Failure> {
        match self {
            // An event must be visible at once, so every write is flushed.
            Self::Stdout => Stdout::lock().copy(text.as_bytes()),
            Self::File(file) => file.write_all(text.as_bytes()).map_err(Failure::internal),
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let out = arguments.destination.out();
    if arguments.follow && out.is_some() {
        return Err(Failure::usage("--follow writes to stdout; leave --out out"));
    }
    if is_json() && (arguments.follow || out.is_none()) {
        return Err(Failure::usage(
            "--json prints the report on stdout; name a file for the events with --out, or use --format jsonl",
        ));
    }
    let roster = arguments.cloud_query.roster()?;
    let (since, until) = arguments.cloud_query.epochs(&roster);
    let cloud = arguments.cloud_query.client()?;
    // Without names, the request selects all devices, also those that a later version adds.
    let devices = match &arguments.devices[..] {
        [] => Vec::new(),
        names => arguments.cloud_query.devices(&roster, names)?,
    };
    let mut pinned = arguments.kept.pinned(&roster, &arguments.cloud_query)?;
    if let Some(pinned) = &mut pinned {
        pinned.pin_roster(&roster).map_err(|error| Failure::usage(error.named()))?;
    }
    crate::cloud_query::save_roster(pinned.as_mut());
    let keys = arguments.keys.open(&roster)?;
    let mut keys = keys.set();
    let text = UrgentText::new(arguments.destination.format()?, &roster);
    let mut text = text.map_err(client_error::output)?;
    let has_keys = keys.is_some();
    if let Some(keys) = &mut keys {
        text = text.with_keys(keys);
    }
    let target = match out {
        Some(path) => {
            let mut file = AtomicFile::create(path).map_err(client_error::output)?;
            if has_keys {
                file.set_private();
            }
            Target::File(file)
        }
        None => Target::Stdout,
    };
    let mut request =
        Client::new(&cloud, &roster).urgent().devices(devices).since(since).until(until);
    if let Some(after) = &arguments.after {
        request = request.after(after).map_err(|_| {
            Failure::usage("--after: use the cursor that an earlier command printed")
        })?;
    }
    let mut reading = Reading {
        roster: &roster,
        check: arguments.check.then(|| Client::new(&cloud, &roster)),
        request,
        text,
        target,
        counts: Counts::default(),
    };
    runtime()?.block_on(reading.all(arguments))?;
    if arguments.follow {
        runtime()?.block_on(reading.follow())?;
    }
    reading.finish()
}

/// How many events were read, and what was found.
#[derive(Debug, Default)]
struct Counts {
    events: u64,
    void: u64,
    /// Events for a place for which the device has signed another event.
    conflicts: u64,
    /// Events that their seal confirms.
    agree: u64,
    /// Events that their seal contradicts.
    contradicted: u64,
    /// Events that were not compared, because the cloud does not have the seal or the reading.
    open: u64,
}

/// The events that were read so far.
struct Reading<'a> {
    roster: &'a Roster,
    /// The client that compares events with their seals, if they are compared.
    check: Option<Client<'a>>,
    request: UrgentRequest<'a>,
    text: UrgentText<'a>,
    target: Target,
    counts: Counts,
}

impl Reading<'_> {
    /// Reads all events that the cloud has.
    async fn all(&mut self, arguments: &Arguments) -> Result<(), Failure> {
        loop {
            let answer = match self.request.next(Duration::ZERO).await {
                Err(error) if arguments.follow && is_passing(&error) => return Ok(()),
                answer => answer.map_err(|error| client_error::failure(self.roster, &error))?,
            };
            self.take(&answer).await?;
            if answer.is_last {
                report_newer_roster(answer.cloud_roster, arguments.cloud_query.roster_path());
                return Ok(());
            }
        }
    }

    /// Reads events as they arrive. After an interruption, it continues at the same place. Returns
    /// only with an error, or if nobody reads the output any more.
    async fn follow(&mut self) -> Result<(), Failure> {
        let (mut pause, mut is_down) = (FIRST_PAUSE, false);
        loop {
            let start = std::time::Instant::now();
            match self.request.next(WAIT).await {
                Ok(answer) => {
                    pause = FIRST_PAUSE;
                    if std::mem::take(&mut is_down) {
                        diagnostic("the cloud answers again");
                    }
                    self.take(&answer).await?;
                    if answer.events.is_empty() && start.elapsed() < IDLE {
                        sleep(IDLE).await;
                    }
                }
                Err(error) if is_passing(&error) => {
                    if !std::mem::replace(&mut is_down, true) {
                        diagnostic(format_args!("{}; trying again", error.named()));
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(error) => return Err(client_error::failure(self.roster, &error)),
            }
        }
    }

    async fn take(&mut self, answer: &UrgentAnswer) -> Result<(), Failure> {
        self.counts.void += answer.void as u64;
        for event in &answer.events {
            let text = self.text.event(event).map_err(client_error::output)?;
            self.target.write(&text)?;
            self.counts.events += 1;
            let Some(client) = self.check else { continue };
            let checked = client.check_urgent(event).await;
            match checked.map_err(|error| client_error::failure(self.roster, &error))? {
                UrgentCheck::Agrees => self.counts.agree += 1,
                UrgentCheck::NotSealed | UrgentCheck::NotKept => self.counts.open += 1,
                UrgentCheck::Contradicts => {
                    self.counts.contradicted += 1;
                    let (device, index, seq) = (event.device(), event.index(), event.seq());
                    diagnostic(format_args!(
                        "{}: Equivocation: the urgent event and the seal differ: reading {seq} of seal {index}",
                        device_name(self.roster, device)
                    ));
                }
                UrgentCheck::OtherKeys => {
                    self.counts.contradicted += 1;
                    diagnostic(format_args!(
                        "{}: OtherKeys: the urgent event and the seal state different keys of seal {}",
                        device_name(self.roster, event.device()),
                        event.index()
                    ));
                }
            }
        }
        for conflict in &answer.conflicts {
            self.counts.conflicts += 1;
            diagnostic(conflict_text(self.roster, conflict));
        }
        Ok(())
    }

    fn finish(self) -> Result<(), Failure> {
        if let Target::File(file) = self.target {
            file.commit().map_err(client_error::output)?;
        }
        let (cursor, is_checked) = (self.request.cursor(), self.check.is_some());
        let Counts { events, void, conflicts, agree, contradicted, open } = self.counts;
        if is_json() {
            let mut report = json!({
                "events": events,
                "void": void,
                "conflicts": conflicts,
                "cursor": cursor,
            });
            if is_checked {
                report["check"] =
                    json!({ "agree": agree, "contradicted": contradicted, "not_compared": open });
            }
            Stdout::lock().line(report)?;
        } else {
            let void = match void {
                0 => String::new(),
                void => format!(", {void} void because the roster has ended their key"),
            };
            let check = if is_checked {
                format!(", {agree} agree with their seals, {open} not compared")
            } else {
                String::new()
            };
            let next =
                cursor.map_or_else(String::new, |cursor| format!("; next time --after {cursor}"));
            let events = count(events, "urgent event");
            diagnostic(format_args!("{events} verified{void}{check}{next}"));
        }
        if conflicts + contradicted == 0 {
            return Ok(());
        }
        let what =
            "a device signed statements that contradict each other, or somebody else has its key";
        Err(Failure::new(Exit::Finding, what).with_name("Equivocation"))
    }
}

/// Describes two events that contradict each other.
pub(crate) fn conflict_text(roster: &Roster, conflict: &UrgentConflict) -> String {
    match conflict {
        UrgentConflict::Place((device, index, seq)) => format!(
            "{}: Equivocation: two urgent events for one place: reading {seq} of seal {index}",
            device_name(roster, *device)
        ),
        UrgentConflict::Keys(device, index) => format!(
            "{}: OtherKeys: two urgent events state different keys of seal {index}",
            device_name(roster, *device)
        ),
    }
}

/// Returns whether an error may pass, so that the request can be repeated.
fn is_passing(error: &Error) -> bool {
    match error {
        Error::Net(NetError::Refused { status, .. }) => *status >= 500,
        Error::Net(error) => error.is_unreachable(),
        _ => false,
    }
}
