//! Runs the operations of the vectors (spec/README.md) with the product's code.

use std::collections::HashMap;
use std::sync::Arc;

use moteseal_core::cbor;
use moteseal_core::cose::{Sign1, Typ};
use moteseal_core::digest::Digest;
use moteseal_core::identity::Certificate;
use moteseal_core::record::Scheme;
use moteseal_core::record::{
    DeviceId, EpochNumber, Framing, GroupId, Level, Round, SealIndex, Sequence,
};
use moteseal_core::schema::Schema;
use moteseal_core::signature::{Algorithm, PublicKey};
use moteseal_lanes::Host;
use moteseal_seal::follow::Limits;
use moteseal_seal::level::{Counters, Salt, SaltKey};
use moteseal_seal::sample::choice::{EpochCounts, Rate, UniformSample, rate_levels};
use moteseal_seal::sample::epoch::{EpochError, WholeEpoch};
use moteseal_seal::sample::permutation::{self, Swap};
use moteseal_seal::stream::{Item, Select};
use moteseal_seal::tree::{self, path_root};
use moteseal_seal::{Authentic, History, Incomplete, Seal, Star, Statement, UrgentEvent, star};
use moteseal_verify::{
    Event, Explained, ReadError, Roster, SchemaEntry, StreamReader, Urgent, explain_run,
};
use serde_json::{Value, json};

use crate::{
    audit, broadcast, confidential, grant, health, link, policy, query, reading, receipt,
    receivers, roster, sampling, sanitised, schema, signed_time, sum, updates,
};
use moteseal_fixtures::world::{multiproof, path, root_of};

/// The result of an operation: its output, or the stable name of its error.
pub type Verdict = Result<Value, String>;

/// An error with a stable name of spec/errors.md.
pub trait NamedError {
    fn stable_name(&self) -> &str;
}

macro_rules! named {
    ($($error:ty),+ $(,)?) => {
        $(impl NamedError for $error {
            fn stable_name(&self) -> &str {
                self.name()
            }
        })+
    };
}

named!(
    moteseal_broadcast::BlockTooLarge,
    moteseal_broadcast::address::AddressError,
    moteseal_broadcast::DraftError,
    moteseal_broadcast::EvidenceError,
    moteseal_broadcast::HeadError,
    moteseal_broadcast::Untimely,
    moteseal_broadcast::NotInForce,
    moteseal_broadcast::SenderCertificateError,
    moteseal_broadcast::firmware::ImageTagError,
    moteseal_broadcast::SingleError,
    moteseal_grant::OpenError,
    moteseal_grant::OwnerError,
    moteseal_grant::OwnerFileError,
    moteseal_grant::ShareError,
    cbor::DecodeError,
    moteseal_core::confidential::CipherError,
    moteseal_core::confidential::KeyAccessError,
    moteseal_core::confidential::KeyEncodingError,
    moteseal_core::identity::CertificateError,
    moteseal_core::link::FrameError,
    moteseal_core::schema::SchemaError,
    moteseal_core::schema::RecordError,
    moteseal_core::schema::ValueError,
    moteseal_core::signature::KeyError,
    moteseal_core::signature::SignatureError,
    Incomplete,
    EpochError,
    moteseal_seal::UrgentError,
    moteseal_verify::reading::ReadingError,
    moteseal_verify::UrgentRefused,
    moteseal_verify::SanitisedError,
    moteseal_seal::sample::choice::ChoiceError,
    tree::PathError,
    moteseal_sum::guard::GuardError,
    moteseal_core::participation::ParticipationError,
    moteseal_sum::policy::NotPermitted,
    moteseal_sum::policy::PolicyError,
    moteseal_sum::query::AnswerError,
    moteseal_sum::sies::EncryptError,
    moteseal_sum::sies::OpenError,
    moteseal_sum::sies::PsrError,
);

/// Returns the stable name of an error.
pub fn name(error: impl NamedError) -> String {
    error.stable_name().to_owned()
}

pub fn hex_of(bytes: impl AsRef<[u8]>) -> String {
    hex::encode(bytes)
}

