//! Provides the product's schemes through the common interface. The cloud serves a real stream, and
//! the product's own follower opens it.

use moteseal_core::cbor::{BufferTooSmall, Writer};
use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme as Kind;
use moteseal_core::record::{
    DeviceId, EpochNumber, GroupId, Level, MAX_LEVELS, SealIndex, Sequence,
};
use moteseal_core::roster::{Directory, NoKey};
use moteseal_core::schema::Schema;
use moteseal_core::signature::{Algorithm, PublicKey, SignError, Signer};
use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::{Limits, Shape};
use moteseal_seal::level::Salt;
use moteseal_seal::sample::{Rate, UniformSample, choice};
use moteseal_seal::star::star_evidence;
use moteseal_seal::stream::{self, Item, Open, PART_OVERHEAD, Select, Selection};
use moteseal_seal::tree::{self, Tree};
use moteseal_seal::{Follower, MAX_MESSAGE, Seal, Star, Statement, Unverified, star};

use crate::content_levels::LEVELS;
use crate::scheme::{Ask, Context, OpenError, Row, Scheme, Sealed, Unsupported};
use crate::wire::put_event;

/// The product's star or tree.
#[derive(Clone, Copy, Debug)]
pub struct EpochSeal(Kind);

impl EpochSeal {
    /// The star: salted levels, and a running digest for each block.
    pub const STAR: Self = Self(Kind::Star);
    /// The tree: salted levels, and an RFC 9162 tree over the events.
    pub const TREE: Self = Self(Kind::Tree);
}

/// A directory with one device, for the verifier.
struct OneDevice<'k> {
    device: DeviceId,
    key: &'k PublicKey,
}

const FIRST: Digest = Digest([1; 32]);
const ROSTER: Digest = Digest([2; 32]);

impl Directory for OneDevice<'_> {
    fn group(&self) -> GroupId {
        GroupId([0; 8])
    }
    fn levels(&self, _: EpochNumber) -> u8 {
        LEVELS
    }
    fn epochs(&self) -> (EpochNumber, Option<EpochNumber>) {
        (EpochNumber(0), None)
    }
    fn roster_digest(&self, version: u32) -> Option<Digest> {
        (version == 0).then_some(ROSTER)
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
        use_key(self.key);
        Ok(())
    }
    fn first_prev(&self, device: DeviceId) -> Option<Digest> {
        (device == self.device).then_some(FIRST)
    }
}

fn shape(context: &Context) -> Shape<'static> {
    Shape::new(Schema::OPAQUE.digest(), context.framing)
}

/// Returns the seal of an epoch, and the digests of a star's blocks.
fn seal(
    kind: Kind,
    context: &Context,
    algorithm: Algorithm,
    events: &[Vec<u8>],
) -> (Seal<Unverified>, Vec<Digest>) {
    let mut star = Star::<{ LEVELS as usize }>::new(
        context.device,
        SealIndex(0),
        &context.salt,
        context.framing,
    );
    let mut tree = Tree::<32>::new();
    for event in events {
        // Star and tree accept all events that have the context's framing.
        let _ = star.push(event);
        if kind == Kind::Tree {
            let _ = tree.push(event);
        }
    }
    let (counters, blocks) = star.close();
    let mut statement = Statement::new(kind, GroupId([0; 8]), ROSTER, context.device, LEVELS);
    statement.prev = FIRST;
    statement.epoch = context.epoch;
    statement.last_in_epoch = true;
    statement.schema = shape(context).digest;
    statement.salt = context.salt;
    statement.counters = counters;
    let root = if kind == Kind::Star { star::root(&counters, &blocks) } else { tree.root() };
    (Seal::new(statement, root, algorithm), blocks.to_vec())
}

/// The content of a part: its levels (or `None` for single events), the sequence numbers of its
/// events in the order of the part, and its digests.
struct Chosen {
    mask: Option<u32>,
    events: Vec<Sequence>,
    digests: Vec<u8>,
}

impl EpochSeal {
    fn choose(
        self,
        seal: &Seal<Unverified>,
        blocks: &[Digest],
        sealed: &Sealed,
        ask: &Ask<'_>,
    ) -> Result<Chosen, Unsupported> {
        let statement = seal.statement();
        let n = sealed.events.len() as u64;
        let level = |salt: &Salt, seq: u64| salt.level(Sequence(seq), LEVELS);
        let mask = match ask {
            Ask::All => Some(statement.surviving()),
            Ask::Rate(rate) => Some(
                choice::rate_levels(*rate, statement).map_err(|_| Unsupported)?
                    & statement.surviving(),
            ),
            Ask::Events(_) if self.0 == Kind::Star => return Err(Unsupported),
            Ask::Events(_) => None,
        };
        let mut events: Vec<Sequence> = match (mask, ask) {
            (None, Ask::Events(chosen)) => chosen.iter().copied().map(Sequence).collect(),
            _ => (0..n)
                .filter(|&seq| mask.unwrap_or(0) >> level(&statement.salt, seq).0 & 1 == 1)
                .map(Sequence)
                .collect(),
        };
        let mut digests = Vec::new();
        if self.0 == Kind::Star {
            let mut evidence = [Digest::NULL; MAX_LEVELS];
            let count = star_evidence(statement, blocks, mask.unwrap_or(0), &mut evidence);
            digests.extend(evidence[..count].iter().flat_map(|digest| digest.0));
            // Blocks are ordered by level, the highest level first. The sort is stable, so events
            // within a block stay ordered by sequence number.
            events.sort_by_key(|&seq| std::cmp::Reverse(statement.salt.level(seq, LEVELS)));
        } else {
            for range in tree::geometry::siblings(n, events.iter().copied()) {
                let mut subtree = Tree::<32>::new();
                #[allow(clippy::cast_possible_truncation)]
                for event in &sealed.events[range.start as usize..range.end as usize] {
                    let _ = subtree.push(event);
                }
                digests.extend(subtree.root().0);
            }
        }
        Ok(Chosen { mask, events, digests })
    }

