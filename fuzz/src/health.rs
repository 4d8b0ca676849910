//! Fuzzes records of health. What decodes must survive another encoding, and its difference to another
//! record must not panic.

use moteseal_core::cbor::Writer;
use moteseal_core::health::{
    Difference, Health, Item, MAX_ENCODED, Policy, Reporter, SHORTEST_ON_MOTES,
};

/// Decodes the bytes as a record, encodes it again, and takes it after another one.
pub fn run(bytes: &[u8]) {
    let Ok(health) = Health::decode(bytes) else { return };
    let mut out = [0; MAX_ENCODED];
    let mut out = Writer::new(&mut out);
    health.encode(&mut out).expect("MAX_ENCODED bytes suffice");
    let encoded = out.finish();
    assert_eq!(Health::decode(encoded), Ok(health), "the encoding is read back");
    assert!(encoded.len() <= bytes.len(), "unknown values are dropped, and nothing is added");
    let earlier = Health::new(health.boot, health.uptime_s / 2);
    if let Some(difference) = Difference::between(&earlier, &health) {
        let counts = Item::all().filter_map(|item| difference.per_1000_s(item));
        let _ = counts.fold(0_u64, u64::saturating_add);
    }
    let policy = Policy { period_s: 30, min_s: SHORTEST_ON_MOTES, threshold: 4 };
    let mut reporter = Reporter::new(policy, [Item::LinkBadCrc, Item::LinkSent]);
    for record in [earlier, health, earlier, health] {
        let _ = reporter.sample(&record);
        assert!(reporter.interval_s() >= SHORTEST_ON_MOTES);
    }
}

/// Returns encoded records.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut some = Health::new(3, 86_400);
    some.set(Item::Temperature, -235).set(Item::LinkSent, 70_000).set(Item::IpDropped, 3);
    let mut all = Health::new(u32::MAX, u32::MAX);
    Item::all().for_each(|item| {
        all.set(item, -1);
    });
    let encode = |health: &Health| {
        let mut out = [0; MAX_ENCODED];
        let mut out = Writer::new(&mut out);
        health.encode(&mut out).unwrap();
        out.finish().to_vec()
    };
    [Health::new(0, 0), some, all].iter().map(encode).collect()
}
