//! The fourth part of the demonstration of seals: confidential readings. Two motes encrypt both
//! columns. Two readers with different grants see different columns of one verified answer, and the
//! cloud's file is searched for the readings. Then grants are abused.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use moteseal_api::Query;
use moteseal_client::output::OutputError;
use moteseal_client::proof::verify_with_keys;
use moteseal_client::{Report, Rows, Sink};
use moteseal_core::confidential::StreamSecret;
use moteseal_core::record::{DeviceId, EpochNumber, Scheme};
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::SecretKey;
use moteseal_device::push::Push;
use moteseal_device::{Batch, Chain, Outbox, Profile, Sealer, chain_state};
use moteseal_grant::{GrantRequest, Identity, OpenGrant, Owner, Recipients, Unlock, encrypt};
use moteseal_net::Client;
use moteseal_seal::level::SaltKey;
use moteseal_seal::sample::{Choice, Rate};
use moteseal_terminal::failure::Failure;
use moteseal_verify::issue::{FirstRoster, NextRoster};
use moteseal_verify::{Calendar, Roster};

use crate::fleet::LEVELS;
use crate::readings::{COLUMNS, EPOCH_MS, Mote};
use crate::{internal, random};

const GROUP: &str = "home";
const OWNER: &str = "alice";
/// The columns of the readings, by name.
const NAMES: [&str; 2] = ["temperature", "humidity"];

/// What happened in this part of the demonstration.
#[derive(Debug)]
pub(crate) struct Confidential {
    pub(crate) readings: u64,
    /// The report on the answer, which all readers verified.
    pub(crate) report: Report,
    /// The length of the answer in bytes.
    pub(crate) answer_bytes: u64,
    pub(crate) readers: Vec<Reader>,
    /// The number of pairs of consecutive readings that were searched for, and how many of them are in
    /// plaintext in the cloud's file, and in the file of the cloud of the first part, whose readings are
    /// not encrypted.
    pub(crate) searched: usize,
    pub(crate) found: usize,
    pub(crate) found_without: usize,
    /// The attacks: what was tried, and the error, or `None` if it succeeded.
    pub(crate) attacks: Vec<(&'static str, Option<&'static str>)>,
}

impl Confidential {
    pub(crate) fn uncaught(&self) -> usize {
        let attacks = self.attacks.iter().filter(|(_, refused)| refused.is_none()).count();
        attacks + usize::from(self.found > 0)
    }
}

/// What one reader saw.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) name: &'static str,
    pub(crate) grant: &'static str,
    /// The number of values of each column that the reader could read. Each is what the mote measured.
    pub(crate) seen: [u64; 2],
}

/// A mote of this part, with what it measured.
struct Device<'m> {
    mote: &'m Mote,
    id: DeviceId,
    key: SecretKey,
    secret: StreamSecret,
    scheme: Scheme,
}

/// The roster, the motes and their owner. [`play`] continues with them.
pub(crate) struct Start<'m> {
    pub(crate) roster: Roster,
    owner: Owner,
    devices: Vec<Device<'m>>,
    ids: Vec<DeviceId>,
    /// The encoded schema of the encrypted columns.
    schema: Vec<u8>,
    /// The first epoch, and the last one.
    epochs: (EpochNumber, EpochNumber),
}

/// Makes the keys of the first two motes and of their owner.
pub(crate) fn start(motes: &[Mote]) -> Result<Start<'_>, Failure> {
    let operator = random::signing_key()?;
    let names = motes.iter().map(|mote| mote.name);
    let keys: Vec<(&str, SecretKey)> = names
        .take(2)
        .map(|name| Ok((name, random::signing_key()?)))
        .collect::<Result<_, Failure>>()?;
    let public: Vec<_> = keys.iter().map(|(name, key)| (*name, key.public())).collect();
    let first = FirstRoster {
        group: GROUP,
        epoch_ms: EPOCH_MS,
        levels: LEVELS,
        budget: None,
        devices: &public,
    };
    let first = first.issue(&operator).map_err(internal)?;
    let owner_key = random::signing_key()?;
    let operator_key = operator.public();
    let mut next = NextRoster::after(&first, &operator, &operator_key).map_err(internal)?;
    next.set_owner(OWNER, &owner_key.public()).map_err(internal)?;
    let roster = Roster::open(&next.issue().map_err(internal)?, &operator_key).map_err(internal)?;

    let texts = COLUMNS.map(|column| format!("{column}!"));
    let fields: Vec<Field<'_>> =
        texts.iter().map(|text| Field::parse(text)).collect::<Result<_, _>>().map_err(internal)?;
    let mut buffer = [0; MAX_SCHEMA];
    let schema = Schema::encode(&fields, &mut buffer).map_err(internal)?;
    let columns: Vec<_> =
        schema.encrypted_columns().map(|(field, column)| (column, field.name)).collect();

    let times = motes.iter().take(2).flat_map(|mote| mote.recording.iter());
    let epochs = times.map(|(unix_ms, _)| unix_ms / EPOCH_MS);
    let (first, last) =
        epochs.fold((u64::MAX, 0), |(first, last), epoch| (first.min(epoch), last.max(epoch)));
    let mut owner = Owner::new(GROUP, OWNER, owner_key).map_err(internal)?;
    let mut devices = Vec::new();
    for ((name, key), scheme) in keys.into_iter().zip([Scheme::Star, Scheme::Tree]) {
        let mote = motes.iter().find(|mote| mote.name == name);
        let mote = mote.ok_or_else(|| internal("a mote has no readings"))?;
        let id = DeviceId::of(GROUP, name);
        let secret = StreamSecret::new(*random::bytes()?, EpochNumber(first));
        owner.add(id, secret.clone(), &columns).map_err(internal)?;
        devices.push(Device { mote, id, key, secret, scheme });
    }
    let (ids, schema) =
        (devices.iter().map(|device| device.id).collect(), schema.as_bytes().to_vec());
    let epochs = (EpochNumber(first), EpochNumber(last));
    Ok(Start { roster, owner, devices, ids, schema, epochs })
}

