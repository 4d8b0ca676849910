//! The input of each program, and its expected results. The host computes the results with the same
//! crates. The results of RSA and DSA are checked with textbook arithmetic.

use aws_lc_rs::agreement;
use hmac::{Hmac, KeyInit as _, Mac as _};
use moteseal_broadcast::{
    ChainDraft, ChainId, ChainNumber, KeyId, Kind, MAX_HEAD, MAX_LEAF, OutgoingChain, Window,
};
use moteseal_core::cbor::Writer;
use moteseal_core::digest::Digest;
use moteseal_core::record::NetworkId;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Framing, GroupId, Level, SealIndex, Sequence};
use moteseal_core::schema::{GroupLayout, Schema};
use moteseal_core::signature::{Algorithm, SecretKey, Signer};
use moteseal_seal::level::{Counters, SaltKey};
use moteseal_seal::stream::{Selection, encode_part_head, encode_part_tail};
use moteseal_seal::tree::Tree;
use moteseal_seal::{MAX_MESSAGE, Seal, Star, Statement, star};
use moteseal_sum::guard::EpochGuard;
use moteseal_sum::query::QueryId;
use moteseal_sum::sies::{Slot, SourceSecret};
use num_bigint::BigUint;
use sha2::{Digest as _, Sha256};

use super::columns;
use super::program::Program;

const TEXT: &[u8] = b"0123456789";
const DEVICE: DeviceId = DeviceId(*b"device 1");
const INDEX: SealIndex = SealIndex(7);
const SALT_KEY: [u8; 32] = [3; 32];
const GROUP: GroupId = GroupId(*b"group  1");
const ROSTER: Digest = Digest([5; 32]);
const SCHEMA: Digest = Digest([6; 32]);
const PREV: Digest = Digest([7; 32]);
const SEED: [u8; 32] = [9; 32];
const QUERY: QueryId = QueryId([0xaa; 16]);
const QUERY_EPOCH: u64 = 66_051;
const READING: u32 = 258;
const NETWORK: NetworkId = NetworkId(*b"network1");
const SENDER: DeviceId = DeviceId(*b"sender 1");

/// The primes of an RSA key that only this test uses, 512 bits each, hexadecimal.
const RSA_PRIMES: [&[u8]; 2] = [
    b"cdbcad73d2c8dff9b66045e1326613474a328701b1e28d739fd05cb32bc5b215da318fc772b8352bab08adb0b344cd6a4d29cf11a885b40f22c5b0a73b0d3569",
    b"cf58bd2478acbc9899cabd6f6c9770d49755bda06b20c56517f8ea4dfb9a49a706b8754dc8de90cf3850b80b1965cdae0e87809aee67347b7a551ad84a770349",
];
/// `p`, `q`, `g`, `x` and a nonce of a DSA key that only this test uses, hexadecimal.
const DSA: [&[u8]; 5] = [
    b"bd716f251f174afda45fa8a413f4e4c7ed309a9767ea46cf5c046635943abd7020ebb0774c3616007e34f986126b1dfbd1451c7f5202dc84cb74ad3e59cc4f03",
    b"d18ba306f01bff7c322c9fe9dc70b8b933dce4ad",
    b"6dd9e20ec4653edfaaf2295461c6561692059bb8b131a6ef36c4323a62f00cfc33cc3bc0f4749d6efd5d73ddd440d04e9e7fc23241f2b071e0875e046e243586",
    b"6d02b905e9c4ffaf93217f787319e3c1eb0b7da1",
    b"2c6a0e0dfb0eeab08973cb090129c44842ebd8d",
];

fn number(hex: &[u8]) -> BigUint {
    BigUint::parse_bytes(hex, 16).unwrap()
}

/// Encodes the number as `size` bytes, big-endian.
fn bytes(number: &BigUint, size: usize) -> Vec<u8> {
    let digits = number.to_bytes_be();
    [vec![0; size - digits.len()], digits].concat()
}

/// A list of items, each preceded by its length (2 bytes, big-endian).
#[derive(Default)]
pub(crate) struct List(pub(crate) Vec<u8>);

impl List {
    pub(crate) fn item(mut self, bytes: &[u8]) -> Self {
        self.0.extend(u16::try_from(bytes.len()).unwrap().to_be_bytes());
        self.0.extend(bytes);
        self
    }
}

/// The inputs of all programs.
pub(crate) struct Inputs {
    events: Vec<u8>,
    ed25519: SecretKey,
    p256: SecretKey,
    message: Vec<u8>,
}

