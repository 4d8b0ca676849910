//! What exactly was wrong with a run that is not proven: the answer beside the store's explaining form (spec/formats.md,
//! section 6). The explanation is believed as far as the device's own signature goes, and no further.

use std::fmt;

use moteseal_core::digest::Digest;
use moteseal_core::level::SipKey;
use moteseal_core::record::{DeviceId, EpochNumber, Framing, Level, SealIndex, Sequence};
use moteseal_core::roster::Directory;
use moteseal_core::seal::follow::Limits;
use moteseal_core::seal::{Authentic, Scheme, Seal, SealError, Statement};
use moteseal_core::wire::stream::{Item, Part, Select};
use moteseal_verify::{Event, ReadError, Roster, StreamReader, Suspect, write};

/// The first disagreement between a part and its seal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disagreement {
    /// The explanation itself is not signed by the device: the store made it up.
    NotExplained {
        /// What is wrong with it.
        cause: String,
    },
    /// The device states something else: of this field.
    Statement {
        /// The field's name, as in spec/formats.md, section 3.
        field: &'static str,
    },
    /// The digests do not lead to the root: those of the explanation, or those beside the events of the answer.
    Root,
    /// The block of this level has another digest.
    Block {
        /// The level.
        level: Level,
    },
    /// The path of an event does not lead to the root.
    Path {
        /// The event; `None` where the store withholds the bundle that would show which.
        seq: Option<Sequence>,
    },
    /// Everything is as the device sealed it, but for the signature that came with it.
    Signature,
    /// The store does not explain.
    Withheld {
        /// What it did instead.
        cause: String,
    },
}

/// What was wrong with a run, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The device.
    pub device: DeviceId,
    /// The seal's index.
    pub index: SealIndex,
    /// Its epoch.
    pub epoch: EpochNumber,
    /// What was wrong.
    pub what: Disagreement,
}

impl Finding {
    /// The finding's name: spec/errors.md.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.what {
            Disagreement::NotExplained { .. } | Disagreement::Signature => "NotAuthentic",
            Disagreement::Statement { .. } => "StatementMismatch",
            Disagreement::Root => "RootMismatch",
            Disagreement::Block { .. } => "BlockDigestMismatch",
            Disagreement::Path { .. } => "PathMismatch",
            Disagreement::Withheld { .. } => "ExplanationWithheld",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name())?;
        let Self { device, index, epoch, .. } = self;
        match &self.what {
            Disagreement::NotExplained { cause } => write!(f, "the store's explanation is not the device's ({cause})")?,
            Disagreement::Statement { field } => write!(f, "the device states another {field}")?,
            Disagreement::Root => f.write_str("the digests do not lead to the root that the device signed")?,
            Disagreement::Block { level } => write!(f, "the block of level {level} is not the one that the device sealed")?,
            Disagreement::Path { seq: Some(seq) } => write!(f, "event {seq} is not the one that the device sealed")?,
            Disagreement::Path { seq: None } => {
                f.write_str("the events are not those that the device sealed; the store withholds the ones that are")?;
            }
            Disagreement::Signature => f.write_str("the signature is not the device's; all else is as it was sealed")?,
            Disagreement::Withheld { cause } => write!(f, "the store does not show what the device signed ({cause})")?,
        }
        write!(f, " (device {device}, index {index}, epoch {epoch})")
    }
}

/// What comparing one part with its explanation shows.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The part is what the device sealed.
    Agrees,
    /// It is not.
    Differs(Disagreement),
    /// A tree's events or digests are wrong: the whole bundle shows which.
    NeedsBundle(Box<Seal<Authentic>>),
}

/// Compares a part with the store's answer to a request for its explaining form.
pub(crate) fn examine(suspect: &Suspect, roster: &Roster, answer: &[u8]) -> Verdict {
    let made_up = |cause: String| Verdict::Differs(Disagreement::NotExplained { cause });
    let (seal, digests) = match Item::decode(answer) {
        Ok((Item::Explain { seal, digests }, _)) => (seal, digests),
        Ok((Item::Problem { name, .. }, _)) => {
            let name: String = name.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
            return Verdict::Differs(Disagreement::Withheld { cause: name });
        }
        Ok(_) => return Verdict::Differs(Disagreement::Withheld { cause: "it answers with something else".into() }),
        Err(error) => return made_up(error.to_string()),
    };
    let rebuilt = suspect.seal.statement();
    let explained = match open(seal, roster, rebuilt) {
        Ok(explained) => explained,
        Err(cause) => return made_up(cause),
    };
    if let Some(field) = first_difference(rebuilt, explained.statement()) {
        return Verdict::Differs(Disagreement::Statement { field });
    }
    if suspect.seal.algorithm() != explained.algorithm() {
        return Verdict::Differs(Disagreement::Statement { field: "algorithm" });
    }
    if suspect.seal.root() == explained.root() {
        return Verdict::Agrees;
    }
    if rebuilt.scheme == Scheme::Tree {
        return Verdict::NeedsBundle(Box::new(explained));
    }
    let digests: Vec<Digest> = digests.chunks_exact(32).map(|bytes| bytes.try_into().map_or(Digest::NULL, Digest)).collect();
    if !write::leads_to_root(&explained, &digests) {
        return Verdict::Differs(Disagreement::Root);
    }
    let Some(mask) = with_part(suspect, |part| match part.select {
        Select::Levels(mask) => mask,
        Select::Events(_) => 0,
    }) else {
        return Verdict::Differs(Disagreement::Root);
    };
    let received = (0..roster.levels()).filter(|level| mask >> level & 1 == 1);
    let altered = received.map(Level).find(|level| {
        let at = usize::from(level.0);
        suspect.blocks.get(at) != digests.get(at)
    });
    Verdict::Differs(altered.map_or(Disagreement::Root, |level| Disagreement::Block { level }))
}

