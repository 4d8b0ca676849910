//! Section V of the paper: strings of 24 bytes from a sensor over MQTT, plain, encrypted with AES-128-CBC
//! once or twice, over TLS, or encrypted as the cells of an encrypted column.
//!
//! The sensor and the receiver are threads of this process; the broker is a Mosquitto. The sensor sends as
//! fast as it can. A string is encrypted after its time is taken, and decrypted and compared before its
//! arrival is. The receiver is next to the broker, as in the paper, so only the sensor's connection uses the
//! link of the medium.

use std::fmt;
use std::time::Instant;

use aws_lc_rs::cipher::{
    AES_128, DecryptionContext, PaddedBlockDecryptingKey, PaddedBlockEncryptingKey,
    UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use moteseal_core::confidential::{ColumnId, KeyStream, SealKey, Suite};
use moteseal_core::record::Sequence;
use serde::{Deserialize, Serialize};

use super::broker::{Broker, IN_FLIGHT};
use super::link::Link;
use super::mqtt::{Client, Qos};
use super::spread::{Histogram, Spread};
use super::{Failed, Plan};
use crate::chance::Seed;

/// The length of a string, in bytes.
pub const STRING: usize = 24;
/// The length of a block and of an initialisation vector of AES.
const BLOCK: usize = 16;

/// What connects the sensor and the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Medium {
    /// The loopback interface, in the place of the paper's home router.
    Loopback,
    /// A link with the delays of a telephone's hotspot.
    Hotspot,
}

impl Medium {
    /// Both media.
    pub const ALL: [Self; 2] = [Self::Loopback, Self::Hotspot];

    /// Returns its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Hotspot => "hotspot",
        }
    }
}

/// How the strings are protected on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protection {
    /// Not at all.
    Plain,
    /// AES-128-CBC, with a random initialisation vector in front.
    Once,
    /// AES-128-CBC twice, with two keys.
    Twice,
    /// TLS 1.3 between each side and the broker.
    Tls,
    /// The key stream of an encrypted column of text (`spec/confidential.md`, section 4). The broker cannot
    /// read the string. The seal of the epoch, which is not sent here, authenticates it.
    Column,
}

impl Protection {
    /// All of them: those of the paper's table I, in its order, then ours.
    pub const ALL: [Self; 5] = [Self::Plain, Self::Once, Self::Twice, Self::Tls, Self::Column];

    /// Returns its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "no encryption",
            Self::Once => "AES-CBC once",
            Self::Twice => "AES-CBC twice",
            Self::Tls => "TLS",
            Self::Column => "encrypted column",
        }
    }

    const fn rounds(self) -> usize {
        match self {
            Self::Plain | Self::Tls | Self::Column => 0,
            Self::Once => 1,
            Self::Twice => 2,
        }
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The trials of one combination.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The medium.
    pub medium: Medium,
    /// The quality of service of MQTT: 0 or 1.
    pub qos: u8,
    /// The protection.
    pub protection: Protection,
    /// The length of the MQTT payload, in bytes.
    pub payload: usize,
    /// The time per message of each trial, in milliseconds: from the first string to the arrival of the
    /// last one, divided by their number. This is the paper's measure.
    pub per_message: Vec<f64>,
    /// The time from the sensor to the receiver of the strings of all trials.
    pub latency: Spread,
    /// The same times.
    pub histogram: Histogram,
}

impl Outcome {
    /// Returns the median of the trials' times per message, in milliseconds.
    #[must_use]
    pub fn median(&self) -> f64 {
        Spread::of(self.per_message.clone()).p50
    }
}

