//! Tests of records of health: each record is read back, later versions may add values, no count is
//! lost, and reports adapt.

use moteseal_core::cbor::{DecodeError, Writer};
use moteseal_core::health::{
    Columns, Difference, Group, Health, ITEMS, Item, Kind, MAX_ENCODED, MAX_ROW, Policy,
    PolicyError, Reason, Reporter, SHORTEST_ON_MOTES, Totals,
};
use moteseal_core::schema::{Decimal, Field, MAX_SCHEMA, RecordCheck, Value};
use proptest::prelude::*;

fn encode(health: &Health) -> Vec<u8> {
    let mut out = [0; MAX_ENCODED];
    let mut out = Writer::new(&mut out);
    health.encode(&mut out).unwrap();
    out.finish().to_vec()
}

/// Returns any record.
fn any_health() -> impl Strategy<Value = Health> {
    let items: Vec<Item> = Item::all().collect();
    let value = prop_oneof![0_i64..100, 0..1_i64 << 17, i64::from(i32::MIN)..i64::from(u32::MAX)];
    let values = proptest::collection::vec((proptest::sample::select(items), value), 0..30);
    (any::<u32>(), any::<u32>(), values).prop_map(|(boot, uptime_s, values)| {
        let mut health = Health::new(boot, uptime_s);
        for (item, value) in values {
            health.set(item, value);
        }
        health
    })
}