pub fn text<'v>(input: &'v Value, field: &str) -> &'v str {
    input[field].as_str().unwrap_or_else(|| panic!("{field} is not a string"))
}

pub fn bytes(input: &Value, field: &str) -> Vec<u8> {
    hex::decode(text(input, field)).unwrap()
}

pub fn fixed<const N: usize>(input: &Value, field: &str) -> [u8; N] {
    bytes(input, field).try_into().unwrap()
}

pub fn number<T: TryFrom<u64>>(input: &Value, field: &str) -> T {
    let value = input[field].as_u64().unwrap_or_else(|| panic!("{field} is not a number"));
    T::try_from(value).unwrap_or_else(|_| panic!("{field} is too large"))
}

pub fn list<'v>(input: &'v Value, field: &str) -> &'v [Value] {
    input[field].as_array().unwrap_or_else(|| panic!("{field} is not an array"))
}

pub fn hex_list(input: &Value, field: &str) -> Vec<Vec<u8>> {
    list(input, field).iter().map(|entry| hex::decode(entry.as_str().unwrap()).unwrap()).collect()
}

pub fn algorithm(input: &Value) -> Algorithm {
    Algorithm::from_name(text(input, "alg")).unwrap()
}

/// The inputs that the cases of a file share.
pub struct Shared {
    operator: Option<PublicKey>,
    roster: Option<Roster>,
    limits: Limits,
}

impl Shared {
    pub fn new(file: &Value) -> Self {
        let operator = file
            .get("operator")
            .map(|key| PublicKey::from_bytes(algorithm(key), &bytes(key, "key")).unwrap());
        let roster = file
            .get("roster")
            .map(|_| Roster::open(&bytes(file, "roster"), operator.as_ref().unwrap()).unwrap());
        let mut limits = Limits::default();
        if file.get("max_events").is_some() {
            limits.max_events = number(file, "max_events");
        }
        Self { operator, roster, limits }
    }

    fn operator(&self) -> &PublicKey {
        self.operator.as_ref().unwrap()
    }

    fn roster(&self) -> &Roster {
        self.roster.as_ref().unwrap()
    }

