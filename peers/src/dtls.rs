//! Compares handshakes of DTLS 1.2 with those of OpenSSL's library: processor time of both sides
//! together, on one thread, in memory. Both libraries verify the certificates, and both servers
//! verify the client's address by a cookie.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::path::Path;
use std::rc::Rc;

use moteseal_core::link::LinkKey;
use openssl::ssl::{
    HandshakeError, MidHandshakeSslStream, Ssl, SslContext, SslContextBuilder, SslFiletype,
    SslMethod, SslMode, SslOptions, SslStream, SslVerifyMode, SslVersion,
};

use crate::handshakes::{self, Kind, Pair, SERVER, Traffic};
use crate::load::Failed;
use crate::measure::{Bar, Contender, Report, interleaved};

/// The number of handshakes of one repetition.
const HANDSHAKES: usize = 100;
/// The number of repetitions: 1,000 handshakes of each kind and library are measured.
const REPETITIONS: usize = 10;

pub(crate) fn run() -> Result<Report, Failed> {
    let folder = tempfile::tempdir()?;
    handshakes::issue(folder.path())?;
    let title = format!(
        "DTLS 1.2 handshakes, both sides, one thread; peer: {}",
        openssl::version::version()
    );
    let mut report = Report::new(title);
    for kind in Kind::ALL {
        let mut ours = Pair::new(kind, folder.path())?;
        let theirs = Openssl::new(kind, folder.path())?;
        let (our_traffic, their_traffic) = (ours.handshake()?, theirs.handshake()?);
        let mut contenders = [
            Contender::new(HANDSHAKES, || {
                for _ in 0..HANDSHAKES {
                    _ = black_box(ours.handshake());
                }
            }),
            Contender::new(HANDSHAKES, || {
                for _ in 0..HANDSHAKES {
                    _ = black_box(theirs.handshake());
                }
            }),
        ];
        let times = interleaved(REPETITIONS, &mut contenders);
        for (name, at, traffic) in [(kind.name(), 0, our_traffic), ("  OpenSSL", 1, their_traffic)]
        {
            report.add_spread(name, times.spread(at), "ns", None);
            #[allow(clippy::cast_precision_loss)]
            report.add(
                format!(
                    "    bytes in {} datagrams, {} records",
                    traffic.datagrams.len(),
                    traffic.records
                ),
                traffic.bytes() as f64,
                "B",
                None,
            );
        }
        report.add_spread("  ours by OpenSSL's", times.ratios(0, 1), "x", Some(Bar::AtMost(1.5)));
    }
    Ok(report)
}

/// The contexts of both ends.
struct Openssl {
    server: SslContext,
    client: SslContext,
}

/// One end of a connection in memory. Each write is one datagram.
#[derive(Clone, Default)]
struct End {
    incoming: Rc<RefCell<VecDeque<Vec<u8>>>>,
    outgoing: Rc<RefCell<VecDeque<Vec<u8>>>>,
    traffic: Rc<RefCell<Traffic>>,
}

impl Read for End {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let datagram = self.incoming.borrow_mut().pop_front();
        let datagram = datagram.ok_or_else(|| io::Error::from(io::ErrorKind::WouldBlock))?;
        let length = datagram.len().min(buffer.len());
        buffer[..length].copy_from_slice(&datagram[..length]);
        Ok(length)
    }
}

impl Write for End {
    fn write(&mut self, datagram: &[u8]) -> io::Result<usize> {
        self.traffic.borrow_mut().add(datagram);
        self.outgoing.borrow_mut().push_back(datagram.to_vec());
        Ok(datagram.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The state of one end's handshake.
enum Progress {
    Waiting(MidHandshakeSslStream<End>),
    Done(#[allow(dead_code)] SslStream<End>),
}

fn progress(result: Result<SslStream<End>, HandshakeError<End>>) -> Result<Progress, Failed> {
    match result {
        Ok(stream) => Ok(Progress::Done(stream)),
        Err(HandshakeError::WouldBlock(stream)) => Ok(Progress::Waiting(stream)),
        Err(HandshakeError::Failure(stream)) => Err(stream.into_error().into()),
        Err(HandshakeError::SetupFailure(error)) => Err(error.into()),
    }
}

impl Openssl {
    fn new(kind: Kind, folder: &Path) -> Result<Self, Failed> {
        let (mut server, mut client) = (context()?, context()?);
        server.set_options(SslOptions::COOKIE_EXCHANGE);
        server.set_cookie_generate_cb(|_, cookie| {
            cookie[..32].fill(7);
            Ok(32)
        });
        server.set_cookie_verify_cb(|_, cookie| cookie == [7; 32]);
        if kind == Kind::Psk {
            let key = LinkKey::dtls_psk(&[7; 32]);
            let put = move |out: &mut [u8]| {
                out[..32].copy_from_slice(&key[..]);
                Ok(32)
            };
            let put_too = put.clone();
            for context in [&mut server, &mut client] {
                context.set_cipher_list("PSK-AES128-CCM8:@SECLEVEL=0")?;
            }
            server.set_psk_server_callback(move |_, _, out| put(out));
            client.set_psk_client_callback(move |_, _, identity, out| {
                let name = b"6465766963652d31\0";
                identity[..name.len()].copy_from_slice(name);
                put_too(out)
            });
        } else {
            let use_own = |context: &mut SslContextBuilder, name: &str| -> Result<(), Failed> {
                let of = |ending: &str| folder.join(format!("{name}.{ending}"));
                context.set_certificate_file(of("pem"), SslFiletype::PEM)?;
                context.set_private_key_file(of("key"), SslFiletype::PEM)?;
                Ok(())
            };
            for context in [&mut server, &mut client] {
                context.set_cipher_list(
                    "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-GCM-SHA256",
                )?;
                context.set_ca_file(folder.join("ca.pem"))?;
            }
            use_own(&mut server, "server")?;
            client.set_verify(SslVerifyMode::PEER);
            if kind == Kind::Both {
                use_own(&mut client, "client")?;
                server.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
            }
        }
        Ok(Self { server: server.build(), client: client.build() })
    }

    /// Runs a complete handshake.
    fn handshake(&self) -> Result<Traffic, Failed> {
        let at_server = End::default();
        let at_client = End {
            incoming: at_server.outgoing.clone(),
            outgoing: at_server.incoming.clone(),
            traffic: at_server.traffic.clone(),
        };
        let (mut server, mut client) = (Ssl::new(&self.server)?, Ssl::new(&self.client)?);
        client.param_mut().set_host(SERVER)?;
        for end in [&mut server, &mut client] {
            end.set_mtu(1232)?;
        }
        let mut client = progress(client.connect(at_client))?;
        let mut server = progress(server.accept(at_server.clone()))?;
        loop {
            let is_done = matches!((&client, &server), (Progress::Done(_), Progress::Done(_)));
            if is_done {
                return Ok(at_server.traffic.borrow().clone());
            }
            if let Progress::Waiting(stream) = client {
                client = progress(stream.handshake())?;
            }
            if let Progress::Waiting(stream) = server {
                server = progress(stream.handshake())?;
            }
        }
    }
}

fn context() -> Result<SslContextBuilder, Failed> {
    let mut context = SslContext::builder(SslMethod::dtls())?;
    context.set_min_proto_version(Some(SslVersion::DTLS1_2))?;
    context.set_options(SslOptions::NO_QUERY_MTU | SslOptions::NO_TICKET);
    // As in the product, only the own certificate is sent, without that of the authority.
    context.set_mode(SslMode::NO_AUTO_CHAIN);
    Ok(context)
}
