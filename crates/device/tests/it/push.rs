//! Tests uploads to an honest cloud, to a cloud that has a different seal, and to a cloud whose
//! listing never ends.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use moteseal_api::{Receipt, SealEntry, SealList};
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::schema::{Field, FieldType, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_device::push::Push;
use moteseal_device::replay::uplink;
use moteseal_device::{Bundle, Chain, Outbox, Profile, Sealer, chain_state};
use moteseal_net::{Client, Options};
use moteseal_seal::level::SaltKey;
use moteseal_verify::Roster;
use moteseal_verify::issue::FirstRoster;

/// Returns three bundles of a chain, stored in a directory. All readings have the value `value`.
fn bundles(directory: &Path, value: u8) -> Vec<Bundle> {
    let key = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap();
    let devices = [("dev1", key.public())];
    let first =
        FirstRoster { group: "home", epoch_ms: 1000, levels: 8, budget: None, devices: &devices };
    let roster = Roster::open(&first.issue(&key).unwrap(), &key.public()).unwrap();
    let mut buffer = [0; MAX_SCHEMA];
    let schema = Schema::encode(&[Field::new("v", "", FieldType::U8)], &mut buffer).unwrap();
    let profile = Profile::new(&roster, "dev1", Scheme::Star, &schema).unwrap();
    let state = directory.join("state");
    let _ = chain_state::begin(&state, profile.device, &Chain::start(profile.certificate));
    let (outbox, chain) = Outbox::open(directory, &state, &roster, profile.device).unwrap();
    let mut sealer = Sealer::new(profile, key, SaltKey::new([2; 32]), chain);
    let mut bundles: Vec<Bundle> =
        (0..3).flat_map(|epoch| sealer.push(EpochNumber(epoch), &[value]).unwrap()).collect();
    bundles.extend(sealer.close(true).unwrap());
    outbox.store(&bundles, &mut |_| {}).unwrap();
    bundles
}

fn entry(bundle: &Bundle) -> SealEntry {
    let statement = bundle.seal.statement();
    SealEntry {
        index: statement.index.0,
        epoch: statement.epoch.0,
        digest: bundle.seal.digest().to_string(),
        prev: statement.prev.to_string(),
        scheme: "star".to_owned(),
        events: bundle.events(),
        last_in_epoch: statement.last_in_epoch,
        restart: false,
        kept_from: 0,
        conflict: false,
    }
}

/// A server that answers one request on each connection and records the requests. `seals` returns a
/// listing; its arguments are the first index and the number of uploads so far. The server accepts
/// every upload.
struct FakeCloud {
    client: Client,
    requests: Arc<Mutex<Vec<String>>>,
}

impl FakeCloud {
    fn start(seals: impl Fn(u32, usize) -> SealList + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&requests);
        std::thread::spawn(move || {
            let mut uploads = 0;
            for stream in listener.incoming() {
                answer(stream.unwrap(), &seals, &mut uploads, &noted);
            }
        });
        Self { client: Client::new(&url, &Options::default()).unwrap(), requests }
    }

    fn count(&self, method: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|line| line.starts_with(method)).count()
    }
}