    /// Runs the operation with the name `op`.
    pub fn run(&self, op: &str, input: &Value) -> Verdict {
        match op {
            "cbor.item" => {
                cbor::check_item(&bytes(input, "bytes")).map(|()| json!({})).map_err(name)
            }
            "cose.object" => cose_object(input),
            "cose.verify" => cose_verify(input),
            "cose.key" => PublicKey::from_bytes(algorithm(input), &bytes(input, "key"))
                .map(|_| json!({}))
                .map_err(name),
            "cose.signature" => {
                let key =
                    PublicKey::from_bytes(algorithm(input), &bytes(input, "key")).map_err(name)?;
                key.verify(&bytes(input, "message"), &bytes(input, "signature"))
                    .map(|()| json!({}))
                    .map_err(name)
            }
            "cose.seal" => cose_seal(input),
            "certificate.open" => self.certificate(input),
            "roster.open" => roster::open(self.operator(), input),
            "roster.succeed" => roster::succeed(self.operator(), input),
            "schema.open" => schema::open(input),
            "confidential.keys" => confidential::keys(input),
            "confidential.cover" => confidential::cover(input),
            "confidential.open" => confidential::open(input),
            "confidential.decrypt" => confidential::decrypt(input),
            "schema.record" => schema::record(input),
            "level.level" => Ok(level_level(input)),
            "level.counters" => Ok(level_counters(input)),
            "level.salt" => Ok(level_salt(input)),
            "level.ids" => {
                let (group, device) = (text(input, "group"), text(input, "device"));
                Ok(
                    json!({ "group": GroupId::of(group).to_string(), "device": DeviceId::of(group, device).to_string() }),
                )
            }
            "star.seal" => Ok(star_seal(input)),
            "tree.root" => Ok(json!({ "root": root_of(&leaves(input)).to_string() })),
            "tree.path" => {
                let path = path(&leaves(input), number(input, "seq"));
                Ok(json!({ "path": path.iter().map(Digest::to_string).collect::<Vec<_>>() }))
            }
            "tree.multiproof" => Ok(tree_multiproof(input)),
            "tree.path_root" => {
                let path = hex_list(input, "path").concat();
                path_root(
                    Digest(fixed(input, "leaf")),
                    Sequence(number(input, "seq")),
                    number(input, "size"),
                    &path,
                )
                .map(|root| json!({ "root": root.to_string() }))
                .map_err(name)
            }
            "tree.receipt" => {
                let key = PublicKey::from_bytes(algorithm(input), &bytes(input, "key")).unwrap();
                receipt::verify(&bytes(input, "bytes"), &bytes(input, "record"), &key)
                    .map(|root| json!({ "root": hex_of(root) }))
                    .ok_or_else(|| "ReceiptRefused".to_owned())
            }
            "stream.read" => self.stream_read(input),
            "stream.explain" => self.stream_explain(input),
            "sanitised.read" => sanitised::read(self.roster(), self.limits, input),
            "urgent.open" => self.urgent(input),
            "reading.open" => reading::open(self.roster(), input),
            "choice.rate" => choice_rate(input),
            "choice.at_most" => Ok(choice_at_most(input)),
            "choice.answer" => self.choice_answer(input),
            "permutation.choose" => Ok(permutation_choose(input)),
            "word.announcement" => sampling::announcement(self.roster(), input),
            "word.manifest" => sampling::manifest(self.roster(), input),
            "stream.bundle" => sampling::bundle(self.roster(), self.limits, input),
            "answer.open" => sampling::answer(self.roster(), input),
            "proof.open" => sampling::proof(self.roster(), input),
            "audit.range" => audit::range(self.roster(), input),
            "link.secret" => Ok(link::secret(input)),
            "link.follow" => Ok(link::follow(input)),
            "link.up" => link::up(input),
            "link.down" => link::down(input),
            "link.refusal" => link::refusal(input),
            "link.event" => link::event(input),
            "link.event_answer" => link::event_answer(input),
            "link.health" => health::report(input),
            "link.health_session" => health::session(input),
            "health.record" => health::record(input),
            "health.row" => health::row(input),
            "grant.open" => grant::open(self.roster(), input),
            "grant.key" => grant::key(self.roster(), input),
            "owner.open" => grant::owner(input),
            "owner.forget" => grant::forget(input),
            "owner.share" => grant::share(input),
            "coordinator.offers" => Ok(sampling::offers(input)),
            "policy.open" => policy::open(input),
            "policy.permit" => policy::permit(input),
            "policy.charge" => policy::charge(input),
            "sum.mask" => Ok(policy::mask(input)),
            "sum.encrypt" => sum::encrypt(input),
            "sum.open" => sum::open(input),
            "sum.participants" => Ok(sum::participants(input)),
            "sum.participation" => sum::participation(input),
            "sum.up" => sum::up(input),
            "sum.explain" => sum::explain(input),
            "sum.refusal" => Ok(sum::refusal(input)),
            "sum.agenda" => sum::schedule(input),
            "time.challenge" => Ok(signed_time::challenge(input)),
            "time.open" => signed_time::open(input),
            "time.range" => signed_time::range(input),
            "update.part" => updates::part(input),
            "update.tag" => updates::tag(input),
            "cast.ids" => Ok(broadcast::ids(input)),
            "cast.request" => broadcast::request(input),
            "cast.certificate" => broadcast::certificate(input),
            "cast.revocation" => broadcast::revocation(input),
            "cast.chain" => broadcast::chain(input),
            "cast.head" => broadcast::head(input),
            "cast.timely" => broadcast::timely(input),
            "cast.take" => broadcast::take(input),
            "cast.frame" => broadcast::frame(input),
            "cast.receiver" => Ok(receivers::tags(input)),
            "cast.receipts" => receivers::receipts(input),
            "cast.address" => receivers::address(input),
            "cast.single" => broadcast::single(input),
            "cast.evidence" => broadcast::evidence(input),
            "query.parse" => query::parse(input),
            "query.plan" => query::plan(input),
            "query.contribution" => query::contribution(input),
            "query.answer" => query::answer(input),
            "query.noisy" => query::noisy(input),
            "query.fit" => query::fit(input),
            other => panic!("unknown operation {other}"),
        }
    }

