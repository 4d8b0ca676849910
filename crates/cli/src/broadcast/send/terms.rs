//! The kind of a broadcast, and the time in which receivers may deliver it.

use clap::{Args, ValueEnum};
use moteseal_broadcast::{DraftError, Kind, Window};

use crate::failure::Failure;
use crate::time::{duration, instant};

/// The kind of a broadcast, as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KindArgument {
    /// Obeyed within its window; only the newest one of a topic applies
    Command,
    /// Independent messages, delivered to every receiver
    Announcement,
    /// A file, which receivers save
    File,
}

/// The arguments for the kind and the time of a broadcast.
#[derive(Args, Debug)]
pub(super) struct TermsArguments {
    /// What is sent [default: file for files, announcement for lines]
    #[arg(long, value_name = "KIND")]
    kind: Option<KindArgument>,
    /// What the command is about; receivers obey only the newest command of a topic
    #[arg(long, value_name = "TEXT")]
    pub(super) topic: Option<String>,
    /// How long receivers may deliver it, for example 10m; counts from --not-before, or from now
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "not_after")]
    valid: Option<u64>,
    /// The time before which receivers do not deliver it [default: now for commands]
    #[arg(long, value_name = "TIME", value_parser = instant)]
    not_before: Option<u64>,
    /// The time from which on receivers do not deliver it
    #[arg(long, value_name = "TIME", value_parser = instant)]
    not_after: Option<u64>,
}

/// The kind of the chains that a command sends, and how their windows are computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) kind: Kind,
    /// Seconds.
    valid: Option<u64>,
    not_before: Option<u64>,
    not_after: Option<u64>,
}

impl Terms {
    /// Checks the arguments. `has_lines` means that lines are sent, and not files.
    pub(super) fn of(arguments: &TermsArguments, has_lines: bool) -> Result<Self, Failure> {
        let kind = match (arguments.kind, has_lines) {
            (None | Some(KindArgument::File), false) => Kind::File,
            (None | Some(KindArgument::Announcement), true) => Kind::Announcement,
            (Some(KindArgument::Command), true) => Kind::Command,
            (Some(KindArgument::File), true) => {
                return Err(Failure::usage("--kind file needs a file, not --lines"));
            }
            (Some(_), false) => {
                return Err(Failure::usage(
                    "commands and announcements are lines; give them with --lines",
                ));
            }
        };
        if kind != Kind::Command && arguments.topic.is_some() {
            return Err(Failure::usage(
                "only commands have a topic; use --kind command, or --label instead of --topic",
            ));
        }
        if kind == Kind::Command && arguments.valid.is_none() && arguments.not_after.is_none() {
            return Err(Failure::usage(
                "CommandWithoutEnd: a command must have an end; for example, use --valid 10m",
            ));
        }
        Ok(Self {
            kind,
            valid: arguments.valid.map(|ms| ms.div_ceil(1000)),
            not_before: arguments.not_before.map(|ms| ms / 1000),
            not_after: arguments.not_after.map(|ms| ms / 1000),
        })
    }

    /// Returns whether a chain with this window, which was computed at the time `begun`, has these
    /// terms, and may still be delivered at `now`. Both are in seconds of Unix time.
    pub(super) fn have(&self, window: &Window, begun: u64, now: u64) -> bool {
        begun <= now
            && (!window.has_end() || now < window.not_after)
            && self.window(begun).is_ok_and(|same| same == *window)
    }

    /// Returns the window of a chain that is sent at `now`, in seconds of Unix time.
    pub(super) fn window(&self, now: u64) -> Result<Window, Failure> {
        let begin = self.not_before.unwrap_or(now);
        let window = Window {
            not_before: match self.not_before {
                None if self.kind != Kind::Command => 0,
                _ => begin,
            },
            not_after: match (self.valid, self.not_after) {
                (Some(valid), _) => begin.saturating_add(valid),
                (None, Some(not_after)) => not_after,
                (None, None) => u64::MAX,
            },
        };
        window.check_for(self.kind).map_err(|error| Failure::usage(error.named()))?;
        if window.not_after <= now {
            return Err(Failure::usage(format_args!(
                "{}: the end is in the past",
                DraftError::EmptyWindow.name()
            )));
        }
        Ok(window)
    }
}
