//! Tests that clients of other projects read and observe health: `coap-client` of libcoap, and aiocoap.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use moteseal_core::health::{Health, Item, Policy, SHORTEST_ON_HOSTS};
use moteseal_device::coap::CoapServer;
use moteseal_device::published::{Publisher, channels};
use moteseal_device::resources::Resources;
use moteseal_net::coap::Security;
use moteseal_net::health::NodeHealth;

use crate::sensors::sensors;

/// A device's server on a free port, on a runtime of its own. It reports every second.
struct Served {
    address: SocketAddr,
    _publisher: Publisher,
    _runtime: tokio::runtime::Runtime,
}

fn serve() -> Served {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (publisher, published) = channels();
    let start = Instant::now();
    let policy = Policy { period_s: 1, min_s: 1, threshold: 0 };
    let health = NodeHealth::new("device", (policy, SHORTEST_ON_HOSTS), move || {
        let seconds = u32::try_from(start.elapsed().as_secs()).unwrap();
        let mut health = Health::new(2, seconds);
        health.set(Item::LinkSent, i64::from(seconds) * 10).set(Item::Temperature, -15);
        health
    });
    let address = runtime.block_on(async {
        let resources = Resources::new(sensors()).with_links(NodeHealth::links());
        let mut server = CoapServer::new(resources).with_health(Arc::clone(&health));
        let address = server.listen(([127, 0, 0, 1], 0).into(), Security::Plain).unwrap();
        tokio::spawn(server.serve(published, None));
        tokio::spawn(health.run());
        address
    });
    Served { address, _publisher: publisher, _runtime: runtime }
}

fn libcoap() -> Command {
    let mut command = Command::new("coap-client-notls");
    command.args(["-v", "3", "-B", "5"]);
    command
}

fn text(command: &mut Command) -> String {
    let output = command.output().expect("coap-client-notls is missing: run tools/setup.sh test");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn libcoap_finds_observes_and_configures_health() {
    let served = serve();
    let url = |path: &str| format!("coap://{}{path}", served.address);
    let links = text(libcoap().arg(url("/.well-known/core?rt=moteseal.health")));
    assert!(links.contains("</h>;rt=\"moteseal.health\";ct=\"60 110 112 50\";obs"), "{links}");
    assert!(links.contains("</h/link>") && !links.contains("/sensors"), "{links}");
    let seen = text(libcoap().args(["-A", "50", "-s", "4", "-w"]).arg(url("/h/link")));
    let uptimes: Vec<u64> = seen
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| {
            let json: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!((&json["boot"], json.get("dev")), (&2.into(), None));
            json["uptime_s"].as_u64().unwrap()
        })
        .collect();
    assert!(
        uptimes.len() >= 3 && uptimes.is_sorted() && uptimes.last() > uptimes.first(),
        "{seen}"
    );
    let put = ["-m", "put", "-t", "50", "-e", "{\"period\":7}"];
    text(libcoap().args(put).arg(url("/h/conf")));
    let policy = text(libcoap().args(["-A", "50"]).arg(url("/h/conf")));
    assert!(policy.contains("\"period\":7"), "{policy}");
}

/// Reads health in each format, and observes it until there were three notifications.
const AIOCOAP: &str = r#"
import asyncio, sys
import aiocoap
async def main(url):
    context = await aiocoap.Context.create_client_context()
    for accept in (60, 110, 112, 50):
        message = aiocoap.Message(code=aiocoap.GET, uri=url, accept=accept)
        response = await context.request(message).response
        assert response.code == aiocoap.CONTENT, response
        assert int(response.opt.content_format) == accept, response
        print(accept, response.payload.hex(), flush=True)
    request = context.request(aiocoap.Message(code=aiocoap.GET, uri=url, observe=0))
    await request.response
    count = 0
    async for response in request.observation:
        print(60, response.payload.hex(), flush=True)
        count += 1
        if count == 3:
            break
asyncio.run(asyncio.wait_for(main(sys.argv[1]), 20))
"#;

#[test]
fn aiocoap_reads_each_format_and_observes_health() {
    let Some(mut client) = moteseal_fixtures::python() else { return };
    let served = serve();
    client.args(["-c", AIOCOAP]).arg(format!("coap://{}/h", served.address));
    let output = client.stdout(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    assert!(output.status.success());
    let shown = String::from_utf8(output.stdout).unwrap();
    let mut uptimes = Vec::new();
    for line in shown.lines() {
        let (format, hex) = line.split_once(' ').unwrap();
        let bytes = decoded(hex);
        match format {
            "60" => {
                let health = Health::decode(&bytes).unwrap();
                assert_eq!(health.get(Item::Temperature), Some(-15));
                uptimes.push(health.uptime_s);
            }
            "110" | "50" => drop(serde_json::from_slice::<serde_json::Value>(&bytes).unwrap()),
            _ => moteseal_core::cbor::check_item(&bytes).unwrap(),
        }
    }
    assert_eq!(uptimes.len(), 4, "{shown}");
    assert!(uptimes.is_sorted() && uptimes[3] > uptimes[0], "{uptimes:?}");
}

#[test]
fn californium_observes_health() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let jars = root.join("../../.venv/californium");
    if !jars.exists() {
        eprintln!("SKIPPED: Californium is missing: run tools/setup.sh test");
        return;
    }
    let served = serve();
    let mut client = Command::new("java");
    client.arg("-cp").arg(jars.join("*")).arg(root.join("tests/californium/Observe.java"));
    client.arg(format!("coap://{}/h", served.address)).arg("3");
    let output = client.current_dir(std::env::temp_dir()).output().expect("java is missing");
    assert!(output.status.success(), "{output:?}");
    let uptimes: Vec<u32> = std::str::from_utf8(&output.stdout)
        .unwrap()
        .lines()
        .map(|line| Health::decode(&decoded(line)).unwrap().uptime_s)
        .collect();
    assert!(uptimes.len() >= 3 && uptimes.is_sorted(), "{uptimes:?}");
    assert!(uptimes.last() > uptimes.first(), "{uptimes:?}");
}

/// Returns the bytes of hexadecimal digits.
fn decoded(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}