    fn certificate(&self, input: &Value) -> Verdict {
        let bytes = bytes(input, "bytes");
        let certificate = Certificate::open(&bytes, self.operator()).map_err(name)?;
        Ok(json!({
            "group": certificate.group.to_string(),
            "device": certificate.device.to_string(),
            "serial": certificate.serial,
            "alg": certificate.algorithm.name(),
            "key": hex_of(certificate.key_bytes),
            "first_index": certificate.first_index.0,
            "digest": certificate.digest().to_string(),
        }))
    }

    fn urgent(&self, input: &Value) -> Verdict {
        let event_bytes = bytes(input, "bytes");
        if input.get("schema").is_some() {
            let schema = SchemaEntry::decode(&bytes(input, "schema")).map_err(name)?;
            let event =
                Urgent::open(&event_bytes, &Arc::new(schema), self.roster()).map_err(name)?;
            return Ok(json!({
                "device": event.device().to_string(),
                "index": event.index().0,
                "seq": event.seq().0,
                "record": hex_of(event.record()),
            }));
        }
        let mut scratch = vec![0; event_bytes.len() + 64];
        let event = UrgentEvent::open(&event_bytes, self.roster(), &mut scratch).map_err(name)?;
        Ok(json!({
            "device": event.device.to_string(),
            "index": event.index.0,
            "seq": event.seq.0,
            "record": hex_of(event.record),
        }))
    }

    fn known(input: &Value) -> HashMap<(DeviceId, SealIndex), Digest> {
        let entries = input.get("known").and_then(Value::as_array);
        let entry = |entry: &Value| {
            (
                (DeviceId(fixed(entry, "device")), SealIndex(number(entry, "index"))),
                Digest(fixed(entry, "digest")),
            )
        };
        entries.into_iter().flatten().map(entry).collect()
    }

    /// Reads a stream in one piece and again in several pieces. Panics if the results differ.
    fn read(&self, input: &Value, visit: &mut dyn FnMut(Event<'_>)) -> Result<(), String> {
        let bytes = bytes(input, "bytes");
        let known = Self::known(input);
        let read = |pieces: usize, visit: &mut dyn FnMut(Event<'_>)| -> Result<(), ReadError> {
            let known = known.clone();
            let mut reader = StreamReader::new(self.roster(), self.limits)
                .with_known(Box::new(move |device, index| known.get(&(device, index)).copied()));
            let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
                visit(event);
                Ok(())
            };
            for chunk in bytes.chunks(pieces.max(1)) {
                reader.feed(chunk, &mut visit)?;
            }
            reader.finish(&mut visit)
        };
        let whole = read(bytes.len(), visit);
        let in_pieces = read(7, &mut |_| {});
        assert_eq!(whole.is_ok(), in_pieces.is_ok());
        if let (Err(whole), Err(in_pieces)) = (&whole, &in_pieces) {
            assert_eq!((whole.name(), whole.item), (in_pieces.name(), in_pieces.item));
        }
        whole.map_err(|error| error.name().to_owned())
    }

    fn stream_read(&self, input: &Value) -> Verdict {
        let (mut parts, mut others) = (Vec::new(), Vec::new());
        self.read(input, &mut |event| match event {
            Event::Proven(proven) => {
                let mut rows = Vec::new();
                proven.sample.for_each(&moteseal_seal::engine::Scalar, |seq, level, record| {
                    rows.push(json!([seq.0, level.0, hex_of(record)]));
                });
                let statement = proven.seal.statement();
                parts.push(json!({
                    "index": statement.index.0,
                    "epoch": statement.epoch.0,
                    "root": proven.seal.root().to_string(),
                    "digest": proven.seal.digest().to_string(),
                    "counters": statement.counters.as_slice(),
                    "rows": rows,
                }));
            }
            Event::Proof(_) => others.push("proof"),
            Event::Explain(..) => others.push("explain"),
            Event::Manifest(..) => others.push("manifest"),
            Event::Sanitised(..) => others.push("sanitised"),
            Event::End => others.push("end"),
            Event::Problem(..) => others.push("problem"),
        })?;
        Ok(json!({ "parts": parts, "others": others }))
    }