proptest! {
    #[test]
    fn every_record_is_read_back_and_has_one_encoding(health in any_health()) {
        let bytes = encode(&health);
        prop_assert_eq!(Health::decode(&bytes), Ok(health));
        for end in 0..bytes.len() {
            prop_assert!(Health::decode(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(health) = Health::decode(&bytes) {
            prop_assert!(encode(&health).len() <= bytes.len());
        }
    }

    /// Each step counts some events; then the record is lost with probability 1/10, or the node
    /// restarts with probability 1/20. Counts start near 2^32, so they wrap.
    #[test]
    fn lost_records_and_wraps_lose_no_count(
        start in any::<u32>(),
        steps in proptest::collection::vec((0_u32..1 << 30, 0_u8..20, 1_u32..600), 1..200),
    ) {
        let mut node = Health::new(7, 5);
        node.set(Item::LinkBadCrc, start.into());
        let (mut totals, mut expected, mut pending) = (Totals::default(), u64::from(start), 0);
        totals.take(&node);
        for (count, chance, seconds) in steps {
            node.add(Item::LinkBadCrc, count);
            node.uptime_s += seconds;
            pending += u64::from(count);
            // A total is right as long as it wraps once between two records.
            let is_lost = chance < 2 && pending < 1 << 31;
            if chance == 19 {
                // What was counted since the last record is lost with the restart.
                pending = 0;
                node = Health::new(node.boot + 1, 0);
                node.set(Item::LinkBadCrc, 0);
            } else if !is_lost {
                totals.take(&node);
                expected += pending;
                pending = 0;
            }
            prop_assert_eq!(totals.sum(Item::LinkBadCrc), expected);
        }
    }

    #[test]
    fn a_repeated_record_changes_nothing_and_a_shorter_time_since_the_start_is_a_restart(
        health in any_health(),
        earlier in any::<u32>(),
    ) {
        let mut totals = Totals::default();
        totals.take(&health);
        let sums: Vec<u64> = Item::all().map(|item| totals.sum(item)).collect();
        prop_assert_eq!(totals.take(&health), None);
        prop_assert_eq!(totals.last(), Some(&health));
        prop_assert_eq!(Item::all().map(|item| totals.sum(item)).collect::<Vec<_>>(), sums);
        let mut again = health;
        again.uptime_s = earlier.min(health.uptime_s.saturating_sub(1));
        prop_assume!(again.uptime_s < health.uptime_s);
        let difference = totals.take(&again).unwrap();
        prop_assert!(difference.has_restarted);
        prop_assert_eq!((totals.restarts, difference.seconds), (1, again.uptime_s.max(1)));
    }
}

#[test]
fn the_counters_of_the_paper_with_start_and_uptime_take_46_bytes() {
    let mut health = Health::new(3, 70_000);
    health.set(Item::Temperature, 235);
    for item in Group::Link.items().take(7).chain(Group::Ip.items()) {
        health.set(item, 1000);
    }
    let bytes = encode(&health);
    assert_eq!((bytes.len(), bytes[0]), (46, 0x86));
    assert_eq!(hex::encode(&bytes[..14]), "8601031a00011170811".to_owned() + "8eb871903");
}

#[test]
fn values_and_groups_of_later_versions_are_ignored() {
    // [1, 2, 3, [235, null, null, null, 9], null, null, null, null, null, null, null, [1], [2, -1]]
    let bytes = hex::decode("8d0102038518ebf6f6f609f6f6f6f6f6f6f68101820220").unwrap();
    let health = Health::decode(&bytes).unwrap();
    assert_eq!((health.boot, health.uptime_s), (2, 3));
    assert_eq!(health.values().collect::<Vec<_>>(), [(Item::Temperature, 235)]);
}

#[test]
fn other_encodings_are_refused() {
    let refused = [
        ("820102", DecodeError::UnexpectedType),
        ("83020203", DecodeError::UnsupportedVersion),
        // Unknown at the end.
        ("84010203f6", DecodeError::NonCanonical),
        ("8401020380", DecodeError::NonCanonical),
        ("840102038201f6", DecodeError::NonCanonical),
        // A negative total, and numbers with more than 32 bits.
        ("85010203f68120", DecodeError::FieldOutOfRange),
        ("85010203f6811b0000000100000000", DecodeError::FieldOutOfRange),
        ("84010203811a80000000", DecodeError::FieldOutOfRange),
        ("8401020381fb4000000000000000", DecodeError::NonCanonical),
        ("831b0000000100000000", DecodeError::Truncated),
        ("8301020300", DecodeError::TrailingBytes),
        ("84010203816161", DecodeError::UnexpectedType),
    ];
    for (bytes, error) in refused {
        assert_eq!(Health::decode(&hex::decode(bytes).unwrap()), Err(error), "{bytes}");
    }
    assert_eq!(Health::decode(&[0x83; 600]), Err(DecodeError::FieldOutOfRange));
}

#[test]
fn every_item_has_a_name_by_which_it_is_found() {
    for item in Item::all() {
        let name = format!("{}.{}", item.group().name(), item.name());
        assert_eq!(Item::parse(&name), Some(item));
        assert_eq!(Item::all().nth(item.place()), Some(item));
    }
    assert_eq!(Item::parse("bad_crc"), Some(Item::LinkBadCrc));
    // Several groups have it.
    assert_eq!(Item::parse("sent"), None);
    assert_eq!(Item::parse("nothing"), None);
}

#[test]
fn a_restart_counts_from_zero_and_gauges_are_not_counted() {
    let mut before = Health::new(1, 1000);
    before.set(Item::LinkSent, 500).set(Item::Rssi, -90);
    let mut after = Health::new(2, 10);
    after.set(Item::LinkSent, 20).set(Item::Rssi, -60);
    let difference = Difference::between(&before, &after).unwrap();
    assert!(difference.has_restarted);
    assert_eq!(difference.count(Item::LinkSent), Some(20));
    assert_eq!(difference.per_1000_s(Item::LinkSent), Some(2000));
    assert_eq!(difference.count(Item::Rssi), None);
    assert_eq!(Item::Rssi.kind(), Kind::Gauge);
    assert_eq!(after.get(Item::Rssi), Some(-60));
}

/// A node that counts `sent` and `bad` a second; it is sampled whenever its reporter asks.
struct Node {
    health: Health,
    reporter: Reporter<2>,
    sent: u32,
    bad: u32,
}

impl Node {
    fn new(policy: Policy) -> Self {
        let reporter = Reporter::new(policy, [Item::LinkSent, Item::LinkBadCrc]);
        Self { health: Health::new(1, 0), reporter, sent: 2, bad: 0 }
    }

    /// Runs for a time. Returns the times and reasons of the reports.
    fn run(&mut self, seconds: u32) -> Vec<(u32, Reason)> {
        let mut reports = Vec::new();
        for _ in 0..seconds {
            self.health.uptime_s += 1;
            // Alternately more and less than the average.
            let more = self.health.uptime_s % 2;
            self.health.add(Item::LinkSent, self.sent + more).add(Item::LinkBadCrc, self.bad);
            if self.health.uptime_s >= self.reporter.next_s()
                && let Some(reason) = self.reporter.sample(&self.health)
            {
                reports.push((self.health.uptime_s, reason));
            }
        }
        reports
    }
}

#[test]
fn a_fixed_period_stays_whatever_happens() {
    let mut node = Node::new(Policy::FIXED);
    node.run(600);
    node.bad = 9;
    let reports = node.run(600);
    assert_eq!(reports.len(), 20);
    assert!(reports.iter().all(|(_, reason)| *reason == Reason::Due));
}

#[test]
fn a_quiet_node_reports_16_times_less_often() {
    let mut node = Node::new(Policy::VARIABLE);
    node.run(6000);
    assert_eq!(node.reporter.interval_s(), 480);
    assert_eq!(node.run(4800).len(), 10);
}

#[test]
fn an_unusual_rate_is_reported_within_one_period_and_then_more_often() {
    let policy = Policy { period_s: 30, min_s: 10, threshold: 4 };
    let mut node = Node::new(policy);
    node.run(6000);
    let start = node.health.uptime_s;
    node.bad = 5;
    let reports = node.run(250);
    assert_eq!(reports[0].1, Reason::Unusual(Item::LinkBadCrc));
    assert!(reports[0].0 - start <= 30, "{reports:?}");
    assert_eq!(node.reporter.interval_s(), 10);
    assert!(reports.len() >= 10, "{reports:?}");
    // The new rate becomes usual, and the node reports rarely again.
    node.run(12_000);
    assert_eq!(node.reporter.interval_s(), 480);
}

#[test]
fn a_policy_has_limits() {
    let check =
        |period_s, min_s, threshold| Policy { period_s, min_s, threshold }.check(SHORTEST_ON_MOTES);
    assert!(check(30, 30, 0).is_ok() && check(86_400, 30, 1000).is_ok());
    assert_eq!(check(30, 29, 0), Err(PolicyError::PeriodTooShort { limit_s: 30 }));
    for (period_s, min_s, threshold) in [(30, 31, 0), (86_401, 30, 0), (30, 30, 1001)] {
        assert_eq!(check(period_s, min_s, threshold), Err(PolicyError::PolicyOutOfRange));
    }
    let mut node = Node::new(Policy::VARIABLE);
    node.run(6000);
    node.reporter.set_policy(Policy::FIXED);
    assert_eq!(node.reporter.interval_s(), 30);
}

/// The published schemas of streams of health never change.
#[test]
fn the_columns_of_a_stream_are_those_of_the_record_in_its_order() {
    for (columns, head) in [
        (Columns::Own, &["at::timestamp#1", "boot::u32#3", "uptime_s:s:u32#4"][..]),
        (
            Columns::Relayed,
            &["at::timestamp#1", "node::text64#2", "boot::u32~#3", "uptime_s:s:u32~#4"],
        ),
    ] {
        let mut buffer = [0; MAX_SCHEMA];
        let schema = columns.schema(&mut buffer).unwrap();
        let fields: Vec<_> = schema.fields().collect();
        let (first, rest) = fields.split_at(head.len());
        assert!(first.iter().zip(head).all(|(field, text)| {
            let expected = Field::parse(text).unwrap();
            (field.name, field.unit, field.kind, field.id, field.relayed)
                == (expected.name, expected.unit, expected.kind, expected.id, expected.relayed)
        }));
        assert_eq!(rest.len(), ITEMS);
        for (field, item) in rest.iter().zip(Item::all()) {
            assert_eq!(Item::parse(field.name), Some(item));
            assert!(field.nullable && field.unit == item.unit() && field.divisor == item.divisor());
            assert_eq!(field.relayed, columns == Columns::Relayed);
            let group = Group::ALL.iter().position(|group| *group == item.group()).unwrap();
            let place = item.place() - item.group().first();
            assert_eq!(usize::from(field.id), 16 * (group + 1) + place);
        }
        assert!(schema.longest_record() <= MAX_ROW);
    }
}

proptest! {
    #[test]
    fn a_row_has_the_values_of_its_record(health in any_health(), at_ms in 0..1_u64 << 42) {
        for (columns, node) in [(Columns::Own, ""), (Columns::Relayed, "kitchen")] {
            let mut buffer = [0; MAX_SCHEMA];
            let schema = columns.schema(&mut buffer).unwrap();
            let mut row = [0; MAX_ROW];
            let length = Columns::row(&schema, (at_ms, node), &health, &mut row).unwrap();
            let row = &row[..length];
            prop_assert_eq!(RecordCheck::new(&schema).check(row), Ok(()));
            let value = |name: &str| schema.field(name).map(|field| field.read(row).unwrap());
            let integer = |value: u32| Value::Integer(Decimal { numerator: value.into(), divisor: 1 });
            prop_assert_eq!(value("at"), Some(Value::Timestamp(i64::try_from(at_ms).unwrap())));
            prop_assert_eq!(value("boot"), Some(integer(health.boot)));
            prop_assert_eq!(value("uptime_s"), Some(integer(health.uptime_s)));
            let is_relayed = columns == Columns::Relayed;
            prop_assert_eq!(value("node"), is_relayed.then_some(Value::Text("kitchen")));
            for item in Item::all() {
                let field = schema.field(item.full_name()).unwrap();
                // The value that stands for null is null.
                let raw = health.get(item).filter(|raw| Some(i128::from(*raw)) != field.null());
                let expected = raw.map_or(Value::Null, |raw| Value::Integer(Decimal {
                    numerator: raw.into(),
                    divisor: item.divisor(),
                }));
                prop_assert_eq!(value(item.full_name()), Some(expected), "{:?}", item);
            }
        }
    }
}

#[test]
fn a_loss_that_two_totals_count_is_one_fault() {
    let mut health = Health::new(1, 10);
    health.set(Item::UdpDropped, 7).set(Item::UdpBadChecksum, 5).set(Item::LinkBadCrc, 2);
    health.set(Item::UdpSent, 100).set(Item::Waiting, 9).set(Item::TcpBadChecksum, 1);
    // That of TCP is in no other total that is known.
    assert_eq!(health.faults(), 7 + 2 + 1);
    let difference = Difference::between(&Health::new(0, 5), &health).unwrap();
    let faults: Vec<_> = difference.faults().collect();
    assert_eq!(faults, [(Item::LinkBadCrc, 2), (Item::UdpDropped, 7), (Item::TcpBadChecksum, 1)]);
}
