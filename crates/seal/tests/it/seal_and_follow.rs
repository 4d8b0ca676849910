//! Tests from end to end: a device seals, a stream carries some of the events, and a follower
//! rebuilds the seals and proves them. The tests cover stars and trees, and all sets of levels.

use moteseal_core::cbor::Writer;
use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{
    DeviceId, EpochNumber, Framing, GroupId, Level, MAX_LEVELS, Round, SealIndex, Sequence,
};
use moteseal_core::roster::{Directory, NoKey};
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey, Signer};
use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::{Limits, Shape};
use moteseal_seal::level::LevelKey;
use moteseal_seal::level::SaltKey;
use moteseal_seal::sample::epoch::{EpochError, WholeEpoch};
use moteseal_seal::sample::permutation::Swap;
use moteseal_seal::sample::{ChoiceError, Rate, UniformSample};
use moteseal_seal::star::star_evidence;
use moteseal_seal::stream::{self, Item, Open, PART_OVERHEAD, Selection};
use moteseal_seal::tree::{self, Tree};
use moteseal_seal::{
    Authentic, Follower, History, Incomplete, PartError, Position, Seal, SealError, Star,
    Statement, Unverified, star,
};
use proptest::prelude::*;

const LEVELS: u8 = 8;

pub(crate) struct OneDevice {
    pub(crate) key: PublicKey,
    pub(crate) device: DeviceId,
}

impl Directory for OneDevice {
    fn group(&self) -> GroupId {
        GroupId::of("home")
    }
    fn levels(&self, _: EpochNumber) -> u8 {
        LEVELS
    }
    fn epochs(&self) -> (EpochNumber, Option<EpochNumber>) {
        (EpochNumber(0), Some(EpochNumber(1000)))
    }
    fn roster_digest(&self, version: u32) -> Option<Digest> {
        (version == 0).then_some(Digest([9; 32]))
    }
    fn with_key(
        &self,
        device: DeviceId,
        _: SealIndex,
        _: EpochNumber,
        use_key: &mut dyn FnMut(&PublicKey),
    ) -> Result<(), NoKey> {
        if device != self.device {
            return Err(NoKey::Unknown);
        }
        use_key(&self.key);
        Ok(())
    }
    fn first_prev(&self, device: DeviceId) -> Option<Digest> {
        (device == self.device).then_some(Digest([5; 32]))
    }
}

/// A device, and everything that it has sealed.
struct Device {
    secret: SecretKey,
    salt_key: SaltKey,
    directory: OneDevice,
    position: Position,
    sealed: Vec<Sealed>,
}

struct Sealed {
    seal: Seal<Unverified>,
    blocks: Vec<Digest>,
    events: Vec<[u8; 4]>,
}

impl Device {
    fn new() -> Self {
        let secret = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap();
        let device = DeviceId::of("home", "dev1");
        let directory = OneDevice { key: secret.public(), device };
        let position = Position::start(Digest([5; 32]));
        Self { secret, salt_key: SaltKey::new([2; 32]), directory, position, sealed: Vec::new() }
    }

    fn seal(&mut self, scheme: Scheme, epoch: u64, events: &[[u8; 4]]) {
        self.seal_part(scheme, (epoch, true), events);
    }

    fn seal_part(
        &mut self,
        scheme: Scheme,
        (epoch, last_in_epoch): (u64, bool),
        events: &[[u8; 4]],
    ) {
        let device = self.directory.device;
        let index = SealIndex(self.position.last.map_or(0, |(index, _)| index.0 + 1));
        let salt = self.salt_key.salt(device, index);
        let framing = Framing::fixed(4).unwrap();
        let mut statement =
            Statement::new(scheme, self.directory.group(), Digest([9; 32]), device, LEVELS);
        statement.index = index;
        statement.prev = self.position.prev;
        statement.last = self.position.last;
        statement.epoch = EpochNumber(epoch);
        statement.last_in_epoch = last_in_epoch;
        statement.schema = Digest([3; 32]);
        statement.salt = salt;
        let mut star = Star::<8>::new(device, index, &salt, framing);
        let mut tree = Tree::<20>::new();
        for event in events {
            star.push(event).unwrap();
            tree.push(event).unwrap();
        }
        let (counters, blocks) = star.close();
        statement.counters = counters;
        let root = match scheme {
            Scheme::Star => star::root(&counters, &blocks),
            Scheme::Tree => tree.root(),
        };
        let seal = Seal::new(statement, root, Algorithm::Ed25519);
        self.position = seal.position();
        self.sealed.push(Sealed { seal, blocks: blocks.to_vec(), events: events.to_vec() });
    }