fn answer(
    stream: TcpStream,
    seals: &dyn Fn(u32, usize) -> SealList,
    uploads: &mut usize,
    noted: &Mutex<Vec<String>>,
) {
    let mut reader = BufReader::new(&stream);
    let (mut request, mut length) = (String::new(), 0);
    if reader.read_line(&mut request).unwrap() == 0 {
        return;
    }
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some((_, value)) =
            line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        {
            length = value.trim().parse().unwrap();
        }
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    noted.lock().unwrap().push(request.clone());
    let (status, body) = if request.starts_with("PUT") {
        *uploads += 1;
        ("200 OK", serde_json::to_string(&Receipt { stored: 1, ..Receipt::default() }).unwrap())
    } else if let Some((_, from)) = request.split_once("from=") {
        let from = from.split(['&', ' ']).next().unwrap().parse().unwrap();
        ("200 OK", serde_json::to_string(&seals(from, *uploads)).unwrap())
    } else {
        ("404 Not Found", "{}".to_owned())
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    (&stream).write_all((head + &body).as_bytes()).unwrap();
}

fn page(seals: Vec<SealEntry>, next: Option<u32>) -> SealList {
    SealList { device: String::new(), seals, next }
}

#[tokio::test]
async fn reads_a_listing_only_as_far_as_its_own_bundles() {
    let directory = tempfile::tempdir().unwrap();
    let last = entry(&bundles(directory.path(), 1)[2]);
    let cloud = FakeCloud::start(move |from, _| {
        page(vec![SealEntry { index: from, ..last.clone() }], Some(from + 1))
    });
    let pushed =
        Push::open(directory.path()).unwrap().to(&cloud.client, &mut |_| {}).await.unwrap();
    assert_eq!(pushed.known, 0, "no listed seal had a bundle's digest or signature");
    // One listing for each of three indices before the upload and after it, and one explanation.
    assert!(cloud.count("GET") <= 7, "{} requests", cloud.count("GET"));
    assert_eq!(cloud.count("PUT"), 1);
}

#[tokio::test]
async fn rejects_a_listing_that_goes_back() {
    let directory = tempfile::tempdir().unwrap();
    let bundles = bundles(directory.path(), 1);
    let entries: Vec<SealEntry> = bundles.iter().rev().map(entry).collect();
    let cloud = FakeCloud::start(move |_, _| page(entries.clone(), None));
    let error = Push::open(directory.path())
        .unwrap()
        .to(&cloud.client, &mut |_| {})
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("are not ascending"), "{error}");
    assert_eq!(cloud.count("PUT"), 0);
}

#[tokio::test]
async fn uploads_and_reports_a_different_seal_under_the_same_index() {
    let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ours: Vec<SealEntry> = bundles(directory.path(), 1).iter().map(entry).collect();
    let theirs: Vec<SealEntry> = bundles(other.path(), 2).iter().map(entry).collect();
    let mut digests = vec![ours[0].digest.clone(), theirs[0].digest.clone()];
    digests.sort();
    for is_signed in [true, false] {
        // The cloud has a different first seal. After the upload, it has both seals. It lists them as a
        // conflict if the device signed both.
        let (ours, theirs) = (ours.clone(), theirs.clone());
        let cloud = FakeCloud::start(move |from, uploads| {
            let mut seals = vec![theirs[0].clone()];
            if uploads > 0 {
                seals.extend(ours.clone());
                seals[..2].iter_mut().for_each(|seal| seal.conflict = is_signed);
            }
            seals.retain(|seal| seal.index >= from);
            page(seals, None)
        });
        let pushed =
            Push::open(directory.path()).unwrap().to(&cloud.client, &mut |_| {}).await.unwrap();
        assert_eq!((pushed.known, pushed.requests), (0, 1));
        if !is_signed {
            assert_eq!(pushed.conflicts, []);
            continue;
        }
        let [conflict] = &pushed.conflicts[..] else { panic!("{pushed:?}") };
        assert_eq!((conflict.index, &conflict.digests), (SealIndex(0), &digests));
        assert_eq!(conflict.path, directory.path().join("dev1-0000000000.mseal"));
    }
}

#[tokio::test]
async fn an_uplink_starts_with_bundles_of_an_earlier_run() {
    let directory = tempfile::tempdir().unwrap();
    let held: Vec<_> = bundles(directory.path(), 1)
        .iter()
        .map(|bundle| format!("dev1-{:010}.mseal", bundle.index().0))
        .collect();
    let cloud = FakeCloud::start(|_, _| page(Vec::new(), None));
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    sender.send(directory.path().join(&held[2])).unwrap();
    drop(sender);
    let waiting = held[..2].iter().map(|name| directory.path().join(name)).collect();
    let done = uplink(&cloud.client, waiting, receiver).await.unwrap();
    // All bundles are in one request. The receipt of this server always states one bundle.
    assert_eq!((done.pushed, cloud.count("PUT")), (1, 1));
    assert!(done.conflicts.is_empty());
}
