//! Base stations, senders and their chains for simulations. Keys are derived from seeds.

use moteseal_broadcast::firmware::{FirmwareDraft, UPDATE_PART, image_tag};
use moteseal_broadcast::{
    BuildError, ChainDraft, ChainId, ChainNumber, ChainRef, DraftError, KeyId, Kind, MAX_HEAD,
    MAX_LEAF, MAX_REVOCATION, MAX_SENDER_CERTIFICATE, OutgoingChain, Outline, RevocationDraft,
    Revoked, SenderCertificateDraft, Window, sender_named,
};
use moteseal_core::identity::IssueError;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, KeyError, PublicKey, SecretKey};
use moteseal_core::{DeviceId, Digest};

/// A base station and its network.
pub struct Authority {
    key: SecretKey,
    /// The base station's public key.
    pub public: PublicKey,
    /// The network.
    pub network: NetworkId,
}

/// A sender with its certificate.
pub struct CertifiedSender {
    key: SecretKey,
    /// The sender's id.
    pub id: DeviceId,
    network: NetworkId,
    /// The sender's certificate.
    pub certificate: Vec<u8>,
}

/// A complete signed chain.
#[derive(Clone, Debug)]
pub struct SignedChain {
    /// The sender's certificate.
    pub certificate: Vec<u8>,
    /// The head.
    pub head: Vec<u8>,
    /// The block, index and bytes of every leaf, in order.
    pub leaves: Vec<(u32, u8, Vec<u8>)>,
    /// The contents of the head.
    pub outline: Outline,
}

impl SignedChain {
    /// Returns the short reference to the chain that frames contain.
    #[must_use]
    pub fn reference(&self) -> ChainRef {
        self.outline.reference()
    }
}

impl Authority {
    /// Creates a base station whose key is derived from a byte.
    ///
    /// # Errors
    /// `UnknownAlgorithm` if the suite is not built in.
    pub fn new(algorithm: Algorithm, seed: u8) -> Result<Self, KeyError> {
        let key = SecretKey::from_seed(algorithm, &[seed; 32])?;
        let public = key.public();
        Ok(Self { network: NetworkId::of(&public), key, public })
    }

    /// Returns the messages of an update file with this version of the firmware of a board, signed by the
    /// base station (spec/update.md, section 2). `code` is the image after its tag.
    ///
    /// # Errors
    /// [`IssueError`]; `FieldOutOfRange` if the board, the version or the length is not valid.
    pub fn update(
        &self,
        (board, version): (&str, u32),
        code: &[u8],
    ) -> Result<Vec<Vec<u8>>, IssueError> {
        let image = [&image_tag(board, version), code].concat();
        let draft = FirmwareDraft {
            network: self.network,
            base: KeyId::of(&self.public),
            board,
            version,
            length: u32::try_from(image.len()).map_err(|_| IssueError::FieldOutOfRange)?,
            digest: Digest::of(&[&image]).0,
        };
        let manifest = draft.issue_part(&self.key)?;
        Ok(std::iter::once(&manifest[..])
            .chain(image.chunks(UPDATE_PART))
            .map(<[u8]>::to_vec)
            .collect())
    }

