//! A simulated device: its mote, its durable state, and what it sensed.

use std::collections::BTreeMap;

use moteseal_core::link::LinkKey;
use moteseal_core::record::{EpochNumber, Scheme};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::Schema;
use moteseal_core::signature::SecretKey;
use moteseal_core::{DeviceId, Digest};
use moteseal_device::ColumnKeys;
use moteseal_device::key_ring::KeyRing;
use moteseal_device::mote::{BUFFER, Mote, Received, SentBefore, Waiting};
use moteseal_device::seal::{Chain, Profile};
use moteseal_seal::device_session::DeviceSession;
use moteseal_seal::level::SaltKey;
use moteseal_verify::Roster;

use super::columns::{Columns, stream_secret};
use super::{GROUP_SECRET, NEXT_KEY, secret};

/// The sensed readings by the index of the seal that was open, with that seal's epoch.
pub(super) type Truth = BTreeMap<u32, (EpochNumber, Vec<[u8; 4]>)>;

/// The scheme and the columns of a device.
pub(super) type Kind = (Scheme, Columns);

/// A device with buffers of `N` bytes.
#[derive(Clone)]
pub(super) struct Device<const N: usize = BUFFER> {
    /// The device's number, which determines its keys.
    pub(super) number: u8,
    pub(super) id: DeviceId,
    scheme: Scheme,
    pub(super) columns: Columns,
    pub(super) mote: Option<Mote<SecretKey, N>>,
    /// The device's durable state: its chain, including the index of the open seal.
    pub(super) chain: Chain,
    /// The keys of the encrypted columns, which are a part of that state. Those of past epochs are erased.
    /// `None` before the first start, and if no column is encrypted.
    keys: Option<ColumnKeys>,
    pub(super) truth: Truth,
    /// A copy of the device's state at an earlier reboot.
    pub(super) copy: Option<(Chain, Vec<Waiting<N>>, Option<ColumnKeys>)>,
    /// What the device may have sent before its current session.
    pub(super) sent_before: Option<SentBefore>,
    /// The truth before the state was lost or copied back, and the next index of the state after
    /// that; `None` after the gateway has answered.
    pub(super) past: Option<(Truth, u32)>,
    pub(super) quiet: u64,
    pub(super) dead: bool,
}

fn name(number: u8) -> String {
    format!("mote-{number}")
}

impl<const N: usize> Device<N> {
    /// Returns the device with this number, which is off.
    pub(super) fn new(roster: &Roster, number: u8, (scheme, columns): Kind) -> Self {
        let id = roster.id(&name(number)).unwrap();
        Self {
            number,
            id,
            scheme,
            columns,
            mote: None,
            chain: Chain::start(roster.device(id).unwrap().certificate),
            keys: None,
            truth: BTreeMap::new(),
            copy: None,
            sent_before: None,
            past: None,
            quiet: 0,
            dead: false,
        }
    }

    /// Starts with the durable state. If the roster lists several keys of the device, the device has
    /// the first two. A device without keys of its encrypted columns gets them from its stream secret.
    pub(super) fn boot(&mut self, roster: &Roster, challenge: u64, waiting: Vec<Waiting<N>>) {
        let (bytes, name) = (self.columns.schema(), name(self.number));
        let schema = Schema::decode(&bytes).unwrap();
        if self.keys.is_none() {
            let secret = stream_secret(self.number);
            self.keys = ColumnKeys::new(&schema, &secret, secret.base()).unwrap();
        }
        let profile = match self.keys.clone() {
            Some(keys) => Profile::with_columns(roster, &name, self.scheme, &schema, keys),
            None => Profile::new(roster, &name, self.scheme, &schema),
        };
        let profile = profile.unwrap();
        let link = LinkKey::new(&LinkKey::secret_of(&GROUP_SECRET, roster.group(), self.id));
        let salt_key = SaltKey::new([self.number ^ 0x33; 32]);
        let session = DeviceSession::new(self.id, link, challenge);
        let keys = vec![secret(self.number), secret(self.number + NEXT_KEY)];
        let keys = KeyRing::new(keys, roster.device(self.id).unwrap()).unwrap();
        let mut mote = Mote::new(profile, keys, salt_key, session, self.chain, waiting, 3);
        if self.sent_before.is_some() {
            mote.set_sent_before(self.sent_before);
        }
        self.mote = Some(mote);
    }

