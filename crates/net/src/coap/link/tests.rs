#![allow(clippy::unwrap_used)]

use std::sync::mpsc;
use std::thread;

use super::*;
use crate::coap::socket::NoService;
use crate::dtls::{ClientConfig, Psk};

/// When a runtime ends, it may drop the socket's task first. The task that keeps the state must
/// then end too; it once repeated its request forever without yielding.
#[test]
fn a_child_ends_with_the_task_of_its_socket_also_during_a_handshake() {
    let (tell, ended) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let ended = runtime.unwrap().block_on(async {
            // Nobody answers.
            let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let address = server.local_addr().unwrap();
            let psk = Psk::new([1; 8], zeroize::Zeroizing::new([2; 32]));
            let client =
                dtls::Client::new(ClientConfig::psk(psk), address, Instant::now()).unwrap();
            let security = Security::Client(Box::new(client));
            let (backoff, config) = (Backoff::default(), Config::default());
            let socket =
                Socket::connect(address, security, backoff, config, |_| Box::new(NoService));
            let socket = socket.unwrap();
            let handle = socket.handle().clone();
            let url = Address::parse(&format!("coaps://{address}")).unwrap();
            let options = ChildOptions::new(url, "home");
            let (tell, state) = watch::channel(State::Connecting);
            let keep = keep(&options, "/link/home/00", &handle, &tell);
            let end = async {
                tokio::task::yield_now().await;
                drop(socket);
            };
            let (kept, ()) = tokio::join!(keep, end);
            drop(state);
            kept.is_none()
        });
        tell.send(ended).unwrap();
    });
    assert_eq!(ended.recv_timeout(Duration::from_secs(10)), Ok(true));
}