    /// Returns one stream with every seal and its events of the levels `mask`. Only the last part
    /// has a signature.
    fn stream(&self, mask: u32) -> Vec<u8> {
        let mut out = vec![0; 1 << 20];
        let mut writer = Writer::new(&mut out);
        let first = self.sealed[0].seal.statement();
        let open = Open { device: first.device, roster_version: 0, prev: None, last: first.last };
        open.encode(&mut writer).unwrap();
        for (i, sealed) in self.sealed.iter().enumerate() {
            let mut buffer = [0; moteseal_seal::MAX_MESSAGE];
            let mut signature = [0; 64];
            self.secret.sign(sealed.seal.message(&mut buffer), &mut signature).unwrap();
            let last = i + 1 == self.sealed.len();
            sealed.write(&mut writer, mask, last.then_some(&signature[..]));
        }
        let length = writer.position();
        out.truncate(length);
        out
    }
}

impl Sealed {
    fn write(&self, out: &mut Writer<'_>, mask: u32, signature: Option<&[u8]>) {
        let statement = self.seal.statement();
        let mask = mask & statement.surviving();
        let key = LevelKey::new(&statement.salt);
        let level = |seq: usize| key.level(seq as u64, LEVELS).0;
        let mut events = Vec::new();
        let mut digests = Vec::new();
        match statement.scheme {
            Scheme::Star => {
                for wanted in (0..LEVELS).rev().filter(|level| mask >> level & 1 == 1) {
                    let block =
                        self.events.iter().enumerate().filter(|(seq, _)| level(*seq) == wanted);
                    events.extend(block.flat_map(|(_, event)| event));
                }
                let mut evidence = [Digest::NULL; MAX_LEVELS];
                let count = star_evidence(statement, &self.blocks, mask, &mut evidence);
                digests.extend(evidence[..count].iter().flat_map(|digest| digest.0));
            }
            Scheme::Tree => {
                let chosen: Vec<usize> =
                    (0..self.events.len()).filter(|&seq| mask >> level(seq) & 1 == 1).collect();
                events.extend(chosen.iter().flat_map(|&seq| self.events[seq]));
                let leaves: Vec<Digest> =
                    self.events.iter().map(|event| tree::leaf(event)).collect();
                let n = leaves.len() as u64;
                for range in
                    tree::geometry::siblings(n, chosen.iter().map(|&seq| Sequence(seq as u64)))
                {
                    let mut subtree = Tree::<20>::new();
                    for leaf in &leaves[range.start as usize..range.end as usize] {
                        subtree.push_leaf(*leaf).unwrap();
                    }
                    digests.extend(subtree.root().0);
                }
            }
        }
        stream::encode_part_head(out, &self.seal, Selection::Levels(mask), &digests, events.len())
            .unwrap();
        out.raw(&events).unwrap();
        stream::encode_part_tail(out, signature).unwrap();
    }
}

type Row = (u32, u64, [u8; 4]);