    /// Stops the device. Returns the closed seals that it keeps.
    pub(super) fn stop(&mut self) -> Vec<Waiting<N>> {
        let mote = self.mote.take().unwrap();
        self.sent_before = mote.sent_before();
        self.keys = mote.profile().columns.as_deref().cloned();
        let (chain, waiting) = mote.into_parts();
        self.chain = chain;
        waiting
    }

    /// Copies the state of a device that is off, unless the state is not its newest.
    pub(super) fn back_up(&mut self, waiting: &[Waiting<N>]) {
        if self.past.is_none() {
            self.copy = Some((self.chain, waiting.to_vec(), self.keys.clone()));
        }
    }

    /// Replaces the state of a device that is off by the copy, or deletes it. Returns the closed
    /// seals that the device keeps.
    pub(super) fn roll_back(&mut self, deletes: bool, certificate: Digest) -> Vec<Waiting<N>> {
        let copy = self.copy.clone().filter(|_| !deletes);
        let (chain, waiting, keys) = copy.unwrap_or((Chain::start(certificate), Vec::new(), None));
        let mut past = std::mem::take(&mut self.truth);
        if let Some((before, _)) = self.past.take() {
            // The gateway has not answered since the previous loss. What was sensed in between was
            // never sent.
            past = before;
        }
        self.past = Some((past, chain.next_index.0));
        (self.chain, self.keys, self.sent_before) = (chain, keys, None);
        waiting
    }

    /// Adds a reading.
    pub(super) fn sense(&mut self, epoch: EpochNumber, reading: [u8; 4]) {
        let record = self.columns.record(reading);
        let mote = self.mote.as_mut().unwrap();
        if let Some(chain) = mote.would_open(epoch, &record) {
            // The device makes the index of a new seal durable before its first event.
            self.chain = Chain { next_index: chain.next_index, epoch: chain.epoch, ..mote.chain() };
        }
        mote.sense(epoch, &record).unwrap();
        self.chain = mote.chain();
        let index = self.chain.next_index.0 - 1;
        self.truth.entry(index).or_insert_with(|| (epoch, Vec::new())).1.push(reading);
    }

    /// Ends an epoch. A device that sensed nothing makes an empty seal.
    pub(super) fn end(&mut self, epoch: EpochNumber) {
        let mote = self.mote.as_mut().unwrap();
        let is_new = self.chain.position.last.is_none_or(|(_, last)| last < epoch);
        if is_new && mote.end(epoch).is_ok() {
            self.chain = mote.chain();
        }
    }

    /// Receives an acknowledgement. If the state was lost or copied back before, the first answer
    /// decides which readings may reach the cloud: those of the past, or those of the new state.
    /// Returns whether the gateway has more of the device than its state.
    pub(super) fn receive(&mut self, frame: &[u8]) -> bool {
        let Some(mote) = &mut self.mote else { return false };
        let received = mote.acknowledged(frame).unwrap();
        let begins = mote.has_begun();
        let is_ahead = if let Received::Ahead(rollback) = received {
            assert!(self.past.is_some(), "an intact state was taken for an old one: {rollback:?}");
            mote.continue_after(rollback.stored.as_ref(), rollback.next_index);
            self.chain = mote.chain();
            true
        } else {
            false
        };
        if begins && let Some((mut past, next_index)) = self.past.take() {
            if !is_ahead {
                // The gateway has nothing that the old state does not contain.
                past.retain(|index, _| *index < next_index);
                past.append(&mut self.truth);
                // A copy with later indices is of a history that the device does not continue. The
                // device uses these indices again, so that nothing may restore the copy
                // (docs/gateway.md, device.toml).
                self.copy.take_if(|(chain, ..)| chain.next_index.0 > next_index);
            }
            self.truth = past;
        }
        is_ahead
    }

    /// Ends the simulation of a device that has not heard from the gateway since its state was lost:
    /// the gateway has received nothing of the state after that.
    pub(super) fn settle(&mut self) {
        if let Some((past, _)) = self.past.take() {
            self.truth = past;
        }
    }
}
