//! Sends each line of an input as a chain of one message: `moteseal broadcast send --live`.

use std::io::{self, BufRead as _, Read as _};
use std::path::PathBuf;
use std::time::Duration;

use moteseal_broadcast::MAX_MESSAGE;
use moteseal_gateway::broadcast::{
    AddressForm, Content, ContentError, Hashes, Manner, SendError, Sender, build, sign,
};
use moteseal_net::Broadcast;
use tokio::sync::mpsc;

use super::addressed::prepare;
use super::terms::Terms;
use super::{Arguments, Speaker, finish, less, reader, report, seed, trimmed, unix_now};
use crate::failure::Failure;

/// The maximum number of lines that were read but not sent yet.
const LINES: usize = 64;

/// Sends each line as soon as it is read.
pub(super) async fn send_live(
    arguments: &Arguments,
    terms: &Terms,
    speaker: &Speaker,
    link: &Broadcast,
) -> Result<(), Failure> {
    let path = arguments.lines.clone().unwrap_or_else(|| PathBuf::from("-"));
    let (put, mut lines) = mpsc::channel(LINES);
    let reader = reader(&path)?;
    // Read on a separate thread, so that the command can end while it waits for input.
    std::thread::spawn(move || read_lines(reader, &put));
    let manner = Manner { rate: arguments.rate, ..Manner::LAN };
    let sender = Sender::new(link, speaker.network, &speaker.certificate, manner, seed()?);
    let mut sender = sender?;
    if let Some(expected) = &speaker.expected {
        sender.set_receivers(&expected.list);
    }
    let (label, to) = (arguments.label(), speaker.addressees());
    let mut number = 0;
    loop {
        let line = tokio::select! {
            line = lines.recv() => line,
            answered = sender.linger(Duration::from_secs(3600)) => {
                answered?;
                continue;
            }
        };
        let Some(line) = line else { break };
        number += 1;
        let line = line.map_err(|error| Failure::file("read", &path, &error))?;
        if line.len() > MAX_MESSAGE {
            return Err(Failure::usage(ContentError::LineTooLong {
                line: number,
                length: line.len(),
            }));
        }
        let before = sender.amount();
        let content = Content::lines(vec![line])?;
        let mut hashes = Hashes::default();
        let of_head = if to.is_some() { "" } else { label };
        let draft = speaker.next(terms, 1, of_head, unix_now()?)?;
        let (id, form) = ((&draft.id, draft.key), AddressForm::Single);
        let prepared = prepare(to.as_ref(), None, id, (label, &content), form)?;
        let chain = build(draft, &prepared.content, &mut hashes)?;
        let head = sign(&chain, &speaker.key)?;
        let message = first_message(&prepared.content)?;
        if let Some(to) = &to {
            if let Some(most) = arguments.message.filter(|most| message.len() > *most) {
                return Err(Failure::usage(format_args!(
                    "AddressTooLong: line {number} has {} bytes with its address, and --message permits {most}; name fewer receivers, or send a shorter line",
                    message.len()
                )));
            }
            sender.address(chain.reference(), to.positions());
        }
        sender.send_at_once(head, message).await?;
        let of_receivers = to.as_ref().map(|to| to.positions().len());
        report(&chain, (&content, of_receivers), label, less(sender.amount(), before))?;
    }
    finish(arguments, speaker, &mut sender, &[]).await
}

fn first_message(content: &Content) -> Result<Vec<u8>, Failure> {
    let mut message = vec![0; MAX_MESSAGE];
    let length = content.read(0, &mut message).map_err(SendError::Read)?;
    message.truncate(length);
    Ok(message)
}

/// Reads the lines of an input. Truncates a line that is longer than a message, but leaves enough
/// bytes to show that it is too long.
fn read_lines(mut reader: Box<dyn io::BufRead + Send>, put: &mpsc::Sender<io::Result<Vec<u8>>>) {
    loop {
        let mut line = Vec::new();
        let read = reader.by_ref().take(MAX_MESSAGE as u64 + 2).read_until(b'\n', &mut line);
        let next = match read {
            Ok(0) => return,
            Ok(_) => {
                if line.last() == Some(&b'\n') {
                    line.pop();
                }
                Ok(trimmed(line))
            }
            Err(error) => Err(error),
        };
        let is_error = next.is_err();
        if put.blocking_send(next).is_err() || is_error {
            return;
        }
    }
}
