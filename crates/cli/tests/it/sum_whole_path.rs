//! Runs private sums from sources over real gateways to the querier, in one process and in real
//! time. The sum of every epoch is exact for the participants that the result names. An altered sum
//! is refused, and the edge of the tree at which it was altered is named.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use moteseal_client::sum::{
    Endpoint, Outcome, Querier, QuerierState, Question, Row, RunOptions, run_query,
};
use moteseal_core::link::LinkKey;
use moteseal_core::participation::Participation;
use moteseal_core::record::DeviceId;
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_gateway::sum::number::NumberFile;
use moteseal_gateway::sum::service::SumGateway;
use moteseal_gateway::sum::{Aggregator, Member};
use moteseal_lanes::Host;
use moteseal_net::in_memory::{Faults, MemoryChild, Network};
use moteseal_net::{ChildLink as _, Down};
use moteseal_sum::guard::EpochGuard;
use moteseal_sum::query::{MAX_PLAN, MAX_SLOTS, Plan, QueryId};
use moteseal_sum::schedule::{self, MAX_QUERY_SCHEDULE, QuerySchedule};
use moteseal_sum::sies::{Master, Psr, Slot};
use moteseal_sum::wire::close_share;
use moteseal_verify::issue::FirstRoster;
use moteseal_verify::{AggregationTree, Roster, SumGroup};

const EPOCH_MS: u64 = 1000;
const EPOCHS: u64 = 5;
const GRACE: Duration = Duration::from_millis(150);
const SOURCES: u32 = 8;
const KEY_GROUP: u32 = 3;
/// The name of each aggregator, and the name of its parent.
const AGGREGATORS: [(&str, &str); 3] = [("root", "querier"), ("gw-a", "root"), ("gw-b", "root")];

fn secret(aggregator: &str) -> [u8; 32] {
    moteseal_core::Digest::of(&[b"link of", aggregator.as_bytes()]).0
}

fn unix_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn key(number: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[number; 32]).unwrap()
}

fn roster() -> Roster {
    let names: Vec<String> = (1..=SOURCES).map(|number| format!("mote{number}")).collect();
    let devices: Vec<_> =
        names.iter().map(String::as_str).zip((10..).map(|number| key(number).public())).collect();
    let first =
        FirstRoster { group: "home", epoch_ms: 60_000, levels: 4, budget: None, devices: &devices };
    Roster::open(&first.issue(&key(1)).unwrap(), &key(1).public()).unwrap()
}

fn schema(buffer: &mut [u8; MAX_SCHEMA]) -> Schema<'_> {
    Schema::encode(&[Field::parse("temperature:Cel:i16/100").unwrap()], buffer).unwrap()
}

/// Returns the reading of a source in an epoch.
fn reading(position: u32, epoch: u64) -> i16 {
    i16::try_from(u64::from(position) * 37 + epoch % 100).unwrap() - 150
}

/// Returns whether a source is silent in an epoch. One source is silent in every third epoch.
const fn is_silent(position: u32, epoch: u64) -> bool {
    position == 2 && epoch.is_multiple_of(3)
}

/// Returns whether a source's answer for an epoch is altered. The answer of one source is altered
/// in every fifth epoch.
const fn is_altered(position: u32, epoch: u64) -> bool {
    position == 6 && epoch.is_multiple_of(5)
}