/// Reads a run as a client does: rebuilds the seals, proves the last seal by its signature and the
/// others by the chain, then reads the rows.
fn read(device: &Device, bytes: &[u8]) -> Result<(Vec<Seal<Authentic>>, Vec<Row>), String> {
    let mut follower = Follower::new(&device.directory, Scalar, Limits::default());
    let shape = Shape::new(Digest([3; 32]), Framing::fixed(4).unwrap());
    let (mut at, mut rebuilt, mut signature) = (0, Vec::new(), None);
    while at < bytes.len() {
        let (item, length) =
            Item::decode(&bytes[at..]).map_err(|error| error.named().to_string())?;
        at += length;
        match item {
            Item::Open(open) => {
                follower.open(&open, |_| None).map_err(|error| error.named().to_string())?;
            }
            Item::Part(part) => {
                signature = part.signature;
                rebuilt.push(
                    follower
                        .part(&part, Some(&shape))
                        .map_err(|error| error.named().to_string())?,
                );
            }
            other => return Err(format!("unexpected {other:?}")),
        }
    }
    let mut seals: Vec<Seal<Authentic>> = Vec::new();
    let mut samples = Vec::new();
    for rebuilt in rebuilt.into_iter().rev() {
        let seal = match seals.last() {
            None => rebuilt.seal.verify(&device.directory, signature.ok_or("Unsigned")?),
            Some(successor) => rebuilt.seal.proven_by(successor),
        };
        let seal = seal.map_err(|error| error.named().to_string())?;
        samples.push(rebuilt.sample.proven(&seal).ok_or("another seal")?);
        seals.push(seal);
    }
    seals.reverse();
    samples.reverse();
    let mut rows = Vec::new();
    for (seal, sample) in seals.iter().zip(&samples) {
        sample.for_each(&Scalar, |seq, _, record| {
            rows.push((seal.statement().index.0, seq.0, record.try_into().unwrap()));
        });
    }
    Ok((seals, rows))
}

fn expected(device: &Device, mask: u32) -> Vec<Row> {
    let mut rows = Vec::new();
    for sealed in &device.sealed {
        let statement = sealed.seal.statement();
        for (seq, event) in sealed.events.iter().enumerate() {
            let level = statement.salt.level(Sequence(seq as u64), LEVELS);
            if mask >> level.0 & 1 == 1 {
                rows.push((statement.index.0, seq as u64, *event));
            }
        }
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_levels_of_a_run_verify_and_round_trip(
        counts in prop::collection::vec((0..120usize, any::<bool>()), 1..5),
        mask: u8,
    ) {
        let mut device = Device::new();
        for (i, (count, tree)) in counts.into_iter().enumerate() {
            let events: Vec<[u8; 4]> = (0..count as u32).map(|event| (event * 7 + i as u32).to_be_bytes()).collect();
            device.seal(if tree { Scheme::Tree } else { Scheme::Star }, i as u64, &events);
        }
        let mask = u32::from(mask);
        let (seals, rows) = read(&device, &device.stream(mask)).unwrap();
        prop_assert_eq!(seals.len(), device.sealed.len());
        prop_assert_eq!(rows, expected(&device, mask));
    }
}

/// Changing any byte of a run makes it invalid. Truncating it yields an error or no rows.
#[test]
fn no_mutation_of_a_run_yields_other_rows() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let mut device = Device::new();
        device.seal(
            scheme,
            3,
            &[[1, 2, 3, 4], [1, 2, 3, 4], [5, 6, 7, 8], [9, 9, 9, 9], [0, 0, 0, 0]],
        );
        device.seal(scheme, 5, &[[2; 4], [3; 4], [4; 4]]);
        let good = device.stream(0xfe);
        let rows = read(&device, &good).unwrap().1;
        for at in 0..good.len() {
            for flip in [1, 2, 0x10, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                if let Ok((_, changed)) = read(&device, &bad) {
                    panic!(
                        "byte {at} ^ {flip:#x} of {scheme:?} verifies: {changed:?} instead of {rows:?}"
                    );
                }
            }
            assert!(
                read(&device, &good[..at]).map_or(true, |(_, rows)| rows.is_empty()),
                "cut at {at}"
            );
        }
    }
}

