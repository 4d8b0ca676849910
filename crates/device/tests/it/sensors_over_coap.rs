//! Tests that clients of other projects read and observe signed readings, urgent events and seals:
//! `coap-client` of libcoap, and aiocoap.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use moteseal_core::record::EpochNumber;
use moteseal_device::coap::CoapServer;
use moteseal_device::mote::EndedEpoch;
use moteseal_device::published::{Publisher, channels};
use moteseal_device::resources::Resources;
use moteseal_net::coap::Security;
use moteseal_verify::reading::Reading;

use crate::resources::{events, signed};
use crate::sensors::{roster, secret, sensed, sensors};

/// A device's server on a free port, on a runtime of its own.
struct Served {
    address: SocketAddr,
    publisher: Publisher,
    _runtime: tokio::runtime::Runtime,
}

fn serve() -> Served {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (publisher, published) = channels();
    let address = runtime.block_on(async {
        let mut server = CoapServer::new(Resources::new(sensors()));
        let address = server.listen(([127, 0, 0, 1], 0).into(), Security::Plain).unwrap();
        tokio::spawn(server.serve(published, None));
        address
    });
    Served { address, publisher, _runtime: runtime }
}

impl Served {
    fn sense(&self, seq: u64) {
        self.publisher.reading(sensed(seq));
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

/// Returns the bytes of hexadecimal digits.
fn decoded(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
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
    // Before the address is validated, the longer request permits a notification in one message: blocks
    // would be printed among the notifications. libcoap leaves a ping unanswered that arrives in the
    // first quarter of a second (it limits its resets).
    let path = format!("/sensors/temperature?sig=json&long={}", "x".repeat(70));
    client.args(["-s", "2", "-w"]).arg(served.url(&path));
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
        let bytes = decoded(hex);
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

#[test]
fn libcoap_fetches_the_seals_in_blocks() {
    let served = serve();
    // Blocks of 64 bytes need several hundred requests.
    let stream: Vec<u8> = (0..20_000_u32).flat_map(u32::to_be_bytes).take(20_000).collect();
    let stream = Some(stream.into());
    let ended = Arc::new(EndedEpoch { epoch: EpochNumber(7), stream });
    served.publisher.ended(Some(Arc::clone(&ended)));
    let folder = tempfile::tempdir().unwrap();
    for block in ["64", "1024"] {
        let file = folder.path().join(block);
        let bytes = (0..50).find_map(|_| {
            std::thread::sleep(Duration::from_millis(20));
            done(libcoap().args(["-b", block, "-o"]).arg(&file).arg(served.url("/seal")));
            std::fs::read(&file).ok().filter(|bytes| !bytes.is_empty())
        });
        assert_eq!(bytes.as_deref(), ended.stream.as_deref(), "{block}");
    }
}

/// Observes the urgent events and the seals in blocks, of which there are none at first. Prints that it waits for
/// the newest event and for the seals, and each response as its path and its bytes in hexadecimal, until there were
/// three events and two epochs.
const OBSERVER: &str = r#"
import asyncio, sys
import aiocoap
async def main(base):
    context = await aiocoap.Context.create_client_context()
    async def observe(path, accept, enough):
        is_first = True
        while True:
            message = aiocoap.Message(code=aiocoap.GET, uri=base + path, accept=accept, observe=0)
            request = context.request(message)
            response = await request.response
            if response.code == aiocoap.CONTENT:
                break
            assert response.code == aiocoap.SERVICE_UNAVAILABLE, response
            if is_first:
                print("waiting", path, flush=True)
            is_first = False
            await asyncio.sleep(0.05)
        def show(response):
            assert response.code == aiocoap.CONTENT, response
            assert int(response.opt.content_format) == accept and response.opt.etag, response
            print(path, response.payload.hex(), flush=True)
            return enough(response.payload)
        if show(response):
            return
        async for response in request.observation:
            if show(response):
                return
    seen = set()
    await asyncio.gather(
        observe("/event", 63, lambda payload: payload.count(b"moteseal-event+cose") == 3),
        observe("/event", 18, lambda payload: True),
        observe("/seal", 63, lambda payload: seen.add(payload) or len(seen) == 2),
    )
asyncio.run(asyncio.wait_for(main(sys.argv[1]), 20))
"#;

#[test]
fn aiocoap_observes_the_events_and_the_seals() {
    let Some(mut client) = moteseal_fixtures::python() else { return };
    let served = serve();
    client.args(["-c", OBSERVER]).arg(served.url(""));
    let mut client = client.stdout(Stdio::piped()).spawn().unwrap();
    let ended = |byte: u8| {
        let stream = Some(vec![byte; 5000].into());
        served
            .publisher
            .ended(Some(Arc::new(EndedEpoch { epoch: EpochNumber(byte.into()), stream })));
    };
    let mut kept = Vec::new();
    let publish_next = |kept: &mut Vec<_>| {
        kept.push(signed(&secret(), 30 + kept.len() as u64));
        served.publisher.events(kept.clone());
    };
    let (mut waiting, mut listed, mut has_newest, mut text) = (0, None, false, String::new());
    // Each is published when the client has what was before: a body in blocks must not change meanwhile.
    for line in BufReader::new(client.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let (path, hex) = line.split_once(' ').unwrap();
        match path {
            "waiting" => waiting += 1,
            "/seal" if hex.starts_with("02") => ended(3),
            "/event" if hex.starts_with("d2") => has_newest = true,
            "/event" => listed = Some(events(&decoded(hex)).len()),
            _ => {}
        }
        // The list of no events is a representation, too.
        if kept.is_empty() && waiting == 2 && listed == Some(0) {
            publish_next(&mut kept);
            ended(2);
        } else if has_newest && listed == Some(kept.len()) && kept.len() < 3 {
            publish_next(&mut kept);
        }
        if path != "waiting" {
            text += &format!("{line}\n");
        }
    }
    let status = client.wait().unwrap();
    assert!(status.success(), "{text}");
    let (mut seen, mut epochs) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let (path, hex) = line.split_once(' ').unwrap();
        let bytes = decoded(hex);
        match path {
            "/event" if bytes.starts_with(&[0xd2]) => {
                assert!(kept.iter().any(|kept| kept.event == bytes));
            }
            "/event" => seen.push(events(&bytes)),
            _ => {
                assert!(bytes.len() == 5000 && bytes.iter().all(|byte| *byte == bytes[0]));
                epochs.push(bytes[0]);
            }
        }
    }
    assert_eq!(seen.last().unwrap(), &[30, 31, 32], "no event is missing: {seen:?}");
    assert!(epochs.is_sorted() && epochs.last() > epochs.first(), "{epochs:?}");
}
