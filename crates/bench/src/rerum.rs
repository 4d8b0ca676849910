//! Measures signed readings and DTLS handshakes as the RERUM project's deliverable D5.3 does (tables
//! 7, 19 to 21 and 25), with its P-192 and with the product's suites. The lab's page compares the
//! measurements with its numbers.

mod handshakes;
mod transfer;

use std::hint::black_box;

use bytes::Bytes;
use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};
use moteseal_lab::redactable::mote::Sent;
use moteseal_lab::rerum::{Measured, Message, Signing};
use moteseal_lab::seals::footprint::Footprint;
use moteseal_research::json_signature::Reading;
use moteseal_research::redactable::ps14_json::{self, Form};
use moteseal_research::redactable::{moduli, ps14};
use moteseal_research::secp192r1;

use crate::measure::{Contender, interleaved};
use crate::seals::extremes;
use transfer::Link;

/// The amount of measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Number of repetitions over which the median is taken.
    repetitions: usize,
    /// Number of signatures and of handshakes per repetition.
    count: usize,
}

impl Effort {
    /// The effort of `make lab`. It takes a few seconds.
    pub(crate) const FULL: Self = Self { repetitions: 9, count: 50 };
    /// The smallest effort that produces every entry.
    pub(crate) const QUICK: Self = Self { repetitions: 1, count: 1 };
}

/// The reading of D5.3's figure 4.
const READING: Reading = Reading { measurement_id: 42, signed_chip_temp: 27_800 };