#[test]
fn a_run_without_a_signature_proves_nothing() {
    let mut device = Device::new();
    device.seal(Scheme::Star, 0, &[[1; 4]]);
    let mut out = vec![0; 4096 + PART_OVERHEAD];
    let mut writer = Writer::new(&mut out);
    Open { device: device.directory.device, roster_version: 0, prev: None, last: None }
        .encode(&mut writer)
        .unwrap();
    device.sealed[0].write(&mut writer, 0xff, None);
    let length = writer.position();
    assert_eq!(read(&device, &out[..length]).unwrap_err(), "Unsigned");
}

#[test]
fn an_uplink_seal_of_298_events_costs_at_most_128_bytes() {
    let mut device = Device::new();
    let events: Vec<[u8; 4]> = (0..298u32).map(u32::to_be_bytes).collect();
    device.seal(Scheme::Star, 400_000, &events);
    device.seal(Scheme::Star, 400_001, &events);
    let one = {
        let mut writer = vec![0; 8192];
        let mut out = Writer::new(&mut writer);
        device.sealed[1].write(&mut out, 0xff, Some(&[0; 64]));
        out.position()
    };
    assert!(one - 298 * 4 <= 128, "{} bytes in addition to the events", one - 298 * 4);
}

fn authentic(device: &Device) -> Vec<Seal<Authentic>> {
    read(device, &device.stream(0)).unwrap().0
}

#[test]
fn an_unbroken_chain_is_complete() {
    let mut device = Device::new();
    for epoch in [2, 3, 5, 9] {
        device.seal(Scheme::Star, epoch, &[[1; 4]]);
    }
    let seals = authentic(&device);
    let id = device.directory.device;
    // Epochs 3 to 7 have seals 1 and 2. Seal 3, of epoch 9, shows that there is no seal in between.
    let mut history = History::new(id, EpochNumber(3), EpochNumber(8));
    assert_eq!(history.next(&seals[1]), Ok(true));
    assert_eq!(history.next(&seals[2]), Ok(true));
    assert_eq!(
        history.clone().finish(),
        Err(Incomplete::TailUnknown { device: id, from: EpochNumber(6) })
    );
    assert_eq!(history.next(&seals[3]), Ok(false));
    assert_eq!(history.finish().unwrap().seals(), 2);
    // A seal that is omitted between two seals, or before the first seal, is missing.
    let mut history = History::new(id, EpochNumber(3), EpochNumber(8));
    assert_eq!(history.next(&seals[1]), Ok(true));
    let missing = |index, epoch| Incomplete::Missing {
        device: id,
        index: SealIndex(index),
        epoch: Some(EpochNumber(epoch)),
    };
    assert_eq!(history.next(&seals[3]), Err(missing(2, 5)));
    let mut history = History::new(id, EpochNumber(3), EpochNumber(8));
    assert_eq!(history.next(&seals[2]), Err(missing(1, 3)));
    // A seal that was not requested is rejected.
    let mut history = History::new(id, EpochNumber(3), EpochNumber(8));
    assert!(matches!(history.next(&seals[0]), Err(Incomplete::NotAsAsked { .. })));
    // The last part of the last epoch ends the range.
    let mut history = History::new(id, EpochNumber(2), EpochNumber(4));
    assert_eq!((history.next(&seals[0]), history.next(&seals[1])), (Ok(true), Ok(true)));
    assert!(history.finish().is_ok());
}

#[test]
fn detects_two_histories_of_one_device() {
    let (mut one, mut other) = (Device::new(), Device::new());
    for epoch in [2, 3, 5, 7] {
        one.seal(Scheme::Star, epoch, &[[1; 4]]);
        other.seal(Scheme::Star, epoch, &[[if epoch == 2 { 1 } else { 2 }; 4]]);
    }
    let (one, other, id) = (authentic(&one), authentic(&other), one.directory.device);
    let equivocation =
        |index| Err(Incomplete::Equivocation { device: id, index: SealIndex(index) });
    let not_asked = |index| Err(Incomplete::NotAsAsked { device: id, index: SealIndex(index) });
    let two = || {
        let mut history = History::new(id, EpochNumber(2), EpochNumber(9));
        assert_eq!((history.next(&one[0]), history.next(&one[1])), (Ok(true), Ok(true)));
        history
    };
    assert_eq!(two().next(&other[1]), equivocation(1));
    assert_eq!(two().next(&other[2]), equivocation(1), "it names a different seal 1");
    assert_eq!(two().next(&one[1]), not_asked(1));
    assert_eq!(two().next(&one[0]), not_asked(0));
    assert_eq!(two().next(&one[2]), Ok(true));
    // A history that starts after a seal does not check the seals before it.
    let mut history = History::after(&one[1]);
    assert_eq!(
        (history.clone().next(&one[2]), history.clone().next(&other[2])),
        (Ok(true), equivocation(1))
    );
    let missing =
        Incomplete::Missing { device: id, index: SealIndex(2), epoch: Some(EpochNumber(5)) };
    assert_eq!(history.next(&one[3]), Err(missing));
}

