//! Handshakes of DTLS 1.2 between two endpoints of the crate dimpl in memory: with a shared key, and
//! with ECDHE_ECDSA on P-256.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use dimpl::crypto::Dtls12CipherSuite;
use dimpl::{Config, ConfigBuilder, Dtls, DtlsCertificate, NamedGroup, Output, PskResolver};
use moteseal_lab::rerum::Handshake;

use super::Effort;
use crate::measure::{Contender, interleaved};
use crate::seals::extremes;

/// The identity of the shared key: a device's identifier in hexadecimal.
const IDENTITY: &[u8] = b"0102030405060708";

struct Shared;

impl PskResolver for Shared {
    fn resolve(&self, identity: &[u8]) -> Option<Vec<u8>> {
        (identity == IDENTITY).then(|| vec![8; 32])
    }
}

/// The configurations of the two sides. Each side has a certificate unless both have a shared key.
struct Suite {
    name: &'static str,
    client: (Arc<Config>, Option<DtlsCertificate>),
    server: (Arc<Config>, Option<DtlsCertificate>),
}

impl Suite {
    fn all() -> Result<[Self; 3], String> {
        let build = |config: ConfigBuilder| {
            config.build().map(Arc::new).map_err(|error| format!("DTLS: {error}"))
        };
        let psk = Self {
            name: "PSK_AES128_CCM_8",
            client: (
                build(Config::builder().with_psk_client(IDENTITY.to_vec(), Arc::new(Shared)))?,
                None,
            ),
            server: (build(Config::builder().with_psk_server(None, Arc::new(Shared)))?, None),
        };
        let (client, server) = (certificate()?, certificate()?);
        let ecdsa = |name, mutual| {
            let config = || {
                Config::builder()
                    .dtls12_cipher_suites(&[Dtls12CipherSuite::ECDHE_ECDSA_AES128_GCM_SHA256])
                    .kx_groups(&[NamedGroup::Secp256r1])
                    .require_client_certificate(mutual)
            };
            Ok::<_, String>(Self {
                name,
                client: (build(config())?, Some(client.clone())),
                server: (build(config())?, Some(server.clone())),
            })
        };
        Ok([
            psk,
            ecdsa("ECDHE_ECDSA_AES128_GCM, server's certificate", false)?,
            ecdsa("ECDHE_ECDSA_AES128_GCM, both certificates", true)?,
        ])
    }

    /// Completes a handshake. Calls `sent` for each datagram, in order.
    fn handshake(&self, sent: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        let now = Instant::now();
        let endpoint = |(config, certificate): &(Arc<Config>, Option<DtlsCertificate>), active| {
            let config = Arc::clone(config);
            let mut endpoint = match certificate {
                Some(certificate) => Dtls::new_12(config, certificate.clone(), now),
                None => Dtls::new_12_psk(config, now),
            };
            endpoint.set_active(active);
            endpoint
        };
        let mut ends = [endpoint(&self.client, true), endpoint(&self.server, false)];
        let mut connected = [false; 2];
        let failed = |error| format!("DTLS: {error}");
        let mut buffer = vec![0; 2048];
        for end in &mut ends {
            end.handle_timeout(now).map_err(failed)?;
        }
        // Each turn delivers a flight. A handshake has six.
        for turn in 0..8 {
            let [first, second] = &mut ends;
            let (from, to) = if turn % 2 == 0 { (first, second) } else { (second, first) };
            loop {
                match from.poll_output(&mut buffer) {
                    Output::Packet(datagram) => {
                        sent(datagram);
                        to.handle_packet(datagram).map_err(failed)?;
                    }
                    Output::Connected => connected[turn % 2] = true,
                    Output::Timeout(_) => break,
                    _ => {}
                }
            }
        }
        if connected == [true; 2] { Ok(()) } else { Err("DTLS: no connection".to_owned()) }
    }
}

/// Creates a self-signed certificate on P-256.
fn certificate() -> Result<DtlsCertificate, String> {
    let made = rcgen::generate_simple_self_signed(vec!["device".to_owned()])
        .map_err(|error| format!("certificate: {error}"))?;
    Ok(DtlsCertificate {
        certificate: made.cert.der().to_vec(),
        private_key: made.signing_key.serialize_der(),
    })
}

/// Counts the records and the messages of a datagram. A protected record has one message.
fn count(datagram: &[u8]) -> (usize, usize) {
    let (mut records, mut messages, mut rest) = (0, 0, datagram);
    while let Some((header, after)) = rest.split_first_chunk::<13>() {
        let length = usize::from(u16::from_be_bytes([header[11], header[12]]));
        let (mut fragment, after) = after.split_at(length.min(after.len()));
        records += 1;
        let is_plain_handshake = header[0] == 22 && header[4] == 0;
        if is_plain_handshake {
            while let Some((header, body)) = fragment.split_first_chunk::<12>() {
                let [.., a, b, c] = header.map(usize::from);
                messages += 1;
                fragment = &body[(a << 16 | b << 8 | c).min(body.len())..];
            }
        } else {
            messages += 1;
        }
        rest = after;
    }
    (records, messages)
}

/// Measures all handshakes.
pub(super) fn measure(effort: Effort) -> Result<Vec<Handshake>, String> {
    let suites = Suite::all()?;
    let mut rows = Vec::new();
    for suite in &suites {
        let (mut datagrams, mut records, mut messages) = (Vec::new(), 0, 0);
        suite.handshake(&mut |datagram| {
            datagrams.push(datagram.len());
            let (more_records, more_messages) = count(datagram);
            records += more_records;
            messages += more_messages;
        })?;
        rows.push((datagrams, records, messages));
    }
    let failure = RefCell::new(None);
    let mut contenders: Vec<_> = suites
        .iter()
        .map(|suite| {
            let failure = &failure;
            Contender::new(effort.count, move || {
                for _ in 0..effort.count {
                    if let Err(error) = suite.handshake(&mut |_| {}) {
                        *failure.borrow_mut() = Some(error);
                    }
                }
            })
        })
        .collect();
    let times = interleaved(effort.repetitions, &mut contenders);
    drop(contenders);
    if let Some(error) = failure.into_inner() {
        return Err(error);
    }
    let row = |(at, (suite, (datagrams, records, messages))): (usize, (&Suite, _))| Handshake {
        suite: suite.name,
        datagrams,
        records,
        messages,
        time: extremes(&times, at),
        ratio: times.ratio(at, 0),
    };
    Ok(suites.iter().zip(rows).enumerate().map(row).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_handshake_has_six_datagrams_and_the_expected_messages() {
        let rows = measure(Effort::QUICK).unwrap();
        // ClientHello, HelloVerifyRequest, ClientHello, ServerHello, ServerHelloDone,
        // ClientKeyExchange, and ChangeCipherSpec and Finished of both sides. With signatures:
        // Certificate and ServerKeyExchange. With both certificates: CertificateRequest, and the
        // client's Certificate and CertificateVerify.
        for (row, messages) in rows.iter().zip([10, 12, 15]) {
            assert_eq!((row.datagrams.len(), row.messages), (6, messages), "{}", row.suite);
        }
        // The bytes of a handshake with a shared key depend only on the length of its identity.
        assert_eq!(rows[0].datagrams, [114, 60, 146, 108, 110, 67]);
        assert!(rows.windows(2).all(|pair| pair[0].bytes() < pair[1].bytes()));
    }
}