    fn encode(
        self,
        context: &Context,
        sealed: &Sealed,
        ask: &Ask<'_>,
    ) -> Result<Vec<u8>, Unsupported> {
        let (seal, blocks) = seal(self.0, context, sealed.algorithm, &sealed.events);
        let chosen = self.choose(&seal, &blocks, sealed, ask)?;
        let mut records = Vec::new();
        for seq in &chosen.events {
            let event = usize::try_from(seq.0)
                .ok()
                .and_then(|seq| sealed.events.get(seq))
                .ok_or(Unsupported)?;
            put_event(&mut records, context.framing, event);
        }
        let mut out = vec![
            0;
            256 + PART_OVERHEAD
                + chosen.digests.len()
                + records.len()
                + 9 * chosen.events.len()
        ];
        let mut writer = Writer::new(&mut out);
        let selection = chosen.mask.map_or(Selection::Events(&chosen.events), Selection::Levels);
        let write = |writer: &mut Writer<'_>| -> Result<(), BufferTooSmall> {
            Open { device: context.device, roster_version: 0, prev: None, last: None }
                .encode(writer)?;
            stream::encode_part_head(writer, &seal, selection, &chosen.digests, records.len())?;
            writer.raw(&records)?;
            stream::encode_part_tail(writer, sealed.signatures.first().map(Vec::as_slice))
        };
        write(&mut writer).map_err(|_| Unsupported)?;
        let length = writer.position();
        out.truncate(length);
        Ok(out)
    }
}

impl Scheme for EpochSeal {
    fn name(&self) -> &'static str {
        match self.0 {
            Kind::Star => "star",
            Kind::Tree => "tree",
        }
    }

    fn seal(
        &self,
        context: &Context,
        signer: &dyn Signer,
        events: &[Vec<u8>],
    ) -> Result<Sealed, SignError> {
        let (seal, digests) = seal(self.0, context, signer.algorithm(), events);
        let signature = signer.signature(seal.message(&mut [0; MAX_MESSAGE]))?.to_vec();
        let mut sealed = Sealed { digests, ..Sealed::new(signer, events, vec![signature]) };
        let whole = self.encode(context, &sealed, &Ask::All).unwrap_or_default();
        let mut records = Vec::new();
        events.iter().for_each(|event| put_event(&mut records, context.framing, event));
        sealed.overhead = whole.len() - records.len();
        Ok(sealed)
    }

    fn serve(
        &self,
        context: &Context,
        sealed: &Sealed,
        ask: &Ask<'_>,
    ) -> Result<Vec<u8>, Unsupported> {
        self.encode(context, sealed, ask)
    }

    fn open(
        &self,
        context: &Context,
        key: &PublicKey,
        served: &[u8],
        ask: &Ask<'_>,
    ) -> Result<Vec<Row>, OpenError> {
        let directory = OneDevice { device: context.device, key };
        let mut follower = Follower::new(&directory, Scalar, Limits::default());
        let (item, length) = Item::decode(served).map_err(|_| OpenError::Malformed)?;
        let Item::Open(open) = item else { return Err(OpenError::Malformed) };
        follower.open(&open, |_| None).map_err(|_| OpenError::NotAuthentic)?;
        let (item, rest) = Item::decode(&served[length..]).map_err(|_| OpenError::Malformed)?;
        let Item::Part(part) = item else { return Err(OpenError::Malformed) };
        if length + rest != served.len() {
            return Err(OpenError::Malformed);
        }
        let rebuilt =
            follower.part(&part, Some(&shape(context))).map_err(|_| OpenError::NotAuthentic)?;
        let signature = part.signature.ok_or(OpenError::NotAuthentic)?;
        let seal =
            rebuilt.seal.verify(&directory, signature).map_err(|_| OpenError::NotAuthentic)?;
        let sample = rebuilt.sample.proven(&seal).ok_or(OpenError::NotAuthentic)?;
        let statement = seal.statement();
        if statement.epoch != context.epoch || statement.scheme != self.0 {
            return Err(OpenError::NotAsAsked);
        }
        let mut rows = Vec::new();
        let take = |seq: Sequence, _: Level, event: &[u8]| {
            rows.push(Row { seq: Some(seq.0), event: event.to_vec() });
        };
        let rate = match ask {
            Ask::All => Rate::ALL,
            Ask::Rate(rate) => *rate,
            // Events that are selected by their sequence numbers are authentic, but not a uniform
            // sample.
            Ask::Events(chosen) => {
                return match sample.select() {
                    Select::Events(gaps)
                        if chosen.iter().copied().map(Sequence).eq(gaps.iter()) =>
                    {
                        sample.for_each(&Scalar, take);
                        Ok(rows)
                    }
                    _ => Err(OpenError::NotAsAsked),
                };
            }
        };
        let uniform =
            UniformSample::by_rate(sample, &seal, rate).map_err(|_| OpenError::NotAsAsked)?;
        uniform.sample().for_each(&Scalar, take);
        Ok(rows)
    }

    fn device_state(&self, _: u64, _: usize) -> u64 {
        match self.0 {
            Kind::Star => size_of::<Star<{ LEVELS as usize }>>() as u64,
            Kind::Tree => size_of::<Tree<20>>() as u64,
        }
    }
}