impl Inputs {
    pub(crate) fn new() -> Self {
        // Temperature and humidity that change slowly, 16 bits each.
        let events = (0..1024_u32)
            .map(|at| (2000 + at % 17) << 16 | (4000 + at * 7 % 100))
            .flat_map(u32::to_be_bytes);
        let [ed25519, p256] = [Algorithm::Ed25519, Algorithm::Esp256]
            .map(|suite| SecretKey::from_bytes(suite, &SEED).unwrap());
        Self {
            events: events.collect(),
            ed25519,
            p256,
            message: (0..=255).cycle().take(300).collect(),
        }
    }

    /// Returns the events of a star, 4 bytes each.
    pub(crate) fn events(&self) -> &[u8] {
        &self.events
    }

    fn star_start(&self) -> List {
        List::default()
            .item(&DEVICE.0)
            .item(&SALT_KEY)
            .item(&INDEX.0.to_be_bytes())
            .item(&self.events)
    }

    pub(crate) fn star(&self) -> Vec<u8> {
        self.star_start().0
    }

    pub(crate) fn grouped_star(&self) -> Vec<u8> {
        self.star_start().item(&columns::grouped()).0
    }

    /// Returns the root of the star of the events of [`columns::grouped`], from whole blocks.
    pub(crate) fn grouped_root(&self) -> [u8; 32] {
        let bytes = columns::grouped();
        let schema = Schema::decode(&bytes).unwrap();
        let layout = GroupLayout::new(&schema, schema.groups()).unwrap();
        let of_star = (Some(&layout), Framing::fixed(4).unwrap());
        let salt = SaltKey::new(SALT_KEY).salt(DEVICE, INDEX);
        let counters = Counters::of(&salt, 16, 1024);
        let digests: Vec<_> = (0..16)
            .map(Level)
            .map(|level| {
                let events = (0..).map(Sequence).zip(self.events.chunks(4));
                let block: Vec<u8> = events
                    .filter(|(seq, _)| salt.level(*seq, 16) == level)
                    .flat_map(|(_, event)| event)
                    .copied()
                    .collect();
                let place = (DEVICE, INDEX, level);
                if block.is_empty() {
                    Digest::NULL
                } else {
                    star::whole_block_digest(place, of_star, &block)
                }
            })
            .collect();
        star::root(&counters, &digests).0
    }

    fn closed<const L: usize>(&self) -> (Counters, [Digest; L]) {
        let salt = SaltKey::new(SALT_KEY).salt(DEVICE, INDEX);
        let mut star = Star::<L>::new(DEVICE, INDEX, &salt, Framing::fixed(4).unwrap());
        self.events.chunks(4).for_each(|event| {
            star.push(event).unwrap();
        });
        star.close()
    }

    pub(crate) fn star_root(&self, levels: u8) -> [u8; 32] {
        fn root<const L: usize>(inputs: &Inputs) -> [u8; 32] {
            let (counters, digests) = inputs.closed::<L>();
            star::root(&counters, &digests).0
        }
        match levels {
            8 => root::<8>(self),
            16 => root::<16>(self),
            _ => root::<32>(self),
        }
    }

    pub(crate) fn tree(&self, events: usize) -> Vec<u8> {
        List::default().item(&self.events[..4 * events]).0
    }

    pub(crate) fn tree_root(&self, events: usize) -> [u8; 32] {
        let mut tree = Tree::<20>::new();
        self.events.chunks(4).take(events).for_each(|event| {
            tree.push(event).unwrap();
        });
        tree.root().0
    }

    fn seal_start(&self) -> List {
        self.star_start().item(&GROUP.0).item(&ROSTER.0).item(&SCHEMA.0).item(&PREV.0)
    }

    pub(crate) fn seal(&self) -> Vec<u8> {
        self.seal_start().0
    }

    /// Returns the part item that the complete device must write.
    pub(crate) fn sealed_item(&self) -> Vec<u8> {
        let (counters, digests) = self.closed::<16>();
        let mut statement = Statement::new(Scheme::Star, GROUP, ROSTER, DEVICE, 16);
        (statement.index, statement.prev, statement.epoch) = (INDEX, PREV, EpochNumber(480_000));
        (statement.last, statement.last_in_epoch) =
            (Some((SealIndex(INDEX.0 - 1), EpochNumber(479_999))), true);
        (statement.schema, statement.salt, statement.counters) =
            (SCHEMA, SaltKey::new(SALT_KEY).salt(DEVICE, INDEX), counters);
        let seal = Seal::new(statement, star::root(&counters, &digests), Algorithm::Ed25519);
        let signature = self.ed25519.signature(seal.message(&mut [0; MAX_MESSAGE])).unwrap();
        let mut buffer = [0; 512];
        let mut out = Writer::new(&mut buffer);
        encode_part_head(&mut out, &seal, Selection::Levels(seal.statement().surviving()), &[], 0)
            .unwrap();
        encode_part_tail(&mut out, Some(&signature)).unwrap();
        out.finish().to_vec()
    }