    /// Certifies a sender whose key is derived from its name. The certificate does not expire.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn certify(
        &self,
        name: &str,
        algorithm: Algorithm,
        serial: u64,
    ) -> Result<CertifiedSender, KeyError> {
        self.certify_for(name, algorithm, serial, (0, u64::MAX))
    }

    /// Certifies a sender like [`certify`](Self::certify), but with a certificate that is valid
    /// only in the given half-open range of Unix time in seconds.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn certify_for(
        &self,
        name: &str,
        algorithm: Algorithm,
        serial: u64,
        valid: (u64, u64),
    ) -> Result<CertifiedSender, KeyError> {
        self.certify_key(name, name, algorithm, serial, valid)
    }

    /// Certifies a sender like [`certify_for`](Self::certify_for), but derives its key from the
    /// name `key`.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn certify_key(
        &self,
        name: &str,
        key: &str,
        algorithm: Algorithm,
        serial: u64,
        valid: (u64, u64),
    ) -> Result<CertifiedSender, KeyError> {
        let key = SecretKey::from_seed(
            algorithm,
            &Digest::of(&[b"moteseal/lab/sender\0", key.as_bytes()]).0,
        )?;
        let id = sender_named(name);
        let public = key.public();
        let draft = SenderCertificateDraft {
            network: self.network,
            base: KeyId::of(&self.public),
            serial,
            sender: id,
            key: &public,
            not_before: valid.0,
            not_after: valid.1,
        };
        let mut out = vec![0; MAX_SENDER_CERTIFICATE];
        let certificate =
            draft.issue(&self.key, &mut out).map_err(|_| KeyError::KeyLength)?.to_vec();
        Ok(CertifiedSender { key, id, network: self.network, certificate })
    }

    /// Issues a revocation.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn revoke(&self, revoked: Revoked) -> Result<Vec<u8>, KeyError> {
        let draft = RevocationDraft { network: self.network, base: &self.public, revoked };
        let mut out = vec![0; MAX_REVOCATION];
        Ok(draft.issue(&self.key, &mut out).map_err(|_| KeyError::KeyLength)?.to_vec())
    }
}

impl CertifiedSender {
    /// Returns the sender's key.
    #[must_use]
    pub const fn key(&self) -> &SecretKey {
        &self.key
    }

    /// Returns the id of the sender's key.
    #[must_use]
    pub fn key_id(&self) -> KeyId {
        KeyId::of(&self.key.public())
    }

    /// Signs a chain of announcements.
    ///
    /// # Errors
    /// [`DraftError`].
    pub fn send(
        &self,
        number: u64,
        per_block: u8,
        messages: &[Vec<u8>],
    ) -> Result<SignedChain, DraftError> {
        self.send_as((Kind::Announcement, "", Window::ALWAYS), None, number, per_block, messages)
    }

    /// Signs a chain of this kind, label and window. `previous` is the number of the sender's chain
    /// before it.
    ///
    /// # Errors
    /// [`DraftError`].
    pub fn send_as(
        &self,
        (kind, label, window): (Kind, &str, Window),
        previous: Option<u64>,
        number: u64,
        per_block: u8,
        messages: &[Vec<u8>],
    ) -> Result<SignedChain, DraftError> {
        let count = u32::try_from(messages.len()).map_err(|_| DraftError::TooManyMessages)?;
        let id = ChainId { network: self.network, sender: self.id, number: ChainNumber(number) };
        let draft = ChainDraft {
            id,
            key: self.key_id(),
            messages: count,
            per_block,
            kind,
            label,
            window,
            previous: previous.map(ChainNumber),
            is_addressed: false,
        };
        let (mut digests, mut tags) =
            (vec![Digest::NULL; messages.len()], vec![[0; 8]; messages.len()]);
        let (mut scratch, mut out) = (vec![0; MAX_LEAF], vec![0; MAX_HEAD]);
        let read = |number: u32, out: &mut [u8]| -> Result<usize, DraftError> {
            let message = messages.get(number as usize).ok_or(DraftError::NoMessages)?;
            out.get_mut(..message.len())
                .ok_or(DraftError::MessageTooLong)?
                .copy_from_slice(message);
            Ok(message.len())
        };
        let chain = OutgoingChain::build(draft, &mut digests, &mut tags, &mut scratch, read);
        let chain = chain.map_err(|error| match error {
            BuildError::Draft(error) | BuildError::Read(error) => error,
        })?;
        let head = chain
            .head(&self.key, &mut vec![0; MAX_HEAD], &mut out)
            .map_err(|_| DraftError::BufferTooSmall)?
            .to_vec();
        let mut leaves = Vec::new();
        let mut numbered = messages.iter();
        for block in 1..=chain.blocks() {
            for (index, message) in (0..chain.in_block(block)).zip(numbered.by_ref()) {
                let leaf = chain
                    .leaf(block, index, message, &mut scratch)
                    .map_err(|_| DraftError::BufferTooSmall)?;
                leaves.push((block, index, leaf.to_vec()));
            }
        }
        Ok(SignedChain {
            certificate: self.certificate.clone(),
            head,
            leaves,
            outline: *chain.outline(),
        })
    }
}