/// Runs a source, which answers each epoch of the query 20 ms after the epoch's end.
async fn source(mut link: MemoryChild, roster: Roster, position: u32, aggregator: &str) {
    let device = roster.devices().nth(position as usize).unwrap().id;
    let link_key = LinkKey::new(&LinkKey::secret_of(&secret(aggregator), roster.group(), device));
    let source = Master::new([5; 32]).source(roster.group(), device, position / KEY_GROUP);
    let (mut guard, mut query, mut next) = (EpochGuard::default(), None, 0);
    loop {
        let due =
            query.as_ref().map_or(u64::MAX, |(_, _, until, _): &(QueryId, u64, u64, Vec<u8>)| {
                if next < *until { (next + 1) * EPOCH_MS + 20 } else { u64::MAX }
            });
        tokio::select! {
            down = link.receive() => {
                let Down::Announcement(bytes) = down.unwrap() else { continue };
                let mut scratch = vec![0; MAX_QUERY_SCHEDULE];
                let bytes = schedule::receive(&bytes, roster.group(), &key(2).public(), &mut scratch).unwrap();
                let schedule = QuerySchedule::open(&bytes, roster.group(), &roster.digest()).unwrap();
                query = schedule.queries().next().map(|(id, posed)| (id, posed.first, posed.until, posed.plan.to_vec()));
                next = next.max(query.as_ref().map_or(0, |(_, first, ..)| *first));
            }
            () = tokio::time::sleep(Duration::from_millis(due.saturating_sub(unix_ms()).min(60_000))) => {
                let Some((query, _, _, plan)) = &query else { continue };
                let epoch = next;
                next += 1;
                if is_silent(position, epoch) {
                    continue;
                }
                let mut buffer = [0; MAX_SCHEMA];
                let (schema, plan, mut values) = (schema(&mut buffer), Plan::decode(plan).unwrap(), [0; MAX_SLOTS]);
                let record = reading(position, epoch).to_be_bytes();
                let count = plan.bind(&schema).unwrap().contribution(Some(&record), &mut values).unwrap();
                let mut permit = guard.advance(*query, EPOCH_MS, epoch).unwrap();
                let keys = source.for_query(*query);
                let psr = |(slot, value): (u8, &u128)| keys.encrypt(&mut permit, Slot(slot), *value).unwrap();
                let mut psrs: Vec<Psr> = (0..).zip(&values[..count]).map(psr).collect();
                if is_altered(position, epoch) {
                    psrs[0] = psrs[0].merge(&psrs[0]);
                }
                let (mut participant, mut out) = ([0; 8], [0; 512]);
                let length = Participation::encode_one(position, &mut participant).unwrap();
                let frame = close_share(query.reference(), epoch, &participant[..length], &psrs, &link_key, &mut out).unwrap();
                link.send(Bytes::copy_from_slice(frame)).await.unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_gateways_and_a_querier_answer_every_epoch_exactly_or_name_the_edge() {
    let roster = roster();
    let names: Vec<String> = roster.devices().map(|device| device.name.clone()).collect();
    let aggregator_of = |position: u32| if position < 4 { "gw-a" } else { "gw-b" };
    let aggregators: Vec<(&str, &str)> = (0..)
        .zip(&names)
        .map(|(position, name)| (name.as_str(), aggregator_of(position)))
        .collect();
    let tree = AggregationTree::new(&roster, AGGREGATORS, aggregators).unwrap();
    let group = SumGroup::new(roster.clone(), tree.clone());
    let networks: BTreeMap<&str, Network> = AGGREGATORS
        .iter()
        .map(|(name, _)| *name)
        .chain(["querier"])
        .map(|name| (name, Network::new(1, Faults::default())))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for (name, parent) in AGGREGATORS {
        let (number, last) = NumberFile::open(&folder.path().join(name)).unwrap();
        let id = tree.aggregator(name).unwrap().id().unwrap();
        let member = Member {
            roster: &group.roster,
            tree: &group.tree,
            name,
            querier: &key(2).public(),
            children_secret: &secret(name),
            up_secret: &LinkKey::secret_of(&secret(parent), roster.group(), id),
            grace: GRACE,
            number: last,
        };
        let gateway =
            SumGateway::bind(Aggregator::new(&member).unwrap(), number, None).await.unwrap();
        let (aggregator, up) = (networks[name].parent(), networks[parent].child(id.0));
        tasks.spawn(
            async move { gateway.run(aggregator, up, std::future::pending()).await.unwrap() },
        );
    }
    for position in 0..SOURCES {
        let link = networks[aggregator_of(position)]
            .child(roster.devices().nth(position as usize).unwrap().id.0);
        tasks.spawn(source(link, roster.clone(), position, aggregator_of(position)));
    }

    let mut buffer = [0; MAX_SCHEMA];
    let schema = schema(&mut buffer);
    let query =
        "SELECT SUM(temperature), COUNT(*) FROM sensors WHERE temperature > -1.2 EPOCH DURATION 1s";
    let mut plan = [0; MAX_PLAN];
    let plan = Plan::parse(query, &schema).unwrap().encode(&mut plan).unwrap().to_vec();
    let question = Question {
        group: roster.group(),
        roster: roster.digest(),
        nonce: [8; 16],
        plan,
        key_group: KEY_GROUP,
        floor: 5,
        min_count: 1,
        masked: None,
    };
    let devices: Vec<DeviceId> = roster.devices().map(|device| device.id).collect();
    let querier =
        Querier::new(question, &Master::new([5; 32]), &devices, Host::detect(), &|_| ()).unwrap();
    let state = QuerierState::open(&folder.path().join("querier.state")).unwrap();
    let (aggregator, signer, link_secret) =
        (networks["querier"].parent(), key(2), secret("querier"));
    let endpoint = Endpoint {
        link: &aggregator,
        link_secret: &link_secret,
        master: &Master::new([5; 32]),
        signer: &signer,
        state: &state,
        unix_ms: &unix_ms,
    };
    let rows: Mutex<Vec<Row>> = Mutex::default();
    let mut take = |row: &Row| {
        rows.lock().unwrap().push(row.clone());
        Ok(())
    };
    let lease = Duration::from_secs(60);
    let run = RunOptions {
        epochs: Some(EPOCHS),
        continued: None,
        grace: GRACE,
        has_default_floor: false,
        lease,
    };
    let never = std::future::pending();
    run_query(endpoint, group, querier, run, None, &mut take, never).await.unwrap();

    let rows = rows.into_inner().unwrap();
    assert_eq!(rows.len() as u64, EPOCHS);
    for row in &rows {
        if is_altered(6, row.epoch) {
            let Outcome::Rejected { refusal, findings } = &row.outcome else { panic!("{row:?}") };
            assert_eq!(refusal.name(), "SharesMismatch");
            let found: Vec<String> = findings.iter().map(ToString::to_string).collect();
            assert_eq!(found, [format!("{} -> gw-b", names[6])], "{row:?}");
            continue;
        }
        let Outcome::Accepted(accepted) = &row.outcome else { panic!("{row:?}") };
        let silent: Vec<u32> =
            (0..SOURCES).filter(|position| is_silent(*position, row.epoch)).collect();
        assert_eq!(row.silent().collect::<Vec<_>>(), silent);
        let readings = (0..SOURCES)
            .filter(|position| !silent.contains(position))
            .map(|position| reading(position, row.epoch));
        let values: Vec<i128> = readings.filter(|raw| *raw > -120).map(i128::from).collect();
        let digits: Vec<_> = accepted
            .values()
            .iter()
            .map(|value| value.unwrap().number().unwrap().digits())
            .collect();
        assert_eq!(digits, [Some(values.iter().sum()), Some(values.len() as i128)], "{row:?}");
    }
    // Five consecutive epochs include at least one epoch of each kind.
    assert!(
        rows.iter().any(|row| is_altered(6, row.epoch))
            && rows.iter().any(|row| is_silent(2, row.epoch))
    );
    assert!(tasks.try_join_next().is_none(), "a task ended");
}