    fn stream_explain(&self, input: &Value) -> Verdict {
        let run = bytes(input, "bytes");
        let mut explained = hex_list(input, "explained").into_iter();
        let mut next = |_, _| {
            let item = explained.next()?;
            let (Item::Explain { seal, digests }, _) = Item::decode(&item).unwrap() else {
                panic!("an explain item")
            };
            Some(Explained { seal: seal.to_vec(), digests: digests.to_vec() })
        };
        explain_run(self.roster(), self.limits, &run, &|_, _| None, &mut next)
            .map(|()| json!({}))
            .map_err(|finding| finding.finding.name().to_owned())
    }

    /// Checks one device's response as a client does: it must be complete, and every epoch must
    /// have the queried selection.
    fn choice_answer(&self, input: &Value) -> Verdict {
        let until = (!input["until"].is_null()).then(|| number::<u64>(input, "until"));
        // The check of an epoch needs all its parts, so a first pass collects the seals.
        let mut seals: Vec<Seal<Authentic>> = Vec::new();
        self.read(input, &mut |event| {
            if let Event::Proven(proven) = event {
                seals.push(proven.seal.clone());
            }
        })?;
        let device = DeviceId(fixed(input, "device"));
        let end = EpochNumber(until.unwrap_or(u64::MAX));
        let mut history = History::new(device, EpochNumber(number(input, "since")), end);
        let mut inside = 0;
        for seal in &seals {
            inside += usize::from(history.next(seal).map_err(name)?);
        }
        match history.finish() {
            Err(Incomplete::TailUnknown { .. }) if until.is_none() => {}
            finished => drop(finished.map_err(name)?),
        }
        let mut answer = Answer {
            seals: &seals,
            inside,
            choice: &input["choice"],
            checked: 0,
            rows: Vec::new(),
            refused: None,
        };
        let mut at = 0;
        self.read(input, &mut |event| {
            if let Event::Proven(proven) = event {
                answer.check_part(at, proven);
                at += 1;
            }
        })?;
        match answer.refused {
            Some(name) => Err(name),
            None => Ok(json!({ "seals": answer.checked, "rows": answer.rows })),
        }
    }
}

struct Answer<'c> {
    seals: &'c [Seal<Authentic>],
    /// The number of seals in the queried range.
    inside: usize,
    choice: &'c Value,
    checked: usize,
    rows: Vec<Value>,
    refused: Option<String>,
}

impl Answer<'_> {
    /// Checks the next part. The first part that differs from the query determines the error, but
    /// events after the queried range take precedence.
    fn check_part(&mut self, at: usize, proven: moteseal_verify::Proven<'_>) {
        let statement = proven.seal.statement();
        if at >= self.inside {
            if !matches!(proven.sample.select(), Select::Levels(0)) {
                self.refused = Some("NotAsAsked".to_owned());
            }
            return;
        }
        let in_epoch = |seal: &Seal<Authentic>| seal.statement().epoch == statement.epoch;
        let start = self.seals.iter().position(in_epoch).unwrap();
        let end =
            start + self.seals[start..self.inside].iter().take_while(|seal| in_epoch(seal)).count();
        let parts = &self.seals[start..end];
        let checked = if let Some(rate) = self.choice.get("rate") {
            let rate: Rate = rate.as_str().unwrap().parse().unwrap();
            // If any part of an epoch cannot be sampled at the rate, the whole epoch is rejected
            // with the error of the first such part.
            parts
                .iter()
                .try_for_each(|part| rate_levels(rate, part.statement()).map(|_| ()))
                .and_then(|()| UniformSample::by_rate(proven.sample, proven.seal, rate))
                .map_err(name)
        } else {
            let whole = match WholeEpoch::new(parts, self.seals.get(end)) {
                Ok(whole) => whole,
                Err(EpochError::TailUnknown) => return,
                Err(error) => {
                    self.refused.get_or_insert(name(error));
                    return;
                }
            };
            let (mut chosen, mut scratch) = (Vec::new(), Vec::new());
            let round = Round(self.choice.get("round").map_or(0, |_| number(self.choice, "round")));
            let forced = if self.choice.get("at_most").is_some() {
                Ok(whole.at_most_from(round, number(self.choice, "at_most")))
            } else {
                let count: u32 = number(self.choice, "count");
                chosen.resize(count as usize, 0);
                scratch.resize(permutation::scratch_for(count as usize), Swap::FREE);
                whole.draw(
                    &Host::detect(),
                    round,
                    (count, &fixed(self.choice, "seed")),
                    &mut chosen,
                    &mut scratch,
                )
            };
            forced
                .and_then(|forced| forced.parts().nth(at - start).unwrap().check(proven.sample))
                .map_err(name)
        };
        match checked {
            Ok(uniform) => {
                self.checked += 1;
                uniform.sample().for_each(&moteseal_seal::engine::Scalar, |seq, _, record| {
                    self.rows.push(json!([statement.index.0, seq.0, hex_of(record)]));
                });
            }
            Err(error) => drop(self.refused.get_or_insert(error)),
        }
    }
}