/// The seal of an explanation, if the device signed it.
fn open(bytes: &[u8], roster: &Roster, about: &Statement) -> Result<Seal<Authentic>, String> {
    let (seal, signature) = Seal::decode(bytes).map_err(|error| error.to_string())?;
    // The key is the one of the seal that was asked for: an explanation of another one cannot bring its own.
    let mut result = Err(SealError::Algorithm);
    roster.with_key(about.device, about.index, &mut |key| result = seal.clone().verify(key, signature));
    result.map_err(|error| error.to_string())
}

/// The first field in which two statements differ, cause before consequence: the salt before the counters that follow from it.
fn first_difference(answer: &Statement, device: &Statement) -> Option<&'static str> {
    let Statement { group, roster, device: id, index, scheme, prev, last, epoch, last_in_epoch, restart, schema, .. } = device;
    let fields = [
        ("device", answer.device == *id),
        ("group", answer.group == *group),
        ("index", answer.index == *index),
        ("roster", answer.roster == *roster),
        ("scheme", answer.scheme == *scheme),
        ("prev_index", answer.last.map(|(index, _)| index) == last.map(|(index, _)| index)),
        ("prev_epoch", answer.last.map(|(_, epoch)| epoch) == last.map(|(_, epoch)| epoch)),
        ("epoch", answer.epoch == *epoch),
        ("last_in_epoch", answer.last_in_epoch == *last_in_epoch),
        ("restart", answer.restart == *restart),
        ("schema", answer.schema == *schema),
        ("salt", answer.salt == device.salt),
        ("counters", answer.counters == device.counters),
        ("round", answer.round == device.round),
        ("own_round", answer.own_round == device.own_round),
        ("lost", answer.lost == device.lost),
        ("answered", answer.answered().eq(device.answered())),
        ("prev", answer.prev == *prev),
    ];
    fields.into_iter().find(|(_, same)| !same).map(|(name, _)| name)
}

/// Compares the events of a tree's part with the whole bundle of its seal, as the store gives it.
pub(crate) fn examine_tree(suspect: &Suspect, roster: &Roster, seal: &Seal<Authentic>, bundle: &[u8]) -> Disagreement {
    whole(roster, seal, bundle, suspect.schema.framing)
        .and_then(|sealed| with_part(suspect, |part| first_altered(part, suspect, roster.levels(), &sealed)))
        .map_or(Disagreement::Path { seq: None }, |altered| match altered {
            Some(seq) => Disagreement::Path { seq: Some(seq) },
            // All events are as they were sealed: it is the digests beside them that are not.
            None => Disagreement::Root,
        })
}

/// All records under a seal, from its bundle; `None` if the bundle is not the whole of that seal.
fn whole(roster: &Roster, seal: &Seal<Authentic>, bundle: &[u8], framing: Framing) -> Option<Vec<Vec<u8>>> {
    let mut records = Vec::new();
    let mut reader = StreamReader::new(roster, Limits::default());
    let fed = reader.feed::<ReadError>(bundle, &mut |event| {
        if let Event::Proven(proven) = event
            && proven.seal.digest() == seal.digest()
            && proven.schema.framing == framing
        {
            let engine = moteseal_lanes::Host::detect();
            proven.sample.for_each(&engine, |_, _, record| records.push(record.to_vec()));
        }
        Ok(())
    });
    (fed.is_ok() && records.len() as u64 == seal.statement().counters.total()).then_some(records)
}

/// The first received event that is not the sealed one.
fn first_altered(part: &Part<'_>, suspect: &Suspect, levels: u8, sealed: &[Vec<u8>]) -> Option<Sequence> {
    let mut rest = part.events;
    let mut differs = |seq: Sequence| {
        let (record, tail) = suspect.schema.framing.split_first(rest)?;
        rest = tail;
        let same = usize::try_from(seq.0).ok().and_then(|at| sealed.get(at)).is_some_and(|sealed| sealed == record);
        (!same).then_some(seq)
    };
    match &part.select {
        Select::Events(gaps) => gaps.iter().find_map(differs),
        Select::Levels(mask) => {
            let key = SipKey::new(&part.salt);
            (0..u64::from(part.n)).filter(|&seq| mask >> key.level(seq, levels).0 & 1 == 1).find_map(|seq| differs(Sequence(seq)))
        }
    }
}

fn with_part<T>(suspect: &Suspect, read: impl FnOnce(&Part<'_>) -> T) -> Option<T> {
    match Item::decode(&suspect.item) {
        Ok((Item::Part(part), _)) => Some(read(&part)),
        _ => None,
    }
}
