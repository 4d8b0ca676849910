//! Two watchers get commands of one sender. An attacker records the frames and replays them later.
//! The first watcher obeys each command when it is sent. The second one joins after the first command
//! has ended: it obeys the newest command only.

use std::fmt::Display;

use moteseal_broadcast::recovery::Now;
use moteseal_broadcast::{KeyId, Kind, Window};
use moteseal_core::signature::{Algorithm, PublicKey};
use moteseal_device::broadcast::{Options, WatchEvent, Watcher};
use moteseal_lab::broadcast::truth::Truth;
use moteseal_lab::radio::Authority;
use moteseal_store::Archive;
use moteseal_terminal::failure::{Exit, Failure};

/// The time of the first command, in seconds of Unix time.
const START: u64 = 1_700_000_000;
/// The commands: their time in seconds after the start, the seconds for which they are valid, and
/// their text.
const COMMANDS: [(u64, u64, &str); 3] =
    [(0, 60, "open valve 3"), (30, 600, "shut valve 3"), (60, 600, "open valve 3 by half")];
/// When the second watcher joins and the attacker replays everything, in seconds after the start.
const REPLAY: u64 = 120;

/// A line of the demonstration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommandStep {
    /// Seconds after the start.
    pub(super) at: u64,
    pub(super) watcher: &'static str,
    /// The text of an obeyed command, or the number of a command that is not obeyed.
    pub(super) what: String,
    /// Why the command is not obeyed; `None` if it is obeyed.
    pub(super) withheld: Option<&'static str>,
}

pub(super) fn internal(error: impl Display) -> Failure {
    Failure::new(Exit::Internal, error)
}

/// A watcher of the demonstration.
struct Post<'a> {
    name: &'static str,
    watcher: Watcher<'a>,
    steps: Vec<CommandStep>,
}

fn noted(at: u64, watcher: &'static str, event: &WatchEvent<'_>) -> Option<CommandStep> {
    let (what, withheld) = match event {
        WatchEvent::Message { message, .. } => {
            (String::from_utf8_lossy(message).into_owned(), None)
        }
        WatchEvent::Withheld { outline, why, .. } => {
            (format!("command {}", outline.id.number), Some(why.name()))
        }
        _ => return None,
    };
    Some(CommandStep { at, watcher, what, withheld })
}

const fn now(at: u64) -> Now {
    Now { ms: at * 1000, unix: Some(START + at) }
}

impl<'a> Post<'a> {
    fn open(
        name: &'static str,
        folder: &std::path::Path,
        (authority, bases): (&Authority, &'a [PublicKey]),
        at: u64,
    ) -> Result<Self, Failure> {
        let ids: Vec<KeyId> = bases.iter().map(KeyId::of).collect();
        let archive = Archive::open(&folder.join(name), authority.network, &ids, 1 << 20);
        let options = Options::new(authority.network, bases);
        let archive = archive.map_err(internal)?;
        let watcher = Watcher::open(options, archive, 1, now(at), &mut |_| Ok(()));
        Ok(Self { name, watcher: watcher.map_err(internal)?, steps: Vec::new() })
    }

    fn receive(&mut self, at: u64, frames: &[Vec<u8>]) -> Result<(), Failure> {
        let (name, steps) = (self.name, &mut self.steps);
        let mut notify = |event: WatchEvent<'_>| {
            steps.extend(noted(at, name, &event));
            Ok(())
        };
        for frame in frames {
            self.watcher.receive(now(at), 0, frame, &mut notify).map_err(internal)?;
        }
        self.watcher.tend(now(at), &mut notify).map_err(internal)
    }
}

/// Runs the watchers. Returns what they do, in order.
pub(super) fn play() -> Result<Vec<CommandStep>, Failure> {
    let authority = Authority::new(Algorithm::Ed25519, 1).map_err(internal)?;
    let sender = authority.certify("operations", Algorithm::Ed25519, 1).map_err(internal)?;
    let mut chains = Vec::new();
    for (number, (at, seconds, text)) in (1..).zip(COMMANDS) {
        let window = Window { not_before: START + at, not_after: START + at + seconds };
        let terms = (Kind::Command, "valve 3", window);
        let previous = (number > 1).then(|| number - 1);
        let messages = [text.as_bytes().to_vec()];
        chains.push(sender.send_as(terms, previous, number, 1, &messages).map_err(internal)?);
    }
    let truth = Truth { chains };
    let folder = tempfile::tempdir().map_err(internal)?;
    let bases = [authority.public.clone()];
    let mut steady = Post::open("steady", folder.path(), (&authority, &bases), 0)?;
    for (place, (at, ..)) in COMMANDS.into_iter().enumerate() {
        // A watcher that has just started waits a little for later commands.
        steady.receive(at, &truth.frames(place))?;
        steady.receive(at + 5, &[])?;
    }
    let mut late = Post::open("late", folder.path(), (&authority, &bases), REPLAY)?;
    for place in 0..COMMANDS.len() {
        steady.receive(REPLAY, &truth.frames(place))?;
        late.receive(REPLAY, &truth.frames(place))?;
    }
    late.receive(REPLAY + 5, &[])?;
    Ok([steady.steps, late.steps].concat())
}

/// Returns the number of commands that a watcher obeyed although it must not have, or did not obey
/// although it should have.
pub(super) fn faults(steps: &[CommandStep]) -> u64 {
    let obeyed = |watcher: &str| {
        let of = steps.iter().filter(|step| step.watcher == watcher && step.withheld.is_none());
        of.map(|step| step.what.as_str()).collect::<Vec<_>>()
    };
    let all: Vec<&str> = COMMANDS.iter().map(|(.., text)| *text).collect();
    u64::from(obeyed("steady") != all) + u64::from(obeyed("late").as_slice() != &all[2..])
}