const TYPS: [Typ; 6] =
    [Typ::Seal, Typ::Event, Typ::Certificate, Typ::Roster, Typ::Round, Typ::Manifest];

fn cose_object(input: &Value) -> Verdict {
    let typ = TYPS.into_iter().find(|typ| typ.as_str() == text(input, "typ"));
    let bytes = bytes(input, "bytes");
    let object = Sign1::decode(&bytes, typ.unwrap()).map_err(name)?;
    Ok(json!({
        "alg": object.header.algorithm.name(),
        "vds": object.header.tree,
        "digest": object.digest().to_string(),
    }))
}

fn cose_verify(input: &Value) -> Verdict {
    let typ = TYPS.into_iter().find(|typ| typ.as_str() == text(input, "typ"));
    let bytes_ = bytes(input, "bytes");
    let object = Sign1::decode(&bytes_, typ.unwrap()).map_err(name)?;
    let key = PublicKey::from_bytes(algorithm(input), &bytes(input, "key")).map_err(name)?;
    if object.header.algorithm != key.algorithm() {
        return Err("AlgorithmMismatch".to_owned());
    }
    let mut scratch = vec![0; bytes_.len() + 64];
    key.verify(object.message(&mut scratch).unwrap(), object.signature).map_err(name)?;
    Ok(json!({ "digest": object.digest().to_string() }))
}

fn cose_seal(input: &Value) -> Verdict {
    let bytes = bytes(input, "bytes");
    let (seal, _) = Seal::decode(&bytes).map_err(name)?;
    Ok(json!({
        "digest": seal.digest().to_string(),
        "root": seal.root().to_string(),
        "scheme": seal.statement().scheme.number(),
        "counters": seal.statement().counters.as_slice(),
    }))
}

fn level_level(input: &Value) -> Value {
    let salt = Salt(fixed(input, "salt"));
    let level =
        |seq: &Value| salt.level(Sequence(seq.as_u64().unwrap()), number(input, "levels")).0;
    json!({ "levels": list(input, "seqs").iter().map(level).collect::<Vec<_>>() })
}

fn level_counters(input: &Value) -> Value {
    let counters =
        Counters::of(&Salt(fixed(input, "salt")), number(input, "levels"), number(input, "n"));
    json!({ "counters": counters.as_slice() })
}

fn level_salt(input: &Value) -> Value {
    let salt = SaltKey::new(fixed(input, "key"))
        .salt(DeviceId(fixed(input, "device")), SealIndex(number(input, "index")));
    json!({ "salt": hex_of(salt.0) })
}

