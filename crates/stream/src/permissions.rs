//! What the users of a stream may do at the NATS servers. docs/scale.md has the same lists as a table.

use std::collections::BTreeSet;

use crate::layout::Names;
use crate::settings::{Role, Settings};

/// What a user of the stream does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Duty {
    /// Creates and changes the streams, and replays dead letters.
    Admin,
    /// Publishes batches.
    Intake,
    /// Takes batches and writes them to a store.
    Worker,
    /// Asks how far the workers are.
    Serve,
}

impl Duty {
    /// All duties.
    pub const ALL: [Self; 4] = [Self::Admin, Self::Intake, Self::Worker, Self::Serve];

    /// Returns the duty's name in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Intake => Role::Intake.name(),
            Self::Worker => Role::Worker.name(),
            Self::Serve => Role::Serve.name(),
        }
    }

    /// Returns the prefix of the subjects at which a process with this duty receives answers.
    #[must_use]
    pub const fn inbox(self) -> &'static str {
        match self {
            Self::Admin => "_INBOX.moteseal.admin",
            Self::Intake => Settings::inbox_of(Role::Intake),
            Self::Worker => Settings::inbox_of(Role::Worker),
            Self::Serve => Settings::inbox_of(Role::Serve),
        }
    }
}

/// The subjects that a user may publish and subscribe to. NATS refuses all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// The subjects of publications and requests.
    pub publish: BTreeSet<String>,
    /// The subjects of subscriptions.
    pub subscribe: BTreeSet<String>,
}

impl Permissions {
    /// Returns what a user with these duties needs for the stream with this name, and nothing more.
    /// Without duties, it may do nothing.
    #[must_use]
    pub fn of(stream: &str, duties: &[Duty]) -> Self {
        let names = Names::new(stream);
        let mut permissions = Self::default();
        for duty in duties {
            permissions.publish.extend(publish(&names, *duty));
            permissions.subscribe.insert(match duty {
                Duty::Admin => ">".to_owned(),
                duty => format!("{}.>", duty.inbox()),
            });
        }
        permissions
    }
}

fn publish(names: &Names, duty: Duty) -> Vec<String> {
    let Names { batches, pieces, dead, batch_subject, piece_subject, dead_subject, consumer } =
        names;
    let info = |stream: &str| format!("$JS.API.STREAM.INFO.{stream}");
    let state = format!("$JS.API.CONSUMER.INFO.{batches}.{consumer}");
    match duty {
        Duty::Admin => vec![">".to_owned()],
        Duty::Intake => {
            vec![batch_subject.clone(), format!("{piece_subject}.>"), info(batches), info(pieces)]
        }
        Duty::Worker => vec![
            dead_subject.clone(),
            info(batches),
            info(pieces),
            info(dead),
            state,
            format!("$JS.API.CONSUMER.MSG.NEXT.{batches}.{consumer}"),
            format!("$JS.ACK.{batches}.{consumer}.>"),
            format!("$JS.API.DIRECT.GET.{pieces}"),
            format!("$JS.API.DIRECT.GET.{pieces}.>"),
            format!("$JS.API.STREAM.MSG.GET.{pieces}"),
            format!("$JS.API.STREAM.PURGE.{pieces}"),
        ],
        Duty::Serve => vec![state],
    }
}
