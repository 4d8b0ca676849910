//! `moteseal stream`: the stream between the intakes and workers of a cloud.

use std::time::Duration;

use crate::cloud::runtime;
use crate::cloud::stream::Connection;
use crate::failure::Failure;
use crate::terminal::{Stdout, diagnostic, is_json, report};
use clap::{Args, Subcommand};
use moteseal_stream::{DeadLetters, Layout, Role, Stream, StreamError};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create the streams and the consumer, or change them to these limits. Running it again changes
    /// nothing.
    #[command(
        after_help = "Example:\n  moteseal stream init --stream nats://127.0.0.1:4222 --stream-replicas 3"
    )]
    Init(Init),
    /// Check the servers, the streams and the permissions of a role.
    Check(Check),
    /// Count, list, replay or discard the dead letters: messages that no worker can store.
    #[command(subcommand)]
    Dead(Dead),
}

#[derive(Args, Debug)]
pub(crate) struct Init {
    #[command(flatten)]
    connection: Connection,
    /// The most MiB of uploads that wait for the workers; beyond them, intakes reject uploads
    #[arg(long, value_name = "MIB", default_value_t = 8192)]
    max_mib: u64,
    /// The most MiB of pieces of long uploads
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    piece_mib: u64,
    /// The most MiB of dead letters
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    dead_mib: u64,
    /// How many seconds a worker may keep a message before another worker gets it
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    ack_wait: u64,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum CheckedRole {
    Intake,
    Worker,
    Serve,
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    #[command(flatten)]
    connection: Connection,
    /// The role whose permissions are tried
    #[arg(long, value_enum)]
    role: CheckedRole,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Dead {
    /// Print the number of dead letters
    Count(Connected),
    /// List dead letters: number, time, bytes and the error's name
    List(List),
    /// Publish dead letters to the workers again
    Replay(Replay),
    /// Remove dead letters for good
    Discard(Discard),
}

#[derive(Args, Debug)]
pub(crate) struct Connected {
    #[command(flatten)]
    connection: Connection,
}

#[derive(Args, Debug)]
pub(crate) struct List {
    #[command(flatten)]
    connection: Connection,
    /// List letters with a greater number only
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    after: u64,
    /// The most letters to list
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    limit: usize,
}

#[derive(Args, Debug)]
pub(crate) struct Replay {
    #[command(flatten)]
    connection: Connection,
    /// Replay the letter with this number only; may be repeated
    #[arg(long = "number", value_name = "NUMBER")]
    numbers: Vec<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct Discard {
    #[command(flatten)]
    connection: Connection,
    /// Remove the letter with this number; may be repeated
    #[arg(long = "number", value_name = "NUMBER", required = true)]
    numbers: Vec<u64>,
}

pub(crate) fn run(command: Command) -> Result<(), Failure> {
    runtime()?.block_on(async {
        match command {
            Command::Init(arguments) => {
                let layout = Layout {
                    max_bytes: arguments.max_mib << 20,
                    piece_bytes: arguments.piece_mib << 20,
                    dead_bytes: arguments.dead_mib << 20,
                    ack_wait: Duration::from_secs(arguments.ack_wait.max(1)),
                    ..Layout::default()
                };
                let stream = connect(&arguments.connection).await?;
                stream.init(&layout).await?;
                diagnostic(format_args!("the streams and the consumer are ready"));
            }
            Command::Check(arguments) => {
                let role = match arguments.role {
                    CheckedRole::Intake => Role::Intake,
                    CheckedRole::Worker => Role::Worker,
                    CheckedRole::Serve => Role::Serve,
                };
                let stream = Stream::connect(arguments.connection.settings(role)).await?;
                stream.check(role).await?;
                diagnostic(format_args!("a {} can use the stream", role.name()));
            }
            Command::Dead(Dead::Count(arguments)) => {
                let count = dead(&arguments.connection).await?.count().await?;
                print(count, || serde_json::json!({ "count": count }))?;
            }
            Command::Dead(Dead::List(arguments)) => {
                let letters = dead(&arguments.connection).await?;
                for letter in letters.list(arguments.after, arguments.limit).await? {
                    let at = jiff::Timestamp::try_from(letter.at).unwrap_or_default();
                    print(
                        format_args!(
                            "{} {at} {} bytes {}",
                            letter.number, letter.bytes, letter.error
                        ),
                        || {
                            serde_json::json!({
                                "number": letter.number, "at": at.to_string(), "bytes": letter.bytes,
                                "position": letter.position, "error": letter.error,
                            })
                        },
                    )?;
                }
            }
            Command::Dead(Dead::Replay(arguments)) => {
                let letters = dead(&arguments.connection).await?;
                let numbers = Some(&arguments.numbers[..]).filter(|numbers| !numbers.is_empty());
                let missing = letters.missing(&arguments.numbers).await?;
                let count = letters.replay(numbers).await?;
                report(format_args!("{count} replayed"), || {
                    serde_json::json!({ "replayed": count })
                })?;
                no_letters(&missing)?;
            }
            Command::Dead(Dead::Discard(arguments)) => {
                let letters = dead(&arguments.connection).await?;
                let missing = letters.missing(&arguments.numbers).await?;
                let count = letters.discard(&arguments.numbers).await?;
                report(format_args!("{count} discarded"), || {
                    serde_json::json!({ "discarded": count })
                })?;
                no_letters(&missing)?;
            }
        }
        Ok(())
    })
}

/// Connects with the subject prefix for answers that administrators use.
async fn connect(connection: &Connection) -> Result<Stream, StreamError> {
    let mut settings = connection.settings(Role::Serve);
    "_INBOX.moteseal.admin".clone_into(&mut settings.inbox);
    Stream::connect(settings).await
}

async fn dead(connection: &Connection) -> Result<DeadLetters, StreamError> {
    DeadLetters::open(connect(connection).await?).await
}

/// Fails if there are numbers that no dead letter has.
fn no_letters(missing: &[u64]) -> Result<(), Failure> {
    let numbers: Vec<String> = missing.iter().map(u64::to_string).collect();
    let (are, numbers) =
        (if missing.len() > 1 { "are no letters" } else { "is no letter" }, numbers.join(", "));
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::usage(format_args!(
        "there {are} {numbers}; `moteseal stream dead list` prints the numbers"
    )))
}

/// Prints data to stdout: a line of text, or with `--json` a line of JSON.
fn print(
    text: impl std::fmt::Display,
    value: impl FnOnce() -> serde_json::Value,
) -> Result<(), Failure> {
    let mut out = Stdout::lock();
    if is_json() { out.line(value()) } else { out.line(text) }
}
