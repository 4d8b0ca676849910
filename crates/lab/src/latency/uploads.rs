//! The sensor agent of the wired part: seals messages and uploads them at one of three rates.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use moteseal_api::{CBOR_SEQ, POSITION, paths};
use moteseal_net::Client;
use tokio::task::JoinSet;

use super::wired::{AT_ONCE, Message, PER_SECOND, Rate};
use super::{Failed, Fleet};

/// How long one configuration sends before the next one takes its turn, at the maximum rate.
const TURN: Duration = Duration::from_secs(1);

/// A message that was acknowledged. Times are in microseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// Before the first byte was sent: t1 of the paper.
    pub(super) sent_us: i64,
    pub(super) acknowledged_us: i64,
    /// The position in the stream, if there is one.
    pub(super) position: Option<u64>,
}

/// Who sends to one configuration, and what was acknowledged.
#[derive(Debug)]
pub(super) struct Sender {
    client: Client,
    pub(super) sent: Vec<Sent>,
    /// The bytes of all bundles.
    pub(super) bytes: u64,
    /// The time in which this sender's turns were, and in which it sealed.
    pub(super) busy: Duration,
    pub(super) sealing: Duration,
}

impl Sender {
    pub(super) fn new(client: Client) -> Self {
        let (busy, sealing) = (Duration::ZERO, Duration::ZERO);
        Self { client, sent: Vec::new(), bytes: 0, busy, sealing }
    }

    fn seal(
        &mut self,
        (fleet, device): (&mut Fleet, usize),
        message: Message,
    ) -> Result<Bytes, Failed> {
        let start = Instant::now();
        let bundle = fleet.seal_one(device, message.readings())?;
        self.sealing += start.elapsed();
        self.bytes += bundle.bytes.len() as u64;
        Ok(bundle.bytes.into())
    }

    async fn send(&mut self, fleet: &mut Fleet, message: Message) -> Result<(), Failed> {
        let bundle = self.seal((fleet, 0), message)?;
        self.sent.push(upload(&self.client, bundle).await?);
        Ok(())
    }
}

/// Returns the microseconds since 1970.
fn now_us() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
}

async fn upload(client: &Client, bundle: Bytes) -> Result<Sent, Failed> {
    let sent_us = now_us();
    let response = client.put(paths::BUNDLES, CBOR_SEQ, bundle).await?;
    let position = response.header(POSITION).and_then(|position| position.parse().ok());
    response.bytes(4096).await?;
    Ok(Sent { sent_us, acknowledged_us: now_us(), position })
}

/// Sends messages for this time to each of the configurations.
pub(super) async fn send(
    senders: &mut [(Sender, &mut Fleet)],
    message: Message,
    rate: Rate,
    time: Duration,
) -> Result<(), Failed> {
    match rate {
        Rate::Low => steadily(senders, message, time).await,
        Rate::Maximum => in_turns(senders, message, time).await,
        Rate::Parallel => {
            for (sender, fleet) in senders {
                at_once(sender, fleet, message, time).await?;
            }
            Ok(())
        }
    }
}

/// Sends a message to each configuration in each interval of the low rate, spread over the interval.
async fn steadily(
    senders: &mut [(Sender, &mut Fleet)],
    message: Message,
    time: Duration,
) -> Result<(), Failed> {
    let interval = Duration::from_secs(1) / PER_SECOND;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let messages = (time.as_secs_f64() * f64::from(PER_SECOND)).ceil() as u32;
    #[allow(clippy::cast_possible_truncation)]
    let step = interval / senders.len().max(1) as u32;
    let start = tokio::time::Instant::now();
    for number in 0..messages {
        for (place, (sender, fleet)) in (0..).zip(senders.iter_mut()) {
            tokio::time::sleep_until(start + interval * number + step * place).await;
            sender.send(fleet, message).await?;
        }
    }
    senders.iter_mut().for_each(|(sender, _)| sender.busy = start.elapsed());
    Ok(())
}

/// Sends to one configuration after the other for a short while, each message after the previous one was
/// acknowledged.
async fn in_turns(
    senders: &mut [(Sender, &mut Fleet)],
    message: Message,
    time: Duration,
) -> Result<(), Failed> {
    while let Some(left) = senders.iter().map(|(sender, _)| time.saturating_sub(sender.busy)).max()
        && !left.is_zero()
    {
        for (sender, fleet) in senders.iter_mut() {
            let start = Instant::now();
            let turn = time.saturating_sub(sender.busy).min(TURN);
            while start.elapsed() < turn {
                sender.send(fleet, message).await?;
            }
            sender.busy += start.elapsed();
        }
    }
    Ok(())
}

/// Sends the messages of several devices, each of which has one message in progress.
async fn at_once(
    sender: &mut Sender,
    fleet: &mut Fleet,
    message: Message,
    time: Duration,
) -> Result<(), Failed> {
    let (client, start) = (sender.client.clone(), Instant::now());
    let mut uploads = JoinSet::new();
    let mut idle: Vec<usize> = (0..AT_ONCE).collect();
    loop {
        while start.elapsed() < time
            && let Some(device) = idle.pop()
        {
            let (client, bundle) = (client.clone(), sender.seal((&mut *fleet, device), message)?);
            uploads.spawn(async move { upload(&client, bundle).await.map(|sent| (device, sent)) });
        }
        let Some(done) = uploads.join_next().await else { break };
        let (device, sent) = done??;
        sender.sent.push(sent);
        idle.push(device);
    }
    sender.busy = start.elapsed();
    Ok(())
}