    pub(crate) fn sign(&self) -> Vec<u8> {
        List::default().item(&SEED).item(&self.message).0
    }

    pub(crate) fn ed25519_signature(&self) -> Vec<u8> {
        self.ed25519.signature(&self.message).unwrap().to_vec()
    }

    pub(crate) fn p256_signature(&self) -> Vec<u8> {
        self.p256.signature(&self.message).unwrap().to_vec()
    }

    fn verify(&self, key: &SecretKey) -> Vec<u8> {
        let signature = key.signature(&self.message).unwrap();
        List::default().item(&key.public().to_bytes()).item(&self.message).item(&signature).0
    }

    pub(crate) fn ed25519_verify(&self) -> Vec<u8> {
        self.verify(&self.ed25519)
    }

    pub(crate) fn p256_verify(&self) -> Vec<u8> {
        self.verify(&self.p256)
    }

    pub(crate) fn p256_agree(&self) -> Vec<u8> {
        List::default().item(&SEED).item(&Self::agreement([4; 32]).1).0
    }

    /// Checks the public key and the shared secret with AWS-LC.
    pub(crate) fn check_p256_agree(&self, run: &Program) {
        let (key, public) = Self::agreement(SEED);
        run.expect("public", &public);
        let other = Self::agreement([4; 32]).1;
        let other = agreement::UnparsedPublicKey::new(&agreement::ECDH_P256, other);
        let shared = agreement::agree(&key, other, "failed", |secret| Ok(secret.to_vec()));
        run.expect("shared", &shared.unwrap());
    }

    /// Returns a key of AWS-LC for key agreement, and its public key without compression.
    fn agreement(seed: [u8; 32]) -> (agreement::PrivateKey, Vec<u8>) {
        let key = agreement::PrivateKey::from_private_key(&agreement::ECDH_P256, &seed).unwrap();
        let public = key.compute_public_key().unwrap().as_ref().to_vec();
        (key, public)
    }

    fn source() -> [u8; 64] {
        std::array::from_fn(|at| u8::try_from(at).unwrap())
    }

    pub(crate) fn sies(&self) -> Vec<u8> {
        let list = List::default().item(&Self::source()).item(&QUERY.0);
        list.item(&READING.to_be_bytes()).item(&QUERY_EPOCH.to_be_bytes()).0
    }

    /// Returns the expected PSR. The program encrypts a reading of each of two epochs and returns
    /// the second PSR.
    pub(crate) fn psr(&self) -> Vec<u8> {
        let mut permit = EpochGuard::default().advance(QUERY, 30_000, QUERY_EPOCH + 1).unwrap();
        let source = SourceSecret::from_bytes(&Self::source()).for_query(QUERY);
        source.encrypt(&mut permit, Slot(0), READING.into()).unwrap().to_bytes().to_vec()
    }

    /// Returns the head and the leaves of a chain of 20 messages of 48 bytes.
    fn chain(&self, list: List, number: u64, per_block: u8) -> List {
        let id = ChainId { network: NETWORK, sender: SENDER, number: ChainNumber(number) };
        let key = KeyId::of(&self.ed25519.public());
        let draft = ChainDraft {
            id,
            key,
            messages: 20,
            per_block,
            kind: Kind::Announcement,
            label: "footprint",
            window: Window::ALWAYS,
            previous: None,
            is_addressed: false,
        };
        let message = |number: u32| [number as u8; 48];
        let (mut digests, mut tags, mut scratch) =
            ([Digest::NULL; 20], [[0; 8]; 20], [0; MAX_LEAF]);
        let chain =
            OutgoingChain::build(draft, &mut digests, &mut tags, &mut scratch, |number, buffer| {
                buffer[..48].copy_from_slice(&message(number));
                Ok::<_, std::convert::Infallible>(48)
            });
        let chain = chain.unwrap();
        let (mut scratch, mut head) = ([0; MAX_HEAD], [0; MAX_HEAD]);
        let mut list = list.item(chain.head(&self.ed25519, &mut scratch, &mut head).unwrap());
        for number in 0..20 {
            let (block, index) =
                (number / u32::from(per_block) + 1, (number % u32::from(per_block)) as u8);
            let mut leaf = [0; MAX_LEAF];
            list = list.item(chain.leaf(block, index, &message(number), &mut leaf).unwrap());
        }
        list
    }

    fn sender(&self, list: List) -> List {
        list.item(&NETWORK.0).item(&SENDER.0).item(&self.ed25519.public().to_bytes())
    }