/// Measures all combinations. The protections take turns within each trial. Each trial begins with another
/// one, so that none is always first.
pub(super) fn measure(plan: &Plan, progress: &mut dyn FnMut(&str)) -> Result<Vec<Outcome>, Failed> {
    let folder = tempfile::tempdir_in(&plan.folder)?;
    let broker = Broker::start(folder.path())?;
    let mut outcomes = Vec::new();
    for medium in Medium::ALL {
        for qos in [Qos::Zero, Qos::One] {
            let mut trials = Protection::ALL.map(|_| (Vec::new(), Vec::new(), 0));
            // The first trial only warms the machine up.
            for trial in 0..=plan.trials {
                progress(&format!(
                    "wireless: {}, QoS {}, trial {trial} of {}",
                    medium.name(),
                    u8::from(qos == Qos::One),
                    plan.trials
                ));
                for place in order(trial) {
                    let (protection, kept) = (Protection::ALL[place], &mut trials[place]);
                    let seed = plan.seed.derive("trial", u64::from(trial));
                    let one = Trial { medium, qos, protection, strings: plan.strings, seed };
                    let (per_message, mut latencies, payload) = one.run(&broker)?;
                    if trial > 0 {
                        kept.0.push(per_message);
                        kept.1.append(&mut latencies);
                        kept.2 = payload;
                    }
                }
            }
            for (protection, (per_message, latencies, payload)) in
                Protection::ALL.into_iter().zip(trials)
            {
                outcomes.push(Outcome {
                    medium,
                    qos: u8::from(qos == Qos::One),
                    protection,
                    payload,
                    per_message,
                    histogram: Histogram::of(&latencies),
                    latency: Spread::of(latencies),
                });
            }
        }
    }
    Ok(outcomes)
}

/// Returns the order of [`Protection::ALL`] in a trial.
fn order(trial: u32) -> [usize; Protection::ALL.len()] {
    let first = trial as usize % Protection::ALL.len();
    std::array::from_fn(|turn| (first + turn) % Protection::ALL.len())
}

struct Trial {
    medium: Medium,
    qos: Qos,
    protection: Protection,
    strings: u32,
    seed: Seed,
}

impl Trial {
    /// Sends the strings. Returns the time per message and the latency of each string, in milliseconds, and
    /// the length of a payload.
    fn run(&self, broker: &Broker) -> Result<(f64, Vec<f64>, usize), Failed> {
        let uses_tls = self.protection == Protection::Tls;
        let (address, ca) = (broker.address(uses_tls), broker.ca());
        let ca = uses_tls.then_some(&*ca);
        // The trials of a medium all have the same delays.
        let link = match self.medium {
            Medium::Loopback => None,
            Medium::Hotspot => Some(Link::start(address, self.seed.derive("link", 0))?),
        };
        let near = link.as_ref().map_or(address, Link::address);
        let topic = ("sensor", self.qos);
        let mut receiver = Client::connect(address, ca, "receiver", topic)?;
        receiver.subscribe()?;
        let mut sensor = Client::connect(near, ca, "sensor", topic)?;
        let (ours, theirs) =
            (Cipher::new(self.seed, self.protection)?, Cipher::new(self.seed, self.protection)?);
        std::thread::scope(|scope| {
            let sensor = scope.spawn(|| -> Result<(Vec<Instant>, usize), Failed> {
                let mut sent = Vec::with_capacity(self.strings as usize);
                let mut length = 0;
                for number in 0..self.strings {
                    let string = string(number, self.seed);
                    sent.push(Instant::now());
                    let payload = ours.encrypt(number, &string)?;
                    length = payload.len();
                    sensor.publish(&payload, IN_FLIGHT)?;
                }
                sensor.finish()?;
                Ok((sent, length))
            });
            let mut arrived = Vec::with_capacity(self.strings as usize);
            for number in 0..self.strings {
                let received = theirs.decrypt(number, receiver.next()?)?;
                arrived.push(Instant::now());
                if received != string(number, self.seed) {
                    return Err(format!("string {number} was lost or altered").into());
                }
            }
            let (sent, length) = sensor.join().map_err(|_| "the sensor's thread failed")??;
            let (first, last) =
                sent.first().zip(arrived.last()).ok_or("there are no strings to send")?;
            let whole = last.duration_since(*first).as_secs_f64() * 1e3;
            let latencies = sent.iter().zip(&arrived);
            let latencies = latencies.map(|(from, to)| (*to - *from).as_secs_f64() * 1e3);
            Ok((whole / f64::from(self.strings), latencies.collect(), length))
        })
    }
}

/// Returns a string: its number, and text that follows from the seed.
fn string(number: u32, seed: Seed) -> Vec<u8> {
    let text = format!("{number:08}{}", hex::encode(&seed.0[..8]));
    debug_assert_eq!(text.len(), STRING);
    text.into_bytes()
}