fn star_seal(input: &Value) -> Value {
    let schema = bytes(input, "schema");
    let framing = Schema::decode(&schema)
        .unwrap()
        .record_size()
        .and_then(Framing::fixed)
        .unwrap_or(Framing::Prefixed);
    let (device, index, salt) = (
        DeviceId(fixed(input, "device")),
        SealIndex(number(input, "index")),
        Salt(fixed(input, "salt")),
    );
    let records = hex_list(input, "records");
    let levels: u8 = number(input, "levels");
    assert_eq!(levels, 8, "the vectors have 8 levels");
    let mut running = Star::<8>::new(device, index, &salt, framing);
    let mut blocks = vec![Vec::new(); usize::from(levels)];
    for record in &records {
        let level = running.push(record).unwrap();
        let block = &mut blocks[usize::from(level.0)];
        if framing == Framing::Prefixed {
            block.extend(u16::try_from(record.len()).unwrap().to_be_bytes());
        }
        block.extend(record);
    }
    let (counters, digests) = running.close();
    for (level, block) in (0..).zip(&blocks).filter(|(_, block)| !block.is_empty()) {
        assert_eq!(
            star::block_digest(device, index, Level(level), block),
            digests[usize::from(level)]
        );
    }
    json!({
        "counters": counters.as_slice(),
        "blocks": blocks.iter().map(hex_of).collect::<Vec<_>>(),
        "digests": digests.iter().map(Digest::to_string).collect::<Vec<_>>(),
        "root": star::root(&counters, &digests).to_string(),
    })
}

fn leaves(input: &Value) -> Vec<Digest> {
    hex_list(input, "records").iter().map(|record| tree::leaf(record)).collect()
}

fn tree_multiproof(input: &Value) -> Value {
    let leaves = leaves(input);
    let selected: Vec<u64> =
        list(input, "selected").iter().map(|seq| seq.as_u64().unwrap()).collect();
    let proof = multiproof(&leaves, &selected);
    let chosen = selected.iter().map(|&seq| (Sequence(seq), leaves[usize::try_from(seq).unwrap()]));
    let root = tree::multiproof_root(leaves.len() as u64, chosen, &proof).unwrap();
    assert_eq!(root, root_of(&leaves));
    json!({ "digests": proof.chunks(32).map(hex_of).collect::<Vec<_>>(), "root": root.to_string() })
}

fn choice_rate(input: &Value) -> Verdict {
    let refused = || "RateUnavailable".to_owned();
    let rate: Rate = text(input, "rate").parse().map_err(|_| refused())?;
    rate.levels(number(input, "levels")).map(|mask| json!({ "mask": mask })).ok_or_else(refused)
}

fn choice_at_most(input: &Value) -> Value {
    let parts = list(input, "parts");
    let counts = |value: &Value| {
        let numbers: Vec<u32> = value
            .as_array()
            .unwrap()
            .iter()
            .map(|count| count.as_u64().unwrap().try_into().unwrap())
            .collect();
        let mut counters = Counters::new(u8::try_from(numbers.len()).unwrap());
        counters.as_mut_slice().copy_from_slice(&numbers);
        counters
    };
    let levels = counts(&parts[0]["counters"]).levels();
    let mut epoch = EpochCounts::new(levels);
    for part in parts {
        let mut statement =
            Statement::new(Scheme::Star, GroupId([0; 8]), Digest::NULL, DeviceId([0; 8]), levels);
        statement.counters = counts(&part["counters"]);
        statement.own_round.0 = number(part, "own_round");
        statement.lost = Some(counts(&part["lost"])).filter(|lost| lost.levels() > 0);
        epoch.add(&statement);
    }
    json!({ "mask": epoch.at_most(number(input, "m")) })
}

fn permutation_choose(input: &Value) -> Value {
    let m: usize = number(input, "m");
    let (mut chosen, mut scratch) = (vec![0; m], vec![Swap::FREE; permutation::scratch_for(m)]);
    let (device, epoch) = (DeviceId(fixed(input, "device")), EpochNumber(number(input, "epoch")));
    let total = text(input, "total").parse().unwrap();
    let chosen =
        permutation::choose(&fixed(input, "seed"), device, epoch, total, &mut chosen, &mut scratch)
            .unwrap();
    json!({ "positions": chosen })
}