/// Seals, pushes and queries. Returns what each reader saw, and the path of the answer.
pub(crate) async fn play(
    home: &Path,
    start: &Start<'_>,
    cloud: &Client,
) -> Result<(Vec<Reader>, Report, PathBuf), Failure> {
    let home = home.join("confidential");
    fs::create_dir_all(&home).map_err(|error| Failure::file("create", &home, &error))?;
    let schema = Schema::decode(&start.schema).map_err(internal)?;
    for device in &start.devices {
        start.seal(&home, device, &schema)?;
    }
    let push = Push::open(&home.join("bundles")).map_err(internal)?;
    push.to(cloud, &mut |_| {}).await.map_err(internal)?;

    // One answer, which a reader without keys has fetched and verified.
    let proof = home.join("answer.mproof");
    let mut nobody = Eyes::new(start);
    let query = Query {
        devices: start.ids.clone(),
        since: start.epochs.0,
        until: None,
        choice: Choice::Rate(Rate::ALL),
        columns: Vec::new(),
    };
    let request = moteseal_client::Client::new(cloud, &start.roster).query(&query);
    let verified = request.proof(&proof).run(&mut nobody).await.map_err(internal)?;
    let report = verified.keep().map_err(internal)?;
    let mut readers = vec![nobody.reader("the cloud", "no grant")?];

    let (first, last) = start.epochs;
    let half = EpochNumber(first.0 + (last.0 - first.0) / 2);
    for (name, grant, column, end) in [
        ("a plumber", "temperature, all day", NAMES[0], last),
        ("a gardener", "humidity, half of the day", NAMES[1], half),
    ] {
        let reader = Identity::generate();
        let recipients = Recipients::Keys(vec![reader.recipient().clone()]);
        let file = start.owner.grant(
            &start.request(&[column], (first, end), &recipients),
            &start.roster,
            true,
        );
        let unlock = Unlock::Identities(vec![reader]);
        let grant_file = file.map_err(internal)?;
        let opened = OpenGrant::open(&grant_file, &unlock, &start.roster, 0).map_err(internal)?;
        let (mut eyes, mut keys) = (Eyes::new(start), opened.keys());
        let answer = File::open(&proof).map_err(|error| Failure::file("read", &proof, &error))?;
        verify_with_keys(answer, &proof, &start.roster, None, &mut keys, &mut eyes)
            .map_err(internal)?;
        readers.push(eyes.reader(name, grant)?);
    }
    Ok((readers, report, proof))
}

/// Searches the files of two clouds, which do not run any more, and abuses grants. `store` is the file of
/// the cloud, and `plain` that of a cloud with the same readings in plaintext.
pub(crate) fn finish(
    start: &Start<'_>,
    (readers, report, proof): (Vec<Reader>, Report, PathBuf),
    (store, plain): (&Path, &Path),
) -> Result<Confidential, Failure> {
    let pairs = start.pairs();
    let found = |path: &Path| {
        let bytes = fs::read(path).map_err(|error| Failure::file("read", path, &error))?;
        let found: HashSet<&[u8]> = bytes.windows(8).filter(|at| pairs.contains(*at)).collect();
        Ok::<_, Failure>(found.len())
    };
    let (found, found_without) = (found(store)?, found(plain)?);
    if found_without == 0 {
        return Err(internal("the search does not find readings that are not encrypted"));
    }
    let readings = start.devices.iter().map(|device| device.mote.recording.len() as u64).sum();
    let answer_bytes = fs::metadata(&proof).map_or(0, |file| file.len());
    let (attacks, searched) = (start.attacks()?, pairs.len());
    Ok(Confidential {
        readings,
        report,
        answer_bytes,
        readers,
        searched,
        found,
        found_without,
        attacks,
    })
}