    pub(crate) fn chains(&self) -> Vec<u8> {
        let list = self.chain(self.sender(List::default()), 1, 1);
        self.chain(list, 2, 10).0
    }

    pub(crate) fn chain_sender(&self) -> Vec<u8> {
        List::default().item(&NETWORK.0).item(&SENDER.0).item(&SEED).0
    }

    /// Compares the head with the one that the host has signed.
    pub(crate) fn check_chain_sender(&self, run: &Program) {
        let frames = self.chain(List::default(), 2, 10).0;
        let (length, rest) = frames.split_first_chunk().unwrap();
        run.expect("head", &rest[..usize::from(u16::from_be_bytes(*length))]);
    }

    pub(crate) fn hmac(&self) -> Vec<u8> {
        List::default().item(&SEED).item(&[7; 48]).0
    }

    pub(crate) fn check_hmac(&self, run: &Program) {
        let mut mac = Hmac::<Sha256>::new_from_slice(&SEED).unwrap();
        mac.update(&[7; 48]);
        run.expect("code", &mac.finalize().into_bytes());
    }

    pub(crate) fn device(&self) -> Vec<u8> {
        let list = self.seal_start().item(&SEED).item(&Self::source()).item(&QUERY.0);
        self.chain(self.sender(list), 2, 10).0
    }

    pub(crate) fn text(&self) -> Vec<u8> {
        List::default().item(TEXT).0
    }

    /// Compares the digests of the text with the digests that OpenSSL computes.
    pub(crate) fn check_hashes(&self, run: &Program) {
        let expect = |name, hex: &[u8]| run.expect(name, &number(hex).to_bytes_be());
        expect("md5", b"781e5e245d69b566979b86e28d23f2c7");
        expect("sha1", b"87acec17cd9dcd20a716cc2cf67417b71c8a7016");
        expect("sha256", b"84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882");
    }

    /// Returns the SHA-256 digest of the text with its padding for RSA, 128 bytes in total (RFC
    /// 8017, section 9.2).
    fn padded() -> BigUint {
        let info = number(b"3031300d060960864801650304020105000420").to_bytes_be();
        let tail = [&[0], &info[..], &Sha256::digest(TEXT)].concat();
        BigUint::from_bytes_be(&[&[0, 1], &vec![0xff; 126 - tail.len()][..], &tail].concat())
    }

    pub(crate) fn rsa(&self) -> Vec<u8> {
        let [p, q] = RSA_PRIMES.map(number);
        let (p1, q1) = (&p - 1_u8, &q - 1_u8);
        let d = BigUint::from(65_537_u32).modinv(&(&p1 * &q1)).unwrap();
        let parts = [&d % &p1, &d % &q1, q.modinv(&p).unwrap()];
        let list = List::default().item(&bytes(&p, 64)).item(&bytes(&q, 64));
        parts
            .iter()
            .fold(list, |list, part| list.item(&bytes(part, 64)))
            .item(&bytes(&Self::padded(), 128))
            .0
    }

    pub(crate) fn check_rsa(&self, run: &Program) {
        let [p, q] = RSA_PRIMES.map(number);
        let signature = BigUint::from_bytes_be(&run.result("signature"));
        assert_eq!(signature.modpow(&65_537_u32.into(), &(p * q)), Self::padded(), "RSA");
    }

    /// Returns the leftmost 160 bits of SHA-256 of the text (FIPS 186-4, section 4.6).
    fn dsa_digest() -> BigUint {
        BigUint::from_bytes_be(&Sha256::digest(TEXT)[..20])
    }

    pub(crate) fn dsa(&self) -> Vec<u8> {
        let numbers = DSA.map(number);
        let list =
            numbers.iter().fold(List::default(), |list, number| list.item(&bytes(number, 64)));
        let [_, q, ..] = &numbers;
        list.item(&bytes(&(Self::dsa_digest() % q), 64)).0
    }

    /// Verifies the signature (FIPS 186-4, section 4.7).
    pub(crate) fn check_dsa(&self, run: &Program) {
        let [p, q, g, x, _] = DSA.map(number);
        let signature = run.result("signature");
        let [r, s] = [&signature[..64], &signature[64..]].map(BigUint::from_bytes_be);
        assert!(r != BigUint::ZERO && r < q && s < q, "DSA");
        let w = s.modinv(&q).unwrap();
        let (u1, u2) = (Self::dsa_digest() * &w % &q, &r * &w % &q);
        let y = g.modpow(&x, &p);
        assert_eq!(g.modpow(&u1, &p) * y.modpow(&u2, &p) % &p % &q, r, "DSA");
    }
}