/// The cipher of one side: AES-128-CBC with one or two keys or with none, and perhaps a key stream.
#[derive(Debug)]
pub struct Cipher {
    encrypt: Vec<PaddedBlockEncryptingKey>,
    decrypt: Vec<PaddedBlockDecryptingKey>,
    stream: Option<KeyStream>,
}

impl Cipher {
    /// Derives the keys of a protection from a seed.
    ///
    /// # Errors
    /// The library has no AES-128.
    pub fn new(seed: Seed, protection: Protection) -> Result<Self, Failed> {
        let failed = |_| "AES is not available";
        let (mut encrypt, mut decrypt) = (Vec::new(), Vec::new());
        for round in 0..protection.rounds() as u64 {
            let seed = seed.derive("key", round);
            let key = || UnboundCipherKey::new(&AES_128, &seed.0[..BLOCK]).map_err(failed);
            encrypt.push(PaddedBlockEncryptingKey::cbc_pkcs7(key()?).map_err(failed)?);
            decrypt.push(PaddedBlockDecryptingKey::cbc_pkcs7(key()?).map_err(failed)?);
        }
        let key = |seed: Seed| SealKey::from_bytes(ColumnId([0; 16]), Suite::ChaCha20, seed.0);
        let stream = (protection == Protection::Column)
            .then(|| KeyStream::new(key(seed.derive("column", 0))));
        Ok(Self { encrypt, decrypt, stream })
    }

    /// Encrypts the string with this number: with AES as often as the protection states, each time with a
    /// random vector in front, or with its part of the key stream.
    ///
    /// # Errors
    /// The library has no randomness.
    pub fn encrypt(&self, number: u32, string: &[u8]) -> Result<Vec<u8>, Failed> {
        let mut payload = string.to_vec();
        self.apply_stream(number, &mut payload)?;
        for key in &self.encrypt {
            let context = key.encrypt(&mut payload).map_err(|_| "the encryption failed")?;
            let vector: &[u8] = (&context).try_into().map_err(|_| "CBC has a vector")?;
            payload = [vector, &payload].concat();
        }
        Ok(payload)
    }

    fn decrypt(&self, number: u32, mut payload: Vec<u8>) -> Result<Vec<u8>, Failed> {
        for key in self.decrypt.iter().rev() {
            let (vector, text) = payload
                .split_first_chunk_mut::<BLOCK>()
                .ok_or("a payload is shorter than a block")?;
            let context = DecryptionContext::Iv128(FixedLength::from(&*vector));
            let text = key.decrypt(text, context).map_err(|_| "a payload was altered")?;
            payload = text.to_vec();
        }
        self.apply_stream(number, &mut payload)?;
        Ok(payload)
    }

    /// Encrypts or decrypts a string with the key stream, if there is one.
    fn apply_stream(&self, number: u32, string: &mut [u8]) -> Result<(), Failed> {
        if let Some(stream) = &self.stream {
            stream.apply_text(Sequence(number.into()), string)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_trial_has_all_protections_and_begins_with_another_one() {
        assert_eq!(
            [0, 1, 4, 5].map(order),
            [[0, 1, 2, 3, 4], [1, 2, 3, 4, 0], [4, 0, 1, 2, 3], [0, 1, 2, 3, 4]]
        );
    }

    #[test]
    fn a_string_is_encrypted_as_often_as_the_protection_states() {
        let string = string(42, Seed::default());
        assert_eq!(string.len(), STRING);
        for (protection, length) in [
            (Protection::Plain, 24),
            (Protection::Tls, 24),
            (Protection::Column, 24),
            // A vector, and 24 bytes padded to two blocks; then a vector, and four blocks of it.
            (Protection::Once, 16 + 32),
            (Protection::Twice, 16 + 64),
        ] {
            let cipher = Cipher::new(Seed::default(), protection).unwrap();
            let payload = cipher.encrypt(42, &string).unwrap();
            assert_eq!(payload.len(), length, "{protection}");
            assert_eq!(cipher.decrypt(42, payload.clone()).unwrap(), string, "{protection}");
            if !matches!(protection, Protection::Plain | Protection::Tls) {
                assert!(!payload.windows(8).any(|part| part == &string[..8]), "{protection}");
                // A vector is random. A key stream depends on the number of the string.
                let other = if protection == Protection::Column { 43 } else { 42 };
                assert_ne!(cipher.encrypt(other, &string).unwrap(), payload, "{protection}");
            }
        }
    }
}
