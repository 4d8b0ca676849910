//! Tests that clients of other projects read and observe signed readings: `coap-client` of libcoap,
//! and aiocoap.

use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use moteseal_device::coap::CoapServer;
use moteseal_device::sensors::Sensed;
use moteseal_net::coap::Security;
use moteseal_verify::reading::Reading;
use tokio::sync::watch;

use crate::sensors::{roster, sensed, sensors};

/// A device's server on a free port, on a runtime of its own.
struct Served {
    address: SocketAddr,
    newest: watch::Sender<Option<Arc<Sensed>>>,
    _runtime: tokio::runtime::Runtime,
}

fn serve() -> Served {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (newest, receiver) = watch::channel(None);
    let address = runtime.block_on(async {
        let mut server = CoapServer::new(sensors());
        let address = server.listen(([127, 0, 0, 1], 0).into(), Security::Plain).unwrap();
        tokio::spawn(server.serve(receiver, None));
        address
    });
    Served { address, newest, _runtime: runtime }
}

impl Served {
    fn sense(&self, seq: u64) {
        self.newest.send_replace(Some(Arc::new(sensed(seq))));
    }

    fn url(&self, rest: &str) -> String {
        format!("coap://{}{rest}", self.address)
    }

    /// Repeats a reading each tenth of a second until the client has ended.
    fn sense_until(&self, client: &mut std::process::Child) {
        for seq in 0.. {
            if client.try_wait().unwrap().is_some() {
                return;
            }
            assert!(seq < 200, "the client ends after 20 seconds at the latest");
            self.sense(seq);
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Returns the command of libcoap's client, which writes the response to stdout.
fn libcoap() -> Command {
    let mut command = Command::new("coap-client-notls");
    command.args(["-v", "3", "-B", "5"]);
    command
}

fn done(command: &mut Command) -> Output {
    let output = command.output().expect("coap-client-notls is missing: install libcoap3-bin");
    assert!(output.status.success(), "{output:?}");
    output
}

#[test]
fn libcoap_reads_each_form_and_the_list_of_resources() {
    let served = serve();
    served.sense(5);
    let folder = tempfile::tempdir().unwrap();
    for (query, format) in [("", 62), ("?ct=112", 62), ("?sig=json", 50)] {
        // The signature makes a response of 64-byte blocks.
        for block in ["64", "1024"] {
            let file = folder.path().join("response");
            let url = served.url(&format!("/sensors{query}"));
            // The first request may precede the reading.
            let bytes = (0..50).find_map(|_| {
                std::thread::sleep(Duration::from_millis(20));
                done(libcoap().args(["-b", block, "-o"]).arg(&file).arg(&url));
                std::fs::read(&file).ok().filter(|bytes| !bytes.is_empty())
            });
            let reading = Reading::open(format, &bytes.unwrap(), &roster()).unwrap();
            assert_eq!((reading.seq.0, reading.pack.values.len()), (5, 2), "{query} {block}");
            let _ = std::fs::remove_file(&file);
        }
    }
    let links = done(libcoap().arg(served.url("/.well-known/core?rt=moteseal.reading"))).stdout;
    let links = String::from_utf8(links).unwrap();
    assert!(links.contains("</sensors/temperature>;rt=\"moteseal.reading\""), "{links}");
}

#[test]
fn libcoap_observes_the_readings() {
    let served = serve();
    let mut client = libcoap();
    client.args(["-s", "2", "-w"]).arg(served.url("/sensors/temperature?sig=json"));
    served.sense(0);
    std::thread::sleep(Duration::from_millis(50));
    let mut client = client.stdout(Stdio::piped()).spawn().unwrap();
    served.sense_until(&mut client);
    let output = client.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines.len() >= 5, "{text}");
    let mut seen = Vec::new();
    for line in lines {
        seen.push(Reading::open(50, line.as_bytes(), &roster()).unwrap().seq.0);
    }
    assert!(seen.is_sorted() && seen.last() > seen.first(), "{seen:?}");
}

/// Reads a signed reading, the same without a signature, and observes three readings. Prints each
/// response as its content format and its bytes in hexadecimal.
const AIOCOAP: &str = r#"
import asyncio, sys
import aiocoap
async def main(url):
    context = await aiocoap.Context.create_client_context()
    def show(response):
        assert response.code == aiocoap.CONTENT, response
        print(int(response.opt.content_format), response.payload.hex(), flush=True)
    show(await context.request(aiocoap.Message(code=aiocoap.GET, uri=url)).response)
    show(await context.request(aiocoap.Message(code=aiocoap.GET, uri=url + "?sig=none", accept=112)).response)
    refused = await context.request(aiocoap.Message(code=aiocoap.GET, uri=url, accept=0)).response
    assert refused.code == aiocoap.NOT_ACCEPTABLE, refused
    request = context.request(aiocoap.Message(code=aiocoap.GET, uri=url + "?ct=112", observe=0))
    show(await request.response)
    count = 0
    async for response in request.observation:
        show(response)
        count += 1
        if count == 3:
            break
asyncio.run(main(sys.argv[1]))
"#;

#[test]
fn aiocoap_reads_and_observes_the_readings() {
    let Some(mut client) = moteseal_fixtures::python() else { return };
    let served = serve();
    served.sense(0);
    std::thread::sleep(Duration::from_millis(50));
    client.args(["-c", AIOCOAP]).arg(served.url("/sensors"));
    let mut client = client.stdout(Stdio::piped()).spawn().unwrap();
    served.sense_until(&mut client);
    let output = client.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let mut seen = Vec::new();
    let mut unsigned = 0;
    for line in text.lines() {
        let (format, hex) = line.split_once(' ').unwrap();
        let bytes: Vec<u8> = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect();
        match Reading::open(format.parse().unwrap(), &bytes, &roster()) {
            Ok(reading) => seen.push(reading.seq.0),
            Err(error) => {
                assert_eq!((format, error.name()), ("112", "NoSignature"));
                unsigned += 1;
            }
        }
    }
    assert_eq!((seen.len(), unsigned), (5, 1), "{text}");
    assert!(seen.is_sorted(), "{seen:?}");
}
