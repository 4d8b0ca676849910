//! The demo's devices, with their keys, roster and seals. Each mote has two devices, one that seals
//! with stars and one that seals with trees, so that one cloud stores both.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use moteseal_core::identity::{MAX_PEM, encode_public_pem, encode_secret_pem};
use moteseal_core::record::DeviceId;
use moteseal_core::record::Scheme;
use moteseal_core::schema::Schema;
use moteseal_core::signature::{PublicKey, SecretKey, Signer};
use moteseal_device::outbox::default_state_path;
use moteseal_device::{Batch, Bundle, Chain, Outbox, Profile, Sealer, chain_state};
use moteseal_seal::level::SaltKey;
use moteseal_verify::issue::FirstRoster;
use moteseal_verify::{Calendar, Roster};
use zeroize::Zeroizing;

use crate::readings::{EPOCH_MS, Mote};
use crate::{internal, random};
use moteseal_terminal::failure::Failure;
use moteseal_terminal::progress::bar;

/// The number of levels of the group.
pub(crate) const LEVELS: u8 = 16;
const GROUP: &str = "telosb";

/// The devices, their seals, and the folder of their bundles.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub roster: Roster,
    pub keys: BTreeMap<DeviceId, SecretKey>,
    pub stars: Sealing,
    pub trees: Sealing,
    /// The folder of the bundles.
    pub bundles: PathBuf,
}

/// The result of sealing all readings with one scheme.
#[derive(Debug)]
pub(crate) struct Sealing {
    pub scheme: Scheme,
    pub devices: Vec<DeviceId>,
    pub bundles: Vec<Bundle>,
    pub events: u64,
    pub time: Duration,
}

impl Sealing {
    /// Returns the bytes that the devices upload in addition to the events.
    pub(crate) fn overhead(&self) -> usize {
        self.bundles.iter().map(Bundle::uplink_overhead).sum()
    }

    /// Returns the time per event in nanoseconds, including signatures.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn ns_per_event(&self) -> f64 {
        self.time.as_nanos() as f64 / self.events.max(1) as f64
    }
}

/// Creates keys and a roster in `home`, and seals all readings into `home/bundles`.
pub(crate) fn build(home: &Path, motes: &[Mote]) -> Result<Fleet, Failure> {
    let operator = keys(&home.join("keys"), "op")?.0;
    let mut devices = Vec::new();
    for mote in motes {
        for name in [mote.name.to_owned(), tree_name(mote.name)] {
            let (secret, salt) = keys(&home.join("keys"), &name)?;
            devices.push((name, secret, salt));
        }
    }
    let public: Vec<(&str, PublicKey)> =
        devices.iter().map(|(name, secret, _)| (name.as_str(), secret.public())).collect();
    let issued = FirstRoster {
        group: GROUP,
        epoch_ms: EPOCH_MS,
        levels: LEVELS,
        budget: None,
        devices: &public,
    };
    let issued = issued.issue(&operator).map_err(internal)?;
    create(&home.join("roster.cbor"), &issued, 0o644)?;
    let roster = Roster::open(&issued, &operator.public()).map_err(internal)?;

    let bundles = home.join("bundles");
    let total: u64 = motes.iter().map(|mote| mote.recording.len() as u64).sum();
    let progress = bar(2 * total, "sealing");
    let seal = |scheme: Scheme| -> Result<Sealing, Failure> {
        let mut sealing = Sealing {
            scheme,
            devices: Vec::new(),
            bundles: Vec::new(),
            events: 0,
            time: Duration::ZERO,
        };
        for mote in motes {
            let name =
                if scheme == Scheme::Star { mote.name.to_owned() } else { tree_name(mote.name) };
            let (_, secret, salt) = devices
                .iter()
                .find(|(of, ..)| *of == name)
                .ok_or_else(|| internal("a mote has no keys"))?;
            let schema = Schema::decode(&mote.recording.schema).map_err(internal)?;
            let profile = Profile::new(&roster, &name, scheme, &schema).map_err(internal)?;
            let device = profile.device;
            let state =
                default_state_path(&home.join("keys").join(format!("{name}.key.pem")), device)
                    .map_err(internal)?;
            chain_state::begin(&state, device, &Chain::start(profile.certificate))
                .map_err(internal)?;
            let (outbox, chain) =
                Outbox::open(&bundles, &state, &roster, device).map_err(internal)?;
            let mut sealer = Sealer::new(profile, secret.clone(), SaltKey::new(**salt), chain);
            let calendar = Calendar::constant(EPOCH_MS);
            let batch = Batch { calendar, new_only: false, keep_open: false };
            let start = Instant::now();
            let sealed = batch.seal(&mote.recording, &mut sealer, &mut |_| {}).map_err(internal)?;
            sealing.time += start.elapsed();
            outbox.store(&sealed.bundles, &mut |_| {}).map_err(internal)?;
            sealing.events += sealed.bundles.iter().map(Bundle::events).sum::<u64>();
            sealing.bundles.extend(sealed.bundles);
            sealing.devices.push(device);
            progress.inc(mote.recording.len() as u64);
        }
        Ok(sealing)
    };
    let (stars, trees) = (seal(Scheme::Star)?, seal(Scheme::Tree)?);
    progress.finish_and_clear();
    let keys = devices
        .into_iter()
        .filter_map(|(name, secret, _)| Some((roster.id(&name)?, secret)))
        .collect();
    Ok(Fleet { keys, stars, trees, bundles, roster })
}

/// Returns the name of the device that seals a mote's readings with trees.
pub(crate) fn tree_name(mote: &str) -> String {
    format!("{mote}-tree")
}

/// Creates a key pair and a salt key, as `moteseal key new` does.
fn keys(folder: &Path, name: &str) -> Result<(SecretKey, Zeroizing<[u8; 32]>), Failure> {
    let secret = random::signing_key()?;
    let salt = random::bytes()?;
    let path = |suffix: &str| folder.join(format!("{name}.{suffix}"));
    let mut pem = Zeroizing::new([0; MAX_PEM]);
    create(
        &path("key.pem"),
        encode_secret_pem(&secret, &mut *pem).map_err(internal)?.as_bytes(),
        0o600,
    )?;
    let mut pem = [0; MAX_PEM];
    create(
        &path("pub.pem"),
        encode_public_pem(&secret.public(), &mut pem).map_err(internal)?.as_bytes(),
        0o644,
    )?;
    if name != "op" {
        let text = Zeroizing::new(hex::encode(*salt) + "\n");
        create(&path("salt.key"), text.as_bytes(), 0o600)?;
    }
    Ok((secret, salt))
}

/// Writes a new file with the permissions `mode`.
fn create(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    let fail = |error| Failure::file("write", path, &error);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(fail)?;
    }
    let mut file =
        fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(fail)?;
    file.write_all(bytes).map_err(fail)
}

/// Signs a message with a device's key. The lying cloud calls this to simulate a device that
/// colludes with it.
pub(crate) fn sign(
    keys: &BTreeMap<DeviceId, SecretKey>,
    device: DeviceId,
    message: &[u8],
) -> Option<Vec<u8>> {
    let key = keys.get(&device)?;
    let mut signature = vec![0; key.public().algorithm().signature_length()];
    let length = key.sign(message, &mut signature).ok()?;
    signature.truncate(length);
    Some(signature)
}