impl Start<'_> {
    fn request<'a>(
        &'a self,
        columns: &'a [&'a str],
        (first, last): (EpochNumber, EpochNumber),
        recipients: &'a Recipients,
    ) -> GrantRequest<'a> {
        GrantRequest {
            devices: &self.ids,
            columns: Some(columns),
            epochs: first..=last,
            recipients,
            not_after_ms: None,
            purpose: "demonstration",
        }
    }

    /// Seals all readings of a mote into the folder of bundles.
    fn seal(&self, home: &Path, device: &Device<'_>, schema: &Schema<'_>) -> Result<(), Failure> {
        let name = device.mote.name;
        let listed = self.roster.device(device.id);
        let listed = listed.ok_or_else(|| internal("the roster lacks a mote"))?;
        let state = home.join(format!("{name}.chain"));
        let chain = Chain::start(listed.certificate);
        chain_state::begin(&state, device.id, &chain).map_err(internal)?;
        let (outbox, chain) = Outbox::open(&home.join("bundles"), &state, &self.roster, device.id)
            .map_err(internal)?;
        let keys = outbox.column_keys(schema, Some(&device.secret)).map_err(internal)?;
        let keys = keys.ok_or_else(|| internal("no column is encrypted"))?;
        let profile = Profile::with_columns(&self.roster, name, device.scheme, schema, keys);
        let salt = SaltKey::new(*random::bytes()?);
        let mut sealer = Sealer::new(profile.map_err(internal)?, device.key.clone(), salt, chain);
        let calendar = Calendar::constant(EPOCH_MS);
        let batch = Batch { calendar, new_only: false, keep_open: false };
        let sealed = batch.seal(&device.mote.recording, &mut sealer, &mut |_| {});
        outbox.store(&sealed.map_err(internal)?.bundles, &mut |_| {}).map(drop).map_err(internal)
    }

    /// Returns all pairs of consecutive readings in plaintext. A store without encryption has the
    /// readings of a block one after the other, so many pairs of a mote with stars are in its file.
    fn pairs(&self) -> HashSet<Vec<u8>> {
        let mut pairs = HashSet::new();
        for device in &self.devices {
            let records: Vec<&[u8]> =
                device.mote.recording.iter().map(|(_, record)| record).collect();
            pairs.extend(records.windows(2).map(|pair| pair.concat()));
        }
        pairs
    }

    /// Abuses grants.
    fn attacks(&self) -> Result<Vec<(&'static str, Option<&'static str>)>, Failure> {
        let (reader, thief) = (Identity::generate(), Identity::generate());
        let recipients = Recipients::Keys(vec![reader.recipient().clone()]);
        let request = self.request(&NAMES[..1], self.epochs, &recipients);
        let file = self.owner.grant(&request, &self.roster, false).map_err(internal)?;
        let signed = self.owner.sign_grant(&request, &self.roster).map_err(internal)?;
        let to_thief = Recipients::Keys(vec![thief.recipient().clone()]);
        let thief = Unlock::Identities(vec![thief]);
        let open = |file: &[u8]| {
            OpenGrant::open(file, &thief, &self.roster, 0).err().map(|error| error.name())
        };
        let passed_on = encrypt(&signed, &to_thief, false).map_err(internal)?;
        let mut altered = signed.to_vec();
        let middle = altered.len() / 2;
        altered[middle] ^= 1;
        let forged = encrypt(&altered, &to_thief, false).map_err(internal)?;
        Ok(vec![
            ("a stolen grant", open(&file)),
            ("a grant that its reader encrypts for somebody else", open(&passed_on)),
            ("a grant with an altered key", open(&forged)),
        ])
    }
}

/// Compares every value that a reader can read with what the mote measured.
struct Eyes<'s> {
    /// What each mote measured, in the order of time, and the next reading.
    measured: BTreeMap<DeviceId, (Vec<&'s [u8]>, usize)>,
    seen: [u64; 2],
    wrong: u64,
}

impl<'s> Eyes<'s> {
    fn new(start: &'s Start<'_>) -> Self {
        let measured = |device: &'s Device<'_>| {
            let records = device.mote.recording.iter().map(|(_, record)| record);
            (device.id, (records.collect(), 0))
        };
        Self { measured: start.devices.iter().map(measured).collect(), seen: [0; 2], wrong: 0 }
    }

    fn reader(&self, name: &'static str, grant: &'static str) -> Result<Reader, Failure> {
        let is_whole = self.measured.values().all(|(records, next)| *next == records.len());
        if self.wrong > 0 || !is_whole {
            return Err(internal(
                "HONEST DATA WAS DECRYPTED WRONGLY: this is a fault of Moteseal; please report it",
            ));
        }
        Ok(Reader { name, grant, seen: self.seen })
    }
}

impl Sink for Eyes<'_> {
    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        let columns: Vec<_> = rows.columns().collect();
        let Some((measured, next)) = self.measured.get_mut(&rows.device()) else { return Ok(()) };
        let (seen, wrong) = (&mut self.seen, &mut self.wrong);
        rows.for_each(|_, _, record| {
            let plain = measured.get(*next).copied().unwrap_or_default();
            *next += 1;
            for (column, seen) in columns.iter().zip(seen.iter_mut()) {
                let Ok(readable) = column.readable() else { continue };
                let expected = column.field().in_plaintext().read(plain);
                let is_right = expected.is_ok() && expected == readable.read(record);
                *seen += u64::from(is_right);
                *wrong += u64::from(!is_right);
            }
        });
        Ok(())
    }
}