#[test]
fn an_epoch_is_whole_only_with_all_its_parts() {
    let mut device = Device::new();
    for (epoch, last_in_epoch) in
        [(2, true), (3, false), (3, false), (3, true), (4, false), (5, true), (5, true)]
    {
        device.seal_part(Scheme::Tree, (epoch, last_in_epoch), &[[7; 4]; 30]);
    }
    let prove = |sealed: &Sealed| {
        let mut signature = [0; 64];
        device
            .secret
            .sign(sealed.seal.message(&mut [0; moteseal_seal::MAX_MESSAGE]), &mut signature)
            .unwrap();
        sealed.seal.clone().verify(&device.directory, &signature).unwrap()
    };
    let seals: Vec<Seal<Authentic>> = device.sealed.iter().map(prove).collect();
    let whole = |range: std::ops::Range<usize>, next: Option<usize>| {
        WholeEpoch::new(&seals[range], next.map(|next| &seals[next]))
            .map(|whole| whole.parts().len())
    };
    assert_eq!((whole(0..1, None), whole(1..4, None), whole(4..5, Some(5))), (Ok(1), Ok(3), Ok(1)));
    for (range, next, error) in [
        (1..1, None, EpochError::Missing),
        (2..4, None, EpochError::Missing),
        (0..2, None, EpochError::Missing),
        (1..2, None, EpochError::TailUnknown),
        (1..3, Some(3), EpochError::TailUnknown),
        (1..3, Some(4), EpochError::TailUnknown),
        (4..5, None, EpochError::TailUnknown),
        (4..5, Some(6), EpochError::TailUnknown),
        (5..7, None, EpochError::EpochClosed),
    ] {
        assert_eq!(whole(range.clone(), next), Err(error), "{range:?}, {next:?}");
    }
    let without_the_middle = [seals[1].clone(), seals[3].clone()];
    assert_eq!(WholeEpoch::new(&without_the_middle, None).map(|_| ()), Err(EpochError::Missing));

    // A draw from the whole epoch determines what each part must contain. Insufficient memory is an
    // error.
    let epoch = WholeEpoch::new(&seals[1..4], None).unwrap();
    let (mut chosen, mut scratch) = ([0; 90], [Swap::FREE; 181]);
    assert_eq!(
        epoch.draw(&Scalar, Round(0), (90, &[5; 32]), &mut [0; 89], &mut scratch).unwrap_err(),
        ChoiceError::ScratchTooSmall
    );
    assert_eq!(
        epoch
            .draw(&Scalar, Round(0), (u32::MAX, &[5; 32]), &mut chosen, &mut scratch)
            .unwrap()
            .parts()
            .count(),
        3
    );
    assert_eq!(
        epoch.at_most(50).parts().map(|part| part.seal().digest()).collect::<Vec<_>>(),
        [1, 2, 3].map(|at| seals[at].digest())
    );
}

