//! How a node processes certificates and revocations. A base station's certificate makes its holder
//! a sender until the certificate expires or is revoked.

use crate::recovery::receive::refused;
use crate::recovery::*;
use crate::{NotInForce, Revocation, Revoked, SenderCertificate, SenderCertificateError};

/// The indices of the two kinds of candidates that wait for a check of a base station's signature.
const CERTIFICATES: usize = 0;
const REVOCATIONS: usize = 1;

impl<const SENDERS: usize, const CHAINS: usize, const B: usize> Node<'_, SENDERS, CHAINS, B> {
    /// Processes a certificate. `is_drawn` means that this candidate was drawn for a check and the
    /// token for the check is already taken.
    pub(super) fn receive_certificate<S: Store>(
        &mut self,
        now: Now,
        link: u8,
        bytes: &[u8],
        is_drawn: bool,
        store: &mut S,
    ) -> Result<Event, S::Error> {
        let Ok(claim) = SenderCertificate::peek(bytes) else {
            return Ok(refused(RefusedBroadcast::Malformed));
        };
        if claim.network != self.settings.network {
            return Ok(refused(RefusedBroadcast::WrongNetwork));
        }
        let Some(base) = self.base(claim.base) else {
            return Ok(refused(RefusedBroadcast::UnknownBaseStation));
        };
        if store.revoked(base)?.contains(claim.serial) {
            // The node that sent the revoked certificate may not have the revocation, so send the
            // revocation.
            self.plan_answer(Piece::Revocation(base), link, 0);
            return Ok(refused(RefusedBroadcast::Revoked));
        }
        let fingerprint = self.draws.fingerprint(bytes);
        if let Some(known) =
            self.sender(claim.sender, claim.key).and_then(|place| self.senders.get(place)?.as_ref())
        {
            if known.certificate == fingerprint {
                self.note_duplicate(Item::Certificate(claim.key), link);
                return Ok(Event::Nothing);
            }
            if known.base == base && claim.serial <= known.serial {
                return Ok(refused(RefusedBroadcast::Superseded));
            }
        }
        if self.refusals.has(fingerprint) {
            return Ok(refused(RefusedBroadcast::RefusedBefore));
        }
        if !(is_drawn || self.certificates.is_empty() && self.certificate_meter.take(self.clock)) {
            self.certificates.offer(bytes, link, CERTIFICATES, &mut self.draws);
            self.note_contention();
            return Ok(refused(RefusedBroadcast::Metered));
        }
        let event = self.certify(now, bytes, fingerprint, store)?;
        if let Event::Certified { key, .. } = event {
            self.pass_on(Piece::Certificate(key), link);
        }
        Ok(event)
    }

    /// Checks a certificate's signature and dates, and stores it.
    pub(super) fn certify<S: Store>(
        &mut self,
        now: Now,
        bytes: &[u8],
        fingerprint: u64,
        store: &mut S,
    ) -> Result<Event, S::Error> {
        self.checks.certificates = self.checks.certificates.saturating_add(1);
        let opened = SenderCertificate::open_any(bytes, self.settings.network, self.base_keys());
        let (certificate, base) = match opened {
            Ok(opened) => opened,
            Err(error) => return Ok(refused(self.refuse_certificate(error, fingerprint))),
        };
        self.enroll(
            now,
            &certificate,
            u8::try_from(base).unwrap_or(u8::MAX),
            (bytes, fingerprint),
            store,
        )
    }

    /// Stores a certificate whose signature was checked, if it is currently valid.
    pub(super) fn enroll<S: Store>(
        &mut self,
        now: Now,
        certificate: &SenderCertificate<'_>,
        base: u8,
        (bytes, fingerprint): (&[u8], u64),
        store: &mut S,
    ) -> Result<Event, S::Error> {
        let Ok(key) = certificate.key() else { return Ok(refused(RefusedBroadcast::Malformed)) };
        if let Err(error) = certificate.check(now.unix, &store.revoked(base)?) {
            return Ok(refused(not_in_force(error)));
        }
        let (id, key_id) = (certificate.sender, KeyId::of(&key));
        let Some(place) = self.sender_place(id, key_id) else {
            return Ok(refused(RefusedBroadcast::NoRoom));
        };
        store.keep(Item::Certificate(key_id), bytes)?;
        let floor = store.floor(key_id)?;
        let (order, next) = (self.next_order(), self.next_chain(id, key_id, floor));
        let sender = Sender {
            id,
            key_id,
            key,
            base,
            serial: certificate.serial,
            not_before: certificate.not_before,
            not_after: certificate.not_after,
            certificate: fingerprint,
            floor,
            next,
            order,
            head_due: u64::MAX,
        };
        if let Some(place) = self.senders.get_mut(place) {
            *place = Some(sender);
        }
        Ok(Event::Certified { sender: id, key: key_id })
    }

    fn refuse_certificate(
        &mut self,
        error: SenderCertificateError,
        fingerprint: u64,
    ) -> RefusedBroadcast {
        match error {
            SenderCertificateError::Decode(_) => RefusedBroadcast::Malformed,
            SenderCertificateError::WrongNetwork => RefusedBroadcast::WrongNetwork,
            SenderCertificateError::UnknownBaseStation => RefusedBroadcast::UnknownBaseStation,
            _ => {
                self.refusals.add(fingerprint);
                RefusedBroadcast::NotAuthentic
            }
        }
    }

    /// Returns the slot for a sender's certificate: the slot that the sender already has, a free
    /// slot, or the slot of another sender. In the last case it is the slot of the earliest added
    /// sender without a chain at this node. The old chains of the replaced sender cannot be
    /// accepted again, because its highest chain number is in the store.
    fn sender_place(&self, id: DeviceId, key: KeyId) -> Option<usize> {
        let free = || self.senders.iter().position(Option::is_none);
        let has_chains =
            |key: KeyId| self.chains.iter().flatten().any(|tracked| tracked.outline.key == key);
        let idle = || {
            let known = self
                .senders
                .iter()
                .enumerate()
                .filter_map(|(place, sender)| Some((place, sender.as_ref()?)));
            known
                .filter(|(_, sender)| !has_chains(sender.key_id))
                .min_by_key(|(_, sender)| sender.order)
                .map(|(place, _)| place)
        };
        self.sender(id, key).or_else(free).or_else(idle)
    }

    pub(super) fn next_chain(
        &self,
        sender: DeviceId,
        key: KeyId,
        floor: Option<ChainNumber>,
    ) -> ChainRef {
        let number = ChainNumber(floor.map_or(1, |floor| floor.0.saturating_add(1)));
        ChainId { network: self.settings.network, sender, number }.reference(key)
    }

    /// Processes a revocation. `is_drawn` means that this candidate was drawn for a check and the
    /// token for the check is already taken.
    pub(super) fn receive_revocation<S: Store>(
        &mut self,
        link: u8,
        bytes: &[u8],
        is_drawn: bool,
        store: &mut S,
    ) -> Result<Event, S::Error> {
        let Ok((base, claimed)) = Revocation::peek(bytes) else {
            return Ok(refused(RefusedBroadcast::Malformed));
        };
        let Some(base) = self.base(base) else {
            return Ok(refused(RefusedBroadcast::UnknownBaseStation));
        };
        let known = store.revoked(base)?;
        if claimed == known || !claimed.covers(&known) {
            if claimed == known && store.is_kept(Item::Revocation(base), bytes)? {
                self.note_duplicate(Item::Revocation(base), link);
                return Ok(Event::Nothing);
            }
            return Ok(refused(RefusedBroadcast::Superseded));
        }
        let fingerprint = self.draws.fingerprint(bytes);
        if self.refusals.has(fingerprint) {
            return Ok(refused(RefusedBroadcast::RefusedBefore));
        }
        if !(is_drawn || self.certificates.is_empty() && self.certificate_meter.take(self.clock)) {
            self.certificates.offer(bytes, link, REVOCATIONS, &mut self.draws);
            self.note_contention();
            return Ok(refused(RefusedBroadcast::Metered));
        }
        self.checks.certificates = self.checks.certificates.saturating_add(1);
        if let Err(error) = Revocation::open(bytes, self.settings.network, self.base_keys()) {
            return Ok(refused(self.refuse_certificate(error, fingerprint)));
        }
        store.keep(Item::Revocation(base), bytes)?;
        store.revoke(base, &claimed)?;
        self.drop_revoked(base, &claimed, store)?;
        self.pass_on(Piece::Revocation(base), link);
        Ok(Event::Revoked { base })
    }

    /// Drops the senders and chains under certificates that a base station has revoked.
    fn drop_revoked<S: Store>(
        &mut self,
        base: u8,
        revoked: &Revoked,
        store: &mut S,
    ) -> Result<(), S::Error> {
        let is_void = |of: u8, serial: u64| of == base && revoked.contains(serial);
        for place in &mut self.senders {
            if let Some(sender) = place.take_if(|sender| is_void(sender.base, sender.serial)) {
                self.relays.drop_if(|planned| planned.piece == Piece::Certificate(sender.key_id));
            }
        }
        for slot in 0..CHAINS {
            if self.chains.get(slot).is_some_and(|tracked| {
                tracked.as_ref().is_some_and(|of| is_void(of.base, of.serial))
            }) {
                self.vacate(slot, store)?;
            }
        }
        Ok(())
    }

    /// Returns a base station's index.
    fn base(&self, id: KeyId) -> Option<u8> {
        let place = self.bases.iter().position(|base| *base == Some(id))?;
        u8::try_from(place).ok()
    }

    pub(super) fn base_keys(&self) -> &[PublicKey] {
        self.settings.bases.get(..MAX_BASES).unwrap_or(self.settings.bases)
    }
}

const fn not_in_force(error: NotInForce) -> RefusedBroadcast {
    match error {
        NotInForce::NotYetValid => RefusedBroadcast::NotYetValid,
        NotInForce::Expired => RefusedBroadcast::Expired,
        NotInForce::Revoked => RefusedBroadcast::Revoked,
    }
}