/// Runs all measurements.
pub(crate) fn measure(
    footprint: Option<Footprint>,
    effort: Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Measured, String> {
    progress("signed readings");
    let keys = Keys::new()?;
    let messages = [
        ("unsigned", READING.unsigned()),
        ("signed", keys.lab()),
        ("malleably signed", malleable(Form::WithKey)?),
        ("malleably signed, without pk", malleable(Form::WithAccumulator)?),
        ("malleably signed, mended", malleable(Form::Mended)?),
        ("signed with Ed25519", product(&keys.edwards)?),
        ("signed with P-256", product(&keys.p256)?),
    ];
    let messages = transfers(messages.into(), effort)?;
    let signing = signing(&keys, effort)?;
    progress("handshakes of DTLS");
    let handshakes = handshakes::measure(effort)?;
    Ok(Measured { messages, signing, handshakes, footprint })
}

struct Keys {
    p192: secp192r1::SecretKey,
    edwards: SecretKey,
    p256: SecretKey,
}

impl Keys {
    fn new() -> Result<Self, String> {
        let ours = |suite| {
            SecretKey::from_seed(suite, &[7; 32]).map_err(|error| format!("no key: {error}"))
        };
        Ok(Self {
            p192: secp192r1::SecretKey::from_bytes(&[7; 24]).ok_or("no key of P-192")?,
            edwards: ours(Algorithm::Ed25519)?,
            p256: ours(Algorithm::Esp256)?,
        })
    }

    /// Returns a message with D5.3's signature.
    fn lab(&self) -> String {
        READING.signed(|text| self.p192.sign(text))
    }
}

/// Returns the message of D5.3's figure 15, signed with its key of 245 bits.
fn malleable(form: Form) -> Result<String, String> {
    let failed = |error: &dyn std::fmt::Display| format!("PS14: {error}");
    let trapdoor = moduli::d5_3().map_err(|error| failed(&error))?;
    let modulus = trapdoor.modulus();
    let mut four = vec![0; modulus.length()];
    four.last_mut().into_iter().for_each(|last| *last = 4);
    let accumulator = modulus.element(&four).ok_or("PS14: 4 is no accumulator")?;
    let tag = [0x00, 0x00, 0xf4, 0x2d, 0x8c, 0xcf, 0xf6, 0x46];
    let key = ps14::SecretKey::new(trapdoor, accumulator, tag.len());
    let key = key.map_err(|error| failed(&error))?;
    let signed = key.sign(&tag, [&b"temp"[..], b"27,"]).map_err(|error| failed(&error))?;
    let order = ["temp", "27,"];
    let message = ps14_json::Message::new(42, &signed, &order, form, key.public());
    message.map(|message| message.to_json()).map_err(|error| failed(&error))
}

/// Returns a message with a signature of one of the product's suites.
fn product(key: &SecretKey) -> Result<String, String> {
    let mut result = Ok(());
    let message = READING.signed(|text| {
        let mut signature = [0; 64];
        result = key.sign(text, &mut signature).map(|_| ());
        signature
    });
    result.map(|()| message).map_err(|error| format!("cannot sign: {error}"))
}

/// Returns D5.3's message without a signature, and with one of the product's Ed25519, each with its
/// transfer.
pub(crate) fn plain() -> Result<[Sent; 2], String> {
    let keys = Keys::new()?;
    Ok([send(READING.unsigned().into())?, send(product(&keys.edwards)?.into())?])
}

/// Transfers a message over CoAP once.
pub(crate) fn send(message: Bytes) -> Result<Sent, String> {
    let transfer = Link::new()?.transfer(&message)?;
    Ok(Sent { bytes: message.len(), transfer })
}

/// Transfers each message over CoAP.
fn transfers(
    messages: Vec<(&'static str, String)>,
    effort: Effort,
) -> Result<Vec<Message>, String> {
    let mut rows = Vec::new();
    for (name, text) in messages {
        let (mut link, text) = (Link::new()?, Bytes::from(text));
        let transfer = link.transfer(&text)?;
        let count = effort.count;
        let fetching = Contender::new(count, || {
            for _ in 0..count {
                let _ = black_box(link.transfer(&text));
            }
        });
        let time = extremes(&interleaved(effort.repetitions, &mut [fetching]), 0);
        rows.push(Message { name, bytes: text.len(), transfer, time });
    }
    Ok(rows)
}

fn signing(keys: &Keys, effort: Effort) -> Result<Vec<Signing>, String> {
    let count = effort.count;
    let lab = keys.lab();
    let mut contenders = vec![
        Contender::new(count, || {
            for _ in 0..count {
                black_box(keys.lab());
            }
        }),
        Contender::new(count, || {
            for _ in 0..count {
                let verify = |text: &[u8], signature: &[u8; secp192r1::SIGNATURE]| {
                    keys.p192.public().verify(text, signature)
                };
                assert_eq!(Reading::open(black_box(lab.as_bytes()), verify), Ok(READING));
            }
        }),
    ];
    let suites = [("Ed25519", &keys.edwards), ("P-256", &keys.p256)];
    for (_, key) in suites {
        let (message, public) = (product(key)?, key.public());
        contenders.push(Contender::new(count, move || {
            for _ in 0..count {
                let _ = black_box(product(key));
            }
        }));
        contenders.push(Contender::new(count, move || {
            for _ in 0..count {
                let verify =
                    |text: &[u8], signature: &[u8; 64]| public.verify(text, signature).is_ok();
                assert_eq!(Reading::open(black_box(message.as_bytes()), verify), Ok(READING));
            }
        }));
    }
    let times = interleaved(effort.repetitions, &mut contenders);
    let names = ["P-192", "Ed25519", "P-256"];
    Ok((0..)
        .zip(names)
        .map(|(at, suite)| Signing {
            suite,
            signed: extremes(&times, 2 * at),
            opened: extremes(&times, 2 * at + 1),
            ratio: times.ratio(2 * at, 0),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use moteseal_lab::rerum::TABLES_19_TO_21;

    use super::*;

    #[test]
    fn messages_have_the_bytes_blocks_and_messages_of_the_tables() {
        let measured = measure(None, Effort::QUICK, &mut |_| {}).unwrap();
        for row in TABLES_19_TO_21 {
            let ours = measured.messages.iter().find(|ours| ours.name == row.message).unwrap();
            let found = (ours.bytes, ours.transfer.blocks, ours.transfer.messages);
            assert_eq!(found, (row.bytes, row.blocks, row.messages), "{}", row.message);
        }
        let others: Vec<_> = measured.messages[3..5].iter().map(|ours| ours.bytes).collect();
        assert_eq!(others, [358, 285]);
        for ours in &measured.messages[5..] {
            let found = (ours.bytes, ours.transfer.blocks, ours.transfer.messages);
            assert_eq!(found, (147, 3, 6), "{}", ours.name);
        }
    }
}