#[test]
fn a_sample_is_uniform_only_with_its_own_seal() {
    let mut device = Device::new();
    device.seal(Scheme::Star, 2, &[]);
    device.seal(Scheme::Star, 3, &[]);
    let seals = authentic(&device);
    let sample = || {
        let bytes = device.stream(0xff);
        let mut follower = Follower::new(&device.directory, Scalar, Limits::default());
        let shape = Shape::new(Digest([3; 32]), Framing::fixed(4).unwrap());
        let (Item::Open(open), length) = Item::decode(&bytes).unwrap() else {
            panic!("an open item")
        };
        follower.open(&open, |_| None).unwrap();
        let (Item::Part(part), _) = Item::decode(&bytes[length..]).unwrap() else {
            panic!("a part")
        };
        let rebuilt = follower.part(&part, Some(&shape)).unwrap();
        // The sample borrows from bytes that do not live long enough, so copy it.
        rebuilt.sample.proven(&seals[0]).unwrap().keep::<Vec<u8>>()
    };
    let kept = sample();
    assert!(UniformSample::by_rate(kept.sample(), &seals[0], Rate::ALL).is_ok());
    let forced = |of: usize| {
        let of = std::slice::from_ref(&seals[of]);
        WholeEpoch::new(of, None)
            .unwrap()
            .at_most(9)
            .parts()
            .next()
            .unwrap()
            .check(kept.sample())
            .map(|_| ())
    };
    assert_eq!(forced(0), Ok(()));
    // Both parts contain the same levels, namely none. Only their seals differ.
    assert_eq!(
        UniformSample::by_rate(kept.sample(), &seals[1], Rate::ALL).unwrap_err(),
        ChoiceError::NotAsAsked
    );
    assert_eq!(forced(1), Err(ChoiceError::NotAsAsked));
}

#[test]
fn rejects_a_signature_of_another_key() {
    let mut device = Device::new();
    device.seal(Scheme::Star, 0, &[[1; 4]]);
    let bytes = device.stream(0xff);
    device.directory.key = SecretKey::from_seed(Algorithm::Ed25519, &[8; 32]).unwrap().public();
    assert!(read(&device, &bytes).unwrap_err().starts_with("NotAuthentic"));
    device.directory.key = SecretKey::from_seed(Algorithm::Esp256, &[8; 32]).unwrap().public();
    assert!(read(&device, &bytes).unwrap_err().starts_with("NotAuthentic"));
    assert!(matches!(
        device.sealed[0].seal.signed_by(
            &SecretKey::from_seed(Algorithm::Ed25519, &[8; 32]).unwrap().public(),
            &[0; 64]
        ),
        Err(SealError::Signature(_))
    ));
}

#[test]
fn checks_limits_before_working() {
    let mut device = Device::new();
    device.seal(Scheme::Star, 0, &[[1; 4]; 10]);
    let bytes = device.stream(0);
    let mut follower = Follower::new(&device.directory, Scalar, Limits { max_events: 9 });
    let shape = Shape::new(Digest([3; 32]), Framing::fixed(4).unwrap());
    let (Item::Open(open), length) = Item::decode(&bytes).unwrap() else { panic!("an open item") };
    follower.open(&open, |_| None).unwrap();
    let (Item::Part(part), _) = Item::decode(&bytes[length..]).unwrap() else { panic!("a part") };
    assert_eq!(follower.part(&part, Some(&shape)).unwrap_err(), PartError::TooManyEvents);
    assert_eq!(follower.part(&part, None).unwrap_err(), PartError::SchemaUnknown);
    assert_eq!(Level(0), part.salt.level(Sequence(0), 1));
}

#[test]
fn the_explaining_form_round_trips() {
    let mut device = Device::new();
    for scheme in [Scheme::Star, Scheme::Tree] {
        device.seal(scheme, 7, &[[1; 4]; 10]);
    }
    for sealed in &device.sealed {
        let mut out = [0; 2048];
        let mut writer = Writer::new(&mut out);
        sealed.seal.encode(&mut writer, &[7; 64]).unwrap();
        let (seal, signature) = Seal::decode(writer.finish())
            .map(|(seal, signature)| (seal, signature.to_vec()))
            .unwrap();
        assert_eq!(
            (seal.digest(), seal.statement()),
            (sealed.seal.digest(), sealed.seal.statement())
        );
        assert_eq!(signature, [7; 64]);
    }
}
